internal import DequeModule

/// `distinct`: each value only once.
struct Distinct: FusableOperator {
  var by = ExpressionParameter()
  var memory = 10_000
  var within: TimeSpan?

  static let spec = ComponentSpec<Distinct>(
    "distinct",
    summary: "Drops events that have come before, as far as its memory reaches.",
    details: """
      It remembers the last `memory` different values that it passed on and then forgets the oldest; with `within`, \
      it remembers each value for that time. A forgotten value passes again. Values are compared by content: lists \
      by their elements, objects by their JSON text. With `by`, the result of the expression is compared; an event \
      for which it fails goes to the errors output.
      """,
    parameters: [
      .init("by", \.by, primary: true, "What to compare; the whole event if left out."),
      .init("memory", \.memory, range: 1...10_000_000, "How many values to remember."),
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
    private let known = KeyTable()
    /// The numbers of the texts in `known`, oldest first.
    private var order = Deque<(number: Int, since: Instant)>()
    /// For each number, one more than how many texts came before it; 0: it has no text.
    private var positions: [Int] = []
    /// The position of the oldest.
    private var first = 1
    private let pages = StatePages()
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
        while let oldest = order.first, oldest.since + within <= run.now { forgetOldest() }
      }
      let hash = known.hash(buffer.bytes)
      guard known.find(buffer.bytes, hash) == nil else { return .drop }
      if order.count == parameters.memory { forgetOldest() }
      append(known.insert(buffer.bytes, hash), run.now)
      countKept()
      return .pass
    }

    private func append(_ number: Int, _ since: Instant) {
      while positions.count <= number { positions.append(0) }
      positions[number] = first + order.count
      order.append((number, since))
      pages.mark(number)
    }

    private func countKept() { keptSize.set(keys: known.count, bytes: known.textBytes) }

    private func forgetOldest() {
      if let oldest = order.popFirst() {
        known.remove(oldest.number)
        positions[oldest.number] = 0
        first += 1
        pages.mark(oldest.number)
      }
      countKept()
    }

    override func save(_ state: inout StateWriter) {
      state.write(pages, keys: positions.count) { state, numbers in
        for number in numbers where positions[number] > 0 {
          state.write(positions[number])
          state.append(counted: known.text(number))
          state.write(order[positions[number] - first].since)
        }
      }
    }

    override func restore(_ state: inout StateReader) throws(StateFault) {
      var found: [(position: Int, number: Int, since: Instant)] = []
      func read(_ position: Int, _ state: inout StateReader, _ number: Int?) throws(StateFault) {
        guard let number = known.insertNew(try state.counted(), at: number) else {
          throw StateFault("a value is there twice")
        }
        found.append((position, number, try state.read()))
      }
      func appendAll() throws(StateFault) {
        found.sort { $0.position < $1.position }
        first = found.first?.position ?? 1
        for entry in found {
          guard entry.position == first + order.count else { throw StateFault("its values have no order") }
          append(entry.number, entry.since)
        }
        countKept()
      }
      guard state.version < 3 else {
        return try state.readPages(
          pages,
          { (state, number) throws(StateFault) in try read(try state.read(in: 1...Int.max / 2), &state, number) },
          then: appendAll)
      }
      for position in 0..<(try state.count()) { try read(position + 1, &state, nil) }
      try appendAll()
    }
  }
}
