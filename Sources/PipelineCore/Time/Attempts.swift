/// Counts consecutive failures and computes the pauses between attempts. Each pause is twice as long as the previous
/// one, up to a limit, and shortened by a random part of up to half, so that many clients do not retry at the same
/// time.
public struct Attempts: Sendable {
  /// The pause after the first failure. `maxDelay`: the longest pause.
  package var delay: TimeSpan
  package var maxDelay: TimeSpan
  /// The number of attempts that have failed in a row.
  package private(set) var failures = 0

  /// Pauses from `delay` to `maxDelay`.
  public init(_ delay: TimeSpan, most maxDelay: TimeSpan) {
    self.delay = delay
    self.maxDelay = max(delay, maxDelay)
  }

  /// The pause before the next attempt: at least a millisecond, and at least the time that the peer asked for.
  ///
  /// - Parameter random: Determines the random part; nil: the pause is not shortened.
  package func pause(_ random: UInt64?, asked: TimeSpan? = nil) -> TimeSpan {
    let pause = delay.doubled(after: failures, most: maxDelay)
    return max(random.map { pause.shortened(by: $0) } ?? pause, asked ?? .zero, .milliseconds(1))
  }

  /// The same count with different pauses.
  package func with(delay: TimeSpan, most maxDelay: TimeSpan) -> Attempts {
    var changed = Attempts(delay, most: maxDelay)
    changed.failures = failures
    return changed
  }

  /// Counts a failure. Returns whether it is the first since a success.
  @discardableResult
  package mutating func fail() -> Bool {
    failures &+= 1
    return failures == 1
  }

  /// Counts a success. Returns the number of consecutive failures before it.
  @discardableResult
  package mutating func succeed() -> Int {
    defer { failures = 0 }
    return failures
  }
}
