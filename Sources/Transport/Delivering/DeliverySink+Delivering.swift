import PipelineCore

extension DeliverySink {
  // MARK: Delivering

  /// Opens the destination.
  func begin() {
    let answer = DeliveryAnswer()
    connection = answer
    pace.begun(openingBatch)
    isOpen = connector.open(answer)
    isOpening = !isOpen
    // The first batch probes it.
    if isOpen { pace.withdrawn(openingBatch) }
    expect(answer, openingBatch)
  }

  /// Routes an outcome to this sink.
  func expect(_ answer: DeliveryAnswer, _ batch: Int) {
    let (executor, node) = (executor, Weak(self))
    // The answer keeps the closure, which must not keep the answer.
    answer.lead { [weak answer] in
      guard let answer else { return }
      executor.post { node.object?.answered(batch, answer) }
    }
  }

  /// Begins as many batches as may be under way.
  func deliverNext() {
    var due: Instant?
    loop: while !isOver, !isSuspending, !awaitsEstate, !isOpening, farewell == nil,
      pace.admits(beside: queue.underWay.count)
    {
      guard isOpen else {
        // No event waits for a destination that gets none.
        if isFinishing || traits.opensLate, queue.isEmpty { break loop }
        begin()
        continue
      }
      switch queue.next(
        executor.now, room: connector.room, isHurried: isFinishing || isHurried || waitsForRoom, key: makeKey)
      {
      case .batch(let batch): deliver(batch)
      case .at(let instant):
        due = instant
        break loop
      case .none: break loop
      }
    }
    guard !isOver else { return }
    connector.flush()
    updatePressure()
    if isFinishing, queue.isEmpty, !isOpening, !awaitsEstate { return finishConnector() }
    if queue.underWay.isEmpty { waitNoLonger() }
    setTimer(due)
  }

  func finishConnector() {
    guard completion == nil else { return }
    let answer = DeliveryAnswer()
    completion = answer
    if connector.finish(answer) { over() } else { expect(answer, openingBatch) }
  }

  func deliver(_ batch: DeliveryBatch) {
    if batch.number == 0 {
      tried += 1
      batch.number = tried
      batch.time = executor.wallTime
    }
    pace.begun(batch.id)
    if builder != nil, let connection {
      // All outcomes of a stream are reported to the answer of its opening.
      batch.answer = connection
      return connector.deliver(batch, connection)
    }
    let answer = DeliveryAnswer()
    batch.answer = answer
    batch.isPreparing = !connector.prepare(batch, answer)
    if batch.isPreparing { expect(answer, batch.id) } else { send(batch) }
  }

  func send(_ batch: DeliveryBatch) {
    batch.isPreparing = false
    let answer = DeliveryAnswer()
    batch.answer = answer
    watch(batch, answer)
    connector.deliver(batch, answer)
  }

  /// The batch is under way: its outcome is routed to this sink, within its time limit.
  func watch(_ batch: DeliveryBatch, _ answer: DeliveryAnswer) {
    expect(answer, batch.id)
    if let timeout = traits.timeout { batch.deadline = executor.schedule(at: executor.now + timeout, self, batch.id) }
  }

  /// Wakes when something may begin that may not now.
  func setTimer(_ due: Instant?) {
    var next = due
    if let end = pace.resumesAt { next = min(next ?? end, end) }
    if let end = queue.resumesAt { next = min(next ?? end, end) }
    guard next != timerAt else { return }
    unset(&timer)
    timerAt = next
    if let next { timer = executor.schedule(at: next, self, Waking.goesOn) }
  }

  /// The batch has had no outcome for too long.
  func expired(_ id: Int) {
    guard let batch = queue.underWay[id], let timeout = traits.timeout else { return }
    batch.deadline = .none
    connector.withdraw(batch)
    act(on: .again("\(traits.words.destination) has not answered within \(timeout)"), batch)
    deliverNext()
  }

  // MARK: Outcomes

  func answered(_ id: Int, _ answer: DeliveryAnswer) {
    // Otherwise it is for the next version of the sink, or is not awaited.
    guard !isOver else { return }
    for outcome in answer.take() {
      if isOver { return }
      if answer === completion {
        over()
      } else if answer === connection {
        connected(outcome)
      } else if let farewell, answer === farewell.answer {
        said(outcome)
      } else if let batch = queue.underWay[id], batch.answer === answer {
        if case .partly = outcome {} else { unset(&batch.deadline) }
        act(on: outcome, batch)
      }
    }
    endFarewellIfDone()
    deliverNext()
  }

