/// `join`: pairs of events of two signals that are close in time.
struct Join: OperatorComponent {
  enum Unmatched: String, ChoiceParameter {
    case drop, send
    var help: String {
      switch self {
      case .drop: "it is dropped"
      case .send: "it is sent with null in place of a partner after its time"
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
    summary: "Sends a pair for each two events of two signals that have equal keys and are close in time.",
    details: """
      Two events are paired if `key` of the one equals `otherKey` of the other (without keys, all are) and less than \
      `within` lies between them, whichever comes first. The event is the list of both, or the result of `reduce` \
      for `event` and `other`. It completes when both signals have, or when no pair is possible any more; an error \
      of either ends it. When a pipeline is stopped, events whose partner could still have come are not sent as \
      unmatched; the log gives their number.

      Each event is kept for `within`, so `limit` must be at least what one signal sends in that time: for two \
      files, the number of lines. A kept event costs about 200 bytes beside its text. If more come, the oldest go to \
      the errors output; if that has no reader, the log has one warning and, at the end, their number.
      """,
    parameters: [
      .init("signal", \.signal, primary: true, required: true, "The other signal."),
      .init(
        "within", \.within, required: true, range: 1...(Int64.max / 4),
        "The largest time between two paired events."),
      .init("key", \.key, "The key of `event`."),
      .init("otherKey", \.otherKey, variables: [("other", .dyn)], "The key of `other`."),
      .init(
        "reduce", \.reduce, variables: [("other", .dyn)],
        "The result for `event` and `other`; without it, a list of both."),
      .init("unmatched", \.unmatched, "What happens to an event without a partner in the other signal."),
      .init("limit", \.limit, range: 1...100_000_000, "The largest number of events to keep of each signal."),
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
      error: "Passed on at once, from either signal; kept events are dropped.",
      completion: "Completes when both have, or when no pair is possible any more.",
      disposal: """
        Unsubscribes from both signals, drops kept events and frees the timer. Nothing is sent as unmatched.
        """),
    memory: "The events of both signals that came less than `within` ago, at most `limit` of each, and one timer.",
    persistence: .state(version: 2),
    lateness: .always("an event that is too old for a partner is too old"),
    knownAs: ["RxJava join", "Flink interval join", "ksqlDB stream-stream join"],
    useCases: [
      .init(
        .combining, "pair events of two signals that belong together",
        "join: { signal: other, within: 30s, key: event.id, otherKey: other.id }"),
      .init(
        .combining, "find requests without a response",
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

  func makeNode(_ nodeContext: NodeContext, downstream: Downstream) -> OperatorNode {
    Node(self, nodeContext, downstream)
  }

  /// The fields that `key` and `reduce` read of the first signal's events; nil if they read whole events, or nothing
  /// of a kept event.
  private var leftFields: Set<String>? {
    guard reduce.isGiven, let read = reduce.fields(of: "event"), let keys = key.fields(of: "event") else { return nil }
    return read.union(keys)
  }

  /// The same for the other signal's events.
  private var rightFields: Set<String>? {
    guard reduce.isGiven, let read = reduce.fields(of: "other"), let keys = otherKey.fields(of: "other") else {
      return nil
    }
    return read.union(keys)
  }

  /// Warns if `limit` is too small for the rate of an input, as far as the plan determines that rate.
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
      // A file that is read once ends soon; the default limit is meant to suffice for it.
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
      let place: Int
      /// The events, oldest first.
      let events = KeptEvents()
      /// When the first of `events` expires.
      @exclusivity(unchecked) var due = Instant.distantFuture
      var hasEnded = false
      /// The number of events dropped at the limit and not yet reported.
      var lost = 0

      init(_ name: StaticString, place: Int) {
        self.name = name
        self.place = place
      }

      func removeAll(keeping arena: Arena) {
        events.removeAll(keeping: arena)
        due = .distantFuture
      }
    }

    private let parameters: Join
    private let builder: ValueBuilder?
    private lazy var frame = makeFrame()
    /// The keys of the kept events, as ``KeyText``.
    private let keys = KeyTable()
    private let left = Side("first", place: 0)
    private let right = Side("other", place: 1)
    /// The chains of both sides by key number, each key's left one first.
    @exclusivity(unchecked) private var chains: [Chain] = []
    /// The fields that expressions read of either side's events, unless they read whole events.
    private lazy var leftFields = parameters.leftFields.flatMap {
      SeenFields($0, arena: execution.executor.arena, json: execution.json)
    }
    private lazy var rightFields = parameters.rightFields.flatMap {
      SeenFields($0, arena: execution.executor.arena, json: execution.json)
    }
    private let buffer = OutputBuffer()
    /// Set only while events are kept.
    private var timer = Wake.none
    /// Whether the other signal ended before the pipeline stopped: an event without a partner so far will then never
    /// get one.
    private var isOtherWhole = false
    /// The number of unmatched events not sent because the pipeline was stopping.
    private var undecided = 0

    init(_ parameters: Join, _ nodeContext: NodeContext, _ downstream: Downstream) {
      self.parameters = parameters
      builder = parameters.reduce.makeBuilder()
      super.init(trigger: parameters.signal.plan, nodeContext, downstream)
    }

    // MARK: Events

    override func receive(_ event: Event) {
      expire()
      let seen = leftFields?.read(event.value)
      guard readKey(parameters.key.program, event, seen, isOther: false) else { return }
      let hash = keys.hash(buffer.bytes)
      let known = keys.find(buffer.bytes, hash)
      let partners = choose(known, right)
      if right.hasEnded, parameters.unmatched == .drop {
        if case .none = partners { countDropped(event) }
      } else {
        keep(event, seen, known ?? keys.insert(buffer.bytes, hash), partners, left)
      }
      switch partners {
      case .none: break
      case .one(let partner): send(event, seen, partner.pointee.value, partner.pointee.seen)
      case .many(let partners):
        for partner in partners where !isClosed { send(event, seen, partner.pointee.value, partner.pointee.seen) }
      }
      if !isClosed { finishIfOver() }
    }

    override func receive(_ event: Event, from inlet: Inlet) {
      expire()
      let seen = rightFields?.read(event.value)
      guard readKey(parameters.otherKey.program, event, seen, isOther: true) else { return }
      let hash = keys.hash(buffer.bytes)
      let known = keys.find(buffer.bytes, hash)
      let partners = choose(known, left)
      if !left.hasEnded { keep(event, seen, known ?? keys.insert(buffer.bytes, hash), partners, right) }
      switch partners {
      case .none: if left.hasEnded { countDropped(event) }
      case .one(let partner): send(partner.pointee.event, partner.pointee.seen, event.value, seen)
      case .many(let partners):
        for partner in partners where !isClosed { send(partner.pointee.event, partner.pointee.seen, event.value, seen) }
      }
    }

    /// Writes the key of the event into `buffer`; false if it has none, and the event has then been handled.
    @inline(__always)
    private func readKey(_ program: Program?, _ event: Event, _ seen: Value?, isOther: Bool) -> Bool {
      buffer.clear()
      guard let program else { return true }
      if isOther {
        frame.set(0, seen ?? event.value)
        _ = frame.load(made(.null))
      } else if !isReadable(event, seeing: seen, frame) {
        return false
      }
      guard let failure = KeyText.failureToWrite(program, frame, to: buffer) else { return true }
      if failed(event, failure, program, frame), !isOther { emit(event) }
      return false
    }

    /// The partners of an event. They stay valid until the end of the turn, even if the pairs cause further events
    /// here.
    private enum Partners {
      case none
      case one(Entry)
      case many([Entry])
    }

    /// The events with a key on one side, which then count as matched.
    @inline(__always)
    private func choose(_ key: Int?, _ side: Side) -> Partners {
      guard let key, let first = chains[2 &* key &+ side.place].first else { return .none }
      first.pointee.isMatched = true
      guard var next = first.pointee.sibling else { return .one(first) }
      var chosen = [first]
      while true {
        next.pointee.isMatched = true
        chosen.append(next)
        guard let further = next.pointee.sibling else { return .many(chosen) }
        next = further
      }
    }

    private func keep(_ event: Event, _ seen: Value?, _ key: Int, _ partners: Partners, _ side: Side) {
      let isMatched = if case .none = partners { false } else { true }
      insert(event, seen, key, due: now + parameters.within, isMatched: isMatched, side)
      if side.events.count > parameters.limit, let displaced = removeOldest(side) { lose(displaced, side) }
      countKept()
      if !timer.isSet { setTimer() }
    }

    @inline(__always)
    private func countKept() {
      keptSize.set(
        keys: keys.count, events: left.events.count &+ right.events.count,
        bytes: keys.textBytes &+ left.events.bytes &+ right.events.bytes)
    }

    private func insert(_ event: Event, _ seen: Value?, _ key: Int, due: Instant, isMatched: Bool, _ side: Side) {
      let isFirst = side.events.count == 0
      let entry = side.events.append(event, seen: seen, due: due, number: key, isMatched: isMatched, arena)
      if isFirst { side.due = due }
      while chains.count <= 2 &* key &+ 1 { chains.append(Chain()) }
      let place = 2 &* key &+ side.place
      if let last = chains[place].last { last.pointee.sibling = entry } else { chains[place].first = entry }
      chains[place].last = entry
    }

    /// The removed event stays valid until the end of the turn.
    private func removeOldest(_ side: Side) -> Entry? {
      guard let oldest = side.events.first else { return nil }
      side.events.removeFirst(keeping: arena)
      side.due = side.events.first?.pointee.due ?? .distantFuture
      // The oldest event is also the first of its key.
      let key = Int(oldest.pointee.number)
      let place = 2 &* key &+ side.place
      chains[place].first = oldest.pointee.sibling
      if oldest.pointee.sibling == nil {
        chains[place].last = nil
        if chains[2 &* key].first == nil, chains[2 &* key &+ 1].first == nil { keys.remove(key) }
      }
      countKept()
      return oldest
    }

    /// Drops an event at the limit: readers of errors or dead letters receive it, but the log must not be filled.
    private func lose(_ entry: Entry, _ side: Side) {
      let text =
        "join keeps \(Printable.count(parameters.limit, "event")) of the \(side.name) signal, its limit `limit`"
      if execution.keepsRejections(of: nodeContext.step) {
        reject(entry.pointee.event, .limitReached, text)
        return
      }
      execution.tally.rejected &+= 1
      counters.pointee.rejected &+= 1
      side.lost += 1
      if side.lost == 1 { say(text + ": older ones were dropped before `within` was over; their number follows") }
    }

    private func say(_ text: String) {
      let step = execution.plan.steps[nodeContext.step.number]
      execution.services.log(.warning, step.label, "\(nodeContext.location ?? step.location): \(text)")
    }

    /// Sends a pair. `seen` and `otherSeen`: what `reduce` reads of the two events, if known.
    private func send(_ event: Event, _ seen: Value?, _ other: Value, _ otherSeen: Value?) {
      guard let builder else {
        emit(event.with(arena.list([event.value, other])))
        return
      }
      frame.set(0, otherSeen ?? other)
      if let value = build(builder, event, seeing: seen ?? event.value, frame) { emit(event.with(value)) }
    }

    /// Sends an event that has no partner, unless it could still have found one and only the stop of the pipeline
    /// prevents that.
    private func sendUnmatched(_ entry: Entry) {
      guard !entry.pointee.isMatched else { return }
      guard parameters.unmatched == .send else { return countDropped(entry.pointee.event) }
      guard !execution.isStopping || isOtherWhole else {
        undecided += 1
        return countDropped(entry.pointee.event)
      }
      send(entry.pointee.event, entry.pointee.seen, .null, nil)
    }

    // MARK: Time

    /// Removes events that are too old to find a partner.
    @inline(__always)
    private func expire() {
      let now = now
      while right.due <= now, let oldest = removeOldest(right) {
        if !oldest.pointee.isMatched { countDropped(oldest.pointee.event) }
      }
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
        while !isClosed, let entry = removeOldest(left) { sendUnmatched(entry) }
        end()
      } else if left.hasEnded, left.events.count == 0 {
        end()
      } else if right.hasEnded, right.events.count == 0, parameters.unmatched == .drop {
        end()
      }
    }

    /// Completes; events that are still kept have no partner.
    private func end() {
      guard !isClosed else { return }
      for side in [left, right] {
        while let entry = removeOldest(side) {
          if !entry.pointee.isMatched { countDropped(entry.pointee.event) }
        }
      }
      finish()
    }

    override var heldCount: Int {
      [left, right].reduce(0) { $0 + $1.events.all.count { !$0.pointee.isMatched } }
    }

    override func stop() {
      cancelWake(&timer)
      for side in [left, right] where side.lost > 0 {
        say(
          "join has dropped \(Printable.count(side.lost, "event")) of the \(side.name) signal before `within` was over")
      }
      if undecided > 0 {
        say(
          "the pipeline was stopped before \(Printable.count(undecided, "event")) of the first signal had found a partner: dropped"
        )
      }
      left.removeAll(keeping: arena)
      right.removeAll(keeping: arena)
      chains = []
      keys.removeAll()
      super.stop()
    }

    override func save(_ state: inout StateWriter) {
      for side in [left, right] {
        state.write(each: side.events.all) { state, entry in
          state.write(entry.pointee.event)
          state.append(counted: keys.text(Int(entry.pointee.number)))
          state.write(entry.pointee.due)
          state.write(entry.pointee.isMatched)
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
      countKept()
      isOtherWhole = try state.read()
      timer = try state.read()
    }

    private func restore(_ side: Side, _ state: inout StateReader) throws(StateFault) {
      for _ in 0..<(try state.count()) {
        let event = try state.read(OwnedEvent.self)
        let text = try state.counted()
        let due = try state.read(Instant.self)
        let isMatched = try state.read(Bool.self)
        let key = text.withUnsafeBytes { bytes in
          let hash = keys.hash(bytes)
          return keys.find(bytes, hash) ?? keys.insert(bytes, hash)
        }
        let fields = side === left ? leftFields : rightFields
        insert(event.event, fields?.read(event.event.value), key, due: due, isMatched: isMatched, side)
      }
      side.hasEnded = try state.read()
      side.lost = try state.read(in: 0...Int.max)
    }
  }
}
