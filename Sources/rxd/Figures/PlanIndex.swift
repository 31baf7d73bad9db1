import FigureTable
import PipelineCore

/// The steps and edges of a plan in their order, with their names, as views show them: made once, because a plan never
/// changes. Used by one thread at a time.
final class PlanIndex {
  struct Step {
    var id: StepID
    var name: String
    /// The members of the step's document that are not counts.
    var members: [(String, JSONText)]
    var kind: StepFigures.Kind
    /// The step's keyword in the file.
    var keyword: String
  }

  /// The edges between two ends: a step can have two inputs from one signal, which readers see as one edge.
  struct Link {
    var from: String
    var to: String
    /// `errors` or `events`.
    var output: String
    var edges: [EdgeID]
  }

  let plan: Plan
  /// The steps of the file, in its order.
  private(set) lazy var steps: [Step] = plan.steps.indices.map { StepID($0) }.filter(plan.isInFile)
    .sorted { plan.steps[$0.number].location.offset < plan.steps[$1.number].location.offset }
    .map { id in
      let step = plan.steps[id.number]
      let (name, kind) = (plan.id(of: id), plan.kind(of: id))
      return Step(
        id: id, name: name,
        members: [
          ("id", .string(name)), ("step", .string(step.label)), ("kind", .string(kind.rawValue)),
          ("type", .string(step.keyword)), ("at", .string("\(step.location)")),
        ], kind: kind, keyword: step.keyword)
    }

  /// The edges in their order, including those of steps that are not in the file.
  private(set) lazy var links: [Link] = {
    var links: [Link] = []
    var indexes: [String: Int] = [:]
    for number in plan.edges.indices.dropFirst() {
      let edge = plan.edges[number]
      let link = Link(
        from: plan.id(of: edge.from), to: plan.id(of: edge.to), output: edge.output, edges: [EdgeID(number)])
      let key = "\(link.from)>\(link.to)>\(link.output)"
      if let index = indexes[key] {
        links[index].edges.append(EdgeID(number))
      } else {
        indexes[key] = links.count
        links.append(link)
      }
    }
    return links
  }()

  init(_ plan: Plan) { self.plan = plan }
}
