/// The parts of a pipeline that its tests have reached: steps, branches, errors outputs, sinks.
///
/// Counts over all tests of one file. In a counted pipeline each fused step runs separately, so that the events between
/// steps can be seen; it is slower and behaves the same.
public final class TestCoverage {
  /// The counters of one step.
  private struct Counts {
    var received = 0
    /// Of these, the events of the first inlet.
    var receivedFirst = 0
    var failures = 0
    var sent = 0
    /// How often each inlet was subscribed, by number.
    var subscriptions: [Int: Int] = [:]
  }

  public enum Category: String, Sendable, CaseIterable {
    case operators, branches, errors, sinks
  }

  /// One point that tests can reach.
  public struct Point: Sendable {
    public var category: Category
    public var location: SourceLocation
    public var isReached: Bool
    /// What is not covered, a sentence without a full stop.
    public var message: String
    /// Whether the message of the step itself already implies it.
    public var isImplied = false
  }

  private let plan: Plan
  private var steps: [Counts]
  private var errors: [ErrorsOwner: Int] = [:]
  /// The runs, taken apart into steps.
  private var chains: [ObjectIdentifier: SignalPlan] = [:]

  public init(_ plan: Plan) {
    self.plan = plan
    steps = Array(repeating: Counts(), count: plan.steps.count)
  }

  /// `execution` runs the plan, or the plan with another environment.
  func watch(_ execution: Execution) {
    guard execution.plan.steps.count == steps.count else { return }
    execution.subscriptionProbe = Probe(self)
  }

  // MARK: What is there, and what of it was reached

  public var points: [Point] {
    var walk = Walk(plan: plan)
    for named in plan.named { walk.visit(named.body) }
    for sink in plan.sinks { walk.visit(sink.input) }
    var points: [Point] = []
    for (step, component) in walk.components.sorted(by: { $0.key < $1.key }) {
      points += self.points(step, component)
    }
    let owners = plan.named.indices.map { ErrorsOwner.named($0) } + plan.sinks.indices.map { .sink($0) }
    for owner in owners where walk.errors.contains(owner) {
      let (name, location) = plan.name(of: owner)
      points.append(
        Point(
          category: .errors, location: location, isReached: errors[owner, default: 0] > 0,
          message: "'\(name).errors' sends nothing"))
    }
    for sink in plan.sinks {
      points.append(
        Point(
          category: .sinks, location: sink.location, isReached: steps[sink.step.number].received > 0,
          message: "the sink '\(sink.name)' gets nothing"))
    }
    return points
  }

  private func points(_ step: Int, _ component: (any Component)?) -> [Point] {
    let info = plan.steps[step]
    let counts = steps[step]
    let isReached: Bool
    let message: String
    var branches: [(isReached: Bool, message: String)] = []
    switch component {
    case is any SourceComponent:
      isReached = counts.sent > 0 || counts.failures > 0
      message = "the source '\(info.keyword)' sends nothing"
    case is Command:
      isReached = counts.subscriptions.contains { $0.key > 0 }
      message = "the command '\(info.owner)' is not executed"
    default:
      isReached = counts.received > 0 || counts.failures > 0
      message = "no event comes to '\(info.keyword)'"
    }
    switch component {
    case let branching as any BranchingOperator:
      branches = branching.branches.choices.map { choice in
        (counts.subscriptions[choice.input] != nil, "'\(info.keyword)' never takes '\(choice.name)'")
      }
    case is Filter:
      branches = [
        (counts.sent > 0, "'filter' lets nothing pass"), (counts.received > counts.sent, "'filter' drops nothing"),
      ]
    case is Catch:
      branches = [
        (counts.receivedFirst > 0, "nothing comes to 'catch' but errors"),
        (counts.failures > 0, "no error comes to 'catch'"),
      ]
    case is Retry: branches = [(counts.failures > 0, "no error comes to 'retry'")]
    default: break
    }
    let own = Point(category: .operators, location: info.location, isReached: isReached, message: message)
    return [own]
      + branches.map {
        Point(
          category: .branches, location: info.location, isReached: $0.isReached, message: $0.message,
          isImplied: !isReached)
      }
  }

  /// Everything in a plan that tests can reach.
  private struct Walk {
    let plan: Plan
    /// The components by step number.
    var components: [Int: any Component] = [:]
    var errors: Set<ErrorsOwner> = []

    mutating func visit(_ signal: SignalPlan) {
      switch signal.kind {
      case .named, .input: break
      case .errors(let owner): errors.insert(owner)
      case .source(let component, _):
        components[signal.step.number] = component
        for inner in component.innerPlans { visit(inner) }
      case .node(let component, _, let inputs):
        // The outputs of a command are no steps, nor is the node that holds it.
        if !(component is CommandOutput || component is CommandHold) { components[signal.step.number] = component }
        for input in inputs { visit(input) }
        for inner in component.innerPlans { visit(inner) }
      case .run(let run, let input):
        for step in run.parts.flatMap(\.steps) { components[step.id.number] = step.component }
        visit(input)
      }
    }
  }

