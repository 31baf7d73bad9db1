/// A clock that stands still until it is told to go on: time in tests and in replay.
public final class VirtualTime: Clock, @unchecked Sendable {
  public private(set) var now = Instant(nanoseconds: 0)
  /// The wall-clock time at the origin, in nanoseconds since 1970.
  public private(set) var origin: Int64

  /// 2026-01-01T00:00:00Z unless said otherwise.
  public init(origin: Int64 = 1_767_225_600_000_000_000) { self.origin = origin }

  public var wallTime: Int64 { origin &+ now.nanoseconds }

  /// Sets the wall clock forward, or back.
  public func setClock(by step: TimeSpan) { origin &+= step.nanoseconds }

  /// Never goes back.
  public func advance(to instant: Instant) {
    precondition(instant >= now, "virtual time cannot go back")
    now = instant
  }

  /// Runs all that `executor` has to do, jumping from timer to timer, up to and including `end`.
  ///
  /// Turns and steps put off within one instant, after which time is taken to stand still for ever.
  public static let instantLimit: UInt64 = 250_000

  /// Stops when nothing is left, when `isDone` says so after a turn, after `turnLimit` turns, or after ``instantLimit``
  /// turns and steps put off within one instant: the bounds for pipelines that are never quiet. Returns whether it
  /// stopped for one of the first two.
  @discardableResult
  public func run(
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
