import PipelineCore
import PipelineRuntime
import Synchronization

/// `countdown`: whole numbers down to 1, one for each `every`.
struct Countdown: SourceComponent {
  var from = 0
  var every = TimeSpan.milliseconds(1)

  static let spec = ComponentSpec<Countdown>(
    "countdown", summary: "Counts down to 1.",
    parameters: [
      .init("from", \.from, primary: true, required: true, range: 1...1_000_000, "The first number."),
      .init("every", \.every, range: 0...Int64.max, "The time from one number to the next."),
    ])

  func makeSource(_ nodeContext: NodeContext, downstream: Downstream) -> RunningSource {
    Node(self, nodeContext, downstream)
  }

  final class Node: RunningSource {
    private var next: Int
    private let every: TimeSpan
    private var timer = Wake.none

    init(_ parameters: Countdown, _ nodeContext: NodeContext, _ downstream: Downstream) {
      next = parameters.from
      every = parameters.every
      super.init(nodeContext, downstream: downstream)
    }

    override func begin() { woke(0) }

    override func woke(_ token: Int) {
      produce(.int(next))
      next -= 1
      if next == 0 { finish() } else { timer = wake(after: every) }
    }

    override func stop() { cancelWake(&timer) }
  }
}

/// `parity`: makes an object of each whole number, and drops numbers for which `unless` holds.
struct Parity: PureOperator {
  var unless = ExpressionParameter()

  static let changesValue = true

  static let spec = ComponentSpec<Parity>(
    "parity", summary: "Tells even numbers from odd ones.",
    parameters: [.init("unless", \.unless, expecting: .bool, "The condition that drops a number.")],
    examples: [
      .marble(
        "two numbers", "parity", in: "1-2|", out: "a-b|",
        values: ["a": "{n: 1, parity: odd}", "b": "{n: 2, parity: even}"])
    ])

  func makePureStep() -> PureStep { Step(unless.isGiven ? unless.required : nil) }

  final class Step: PureStep {
    private let condition: Program?

    init(_ condition: Program?) { self.condition = condition }

    override func transform(_ value: inout Value, _ frame: EventFrame) -> PureVerdict {
      if let condition, case .yes = condition.evaluateBool(frame) { return .drop }
      guard let number = value.int else {
        return refuse(.unexpectedValue, "parity takes whole numbers, not \(value.kindName)", frame)
      }
      value = frame.arena.map(["n": value, "parity": .literal(number % 2 == 0 ? "even" : "odd")])
      return .pass
    }
  }
}

/// `collect`: keeps events as lines of JSON in ``lines``.
struct Collect: SinkComponent {
  static let lines = Mutex<[String]>([])

  static let spec = ComponentSpec<Collect>("collect", summary: "Keeps events in memory.")

  func makeSink(_ nodeContext: NodeContext) -> RunningSink { Node(nodeContext) }

  final class Node: RunningSink {
    override func receive(_ event: Event) {
      let parity = execution.member("parity", of: event.value).text ?? "none"
      guard let json = event.value.json else {
        reject(event, "the event has no JSON form")
        return
      }
      Collect.lines.withLock { $0.append("\(parity): \(json)") }
      delivered()
    }
  }
}

let catalogue = Catalogue.builtIn.adding(
  Catalogue([
    CatalogueEntry(source: Countdown.self), CatalogueEntry(row: Parity.self), CatalogueEntry(sink: Collect.self),
  ]))
let pipeline = try Pipeline(
  """
  sources: { numbers: { countdown: 4 } }
  sinks: { out: { from: numbers, chain: [ { parity: { unless: event == 3 } } ], collect: {} } }
  """, catalogue: catalogue)
let outcome = pipeline.run()
guard case .completed = outcome else { fatalError("the pipeline ended with \(outcome)") }
for line in Collect.lines.withLock({ $0 }) { print(line) }
