import PipelineCore
import Synchronization

/// The state that a sink hands over to its next version in a reload: the unchanged queue, with the senders that wait
/// for answers and the batches under way. No batch is repeated, and the reload waits for none.
///
/// It belongs to the state that the old version leaves (``LeftState``). If no version has taken it when the reload is
/// over, the senders are notified to send again, and batches under way are given up; events that no sender sends again
/// stay until a version takes them.
final class DeliveryEstate: SinkEstate, @unchecked Sendable {
  /// The queues left during the reload that is under way.
  private static let all = KeptItems<DeliveryEstate> { $0.endReload() }

  /// The contents. Used by one thread at a time.
  struct Contents: @unchecked Sendable {
    let connector: any DeliveryConnector
    var queue: DeliveryQueue
    /// The receipts as left to the next version, by the identity of the original ones.
    let receipts: [ObjectIdentifier: LeftReceipt]
    /// The rows of the outbox that hold these events.
    let rows: [GivenRows]
    /// With the same settings, an event is encoded in the same way.
    let settings: StepSettingsID
    /// For a connection that continues: the answer of its opening, which gets its end and the outcomes of a stream, and
    /// the state of its opening.
    let connection: DeliveryAnswer?
    let isOpen: Bool
    let isOpening: Bool
    let openedAt: Instant

    /// Gives up the batches under way.
    fileprivate func withdraw() {
      if let lasting = connector as? any LastingConnector { _ = lasting.end() }
      for batch in queue.batches.reversed() where batch.answer != nil {
        connector.withdraw(batch)
        batch.answer = nil
      }
    }
  }

  private let contents: Mutex<Contents?>
  /// The pipeline and the sink.
  private let name: String
  let unsaved: Int

  init(_ contents: Contents, name: String) {
    self.contents = Mutex(contents)
    self.name = name
    unsaved = contents.receipts.values.reduce(0) { $0 + ($1.notifiesSender ? 0 : $1.events) }
    // Outside of a reload no successor would end it.
    if !Self.all.keep([self], for: name) { endReload() }
  }

  /// The contents, for the next version; nil: they are taken already.
  func take() -> Contents? {
    for other in Self.all.take(name) where other !== self { other.endReload() }
    return contents.withLock { $0.take() }
  }

  /// No version takes the queue: all its events fail.
  func discard() { take()?.withdraw() }

  private func endReload() {
    contents.withLock { contents in
      guard let contents else { return }
      contents.withdraw()
      for receipt in contents.receipts.values where receipt.notifiesSender {
        receipt.release(.failed(LeftReceipt.untaken))
      }
    }
  }
}

extension DeliverySink {
  /// Leaves everything that is not delivered to the next execution.
  func leaveEstate() {
    seal()
    endFarewell()
    let batches = queue.batches
    // One that is being prepared is not under way yet.
    for batch in batches where batch.answer != nil && (!traits.handsOver || batch.isPreparing) { takeBack(batch) }
    var receipts: [ObjectIdentifier: LeftReceipt] = [:]
    queue.forEachReceipt { receipt in
      let name = ObjectIdentifier(receipt)
      if receipts[name] == nil { receipts[name] = receipt.leave() }
    }
    for batch in queue.underWay.values { unset(&batch.deadline) }
    let left = DeliveryEstate.Contents(
      connector: connector, queue: queue, receipts: receipts, rows: leftRows,
      settings: execution.settings(of: nodeContext.step), connection: lasting == nil ? nil : connection,
      isOpen: isOpen, isOpening: isOpening, openedAt: openedAt)
    queue = DeliveryQueue(traits)
    _ = close(handsOver: traits.handsOver)
    execution.leave(
      DeliveryEstate(left, name: execution.name(of: nodeContext.step)), of: nodeContext.step)
  }

  /// Takes over the queue of the previous execution. Begins nothing: the pipeline has started, but has not reported it yet.
  func takeEstate() {
    awaitsEstate = false
    // A queue that this sink does not take belongs to the state of the previous version.
    guard !isOver else { return }
    guard let estate = execution.takeEstate(of: nodeContext.step) as? DeliveryEstate, let left = estate.take() else {
      _ = start()
      return
    }
    take(left.rows)
    let new = queue.removeAll()
    queue.follow(left.queue)
    var heir = ReceiptHeir(self, left.receipts)
    if let stream = builder?.stream {
      adopt(left, stream, &heir)
    } else if type(of: left.connector) != type(of: connector) {
      // Another kind of sink now has this name.
      left.withdraw()
      takeAnew(left.queue, &heir)
    } else {
      let hasSameSettings = left.settings == execution.settings(of: nodeContext.step)
      let former = left.connector as? any LastingConnector
      let goesOn = hasSameSettings && former.map { lasting?.goOn(with: $0) == true } ?? false
      let isSame = hasSameSettings && (former == nil || goesOn)
      for batch in left.queue.batches { take(batch, isSame: isSame, &heir) }
      if isSame {
        queue.adoptWaiting(of: left.queue) { heir.receipt($0) }
      } else {
        takeAnew(waitingOf: left.queue, &heir)
      }
      follow(left, goesOn)
    }
    // Events that have arrived meanwhile.
    for one in new { queue.append(one.item, to: one.target) }
    guard start() else { return }
    updatePressure()
  }

