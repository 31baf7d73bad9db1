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
  var limit = 10_000

  static let spec = ComponentSpec<Join>(
    "join",
    summary: "Sends a pair for each two events of two signals that belong together and come near in time.",
    details: """
      Two events belong together if `key` of the one equals `otherKey` of the other (compared as JSON text); \
      without keys all do. They are near if less than `within` lies between them, whichever comes first. The \
      event is the list of both, or what `reduce` makes of `event` and `other`. It completes when both \
      signals have, or when no pair is possible any more; an error of either ends it.
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
      .init("limit", \.limit, range: 1...10_000_000, "How many events of each signal to keep."),
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
      disposal: "Leaves both signals; what is kept is lost and the timer freed."),
    keeps: "The events of both signals that came less than `within` ago, at most `limit` of each, and one timer.",
    carries: .state(version: 1),
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

  final class Node: TriggeredNode {
    private final class Entry {
      let event: OwnedEvent
      let key: [UInt8]
      let due: Instant
      var isMatched = false
      init(_ event: OwnedEvent, _ key: [UInt8], _ due: Instant) {
        self.event = event
        self.key = key
        self.due = due
      }
    }

    /// What is kept of one signal.
    private final class Side {
      /// Oldest first.
      var entries = Deque<Entry>()
      /// The same, by key, oldest first.
      var byKey: [[UInt8]: Deque<Entry>] = [:]
      var hasEnded = false

      func insert(_ entry: Entry) {
        entries.append(entry)
        byKey[entry.key, default: []].append(entry)
      }

      func removeOldest() -> Entry? {
        guard let oldest = entries.popFirst() else { return nil }
        // Of one key, too, the oldest is the first.
        byKey[oldest.key]?.removeFirst()
        if byKey[oldest.key]?.isEmpty == true { byKey[oldest.key] = nil }
        return oldest
      }

      func removeAll() {
        entries.removeAll()
        byKey = [:]
      }
    }

    private let parameters: Join
    private let builder: ValueBuilder?
    private lazy var frame = makeFrame()
    private let left = Side()
    private let right = Side()
    private let buffer = OutputBuffer()
    /// Set only while something is kept.
    private var timer = Wake.none

    init(_ parameters: Join, _ seat: Seat, _ downstream: Downstream) {
      self.parameters = parameters
      builder = parameters.reduce.makeBuilder()
      super.init(trigger: parameters.signal.plan, seat, downstream)
    }

    // MARK: Events

    override func receive(_ event: Event) {
      expire()
      var key: [UInt8] = []
      if let program = parameters.key.program {
        guard let value = evaluate(program, event, frame) else { return }
        key = text(value)
      }
      let entry = Entry(OwnedEvent(event), key, now + parameters.within)
      // Pairs are sent from a copy: what they cause may come back here.
      let partners = right.byKey[key] ?? []
      entry.isMatched = !partners.isEmpty
      if !right.hasEnded || parameters.unmatched == .send { keep(entry, left, "first") }
      for partner in partners where !isClosed { send(entry, partner) }
      if !isClosed { finishIfOver() }
    }

    override func receive(_ event: Event, from inlet: Inlet) {
      expire()
      var key: [UInt8] = []
      if let program = parameters.otherKey.program {
        frame.set(0, event.value)
        guard let value = evaluate(program, Event(.null), frame, keeping: false) else { return }
        key = text(value)
      }
      let entry = Entry(OwnedEvent(event), key, now + parameters.within)
      let partners = left.byKey[key] ?? []
      for partner in partners { partner.isMatched = true }
      if !left.hasEnded { keep(entry, right, "other") }
      for partner in partners where !isClosed { send(partner, entry) }
    }

    private func text(_ value: Value) -> [UInt8] {
      buffer.clear()
      JSONWriter.appendKey(value, to: buffer)
      return Array(buffer.bytes)
    }

    private func keep(_ entry: Entry, _ side: Side, _ name: String) {
      var displaced: Entry?
      if side.entries.count == parameters.limit { displaced = side.removeOldest() }
      side.insert(entry)
      if !timer.isSet { setTimer() }
      if let displaced {
        displaced.event.keep(in: arena)
        reject(
          displaced.event.event, .limitReached,
          "join keeps \(Printable.count(parameters.limit, "event")) of the \(name) signal, its bound `limit`")
      }
    }

    private func send(_ first: Entry, _ second: Entry?) {
      first.event.keep(in: arena)
      second?.event.keep(in: arena)
      let event = first.event.event
      let other = second?.event.event.value ?? .null
      guard let builder else {
        emit(event.with(arena.list([event.value, other])))
        return
      }
      frame.set(0, other)
      if let value = build(builder, event, frame) { emit(event.with(value)) }
    }

    // MARK: Time

    /// Lets go of what is too old for a partner.
    private func expire() {
      while let oldest = right.entries.first, oldest.due <= now { _ = right.removeOldest() }
      while let oldest = left.entries.first, oldest.due <= now, !isClosed {
        _ = left.removeOldest()
        if !oldest.isMatched, parameters.unmatched == .send { send(oldest, nil) }
      }
    }

    private func setTimer() {
      let due = [left.entries.first?.due, right.entries.first?.due].compactMap { $0 }.min()
      if let due { timer = wake(at: due) }
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
      finishIfOver()
    }

    private func finishIfOver() {
      if left.hasEnded, right.hasEnded {
        while parameters.unmatched == .send, !isClosed, let entry = left.removeOldest() {
          if !entry.isMatched { send(entry, nil) }
        }
        finish()
      } else if left.hasEnded, left.entries.isEmpty {
        finish()
      } else if right.hasEnded, right.entries.isEmpty, parameters.unmatched == .drop {
        finish()
      }
    }

    override func stop() {
      cancelWake(&timer)
      left.removeAll()
      right.removeAll()
      super.stop()
    }

    override func save(_ state: inout StateWriter) {
      for side in [left, right] {
        state.write(each: side.entries) {
          $0.write($1.event)
          $0.write($1.key)
          $0.write($1.due)
          $0.write($1.isMatched)
        }
        state.write(side.hasEnded)
      }
      state.write(timer)
    }

    override func restore(_ state: inout StateReader) throws(StateFault) {
      for side in [left, right] {
        for _ in 0..<(try state.count()) {
          let entry = Entry(try state.read(), try state.read(), try state.read())
          entry.isMatched = try state.read()
          side.insert(entry)
        }
        side.hasEnded = try state.read()
      }
      timer = try state.read()
    }
  }
}
