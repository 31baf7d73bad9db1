internal import DequeModule
import PipelineCore

/// The events that a sink has taken and not delivered: lanes of events, batches to be repeated, and batches under way.
///
/// Each event is in one of them, so `total` is always the sum. A lane that may not begin a batch, because one is under
/// way or it has a pause, does not hold back the others.
struct DeliveryQueue {
  /// The next batch that may begin.
  enum Next {
    case batch(DeliveryBatch)
    /// None before that time: events wait for others.
    case at(Instant)
    case none
  }

  private let traits: DeliveryTraits
  private var lanes: [DeliveryTarget?: DeliveryLane] = [:]
  /// The lane of the last event, which the next one often shares.
  private var last: DeliveryLane?
  /// The lanes with a rank, in its order.
  private var ready: [DeliveryLane] = []
  private var paused: [DeliveryLane] = []
  /// The lanes with events that no batch has.
  private var open = 0
  /// The maximum number of events in a batch; lowered after the destination has refused a batch as too large.
  private var largest: Int
  private var number = 0
  /// Batches under way, by the number of their first event.
  private(set) var underWay: [Int: DeliveryBatch] = [:]
  /// The events that no batch has.
  private(set) var waiting = 0
  private(set) var total = 0
  private(set) var bytes = 0
  /// The lanes whose last batch failed.
  private(set) var failing = 0

  init(_ traits: DeliveryTraits) {
    self.traits = traits
    largest = max(1, traits.count)
  }

  var isEmpty: Bool { total == 0 }

  // MARK: Lanes

  private mutating func lane(of target: DeliveryTarget?) -> DeliveryLane {
    if let last, last.target == target { return last }
    let lane = lanes[target] ?? DeliveryLane(target)
    lanes[target] = lane
    last = lane
    return lane
  }

  private func isFull(_ lane: DeliveryLane) -> Bool { lane.events.count >= largest || lane.bytes >= traits.bytes }

  private func rank(of lane: DeliveryLane) -> DeliveryLane.Rank? {
    guard lane.resumesAt == nil, lane.underWay.isEmpty || traits.order != .lane else { return nil }
    if let batch = lane.again.first { return DeliveryLane.Rank(kind: 0, number: batch.id) }
    guard let first = lane.events.first else { return nil }
    return DeliveryLane.Rank(kind: isFull(lane) ? 1 : 2, number: first.number)
  }

  /// The index that a lane of this rank has, or would have, in `ready`.
  private func readyIndex(_ rank: DeliveryLane.Rank) -> Int {
    var (low, high) = (0, ready.count)
    while low < high {
      let middle = (low + high) / 2
      if let other = ready[middle].rank, other < rank { low = middle + 1 } else { high = middle }
    }
    return low
  }

  /// Updates the indexes after a change of the lane. Removes it when it is empty, unless it is the common one.
  private mutating func update(_ lane: DeliveryLane) {
    let rank = rank(of: lane)
    if rank != lane.rank {
      if let old = lane.rank { ready.remove(at: readyIndex(old)) }
      lane.rank = rank
      if let rank { ready.insert(lane, at: readyIndex(rank)) }
    }
    guard lane.isEmpty else { return }
    if lane.resumesAt != nil { paused.removeAll { $0 === lane } }
    lane.resumesAt = nil
    works(lane)
    guard lane.target != nil else { return }
    lanes[lane.target] = nil
    if last === lane { last = nil }
  }

  // MARK: Events and batches

  mutating func append(_ item: DeliveryItem, to target: DeliveryTarget?) {
    var item = item
    item.number = number
    number += 1
    let lane = lane(of: target)
    let wasEmpty = lane.events.isEmpty
    lane.events.append(item)
    lane.bytes += item.bytes
    waiting += item.events
    total += item.events
    bytes += item.bytes
    if wasEmpty { open += 1 }
    if wasEmpty || lane.rank?.kind == 2 && isFull(lane) { update(lane) }
  }

