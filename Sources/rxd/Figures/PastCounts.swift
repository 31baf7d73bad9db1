import PipelineCore

/// The counts of earlier runs of a pipeline: counts continue over restarts and reloads, for steps and edges that the
/// file still has.
struct PastCounts {
  private struct EdgeName: Hashable {
    var from: String
    var to: String
  }
  private var steps: [String: PipelineStatistics.Step] = [:]
  private var edges: [EdgeName: PipelineStatistics.Edge] = [:]
  private var paused = TimeSpan.zero
  /// The number of turns.
  private var turns: UInt64 = 0

  /// Adds a run that has ended; counts of steps and edges that its plan no longer has are dropped.
  mutating func add(_ statistics: PipelineStatistics, of plan: Plan) {
    let total = added(to: statistics, of: plan)
    steps = [:]
    edges = [:]
    for step in total.steps { steps[plan.id(of: step.step)] = step }
    for edge in total.edges { edges[Self.name(edge, plan), default: PipelineStatistics.Edge(edge.plan)].add(edge) }
    paused = total.paused
    turns = total.turns
  }

  /// The counts of a run, plus those of the runs before it; nil: there is no run.
  func added(to statistics: PipelineStatistics?, of plan: Plan) -> PipelineStatistics {
    var total = statistics ?? PipelineStatistics(of: plan)
    total.paused = total.paused + paused
    total.turns &+= turns
    if steps.isEmpty, edges.isEmpty { return total }
    for index in total.steps.indices {
      if let past = steps[plan.id(of: total.steps[index].step)] { total.steps[index].add(past) }
    }
    // Edges between the same ends share a name; the first of them gets the earlier counts of all.
    var seen: Set<EdgeName> = []
    for index in total.edges.indices {
      let name = Self.name(total.edges[index], plan)
      if seen.insert(name).inserted, let past = edges[name] { total.edges[index].add(past) }
    }
    return total
  }

  private static func name(_ edge: PipelineStatistics.Edge, _ plan: Plan) -> EdgeName {
    EdgeName(from: plan.id(of: edge.plan.from), to: plan.id(of: edge.plan.to))
  }
}
