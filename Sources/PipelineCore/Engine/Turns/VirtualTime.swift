/// A clock that only moves when it is advanced: time in tests and in replay.
package final class VirtualTime: Clock, @unchecked Sendable {
  package private(set) var now = Instant(nanoseconds: 0)
  /// The wall-clock time at the origin, in nanoseconds since 1970.
  package private(set) var origin: Int64

  /// Starts at 2026-01-01T00:00:00Z by default.
  package init(origin: Int64 = 1_767_225_600_000_000_000) { self.origin = origin }

  package var wallTime: Int64 { origin &+ now.nanoseconds }

  /// Sets the wall clock forward or back.
  package func setClock(by step: TimeSpan) { origin &+= step.nanoseconds }

  /// Advances the clock, never backwards.
  package func advance(to instant: Instant) {
    precondition(instant >= now, "virtual time cannot go back")
    now = instant
  }

  /// The limit of turns and deferred steps within one instant: a pipeline that exceeds it would run forever.
  package static let instantLimit: UInt64 = 250_000

  /// Runs everything that `executor` has to do, jumping from timer to timer, up to and including `end`.
  ///
  /// Stops when nothing is left, when `isDone` returns true after a turn, after `turnLimit` turns, or after
  /// ``instantLimit`` turns and deferred steps within one instant. Returns whether it stopped for one of the first two
  /// reasons.
  @discardableResult
  package func run(
    _ executor: Executor, until end: Instant = .distantFuture, turnLimit: Int = 10_000_000,
    isDone: () -> Bool = { false }
  ) -> Bool {
    var turns = 0
    var before = executor.turns &+ executor.deferrals
    while turns < turnLimit {
      if executor.runOne() {
        turns += 1
        if isDone() { return true }
        if executor.turns &+ executor.deferrals &- before > Self.instantLimit { return false }
        continue
      }
      guard let next = executor.nextDeadline, next <= end else {
        if end != .distantFuture, end > now { advance(to: end) }
        return true
      }
      if next > now { before = executor.turns &+ executor.deferrals }
      advance(to: max(next, now))
    }
    return false
  }
}
