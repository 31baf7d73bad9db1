package import PipelineCore

/// The pauses before a failed pipeline starts again. Each is a part of the time for which the trouble has lasted, so a trouble of seconds is
/// followed by a pause of less than a second, and one of hours costs a start each half minute.
///
/// The trouble begins with a failure, and is over when the pipeline has run for ``calm``.
package struct RestartPauses: Sendable {
  package static let shortest = TimeSpan.milliseconds(100)
  package static let longest = TimeSpan.seconds(30)
  /// A pause is at most the time since the first failure divided by this.
  package static let share: Int64 = 8
  package static let calm = TimeSpan.seconds(60)
  /// A trouble that has lasted this long will probably go on.
  package static let lasting = TimeSpan.seconds(10)

  /// When it failed first, and last.
  private var since: Instant?
  private var last = Instant(nanoseconds: 0)
  /// The number of failures of this trouble.
  package private(set) var attempt = 0

  package init() {}

  /// Whether the trouble has lasted for some time.
  package var isLasting: Bool { since.map { last - $0 >= Self.lasting } ?? false }

  /// Counts a failure of a run that began at `start`, and returns the pause: shortened by a random part of up to half, so that pipelines that
  /// failed together do not start together.
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
