/// How the steps of a signal run. Each kind of signal is one type that conforms to this protocol; nothing else knows the kinds.
protocol SignalWork: Sendable {
  /// At least one; `first`: the ID of the first one.
  func steps(from first: StepID) -> [SignalPlan.Step]
  /// What the expressions of its only step share; of several steps, nothing.
  var segment: Segment { get }
  /// What the node keeps beyond the process. Fused steps keep theirs themselves.
  var persistence: Persistence { get }
  /// Makes the node of one subscription, which sends over `edge`; it is not started.
  func makeNode(_ nodeContext: NodeContext, _ edge: Edge) -> OperatorNode
}

/// A source.
struct SourceWork: SignalWork {
  let component: any SourceComponent
  let segment: Segment

  init(_ component: any SourceComponent, _ segment: Segment) { (self.component, self.segment) = (component, segment) }

  func steps(from first: StepID) -> [SignalPlan.Step] { [.init(first, component)] }
  var persistence: Persistence { component.persistence }
  func makeNode(_ nodeContext: NodeContext, _ edge: Edge) -> OperatorNode {
    nodeContext.execution.makeSource(component, nodeContext, edge)
  }
}

/// One operator, combination or command with its own node.
struct OperatorWork: SignalWork {
  let component: any OperatorComponent
  let segment: Segment

  init(_ component: any OperatorComponent, _ segment: Segment) { (self.component, self.segment) = (component, segment) }

  func steps(from first: StepID) -> [SignalPlan.Step] { [.init(first, component)] }
  var persistence: Persistence { component.persistence }
  func makeNode(_ nodeContext: NodeContext, _ edge: Edge) -> OperatorNode {
    edge.downstream._withUnsafeGuaranteedRef { component.makeNode(nodeContext, downstream: $0) }
  }
}

extension FusedRunPlan: SignalWork {
  func steps(from first: StepID) -> [SignalPlan.Step] {
    parts.enumerated().flatMap { number, part in part.steps.map { .init($0.id, $0.component, reading: number) } }
  }
  var segment: Segment { .empty }
  var persistence: Persistence { .nothing }
  func makeNode(_ nodeContext: NodeContext, _ edge: Edge) -> OperatorNode {
    edge.downstream._withUnsafeGuaranteedRef { FusedRun.make(self, nodeContext, downstream: $0) }
  }
}

extension FusableOperator {
  public func makeNode(_ nodeContext: NodeContext, downstream: Downstream) -> OperatorNode {
    FusedRun.make(
      FusedRunPlan(parts: [.init(segment: nodeContext.segment, steps: [.init(id: nodeContext.step, component: self)])]),
      nodeContext, downstream: downstream)
  }
}
