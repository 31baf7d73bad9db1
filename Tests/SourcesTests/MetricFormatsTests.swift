import Foundation
import PipelineCore
import PipelineHost
import PipelineTestSupport
import Testing

/// `decode: statsd` and `decode: prometheus`: the meaning of lines, and the byte offset of errors.
@Suite struct MetricFormatsTests {
  private func decoded(_ format: DecoderFormat, _ text: String) throws -> (events: [String], refused: [String]) {
    let rows = RowBatch()
    let arena = Arena()
    let slab = Slab(Array(text.utf8))
    try DecoderOptions(format, unit: .body).decoder().decode(slab, arena: arena, into: rows)
    return (rows.rows.map { OwnedValue($0.value).json }, rows.rejected.map { "\($0.reason)" })
  }

  private func statsd(
    _ name: String, _ type: String, _ value: String, labels: String = "{}", _ more: String = #""sampleRate":1"#
  )
    -> String
  { #"{"name":"\#(name)","type":"\#(type)","labels":\#(labels),"value":\#(value),\#(more)}"# }

  @Test func readsStatsD() throws {
    let text = """
      hits:1|c
      hits:3|c|@0.5
      users:42|g
      users:-2|g
      users:+2.5|g
      latency:320|ms|@0.25|#env:prod,flag,region:eu:1
      size:1:2:3|h
      ids:a:b|s
      d:1|d|#a:1,a:2|c:abc|T1700000000

      """
    let (events, refused) = try decoded(.statsd, text)
    #expect(refused == [])
    let relative = #""sampleRate":1,"relative":true"#
    let expected = [
      statsd("hits", "counter", "1", relative), statsd("hits", "counter", "3", #""sampleRate":0.5,"relative":true"#),
      statsd("users", "gauge", "42"), statsd("users", "gauge", "-2", relative),
      statsd("users", "gauge", "2.5", relative),
      statsd("latency", "timer", "320", labels: #"{"env":"prod","flag":"","region":"eu:1"}"#, #""sampleRate":0.25"#),
      statsd("size", "histogram", "1"), statsd("size", "histogram", "2"), statsd("size", "histogram", "3"),
      statsd("ids", "set", #""a:b""#),
      statsd(
        "d", "distribution", "1", labels: #"{"a":"2"}"#,
        #""sampleRate":1,"timestamp":"2023-11-14T22:13:20Z","container":"abc""#),
    ]
    #expect(events.map(plain) == expected.map(plain))
  }

  /// Whole doubles are written with or without a fraction.
  private func plain(_ text: String) -> String { text.replacing(".0,", with: ",").replacing(".0}", with: "}") }

  @Test(arguments: [
    ("hits", "expected a name and ':' at byte 0"), (":1|c", "expected a name and ':' at byte 0"),
    ("hits:1", "expected '|' and a type at byte 6"),
    ("hits:1|x", "expected one of the types c, g, ms, h, d and s at byte 7"),
    ("hits:|c", "expected a number at byte 5"), ("hits:1x|c", "expected a number at byte 5"),
    ("hits:nan|g", "expected a number at byte 5"),
    ("hits:1|c|@2", "expected a sample rate above 0, and at most 1 at byte 10"),
    ("hits:1|c|@0", "expected a sample rate above 0, and at most 1 at byte 10"),
    ("_e{5,4}:title|text", "expected the name of a metric at byte 0"),
    ("_sc|name|0:a|c", "expected the name of a metric at byte 0"),
  ]) func refusesStatsD(_ line: String, _ reason: String) throws {
    let (events, refused) = try decoded(.statsd, "\(line)\nok:1|g\n")
    #expect(refused == ["not a metric of statsd: \(reason)"])
    #expect(events.count == 1)
  }

  @Test func readsPrometheus() throws {
    let text = #"""
      # A comment.
      # HELP requests_total All requests.
      # TYPE requests_total counter
      requests_total{code="200",path="/a\"b\\c\nd"} 1027 1700000000500
      requests_total{code="500",} 3
      # TYPE latency_seconds histogram
      latency_seconds_bucket{le="0.1"} 5
      latency_seconds_bucket{le="+Inf"} 7
      latency_seconds_sum 1.5e0
      latency_seconds_count 7
      # TYPE rpc summary
      rpc{quantile="0.5"} NaN
      plain -Inf
      {"with.dots", "a.b"="x"} 4
      """#
    let (events, refused) = try decoded(.prometheus, text)
    #expect(refused == [])
    func event(_ name: String, _ type: String, _ labels: String, _ value: String, _ more: String = "") -> String {
      #"{"name":"\#(name)","type":"\#(type)","labels":\#(labels),"value":\#(value)\#(more)}"#
    }
    let family = #","family":"latency_seconds""#
    #expect(
      events.map(plain)
        == [
          event(
            "requests_total", "counter", #"{"code":"200","path":"/a\"b\\c\nd"}"#, "1027",
            #","timestamp":"2023-11-14T22:13:20.5Z""#),
          event("requests_total", "counter", #"{"code":"500"}"#, "3"),
          event("latency_seconds_bucket", "histogram", #"{"le":"0.1"}"#, "5", family),
          event("latency_seconds_bucket", "histogram", #"{"le":"+Inf"}"#, "7", family),
          event("latency_seconds_sum", "histogram", "{}", "1.5", family),
          event("latency_seconds_count", "histogram", "{}", "7", family),
          event("rpc", "summary", #"{"quantile":"0.5"}"#, #""NaN""#), event("plain", "untyped", "{}", #""-Infinity""#),
          event("with.dots", "untyped", #"{"a.b":"x"}"#, "4"),
        ].map(plain))
  }

  @Test func readsOpenMetrics() throws {
    let text = """
      # TYPE requests counter
      # UNIT requests requests
      requests_total{a="b"} 5 1700000000.25 # {trace_id="abc"} 0.5 1700000001
      requests_created{a="b"} 1700000000
      # TYPE build info
      build_info{version="1"} 1
      # EOF

      """
    let (events, refused) = try decoded(.prometheus, text)
    #expect(refused == [])
    #expect(
      events.map(plain) == [
        #"{"name":"requests_total","type":"counter","labels":{"a":"b"},"value":5,"family":"requests","unit":"requests","timestamp":"2023-11-14T22:13:20.25Z","exemplar":{"labels":{"trace_id":"abc"},"value":0.5,"timestamp":"2023-11-14T22:13:21Z"}}"#,
        #"{"name":"requests_created","type":"counter","labels":{"a":"b"},"value":1700000000,"family":"requests","unit":"requests"}"#,
        #"{"name":"build_info","type":"info","labels":{"version":"1"},"value":1,"family":"build"}"#,
      ])
  }

  @Test(arguments: [
    ("a{b=\"c\"", "expected ',' or '}' at byte 7"), ("a{b=c} 1", "expected a text in quotes at byte 4"),
    ("a{b} 1", "expected '=' at byte 3"), ("a{b=\"c} 1", "expected a closing quote at byte 9"),
    ("a", "expected a value at byte 1"), ("a x", "expected a value at byte 2"),
    ("{} 1", "expected the name of a metric at byte 2"),
    ("a 1 x", "expected a time at byte 4"), ("a 1 2 3", "expected the end of the line at byte 6"),
    ("a{b=\"1\",b=\"2\"} 1", "expected a label that does not come before at byte 8"),
    ("1a 2", "expected the name of a metric at byte 0"),
  ]) func refusesPrometheus(_ line: String, _ reason: String) throws {
    let (events, refused) = try decoded(.prometheus, "\(line)\nok 1\n")
    #expect(refused == ["not a metric of prometheus: \(reason)"])
    #expect(events.count == 1)
  }

  /// The starts of the lines for which a decoder gives a row.
  private func starts(_ format: DecoderFormat, _ bytes: [UInt8]) -> Set<Int64> {
    var starts: Set<Int64> = []
    var at = 0
    for line in bytes.split(separator: 0x0A, omittingEmptySubsequences: false) {
      let isComment =
        format == .prometheus && line.first == UInt8(ascii: "#") && String(validating: line, as: UTF8.self) != nil
      if !isComment, line.contains(where: { ![0x20, 0x09, 0x0D].contains($0) }) { starts.insert(Int64(at)) }
      at += line.count + 1
    }
    return starts
  }

  /// No bytes trap; every line is a metric or an error with its offset; and decoding twice gives the same.
  @Test(arguments: [DecoderFormat.statsd, .prometheus], 0..<20) func takesAnything(_ format: DecoderFormat, _ seed: Int)
    throws
  {
    var random = SplitMix(UInt64(seed))
    let good =
      format == .statsd
      ? "a.b:1:2|ms|@0.5|#x:y,z|c:d|T17\n"
      : "# TYPE a histogram\na_bucket{le=\"+Inf\",b=\"\\\\\\n\\\"\"} 1e3 17 # {x=\"y\"} 1 2\n# EOF\n"
    var events = 0
    var refused = 0
    for _ in 0..<500 {
      var bytes = Array(good.utf8)
      for _ in 0...Int.random(in: 0..<4, using: &random) {
        let at = Int.random(in: 0..<bytes.count, using: &random)
        switch Int.random(in: 0..<3, using: &random) {
        case 0: bytes[at] = UInt8.random(in: 0...255, using: &random)
        case 1: bytes.remove(at: at)
        default: bytes.insert(bytes[Int.random(in: 0..<bytes.count, using: &random)], at: at)
        }
        if bytes.isEmpty { bytes = [0x0A] }
      }
      var results: [[String]] = []
      for _ in 0..<2 {
        let rows = RowBatch()
        let arena = Arena()
        let slab = Slab(bytes)
        try DecoderOptions(format, unit: .body).decoder().decode(slab, arena: arena, into: rows)
        let said = Set(rows.rows.map(\.offset) + rows.rejected.map(\.offset))
        #expect(said == starts(format, bytes), "\(String(decoding: bytes, as: UTF8.self))")
        results.append(rows.rows.map { OwnedValue($0.value).json } + rows.rejected.map { "\($0.reason)" })
        events += rows.rows.count
        refused += rows.rejected.count
      }
      #expect(results.first == results.last)
      #expect(results.joined().allSatisfy { !$0.isEmpty })
    }
    #expect(events > 100 && refused > 100, "\(events) events, \(refused) lines refused")
  }

  /// Metrics over each transport.
  @Test(arguments: ["udp", "tcp", "unix"]) func receivesStatsD(_ transport: String) throws {
    let folder = Scratch()
    let place = transport == "unix" ? folder("s") : "{ address: '127.0.0.1:0', transport: \(transport) }"
    let pipeline = try RealPipeline(
      """
      sources: { in: { statsd: \(place) } }
      sinks:
        out: { from: in, chain: [ { map: '[event.name, event.value, event.labels]' } ], probe: {} }
        bad: { from: in.errors, probe: {} }
      """)
    let client: SocketClient
    if transport == "unix" {
      pipeline.run { pipeline.log.contains { $0.contains("listening on") } }
      client = try #require(SocketClient(path: folder("s"), isDatagram: true))
    } else {
      let port = try #require(pipeline.port())
      client = try #require(SocketClient(port: port, isDatagram: transport == "udp"))
    }
    client.send("hits:1|c|#a:b\nusers:2|g\nbad\n")
    #expect(pipeline.run { pipeline.events.count == 2 && pipeline.probe("bad").events.count == 1 })
    #expect(pipeline.events.map { $0.replacing(".0", with: "") } == [#"["hits",1,{"a":"b"}]"#, #"["users",2,{}]"#])
  }
}