  /// An outcome of opening, or the end of the connection.
  func connected(_ outcome: DeliveryOutcome) {
    isOpening = false
    switch outcome {
    case .answered, .partly:
      isOpen = true
      openedAt = executor.now
      isProved = builder == nil
      if isProved { openings.succeed() }
      pace.answered(openingBatch)
      if isProved || traits.provesByLasting { recover() }
    case .passed(let count): passed(count)
    case .refusedNext(let reason): refusedNext(reason)
    case .lost(let after):
      disconnected()
      // A destination that ends each connection at once is asked less and less often.
      if !isProved, builder != nil { openings.fail() }
      pace.pause(until: executor.now + (isProved ? after : openings.pause(random)))
    case .again(let reason, let after), .down(let reason, let after, _, _):
      if isOpen { disconnected() }
      openings.fail()
      fails(reason)
      countRetry()
      pace.failed(openingBatch, executor.now, pause: after ?? openings.pause(random))
    case .refused(let reason, _), .unsendable(let reason):
      stop(with: SignalFailure(.sink, reason, at: nodeContext.location))
    case .broken(let failure), .impossible(let failure): stop(with: failure)
    case .replied: stop(with: SignalFailure(.sink, Self.unread, at: nodeContext.location))
    }
  }

  /// Returns a batch under way to the queue: later outcomes of its answer are ignored.
  func takeBack(_ batch: DeliveryBatch) {
    unset(&batch.deadline)
    connector.withdraw(batch)
    pace.withdrawn(batch.id)
    if traits.order == .stream {
      queue.unwind(batch)
    } else if batch.decided.isEmpty {
      queue.putBack(batch)
    } else {
      _ = queue.undecided(batch, key: makeKey)
    }
  }

  static var unread: String { "the connector cannot read its own answer" }

  func act(on outcome: DeliveryOutcome, _ batch: DeliveryBatch) {
    switch outcome {
    case .answered where batch.isPreparing:
      // Another batch may have failed meanwhile.
      if !isSuspending, pace.confirms(batch.id) { send(batch) } else { queue.putBack(batch) }
    case .answered(let again, let refused, let reason, let after):
      settle(batch, again: again, refused: refused, reason, after)
    case .partly(let done, let refused): settle(batch, done: done, refused: refused)
    case .lost: takeBack(batch)
    case .replied(let reply):
      if let outcome = connector.outcome(of: reply, to: batch) {
        act(on: outcome, batch)
      } else {
        again(batch, Self.unread, after: nil, usesAttempt: true)
      }
    case .passed, .refusedNext: again(batch, Self.unread, after: nil, usesAttempt: true)
    default:
      guard !batch.decided.isEmpty else { return decide(outcome, batch) }
      pace.withdrawn(batch.id)
      decide(outcome, queue.undecided(batch, key: makeKey))
    }
  }

  /// Acts on an outcome of a batch as a whole.
  private func decide(_ outcome: DeliveryOutcome, _ batch: DeliveryBatch) {
    switch outcome {
    case .again(let reason, let after): again(batch, reason, after: after, usesAttempt: true)
    case .down(let reason, let after, let usesAttempt, let hasOther):
      again(batch, reason, after: after, isDown: true, usesAttempt: usesAttempt, hasOther: hasOther)
    case .refused(let reason, let isTooLarge):
      reached(batch)
      divide(batch, reason, isTooLarge: isTooLarge)
    case .unsendable(let reason):
      pace.withdrawn(batch.id)
      divide(batch, reason, isTooLarge: false)
    case .broken(let failure):
      guard errorsAreRead else { return stop(with: failure, batch) }
      reached(batch)
      if !isBroken {
        log(
          .warning,
          "\(failure.message); events go to the errors output until \(traits.words.destination) accepts some")
      }
      isBroken = true
      trouble.begins(failure.message)
      queue.settle(batch)
      reject(batch.items, failure.message)
    case .impossible(let failure): stop(with: failure, batch)
    case .answered, .partly, .lost, .replied, .passed, .refusedNext: break
    }
  }

  /// - Parameter done: Those that are delivered; nil: all that are not named.
  func settle(
    _ batch: DeliveryBatch, done: [Int]? = nil, again: [Int] = [], refused: [DeliveryOutcome.Refused],
    _ reason: String = "",
    _ after: TimeSpan? = nil
  ) {
    let named = (done ?? []) + again + refused.map(\.index)
    if done == nil, named.isEmpty, batch.decided.isEmpty {
      reached(batch)
      queue.settle(batch)
      return delivered(batch.items)
    }
    let known = Set(named)
    guard known.count == named.count, named.allSatisfy(batch.isOpen) else {
      let fault =
        "the outcome of a delivery names an event twice, or one that is not in the batch of \(batch.items.count)"
      log(.error, fault)
      return act(on: .again(fault), batch)
    }
    let unnamed = batch.items.indices.filter { batch.isOpen($0) && !known.contains($0) }
    var next: DeliveryBatch?
    if done != nil, !unnamed.isEmpty {
      reached(batch)
      queue.decide(batch, named)
      batch.tries.succeed()
    } else {
      if again.isEmpty { reached(batch) } else { pace.answered(batch.id) }
      next = again.isEmpty ? nil : queue.batch(of: again.sorted().map { batch.items[$0] }, from: batch, key: makeKey)
      queue.settle(batch, rest: next)
    }
    delivered((done ?? unnamed).map { batch.items[$0] })
    for one in refused { reject([batch.items[one.index]], one.reason) }
    if let next { self.again(next, reason, after: after, usesAttempt: true) }
  }

