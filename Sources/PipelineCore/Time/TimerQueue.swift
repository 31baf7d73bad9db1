/// Receives the calls of timers.
public protocol TimerTarget: AnyObject {
  /// `token` is the value passed to `schedule`; the target defines its meaning.
  func woke(_ token: Int)
  /// Called instead of ``woke(_:)`` for a restored timer that came due while the pipeline was down, if such timers are
  /// to be skipped. The default calls ``woke(_:)``.
  func skipped(_ token: Int, _ late: Lateness)
  /// Whether waking it may cause events or an end. False for a sink, which only writes. True by default.
  var mayGoOn: Bool { get }
  /// The condition, besides its time, under which a timer may fire. The default is ``TimerKind/step``.
  var timerKind: TimerKind { get }
}

/// The condition, besides its time, under which a timer may fire: components that send events must stop while the
/// receiver cannot accept them.
public enum TimerKind: Sendable {
  /// The timer reads or makes input that no inner signal reads: it waits while anything pauses the input.
  case input
  /// The timer may send events: it waits while a sink pauses the input.
  case step
  /// The timer sends no events, and may even end a pause: it never waits.
  case output
}

extension TimerTarget {
  public var timerKind: TimerKind { .step }
  public func skipped(_ token: Int, _ late: Lateness) { woke(token) }
  public var mayGoOn: Bool { true }
}

/// The times of a timer that came due while the pipeline was down.
public struct Lateness: Sendable {
  /// When it was due; before `restored`.
  public var due: Instant
  /// When the pipeline was restarted.
  public var restored: Instant
}

/// Skips a restored timer when it fires.
final class SkippedTimer: TimerTarget {
  let target: any TimerTarget
  private let late: Lateness

  init(_ target: any TimerTarget, _ late: Lateness) {
    self.target = target
    self.late = late
  }

  func woke(_ token: Int) { target.skipped(token, late) }
  var mayGoOn: Bool { target.mayGoOn }
  var timerKind: TimerKind { target.timerKind }
}

/// A handle of a timer; cancelling one that has fired or was cancelled does nothing.
public struct Wake: Equatable, Sendable {
  fileprivate var slot: Int32
  fileprivate var generation: UInt32
  /// No timer.
  public static let none = Wake(slot: -1, generation: 0)
  /// Whether the handle refers to a timer, which may have fired.
  public var isSet: Bool { slot >= 0 }
}

/// When an output or a timer is due, by the clock or by event time; of equal times the lower number comes first.
struct Due: Comparable {
  var time: Instant
  var number: UInt64

  init(_ time: Instant, _ number: UInt64) { (self.time, self.number) = (time, number) }
  init(_ timer: TimerQueue.Pending) { self.init(timer.deadline, timer.sequence) }

  static func < (one: Due, other: Due) -> Bool {
    one.time != other.time ? one.time < other.time : one.number < other.number
  }
}

/// The pending timers of one executor, ordered by deadline, then by the order of scheduling.
///
/// A four-way heap whose entries know their index: scheduling, cancelling and firing each cost O(log n), and a
/// cancelled timer leaves nothing behind. The four children of an entry are adjacent, so a sift takes half as many
/// steps as in a binary heap.
struct TimerQueue {
  private struct Entry {
    var deadline: Int64
    var sequence: UInt64
    var slot: Int32
  }
  private struct Slot {
    var target: (any TimerTarget)?
    var token: Int
    var generation: UInt32
  }

  private var heap: [Entry] = []
  /// Timers that were due but must wait, in no particular order.
  private var held: [Entry] = []
  private var slots: [Slot] = []
  /// For each slot, the index of its entry in `heap`; -1 if it has none; below -1, -2 minus the index in `held`.
  private var heapIndexes: [Int32] = []
  private var freeSlots: [Int32] = []
  private var sequence: UInt64 = 0

  var count: Int { heap.count + held.count }
  var isEmpty: Bool { count == 0 }
  /// The earliest deadline of a timer that is not held; nil if there is none.
  var next: Instant? { heap.first.map { Instant(nanoseconds: $0.deadline) } }

  mutating func schedule(at deadline: Instant, _ target: any TimerTarget, _ token: Int) -> Wake {
    sequence &+= 1
    return schedule(at: deadline, sequence, target, token)
  }

  /// Schedules a timer under its former number: timers of the same instant fire in the order of their numbers.
  mutating func schedule(
    at deadline: Instant, _ number: UInt64, _ target: any TimerTarget, _ token: Int
  ) -> Wake {
    sequence = max(sequence, number)
    let slot: Int32
    if let free = freeSlots.popLast() {
      slot = free
      slots[Int(slot)].target = target
      slots[Int(slot)].token = token
    } else {
      slot = Int32(slots.count)
      slots.append(Slot(target: target, token: token, generation: 0))
      heapIndexes.append(-1)
    }
    heap.append(Entry(deadline: deadline.nanoseconds, sequence: number, slot: slot))
    Self.siftUp(&heap, &heapIndexes, heap.count - 1)
    return Wake(slot: slot, generation: slots[Int(slot)].generation)
  }

  /// Calls `body` with the deadline and the target of at most `limit` pending timers, in no particular order; returns
  /// whether these are all.
  func visit(limit: Int, _ body: (Instant, any TimerTarget) -> Void) -> Bool {
    for entry in held.prefix(limit) + heap.prefix(max(0, limit - held.count)) {
      if let target = slots[Int(entry.slot)].target { body(Instant(nanoseconds: entry.deadline), target) }
    }
    return count <= limit
  }

