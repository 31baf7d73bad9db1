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
      let events = TimedEvents()
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
        events.changed = { [pages] slot in pages.mark(slot) }
      }

      var isIdle: Bool { mark == EventTime.idle }
      /// No more events come.
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

    init(_ parameters: Join, _ nodeContext: NodeContext, _ downstream: Downstream, counting: Int) {
      let (before, after) = (parameters.within?.before.nanoseconds ?? 0, parameters.within?.after.nanoseconds ?? 0)
      let unmatched = parameters.unmatched
      left = Side("first", index: 0, before: before, after: after, sendsUnmatched: unmatched.sendsLeft)
      right = Side("other", index: 1, before: after, after: before, sendsUnmatched: unmatched.sendsRight)
      watermarks = InputMarks(inputs: 2, counting: counting)
      self.counting = counting
      super.init(parameters, nodeContext, downstream)
    }

    // MARK: To override

    /// Takes an event that is not late, whose key is in `buffer`.
    func take(_ event: Event, at time: Int64, _ side: Side) {}
    /// Sends and removes events that the watermarks have made final.
    func settle() {}
    /// Whether nothing can be sent any more.
    var isOver: Bool { false }
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
    }

    /// The number of the key in `buffer`.
    final func key(inserting: Bool) -> Int? {
      let hash = keys.hash(buffer.bytes)
      return keys.find(buffer.bytes, hash) ?? (inserting ? keys.insert(buffer.bytes, hash) : nil)
    }

    /// Forgets a key that no kept event has.
    final func forget(_ key: Int) {
      if !left.events.has(key), !right.events.has(key) { keys.remove(key) }
    }

    final func countKept() {
      keptSize.set(
        keys: keys.count, events: left.events.count &+ right.events.count,
        bytes: keys.textBytes &+ left.events.bytes &+ right.events.bytes)
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

    private func followUp() {
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
      for side in [left, right] {
        report(side.losses, of: side.name)
        side.events.removeAll()
      }
      keys.removeAll()
      super.stop()
    }

    // MARK: State

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
          }
        }
        state.write(side.mark)
        state.write(side.reached)
        state.write(side.hasEnded)
        state.write(side.isWhole)
        state.write(side.losses.lost)
      }
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
      }
      var found: [Found] = []
      let hasSerials = state.version > 3
      func read(_ state: inout StateReader, _ slot: Int?) throws(StateFault) {
        var one = Found(
          event: try state.read(), key: try key(&state), time: try state.read(), isMatched: try state.read(),
          serial: UInt64(found.count), slot: slot)
        if hasSerials { one.serial = try state.read() }
        guard EventTime.range.contains(one.time) else { throw StateFault("the time of an event is out of range") }
        found.append(one)
      }
      func insertAll() {
        for one in found.sorted(by: { ($0.time, $0.serial) < ($1.time, $1.serial) }) {
          if let slot = one.slot { side.events.reserve(slot, one.serial) }
          insert(one.event, at: one.time, key: one.key, isMatched: one.isMatched, side)
        }
        side.events.endReserving()
      }
      if hasSerials { return try state.readPages(side.pages, read, then: insertAll) }
      for _ in 0..<(try state.count()) { try read(&state, nil) }
      insertAll()
    }

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
  final class IntervalNode: TimedNode {
    init(_ parameters: Join, _ nodeContext: NodeContext, _ downstream: Downstream) {
      super.init(parameters, nodeContext, downstream, counting: 2)
    }

    private func opposite(_ side: Side) -> Side { side === left ? right : left }

    override func take(_ event: Event, at time: Int64, _ side: Side) {
      let opposite = opposite(side)
      let waits = time &+ side.after >= opposite.bound
      let key = key(inserting: waits)
      let slots = key.map { opposite.events.slots(of: $0, in: (time &- side.before)...(time &+ side.after)) } ?? []
      var partners: [(event: OwnedEvent, time: Int64)] = []
      for slot in slots {
        opposite.events[slot].isMatched = true
        watermarks.release(&opposite.events[slot].hold)
        partners.append((opposite.events[slot].event, opposite.events[slot].time))
      }
      if waits, let key {
        insert(OwnedEvent(event), at: time, key: key, isMatched: !partners.isEmpty, side)
        if side.events.count > parameters.limit, var displaced = removeFirst(side) {
          watermarks.release(&displaced.hold)
          lose(displaced.event.event, of: side.name, &side.losses)
        }
      }
      for partner in partners where !isClosed {
        partner.event.keep(in: arena)
        let (one, other) = side === left ? (event, partner.event.event) : (partner.event.event, event)
        executor.withEventTime(max(time, partner.time)) { send(one, nil, other.value, nil) }
      }
      if !waits, partners.isEmpty { giveUp(event, at: time, side) }
    }

    /// Keeps an event, which holds the watermark back if it may be sent as unmatched.
    @discardableResult
    override func insert(_ event: OwnedEvent, at time: Int64, key: Int, isMatched: Bool, _ side: Side) -> Int {
      let slot = super.insert(event, at: time, key: key, isMatched: isMatched, side)
      if !isMatched, side.sendsUnmatched { side.events[slot].hold = watermarks.hold(at: time) }
      return slot
    }

    private func removeFirst(_ side: Side) -> TimedEvents.Entry? {
      guard let entry = side.events.removeFirst() else { return nil }
      forget(entry.key)
      return entry
    }

    /// The side whose first event is given up next, if any: its partners would be earlier than the other signal's bound.
    private var nextDue: Side? {
      func due(_ side: Side) -> Int64? {
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
        let entries = side.events.removeUnmatched()
        // A key is forgotten only once, however many events had it.
        for key in Set(entries.map(\.key)) { forget(key) }
        open += entries.map { (due: $0.time &+ side.after, side: side, entry: $0) }
      }
      // The sort is stable: of one side they are in the order of their times.
      for (_, side, entry) in open.sorted(by: { ($0.due, $0.side.index) < ($1.due, $1.side.index) }) {
        if isClosed { countDropped(entry.event.event) } else { giveUp(entry, side) }
      }
    }

    /// Gives up an event that has been removed.
    private func giveUp(_ entry: TimedEvents.Entry, _ side: Side) {
      guard !entry.isMatched else { return }
      entry.event.keep(in: arena)
      giveUp(entry.event.event, at: entry.time, side)
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
      executor.withEventTime(time) { if side === left { send(event, nil, .null, nil) } else { sendOther(event, nil) } }
    }

    override var isOver: Bool {
      left.hasEnded && right.hasEnded || left.hasEnded && left.events.count == 0 && !right.sendsUnmatched
        || right.hasEnded && right.events.count == 0 && !left.sendsUnmatched
    }

    override var heldCount: Int {
      [left, right].reduce(0) { sum, side in sum + side.events.all.count { !side.events[$0].isMatched } }
    }
  }
}
