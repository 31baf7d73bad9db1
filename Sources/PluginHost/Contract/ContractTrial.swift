import PipelineCore

/// A component with parameters under test, and the common state of its checks.
final class ContractTrial {
  let suite: ContractSuite
  let one: ContractCase
  /// The working directory of the running check.
  var directory: ScratchDirectory?
  /// Whether its answers differ from run to run, so that nothing can be compared.
  var varies = false

  private var opened: String??
  private var known: Timeline?

  init(_ suite: ContractSuite, _ one: ContractCase) {
    self.suite = suite
    self.one = one
  }

  var spec: PluginComponentSpec { one.spec }
  var hasState: Bool { spec.stateVersion > 0 }
  var timeout: TimeSpan { suite.timeout }

  func program(
    _ options: [String] = [], pieces: UInt64 = 0, environment: [String: String] = [:]
  ) throws(ContractBreach) -> TestedProgram {
    try TestedProgram(
      suite.command(directory?.path ?? "/", options), pieces: pieces, environment: environment)
  }

  /// Opens an instance, which must not be refused.
  func open(_ program: TestedProgram, _ more: String = "") throws(ContractBreach) -> TestedInstance {
    let instance = try program.open(spec, one.parameters, more)
    if let refusal = instance.refusal {
      throw ContractBreach(
        expected: "an opened instance, as the first time", came: "it refuses: \(refusal)",
        help: "Resources of one instance must not keep another from opening")
    }
    return instance
  }

  /// The reason why nothing can be tested with these parameters; nil: the instance opens, or its refusal is a finding of its own.
  var whyNotOpen: String? {
    if let opened { return opened }
    var found: String?
    do throws(ContractBreach) {
      directory = try ScratchDirectory(copying: suite.files)
      defer { directory = nil }
      let program = try program()
      defer { program.kill() }
      found = try program.open(spec, one.parameters).refusal.map { "'open' is refused: \($0)" }
    } catch {}
    opened = .some(found)
    return found
  }

  /// The members of `open` for a saved state.
  func restoring(_ state: String) -> String { ",\"stateVersion\":\(spec.stateVersion),\"state\":\(state)" }

  /// Whether the loss of a process without saved state is visible in the answers.
  var remembers: Bool { !spec.memory.isEmpty || spec.setsTimers }

  // MARK: Runs of an operator

  /// The inputs of an operator in order, on virtual time, and its answers.
  struct Timeline {
    var steps: [(step: TestedStep, now: Int64)] = []
    var outcomes: [TestedAnswer.Outcome] = []
    /// The output has completed before the input.
    var hasFinished = false

    /// The number of inputs after which the output is still open.
    var openCount: Int { hasFinished ? max(0, steps.count - 1) : steps.count }
  }

  private static let start: Int64 = 1_767_225_600_000_000_000

  /// A plain run: every input, the timers that become due in the middle and at the end, and the completion.
  func reference() throws(ContractBreach) -> Timeline {
    if let known { return known }
    let program = try program()
    defer { program.kill() }
    let instance = try open(program)
    var timeline = Timeline()
    timeline.hasFinished = instance.hasFinished
    var now = Self.start
    var timers: [String: Int64] = [:]
    func ask(_ step: TestedStep) throws(ContractBreach) {
      guard !instance.hasFinished else { return }
      let answer = try program.ask(instance, step, now: time(now))
      for (name, after) in answer.timers { timers[name] = after.map { now &+ $0 } }
      timeline.steps.append((step, now))
      timeline.outcomes.append(answer.outcome)
      timeline.hasFinished = instance.hasFinished
    }
    func fire(_ most: Int) throws(ContractBreach) {
      for _ in 0..<most {
        guard let next = timers.min(by: { ($0.value, $0.key) < ($1.value, $1.key) }) else { return }
        timers[next.key] = nil
        now = max(now, next.value)
        try ask(.timer(next.key))
      }
    }
    for (index, input) in one.inputs.enumerated() {
      now += 1_000_000
      try ask(input)
      if index % 7 == 3 { try fire(1) }
    }
    try fire(10)
    try ask(.complete)
    known = timeline
    return timeline
  }

  /// The time sent with an input, if the component asks for it.
  func time(_ now: Int64) -> Int64? { spec.hasClock ? now : nil }

