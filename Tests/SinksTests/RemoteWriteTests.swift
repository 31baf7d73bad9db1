import Foundation
import PipelineCore
import PipelineHost
import PipelineTestSupport
import Testing

@testable import Sinks

/// The bodies of `prometheusRemoteWrite`. `RemoteWriteServerTests` send them to a real Prometheus.
@Suite struct RemoteWriteTests {
  /// Decompresses according to the format's description, without rxd's code.
  private func uncompressed(_ block: [UInt8]) -> [UInt8]? {
    var at = 0
    func varint() -> Int {
      var value = 0
      var shift = 0
      while true {
        let byte = block[at]
        at += 1
        value |= Int(byte & 0x7F) << shift
        if byte < 0x80 { return value }
        shift += 7
      }
    }
    let length = varint()
    var out: [UInt8] = []
    while at < block.count {
      let tag = block[at]
      at += 1
      if tag & 3 == 0 {
        var count = Int(tag >> 2)
        if count >= 60 {
          let bytes = count - 59
          count = (0..<bytes).reduce(0) { $0 | Int(block[at + $1]) << (8 * $1) }
          at += bytes
        }
        out += block[at..<(at + count + 1)]
        at += count + 1
      } else {
        guard tag & 3 == 2 else { return nil }
        let offset = Int(block[at]) | Int(block[at + 1]) << 8
        at += 2
        guard offset > 0, offset <= out.count else { return nil }
        for _ in 0...Int(tag >> 2) { out.append(out[out.count - offset]) }
      }
    }
    return out.count == length ? out : nil
  }

  @Test(arguments: [0, 1, 3, 4, 59, 60, 61, 255, 256, 257, 65_535, 65_536, 65_537, 300_000])
  func blocksAreReadBack(_ count: Int) {
    var random = SplitMix(UInt64(count))
    let noise = (0..<count).map { _ in UInt8(random.below(256)) }
    let letters = Array("abcdefgh0123".utf8)
    let text = (0..<count).map { letters[$0 * $0 % 12] }
    let zeros = [UInt8](repeating: 0, count: count)
    for bytes in [noise, text, zeros] {
      #expect(uncompressed(Snappy.block(bytes)) == bytes)
    }
    if count > 1000 {
      #expect(Snappy.block(zeros).count < count / 20)
      #expect(Snappy.block(noise).count < count + count / 1000 + 40)
    }
  }

  @Test func messagesAreThoseOfTheProtocol() {
    var one: [UInt8] = []
    let labels = RemoteWriteMessage.labels("up", [("Z", "1"), ("a", ""), ("b", "x")])
    // In byte order: Z, __name__, b; a has no text.
    #expect(
      labels == [0x0A, 6, 0x0A, 1] + Array("Z".utf8) + [0x12, 1] + Array("1".utf8) + [0x0A, 14, 0x0A, 8]
        + Array("__name__".utf8) + [0x12, 2] + Array("up".utf8) + [0x0A, 6, 0x0A, 1] + Array("b".utf8) + [0x12, 1]
        + Array("x".utf8))
    for (value, time) in [(1.0, 5), (2, 3), (3, 5)] { RemoteWriteMessage.append(labels, value, Int64(time), to: &one) }
    func sample(_ value: Double, _ time: UInt8) -> [UInt8] {
      [0x12, 11, 0x09] + withUnsafeBytes(of: value.bitPattern.littleEndian) { Array($0) } + [0x10, time]
    }
    let series = labels + sample(2, 3) + sample(3, 5)
    #expect(RemoteWriteMessage.request([one]) == [0x0A, UInt8(series.count)] + series)
  }

  @Test func totalsAreKept() {
    let store = MetricStore(buckets: [1], mostSeries: 3, expire: nil)
    func metric(_ name: String, _ type: String, _ value: Double, relative: Bool = false) -> MetricStore.Metric {
      var metric = MetricStore.Metric()
      (metric.name, metric.type, metric.value, metric.isRelative) = (name, type, value, relative)
      return metric
    }
    func values(_ metric: MetricStore.Metric) -> [String] {
      switch store.samples(metric) {
      case .failure(let fault): [fault.message]
      case .success(let samples):
        samples.map { "\($0.name)\($0.labels.map { "{\($0.value)}" }.joined()) \($0.value)" }
      }
    }
    #expect(values(metric("a", "counter", 5)) == ["a 5.0"])
    #expect(values(metric("n", "counter", 2, relative: true)) == ["n 2.0"])
    #expect(values(metric("n", "counter", 3, relative: true)) == ["n 5.0"])
    #expect(values(metric("n", "counter", -1, relative: true)) == ["the counter 'n' would fall by 1.0"])
    #expect(
      values(metric("h", "histogram", 0.5)) == ["h_bucket{1} 1.0", "h_bucket{+Inf} 1.0", "h_sum 0.5", "h_count 1.0"])
    #expect(values(metric("x", "vague", 1)).first?.contains("which Prometheus does not have") == true)
    _ = values(metric("o", "counter", 1, relative: true))
    #expect(values(metric("p", "counter", 1, relative: true)).first?.contains("'maxSeries' allows") == true)
  }

  private let metrics = """
    [ { name: a, type: gauge, value: 1 }, { name: b, type: gauge, value: 2, timestamp: 1.5 }, { name: c }, 7, { name: d, value: 1, timestamp: soon } ]
    """

  /// A refused request is halved until the offending sample is alone.
  @Test(arguments: [(503, 2), (429, 2), (200, 2), (400, 0)]) func goesByTheAnswer(_ status: Int, _ sent: Int) throws {
    let running = try VirtualPipeline(
      """
      sources: { in: { values: \(metrics) } }
      sinks:
        out: { from: in, prometheusRemoteWrite: { url: 'http://p.example/api/v1/write' } }
        lost: { from: out.errors, chain: [ { map: event.error } ], probe: {} }
      """)
    running.http.script = { number, _ in ScriptedHTTP.status(number == 0 || status == 400 ? status : 204) }
    running.run(until: .seconds(100))
    #expect(running.counters.sent == sent)
    let lost = running.probe("lost").events
    #expect(
      lost.prefix(3) == [
        #""the metric 'c' has no 'value' that is a number""#, #""the event is not a metric: it is not a map""#,
        #""'timestamp' of the metric is not a time: use timestamp(...), or seconds since 1970""#,
      ])
    #expect(lost.count == (status == 400 ? 5 : 3))
  }
}