  /// Begins the next batch, if one may begin.
  ///
  /// - Parameters:
  ///   - room: How many events may be delivered.
  ///   - isHurried: No event waits for others.
  ///   - key: Names the batch of these events.
  mutating func next(_ now: Instant, room: Int = .max, isHurried: Bool, key: ([DeliveryItem]) -> String) -> Next {
    guard room > 0, let lane = ready.first else { return .none }
    if let batch = lane.again.popFirst() {
      begin(batch)
      return .batch(batch)
    }
    if !isHurried, !isFull(lane), open <= traits.openBatches, let first = lane.events.first {
      let due = first.since + traits.age
      if due > now { return .at(due) }
    }
    var items: [DeliveryItem] = []
    let most = min(largest, room)
    items.reserveCapacity(min(most, lane.events.count))
    var (size, events) = (0, 0)
    while items.count < most, let first = lane.events.first {
      if !items.isEmpty, first.bytes > traits.bytes - size { break }
      size += first.bytes
      events += first.events
      items.append(lane.events.removeFirst())
    }
    lane.bytes -= size
    waiting -= events
    if lane.events.isEmpty { open -= 1 }
    let batch = DeliveryBatch(items, lane, key: key(items), traits.retry)
    if let carried = lane.carried { (batch.attempts, batch.tries) = carried }
    lane.carried = nil
    begin(batch)
    return .batch(batch)
  }

  private mutating func begin(_ batch: DeliveryBatch) {
    underWay[batch.id] = batch
    batch.lane.underWay.append(batch)
    update(batch.lane)
  }

  private mutating func end(_ batch: DeliveryBatch) {
    underWay[batch.id] = nil
    let lane = batch.lane
    if let index = lane.underWay.firstIndex(where: { $0 === batch }) { lane.underWay.remove(at: index) }
    if let index = lane.again.firstIndex(where: { $0 === batch }) { lane.again.remove(at: index) }
    batch.answer = nil
  }

  /// Settles a batch, which is under way or waits to be repeated, except for `rest`, which is delivered again in its place.
  mutating func settle(_ batch: DeliveryBatch, rest: DeliveryBatch? = nil) {
    end(batch)
    total -= batch.rest.events - (rest?.items.events ?? 0)
    bytes -= batch.bytes - (rest?.bytes ?? 0)
    if let rest { insert(rest) }
    update(batch.lane)
  }

  /// Returns a batch under way, which will be delivered again.
  mutating func putBack(_ batch: DeliveryBatch) {
    end(batch)
    insert(batch)
    update(batch.lane)
  }

  /// Some events of a batch under way are answered for, by their index; the others remain under way.
  mutating func decide(_ batch: DeliveryBatch, _ indexes: [Int]) {
    if batch.decided.isEmpty { batch.decided = [Bool](repeating: false, count: batch.items.count) }
    for index in indexes {
      batch.decided[index] = true
      total -= 1
      bytes -= batch.items[index].bytes
    }
  }

  /// The batch of a stream whose messages get the next outcomes; nil: none is under way.
  var firstOfStream: DeliveryBatch? { lanes[nil]?.underWay.first }

  /// Messages of an item of a stream that were answered for.
  struct Passed {
    var receipt: Receipt
    var messages: Int
    var bytes: Int
  }

  /// Confirms up to `count` further messages of a batch of a stream. The batch must be settled when it has no more.
  mutating func pass(_ count: Int, of batch: DeliveryBatch) -> [Passed] {
    var passed: [Passed] = []
    var left = count
    while left > 0, batch.passed < batch.items.count {
      let item = batch.items[batch.passed]
      guard let block = item.block else { break }
      let messages = min(left, block.left)
      let before = block.bytesLeft
      block.first += messages
      let sent = before - block.bytesLeft
      if block.left == 0 { batch.passed += 1 }
      total -= messages
      bytes -= sent
      left -= messages
      passed.append(Passed(receipt: item.receipt, messages: messages, bytes: sent))
    }
    return passed
  }

  /// Makes a batch that waits to be repeated of the events without an outcome.
  mutating func undecided(_ batch: DeliveryBatch, key: ([DeliveryItem]) -> String) -> DeliveryBatch {
    let rest = self.batch(of: batch.rest, from: batch, key: key)
    settle(batch, rest: rest)
    return rest
  }

