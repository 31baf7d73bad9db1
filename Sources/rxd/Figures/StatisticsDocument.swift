import FigureTable
import PipelineCore

extension PipelineStatistics {
  /// The counts as members of a JSON object, for `rxd run --stats`.
  func members(of plan: Plan) -> [(String, JSONText)] { members(PlanIndex(plan)) }

  /// The counts as members of a JSON object, for `rxd run --stats` and `GET /stats`.
  func members(_ index: PlanIndex) -> [(String, JSONText)] {
    let edges: [JSONText] = index.links.flatMap { link in
      link.edges.compactMap { edge in
        let members = self.edges[edge.number].members
        return members.isEmpty
          ? nil
          : .object(
            [("from", .string(link.from)), ("to", .string(link.to)), ("output", .string(link.output))] + members)
      }
    }
    return Figures.runs.members(of: self) + [
      ("steps", .array(index.steps.map { .object($0.members + members(of: $0)) })),
      ("edges", .array(edges)),
    ]
  }

  /// The counts of a step as members of a JSON object.
  func members(of step: PlanIndex.Step) -> [(String, JSONText)] { figures(of: step).members }

  /// The data from which the figures of a step are read. `busy`: the step's share of a core.
  func figures(of step: PlanIndex.Step, busy: Double? = nil) -> StepFigures {
    let counted = steps[step.id.number]
    return StepFigures(counted, step.kind, keyword: step.keyword, busy: busy, trouble: counted.trouble?.document)
  }

  /// The sum of the edges between two ends.
  func sum(of link: PlanIndex.Link) -> Edge {
    link.edges.dropFirst().reduce(into: edges[link.edges[0].number]) { sum, edge in
      sum.add(edges[edge.number])
      sum.open += edges[edge.number].open
    }
  }
}

extension PipelineStatistics.Edge {
  /// The counts as members of a JSON object; none while nothing has used the edge.
  var members: [(String, JSONText)] { events > 0 || subscriptions > 0 ? Figures.edges.members(of: self) : [] }
}

extension SinkTrouble {
  /// The trouble as in `GET /stats` and `GET /status`.
  var document: JSONText {
    .object([("reason", .string(Printable.cut(reason, limit: 1000))), ("since", .string(StoredTime.text(since)))])
  }
}

extension Plan {
  /// The steps of the file, in its order.
  func fileSteps(_ statistics: PipelineStatistics) -> [PipelineStatistics.Step] {
    statistics.steps.filter { isInFile($0.step) }
      .sorted { steps[$0.step.number].location.offset < steps[$1.step.number].location.offset }
  }

  func kind(of step: StepID) -> StepFigures.Kind {
    isSource(step) ? .source : sinks.contains { $0.step == step } ? .sink : .operator
  }
}

extension EdgePlan {
  /// `errors` or `events`.
  var output: String { if case .errors = from { "errors" } else { "events" } }
}