  /// Runs the steps one after the other.
  func ask(
    _ program: TestedProgram, _ instance: TestedInstance, _ steps: some Sequence<(step: TestedStep, now: Int64)>
  ) throws(ContractBreach) -> [TestedAnswer.Outcome] {
    var outcomes: [TestedAnswer.Outcome] = []
    for (step, now) in steps { outcomes.append(try program.ask(instance, step, now: time(now)).outcome) }
    return outcomes
  }

  /// Throws at the first difference. `what`: how the run differs from the plain run.
  func compare(
    _ expected: [TestedAnswer.Outcome], _ found: [TestedAnswer.Outcome], _ what: String, help: String
  ) throws(ContractBreach) {
    for (index, (one, other)) in zip(expected, found).enumerated() where one != other {
      throw ContractBreach(
        expected: "\(one.shown), as answer \(index + 1) of a plain run", came: "\(other.shown), \(what)", help: help)
    }
    guard expected.count == found.count else {
      throw ContractBreach(
        expected: "\(expected.count) answers, as in a plain run", came: "\(found.count), \(what)", help: help)
    }
  }

  /// Small inputs, where many are needed.
  var smallInputs: [TestedStep] {
    one.inputs.filter { if case .event(let members) = $0 { members.utf8.count < 500 } else { false } }
  }
}

/// One check of a component with parameters.
struct Check {
  var id: String
  /// One sentence.
  var title: String
  var kinds: Set<ComponentKind>
  /// Whether it runs once for a component, not once for each example.
  var isOfComponent = false
  var run: (ContractTrial) throws(ContractBreach) -> ContractSuite.Finding.Verdict

  init(
    _ id: String, _ title: String, _ kinds: Set<ComponentKind>, isOfComponent: Bool = false,
    _ run: @escaping (ContractTrial) throws(ContractBreach) -> ContractSuite.Finding.Verdict
  ) {
    self.id = id
    self.title = title
    self.kinds = kinds
    self.isOfComponent = isOfComponent
    self.run = run
  }

  static var all: [Check] {
    [
      Check(
        "open", "Instances open, two of them in one process, and close; further members and pings do no harm.",
        [.source, .operator, .sink], Check.open),
      Check(
        "parameters", "Unknown, odd and extreme parameters are taken or refused with a reason.",
        [.source, .operator, .sink], isOfComponent: true, Check.parameters),
      Check(
        "answers", "Each input is answered once, in order; the same inputs give the same answers.", [.operator, .sink],
        Check.answers),
      Check("types", "What it sends is of the type that the spec declares.", [.operator, .source], Check.types),
      Check(
        "credit", "As many inputs as its credit wait at once; a source sends no more than it may.",
        [.source, .operator, .sink], Check.credit),
      Check(
        "pieces", "Frames that come in pieces, with members that the program does not know.", [.operator, .sink],
        Check.pieces),
      Check(
        "finish", "An instance that has completed its output sends nothing more, whatever it was given before.",
        [.operator],
        Check.finish),
      Check("instances", "Two instances in one process share no state.", [.operator], Check.instances),
      Check(
        "state", "The state is saved and restored at every instant; the answers do not change.", [.operator],
        Check.state),
      Check(
        "kill",
        "Killed with unanswered inputs at many points, it continues in a new process as if nothing had happened.",
        [.operator, .sink], Check.kill),
      Check(
        "retry", "Events that a sink wants to receive again are answered when they are repeated.", [.sink], Check.retry),
      Check(
        "tokens", "A source completes when its tokens are acknowledged, and accepts failed ones.", [.source],
        Check.tokens),
      Check(
        "position", "A source that is opened with a position continues after it; every position is tried.", [.source],
        Check.position),
      Check(
        "stop", "It ends when its input ends, also in the middle of work; a source that is stopped completes.",
        [.source, .operator, .sink], Check.stop),
      Check(
        "memory", "Many events do not make it grow, unless its spec says what it keeps.", [.operator, .sink],
        isOfComponent: true, Check.memory),
      Check("log", "It does not flood the log.", [.operator, .sink], isOfComponent: true, Check.log),
      Check(
        "lifetimes", "It reads no memory that is freed, or was never written.", [.operator, .sink], Check.lifetimes),
      Check(
        "threads", "A pure function gives the same on several threads at once.", [.operator], isOfComponent: true,
        Check.threads),
    ]
  }
}
