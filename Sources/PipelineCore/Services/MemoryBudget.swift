import Synchronization

/// What events that wait in queues may have in memory, for all pipelines of a process together. While the queues hold more, each has an eighth of
/// its usual room: it lets wait what fills it, or leaves on the disk what is there. Thread-safe.
public final class MemoryBudget: Sendable {
  public static let standard = 256 << 20

  /// In bytes.
  public let limit: Int
  private let used = Atomic<Int>(0)

  public init(_ limit: Int = standard) { self.limit = limit }

  /// The bytes that queues hold.
  public var held: Int { used.load(ordering: .relaxed) }

  /// The room of a queue that usually has `usual` bytes.
  public func room(_ usual: Int) -> Int { held > limit ? usual / 8 : usual }

  /// What the queues of one pipeline's steps usually have together.
  public var usualOfSteps: Int { limit / 2 }

  fileprivate func add(_ bytes: Int) { used.add(bytes, ordering: .relaxed) }
}

/// What one queue has of a budget, in steps of 64 KiB. Released with it. Used by one thread at a time.
public struct MemoryShare: ~Copyable {
  private let budget: MemoryBudget
  private var steps = 0

  public init(of budget: MemoryBudget) { self.budget = budget }

  deinit { budget.add(-steps << 16) }

  /// The queue holds this many bytes now.
  @inline(__always)
  public mutating func set(_ bytes: Int) {
    let new = (bytes + 0xFFFF) >> 16
    if new != steps { move(to: new) }
  }

  private mutating func move(to new: Int) {
    budget.add((new - steps) << 16)
    steps = new
  }
}

/// The same for a queue that several threads use under a lock of their own.
public final class LockedMemoryShare: @unchecked Sendable {
  private var share: MemoryShare

  public init(of budget: MemoryBudget) { share = MemoryShare(of: budget) }

  /// The queue holds this many bytes now. With the lock of the queue held.
  public func set(_ bytes: Int) { share.set(bytes) }
}
