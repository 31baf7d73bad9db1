import Glibc
package import PipelineCore

/// The machine's clocks: CLOCK_MONOTONIC and CLOCK_REALTIME.
package final class SystemClock: Clock, Sendable {
  package static let shared = SystemClock()

  package var now: Instant { Instant(nanoseconds: Self.read(CLOCK_MONOTONIC)) }
  package var wallTime: Int64 { Self.read(CLOCK_REALTIME) }
  /// The time that the processor has spent on the calling thread, in nanoseconds.
  package var threadTime: Int64 { Self.read(CLOCK_THREAD_CPUTIME_ID) }

  private static func read(_ id: clockid_t) -> Int64 {
    var time = timespec()
    clock_gettime(id, &time)
    return Int64(time.tv_sec) &* 1_000_000_000 &+ Int64(time.tv_nsec)
  }
}
