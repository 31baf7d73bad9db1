internal import DequeModule

/// `join`: pairs of events of two signals that come near each other.
struct Join: OperatorComponent {
  enum Unmatched: String, ChoiceParameter {
    case drop, send
    var help: String {
      switch self {
      case .drop: "it is dropped"
      case .send: "it is sent with null in place of a partner, when its time has run out"
      }
    }
  }

  var signal = SignalParameter()
  var within = TimeSpan.zero
  var key = ExpressionParameter()
  var otherKey = ExpressionParameter()
  var reduce = MappingParameter()
  var unmatched = Unmatched.drop
  var limit = 1_000_000

  static let spec = ComponentSpec<Join>(
    "join",
    summary: "Sends a pair for each two events of two signals that belong together and come near in time.",
    details: """
      Two events belong together if `key` of the one equals `otherKey` of the other; without keys all do. They are \
      near if less than `within` lies between them, whichever comes first. The event is the list of both, or what \
      `reduce` makes of `event` and `other`. It completes when both signals have, or when no pair is possible any \
      more; an error of either ends it. A pipeline that is stopped sends no event as unmatched whose partner could \
      still have come; the log gives their number.

      Each event is kept for `within`, so `limit` must be at least what one signal sends in that time: of two files \
      that are read at once, the number of lines. A kept event costs about 300 bytes beside its text. Where more \
      come, the oldest go to the errors output; if nobody reads it, the log has one warning and, at the end, their \
      number.
      """,
    parameters: [
      .init("signal", \.signal, primary: true, required: true, "The other signal."),
      .init(
        "within", \.within, required: true, range: 1...(Int64.max / 4),
        "How far in time two events may be apart."),
      .init("key", \.key, "What must be equal, of `event`."),
      .init("otherKey", \.otherKey, variables: [("other", .dyn)], "What must be equal, of `other`."),
      .init(
        "reduce", \.reduce, variables: [("other", .dyn)],
        "What to make of `event` and `other`; a list of both if left out."),
      .init("unmatched", \.unmatched, "What becomes of an event that finds no partner in the other signal."),
      .init("limit", \.limit, range: 1...100_000_000, "The most events of each signal to keep."),
    ],
    examples: [
      .marbles(
        "near in time", "{ from: a, chain: [ { join: { signal: b, within: 3ms } } ] }",
        in: ["a": "-1-----2-|", "b": "--x---y--|"], out: "--p----q-|", values: ["p": "[1, x]", "q": "[2, y]"]),
      .marbles(
        "by a key",
        """
        { from: a, chain: [ { join: { signal: b, within: 9ms, key: event.id, otherKey: other.of, \
        reduce: event.n + other.n } } ] }
        """, in: ["a": "-p-q---|", "b": "--u--v-|"], out: "--3--8-|",
        values: ["p": "{id: a, n: 1}", "q": "{id: b, n: 3}", "u": "{of: a, n: 2}", "v": "{of: b, n: 5}"]),
      .marbles(
        "what finds no partner",
        "{ from: a, chain: [ { join: { signal: b, within: 3ms, unmatched: send } } ] }",
        in: ["a": "-1-------|", "b": "-----x---|"], out: "----p----|", values: ["p": "[1, null]"]),
    ],
    edges: EdgeCases(
      error: "Passed on at once, from either signal; what is kept is dropped.",
      completion: "Completes when both have, or when no pair is possible any more.",
      disposal: "Leaves both signals; what is kept is lost and the timer freed. Nothing is sent as unmatched."),
    keeps: "The events of both signals that came less than `within` ago, at most `limit` of each, and one timer.",
    carries: .state(version: 2),
    rivals: ["RxJava join", "Flink interval join", "ksqlDB stream-stream join"],
    wants: [
      .init(
        .combining, "pair events of two signals that belong together",
        "join: { signal: other, within: 30s, key: event.id, otherKey: other.id }"),
      .init(
        .combining, "find requests without an answer",
        "join: { signal: other, within: 30s, key: event.id, otherKey: other.id, unmatched: send }"),
    ],
    seeAlso: ["combineLatest", "withLatestFrom", "zip"])

  func validate(_ context: inout DecodingContext) {
    if key.isGiven != otherKey.isGiven {
      context.diagnostics.report(
        Diagnostic(
          .conflictingParameters,
          key.isGiven ? "'join' has 'key' but no 'otherKey'" : "'join' has 'otherKey' but no 'key'",
          at: context.location, help: "Give both: 'key: event.id' and 'otherKey: other.id'"))
    }
  }

