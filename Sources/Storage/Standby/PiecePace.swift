/// The adaptive size of the pieces in which a store is sent: what the connection transfers in about a second, so that a
/// broken connection is detected soon, and a slow one is not mistaken for it.
struct PiecePace {
  private(set) var bytes = 256 << 10
  private var start: Int64 = 0
  private static let bounds = (64 << 10)...(4 << 20)

  /// Called when a piece is sent; times are nanoseconds of the monotonic clock.
  mutating func begin(at time: Int64) { start = time }

  mutating func answered(at time: Int64) {
    if time - start < 1_000_000_000 { bytes = min(bytes * 2, Self.bounds.upperBound) }
    if time - start > 4_000_000_000 { bytes = max(bytes / 2, Self.bounds.lowerBound) }
  }

  mutating func failed() { bytes = max(bytes / 4, Self.bounds.lowerBound) }
}
