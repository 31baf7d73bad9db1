/// Counts attempts that fail in a row and computes the pauses between them. Each pause is twice as long as the one before, up to a limit, and
/// shortened by a random part of up to half, so that many clients do not retry at once.
package struct Attempts: Sendable {
  /// The pause after the first failure, and the longest.
  package var delay: TimeSpan
  package var maxDelay: TimeSpan
  /// How many attempts have failed in a row.
  package private(set) var failures = 0

  package init(_ delay: TimeSpan, most maxDelay: TimeSpan) {
    self.delay = delay
    self.maxDelay = max(delay, maxDelay)
  }

  /// The pause before the next attempt: at least a millisecond, and at least the time that the other side has asked for.
  ///
  /// - Parameter random: Chooses the random part; nil: the pause is not shortened.
  package func pause(_ random: UInt64?, asked: TimeSpan? = nil) -> TimeSpan {
    let pause = delay.doubled(after: failures, most: maxDelay)
    return max(random.map { pause.shortened(by: $0) } ?? pause, asked ?? .zero, .milliseconds(1))
  }

  /// The same count with other pauses.
  package func with(delay: TimeSpan, most maxDelay: TimeSpan) -> Attempts {
    var changed = Attempts(delay, most: maxDelay)
    changed.failures = failures
    return changed
  }

  /// Counts a failure. Returns whether it is the first in a row.
  @discardableResult
  package mutating func fail() -> Bool {
    failures &+= 1
    return failures == 1
  }

  /// Counts a success. Returns how many attempts had failed before it.
  @discardableResult
  package mutating func succeed() -> Int {
    defer { failures = 0 }
    return failures
  }
}
