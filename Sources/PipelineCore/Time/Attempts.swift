/// Attempts that fail in a row, and the pauses between them: each is twice as long as the one before, up to a limit, and shortened by a random
/// part of up to half, so that not all who wait try at once.
public struct Attempts: Sendable {
  /// The pause after the first failure, and the longest.
  public var delay: TimeSpan
  public var maxDelay: TimeSpan
  /// How many have failed in a row.
  public private(set) var failures = 0

  public init(_ delay: TimeSpan, most maxDelay: TimeSpan) {
    self.delay = delay
    self.maxDelay = max(delay, maxDelay)
  }

  /// The pause before the next attempt: at least a millisecond, and at least what the other side has asked for.
  public func pause(_ random: UInt64, asked: TimeSpan? = nil) -> TimeSpan {
    max(delay.doubled(after: failures, most: maxDelay).shortened(by: random), asked ?? .zero, .milliseconds(1))
  }

  /// Counts a failure; whether it is the first in a row.
  @discardableResult
  public mutating func fail() -> Bool {
    failures &+= 1
    return failures == 1
  }

  /// Counts a success; how many had failed before it.
  @discardableResult
  public mutating func succeed() -> Int {
    defer { failures = 0 }
    return failures
  }
}
