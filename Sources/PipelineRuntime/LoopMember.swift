import PipelineCore

/// An executor of a ``Loop``.
final class LoopMember: @unchecked Sendable {
  let executor: Executor
  /// The object that must live as long as the executor's turns run.
  let owner: AnyObject
  // Guarded by the loop's mutex.
  /// Whether the executor received work since the last check.
  var isSignalled = false
  /// False: the loop has removed the member.
  var isMember = true
  // Used by the thread that runs turns, or under the mutex while that thread sleeps.
  /// The time used by the member's turns, raised when the member was idle for long.
  var used = TimeSpan.zero
  /// The ranking that contains the member, and its index there; -1: it is in none.
  fileprivate var ranking: UInt8 = 0
  fileprivate var index = -1

  init(_ executor: Executor, owner: AnyObject) {
    self.executor = executor
    self.owner = owner
  }
}

/// Members ordered by a key, smallest first; of equal keys, the one inserted first. A binary heap: each change costs
/// O(log n) and retains nothing. The user of a ranking must keep its members alive.
struct LoopRanking {
  struct Entry {
    var key: Int64
    fileprivate var sequence: UInt64
    unowned(unsafe) let member: LoopMember
  }

  private var heap: [Entry] = []
  private var sequence: UInt64 = 0
  private let identity: UInt8

  /// - Parameter identity: Distinguishes the ranking from others for the same members.
  init(_ identity: UInt8) { self.identity = identity }

  var first: Entry? { heap.first }

  func has(_ member: LoopMember) -> Bool { member.index >= 0 && member.ranking == identity }

  /// Adds a member that is in no ranking.
  mutating func insert(_ member: LoopMember, by key: Int64) {
    sequence &+= 1
    member.ranking = identity
    heap.append(Entry(key: key, sequence: sequence, member: member))
    siftUp(heap.count - 1)
  }

  mutating func remove(_ member: LoopMember) {
    let index = member.index
    member.index = -1
    let last = heap.removeLast()
    guard index < heap.count else { return }
    heap[index] = last
    last.member.index = index
    siftUp(index)
    siftDown(last.member.index)
  }

  private static func precedes(_ one: Entry, _ other: Entry) -> Bool {
    one.key != other.key ? one.key < other.key : one.sequence < other.sequence
  }

  private mutating func put(_ entry: Entry, at index: Int) {
    heap[index] = entry
    entry.member.index = index
  }

  private mutating func siftUp(_ start: Int) {
    let entry = heap[start]
    var index = start
    while index > 0, case let parent = (index - 1) / 2, Self.precedes(entry, heap[parent]) {
      put(heap[parent], at: index)
      index = parent
    }
    put(entry, at: index)
  }

  private mutating func siftDown(_ start: Int) {
    let entry = heap[start]
    var index = start
    while true {
      var child = 2 * index + 1
      guard child < heap.count else { break }
      if child + 1 < heap.count, Self.precedes(heap[child + 1], heap[child]) { child += 1 }
      guard Self.precedes(heap[child], entry) else { break }
      put(heap[child], at: index)
      index = child
    }
    put(entry, at: index)
  }
}