  /// Takes over a batch: unchanged, if it is under way or would be encoded in the same way.
  private func take(_ old: DeliveryBatch, isSame: Bool, _ heir: inout ReceiptHeir) {
    if let answer = old.answer { return take(old, answer, &heir) }
    var items: [DeliveryItem] = []
    var target = old.target
    for var item in old.rest {
      guard let receipt = heir.receipt(item.receipt) else { continue }
      item.receipt = receipt
      if isSame {
        items.append(item)
      } else if let made = encoded(item) {
        if items.isEmpty { target = made.target }
        items.append(made.item)
      }
    }
    guard !items.isEmpty else { return }
    _ = queue.adopt(items, to: target, key: old.key, isNumbered: true) { batch in
      (batch.attempts, batch.tries, batch.failure) = (old.attempts, old.tries, old.failure)
      (batch.number, batch.time, batch.memo) = (old.number, old.time, old.memo)
    }
  }

  /// Takes over a batch under way. Its outcomes refer to events by their index in the whole batch, including those with
  /// an earlier outcome.
  private func take(_ old: DeliveryBatch, _ answer: DeliveryAnswer, _ heir: inout ReceiptHeir) {
    var (items, decided) = (old.items, old.decided)
    for index in items.indices where old.isOpen(index) {
      if let receipt = heir.receipt(items[index].receipt) {
        items[index].receipt = receipt
      } else {
        if decided.isEmpty { decided = [Bool](repeating: false, count: items.count) }
        decided[index] = true
      }
    }
    guard decided.isEmpty || decided.contains(false) else { return }
    let batch = queue.adopt(items, to: old.target, key: old.key, isNumbered: true) { batch in
      (batch.attempts, batch.tries, batch.failure) = (old.attempts, old.tries, old.failure)
      (batch.number, batch.time, batch.memo, batch.answer) = (old.number, old.time, old.memo, answer)
      batch.decided = decided
    }
    watch(batch, answer)
  }

  /// Encodes the events again: the new version may write them in another way, or not at all.
  private func takeAnew(waitingOf old: DeliveryQueue, _ heir: inout ReceiptHeir) {
    old.forEachWaiting { item, _ in takeAnew(item, &heir) }
  }

  private func takeAnew(_ old: DeliveryQueue, _ heir: inout ReceiptHeir) {
    for batch in old.batches { for item in batch.rest { takeAnew(item, &heir) } }
    takeAnew(waitingOf: old, &heir)
  }

  private func takeAnew(_ item: DeliveryItem, _ heir: inout ReceiptHeir) {
    guard let receipt = heir.receipt(item.receipt) else { return }
    var item = item
    item.receipt = receipt
    if let block = item.block {
      // Events that were messages of a stream.
      item.block = nil
      for event in events(block) {
        item.event = event
        if let made = encoded(item) { queue.append(made.item, to: made.target) }
      }
    } else if let made = encoded(item) {
      queue.append(made.item, to: made.target)
    }
  }

  /// An event of another version, as encoded by this one; nil: it cannot be delivered.
  func encoded(_ old: DeliveryItem) -> (item: DeliveryItem, target: DeliveryTarget?)? {
    old.event.keep(in: executor.arena)
    do throws(DeliveryRefusal) {
      let made = try connector.encode(old.event.event)
      var item = item(made, old.event, old.receipt, old.id)
      (item.since, item.takenAt, item.number) = (old.since, old.takenAt, old.number)
      return (item, made.target)
    } catch {
      reject(old.event.event, error.message, on: old.receipt)
      return nil
    }
  }
}

/// Finds the receipts on which a sink has the events that it takes over.
struct ReceiptHeir {
  private let sink: DeliverySink
  private let left: [ObjectIdentifier: LeftReceipt]
  private var taken: [ObjectIdentifier: Receipt?] = [:]
  /// The last one, which the next event often shares.
  private var last: (old: Receipt, new: Receipt?)?

  init(_ sink: DeliverySink, _ left: [ObjectIdentifier: LeftReceipt]) { (self.sink, self.left) = (sink, left) }

  /// Nil: the sender has been notified to send the events again.
  mutating func receipt(_ old: Receipt) -> Receipt? {
    if let last, last.old === old { return last.new }
    let name = ObjectIdentifier(old)
    let new: Receipt?
    if let known = taken[name] {
      new = known
    } else {
      new = left[name].flatMap(sink.take)
      taken[name] = .some(new)
    }
    last = (old, new)
    return new
  }
}
