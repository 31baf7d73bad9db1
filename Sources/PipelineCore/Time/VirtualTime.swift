/// A clock that stands still until it is told to go on: time in tests and in replay.
public final class VirtualTime: Clock, @unchecked Sendable {
  public private(set) var now = Instant(nanoseconds: 0)
  /// The wall-clock time at the origin, in nanoseconds since 1970.
  public let origin: Int64

  /// 2026-01-01T00:00:00Z unless said otherwise.
  public init(origin: Int64 = 1_767_225_600_000_000_000) { self.origin = origin }

  public var wallTime: Int64 { origin &+ now.nanoseconds }

  /// Never goes back.
  public func advance(to instant: Instant) {
    precondition(instant >= now, "virtual time cannot go back")
    now = instant
  }

  /// Runs all that `executor` has to do, jumping from timer to timer, up to and including `end`.
  ///
  /// Stops when nothing is left, when `isDone` says so after a turn, or after `turnLimit` turns, the
  /// bound for pipelines that are never quiet. Returns whether it stopped for one of the first two.
  @discardableResult
  public func run(
    _ executor: Executor, until end: Instant = .distantFuture, turnLimit: Int = 10_000_000,
    isDone: () -> Bool = { false }
  ) -> Bool {
    var turns = 0
    while turns < turnLimit {
      if executor.runOne() {
        turns += 1
        if isDone() { return true }
        continue
      }
      guard let next = executor.nextDeadline, next <= end else {
        if end != .distantFuture, end > now { advance(to: end) }
        return true
      }
      advance(to: max(next, now))
    }
    return false
  }
}