  /// Whether a pending timer may cause events.
  var mayGoOn: Bool {
    let mayGoOn: (Entry) -> Bool = { slots[Int($0.slot)].target?.mayGoOn ?? false }
    return heap.contains(where: mayGoOn) || held.contains(where: mayGoOn)
  }

  /// The number of the timer that was scheduled last.
  var last: UInt64 {
    get { sequence }
    set { sequence = max(sequence, newValue) }
  }

  /// The deadline, number and token of a pending timer.
  struct Pending {
    var deadline: Instant
    var sequence: UInt64
    var token: Int
  }

  func pending(_ wake: Wake) -> Pending? {
    guard wake.slot >= 0, slots[Int(wake.slot)].generation == wake.generation else { return nil }
    let heapIndex = Int(heapIndexes[Int(wake.slot)])
    let entry = heapIndex >= 0 ? heap[heapIndex] : held[-2 - heapIndex]
    return Pending(
      deadline: Instant(nanoseconds: entry.deadline), sequence: entry.sequence, token: slots[Int(wake.slot)].token)
  }

  mutating func cancel(_ wake: Wake) {
    guard wake.slot >= 0, slots[Int(wake.slot)].generation == wake.generation else { return }
    let heapIndex = Int(heapIndexes[Int(wake.slot)])
    if heapIndex >= 0 { remove(at: heapIndex) } else { removeHeld(at: -2 - heapIndex) }
    release(wake.slot)
  }

  /// Removes the first timer that is due at `now` and need not wait; those that must wait are held until
  /// ``releaseHeld()``.
  mutating func popDue(_ now: Instant, waits: (any TimerTarget) -> Bool) -> (target: any TimerTarget, token: Int)? {
    while let first = heap.first, first.deadline <= now.nanoseconds {
      guard let target = slots[Int(first.slot)].target, waits(target) else { break }
      remove(at: 0)
      heapIndexes[Int(first.slot)] = Int32(-2 - held.count)
      held.append(first)
    }
    return popDue(now)
  }

  /// Whether timers that are due are being held.
  var holdsSome: Bool { !held.isEmpty }

  /// Makes the held timers due again.
  mutating func releaseHeld() {
    for entry in held {
      heap.append(entry)
      Self.siftUp(&heap, &heapIndexes, heap.count - 1)
    }
    held.removeAll(keepingCapacity: held.count <= 64)
  }

  private mutating func removeHeld(at index: Int) {
    let last = held.removeLast()
    guard index < held.count else { return }
    held[index] = last
    heapIndexes[Int(last.slot)] = Int32(-2 - index)
  }

  /// Removes the first timer if it is due at `now`.
  mutating func popDue(_ now: Instant) -> (target: any TimerTarget, token: Int)? {
    guard let first = heap.first, first.deadline <= now.nanoseconds else { return nil }
    let token = slots[Int(first.slot)].token
    let target = slots[Int(first.slot)].target.take()
    remove(at: 0)
    release(first.slot)
    return target.map { ($0, token) }
  }

  private mutating func release(_ slot: Int32) {
    slots[Int(slot)].target = nil
    slots[Int(slot)].generation &+= 1
    heapIndexes[Int(slot)] = -1
    freeSlots.append(slot)
  }

  private mutating func remove(at index: Int) {
    let last = heap.removeLast()
    guard index < heap.count else { return }
    let removed = heap[index]
    heap[index] = last
    if Self.precedes(last, removed) {
      Self.siftUp(&heap, &heapIndexes, index)
    } else {
      Self.siftDown(&heap, &heapIndexes, index)
    }
  }

  private static func precedes(_ a: Entry, _ b: Entry) -> Bool {
    a.deadline != b.deadline ? a.deadline < b.deadline : a.sequence < b.sequence
  }

  /// Moves the entry at `start` up until the heap is in order, and updates the indexes of all moved entries.
  private static func siftUp(_ heap: inout [Entry], _ heapIndexes: inout [Int32], _ start: Int) {
    heap.withUnsafeMutableBufferPointer { heap in
      heapIndexes.withUnsafeMutableBufferPointer { heapIndexes in
        let entry = heap[start]
        var index = start
        while index > 0 {
          let parent = (index - 1) / 4
          guard precedes(entry, heap[parent]) else { break }
          heap[index] = heap[parent]
          heapIndexes[Int(heap[index].slot)] = Int32(index)
          index = parent
        }
        heap[index] = entry
        heapIndexes[Int(entry.slot)] = Int32(index)
      }
    }
  }

  /// Moves the entry at `start` down until the heap is in order, and updates the indexes of all moved entries.
  private static func siftDown(_ heap: inout [Entry], _ heapIndexes: inout [Int32], _ start: Int) {
    heap.withUnsafeMutableBufferPointer { heap in
      heapIndexes.withUnsafeMutableBufferPointer { heapIndexes in
        let entry = heap[start]
        var index = start
        while true {
          let first = 4 * index + 1
          guard first < heap.count else { break }
          var child = first
          for other in first + 1..<max(first + 1, min(first + 4, heap.count)) where precedes(heap[other], heap[child]) {
            child = other
          }
          guard precedes(heap[child], entry) else { break }
          heap[index] = heap[child]
          heapIndexes[Int(heap[index].slot)] = Int32(index)
          index = child
        }
        heap[index] = entry
        heapIndexes[Int(entry.slot)] = Int32(index)
      }
    }
  }
}