  /// The events of a batch of a stream wait again, before all others of their lane.
  mutating func unwind(_ batch: DeliveryBatch) {
    let (lane, rest) = (batch.lane, batch.rest)
    end(batch)
    if lane.events.isEmpty, !rest.isEmpty { open += 1 }
    for item in rest.reversed() {
      lane.events.prepend(item)
      lane.bytes += item.bytes
    }
    waiting += rest.events
    lane.carried = (batch.attempts, batch.tries)
    update(lane)
  }

  /// Inserts a batch before all younger ones of its lane.
  private func insert(_ batch: DeliveryBatch) {
    let again = batch.lane.again
    let index = again.lastIndex { $0.id < batch.id }.map { $0 + 1 } ?? 0
    batch.lane.again.insert(batch, at: index)
  }

  /// Makes a batch of some events of another one, in its place.
  func batch(of items: [DeliveryItem], from batch: DeliveryBatch, key: ([DeliveryItem]) -> String) -> DeliveryBatch {
    let new = DeliveryBatch(items, batch.lane, key: key(items), traits.retry)
    (new.attempts, new.tries, new.failure) = (batch.attempts, batch.tries, batch.failure)
    return new
  }

  /// Replaces a batch under way of two or more events by its halves.
  mutating func halve(_ batch: DeliveryBatch, isTooLarge: Bool, key: ([DeliveryItem]) -> String) {
    let middle = batch.items.count / 2
    end(batch)
    for part in [batch.items[..<middle], batch.items[middle...]] {
      insert(DeliveryBatch(Array(part), batch.lane, key: key(Array(part)), traits.retry))
    }
    update(batch.lane)
    guard isTooLarge else { return }
    largest = max(1, min(largest, batch.items.count / 2))
    for lane in lanes.values { update(lane) }
  }

  // MARK: Pauses of lanes

  /// No batch of the lane begins before `end`.
  mutating func pause(_ lane: DeliveryLane, until end: Instant) {
    if lane.resumesAt == nil { paused.append(lane) }
    lane.resumesAt = max(lane.resumesAt ?? end, end)
    if !lane.isFailing { failing += 1 }
    lane.isFailing = true
    update(lane)
  }

  /// The destination has answered for a batch of the lane.
  mutating func works(_ lane: DeliveryLane) {
    if lane.isFailing { failing -= 1 }
    lane.isFailing = false
  }

  /// The end of the first pause; nil: there is none.
  var resumesAt: Instant? { paused.lazy.compactMap(\.resumesAt).min() }

  /// Ends the pauses that are over.
  mutating func resume(_ now: Instant) {
    let over = paused.filter { $0.resumesAt ?? now <= now }
    guard !over.isEmpty else { return }
    paused.removeAll { $0.resumesAt ?? now <= now }
    for lane in over {
      lane.resumesAt = nil
      update(lane)
    }
  }

  // MARK: Everything

  /// The batches, those under way included, in order.
  var batches: [DeliveryBatch] {
    (lanes.values.flatMap(\.again) + underWay.values).sorted { $0.id < $1.id }
  }
  /// Calls `body` with each event that no batch has, in order, and its target.
  func forEachWaiting(_ body: (DeliveryItem, DeliveryTarget?) -> Void) {
    let open = lanes.values.filter { !$0.events.isEmpty }
    if open.count == 1 {
      for item in open[0].events { body(item, open[0].target) }
      return
    }
    // Items are large, so numbers are sorted.
    var order: [(number: Int, lane: Int, index: Int)] = []
    order.reserveCapacity(waiting)
    for (number, lane) in open.enumerated() {
      for index in lane.events.indices { order.append((lane.events[index].number, number, index)) }
    }
    order.sort { $0.number < $1.number }
    for one in order { body(open[one.lane].events[one.index], open[one.lane].target) }
  }

