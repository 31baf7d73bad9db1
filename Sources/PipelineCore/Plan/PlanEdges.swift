/// An edge of the graph as written in the pipeline file. All subscriptions of a signal share its edge.
package struct EdgePlan: Hashable, Sendable {
  /// An end of an edge.
  package enum End: Hashable, Sendable {
    case step(StepID)
    /// A named source or signal, which sends to each reader.
    case named(Int)
    case errors(ErrorsOwner)
    /// The events that the step feeds into the chain in its parameters.
    case feed(StepID)
    case nothing
  }
  package var from: End
  package var to: End
  /// The index of the step's input; nil: the edge comes from an inner signal, or leads to no step.
  package var input: Int?
  /// For an edge between two fused steps, the edge by which events reach the first of them; nil for other edges.
  var entry: EdgeID?

  /// Whether one node runs the steps at both ends.
  package var isBetweenFusedSteps: Bool { entry != nil }
}

extension Plan {
  /// All edges, the first of which is ``EdgeID/none``, and the component of each step. Sets the edge of each signal.
  static func edges(
    _ named: [NamedPlan], _ sinks: [SinkPlan]
  ) -> (edges: [EdgePlan], components: [Int: any Component], sources: [PlannedSource]) {
    var walk = EdgeWalk()
    for (index, named) in named.enumerated() { walk.visit(named.body, to: .named(index)) }
    for sink in sinks { walk.visit(sink.input, to: .step(sink.step), input: 0) }
    // Each reader of a cold signal runs the signal's steps itself, and their events pass the reader's edge.
    let last = named.map { $0.isCold ? walk.edges[$0.body.edge.number].from : nil }
    for index in walk.edges.indices {
      var hops = 0
      while case .named(let name) = walk.edges[index].from, let from = last[name], hops < named.count {
        walk.edges[index].from = from
        hops += 1
      }
    }
    return (walk.edges, walk.components, walk.sources)
  }
}

extension Plan {
  /// Whether the file has the step: a source, an operator, a sink.
  package func isInFile(_ step: StepID) -> Bool {
    guard let component = components[step.number] else { return sinks.contains { $0.step == step } }
    guard let step = component as? any OperatorDeclaration else { return true }
    return !type(of: step).isHidden && !type(of: step).onlyListens
  }

  package func isSource(_ step: StepID) -> Bool { components[step.number] is any SourceDeclaration }

  /// The name of a step, see ``StepPlan/label``.
  package func id(of step: StepID) -> String { steps[step.number].label }

  /// The name of an edge's end.
  package func id(of end: EdgePlan.End) -> String {
    switch end {
    case .step(let step), .feed(let step): id(of: step)
    case .named(let index): named[index].name
    case .errors(let owner): "\(name(of: owner).text).errors"
    case .nothing: ""
    }
  }
}

extension SignalPlan {
  /// The origin of the signal's events. `feeder`: the step around the chain that contains the signal.
  func end(fedBy feeder: StepID? = nil) -> EdgePlan.End {
    switch origin {
    case .named(let index): .named(index)
    case .errors(let owner): .errors(owner)
    case .input: feeder.map { .feed($0) } ?? .nothing
    case nil: .step(steps[steps.count - 1].id)
    }
  }
}

/// Numbers the edges in the order of the file; the edges between consecutive fused steps have consecutive numbers.
private struct EdgeWalk {
  var edges = [EdgePlan(from: .nothing, to: .nothing)]
  /// The component of each step, by the step's number.
  private(set) var components: [Int: any Component] = [:]
  private(set) var sources: [PlannedSource] = []
  private var seen: Set<ObjectIdentifier> = []

  mutating func visit(_ signal: SignalPlan, to end: EdgePlan.End, input: Int? = nil, fedBy feeder: StepID? = nil) {
    guard seen.insert(ObjectIdentifier(signal)).inserted else { return }
    if let source = signal.source {
      sources.append(PlannedSource(step: signal.step, component: source, isInner: feeder != nil))
    }
    for (index, input) in signal.inputs.enumerated() {
      visit(input, to: .step(signal.step), input: index, fedBy: feeder)
    }
    for (step, next) in zip(signal.steps, signal.steps.dropFirst()) {
      edges.append(EdgePlan(from: .step(step.id), to: .step(next.id), input: 0, entry: signal.inputs[0].edge))
    }
    for step in signal.steps {
      components[step.id.number] = step.component
      for inner in step.inner { visit(inner, to: .step(step.id), fedBy: step.id) }
    }
    signal.edge = EdgeID(edges.count)
    edges.append(EdgePlan(from: signal.end(fedBy: feeder), to: end, input: input))
  }
}
