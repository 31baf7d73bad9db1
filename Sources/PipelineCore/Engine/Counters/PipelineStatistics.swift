/// The counts of a pipeline so far, edge by edge and step by step.
public struct PipelineStatistics: Sendable {
  /// One edge of the plan, over all of its subscriptions.
  public struct Edge: Sendable {
    public let plan: EdgePlan
    /// Events that passed.
    public var events: UInt64 = 0
    /// The number of subscriptions.
    public var subscriptions: UInt64 = 0
    /// The number of subscriptions that ended with an error.
    public var failures: UInt64 = 0

    public init(_ plan: EdgePlan) { self.plan = plan }

    /// Adds the counts of another execution of the plan.
    public mutating func add(_ other: Edge) {
      events &+= other.events
      subscriptions &+= other.subscriptions
      failures &+= other.failures
    }
  }

  /// One step: a source, an operator, a sink.
  ///
  /// `received + made == sent + kept + dropped + superseded + undecided + rejected + failed + held` where ``isExact``; a sink
  /// sends what it delivers.
  public struct Step: Sendable {
    public var step: StepID
    /// Events that came over the step's inputs; of a source, those that it read or made (`made` is then 0).
    public var received: UInt64 = 0
    /// Events of the step's inner signals.
    public var receivedInner: UInt64 = 0
    public var sent: UInt64 = 0
    /// Events that the step made: values at the end, windows, figures.
    public var made: UInt64 = 0
    public var kept: UInt64 = 0
    public var dropped: UInt64 = 0
    public var superseded: UInt64 = 0
    public var undecided: UInt64 = 0
    public var rejected: UInt64 = 0
    public var failed: UInt64 = 0
    /// Events that the step held when its subscriptions ended; of a sink, those that it could not deliver.
    public var held: UInt64 = 0
    /// Bytes that a source read or a sink delivered; nil: the component counts no bytes.
    public var bytes: UInt64?
    /// The offset at which a source continues in the input that it read last; nil: unknown.
    public var position: Int64?
    /// The time in the step, estimated from `samples` events; nil: none was timed.
    public var nanoseconds: UInt64?
    public var samples: UInt64 = 0
    /// Each event that comes is passed on once or has one of these verdicts. False for steps that make events of several, as
    /// `combineLatest` does; their `kept` is what is left.
    public var isExact = false

    /// Events that the step could not process.
    public var givenUp: UInt64 { undecided &+ rejected &+ failed }
  }

  public var edges: [Edge]
  /// In the order of ``Plan/steps``.
  public var steps: [Step]
}

extension Execution {
  /// The counts so far. Read it in a turn, or when the pipeline has ended.
  public var statistics: PipelineStatistics {
    for sink in sinks { sink.node.countDelivered() }
    var edges = plan.edges.enumerated().map { number, edge in
      var counted = PipelineStatistics.Edge(edge)
      let counters = meters.edge(EdgeID(number)).pointee
      counted.events = counters.passed
      counted.subscriptions = counters.subscriptions
      counted.failures = counters.failures
      return counted
    }
    edges[0] = PipelineStatistics.Edge(plan.edges[0])
    var steps = plan.steps.indices.map { number in
      let counters = meters.step(StepID(number)).pointee
      return PipelineStatistics.Step(
        step: StepID(number), made: counters.made, kept: counters.kept, dropped: counters.dropped,
        superseded: counters.superseded, undecided: counters.undecided, rejected: counters.rejected,
        failed: counters.failed, held: counters.held, samples: counters.timed)
    }
    // An edge that leaves a fused step follows the edges that lead to that step.
    for (number, edge) in plan.edges.enumerated() {
      if edge.entry != nil, case .step(let from) = edge.from {
        let counters = meters.step(from).pointee
        // Steps count what they stop; the events that pass between them follow.
        edges[number].events = steps[from.number].received &+ counters.made &- counters.stopped
        edges[number].subscriptions = edges[edge.entry?.number ?? 0].subscriptions
      }
      let events = edges[number].events
      if case .step(let from) = edge.from { steps[from.number].sent &+= events }
      guard case .step(let to) = edge.to else { continue }
      if edge.input == nil { steps[to.number].receivedInner &+= events } else { steps[to.number].received &+= events }
    }
    for (number, component) in plan.components {
      switch component {
      case is any SourceComponent:
        steps[number].received = steps[number].sent &+ steps[number].givenUp
        steps[number].isExact = true
      case is any FusableOperator: steps[number].isExact = true
      case let component as any OperatorComponent:
        steps[number].isExact = type(of: component).relaysEvents
        if steps[number].isExact { break }
        let left = steps[number].dropped &+ steps[number].superseded &+ steps[number].givenUp
        steps[number].kept = steps[number].received &- min(left, steps[number].received)
        steps[number].made = steps[number].sent
      default: break
      }
    }
    for sink in plan.sinks {
      steps[sink.step.number].sent = meters.step(sink.step).pointee.delivered
      steps[sink.step.number].isExact = true
    }
    for number in steps.indices {
      let counters = meters.step(StepID(number)).pointee
      if counters.bytes > 0 { steps[number].bytes = counters.bytes }
      if counters.position >= 0 { steps[number].position = counters.position }
      guard counters.timed > 0 else { continue }
      let events = max(counters.timed, steps[number].received &+ steps[number].receivedInner)
      steps[number].nanoseconds = UInt64(Double(counters.nanoseconds) / Double(counters.timed) * Double(events))
    }
    return PipelineStatistics(edges: edges, steps: steps)
  }
}