  func outputType(_ inputs: [EventType]) -> EventType {
    EventType(reduce.isGiven ? reduce.type : .list(.dyn))
  }

  func makeNode(_ seat: Seat, downstream: Downstream) -> OperatorNode { Node(self, seat, downstream) }

  /// The pace at which events of an input come, as far as the plan tells, makes `limit` too small or not.
  func remarks(_ inputs: [EventPace?], _ location: SourceLocation) -> [Diagnostic] {
    zip(["first", "other"], inputs).compactMap { name, pace in
      let count: Double
      let how: String
      switch pace {
      case .every(let span)?:
        count = (Double(within.nanoseconds) / Double(max(1, span.nanoseconds))).rounded(.up)
        how = "the \(name) signal sends an event every \(span)"
      case .unbounded?:
        count = Double(within.nanoseconds) / 1e9 * EventPace.leastReading
        how = "the \(name) signal is read as fast as possible"
      case nil: return nil
      }
      // What is read at once is over soon: the default is for it.
      let isEnough = Double(limit) >= count || pace == .unbounded && limit >= Join().limit
      guard !isEnough else { return nil }
      let needed = pace == .unbounded ? "the number of its events" : String(Int64(min(count, 1e18)))
      return Diagnostic(
        .limitTooSmall,
        "'join' keeps \(Printable.count(limit, "event")) of each signal, but \(how), and each is kept for \(within): pairs are lost",
        at: location, help: "Set 'limit' to at least \(needed), or make 'within' shorter")
    }
  }

  final class Node: TriggeredNode {
    private struct Entry {
      var event: OwnedEvent
      var due: Instant
      /// The number of its key in `keys`.
      var key: Int32
      var isMatched: Bool
      /// The next one of its signal that has its key, by its serial number; `none` if there is none.
      var next = Entry.none

      static let none = Int.max
    }

    /// The events of one signal that have one key, by their serial numbers.
    private struct Chain {
      var first = Entry.none
      var last = Entry.none
    }

    /// What is kept of one signal.
    private final class Side {
      /// Oldest first.
      @exclusivity(unchecked) var entries = Deque<Entry>()
      /// When the first of `entries` is due.
      @exclusivity(unchecked) var due = Instant.distantFuture
      /// The serial number of the first of `entries`; they follow each other.
      @exclusivity(unchecked) var serial = 0
      /// By the number of the key.
      @exclusivity(unchecked) var chains: [Chain] = []
      var hasEnded = false
      /// How many were dropped because of the limit without being told of.
      var lost = 0

      func chain(_ key: Int) -> Chain { key < chains.count ? chains[key] : Chain() }

      func has(_ key: Int) -> Bool { chain(key).first != Entry.none }

      /// What has been sent in this turn stays valid until its end.
      func removeAll(keeping arena: Arena) {
        if !entries.isEmpty { arena.keep(Kept(entries)) }
        entries = Deque()
        due = .distantFuture
        chains = []
      }
    }

    /// Entries that live until the end of the turn.
    private final class Kept {
      private let entries: Deque<Entry>
      init(_ entries: Deque<Entry>) { self.entries = entries }
    }

    private let parameters: Join
    private let builder: ValueBuilder?
    private lazy var frame = makeFrame()
    /// The keys of what is kept, as ``KeyText``.
    private let keys = KeyTable()
    private let left = Side()
    private let right = Side()
    private let buffer = OutputBuffer()
    /// Set only while something is kept.
    private var timer = Wake.none
    /// The other signal was over before the pipeline was stopped: who has found no partner until now will find none.
    private var isOtherWhole = false
    /// Events that were not sent because the pipeline was stopped.
    private var undecided = 0

    init(_ parameters: Join, _ seat: Seat, _ downstream: Downstream) {
      self.parameters = parameters
      builder = parameters.reduce.makeBuilder()
      super.init(trigger: parameters.signal.plan, seat, downstream)
    }

    // MARK: Events

    override func receive(_ event: Event) {
      expire()
      guard readKey(parameters.key.program, event, isOther: false) else { return }
      let hash = keys.hash(buffer.bytes)
      let known = keys.find(buffer.bytes, hash)
      let partners = known.map { right.chain($0) } ?? Chain()
      let isMatched = partners.first != Entry.none
      let chosen = choose(partners, right)
      if !right.hasEnded || parameters.unmatched == .send {
        keep(event, known ?? keys.insert(buffer.bytes, hash), isMatched, left, "first")
      }
      switch chosen {
      case .none: break
      case .one(let partner): send(event, partner.event.value)
      case .many(let partners):
        for partner in partners where !isClosed { send(event, partner.event.value) }
      }
      if !isClosed { finishIfOver() }
    }

