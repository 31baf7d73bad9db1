/// A source of time. The core contains no real clock.
package protocol Clock: AnyObject, Sendable {
  /// Monotonic time.
  var now: Instant { get }
  /// Wall-clock time, nanoseconds since 1970-01-01T00:00:00Z. May jump.
  var wallTime: Int64 { get }
}
