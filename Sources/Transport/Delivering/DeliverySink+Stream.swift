import PipelineCore

extension DeliverySink {
  // MARK: Blocks

  /// Puts the block of this turn into the queue.
  func seal() {
    guard let builder, let block = builder.take() else { return }
    let receipt = take(block.left, bytes: block.memory)
    if isHandingOver { receipt.announceHandover() }
    queue.append(item(block, receipt), to: nil)
  }

  func item(_ block: DeliveryBlock, _ receipt: Receipt) -> DeliveryItem {
    DeliveryItem(
      piece: .bytes([]), event: Self.noEvent, receipt: receipt, size: 0, since: executor.now,
      takenAt: executor.wallTime, block: block)
  }
  private static let noEvent = OwnedEvent(Event(.null))

  // MARK: Outcomes

  /// Called when `count` more messages were delivered.
  func passed(_ count: Int) {
    var left = count
    while left > 0, let batch = queue.firstOfStream {
      let done = queue.pass(left, of: batch)
      settleIfPassed(batch)
      for one in done {
        left -= one.messages
        countSent(one.messages)
        countBytes(one.bytes)
        one.receipt.acknowledge(one.messages)
      }
      // No sender reports more messages than it was given.
      if done.isEmpty { break }
    }
    if !traits.provesByLasting { proved() }
  }

  private func settleIfPassed(_ batch: DeliveryBatch) {
    guard batch.passed == batch.items.count else { return }
    pace.answered(batch.id)
    queue.settle(batch)
  }

  /// The connection works.
  private func proved() {
    openings.succeed()
    isProved = true
    recover()
  }

  /// The next message will never be taken.
  func refusedNext(_ reason: String) {
    guard let batch = queue.firstOfStream, let item = batch.rest.first, let block = item.block else { return }
    let event = self.event(block, block.first)
    _ = queue.pass(1, of: batch)
    settleIfPassed(batch)
    reject(event, reason, on: item.receipt)
  }

  private func event(_ block: DeliveryBlock, _ message: Int) -> Event {
    block.bytes.withUnsafeBytes { bytes in
      let framed = UnsafeRawBufferPointer(rebasing: bytes[block.start(message)..<block.ends[message]])
      return block.framer.event(of: block.framer.message(in: framed), in: executor.arena)
    }
  }

  /// Rejects every message of a block that has not been answered for.
  func reject(_ block: DeliveryBlock, _ message: String, on receipt: Receipt) {
    for number in block.first..<block.ends.count { reject(event(block, number), message, on: receipt) }
  }

  /// The connection is over, or could not be made: batches under way are sent again.
  func disconnected() {
    if isOpen, traits.provesByLasting, executor.now - openedAt >= traits.retry.maxDelay { openings.succeed() }
    isOpen = false
    for batch in queue.batches.reversed() where batch.answer != nil { takeBack(batch) }
  }

  /// Ends the connection, and counts the messages confirmed before.
  func endStream(_ stream: any StreamConnector) -> @Sendable () -> Void {
    if let farewell {
      _ = farewell.connector.end()
      for case .passed(let count) in farewell.answer.take() { passed(count) }
      self.farewell = nil
    }
    let (accepted, wait) = stream.end()
    for case .passed(let count) in connection?.take() ?? [] { passed(count) }
    if accepted > 0 { passed(accepted) }
    return wait
  }

  // MARK: A reload

  /// Takes over the queue of an earlier version: its connection with the batches under way, if that can continue, and all waiting events.
  func adopt(_ left: DeliveryEstate.Contents, _ stream: any StreamConnector, _ heir: inout ReceiptHeir) {
    let former = left.connector as? any StreamConnector
    let isSame = left.settings == execution.settings(of: nodeContext.step)
    let goesOn = former.map { isSame && stream.goOn(with: $0) } ?? false
    for old in left.queue.batches {
      let items = old.rest.compactMap { inherited($0, &heir) }
      if former != nil, let answer = old.answer, !items.isEmpty {
        _ = queue.adopt(items, to: nil, key: "", isNumbered: true) { $0.answer = answer }
      } else {
        for item in items.flatMap(anew) { queue.append(item, to: nil) }
      }
    }
    if goesOn {
      queue.adoptWaiting(of: left.queue) { heir.receipt($0) }
    } else {
      var waiting: [DeliveryItem] = []
      left.queue.forEachWaiting { item, _ in waiting.append(item) }
      for item in waiting.compactMap({ inherited($0, &heir) }).flatMap(anew) { queue.append(item, to: nil) }
    }
    follow(left, goesOn)
  }

  /// Takes over the connection of an earlier version, or leaves it some time for what it was given.
  func follow(_ left: DeliveryEstate.Contents, _ goesOn: Bool) {
    guard let former = left.connector as? any LastingConnector else { return }
    if goesOn {
      (connection, isOpen, isOpening, openedAt) = (left.connection, left.isOpen, left.isOpening, executor.now)
      if isOpening { pace.begun(openingBatch) }
      if let connection { expect(connection, openingBatch) }
    } else if let answer = left.connection, !queue.underWay.isEmpty {
      former.finishBeside(nodeContext)
      farewell = Farewell(connector: former, answer: answer)
      farewellEnds = executor.schedule(at: executor.now + Waking.patience, self, Waking.farewellIsOver)
      expect(answer, openingBatch)
    } else {
      former.retire()
    }
  }