    override func receive(_ event: Event, from inlet: Inlet) {
      expire()
      guard readKey(parameters.otherKey.program, event, isOther: true) else { return }
      let hash = keys.hash(buffer.bytes)
      let known = keys.find(buffer.bytes, hash)
      let partners = known.map { left.chain($0) } ?? Chain()
      let isMatched = partners.first != Entry.none
      let chosen = choose(partners, left)
      if !left.hasEnded {
        keep(event, known ?? keys.insert(buffer.bytes, hash), isMatched, right, "other")
      }
      switch chosen {
      case .none: break
      case .one(let partner): send(partner.event, event.value)
      case .many(let partners):
        for partner in partners where !isClosed { send(partner.event, event.value) }
      }
    }

    /// Puts the key of the event into `buffer`; false if it has none, and the event has been dealt with.
    @inline(__always)
    private func readKey(_ program: Program?, _ event: Event, isOther: Bool) -> Bool {
      buffer.clear()
      guard let program else { return true }
      if isOther { frame.set(0, event.value) }
      let seen = isOther ? Event(.null) : event
      if let failure = frame.load(seen) {
        reject(event, .eventNotReadable, EventFrame.message(of: failure))
        return false
      }
      if KeyText.append(listOf: program, frame, to: buffer) { return true }
      let key = program.evaluate(frame)
      if key.isError {
        if failed(isOther ? event : seen, key, program, frame), !isOther { emit(event) }
        return false
      }
      buffer.clear()
      KeyText.append(key, to: buffer, Context(state: frame.evaluation))
      return true
    }

    /// Partners, apart from what is kept: what their pairs cause may come back here.
    private enum Partners {
      case none
      case one(OwnedEvent)
      case many([OwnedEvent])
    }

    /// The events of a chain, which are matched now.
    @inline(__always)
    private func choose(_ chain: Chain, _ side: Side) -> Partners {
      guard chain.first != Entry.none else { return .none }
      let first = chain.first &- side.serial
      side.entries[first].isMatched = true
      if chain.first == chain.last { return .one(side.entries[first].event) }
      var chosen: [OwnedEvent] = []
      var at = chain.first
      while at != Entry.none {
        let index = at &- side.serial
        side.entries[index].isMatched = true
        chosen.append(side.entries[index].event)
        at = side.entries[index].next
      }
      return .many(chosen)
    }

    private func keep(_ event: Event, _ key: Int, _ isMatched: Bool, _ side: Side, _ name: StaticString) {
      insert(
        Entry(event: OwnedEvent(event), due: now + parameters.within, key: Int32(key), isMatched: isMatched), side)
      if side.entries.count > parameters.limit, let displaced = removeOldest(side) { lose(displaced, side, name) }
      if !timer.isSet { setTimer() }
    }

    private func insert(_ entry: Entry, _ side: Side) {
      let serial = side.serial &+ side.entries.count
      let key = Int(entry.key)
      while side.chains.count <= key { side.chains.append(Chain()) }
      if side.chains[key].first == Entry.none {
        side.chains[key].first = serial
      } else {
        side.entries[side.chains[key].last &- side.serial].next = serial
      }
      side.chains[key].last = serial
      if side.entries.isEmpty { side.due = entry.due }
      side.entries.append(entry)
    }

    /// What has been sent in this turn stays valid until its end.
    private func removeOldest(_ side: Side) -> Entry? {
      guard let oldest = side.entries.popFirst() else { return nil }
      side.serial &+= 1
      side.due = side.entries.isEmpty ? .distantFuture : side.entries[0].due
      if oldest.isMatched { oldest.event.keep(in: arena) }
      // Of one key, too, the oldest is the first.
      let key = Int(oldest.key)
      side.chains[key].first = oldest.next
      if oldest.next == Entry.none {
        side.chains[key].last = Entry.none
        if !left.has(key), !right.has(key) { keys.remove(key) }
      }
      return oldest
    }