  // MARK: Counting

  fileprivate func chain(_ signal: SignalPlan) -> SignalPlan {
    guard case .run(let run, let input) = signal.kind, run.parts.reduce(0, { $0 + $1.steps.count }) > 1 else {
      return signal
    }
    if let chain = chains[ObjectIdentifier(signal)] { return chain }
    var result = input
    for part in run.parts {
      for step in part.steps {
        let single = FusedRunPlan(parts: [.init(segment: part.segment, steps: [step])])
        result = SignalPlan(.run(single, input: result), step: step.id, type: signal.type)
      }
    }
    // The parts live as long as the plan: nodes refer to them unowned.
    chains[ObjectIdentifier(signal)] = result
    kept.append(signal)
    return result
  }

  private var kept: [SignalPlan] = []

  fileprivate func subscribed(_ consumer: StepID?, _ inlet: Int) {
    if let consumer { steps[consumer.number].subscriptions[inlet, default: 0] += 1 }
  }

  fileprivate func passed(from producer: StepID?, errors owner: ErrorsOwner?, to consumer: StepID?, _ inlet: Int) {
    if let producer { steps[producer.number].sent += 1 }
    if let owner { errors[owner, default: 0] += 1 }
    guard let consumer else { return }
    steps[consumer.number].received += 1
    if inlet == 0 { steps[consumer.number].receivedFirst += 1 }
  }

  fileprivate func failed(from producer: StepID?, to consumer: StepID?) {
    if let producer { steps[producer.number].failures += 1 }
    if let consumer { steps[consumer.number].failures += 1 }
  }
}

/// Puts a counter downstream of every subscription.
private final class Probe: SubscriptionProbe {
  let coverage: TestCoverage
  init(_ coverage: TestCoverage) { self.coverage = coverage }

  func subscribe(
    _ signal: SignalPlan, _ scope: Scope, to downstream: Downstream, in execution: Execution
  ) -> any Subscription {
    let signal = coverage.chain(signal)
    let counter = Counter(coverage, signal, downstream, execution)
    coverage.subscribed(counter.consumer, counter.inlet)
    let subscription = execution.make(signal, scope, to: counter)
    return Counted(subscription, counter)
  }
}

private final class Counter: Downstream {
  private let coverage: TestCoverage
  private let next: Unmanaged<Downstream>
  private unowned let execution: Execution
  private let producer: StepID?
  private let errors: ErrorsOwner?
  let consumer: StepID?
  let inlet: Int

  init(_ coverage: TestCoverage, _ signal: SignalPlan, _ next: Downstream, _ execution: Execution) {
    self.coverage = coverage
    self.next = .passUnretained(next)
    self.execution = execution
    switch signal.kind {
    case .source, .node, .run: producer = signal.step
    case .named, .errors, .input: producer = nil
    }
    inlet = (next as? Inlet)?.number ?? 0
    errors = if case .errors(let owner) = signal.kind { owner } else { nil }
    consumer =
      switch next {
      case let inlet as Inlet: inlet.step
      case let node as OperatorNode: node.nodeContext.step
      case let sink as RunningSink: sink.nodeContext.step
      case let audit as SinkAudit: audit.step
      default: nil
      }
    super.init()
  }

  override func receive(_ event: Event) {
    coverage.passed(from: producer, errors: errors, to: consumer, inlet)
    next._withUnsafeGuaranteedRef { $0.receive(event) }
  }

  override func complete() {
    releaseLater()
    next._withUnsafeGuaranteedRef { $0.complete() }
  }

  override func fail(_ failure: SignalFailure) {
    coverage.failed(from: producer, to: consumer)
    releaseLater()
    next._withUnsafeGuaranteedRef { $0.fail(failure) }
  }

  /// Control may be inside when the subscription is released.
  func releaseLater() { execution.executor.releaseLater(self) }
}

/// A subscription with its counter.
private final class Counted: Subscription {
  private let subscription: any Subscription
  private let counter: Counter

  init(_ subscription: any Subscription, _ counter: Counter) {
    self.subscription = subscription
    self.counter = counter
  }

  var isClosed: Bool { subscription.isClosed }

  func cancel() {
    counter.releaseLater()
    subscription.cancel()
  }
}

extension TestCoverage {
  /// The share of points reached.
  public struct Share: Sendable, CustomStringConvertible {
    public var reached: Int
    public var total: Int

    public init(_ points: [Point]) {
      reached = points.count { $0.isReached }
      total = points.count
    }

    /// In percent; 100 without points.
    public var percent: Double { total == 0 ? 100 : Double(reached) * 100 / Double(total) }

    public var description: String { "\(reached)/\(total)" }
  }
}
