package import PipelineCore

/// The pauses before a failed pipeline is restarted. Each is a fraction of the time for which the pipeline has been
/// failing: after seconds of failures the pause is less than a second, and after hours there is one restart every half
/// minute.
///
/// A series of failures ends when the pipeline has run for ``calm``.
package struct RestartPauses: Sendable {
  package static let shortest = TimeSpan.milliseconds(100)
  package static let longest = TimeSpan.seconds(30)
  /// A pause is at most the time since the first failure divided by this.
  package static let share: Int64 = 8
  package static let calm = TimeSpan.seconds(60)
  /// A series of failures that has lasted this long will probably continue.
  package static let lasting = TimeSpan.seconds(10)

  /// The times of the first and the last failure of the series.
  private var since: Instant?
  private var last = Instant(nanoseconds: 0)
  /// The number of failures in the series.
  package private(set) var attempt = 0

  package init() {}

  /// Whether the series has lasted for ``lasting``.
  package var isLasting: Bool { since.map { last - $0 >= Self.lasting } ?? false }

  /// Counts a failure of a run that began at `start`, and returns the pause, shortened by a random fraction of up to
  /// half, so that pipelines that failed together do not restart together.
  package mutating func fail(startedAt start: Instant, at now: Instant, random: UInt64) -> TimeSpan {
    if since == nil || now - start >= Self.calm {
      since = now
      attempt = 0
    }
    attempt += 1
    last = now
    let lasted = now - (since ?? now)
    let pause = min(max(Self.shortest, TimeSpan(nanoseconds: lasted.nanoseconds / Self.share)), Self.longest)
    return pause.shortened(by: random)
  }
}