    /// The limit is reached: whoever reads errors or dead letters gets the event, the log is not filled with them.
    private func lose(_ entry: Entry, _ side: Side, _ name: StaticString) {
      let text = "join keeps \(Printable.count(parameters.limit, "event")) of the \(name) signal, its bound `limit`"
      if execution.keepsRejections(of: seat.step) {
        entry.event.keep(in: arena)
        reject(entry.event.event, .limitReached, text)
        return
      }
      execution.tally.rejected &+= 1
      side.lost += 1
      if side.lost == 1 { say(text + ": older ones were dropped before `within` was over; their number follows") }
    }

    private func say(_ text: String) {
      let step = execution.plan.steps[seat.step.number]
      execution.services.log(.warning, step.label, "\(seat.location ?? step.location): \(text)")
    }

    private func send(_ event: Event, _ other: Value) {
      guard let builder else {
        emit(event.with(arena.list([event.value, other])))
        return
      }
      frame.set(0, other)
      if let value = build(builder, event, frame) { emit(event.with(value)) }
    }

    /// Sends what has found no partner, unless one could still have come and only the end of the pipeline prevents it.
    private func sendUnmatched(_ entry: Entry) {
      guard !entry.isMatched, parameters.unmatched == .send else { return }
      guard !execution.isStopping || isOtherWhole else {
        undecided += 1
        return
      }
      entry.event.keep(in: arena)
      send(entry.event.event, .null)
    }

    // MARK: Time

    /// Lets go of what is too old for a partner.
    @inline(__always)
    private func expire() {
      let now = now
      while right.due <= now, case _? = removeOldest(right) {}
      while left.due <= now, !isClosed, let oldest = removeOldest(left) { sendUnmatched(oldest) }
    }

    private func setTimer() {
      let due = min(left.due, right.due)
      if due < .distantFuture { timer = wake(at: due) }
    }

    override func woke(_ token: Int) {
      timer = .none
      expire()
      if !timer.isSet { setTimer() }
      finishIfOver()
    }

    // MARK: The end

    override func complete() {
      left.hasEnded = true
      finishIfOver()
    }

    override func completed(_ inlet: Inlet) {
      drop(inlet)
      right.hasEnded = true
      isOtherWhole = !execution.isStopping
      finishIfOver()
    }

    private func finishIfOver() {
      if left.hasEnded, right.hasEnded {
        while parameters.unmatched == .send, !isClosed, let entry = removeOldest(left) { sendUnmatched(entry) }
        finish()
      } else if left.hasEnded, left.entries.isEmpty {
        finish()
      } else if right.hasEnded, right.entries.isEmpty, parameters.unmatched == .drop {
        finish()
      }
    }

    override func stop() {
      cancelWake(&timer)
      for (side, name) in [(left, "first"), (right, "other")] where side.lost > 0 {
        say("join has dropped \(Printable.count(side.lost, "event")) of the \(name) signal before `within` was over")
      }
      if undecided > 0 {
        say(
          "the pipeline was stopped before \(Printable.count(undecided, "event")) of the first signal had found a partner: dropped"
        )
      }
      left.removeAll(keeping: arena)
      right.removeAll(keeping: arena)
      keys.removeAll()
      super.stop()
    }

    override func save(_ state: inout StateWriter) {
      for side in [left, right] {
        state.write(each: side.entries) {
          $0.write($1.event)
          $0.write(Array(keys.text(Int($1.key))))
          $0.write($1.due)
          $0.write($1.isMatched)
        }
        state.write(side.hasEnded)
        state.write(side.lost)
      }
      state.write(isOtherWhole)
      state.write(timer)
    }

    override func restore(_ state: inout StateReader) throws(StateFault) {
      guard state.version > 1 else { throw StateFault("its keys have another form") }
      try restore(left, &state)
      try restore(right, &state)
      isOtherWhole = try state.read()
      timer = try state.read()
    }

    private func restore(_ side: Side, _ state: inout StateReader) throws(StateFault) {
      for _ in 0..<(try state.count()) {
        let event = try state.read(OwnedEvent.self)
        let text = try state.read([UInt8].self)
        let due = try state.read(Instant.self)
        let isMatched = try state.read(Bool.self)
        let key = text.withUnsafeBytes { bytes in
          let hash = keys.hash(bytes)
          return keys.find(bytes, hash) ?? keys.insert(bytes, hash)
        }
        insert(Entry(event: event, due: due, key: Int32(key), isMatched: isMatched), side)
      }
      side.hasEnded = try state.read()
      side.lost = try state.read(in: 0...Int.max)
    }
  }
}
