import PipelineCore
import Transport

extension HTTPSink {
  /// How many requests may be begun. As soon as one must be repeated, the server is in *trouble*: nothing is begun for a
  /// while, then one request alone, the probe, until a probe has brought an answer that is no failure. From then on
  /// each answer allows one request more, up to all: a server that has just come back is not run over.
  ///
  /// Requests that were begun before go on meanwhile. That one of them succeeds says nothing of the server as it is
  /// now; that one fails makes the pause longer.
  struct Pace {
    private let most: Int
    /// How many requests may be under way; all but for a while after trouble.
    private var allowed: Int
    private let retry: RetryPolicy
    private(set) var isInTrouble = false
    /// Until then nothing is begun; nil: there is no pause.
    private(set) var resumesAt: Instant?
    /// The place of the request that tries whether the trouble is over.
    private var probe: Int?

    init(most: Int, _ retry: RetryPolicy) {
      self.most = most
      allowed = most
      self.retry = retry
    }

    /// Whether one more may be begun beside so many.
    func admits(beside count: Int) -> Bool {
      resumesAt == nil && (isInTrouble ? probe == nil && count < most : count < allowed)
    }

    mutating func begun(_ place: Int) {
      if isInTrouble { probe = place }
    }

    /// Whether a request that was begun may still be sent; if not, it counts as not begun.
    mutating func confirms(_ place: Int) -> Bool {
      if resumesAt == nil, !isInTrouble || probe == place { return true }
      if probe == place { probe = nil }
      return false
    }

    /// The request has been answered, and need not be repeated.
    mutating func answered(_ place: Int) {
      if probe == place {
        probe = nil
        isInTrouble = false
      }
      if !isInTrouble, allowed < most { allowed += 1 }
    }

    /// The request must be repeated, in `pause` from now at the earliest.
    mutating func failed(_ place: Int, _ now: Instant, pause: TimeSpan) {
      isInTrouble = true
      allowed = 1
      if probe == place { probe = nil }
      resumesAt = max(resumesAt ?? now, now + pause)
    }

    /// The pause is over.
    mutating func resume() { resumesAt = nil }

    /// How long to wait after so many attempts of a request, of which there was one at least: the pause doubles each
    /// time, and between a half and all of it is waited.
    func pause(after attempts: Int, random: UInt64) -> TimeSpan {
      var pause = retry.delay
      for _ in 1..<max(1, min(attempts, 40)) where pause < retry.maxDelay { pause = pause.scaled(by: 2) }
      let share = Double(random >> 11) / Double(1 << 53)
      return min(pause, retry.maxDelay).scaled(by: 0.5 + share / 2)
    }

    private static let longestRetryAfter: Int64 = 600

    /// What the server asks for: digits, which are seconds, or a date (RFC 9110, 10.2.3), up to ten minutes. Nonsense
    /// is not followed, nor is what would mean no pause at all.
    static func retryAfter(_ response: HTTPResponse, wallTime: Int64) -> TimeSpan? {
      guard let text = response.header("retry-after") else { return nil }
      let seconds: Int64
      if !text.isEmpty, text.utf8.allSatisfy({ (UInt8(ascii: "0")...UInt8(ascii: "9")).contains($0) }) {
        // Only one that is too large for the type is no number of it.
        seconds = Int64(text) ?? longestRetryAfter
      } else {
        guard let date = HTTPDate.seconds(text) else { return nil }
        seconds = date.subtractingReportingOverflow(wallTime / 1_000_000_000).partialValue
      }
      return seconds > 0 ? .seconds(min(seconds, longestRetryAfter)) : nil
    }
  }
}
