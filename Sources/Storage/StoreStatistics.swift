import PipelineCore

/// The counters of a store since it was opened.
package struct StoreStatistics: Sendable {
  package private(set) var commits: UInt64 = 0
  /// For each power of two: the number of commits that took at least that many nanoseconds, but less than twice as
  /// many.
  private var durations = [UInt64](repeating: 0, count: 63)

  package init() {}

  package mutating func count(_ nanoseconds: Int64) {
    commits += 1
    durations[63 - max(1, nanoseconds).leadingZeroBitCount] += 1
  }

  /// A time within which 99 % of the commits were on the disk, at most twice the exact value; nil if there were no
  /// commits.
  package var percentile99: TimeSpan? {
    guard commits > 0 else { return nil }
    var left = commits - commits / 100
    for (power, count) in durations.enumerated() {
      if count >= left { return TimeSpan(nanoseconds: power < 62 ? 1 << Int64(power + 1) : .max) }
      left -= count
    }
    return nil
  }
}
