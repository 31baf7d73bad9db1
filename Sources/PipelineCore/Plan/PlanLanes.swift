/// The edges that show the work of a step, for the live page and for recorded tests.
extension Plan {
  /// The edges by which events leave the sources that a step depends on, inner ones included, in the order of the plan.
  package func sources(of step: StepID) -> [EdgeID] {
    var found: Set<Int> = []
    var seen: Set<EdgePlan.End> = []
    var open: [EdgePlan.End] = [.step(step)]
    while let end = open.popLast() {
      guard seen.insert(end).inserted else { continue }
      if case .step(let step) = end, isSource(step) {
        for (number, edge) in edges.enumerated() where edge.from == end { found.insert(number) }
      }
      switch end {
      // The events that a step feeds into its chain are the events that the step receives.
      case .feed(let step): open.append(.step(step))
      // Rejected events come from the steps of their owner.
      case .errors(.named(let index)): open.append(.named(index))
      case .errors(.sink(let index)): open.append(.step(sinks[index].step))
      case .step, .named, .nothing: break
      }
      for edge in edges.dropFirst() where edge.to == end { open.append(edge.from) }
    }
    return found.sorted().map(EdgeID.init)
  }

  /// The edges that make up the signal, or lead into the sink, that contains a step.
  package func signalEdges(of step: StepID) -> [EdgeID] {
    let owner = steps[step.number].owner
    let ends: [EdgePlan.End] =
      if let index = index(ofNamed: owner) { [.named(index)] } else {
        sinks.filter { $0.name == owner }.map { .step($0.step) }
      }
    return edges.indices.dropFirst().filter { number in
      let edge = edges[number]
      if case .step = edge.to, edge.input == nil { return false }
      return ends.contains(edge.to)
    }.map(EdgeID.init)
  }

  /// The edge between two ends, by the names of ``id(of:)-(EdgePlan.End)``.
  package func edge(from: String, to: String) -> EdgeID? {
    edges.indices.dropFirst().first { id(of: edges[$0].from) == from && id(of: edges[$0].to) == to }.map(EdgeID.init)
  }

  /// The step with the name that ``id(of:)-(StepID)`` returns.
  package func step(named id: String) -> StepID? {
    steps.indices.map { StepID($0) }.first { self.id(of: $0) == id && isInFile($0) }
  }
}
