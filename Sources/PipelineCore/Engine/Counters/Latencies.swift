import Synchronization

/// The latency of a component's events: a histogram with fixed bounds. Written on any thread.
package struct Latency: Sendable, Equatable {
  /// The upper bounds of the buckets, in nanoseconds; the last bucket has none.
  package static let bounds: [Int64] = [
    1_000_000, 2_500_000, 5_000_000, 10_000_000, 25_000_000, 50_000_000, 100_000_000, 250_000_000, 500_000_000,
    1_000_000_000, 2_500_000_000, 5_000_000_000, 10_000_000_000, 30_000_000_000, 60_000_000_000, 300_000_000_000,
  ]
  /// The number of latencies in each bucket; the last bucket is above all bounds.
  package var counts = [UInt64](repeating: 0, count: Self.bounds.count + 1)
  /// The sum of all latencies, in nanoseconds.
  package var sum: Int64 = 0

  package init() {}

  package var count: UInt64 { counts.reduce(0, &+) }

  package mutating func add(_ span: TimeSpan, _ times: Int) {
    let nanoseconds = max(0, span.nanoseconds)
    counts[Self.bounds.firstIndex { nanoseconds <= $0 } ?? Self.bounds.count] &+= UInt64(max(0, times))
    let (more, overflow) = nanoseconds.multipliedReportingOverflow(by: Int64(times))
    if !overflow { sum &+= more }
  }

  package mutating func add(_ other: Latency) {
    for index in counts.indices { counts[index] &+= other.counts[index] }
    sum &+= other.sum
  }

  /// The smallest bound, in nanoseconds, that at least this share of the latencies does not exceed; the greatest bound
  /// if there is none. Nil: there are no latencies.
  package func bound(of share: Double) -> Int64? {
    let all = count
    guard all > 0 else { return nil }
    var seen: UInt64 = 0
    for (index, count) in counts.enumerated() {
      seen &+= count
      if Double(seen) >= Double(all) * share { return Self.bounds[min(index, Self.bounds.count - 1)] }
    }
    return Self.bounds.last
  }
}

/// The latencies of one component while it runs.
package final class LatencyMeter: Sendable {
  private let state = Mutex(Latency())
  private let clock: any Clock

  init(_ clock: any Clock) { self.clock = clock }

  var latency: Latency { state.withLock { $0 } }

  /// Records that events that arrived at `start` are now done.
  func ended(_ events: Int, since start: Instant) {
    let span = clock.now - start
    state.withLock { $0.add(span, events) }
  }
}
