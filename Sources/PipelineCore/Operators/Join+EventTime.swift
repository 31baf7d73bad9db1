extension Join {
  /// A join by the event time of its signals: the watermark of each, and its stored events.
  class TimedNode: PairNode {
    /// One of the two signals.
    final class Side {
      let name: StaticString
      let index: Int
      /// How much earlier, and later, than its event a partner may be.
      let before: Int64
      let after: Int64
      let sendsUnmatched: Bool
      /// The events in memory.
      let events = TimedEvents()
      /// The number of events whose keys are on the disk.
      var onDisk = 0
      var count: Int { events.count &+ onDisk }
      /// The slots of the events that have changed since the last commit.
      fileprivate let pages = StatePages()
      /// Its watermark as received, which may be one of the last two values of ``EventTime``.
      @exclusivity(unchecked) fileprivate(set) var mark = EventTime.unknown
      /// An earlier event is late. Never moves backwards; while the signal is idle, it follows the other one.
      @exclusivity(unchecked) fileprivate(set) var reached = EventTime.unknown
      fileprivate(set) var hasEnded = false
      /// Whether the signal ended before the pipeline stopped.
      fileprivate(set) var isWhole = false
      var losses = Losses()

      init(_ name: StaticString, index: Int, before: Int64, after: Int64, sendsUnmatched: Bool) {
        self.name = name
        self.index = index
        self.before = before
        self.after = after
        self.sendsUnmatched = sendsUnmatched
      }

      var isIdle: Bool { mark == EventTime.idle }
      /// No more events arrive.
      var isOver: Bool { mark == EventTime.end }
      /// The lower bound of the times of later events.
      var bound: Int64 { isOver ? EventTime.end : reached }
    }

    final let left: Side
    final let right: Side
    /// The watermarks that decide that of the output, and the times of the events that hold it back.
    final let watermarks: InputMarks
    /// The number of signals, one or two, that decide the watermark of the output.
    private let counting: Int
    /// With `early`: set while an event may have to be sent without a partner.
    final var timer = Wake.none
    /// The keys on the disk, each with its events of both signals; nil: all stay in memory.
    final var spilled: SpilledValues?

    init(_ parameters: Join, _ nodeContext: NodeContext, _ downstream: Downstream, counting: Int) {
      let (before, after) = (parameters.within?.before.nanoseconds ?? 0, parameters.within?.after.nanoseconds ?? 0)
      let unmatched = parameters.unmatched
      left = Side("first", index: 0, before: before, after: after, sendsUnmatched: unmatched.sendsLeft)
      right = Side("other", index: 1, before: after, after: before, sendsUnmatched: unmatched.sendsRight)
      watermarks = InputMarks(inputs: 2, counting: counting)
      self.counting = counting
      super.init(parameters, nodeContext, downstream)
      for side in [left, right] {
        side.events.changed = { [pages = side.pages, unowned self] slot, key in
          pages.mark(slot)
          spilled?.change(key)
        }
      }
    }

    // MARK: To override

    /// Takes an event that is not late, whose key is in `buffer`.
    func take(_ event: Event, at time: Int64, _ side: Side) {}
    /// Sends and removes events that the watermarks have made final.
    func settle() {}
    /// Whether nothing can be sent any more.
    var isOver: Bool { false }
    /// Writes what it needs to continue with the keys on the disk.
    func saveSpilled(_ state: inout StateWriter) { state.write(false) }
    func restoreSpilled(_ state: inout StateReader) throws(StateFault) {}
    /// Moves keys to the disk if there is no room for all.
    func makeRoom() {}
    /// Whether the side follows the other signal while its own is idle.
    func follows(_ side: Side) -> Bool { true }

    // MARK: Events

    override final func receive(_ event: Event) { receive(event, left) }
    override final func receive(_ event: Event, from inlet: Inlet) { receive(event, right) }

    private func receive(_ event: Event, _ side: Side) {
      let time = executor.eventTime
      guard time != EventTime.unknown else {
        return reject(event, .unexpectedValue, "the event has no event time: no source or signal gave it one")
      }
      guard time >= side.reached else {
        return reject(
          event, .eventTooLate, "the event is earlier than the watermark of the \(side.name) signal of join")
      }
      guard readKey(event, nil, isOther: side === right) else { return }
      take(event, at: time, side)
      followUp()
      if !isClosed { makeRoom() }
    }

    /// The number of the key in `buffer`.
    final func key(inserting: Bool) -> Int? {
      let hash = keys.hash(buffer.bytes)
      if let found = keys.find(buffer.bytes, hash) { return found }
      guard inserting else { return nil }
      let number = keys.insert(buffer.bytes, hash)
      spilled?.add(number)
      return number
    }

    /// Forgets a key that no kept event has.
    final func forget(_ key: Int) {
      guard !left.events.has(key), !right.events.has(key) else { return }
      spilled?.forget(key, keys.text(key))
      keys.remove(key)
    }

    final func countKept() {
      let bytes = keys.textBytes &+ left.events.bytes &+ right.events.bytes
      keptSize.set(keys: keys.count &+ (spilled?.count ?? 0), events: left.count &+ right.count, bytes: bytes)
      guard let spilled else { return }
      let inMemory = left.events.count &+ right.events.count
      spilled.setBytes(
        bytes &+ inMemory &* TimedEvents.bytesOfEvent &+ keys.count
          &* (KeyTable.bytes(of: 0) &+ TimedEvents.bytesOfKey),
        keys: keys.count)
    }

    // MARK: Time

    override final func advance(to time: Int64) { advance(left, to: time) }
    override final func advance(to time: Int64, from inlet: Inlet) { advance(right, to: time) }
    /// ``watermarks`` decides, not ``marks``.
    override final func move(_ time: Int64?) {}

    private func advance(_ side: Side, to time: Int64) {
      guard !isClosed, !side.isOver else { return }
      if time == EventTime.end { side.isWhole = !execution.isStopping }
      if time < EventTime.idle {
        side.reached = max(side.reached, time)
        side.mark = side.reached
      } else {
        side.mark = time
      }
      for (one, other) in [(left, right), (right, left)] where one.isIdle && other.mark < EventTime.idle && follows(one)
      {
        one.reached = max(one.reached, other.reached)
      }
      settle()
      if side.index < counting { pass(watermarks.set(side.mark, of: side.index)) }
      followUp()
    }

    final func followUp() {
      guard !isClosed else { return }
      countKept()
      pass(watermarks.next())
      if isOver { finish() }
    }

    private func pass(_ time: Int64?) { if let time { sendAdvance(to: time) } }

    override final func complete() { ended(left) }

    override final func completed(_ inlet: Inlet) {
      drop(inlet)
      ended(right)
    }

    private func ended(_ side: Side) {
      side.hasEnded = true
      if side.isOver { followUp() } else { advance(side, to: EventTime.end) }
    }

    override func stop() {
      cancelWake(&timer)
      for side in [left, right] {
        report(side.losses, of: side.name)
        side.events.removeAll()
      }
      keys.removeAll()
      spilled = nil
      super.stop()
    }

    // MARK: State

    /// The pages of one of the signals, once there are some; nil: both are written in place.
    final var ownPages: StatePages? { [left.pages, right.pages].first { $0.owner != 0 } }

    override final func save(_ state: inout StateWriter) {
      state.write(SavedForm.eventTime.rawValue)
      for side in [left, right] {
        state.write(side.pages, keys: side.events.slotCount) { state, slots in
          for slot in slots {
            guard let entry = side.events.entry(slot) else { continue }
            state.write(entry.event)
            state.append(counted: keys.text(entry.key))
            state.write(entry.time)
            state.write(entry.isMatched)
            state.write(entry.serial)
            if emission.sendsEarly { state.write(entry.early) }
          }
        }
        state.write(side.mark)
        state.write(side.reached)
        state.write(side.hasEnded)
        state.write(side.isWhole)
        state.write(side.losses.lost)
      }
      if emission.early != nil { state.write(timer) }
      saveSpilled(&state)
    }

    override final func restore(_ state: inout StateReader) throws(StateFault) {
      guard state.version > 2 else { throw StateFault("it went by the clock, and its events have no time") }
      try SavedForm.eventTime.check(&state)
      for side in [left, right] {
        try restoreEvents(side, &state)
        side.mark = try state.read()
        side.reached = try state.read()
        side.hasEnded = try state.read()
        side.isWhole = try state.read()
        side.losses.lost = try state.read(in: 0...Int.max)
      }
      if emission.early != nil { timer = try state.read() }
      if state.version > 4, try state.read(Bool.self) { try restoreSpilled(&state) }
      countKept()
    }

    private func restoreEvents(_ side: Side, _ state: inout StateReader) throws(StateFault) {
      struct Found {
        var event: OwnedEvent
        var key: Int
        var time: Int64
        var isMatched: Bool
        var serial: UInt64
        var slot: Int?
        var early = TimedEvents.Early()
      }
      var found: [Found] = []
      let hasSerials = state.version > 3
      func read(_ state: inout StateReader, _ slot: Int?) throws(StateFault) {
        var one = Found(
          event: try state.read(), key: try key(&state), time: try state.read(), isMatched: try state.read(),
          serial: UInt64(found.count), slot: slot)
        if hasSerials { one.serial = try state.read() }
        if emission.sendsEarly { one.early = try state.read() }
        guard EventTime.range.contains(one.time) else { throw StateFault("the time of an event is out of range") }
        found.append(one)
      }
      func insertAll() {
        for one in found.sorted(by: { ($0.time, $0.serial) < ($1.time, $1.serial) }) {
          if let slot = one.slot {
            side.events.reserve(slot, one.serial)
          } else if hasSerials {
            // Events on the disk have theirs.
            side.events.reserve(serial: one.serial)
          }
          let slot = insert(one.event, at: one.time, key: one.key, isMatched: one.isMatched, side)
          if emission.sendsEarly { restoreEarly(one.early, slot, side) }
        }
        side.events.endReserving()
      }
      if hasSerials { return try state.readPages(side.pages, read, then: insertAll) }
      for _ in 0..<(try state.count()) { try read(&state, nil) }
      insertAll()
    }

    /// Restores the early row of an event.
    func restoreEarly(_ early: TimedEvents.Early, _ slot: Int, _ side: Side) {}

    /// Keeps an event.
    @discardableResult
    func insert(_ event: OwnedEvent, at time: Int64, key: Int, isMatched: Bool, _ side: Side) -> Int {
      side.events.insert(event, at: time, key: key, isMatched: isMatched)
    }

    /// Signals that have ended send no watermark again.
    override final func restored() {
      execution.whenWired { [self] in
        guard !isClosed else { return }
        for side in [left, right] where side.index < counting && side.mark != EventTime.unknown {
          pass(watermarks.set(side.mark, of: side.index))
        }
      }
    }
  }

  /// Pairs of events that lie not more than `within` apart.
  ///
  /// An event stays until the watermark of the other signal has passed all times that a partner can have. The watermark
  /// of the output waits for the events that may still be sent as unmatched.
  ///
  /// An unmatched event that was sent early holds the watermark back, too, so its retraction is not late.
  final class IntervalNode: TimedNode {
    /// With `early`: the events that are not matched and not sent, by the time at which they are sent without a partner.
    private var waiting = TimerQueue()
    private let target = Target()
    /// Holds the watermark back for the events on the disk.
    var holdOfDisk = (wake: Wake.none, time: Int64?.none)
    /// The number of events on the disk that are not matched and not sent.
    var heldOnDisk = 0
    /// Set while the disk cannot be read.
    var retry = Wake.none

    /// The timer target of all entries in the queue, none of which becomes due by itself.
    private final class Target: TimerTarget {
      func woke(_ token: Int) {}
    }

    /// An event and its row that was sent before the match.
    private struct Partner {
      var event: OwnedEvent
      var time: Int64
      var sent: OwnedValue?
      var hold: Wake
    }

    init(_ parameters: Join, _ nodeContext: NodeContext, _ downstream: Downstream) {
      super.init(parameters, nodeContext, downstream, counting: 2)
    }

    func opposite(_ side: Side) -> Side { side === left ? right : left }

    override func take(_ event: Event, at time: Int64, _ side: Side) {
      let opposite = opposite(side)
      guard bringBackKey(of: event) else { return }
      let waits = time &+ side.after >= opposite.bound
      let key = key(inserting: waits)
      let slots = key.map { opposite.events.slots(of: $0, in: (time &- side.before)...(time &+ side.after)) } ?? []
      var partners: [Partner] = []
      for slot in slots { partners.append(match(slot, opposite)) }
      if waits, let key {
        let slot = insert(OwnedEvent(event), at: time, key: key, isMatched: !partners.isEmpty, side)
        let serial = side.events[slot].serial
        if side.count > parameters.limit, let displaced = removeFirst(side) { lose(displaced, side) }
        if partners.isEmpty, emission.sendsEarly, side.sendsUnmatched, side.events.entry(slot)?.serial == serial {
          expect(slot, side)
        }
      }
      for var partner in partners where !isClosed {
        partner.event.keep(in: arena)
        if let sent = partner.sent {
          executor.withEventTime(partner.time) { retract(partner.event.event, sent, isOther: side === left) }
          watermarks.release(&partner.hold)
        }
        let (one, other) = side === left ? (event, partner.event.event) : (partner.event.event, event)
        executor.withEventTime(max(time, partner.time)) { send(one, nil, other.value, nil) }
      }
      if !waits, partners.isEmpty { giveUp(event, at: time, side) }
    }

    /// Marks a kept event as matched. Its hold is released here, unless it has sent a row that must be retracted first.
    private func match(_ slot: Int, _ side: Side) -> Partner {
      let entry = side.events[slot]
      var partner = Partner(event: entry.event, time: entry.time, sent: entry.early.row, hold: entry.hold)
      if emission.sendsEarly {
        waiting.cancel(entry.early.wake)
        side.events.set(TimedEvents.Early(), at: slot)
      }
      if partner.sent == nil { watermarks.release(&partner.hold) }
      side.events[slot].hold = .none
      side.events[slot].isMatched = true
      return partner
    }

    // MARK: Unmatched events that are sent early

    /// A new event has no partner yet.
    private func expect(_ slot: Int, _ side: Side) {
      guard let early = emission.early else { return sendEarly(slot, side) }
      wait(for: slot, until: now + early, side)
      setTimer()
    }

    private func wait(for slot: Int, until due: Instant, _ side: Side) {
      var early = side.events[slot].early
      early.due = due
      early.wake = waiting.schedule(at: due, target, 2 &* slot &+ side.index)
      side.events.set(early, at: slot)
    }

    private func setTimer() { if !timer.isSet, let next = waiting.next { timer = wake(at: next) } }

    private func sendEarly(_ slot: Int, _ side: Side) {
      let (event, time) = (side.events[slot].event, side.events[slot].time)
      event.keep(in: arena)
      // The row is stored before it is sent, because sending may re-enter this step.
      let isOther = side === right
      executor.withEventTime(time) {
        let row = makeEarly(event.event, nil, isOther: isOther)
        side.events.set(TimedEvents.Early(isSent: true, row: row?.kept), at: slot)
        if let row { emit(row.event) }
      }
    }

    override func woke(_ token: Int) {
      if token == Self.retryToken { return tryAgain() }
      timer = .none
      var due: [(slot: Int, side: Side, entry: TimedEvents.Entry)] = []
      while let next = waiting.popDue(now) {
        let side = next.token & 1 == 0 ? left : right
        due.append((next.token >> 1, side, side.events[next.token >> 1]))
        side.events.set(TimedEvents.Early(), at: next.token >> 1)
      }
      // After a restore the queue has another order.
      due.sort {
        ($0.entry.early.due, $0.entry.time, $0.side.index, $0.entry.serial)
          < ($1.entry.early.due, $1.entry.time, $1.side.index, $1.entry.serial)
      }
      for (slot, side, entry) in due where !isClosed {
        guard let now = side.events.entry(slot), now.serial == entry.serial, !now.isMatched else { continue }
        sendEarly(slot, side)
      }
      guard !isClosed else { return }
      countKept()
      setTimer()
    }

    override func restoreEarly(_ early: TimedEvents.Early, _ slot: Int, _ side: Side) {
      if early.due == .distantFuture {
        side.events.set(early, at: slot)
      } else {
        wait(for: slot, until: early.due, side)
      }
    }

    /// Rejects an event that has been removed at the limit. Its early row is retracted, because no match will retract
    /// it.
    private func lose(_ entry: TimedEvents.Entry, _ side: Side) {
      entry.event.keep(in: arena)
      if let sent = entry.early.row {
        executor.withEventTime(entry.time) { retract(entry.event.event, sent, isOther: side === right) }
      }
      var hold = entry.hold
      watermarks.release(&hold)
      lose(entry.event.event, of: side.name, &side.losses)
    }

    override func stop() {
      waiting = TimerQueue()
      cancelWake(&retry)
      super.stop()
    }

    override func makeRoom() { moveKeys() }
    override func saveSpilled(_ state: inout StateWriter) { saveKeysOnDisk(&state) }
    override func restoreSpilled(_ state: inout StateReader) throws(StateFault) { try restoreKeysOnDisk(&state) }

    /// Keeps an event, which holds the watermark back if it may be sent as unmatched.
    @discardableResult
    override func insert(_ event: OwnedEvent, at time: Int64, key: Int, isMatched: Bool, _ side: Side) -> Int {
      let slot = super.insert(event, at: time, key: key, isMatched: isMatched, side)
      if !isMatched, side.sendsUnmatched { side.events[slot].hold = watermarks.hold(at: time) }
      return slot
    }

    private func removeFirst(_ side: Side) -> TimedEvents.Entry? {
      bringBackFirst(side)
      guard let entry = side.events.removeFirst() else { return nil }
      waiting.cancel(entry.early.wake)
      forget(entry.key)
      return entry
    }

    /// The side whose first event is given up next, if any: its partners would be earlier than the other signal's bound.
    private var nextDue: Side? {
      func due(_ side: Side) -> Int64? {
        bringBackFirst(side, before: opposite(side).bound)
        guard let first = side.events.firstTime, first &+ side.after < opposite(side).bound else { return nil }
        return first &+ side.after
      }
      switch (due(left), due(right)) {
      case (let one?, let other?): return one <= other ? left : right
      case (nil, nil): return nil
      case (_?, nil): return left
      case (nil, _?): return right
      }
    }

    override func settle() {
      while !isClosed, let side = nextDue, let entry = removeFirst(side) { giveUp(entry, side) }
      closeForNow()
    }

    /// While neither signal is expected to send an event, sends all events that can be sent as unmatched, the earliest first.
    private func closeForNow() {
      var open: [(due: Int64, side: Side, entry: TimedEvents.Entry)] = []
      for side in [left, right] where side.sendsUnmatched && opposite(side).isIdle && (side.isIdle || side.isOver) {
        bringBackHeld()
        let entries = side.events.removeUnmatched()
        for entry in entries { waiting.cancel(entry.early.wake) }
        // A key is forgotten only once, however many events had it.
        for key in Set(entries.map(\.key)) { forget(key) }
        open += entries.map { (due: $0.time &+ side.after, side: side, entry: $0) }
      }
      // The sort is stable: of one side they are in the order of their times.
      for (_, side, entry) in open.sorted(by: { ($0.due, $0.side.index) < ($1.due, $1.side.index) }) {
        if !isClosed { giveUp(entry, side) } else if !entry.early.isSent { countDropped(entry.event.event) }
      }
    }

    /// Gives up an event that has been removed.
    private func giveUp(_ entry: TimedEvents.Entry, _ side: Side) {
      guard !entry.isMatched else { return }
      // A row that was sent early is now certain.
      if !entry.early.isSent {
        entry.event.keep(in: arena)
        giveUp(entry.event.event, at: entry.time, side)
      }
      var hold = entry.hold
      watermarks.release(&hold)
    }

    /// Sends an event that has no partner, unless it could still have found one and only the stop of the pipeline
    /// prevents that.
    private func giveUp(_ event: Event, at time: Int64, _ side: Side) {
      guard side.sendsUnmatched else { return countDropped(event) }
      let opposite = opposite(side)
      if opposite.isOver, !opposite.isWhole, time &+ side.after >= opposite.reached {
        side.losses.undecided += 1
        return countDropped(event)
      }
      executor.withEventTime(time) { sendAlone(event, nil, isOther: side === right) }
    }

    override var isOver: Bool {
      left.hasEnded && right.hasEnded && left.onDisk &+ right.onDisk == 0
        || left.hasEnded && left.count == 0 && !right.sendsUnmatched
        || right.hasEnded && right.count == 0 && !left.sendsUnmatched
    }

    override var heldCount: Int {
      [left, right].reduce(heldOnDisk) { sum, side in
        sum + side.events.all.count { !side.events[$0].isMatched && !side.events[$0].early.isSent }
      }
    }
  }
}

extension TimedEvents.Early: StateValue {
  func save(to state: inout StateWriter) {
    state.write(isSent)
    state.write(row)
    state.write(due)
  }

  init(from state: inout StateReader) throws(StateFault) {
    (isSent, row, due) = (try state.read(), try state.read(), try state.read())
  }
}
