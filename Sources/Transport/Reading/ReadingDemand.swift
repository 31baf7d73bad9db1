import Synchronization

/// Decides when one more thread for reading and decoding pays off: when blocks are used faster than they are made, and
/// the threads spend their time making them, not waiting for input.
///
/// Called by one thread at a time, the one that has just delivered blocks; `used` is called by the thread that uses them.
package final class ReadingDemand: @unchecked Sendable {
  /// Nanoseconds spent using blocks.
  private let used = Atomic<Int64>(0)
  private var threads: Int64 = 1
  private var isMet = false
  /// The values at the start of the current span.
  private var began: Int64 = 0
  private var usedBefore: Int64 = 0
  private var blocks = 0
  private var making: Int64 = 0
  private var delivering: Int64 = 0

  /// The shortest span to measure, in nanoseconds and in blocks.
  static let span: Int64 = 20_000_000
  static let leastBlocks = 8

  package init() {}

  /// Reports how many nanoseconds the use of a block took.
  package func used(in nanoseconds: Int64) { used.add(nanoseconds, ordering: .relaxed) }

  /// Whether another thread should be added. The last block took `making` nanoseconds to make; its delivery lasted from
  /// `begun` until `now`.
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
    // Worth it if the using thread is idle half of the time, delivery hardly blocks, and the threads do little but make
    // blocks.
    let isWorthIt = using < elapsed / 2 && delivering < elapsed / 4 && self.making > elapsed * threads / 2
    blocks = 1
    begin(now)
    return isWorthIt
  }

  /// Notes whether the requested thread could be started.
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
