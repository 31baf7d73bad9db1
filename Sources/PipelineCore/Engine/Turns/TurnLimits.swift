/// The limits of a turn: a source stops after the event that exceeds one of them.
package struct TurnLimits: Sendable {
  /// The time that a turn may last.
  package var time = TimeSpan.milliseconds(2)
  /// The memory that the events of a turn may take, in bytes.
  package var bytes = 1 << 20
  /// The number of events in a turn; for tests.
  package var events = Int.max

  package init() {}

  /// The quantum: how long the turns of one pipeline may occupy a thread that other pipelines share.
  package static let quantum = TimeSpan.milliseconds(4)
  /// The approximate time between readings of the clock in a turn.
  static let checkInterval = TimeSpan(nanoseconds: 200_000)
  /// The maximum number of events between two readings of the clock, which limits the delay when events become
  /// expensive.
  static let longestStride = 128
}
