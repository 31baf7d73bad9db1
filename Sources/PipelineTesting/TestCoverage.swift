import PipelineCore

/// The parts of a pipeline that its tests have reached: steps, branches, errors outputs, sinks.
///
/// Covers all tests of one file, by adding up the counts of the graph (``PipelineStatistics``); it is the same graph
/// that runs in production.
package final class TestCoverage {

  /// The kinds of points that tests can reach.
  package enum Category: String, Sendable, CaseIterable {
    case operators, branches, errors, sinks
  }

  /// One point that tests can reach.
  package struct Point: Sendable {
    package var category: Category
    package var location: SourceLocation
    package var isReached: Bool
    /// Why the point is not covered, as a sentence without a full stop.
    package var message: String
    /// Whether the message of the step itself already implies this one.
    package var isImplied = false
  }

  private let plan: Plan
  /// The counts of each edge of the plan over all tests so far.
  package private(set) var edges: [PipelineStatistics.Edge]

  package init(_ plan: Plan) {
    self.plan = plan
    edges = plan.edges.map { PipelineStatistics.Edge($0) }
  }

  /// Adds the counts of `execution`, which must have run the plan, perhaps with other environment variables.
  func add(_ execution: Execution) {
    let counted = execution.statistics.edges
    guard counted.map(\.plan) == edges.map(\.plan) else { return }
    for index in edges.indices { edges[index].add(counted[index]) }
  }

  /// The sum of the counts of the edges that satisfy a condition.
  private func count(
    _ number: (PipelineStatistics.Edge) -> UInt64 = \.events, where isMeant: (EdgePlan) -> Bool
  ) -> UInt64 {
    edges.reduce(0) { $0 + (isMeant($1.plan) ? number($1) : 0) }
  }

  // MARK: Points and reached points

  package var points: [Point] {
    var points: [Point] = []
    for (step, component) in plan.components.sorted(by: { $0.key < $1.key }) where CoveredBranches.isStep(component) {
      points += self.points(step, component)
    }
    let read = Set(plan.edges.map(\.from))
    let owners = plan.named.indices.map { ErrorsOwner.named($0) } + plan.sinks.indices.map { .sink($0) }
    for owner in owners where read.contains(.errors(owner)) {
      let (name, location) = plan.name(of: owner)
      points.append(
        Point(
          category: .errors, location: location, isReached: count { $0.from == .errors(owner) } > 0,
          message: "'\(name).errors' sends nothing"))
    }
    for sink in plan.sinks {
      points.append(
        Point(
          category: .sinks, location: sink.location, isReached: count { $0.to == .step(sink.step) } > 0,
          message: "the sink '\(sink.name)' gets nothing"))
    }
    return points
  }

  private func points(_ step: Int, _ component: (any Component)?) -> [Point] {
    let info = plan.steps[step]
    let here = EdgePlan.End.step(StepID(step))
    let received = count { $0.to == here && $0.input != nil }
    let sent = count { $0.from == here }
    let failures = count(\.failures) { $0.to == here || $0.from == here }
    let isReached: Bool
    let message: String
    var branches: [(isReached: Bool, message: String)] = []
    switch component {
    case is any SourceComponent:
      isReached = sent > 0 || failures > 0
      message = "the source '\(info.keyword)' sends nothing"
    case is any CommandComponent:
      isReached = count(\.subscriptions) { $0.to == here && $0.input == nil } > 0
      message = "the command '\(info.owner)' is not executed"
    default:
      isReached = count { $0.to == here } > 0 || failures > 0
      message = "no event reaches '\(info.keyword)'"
    }
    switch CoveredBranches(component) {
    case .choices(let choices):
      branches = choices.map { choice in
        (
          count(\.subscriptions) { $0.to == here && $0.input == choice.input } > 0,
          "'\(info.keyword)' never takes '\(choice.name)'"
        )
      }
    case .passingAndDropping:
      branches = [
        (sent > 0, "'filter' lets nothing pass"), (received > sent, "'filter' drops nothing"),
      ]
    case .eventsAndErrors:
      branches = [
        (received > 0, "only errors reach 'catch'"),
        (failures > 0, "no error reaches 'catch'"),
      ]
    case .errors: branches = [(failures > 0, "no error reaches 'retry'")]
    case .none: break
    }
    let own = Point(category: .operators, location: info.location, isReached: isReached, message: message)
    return [own]
      + branches.map {
        Point(
          category: .branches, location: info.location, isReached: $0.isReached, message: $0.message,
          isImplied: !isReached)
      }
  }
}

extension TestCoverage {
  /// The share of points reached.
  package struct Share: Sendable, CustomStringConvertible {
    package var reached: Int
    package var total: Int

    package init(_ points: [Point]) {
      reached = points.count { $0.isReached }
      total = points.count
    }

    /// As a percentage; 100 if there are no points.
    package var percent: Double { total == 0 ? 100 : Double(reached) * 100 / Double(total) }

    package var description: String { "\(reached)/\(total)" }
  }
}
