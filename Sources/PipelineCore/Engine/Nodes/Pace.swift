/// A node that waits before it subscribes again.
protocol Pausing: OperatorNode {
  /// The pipeline stops: goes on at once, for nothing comes of waiting.
  func endPause()
}

/// Whether rounds of subscribing again follow each other to no effect, and how long to wait before the next one then.
///
/// A round has no effect if it was short and, for whoever calls ``reset()``, sent nothing.
struct Pace {
  /// How many rounds in a row may have no effect before there is a pause.
  static let limit = 1000
  /// What counts as short, and the pause.
  static let pause = TimeSpan.milliseconds(10)

  private var count = 0
  private var begun = Instant(nanoseconds: 0)

  mutating func begin(_ now: Instant) { begun = now }

  /// The round has an effect.
  mutating func reset() { count = 0 }

  /// The pause behind a round that ends now.
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
