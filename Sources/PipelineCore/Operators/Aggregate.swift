/// `aggregate`: a fold whose result comes at the end.
struct Aggregate: RowOperator {
  var start = LiteralParameter()
  var next = ExpressionParameter()

  static let changesValue = true

  static let spec = ComponentSpec<Aggregate>(
    "aggregate",
    summary: "Folds all events into one value and sends it when the signal completes.",
    details: """
      `next` sees `running`, `event` and `index` as in `scan`. Without any event the start value is \
      sent. An error of the signal is passed on alone.
      """,
    parameters: [
      .init("start", \.start, whole: true, "The value before the first event."),
      .init(
        "next", \.next, required: true, variables: [("running", .dyn), ("index", .int)],
        "The new value."),
    ],
    examples: [
      .marble("a sum", "aggregate: { start: 0, next: running + event }", in: "1-2-3|", out: "-----(6|)"),
      .marble("of nothing", "aggregate: { start: 0, next: running + event }", in: "--|", out: "--(0|)"),
      .marble(
        "of a signal that fails", "aggregate: { start: 0, next: running + event }", in: "1-#",
        out: "--#"),
    ],
    edges: EdgeCases(
      empty: "Sends the start value, then completes.", error: "Passed on at once; the running value is dropped.",
      completion: "Sends the value, then completes.", disposal: "Leaves the input; what is kept is lost."),
    keeps: "The running value.", carries: .state(version: 2), rivals: ["RxJS reduce", "Combine reduce"],
    wants: [
      .init(.gathering, "have one total at the end", "aggregate: { start: 0, next: running + event.bytes }"),
      .init(.gathering, "fold a whole file into one object", "aggregate: { start: {}, next: \"running\" }"),
    ],
    seeAlso: ["scan", "collect"])

  func outputType(_ inputs: [EventType]) -> EventType { .dyn }

  func makeStep() -> RowStep { Step(start.value, next.required) }

  final class Step: RowStep {
    @exclusivity(unchecked) private var running: OwnedValue
    @exclusivity(unchecked) private var index: Int64 = 0
    private let program: Program
    /// How many members the program's value has, if it is written as a map; else 0.
    private let memberCount: UInt8
    /// `running` is such a value, and its members are scalars: the next one needs no more than their places.
    @exclusivity(unchecked) private var isInPlace = false

    init(_ start: OwnedValue, _ program: Program) {
      running = start
      self.program = program
      memberCount = UInt8(program.memberCount)
    }

    override func apply(_ event: inout Event, _ frame: EventFrame, _ run: RowRun) -> RowVerdict {
      frame.set(0, running.value)
      frame.set(1, .int(index))
      if isInPlace, foldInPlace(frame) {
        index &+= 1
        return .drop
      }
      return fold(event, frame, run)
    }

    @inline(__always)
    private func foldInPlace(_ frame: EventFrame) -> Bool {
      withUnsafeTemporaryAllocation(of: Value.self, capacity: Program.memberLimit) { members in
        guard let first = members.baseAddress, program.evaluateMembers(frame, into: first) else { return false }
        return running.overwriteMembers(with: first)
      }
    }

    @inline(never)
    private func fold(_ event: Event, _ frame: EventFrame, _ run: RowRun) -> RowVerdict {
      let value = program.evaluate(frame)
      if value.isError {
        _ = failed(event, value, program, frame, run)
      } else if value.isDeeper(than: Scan.Step.depthLimit) {
        run.rejectRow(
          event, .limitReached, "aggregate's value is nested more than \(Scan.Step.depthLimit) deep")
      } else {
        index &+= 1
        running.assign(value)
        isInPlace = memberCount > 0 && running.isMap(ofScalars: Int(memberCount))
      }
      return .drop
    }

    override func complete(_ run: RowRun) -> Value? { running.value }

    override func save(_ state: inout StateWriter) {
      state.write(running)
      state.write(index)
    }

    override func restore(_ state: inout StateReader) throws(StateFault) {
      running = try state.read()
      index = try state.read()
      isInPlace = false
    }
  }
}
