import Foundation
import PipelineCore
import PipelineHost
import Testing

/// The sink `journald`: the datagrams that it sends, and their entries in the test's own journald.
@Suite struct JournaldSinkTests {
  private func encoded(_ json: String, _ change: (inout JournalEncoding) -> Void = { _ in }) throws -> String? {
    var encoding = JournalEncoding()
    change(&encoding)
    let encoder = JournalEncoder(encoding)
    let slab = Slab(Array(json.utf8))
    let rows = RowBatch()
    let arena = Arena()
    try DecoderOptions(.json, unit: .body).decoder().decode(slab, arena: arena, into: rows)
    let output = OutputBuffer()
    if encoder.append(rows.rows[0].value, to: output) != nil { return nil }
    return String(decoding: output.bytes, as: UTF8.self)
  }

  @Test(arguments: [
    (#"{"message":"hello"}"#, "MESSAGE=hello\nPRIORITY=6\n"),
    (#"{"MESSAGE":"a","priority":3}"#, "MESSAGE=a\nPRIORITY=3\n"),
    (#"{"message":"a","PRIORITY":"warning"}"#, "MESSAGE=a\nPRIORITY=4\n"),
    (#"{"message":"a","priority":"9"}"#, "MESSAGE=a\nPRIORITY=6\n"),
    (#"{"message":"a\nb"}"#, "MESSAGE\n\u{3}\0\0\0\0\0\0\0a\nb\nPRIORITY=6\n"),
    (#"{"message":"a","http":{"status":200,"path":"/x"}}"#, "MESSAGE=a\nHTTP_STATUS=200\nHTTP_PATH=/x\nPRIORITY=6\n"),
    (#"{"message":"a","tags":["x",2,{"y":1}]}"#, "MESSAGE=a\nTAGS=x\nTAGS=2\nTAGS={\"y\":1}\nPRIORITY=6\n"),
    (
      #"{"message":"a","user-id":7,"1st":true,"é":0,"no":null}"#, "MESSAGE=a\nUSER_ID=7\nX1ST=true\nX__=0\nPRIORITY=6\n"
    ),
    (
      #"{"MESSAGE":"a","_PID":1,"__CURSOR":"s","SYSLOG_IDENTIFIER":"me"}"#,
      "MESSAGE=a\nSYSLOG_IDENTIFIER=me\nPRIORITY=6\n"
    ),
    (#"{"a":1}"#, "A=1\nMESSAGE={\"a\":1}\nPRIORITY=6\n"), (#""text""#, "MESSAGE=text\nPRIORITY=6\n"),
    ("7", "MESSAGE=7\nPRIORITY=6\n"),
  ]) func encodes(_ event: String, _ expected: String) throws {
    #expect(try encoded(event) == expected)
  }

  @Test func boundsNamesAndFields() throws {
    let long = String(repeating: "a", count: 100)
    #expect(
      try encoded("{\"message\":\"m\",\"\(long)\":1}")
        == "MESSAGE=m\n\(String(repeating: "A", count: 64))=1\nPRIORITY=6\n")
    let many = (0..<901).map { "\"a\($0)\":\($0)" }.joined(separator: ",")
    #expect(try encoded("{\(many)}") == nil)
  }

  @Test func fillsInWhatIsMissing() throws {
    #expect(
      try encoded(#"{"message":"a"}"#) {
        $0.priority = 2
        $0.identifier = "shop"
      } == "MESSAGE=a\nPRIORITY=2\nSYSLOG_IDENTIFIER=shop\n")
  }

  /// Entries of all kinds are sent to journald and read back: plain, with line breaks and bytes, and too large for a
  /// datagram.
  @Test(.enabled(if: JournalDaemon.canRun, "needs root and systemd-journald")) func journaldTakesEntries() throws {
    let daemon = try JournalDaemon()
    let directory = try #require(daemon.directory)
    let folder = Scratch()
    folder.append(
      "{\"message\":\"large\",\"large\":\"\(String(repeating: "abcdefghij", count: 30_000))\"}\n", to: "large")
    let pipeline = try RealPipeline(
      """
      sources:
        in:
          values:
            - { message: plain, priority: err, http: { status: 200 } }
            - { message: "two\\nlines", tags: [a, b] }
        large: { file: { path: '\(folder("large"))', decode: json } }
        back: { journald: { directory: '\(directory)', maxField: 1MiB, match: { SYSLOG_IDENTIFIER: shop } } }
      signals: { all: { merge: [in, large] } }
      sinks:
        out:
          from: all
          journald: { socket: '\(daemon.socket)', identifier: shop }
        seen:
          from: back
          chain:
            - map: '[event.MESSAGE, event.PRIORITY, event.?HTTP_STATUS.orValue(""), event.?TAGS.orValue(""), event.?LARGE.orValue("").size()]'
          probe: {}
      """)
    #expect(pipeline.run { pipeline.probe("seen").events.count == 3 })
    #expect(
      pipeline.probe("seen").events == [
        #"["plain",3,"200","",0]"#, #"["two\nlines",6,"",["a","b"],0]"#, #"["large",6,"","",300000]"#,
      ])
    #expect(pipeline.counters.sent >= 3)
  }
}
