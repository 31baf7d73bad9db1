/// The keys of a join by event time that are on the disk, each with all of its events.
///
/// A key comes back when an event of it comes, or when it has the earliest event of a signal and that becomes too old for a partner, so that
/// everything is sent in the order of times. The first two indexes have the time of each key's first event of either signal; the third one
/// that of its first event that may be sent as unmatched, and so holds the watermark back.
extension Join.IntervalNode {
  private static let indexes = 3
  private static let indexOfHolds = 2
  /// The token of ``retry``.
  static let retryToken = 1
  /// After which time the disk is asked again if it could not be read.
  private static let pause = TimeSpan.seconds(1)

  /// An event on the disk.
  private struct Kept {
    var event: OwnedEvent
    var time: Int64
    var isMatched: Bool
    var serial: UInt64
    var early = TimedEvents.Early()
  }

  // MARK: Coming back

  /// Brings the key in `buffer` back to memory if it is on the disk. False: the disk cannot be read, and the event has been rejected.
  func bringBackKey(of event: Event) -> Bool {
    guard let spilled, spilled.count > 0, keys.find(buffer.bytes, keys.hash(buffer.bytes)) == nil else { return true }
    do throws(SpillFault) {
      _ = try bringBack(buffer.bytes, spilled)
      return true
    } catch {
      reject(event, .keysUnreadable, "the keys on the disk cannot be read: \(error.message)")
      return false
    }
  }

  /// Brings back the key with the earliest event of a side, as long as that event is earlier than those in memory.
  ///
  /// - Parameter bound: Only if its partners would be earlier.
  func bringBackFirst(_ side: Join.TimedNode.Side, before bound: Int64? = nil) {
    guard let spilled, spilled.count > 0 else { return }
    if left.isOver, right.isOver, !left.sendsUnmatched, !right.sendsUnmatched { return giveUpAll(spilled) }
    bringBack(from: side.index, spilled) { time in
      if let first = side.events.firstTime, first < time { return false }
      return bound.map { time &+ side.after < $0 } ?? true
    }
  }

  /// Drops all events on the disk at the end, if none of them is sent.
  private func giveUpAll(_ spilled: SpilledValues) {
    countDropped(heldOnDisk)
    heldOnDisk = 0
    for side in [left, right] { side.onDisk = 0 }
    spilled.forgetAllOnDisk()
  }

  /// Brings back all keys with events that may be sent as unmatched.
  func bringBackHeld() {
    guard let spilled, spilled.count > 0 else { return }
    bringBack(from: Self.indexOfHolds, spilled) { _ in true }
  }

  private func bringBack(from index: Int, _ spilled: SpilledValues, _ isNeeded: (Int64) -> Bool) {
    do throws(SpillFault) {
      while let mark = try first(index, spilled), isNeeded(mark.time) {
        guard try mark.withKey({ text throws(SpillFault) in try bringBack(text, spilled) }) else {
          throw SpillFault("a key is missing")
        }
      }
    } catch { isUnreadable(error) }
  }

  private func first(_ index: Int, _ spilled: SpilledValues) throws(SpillFault) -> SpilledMark? {
    try spilled.first(index) { keys.find($0, keys.hash($0)) != nil }
  }

  private func isUnreadable(_ fault: SpillFault) {
    guard !retry.isSet else { return }
    execution.services.log(
      .error, execution.plan.steps[nodeContext.step.number].label,
      "the keys on the disk cannot be read: \(fault.message); trying again")
    retry = wake(at: now + Self.pause, Self.retryToken)
  }

  /// Sends what could not be sent, because the disk could not be read.
  func tryAgain() {
    retry = .none
    settle()
    if !isClosed { setHold() }
    followUp()
  }

  /// False: the key is not there.
  private func bringBack(_ text: UnsafeRawBufferPointer, _ spilled: SpilledValues) throws(SpillFault) -> Bool {
    let sendsEarly = emission.sendsEarly
    let found = try spilled.comeBack(text, executor) { (state) throws(StateFault) in
      try state.readOrigins(haveIdentities: true)
      var found: [[Kept]] = []
      for _ in 0..<2 {
        var events: [Kept] = []
        for _ in 0..<(try state.count()) {
          var one = Kept(
            event: try state.read(), time: try state.read(), isMatched: try state.read(), serial: try state.read())
          if sendsEarly {
            one.early.isSent = try state.read()
            one.early.row = try state.read()
          }
          events.append(one)
        }
        found.append(events)
      }
      return found
    }
    guard let found else { return false }
    let number = keys.insert(text, keys.hash(text))
    spilled.add(number, mayBeOnDisk: true)
    for (side, events) in zip([left, right], found) {
      side.onDisk -= events.count
      for one in events {
        side.events.reserve(serial: one.serial)
        let slot = insert(one.event, at: one.time, key: number, isMatched: one.isMatched, side)
        if one.early.isSent { side.events.set(one.early, at: slot) }
        if !one.isMatched, !one.early.isSent { heldOnDisk -= 1 }
      }
    }
    setHold()
    return true
  }

