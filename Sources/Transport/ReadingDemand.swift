import Synchronization

/// Tells when one more thread that reads and decodes is of use: what they make is used up faster than they make it, and
/// making it, not waiting for input, is what they do.
///
/// Asked by one thread at a time, the one whose blocks have just been handed over; `using` is for another one, which
/// uses them.
public final class ReadingDemand: @unchecked Sendable {
  /// Nanoseconds that the use of blocks has taken.
  private let used = Atomic<Int64>(0)
  private var threads: Int64 = 1
  private var isMet = false
  /// What there was when the present span began.
  private var began: Int64 = 0
  private var usedBefore: Int64 = 0
  private var blocks = 0
  private var making: Int64 = 0
  private var delivering: Int64 = 0

  /// A span is at least that long, in nanoseconds and in blocks.
  static let span: Int64 = 20_000_000
  static let leastBlocks = 8

  public init() {}

  /// The use of a block has taken so many nanoseconds.
  public func used(in nanoseconds: Int64) { used.add(nanoseconds, ordering: .relaxed) }

  /// Whether there should be one thread more. A block took `making` nanoseconds to make; it was handed over from `begun`
  /// until `now`.
  func isForMore(making: Int64, begun: Int64, now: Int64) -> Bool {
    guard !isMet else { return false }
    if blocks == 0 {
      blocks = 1
      begin(now)
      return false
    }
    blocks += 1
    self.making += making
    delivering += now &- begun
    let elapsed = now &- began
    guard elapsed >= Self.span, blocks > Self.leastBlocks else { return false }
    let using = used.load(ordering: .relaxed) &- usedBefore
    // Half of the time is left to who uses them, nobody waits until they are taken, and the threads do little else.
    let isWorthIt = using < elapsed / 2 && delivering < elapsed / 4 && self.making > elapsed * threads / 2
    blocks = 1
    begin(now)
    return isWorthIt
  }

  /// Whether the thread that was asked for could be had.
  func took(_ wasAdded: Bool) {
    if wasAdded { threads += 1 } else { isMet = true }
  }

  private func begin(_ now: Int64) {
    began = now
    usedBefore = used.load(ordering: .relaxed)
    making = 0
    delivering = 0
  }
}
