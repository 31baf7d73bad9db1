extension Join {
  /// A join by the clock.
  final class ClockNode: PairNode {
    private typealias Entry = KeptEvents.Pointer

    /// The events of one signal with one key, oldest first.
    private struct Chain {
      var first: Entry?
      var last: Entry?
    }

    /// The kept events of one signal.
    private final class Side {
      let name: StaticString
      /// 0 for the first signal, 1 for the other: the index among the two chains of a key.
      let index: Int
      /// How long an event is kept.
      let span: TimeSpan
      let sendsUnmatched: Bool
      /// The events, oldest first.
      let events = KeptEvents()
      /// The number of `events` that have had no partner.
      @exclusivity(unchecked) var unmatched = 0
      /// When the first of `events` expires.
      @exclusivity(unchecked) var due = Instant.distantFuture
      /// With `early`, the oldest event whose time to be sent without a partner has not come.
      @exclusivity(unchecked) var waiting: Entry?
      /// The time at which the row of `waiting` is sent.
      @exclusivity(unchecked) var sending = Instant.distantFuture
      /// The unmatched events that were sent early, with the rows to retract; nil: `reduce` has failed.
      @exclusivity(unchecked) var sent: [Entry: OwnedValue?] = [:]
      /// The bytes of these rows.
      @exclusivity(unchecked) var sentBytes = 0
      var hasEnded = false
      /// Whether the signal ended before the pipeline stopped: an event of the other one without a partner so far will
      /// then never get one.
      var isWhole = false
      var losses = Losses()

      init(_ name: StaticString, index: Int, span: TimeSpan, sendsUnmatched: Bool) {
        self.name = name
        self.index = index
        self.span = span
        self.sendsUnmatched = sendsUnmatched
      }

      func removeAll(keeping arena: Arena) {
        events.removeAll(keeping: arena)
        unmatched = 0
        due = .distantFuture
        (waiting, sending) = (nil, .distantFuture)
        (sent, sentBytes) = ([:], 0)
      }

      /// Notes that an event has a partner.
      @inline(__always)
      func match(_ entry: Entry) {
        if entry.pointee.isMatched { return }
        entry.pointee.isMatched = true
        unmatched &-= 1
      }

      func add(_ row: OwnedValue?, of entry: Entry) {
        sent[entry] = .some(row)
        sentBytes &+= row?.byteCount ?? 0
      }

      /// Takes the row that was sent early for an event, if any, so that it is not retracted again.
      @inline(__always)
      func takeSent(_ entry: Entry) -> OwnedValue?? {
        if sent.isEmpty { return .none }
        guard let row = sent.removeValue(forKey: entry) else { return .none }
        sentBytes &-= row?.byteCount ?? 0
        return .some(row)
      }
    }

    private let left: Side
    private let right: Side
    /// The chains of both sides by key number, each key's left one first.
    @exclusivity(unchecked) private var chains: [Chain] = []
    /// The fields that expressions read of either side's events, unless they read whole events.
    private let leftFields: SeenFields?
    private let rightFields: SeenFields?
    /// Set only while events are kept.
    private var timer = Wake.none
    private var timerDue = Instant.distantFuture

    override init(_ parameters: Join, _ nodeContext: NodeContext, _ downstream: Downstream) {
      let within = parameters.within ?? Bounds()
      left = Side("first", index: 0, span: within.after, sendsUnmatched: parameters.unmatched.sendsLeft)
      right = Side("other", index: 1, span: within.before, sendsUnmatched: parameters.unmatched.sendsRight)
      let (arena, json) = (nodeContext.execution.executor.arena, nodeContext.execution.json)
      leftFields = parameters.leftFields.flatMap { SeenFields($0, arena: arena, json: json) }
      rightFields = parameters.rightFields.flatMap { SeenFields($0, arena: arena, json: json) }
      super.init(parameters, nodeContext, downstream)
    }

    // MARK: Events

    override func receive(_ event: Event) {
      expire()
      let seen = leftFields?.read(event.value)
      guard !isClosed, readKey(event, seen, isOther: false) else { return }
      let partners = partners(of: event, seen, left, right)
      switch partners {
      case .none: break
      case .one(let partner):
        retract(partner, right)
        send(event, seen, partner.pointee.value, partner.pointee.seen)
      case .many(let partners):
        for partner in partners where !isClosed {
          retract(partner, right)
          send(event, seen, partner.pointee.value, partner.pointee.seen)
        }
      }
      if !isClosed { finishIfOver() }
    }

    override func receive(_ event: Event, from inlet: Inlet) {
      expire()
      let seen = rightFields?.read(event.value)
      guard !isClosed, readKey(event, seen, isOther: true) else { return }
      switch partners(of: event, seen, right, left) {
      case .none: break
      case .one(let partner):
        retract(partner, left)
        send(partner.pointee.event, partner.pointee.seen, event.value, seen)
      case .many(let partners):
        for partner in partners where !isClosed {
          retract(partner, left)
          send(partner.pointee.event, partner.pointee.seen, event.value, seen)
        }
      }
      if !isClosed { finishIfOver() }
    }

    /// The partners of an event. They stay valid until the end of the turn, even if the pairs cause further events
    /// here.
    private enum Partners {
      case none
      case one(Entry)
      case many([Entry])
    }

    /// The partners of an event whose key is in `buffer`. The event is kept, if further ones may come.
    @inline(__always)
    private func partners(of event: Event, _ seen: Value?, _ side: Side, _ opposite: Side) -> Partners {
      let hash = keys.hash(buffer.bytes)
      let known = keys.find(buffer.bytes, hash)
      let partners = choose(known, opposite)
      if opposite.hasEnded, !side.sendsUnmatched {
        if case .none = partners { countDropped(event) }
      } else if side.span == .zero {
        // No partner can arrive any more.
        if case .none = partners { giveUp(event, seen, side, opposite) }
      } else {
        let isMatched = if case .none = partners { false } else { true }
        keep(event, seen, known ?? keys.insert(buffer.bytes, hash), isMatched: isMatched, side)
      }
      return partners
    }

    /// The events with a key on one side, which then count as matched.
    @inline(__always)
    private func choose(_ key: Int?, _ side: Side) -> Partners {
      guard let key, let first = chains[2 &* key &+ side.index].first else { return .none }
      side.match(first)
      guard var next = first.pointee.sibling else { return .one(first) }
      var chosen = [first]
      while true {
        side.match(next)
        chosen.append(next)
        guard let further = next.pointee.sibling else { return .many(chosen) }
        next = further
      }
    }

    private func keep(_ event: Event, _ seen: Value?, _ key: Int, isMatched: Bool, _ side: Side) {
      let entry = insert(event, seen, key, due: now + side.span, isMatched: isMatched, side)
      if side.events.count > parameters.limit, let displaced = removeOldest(side) {
        if !displaced.pointee.isMatched { retract(displaced, side) }
        lose(displaced.pointee.event, of: side.name, &side.losses)
      }
      countKept()
      if !timer.isSet || min(side.due, side.sending) < timerDue { setTimer() }
      if emission.update != nil, !isMatched, side.sendsUnmatched { sendEarly(entry, side) }
    }

    private func sendEarly(_ entry: Entry, _ side: Side) {
      let row = makeEarly(entry.pointee.event, entry.pointee.seen, isOther: side === right)
      // The row is stored before it is sent, because sending may re-enter this step.
      side.add(row?.kept, of: entry)
      countKept()
      if let row { emit(row.event) }
    }

    /// Retracts the row that was sent early for an event, if any.
    @inline(__always)
    private func retract(_ entry: Entry, _ side: Side) {
      guard case .some(let row?) = side.takeSent(entry) else { return }
      countKept()
      retract(entry.pointee.event, row, isOther: side === right)
    }

    @inline(__always)
    private func countKept() {
      keptSize.set(
        keys: keys.count, events: left.events.count &+ right.events.count,
        bytes: keys.textBytes &+ left.events.bytes &+ right.events.bytes &+ left.sentBytes &+ right.sentBytes)
    }

    @discardableResult
    private func insert(
      _ event: Event, _ seen: Value?, _ key: Int, due: Instant, isMatched: Bool, _ side: Side
    ) -> Entry {
      let isFirst = side.events.count == 0
      let entry = side.events.append(event, seen: seen, due: due, number: key, isMatched: isMatched, arena)
      if isFirst { side.due = due }
      if !isMatched { side.unmatched &+= 1 }
      while chains.count <= 2 &* key &+ 1 { chains.append(Chain()) }
      let index = 2 &* key &+ side.index
      if let last = chains[index].last { last.pointee.sibling = entry } else { chains[index].first = entry }
      chains[index].last = entry
      if emission.early != nil, side.sendsUnmatched, side.waiting == nil { wait(for: entry, side) }
      return entry
    }

    /// Schedules an event to be sent early next.
    private func wait(for entry: Entry?, _ side: Side) {
      side.waiting = entry
      side.sending = .distantFuture
      guard let entry, let early = emission.early, early < side.span else { return }
      side.sending = Instant(
        nanoseconds: entry.pointee.due.nanoseconds &- side.span.nanoseconds &+ early.nanoseconds)
    }

    /// The removed event stays valid until the end of the turn.
    private func removeOldest(_ side: Side) -> Entry? {
      guard let oldest = side.events.first else { return nil }
      if side.waiting == oldest { wait(for: oldest.pointee.next, side) }
      side.events.removeFirst(keeping: arena)
      if !oldest.pointee.isMatched { side.unmatched &-= 1 }
      side.due = side.events.first?.pointee.due ?? .distantFuture
      // The oldest event is also the first of its key.
      let key = Int(oldest.pointee.number)
      let index = 2 &* key &+ side.index
      chains[index].first = oldest.pointee.sibling
      if oldest.pointee.sibling == nil {
        chains[index].last = nil
        if chains[2 &* key].first == nil, chains[2 &* key &+ 1].first == nil { keys.remove(key) }
      }
      countKept()
      return oldest
    }

    /// Sends an event that has no partner, unless it could still have found one and only the stop of the pipeline
    /// prevents that.
    private func giveUp(_ event: Event, _ seen: Value?, _ side: Side, _ opposite: Side) {
      guard side.sendsUnmatched else { return countDropped(event) }
      guard !execution.isStopping || opposite.isWhole || side.span == .zero else {
        side.losses.undecided += 1
        return countDropped(event)
      }
      sendAlone(event, seen, isOther: side === right)
    }

    private func giveUp(_ entry: Entry, _ side: Side, _ opposite: Side) {
      if entry.pointee.isMatched { return }
      // A row that was sent early is now certain.
      if case .none = side.takeSent(entry) { giveUp(entry.pointee.event, entry.pointee.seen, side, opposite) }
    }

    // MARK: Time

    /// Removes events that are too old to find a partner, in the order in which they expired, and sends early rows that
    /// are due.
    @inline(__always)
    private func expire() {
      let now = now
      // At the end of time no stored or removed event is due.
      while nextDue <= now, !isClosed, expireNext() {}
    }

    @inline(__always)
    private var nextDue: Instant { min(min(left.due, right.due), min(left.sending, right.sending)) }

    @inline(never)
    private func expireNext() -> Bool {
      let sending = min(left.sending, right.sending)
      if sending < min(left.due, right.due) { return sendNextEarly(right.sending <= left.sending ? right : left) }
      let (side, opposite) = right.due <= left.due ? (right, left) : (left, right)
      guard let oldest = removeOldest(side) else { return false }
      giveUp(oldest, side, opposite)
      return true
    }

    private func sendNextEarly(_ side: Side) -> Bool {
      guard let entry = side.waiting else { return false }
      wait(for: entry.pointee.next, side)
      if !entry.pointee.isMatched { sendEarly(entry, side) }
      return true
    }

    private func setTimer() {
      cancelWake(&timer)
      timerDue = nextDue
      if timerDue < .distantFuture { timer = wake(at: timerDue) }
    }

    override func woke(_ token: Int) {
      timer = .none
      expire()
      if !timer.isSet { setTimer() }
      if !isClosed { finishIfOver() }
    }

    // MARK: The end

    override func complete() { ended(left) }

    override func completed(_ inlet: Inlet) {
      drop(inlet)
      ended(right)
    }

    private func ended(_ side: Side) {
      side.hasEnded = true
      side.isWhole = !execution.isStopping
      finishIfOver()
    }

    private func finishIfOver() {
      if left.hasEnded, right.hasEnded {
        for (side, opposite) in [(left, right), (right, left)] where side.sendsUnmatched {
          while !isClosed, let entry = removeOldest(side) { giveUp(entry, side, opposite) }
        }
        end()
      } else if left.hasEnded, left.events.count == 0, !right.sendsUnmatched {
        end()
      } else if right.hasEnded, right.events.count == 0, !left.sendsUnmatched {
        end()
      }
    }

    /// Completes; events that are still kept have no partner.
    private func end() {
      guard !isClosed else { return }
      for side in [left, right] where side.unmatched > 0 {
        var next = side.events.first
        while let entry = next {
          next = entry.pointee.next
          if !entry.pointee.isMatched { countDropped(entry.pointee.event) }
        }
      }
      forgetAll()
      finish()
    }

    override var heldCount: Int {
      [left, right].reduce(0) { count, side in
        assert(
          side.unmatched == side.events.all.count { !$0.pointee.isMatched }, "events without a partner are miscounted")
        return count + side.unmatched - side.sent.count
      }
    }

    override func stop() {
      cancelWake(&timer)
      for side in [left, right] { report(side.losses, of: side.name) }
      forgetAll()
      super.stop()
    }

    /// Removes all events at once; they stay valid until the end of the turn.
    private func forgetAll() {
      for side in [left, right] { side.removeAll(keeping: arena) }
      chains = []
      keys.removeAll()
    }

    override func save(_ state: inout StateWriter) {
      state.write(SavedForm.clock.rawValue)
      for side in [left, right] {
        state.write(each: side.events.all) { state, entry in
          state.write(entry.pointee.event)
          state.append(counted: keys.text(Int(entry.pointee.number)))
          state.write(entry.pointee.due)
          state.write(entry.pointee.isMatched)
          if emission.sendsEarly { save(entry, side, &state) }
        }
        state.write(side.hasEnded)
        state.write(side.losses.lost)
        state.write(side.isWhole)
      }
      state.write(timer)
    }

    override func restore(_ state: inout StateReader) throws(StateFault) {
      guard state.version > 1 else { throw StateFault("its keys have another format") }
      if state.version > 2 { try SavedForm.clock.check(&state) }
      for side in [left, right] { try restore(side, &state) }
      countKept()
      if state.version == 2 { right.isWhole = try state.read() }
      timer = try state.read()
      timerDue = nextDue
    }

    private func save(_ entry: Entry, _ side: Side, _ state: inout StateWriter) {
      let row = side.sent[entry]
      state.write(row != nil)
      if let row { state.write(row) }
    }

    private func restore(_ side: Side, _ state: inout StateReader) throws(StateFault) {
      for _ in 0..<(try state.count()) {
        let event = try state.read(OwnedEvent.self)
        let key = try key(&state)
        let due = try state.read(Instant.self)
        let isMatched = try state.read(Bool.self)
        let fields = side === left ? leftFields : rightFields
        let entry = insert(event.event, fields?.read(event.event.value), key, due: due, isMatched: isMatched, side)
        if emission.sendsEarly, try state.read(Bool.self) { side.add(try state.read(OwnedValue?.self), of: entry) }
      }
      while let entry = side.waiting, entry.pointee.isMatched || side.sent[entry] != nil {
        wait(for: entry.pointee.next, side)
      }
      side.hasEnded = try state.read()
      side.losses.lost = try state.read(in: 0...Int.max)
      if state.version > 2 { side.isWhole = try state.read() }
    }
  }

  /// The form of a join's saved state, stored with it: after a change upstream, the same parameters may mean another form.
  enum SavedForm: Int {
    case clock, eventTime

    func check(_ state: inout StateReader) throws(StateFault) {
      guard try state.read(in: 0...1) == rawValue else {
        throw StateFault("it went by \(self == .clock ? "event time" : "the clock") before")
      }
    }
  }
}
