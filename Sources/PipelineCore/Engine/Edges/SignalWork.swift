/// How a signal with steps runs: the kinds of ``SignalWork``.
class RunnableWork: SignalWork, @unchecked Sendable {
  let segment: Segment

  init(_ segment: Segment) { self.segment = segment }

  func steps(from first: StepID) -> [SignalPlan.Step] { [] }
  var source: (any SourceDeclaration)? { nil }
  var settles: Bool { false }
  var persistence: Persistence { .nothing }
  var isFused: Bool { false }
  var isPure: Bool { false }

  /// Makes the node of one subscription, which sends over `edge`; it is not started.
  func makeNode(_ nodeContext: NodeContext, _ edge: Edge) -> OperatorNode {
    preconditionFailure("each kind of signal makes its own nodes")
  }
}

/// Runs a source.
final class SourceWork: RunnableWork, @unchecked Sendable {
  fileprivate let component: any SourceComponent

  init(_ component: any SourceComponent, _ segment: Segment) {
    self.component = component
    super.init(segment)
  }

  override func steps(from first: StepID) -> [SignalPlan.Step] { [.init(first, component)] }
  override var source: (any SourceDeclaration)? { component }
  override var persistence: Persistence { component.persistence }
  override func makeNode(_ nodeContext: NodeContext, _ edge: Edge) -> OperatorNode {
    nodeContext.execution.makeSource(component, nodeContext, edge)
  }
}

extension SignalPlan {
  /// The source that runs, if the signal is a source.
  var sourceComponent: (any SourceComponent)? { (work as? SourceWork)?.component }
}

/// One operator, combination or command with its own node.
final class OperatorWork: RunnableWork, @unchecked Sendable {
  private let component: any OperatorComponent

  init(_ component: any OperatorComponent, _ segment: Segment) {
    self.component = component
    super.init(segment)
  }

  override func steps(from first: StepID) -> [SignalPlan.Step] { [.init(first, component)] }
  override var settles: Bool { component.settles }
  override var persistence: Persistence { component.persistence }
  override func makeNode(_ nodeContext: NodeContext, _ edge: Edge) -> OperatorNode {
    edge.downstream._withUnsafeGuaranteedRef { component.makeNode(nodeContext, downstream: $0) }
  }
}

/// A fused run: consecutive steps in one node.
final class FusedWork: RunnableWork, @unchecked Sendable {
  let plan: FusedRunPlan

  init(_ plan: FusedRunPlan) {
    self.plan = plan
    super.init(.empty)
  }

  override func steps(from first: StepID) -> [SignalPlan.Step] {
    plan.parts.enumerated().flatMap { number, part in part.steps.map { .init($0.id, $0.component, reading: number) } }
  }
  override var settles: Bool { plan.parts.contains { $0.steps.contains { $0.component.settles } } }
  override var isFused: Bool { true }
  override var isPure: Bool { plan.isPure }
  override func makeNode(_ nodeContext: NodeContext, _ edge: Edge) -> OperatorNode {
    edge.downstream._withUnsafeGuaranteedRef { FusedRun.make(plan, nodeContext, downstream: $0) }
  }
}

/// A sink that can run.
final class RunnableSink: SinkWork {
  let sink: any SinkComponent
  var component: any SinkDeclaration { sink }

  init(_ sink: any SinkComponent) { self.sink = sink }
}

extension SinkPlan {
  /// The component that runs.
  package var sink: any SinkComponent {
    guard let work = work as? RunnableSink else { preconditionFailure("the compiler takes sinks that run") }
    return work.sink
  }
}

extension FusableOperator {
  public func makeNode(_ nodeContext: NodeContext, downstream: Downstream) -> OperatorNode {
    FusedRun.make(
      FusedRunPlan(parts: [.init(segment: nodeContext.segment, steps: [.init(id: nodeContext.step, component: self)])]),
      nodeContext, downstream: downstream)
  }
}
