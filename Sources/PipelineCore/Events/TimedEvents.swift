internal import DequeModule

/// Kept events in the order of their event times, and by the numbers of their keys. Not thread-safe.
final class TimedEvents {
  /// The early result of an event, sent before it was certain that it has no match.
  struct Early {
    /// Whether it was sent.
    var isSent = false
    /// The row that was sent, to be retracted on a match; nil: none was sent.
    var row: OwnedValue?
    /// When the row must be sent; distant: not early.
    var due = Instant.distantFuture
    /// The event's entry in the owner's queue of these times.
    var wake = Wake.none
  }

  /// One event, with data of the owner.
  struct Entry {
    let event: OwnedEvent
    let time: Int64
    /// The number of the event's key.
    let key: Int
    var isMatched: Bool
    /// The hold on the owner's watermark for this entry.
    var hold = Wake.none
    fileprivate(set) var early = Early()
    /// Among equal times the entry with the lower serial came first.
    fileprivate(set) var serial: UInt64 = 0
    fileprivate var wake = Wake.none
  }

  /// An estimate of the memory that an event takes beside its values, with its places in the order of times and among the events of its key.
  static let bytesOfEvent = MemoryLayout<Entry?>.stride + 120
  /// An estimate of the memory that a key takes.
  static let bytesOfKey = 160

  /// The timer target of all entries in the queue, none of which becomes due by itself.
  private final class Target: TimerTarget {
    func woke(_ token: Int) {}
  }

  /// Called with each slot whose entry was added, changed or removed, and with the entry's key.
  var changed: (_ slot: Int, _ key: Int) -> Void = { _, _ in }
  private var slots: [Entry?] = []
  private var free: [Int] = []
  private var order = TimerQueue()
  private let target = Target()
  /// The highest serial so far.
  private(set) var serial: UInt64 = 0
  /// The serial of the next inserted event, and its slot; nil: any.
  private var reserved: (slot: Int?, serial: UInt64)?
  /// The slots of each key in the order of times.
  private var chains: [Deque<Int>] = []
  private(set) var count = 0
  private(set) var bytes = 0

  subscript(slot: Int) -> Entry {
    get {
      guard let entry = slots[slot] else { preconditionFailure("the entry has been removed") }
      return entry
    }
    set {
      slots[slot] = newValue
      changed(slot, newValue.key)
    }
  }

  /// The number of slots, in use or not.
  var slotCount: Int { slots.count }
  /// The entry of a slot; nil: it is empty.
  func entry(_ slot: Int) -> Entry? { slots[slot] }

  /// Adds an event after all others of its time, unless it has a serial already; returns its slot.
  @discardableResult
  func insert(_ event: OwnedEvent, at time: Int64, key: Int, isMatched: Bool, hold: Wake = .none) -> Int {
    let slot = reserved?.slot ?? free.popLast() ?? slots.count
    while slots.count <= slot { slots.append(nil) }
    let ownSerial = reserved?.serial ?? serial &+ 1
    reserved = nil
    serial = max(serial, ownSerial)
    var entry = Entry(event: event, time: time, key: key, isMatched: isMatched, hold: hold, serial: ownSerial)
    entry.wake = order.schedule(at: Instant(nanoseconds: time), ownSerial, target, slot)
    slots[slot] = entry
    changed(slot, key)
    while chains.count <= key { chains.append(Deque()) }
    chains[key].insert(slot, at: position(behind: time, in: chains[key]))
    count &+= 1
    bytes &+= event.byteCount
    return slot
  }

  func set(_ early: Early, at slot: Int) {
    bytes &+= (early.row?.byteCount ?? 0) &- (self[slot].early.row?.byteCount ?? 0)
    self[slot].early = early
  }

  /// Makes the next inserted event get this slot and this serial, as in a saved state; no other event may have the
  /// slot. ``endReserving()`` must follow the last of these events.
  func reserve(_ slot: Int, _ serial: UInt64) { reserved = (slot, serial) }

