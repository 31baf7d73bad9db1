import PipelineCore
import Transport

extension HTTPSink {
  /// How many requests may start. After a failure, the server is in *trouble*: no request starts for a while, then one
  /// request alone, the probe, until a probe succeeds. From then on each response allows one more request, up to all: a
  /// recovering server is not overloaded.
  ///
  /// Requests started before continue meanwhile. Their success says nothing about the server's current state; their
  /// failure makes the pause longer.
  struct Pace {
    private let most: Int
    /// How many requests may be under way; all of them, except for a while after trouble.
    private var allowed: Int
    private let retry: RetryPolicy
    private(set) var isInTrouble = false
    /// Until then no request starts; nil: there is no pause.
    private(set) var resumesAt: Instant?
    /// The number of the request that probes whether the trouble is over.
    private var probe: Int?

    init(most: Int, _ retry: RetryPolicy) {
      self.most = most
      allowed = most
      self.retry = retry
    }

    /// Whether another request may start beside `count` running ones.
    func admits(beside count: Int) -> Bool {
      resumesAt == nil && (isInTrouble ? probe == nil && count < most : count < allowed)
    }

    mutating func begun(_ place: Int) {
      if isInTrouble { probe = place }
    }

    /// Whether a started request may still be sent; if not, it counts as not started.
    mutating func confirms(_ place: Int) -> Bool {
      if resumesAt == nil, !isInTrouble || probe == place { return true }
      if probe == place { probe = nil }
      return false
    }

    /// The request has been answered and need not be repeated.
    mutating func answered(_ place: Int) {
      if probe == place {
        probe = nil
        isInTrouble = false
      }
      if !isInTrouble, allowed < most { allowed += 1 }
    }

    /// The request must be repeated after `pause` at the earliest.
    mutating func failed(_ place: Int, _ now: Instant, pause: TimeSpan) {
      isInTrouble = true
      allowed = 1
      if probe == place { probe = nil }
      resumesAt = max(resumesAt ?? now, now + pause)
    }

    /// Ends the pause.
    mutating func resume() { resumesAt = nil }

    /// The pause after this many attempts of a request, at least one: it doubles each time, and a random part of up to
    /// half is subtracted.
    func pause(after attempts: Int, random: UInt64) -> TimeSpan {
      retry.delay.doubled(after: attempts, most: retry.maxDelay).shortened(by: random)
    }

    static let longestRetryAfter = TimeSpan.seconds(600)

    /// The pause that the server asks for with `Retry-After`, up to ten minutes.
    static func retryAfter(_ response: HTTPResponse, wallTime: Int64) -> TimeSpan? {
      ServerPause.retryAfter(response, wallTime: wallTime, longest: longestRetryAfter)
    }
  }
}
