import Foundation
import PipelineCore
import PipelineHost
import Testing

/// `jsonDocuments` and `charset` of real files: followed, cut at any offset and resumed, and decoded by several
/// threads.
@Suite struct EverydayDecodingTests {
  let scratch = Scratch()

  private func yaml(_ source: String) -> String {
    """
    sources: { input: { \(source) } }
    sinks:
      out: { from: input, chain: [ { map: "[event, meta.offset]" } ], probe: {} }
      bad: { from: input.errors, probe: {} }
    """
  }

  /// Wherever a run ends, the next one continues: together they send each event once.
  private func expectResumed(_ parameters: String, _ input: [UInt8], _ expected: [String], wholeBefore: (Int) -> Int)
    throws
  {
    for cut in stride(from: 0, through: input.count, by: 3) {
      let name = "\(cut).txt"
      let yaml = yaml("file: { path: '\(scratch(name))', follow: true, \(parameters) }")
      scratch.append(Array(input[..<cut]), to: name)
      let first = try RealPipeline(yaml)
      first.run { first.events.count >= wholeBefore(cut) }
      let state = try #require(first.suspend())
      scratch.append(Array(input[cut...]), to: name)
      let second = try RealPipeline(yaml, restoring: state)
      #expect(second.execution.refusals.map(\.message) == [])
      second.run { first.events.count + second.events.count >= expected.count }
      #expect(first.events + second.events == expected, "cut at \(cut)")
      #expect(first.probe("bad").events.isEmpty && second.probe("bad").events.isEmpty)
    }
  }

  @Test func documentsOverSeveralLines() throws {
    let input = "{\n  \"a\": 1\n}\n{\"b\":\n[2]}{\"c\":3}\n"
    try expectResumed(
      "decode: jsonDocuments", Array(input.utf8), [#"[{"a":1},0]"#, #"[{"b":[2]},13]"#, #"[{"c":3},23]"#],
      wholeBefore: { cut in [12, 23, 30].count { $0 <= cut } })
  }

  @Test(arguments: [true, false]) func utf16(_ hasMark: Bool) throws {
    let text = "gr\u{00FC}n\nrot\n\u{0A0A}\n"
    var input: [UInt8] = hasMark ? [0xFE, 0xFF] : []
    for unit in text.utf16 { input += [UInt8(unit >> 8), UInt8(unit & 0xFF)] }
    let start = hasMark ? 2 : 0
    try expectResumed(
      "charset: \(hasMark ? "utf-16" : "utf-16be")", input,
      ["[\"gr\u{00FC}n\",\(start)]", "[\"rot\",\(start + 10)]", "[\"\u{0A0A}\",\(start + 18)]"],
      wholeBefore: { cut in [10, 18, 22].count { $0 + start <= cut } })
  }

  @Test func latin1() throws {
    try expectResumed(
      "charset: latin1", [0xFC, 0x0A, 0x61, 0x0A, 0xE4, 0xF6, 0x0A],
      ["[\"\u{FC}\",0]", "[\"a\",2]", "[\"\u{E4}\u{F6}\",4]"],
      wholeBefore: { cut in [2, 4, 7].count { $0 <= cut } })
  }

  @Test(arguments: [1, 4]) func severalThreads(_ threads: Int) throws {
    var bytes: [UInt8] = []
    var expected: [String] = []
    for number in 0..<2000 {
      expected.append("[{\"n\":\"\(number)\u{20AC}\"},\(bytes.count)]")
      bytes += Array("{\"n\":\"\(number)".utf8) + [0x80] + Array("\"}\n".utf8)
    }
    scratch.append(bytes, to: "a.log")
    let reading = try RealPipeline(
      "threads: \(threads)\n" + yaml("file: { path: '\(scratch("a.log"))', decode: ndjson, charset: windows-1252 }")
    ) {
      $0.reading.blockBytes = 1000
      $0.reading.startsAllThreads = true
    }
    #expect(reading.runToEnd() == .completed)
    #expect(reading.events == expected)
  }

  /// A document cut off by a truncation is reported.
  @Test func aTruncationWithinADocument() throws {
    scratch.append("[1]\n{\"a\":", to: "a.log")
    let pipeline = try RealPipeline(yaml("file: { path: '\(scratch("a.log"))', follow: true, decode: jsonDocuments }"))
    pipeline.run { pipeline.events.count >= 1 }
    #expect(truncate(scratch("a.log"), 0) == 0)
    pipeline.run { pipeline.probe("bad").events.count >= 1 }
    scratch.append("[2]\n", to: "a.log")
    pipeline.run { pipeline.events.count >= 2 }
    #expect(pipeline.events == ["[[1],0]", "[[2],0]"])
  }

  @Test func documentsOfAConnection() throws {
    let pipeline = try RealPipeline(yaml("unix: { path: '\(scratch("s"))', decode: jsonDocuments }"))
    pipeline.run { pipeline.log.contains { $0.contains("listening") } }
    let client = try #require(SocketClient(path: scratch("s")))
    client.send("{\"a\":\n1}{\"b\"")
    // The event does not wait for a line feed.
    pipeline.run { pipeline.events.count >= 1 }
    client.send(":2}[3,")
    pipeline.run { pipeline.events.count >= 2 }
    client.end()
    pipeline.run { pipeline.probe("bad").events.count >= 1 }
    #expect(pipeline.events == [#"[{"a":1},0]"#, #"[{"b":2},8]"#])
  }

  @Test(
    arguments: [
      ("charset: utf-61", "there is no charset 'utf-61'"),
      ("charset: utf-16, decode: bytes", "'decode: bytes' takes no 'charset'"),
      ("charset: latin1, decode: jsonDocuments", "'decode: jsonDocuments' takes no 'charset'"),
      ("charset: utf-16, follow: true, join: { indented: true }", "'join' cannot be used with 'charset: utf-16'"),
      ("charset: utf-16le, follow: true, start: end", "'start: end' cannot be used with UTF-16"),
    ])
  func mistakes(_ parameters: String, _ message: String) {
    let complaints = PipelineText.complaints(yaml("file: { path: a.log, \(parameters) }"))
    #expect(complaints.contains { $0.contains(message) }, "\(complaints)")
  }
}