  /// An item of an earlier version with a receipt of this one; nil: its sender sends it again.
  private func inherited(_ item: DeliveryItem, _ heir: inout ReceiptHeir) -> DeliveryItem? {
    var item = item
    guard let receipt = heir.receipt(item.receipt) else { return nil }
    item.receipt = receipt
    return item
  }

  /// An outcome of the connection of an earlier version.
  func said(_ outcome: DeliveryOutcome) {
    switch outcome {
    case .passed(let count): passed(count)
    case .refusedNext(let reason): refusedNext(reason)
    case .answered, .partly: return
    default: return endFarewell()
    }
    if queue.underWay.isEmpty { endFarewell() }
  }

  /// Ends the farewell: the earlier connection gets no more. This version sends the rest again, from the start of a message.
  func endFarewell() {
    guard let farewell else { return }
    self.farewell = nil
    unset(&farewellEnds)
    if queue.underWay.isEmpty {
      farewell.connector.retire()
    } else {
      let accepted = farewell.connector.end().accepted
      for case .passed(let count) in farewell.answer.take() { passed(count) }
      if accepted > 0 { passed(accepted) }
    }
    guard !queue.isEmpty else { return }
    let underWay = queue.batches.filter { $0.answer != nil }
    for batch in underWay.reversed() { takeBack(batch) }
    if builder != nil {
      for left in queue.removeAll() { for item in anew(left.item) { queue.append(item, to: nil) } }
    } else if !underWay.isEmpty {
      for left in queue.removeAll() {
        if let (item, target) = encoded(left.item) { queue.append(item, to: target) }
      }
    }
  }

  /// Ends the farewell when the earlier connection has reported an outcome for everything that it was given.
  func endFarewellIfDone() {
    if builder == nil, farewell != nil, queue.underWay.isEmpty { endFarewell() }
  }

  /// Reframes an item of another version for this one; events that cannot be framed are rejected.
  private func anew(_ item: DeliveryItem) -> [DeliveryItem] {
    guard let builder, item.block?.framer !== builder.stream else { return [item] }
    let fresh = BlockBuilder(builder.stream)
    if let old = item.block {
      old.forEachMessage { message in
        do throws(DeliveryRefusal) { try fresh.append(message: message) } catch {
          reject(old.framer.event(of: message, in: executor.arena), error.message, on: item.receipt)
        }
      }
    } else {
      item.event.keep(in: executor.arena)
      do throws(DeliveryRefusal) { try fresh.append(item.event.event) } catch {
        reject(item.event.event, error.message, on: item.receipt)
      }
    }
    return fresh.take().map { block in
      var item = item
      item.block = block
      return [item]
    } ?? []
  }

  /// The events of a block, for a sink of another kind.
  func events(_ block: DeliveryBlock) -> [OwnedEvent] {
    var events: [OwnedEvent] = []
    block.forEachMessage { events.append(OwnedEvent(block.framer.event(of: $0, in: executor.arena))) }
    return events
  }

  // MARK: State

  /// Writes each block: its messages without frames, so that a version with other frames can send them.
  func saveBlocks(_ state: inout StateWriter) {
    var items = queue.batches.flatMap(\.rest)
    queue.forEachWaiting { item, _ in items.append(item) }
    items.removeAll(where: \.receipt.notifiesSender)
    state.write(each: items) { state, item in
      let content = OutputBuffer()
      var ends: [Int] = []
      item.block?.forEachMessage { message in
        content.append(message)
        ends.append(content.count)
      }
      state.write(value: .bytes(content.bytes))
      state.write(each: ends)
    }
  }

  func restoreBlocks(_ state: inout StateReader, _ stream: any StreamConnector) throws(StateFault) {
    var blocks: [(content: OwnedValue, ends: [Int])] = []
    for _ in 0..<(try state.count()) {
      let content: OwnedValue = try state.read()
      let ends: [Int] = try state.read()
      var last = 0
      for end in ends {
        guard end >= last else { throw StateFault("the messages of a block are not in order") }
        last = end
      }
      guard content.value.is(.bytes), last == content.value.rawBytes.count else {
        throw StateFault("a block has other bytes than its messages")
      }
      blocks.append((content, ends))
    }
    var lost = 0
    for (content, ends) in blocks {
      let fresh = BlockBuilder(stream)
      var start = 0
      for end in ends {
        let message = UnsafeRawBufferPointer(rebasing: content.value.rawBytes[start..<end])
        start = end
        do throws(DeliveryRefusal) { try fresh.append(message: message) } catch { lost += 1 }
      }
      guard let block = fresh.take() else { continue }
      queue.append(item(block, takeBack(block.left, bytes: block.memory)), to: nil)
    }
    restored(lost)
  }
}