  /// Makes the next inserted event get the serial that it had before.
  func reserve(serial: UInt64) { reserved = (nil, serial) }

  /// Makes new events get serials above this one.
  func skipSerials(to last: UInt64) { serial = max(serial, last) }

  /// Frees the unused slots for later events.
  func endReserving() { free = slots.indices.filter { slots[$0] == nil } }

  /// The earliest time.
  var firstTime: Int64? { order.next?.nanoseconds }

  /// Removes the earliest event.
  func removeFirst() -> Entry? {
    guard let next = order.next, let due = order.popDue(next) else { return nil }
    return take(due.token)
  }

  @discardableResult
  func remove(_ slot: Int) -> Entry {
    order.cancel(self[slot].wake)
    return take(slot)
  }

  /// Removes all events without a match; returns them in the order of times.
  func removeUnmatched() -> [Entry] {
    let removed = all.filter { !self[$0].isMatched }.map { slot in
      order.cancel(self[slot].wake)
      return clear(slot)
    }
    for key in Set(removed.map(\.key)) { chains[key].removeAll { slots[$0] == nil } }
    return removed
  }

  private func take(_ slot: Int) -> Entry {
    let entry = self[slot]
    chains[entry.key].remove(at: position(of: slot, at: entry.time, in: chains[entry.key]))
    return clear(slot)
  }

  private func position(of slot: Int, at time: Int64, in chain: Deque<Int>) -> Int {
    // Usually the first position, because entries are removed in the order of their times.
    var position = chain.first == slot ? 0 : position(behind: time &- 1, in: chain)
    while chain[position] != slot { position += 1 }
    return position
  }

  private func clear(_ slot: Int) -> Entry {
    let entry = self[slot]
    slots[slot] = nil
    changed(slot, entry.key)
    free.append(slot)
    count &-= 1
    bytes &-= entry.event.byteCount &+ (entry.early.row?.byteCount ?? 0)
    return entry
  }

  /// Whether there is an event with this key.
  func has(_ key: Int) -> Bool { chains.indices.contains(key) && !chains[key].isEmpty }

  /// The slots of the events with this key, in the order of times.
  func slots(of key: Int) -> [Int] { has(key) ? Array(chains[key]) : [] }

  /// The slots of the events with this key whose times lie in `times`, in the order of times.
  func slots(of key: Int, in times: ClosedRange<Int64>) -> [Int] {
    guard has(key) else { return [] }
    let chain = chains[key]
    let (first, end) = (
      position(behind: times.lowerBound &- 1, in: chain), position(behind: times.upperBound, in: chain)
    )
    return first < end ? Array(chain[first..<end]) : []
  }

  /// The slot of the last event with this key that is not later than `time`.
  func last(of key: Int, through time: Int64) -> Int? {
    guard has(key) else { return nil }
    let end = position(behind: time, in: chains[key])
    return end == 0 ? nil : chains[key][end - 1]
  }

  /// The slots of the first two events with this key.
  func firstTwo(of key: Int) -> (first: Int, second: Int)? {
    guard chains.indices.contains(key), chains[key].count > 1 else { return nil }
    return (chains[key][0], chains[key][1])
  }

  /// The slots of all events in the order of times.
  var all: [Int] {
    slots.indices.filter { slots[$0] != nil }
      .sorted { (self[$0].time, self[$0].serial) < (self[$1].time, self[$1].serial) }
  }

  func removeAll() {
    slots = []
    free = []
    order = TimerQueue()
    chains = []
    count = 0
    bytes = 0
  }

  /// The index after all entries that are not later than `time`.
  private func position(behind time: Int64, in chain: Deque<Int>) -> Int {
    // Most events arrive nearly in order.
    guard let last = chain.last, self[last].time > time else { return chain.count }
    var (low, high) = (0, chain.count)
    while low < high {
      let middle = (low + high) / 2
      if self[chain[middle]].time <= time { low = middle + 1 } else { high = middle }
    }
    return low
  }
}
