internal import DequeModule

/// `distinct`: each value only once.
struct Distinct: FusableOperator, SpillingOperator {
  var by = ExpressionParameter()
  var memory = 10_000
  var within: TimeSpan?

  static let spec = ComponentSpec<Distinct>(
    "distinct",
    summary: "Drops events that have occurred before, as far as its memory reaches.",
    details: """
      It remembers the last `memory` different values that it passed on and then forgets the oldest; with `within`, \
      it remembers each value for that time. A forgotten value passes again. Values are compared by content: lists \
      by their elements, objects by their JSON text. With `by`, the result of the expression is compared; an event \
      for which it fails goes to the errors output. \
      With `state: { memory: SIZE }` at the top of the file, the oldest values are kept on the disk instead of in memory.
      """,
    parameters: [
      .init("by", \.by, primary: true, "What to compare; the whole event if left out."),
      .init("memory", \.memory, range: 1...1_000_000_000, "How many values to remember."),
      .init(
        "within", \.within, range: 1...Int64.max,
        """
        How long to remember a value; without it, as long as there is room.
        """
      ),
    ],
    examples: [
      .marble("each once", "distinct", in: "1-2-1-3-2-|", out: "1-2---3---|"),
      .marble(
        "by a field", "distinct: event.id", in: "a-b-c-|", out: "a---c-|",
        values: ["a": "{id: 1, n: 1}", "b": "{id: 1, n: 2}", "c": "{id: 2, n: 3}"]),
      .marble("a short memory", "distinct: { memory: 1 }", in: "1-1-2-1-|", out: "1---2-1-|"),
      .marble("for a while", "distinct: { within: 3ms }", in: "1-1-1-1|", out: "1---1--|"),
    ],
    memory:
      "The bytes of at most `memory` values, each for at most `within`; the oldest is forgotten first.",
    persistence: .state(version: 3),
    lateness: .always("a value that was remembered for long enough is forgotten") { distinct, _ in
      distinct.within == nil ? "it keeps no time without 'within'" : nil
    },
    knownAs: ["RxJS distinct", "Benthos dedupe", "Vector dedupe"],
    useCases: [
      .init(.choosing, "drop repeated values, however long ago", "distinct"),
      .init(.choosing, "let each client through once", "distinct: { by: event.client, memory: 100000 }"),
      .init(.choosing, "suppress the same alarm for an hour", "distinct: { by: event.alarm, within: 1h }"),
    ],
    seeAlso: ["distinctUntilChanged"])

  func makeStep() -> FusedStep { Step(self) }

  final class Step: FusedStep {
    private let parameters: Distinct
    private let program: Program?
    /// The texts in memory.
    private let known = KeyTable()
    /// The numbers of the texts in `known`, oldest first.
    private var order = Deque<(number: Int, since: Instant)>()
    /// For each number, one more than how many texts came before it; 0: it has no text.
    private var positions: [Int] = []
    /// The position of the oldest text in memory.
    private var first = 1
    /// The position of the oldest text that is remembered; those before `first` are on the disk.
    private var oldest = 1
    private let pages = StatePages()
    /// The texts on the disk; nil: all stay in memory.
    private var spilled: SpilledKeys?
    private let buffer = OutputBuffer()

    init(_ parameters: Distinct) {
      self.parameters = parameters
      program = parameters.by.program
    }

    override func apply(_ event: inout Event, _ frame: EventFrame, _ run: FusedRun) -> StepVerdict {
      var value = event.value
      if let program {
        value = program.evaluate(frame)
        if value.isError { return failed(event, value, program, frame, run) }
      }
      buffer.clear()
      KeyText.append(value, to: buffer, Context(state: frame.evaluation))
      if let within = parameters.within {
        while let oldest = order.first, oldest.since + within <= run.now { forgetFirst() }
      }
      let hash = known.hash(buffer.bytes)
      guard known.find(buffer.bytes, hash) == nil else { return .drop }
      if let spilled, oldest < first {
        do throws(SpillFault) {
          if try isOnDisk(buffer.bytes, spilled, run.now) { return .drop }
        } catch {
          return refused(event, .keysUnreadable, "the keys on the disk cannot be read: \(error.message)", run)
        }
      }
      if next - oldest == parameters.memory { forgetOldest() }
      append(known.insert(buffer.bytes, hash), run.now)
      if let spilled {
        spilled.add(buffer.bytes.count)
        if let limit = spilled.limit(from: first, next: next) { spill(below: limit, spilled) }
      }
      countKept()
      return .pass
    }

