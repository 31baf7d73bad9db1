import Foundation
import PipelineHost
import Testing

/// A real Prometheus accepts the output of `prometheusRemoteWrite`, and a refused batch is split.
@Suite(
  .timeLimit(.minutes(10)), .enabled(if: VerbTests.has("prometheus", "--version"), "needs prometheus"))
struct RemoteWriteServerTests {
  let folder: Scratch
  init() throws { folder = try Scratch() }

  @Test func prometheusTakesWhatIsSent() throws {
    let server = try PrometheusServer(folder, "scrape_configs: []\n", "--web.enable-remote-write-receiver")
    func answer(_ query: String) throws -> String { try server.answer("/api/v1/query", ["query=\(query)"]) }
    // The server accepts connections before it is ready; the sink retries until it is.
    let now = Int(Date().timeIntervalSince1970)
    var lines: [String] = []
    for number in 0..<3000 {
      lines.append(
        #"{"name":"load.value","type":"gauge","labels":{"host":"h\#(number % 10)","empty":"","q":"a\"ü"},"value":\#(number),"timestamp":\#(now - 3000 + number)}"#
      )
    }
    // A sample older than the newest one of its series, among valid ones.
    lines.append(#"{"name":"load.value","labels":{"host":"h1","q":"a\"ü"},"value":1,"timestamp":\#(now - 2000)}"#)
    lines.append(#"{"name":"fresh","value":42}"#)
    lines += (0..<10).map { _ in #"{"name":"hits","type":"counter","value":2,"relative":true}"# }
    lines += [1, 5, 300].map { #"{"name":"wait","type":"timer","value":\#($0)}"# }
    let input = try folder.write("in.ndjson", lines.joined(separator: "\n") + "\n")
    let file = try folder.write(
      "write.yaml",
      """
      sources: { in: { file: { path: '\(input)', decode: ndjson } } }
      sinks:
        out: { from: in, prometheusRemoteWrite: { url: 'http://127.0.0.1:\(server.port)/api/v1/write', labels: { instance: here }, batch: 500, retry: { delay: 50ms, maxDelay: 200ms } } }
        lost: { from: out.errors, chain: [ { map: '[event.code, event.event.value]' } ], stdout: {} }

      """)
    let outcome = try Rxd.run("run", file)
    #expect(outcome.lines == [#"["RX504",1]"#], "\(outcome.errors)")
    let counts = try answer(#"sum(count_over_time(load_value{instance="here",q="a\"ü",empty=""}[2h]))"#)
    #expect(counts.contains(#","3000"]"#), "\(counts)")
    let last = try answer(#"load_value{host="h9"}"#)
    #expect(last.contains(#","2999"]"#), "\(last)")
    #expect(try answer("fresh").contains(#","42"]"#))
    #expect(try answer("hits").contains(#","20"]"#))
    #expect(try answer(#"wait_bucket{le="0.01"}"#).contains(#","2"]"#))
    #expect(try answer("wait_count").contains(#","3"]"#))
  }
}