  /// Holds the watermark back for the first event on the disk that may be sent as unmatched.
  ///
  /// - Parameter time: The earliest such event of keys that have just been moved; counts if the disk cannot be read.
  private func setHold(moved time: Int64? = nil) {
    guard let spilled, left.sendsUnmatched || right.sendsUnmatched else { return }
    var next: Int64?
    do throws(SpillFault) { next = try first(Self.indexOfHolds, spilled)?.time } catch {
      next = [holdOfDisk.time, time].compactMap(\.self).min()
      isUnreadable(error)
    }
    guard next != holdOfDisk.time else { return }
    watermarks.release(&holdOfDisk.wake)
    holdOfDisk = (next.map { watermarks.hold(at: $0) } ?? .none, next)
  }

  // MARK: Moving

  /// Moves keys that have not come for long to the disk, while there is no room for all.
  func moveKeys() {
    guard let spilled, spilled.needsRoom(keys.count) else { return }
    var earliest: Int64?
    spilled.makeRoom(
      text: keys.text, record: record,
      leave: { numbers in
        for number in numbers {
          for side in [left, right] {
            for slot in side.events.slots(of: number) {
              var entry = side.events.remove(slot)
              if entry.hold.isSet { earliest = min(earliest ?? entry.time, entry.time) }
              watermarks.release(&entry.hold)
              side.onDisk += 1
              if !entry.isMatched, !entry.early.isSent { heldOnDisk += 1 }
            }
          }
          keys.remove(number)
        }
      })
    setHold(moved: earliest)
    countKept()
  }

  /// What is written of a key; nil: it must stay.
  private func record(_ number: Int) -> SpilledValues.Record? {
    var times: [Int64?] = []
    var held: Int64?
    for side in [left, right] {
      let entries = side.events.slots(of: number).map { side.events[$0] }
      // Events that wait to be sent early are few, and have a timer.
      guard entries.allSatisfy({ $0.early.due == .distantFuture }) else { return nil }
      times.append(entries.first?.time)
      if let first = entries.first(where: \.hold.isSet)?.time { held = min(held ?? first, first) }
    }
    let bytes = spilled?.bytes(executor) { state in
      for side in [left, right] {
        state.write(each: side.events.slots(of: number)) { state, slot in
          let entry = side.events[slot]
          state.write(entry.event)
          state.write(entry.time)
          state.write(entry.isMatched)
          state.write(entry.serial)
          guard emission.sendsEarly else { return }
          state.write(entry.early.isSent)
          state.write(entry.early.row)
        }
      }
    }
    return bytes.map { SpilledValues.Record(value: $0, times: times + [held]) }
  }

  // MARK: State

  private func take(_ spilled: SpilledValues) {
    self.spilled = spilled
    spilled.takeAll(keys.numbers)
    countKept()
  }

  func saveKeysOnDisk(_ state: inout StateWriter) {
    if spilled == nil, parameters.movesKeys, let pages = ownPages, let spilling = state.spilling(pages) {
      take(SpilledValues(spilling, owner: state.newOwner(), epoch: state.now, indexes: Self.indexes))
    }
    state.write(spilled?.isUsed ?? false)
    guard let spilled else { return }
    spilled.save(&state)
    guard spilled.isUsed else { return }
    state.write(heldOnDisk)
    for side in [left, right] {
      state.write(side.onDisk)
      state.write(side.events.serial)
    }
  }

  func restoreKeysOnDisk(_ state: inout StateReader) throws(StateFault) {
    let spilled = try SpilledValues(&state, indexes: Self.indexes, hasGone: true)
    heldOnDisk = try state.read(in: 0...Int.max / 2)
    for side in [left, right] {
      side.onDisk = try state.read(in: 0...Int.max / 2)
      side.events.skipSerials(to: try state.read())
    }
    take(spilled)
    setHold()
  }
}