  func delivered(_ items: [DeliveryItem]) {
    if items.isEmpty { return }
    if isBroken {
      isBroken = false
      trouble.ends()
    }
    countSent(items.count)
    if traits.countsBytes { countBytes(items.reduce(0) { $0 + $1.bytes }) }
    var count = 0
    for index in items.indices {
      count += 1
      if index + 1 < items.count, items[index + 1].receipt === items[index].receipt { continue }
      items[index].receipt.acknowledge(count)
      count = 0
    }
  }

  /// Rejects events for good; their acknowledgements now belong to this turn.
  func reject(_ items: [DeliveryItem], _ message: String) {
    for item in items {
      if let block = item.block {
        reject(block, message, on: item.receipt)
        continue
      }
      item.event.keep(in: executor.arena)
      reject(item.event.event, message, on: item.receipt)
    }
  }

  /// Divides a batch, because one of its events is the cause.
  func divide(_ batch: DeliveryBatch, _ reason: String, isTooLarge: Bool) {
    if batch.items.count > 1 { return queue.halve(batch, isTooLarge: isTooLarge, key: makeKey) }
    queue.settle(batch)
    reject(batch.items, reason)
  }

  /// The batch, which is under way or waits to be repeated, is delivered again after a pause.
  func again(
    _ batch: DeliveryBatch, _ reason: String, after: TimeSpan?, isDown: Bool = false, usesAttempt: Bool,
    hasOther: Bool = false
  ) {
    batch.failure = reason
    batch.tries.fail()
    if usesAttempt { batch.attempts += 1 }
    let isLast = usesAttempt && traits.mostAttempts.map { batch.attempts >= $0 } ?? false
    let message = isLast ? "\(reason); gave up after \(Printable.count(batch.attempts, "attempt"))" : reason
    if isLast, !errorsAreRead {
      return stop(with: SignalFailure(.sink, message, at: nodeContext.location), batch)
    }
    if hasOther, !isLast, !pace.isInTrouble {
      countRetry()
      return queue.putBack(batch)
    }
    if traits.order == .stream {
      for later in batch.lane.underWay.reversed() where later.id > batch.id { takeBack(later) }
    }
    fails(reason, isLast ? message : nil)
    let pause = after ?? batch.tries.pause(random)
    if isDown {
      pace.failed(batch.id, executor.now, pause: pause)
    } else {
      pace.withdrawn(batch.id)
      queue.pause(batch.lane, until: executor.now + pause)
    }
    if isLast {
      queue.settle(batch)
      return reject(batch.items, message)
    }
    countRetry()
    if traits.order == .stream {
      queue.unwind(batch)
    } else if batch.answer != nil {
      queue.putBack(batch)
    }
  }

  /// The random number that shortens a pause.
  var random: UInt64? { traits.shortensPauses ? execution.services.random() : nil }

  // MARK: Trouble

  /// Notes a failed delivery. `end`: logged instead of the reason if it is not repeated.
  func fails(_ reason: String, _ end: String? = nil) {
    trouble.begins(reason)
    if !isFailing {
      isFailing = true
      failed = (since: executor.now, failures: 0)
      log(.warning, end ?? "\(reason); \(traits.words.again)")
    }
    failed.failures += 1
  }

  /// The destination has answered for the batch.
  func reached(_ batch: DeliveryBatch) {
    pace.answered(batch.id)
    queue.works(batch.lane)
    recover()
  }

  /// Notes that nothing fails any more.
  func recover() {
    guard isFailing, !pace.isInTrouble, queue.failing == 0 else { return }
    isFailing = false
    trouble.ends()
    let lasted = (executor.now - failed.since).nanoseconds
    let unit: Int64 = lasted < 10_000_000_000 ? 1_000_000 : 1_000_000_000
    let span = TimeSpan(nanoseconds: (lasted + unit / 2) / unit * unit)
    log(.info, "\(traits.words.recovered), after \(Printable.count(failed.failures, traits.words.failure)) in \(span)")
  }

  // MARK: Names of batches

  /// A hexadecimal number of 128 bits: of the names of the events or, where they have none, random.
  func makeKey(_ items: [DeliveryItem]) -> String {
    guard traits.namesBatches else { return "" }
    let digits = Array("0123456789abcdef".utf8)
    var text: [UInt8] = []
    for number in names(items) ?? [execution.services.random(), execution.services.random()] {
      for shift in stride(from: 60, through: 0, by: -4) { text.append(digits[Int(number >> UInt64(shift) & 15)]) }
    }
    return String(decoding: text, as: UTF8.self)
  }

  /// The store of the events, and a number that only a batch of the same events has.
  func names(_ items: [DeliveryItem]) -> [UInt64]? {
    guard let store = items.first?.id?.store else { return nil }
    var print = Fingerprint()
    for item in items {
      guard let id = item.id else { return nil }
      print.add(UInt64(bitPattern: id.row))
      print.add(UInt64(bitPattern: Int64(id.index)))
    }
    return [store, print.value]
  }
}