  /// Calls `body` with the receipt of each event, in no order; one may come several times, but not twice in a row.
  func forEachReceipt(_ body: (Receipt) -> Void) {
    var last: Receipt?
    func note(_ receipt: Receipt) {
      guard receipt !== last else { return }
      last = receipt
      body(receipt)
    }
    for batch in batches { for item in batch.rest { note(item.receipt) } }
    for lane in lanes.values { for index in lane.events.indices { note(lane.events[index].receipt) } }
  }

  /// Whether a sender waits for some of the events.
  var isAwaited: Bool {
    var isAwaited = false
    forEachReceipt { isAwaited = isAwaited || $0.notifiesSender }
    return isAwaited
  }
  /// When the oldest event arrived; nil: there is none.
  var oldest: Instant? {
    let first = lanes.values.lazy.compactMap { $0.again.first?.items.first?.since ?? $0.events.first?.since }.min()
    let begun = underWay.values.lazy.compactMap { $0.items.first?.since }.min()
    return [first, begun].compactMap { $0 }.min()
  }

  /// An event that is not delivered.
  struct Left {
    var item: DeliveryItem
    var target: DeliveryTarget?
    /// The reason why its batch has failed, if it has.
    var failure: String?
  }

  /// Removes everything, in the order in which the sink took it.
  mutating func removeAll() -> [Left] {
    var all: [Left] = []
    all.reserveCapacity(total)
    for batch in batches {
      for item in batch.rest { all.append(Left(item: item, target: batch.target, failure: batch.failure)) }
    }
    forEachWaiting { item, target in all.append(Left(item: item, target: target)) }
    let next = number
    self = DeliveryQueue(traits)
    number = next
    // Events of several lanes may come between those of batches.
    let isInOrder = all.indices.dropFirst().allSatisfy { all[$0 - 1].item.number < all[$0].item.number }
    if !isInOrder { all.sort { $0.item.number < $1.item.number } }
    return all
  }

  /// Numbers later events after all events of `other`.
  mutating func follow(_ other: DeliveryQueue) { number = max(number, other.number) }

  /// Adds a batch that another queue had, to be delivered again or, with an answer, under way. `change` gets it before that.
  ///
  /// - Parameter isNumbered: Its events have numbers of a queue that this one follows.
  mutating func adopt(
    _ items: [DeliveryItem], to target: DeliveryTarget?, key: String, isNumbered: Bool = false,
    _ change: (DeliveryBatch) -> Void = { _ in }
  ) -> DeliveryBatch {
    var items = items
    for index in items.indices where !isNumbered {
      items[index].number = number
      number += 1
    }
    let batch = DeliveryBatch(items, lane(of: target), key: key, traits.retry)
    change(batch)
    total += batch.rest.events
    bytes += batch.bytes
    if batch.answer == nil {
      insert(batch)
      update(batch.lane)
    } else {
      begin(batch)
    }
    return batch
  }

  /// Adds a batch of another queue, to be delivered again or, with an answer, under way. `change` is called with it before that.
  ///
  /// - Parameter isNumbered: Whether its events have numbers of a queue that this one follows.
  mutating func adoptWaiting(of other: DeliveryQueue, _ receipt: (Receipt) -> Receipt?) {
    follow(other)
    for old in other.lanes.values where !old.events.isEmpty {
      let lane = lane(of: old.target)
      var events = Deque<DeliveryItem>()
      swap(&events, &old.events)
      // Adds the unbatched events of `other`, as they are, instead of events of its own. `receipt` is called with the
      // receipt of each event and returns the one for this queue; an event for which it returns nil is left out.
      var left: [Int] = []
      for index in events.indices {
        if let new = receipt(events[index].receipt) { events[index].receipt = new } else { left.append(index) }
      }
      for index in left.reversed() { events.remove(at: index) }
      lane.events = events
      lane.bytes = left.isEmpty ? old.bytes : events.reduce(0) { $0 + $1.bytes }
      lane.carried = old.carried
      waiting += events.events
      total += events.events
      bytes += lane.bytes
      if !events.isEmpty { open += 1 }
      update(lane)
    }
  }
}