    /// The position of the next text.
    private var next: Int { first + order.count }

    private func append(_ number: Int, _ since: Instant) {
      while positions.count <= number { positions.append(0) }
      positions[number] = next
      order.append((number, since))
      pages.mark(number)
    }

    private func countKept() { keptSize.set(keys: next - oldest, bytes: known.textBytes) }

    private func forgetOldest() {
      if oldest < first { oldest += 1 } else { forgetFirst() }
      countKept()
    }

    /// Forgets the oldest text in memory, and all that are older.
    private func forgetFirst() {
      removeFirst()
      oldest = first
      countKept()
    }

    private func removeFirst() {
      guard let text = order.popFirst() else { return }
      spilled?.remove(known.text(text.number).count)
      known.remove(text.number)
      positions[text.number] = 0
      first += 1
      pages.mark(text.number)
    }

    // MARK: Texts on the disk

    private func isOnDisk(
      _ text: UnsafeRawBufferPointer, _ spilled: SpilledKeys, _ now: Instant
    ) throws(SpillFault) -> Bool {
      // A text that was forgotten may still be there, and one that came again since has another position.
      guard let found = try spilled.find(text), found.rank >= oldest, found.rank < first else { return false }
      guard let within = parameters.within else { return true }
      return spilled.epoch + TimeSpan(nanoseconds: found.time) + within > now
    }

    /// Moves the texts with positions below `limit` to the disk.
    private func spill(below limit: Int, _ spilled: SpilledKeys) {
      let count = limit - first
      let texts = order.prefix(count).enumerated().map { index, text in
        (
          key: known.text(text.number),
          value: SpilledValue(rank: first + index, time: (text.since - spilled.epoch).nanoseconds)
        )
      }
      guard spilled.write(texts) else { return }
      for _ in 0..<count { removeFirst() }
    }

    /// The lower bounds of the keys that are still needed on the disk.
    private func leastOnDisk(_ spilled: SpilledKeys, _ now: Instant) -> SpilledValue {
      let time = parameters.within.map { (now - spilled.epoch - $0).nanoseconds }
      return SpilledValue(rank: oldest, time: time ?? .min)
    }

    // MARK: State

    override func save(_ state: inout StateWriter) {
      state.write(pages, keys: positions.count) { state, numbers in
        for number in numbers where positions[number] > 0 {
          state.write(positions[number])
          state.append(counted: known.text(number))
          state.write(order[positions[number] - first].since)
        }
      }
      if spilled == nil, let spilling = state.spilling(pages) {
        take(SpilledKeys(spilling, owner: pages.owner, epoch: state.now))
      }
      guard let spilled else { return }
      if spilled.isUsed {
        state.write(oldest)
        state.write(first)
      }
      spilled.save(&state, next: next, least: leastOnDisk(spilled, state.now))
    }

    private func take(_ spilled: SpilledKeys) {
      self.spilled = spilled
      for text in order { spilled.add(known.text(text.number).count) }
    }

    override func restore(_ state: inout StateReader) throws(StateFault) {
      var found: [(position: Int, number: Int, since: Instant)] = []
      func read(_ position: Int, _ state: inout StateReader, _ number: Int?) throws(StateFault) {
        guard let number = known.insertNew(try state.counted(), at: number) else {
          throw StateFault("a value is repeated")
        }
        found.append((position, number, try state.read()))
      }
      func appendAll() throws(StateFault) {
        found.sort { $0.position < $1.position }
        first = found.first?.position ?? 1
        oldest = first
        for entry in found {
          guard entry.position == next else { throw StateFault("its values have no order") }
          append(entry.number, entry.since)
        }
        countKept()
      }
      guard state.version < 3 else {
        try state.readPages(
          pages,
          { (state, number) throws(StateFault) in try read(try state.read(in: 1...Int.max / 2), &state, number) },
          then: appendAll)
        return try restoreSpilled(&state)
      }
      for position in 0..<(try state.count()) { try read(position + 1, &state, nil) }
      try appendAll()
    }

    private func restoreSpilled(_ state: inout StateReader) throws(StateFault) {
      guard !state.isAtEnd else { return }
      let (oldest, first) = (try state.read(in: 1...Int.max / 2), try state.read(in: 1...Int.max / 2))
      guard oldest <= first, order.isEmpty || first == self.first else { throw StateFault("its values have no order") }
      self.first = first
      self.oldest = oldest
      take(try SpilledKeys(&state, next: next))
      countKept()
    }
  }
}
