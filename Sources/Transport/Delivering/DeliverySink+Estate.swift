import PipelineCore

/// What a sink leaves to its next version in a reload: the queue as it is, with the senders that wait for answers and the batches under way.
/// No batch is repeated, and the reload waits for none. Used in turns of one execution after the other.
final class DeliveryEstate: @unchecked Sendable {
  /// Estates that no version takes fail: their senders send again.
  static let all = KeptItems<DeliveryEstate> { $0.discard() }

  let connector: any DeliveryConnector
  /// The first events of `items`, in their order. Those with an answer are under way.
  let batches: [DeliveryBatch]
  /// The events, in order.
  let items: [DeliveryItem]
  /// Of each event; nil: it is part of the saved state, and gets its receipt from there.
  let receipts: [LeftReceipt?]
  /// The rows of the outbox that hold these events.
  let rows: [GivenRows]
  /// Identifies the parameters of the sink.
  let parameters: UInt64
  /// Of a stream: the answer of its opening, which gets the outcomes of what is under way, and how far opening has come.
  let connection: DeliveryAnswer?
  let isOpen: Bool
  let isOpening: Bool
  let openedAt: Instant

  init(
    _ sink: DeliverySink, _ batches: [DeliveryBatch], _ items: [DeliveryItem], _ receipts: [LeftReceipt?],
    _ rows: [GivenRows]
  ) {
    connector = sink.connector
    parameters = sink.parameters
    let isStream = sink.builder != nil
    connection = isStream ? sink.connection : nil
    (isOpen, isOpening, openedAt) = (isStream && sink.isOpen, isStream && sink.isOpening, sink.openedAt)
    self.batches = batches
    self.items = items
    self.receipts = receipts
    self.rows = rows
  }

  /// Whether the batches can be read by another connector: their forms, targets and replies are those of one kind.
  func isReadable(by other: any DeliveryConnector) -> Bool { type(of: connector) == type(of: other) }

  /// Gives up the batches under way.
  func discard() {
    if let stream = connector as? any StreamConnector { _ = stream.end() }
    for batch in batches.reversed() where batch.answer != nil { connector.withdraw(batch) }
  }
}

extension DeliverySink {
  /// Leaves everything that is not delivered to the next execution.
  func leaveEstate() {
    let batches = queue.batches
    // One that is being prepared is not under way yet.
    for batch in batches where batch.answer != nil && (!traits.handsOver || batch.isPreparing) { takeBack(batch) }
    let items = queue.batches.flatMap(\.rest) + queue.events
    var left: [ObjectIdentifier: LeftReceipt] = [:]
    let receipts = items.map { item -> LeftReceipt? in
      let receipt = item.receipt
      guard receipt.notifiesSender else {
        receipt.acknowledge(item.events)
        return nil
      }
      let name = ObjectIdentifier(receipt)
      if left[name] == nil { left[name] = receipt.leave() }
      return left[name]
    }
    let estate = DeliveryEstate(self, queue.batches, items, receipts, leftRows)
    _ = close(handsOver: traits.handsOver)
    // Where no reload is under way any more, the senders learn of the failure when the estate is freed.
    if !DeliveryEstate.all.keep([estate], for: execution.name(of: nodeContext.step)) { estate.discard() }
  }

  /// Takes over what the execution before has left, in place of what the saved state has of it.
  func takeEstate() {
    awaitsEstate = false
    var known = restoredReceipts[...]
    restoredReceipts = []
    // What this sink does not take is discarded at the end of the reload.
    guard !isOver else { return }
    let estates = DeliveryEstate.all.take(execution.name(of: nodeContext.step))
    guard !estates.isEmpty else {
      if start() { deliverNext() }
      return
    }
    let new = queue.removeAll().dropFirst(known.count { $0 != nil })
    var taken: [ObjectIdentifier: Receipt] = [:]
    func receipt(_ left: LeftReceipt?, _ item: DeliveryItem) -> Receipt {
      guard let left else {
        if let receipt = known.popFirst().flatMap({ $0 }) {
          if receipt.left == item.events { return receipt }
          receipt.acknowledgeAll()
        }
        return takeBack(item.events, bytes: item.block?.memory ?? item.event.byteCount + deliveryItemBytes)
      }
      let name = ObjectIdentifier(left)
      if let receipt = taken[name] { return receipt }
      let receipt = take(left) ?? takeBack(left.events, bytes: left.bytes)
      taken[name] = receipt
      return receipt
    }
    for estate in estates {
      take(estate.rows)
      if let stream = builder?.stream {
        adopt(estate, stream) { receipt(estate.receipts[$0], $1) }
        continue
      }
      var places = estate.receipts.indices
      // If another kind of sink has taken the name, all events are encoded anew.
      let isReadable = estate.isReadable(by: connector)
      if !isReadable { estate.discard() }
      for old in isReadable ? estate.batches : [] {
        var items: [(item: DeliveryItem, target: DeliveryTarget?)] = []
        for var item in old.rest {
          guard let place = places.popFirst() else { break }
          item.receipt = receipt(estate.receipts[place], item)
          if old.answer != nil {
            items.append((item, old.target))
          } else if let made = encoded(item.event, item.receipt, item) {
            items.append(made)
          }
        }
        guard let first = items.first else { continue }
        let batch = queue.adopt(items.map(\.item), to: first.target, key: old.key) { batch in
          (batch.attempts, batch.tries, batch.failure) = (old.attempts, old.tries, old.failure)
          (batch.number, batch.time, batch.memo, batch.answer) = (old.number, old.time, old.memo, old.answer)
        }
        if let answer = batch.answer { watch(batch, answer) }
      }
      for place in places {
        let item = estate.items[place]
        let receipt = receipt(estate.receipts[place], item)
        if let block = item.block {
          for event in events(block) {
            if let made = encoded(event, receipt, nil) { queue.append(made.item, to: made.target) }
          }
        } else if let made = encoded(item.event, receipt, isReadable ? item : nil) {
          queue.append(made.item, to: made.target)
        }
      }
    }
    for receipt in known { receipt?.acknowledgeAll() }
    // What came meanwhile.
    for one in new { queue.append(one.item, to: one.target) }
    guard start() else { return }
    updatePressure()
    deliverNext()
  }

  /// The new version may write the event in another way, or not at all.
  private func encoded(
    _ event: OwnedEvent, _ receipt: Receipt, _ old: DeliveryItem?
  ) -> (item: DeliveryItem, target: DeliveryTarget?)? {
    event.keep(in: executor.arena)
    do throws(DeliveryRefusal) {
      let made = try connector.encode(event.event)
      var item = item(made, event, receipt, old?.id)
      if let old { (item.since, item.takenAt) = (old.since, old.takenAt) }
      return (item, made.target)
    } catch {
      reject(event.event, error.message, on: receipt)
      return nil
    }
  }
}
