/// A node that waits before it subscribes again.
protocol Pausing: OperatorNode {
  /// The pipeline stops: continue at once, since waiting is pointless.
  func endPause()
}

/// Detects rounds of subscribing again that have no effect, and decides how long to wait before the next round.
///
/// A round has no effect if it was short and, for callers of ``reset()``, sent nothing.
struct Pace {
  /// The number of consecutive rounds that may have no effect before a pause.
  static let limit = 1000
  /// A round shorter than this is short; also the length of the pause.
  static let pause = TimeSpan.milliseconds(10)

  private var count = 0
  private var begun = Instant(nanoseconds: 0)

  mutating func begin(_ now: Instant) { begun = now }

  /// Reports that the round had an effect.
  mutating func reset() { count = 0 }

  /// The pause after a round that ends now.
  mutating func end(_ now: Instant) -> TimeSpan {
    guard now < begun + Self.pause else {
      count = 0
      return .zero
    }
    count = min(count + 1, Self.limit)
    return count < Self.limit ? .zero : Self.pause
  }

  func save(_ state: inout StateWriter) {
    state.write(count)
    state.write(begun)
  }

  mutating func restore(_ state: inout StateReader) throws(StateFault) {
    count = try state.read(in: 0...Self.limit)
    begun = try state.read()
  }
}
