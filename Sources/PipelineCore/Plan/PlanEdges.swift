/// The way that events take from one step to the next, by its index in ``Plan/edges``.
public struct EdgeID: Hashable, Sendable {
  public var number: Int
  public init(_ number: Int) { self.number = number }
  /// Of what stands outside of the plan.
  static let none = EdgeID(0)
}

/// An edge of the graph as the pipeline file has it. However often a signal is subscribed, its edge is one.
public struct EdgePlan: Hashable, Sendable {
  public enum End: Hashable, Sendable {
    case step(StepID)
    /// A named source or signal, which passes on to each reference.
    case named(Int)
    case errors(ErrorsOwner)
    /// What the step feeds into the chain among its parameters.
    case feed(StepID)
    case nothing
  }
  public var from: End
  public var to: End
  /// Which input of the step it leads to; nil: it comes from an inner signal, or leads to no step.
  public var input: Int?
  /// The edge by which events reach the fused steps between two of which this one lies; nil: it leads to another node.
  var entry: EdgeID?

  /// Whether one node has the steps at both of its ends.
  public var isBetweenFusedSteps: Bool { entry != nil }
}

extension Plan {
  /// All edges, the first of which is none, and what stands at the steps between them; tells each signal its own.
  static func edges(
    _ named: [NamedPlan], _ sinks: [SinkPlan]
  ) -> (edges: [EdgePlan], components: [Int: any Component], sources: [PlannedSource]) {
    var walk = EdgeWalk()
    for (index, named) in named.enumerated() { walk.visit(named.body, to: .named(index)) }
    for sink in sinks { walk.visit(sink.input, to: .step(sink.step), input: 0) }
    // Each reference to a cold signal runs the signal's steps for itself: what they send passes the reference's edge.
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
  public func stands(_ step: StepID) -> Bool {
    guard let component = components[step.number] else { return sinks.contains { $0.step == step } }
    guard let step = component as? any OperatorComponent else { return true }
    return !type(of: step).isHidden && !type(of: step).onlyListens
  }

  public func isSource(_ step: StepID) -> Bool { components[step.number] is any SourceComponent }

  /// What an edge leads from or to, in the words of the file.
  public func name(of end: EdgePlan.End) -> String {
    switch end {
    case .step(let step), .feed(let step): steps[step.number].label
    case .named(let index): named[index].name
    case .errors(let owner): "\(name(of: owner).text).errors"
    case .nothing: ""
    }
  }
}

/// Numbers the edges in the order of the file, those of fused steps one behind the other.
private struct EdgeWalk {
  var edges = [EdgePlan(from: .nothing, to: .nothing)]
  /// By the number of the step.
  private(set) var components: [Int: any Component] = [:]
  private(set) var sources: [PlannedSource] = []
  private var seen: Set<ObjectIdentifier> = []

  mutating func visit(_ signal: SignalPlan, to end: EdgePlan.End, input: Int? = nil, fedBy feeder: StepID? = nil) {
    guard seen.insert(ObjectIdentifier(signal)).inserted else { return }
    let from: EdgePlan.End
    switch signal.kind {
    case .named(let index): from = .named(index)
    case .errors(let owner): from = .errors(owner)
    case .input: from = feeder.map { .feed($0) } ?? .nothing
    case .source(let component, _):
      sources.append(PlannedSource(step: signal.step, component: component, isInner: feeder != nil))
      visitInner(component, signal.step)
      from = .step(signal.step)
    case .node(let component, _, let inputs):
      for (index, input) in inputs.enumerated() {
        visit(input, to: .step(signal.step), input: index, fedBy: feeder)
      }
      visitInner(component, signal.step)
      from = .step(signal.step)
    case .run(let run, let input):
      let steps = run.parts.flatMap(\.steps)
      for step in steps { visitInner(step.component, step.id) }
      visit(input, to: .step(steps[0].id), input: 0, fedBy: feeder)
      for (step, next) in zip(steps, steps.dropFirst()) {
        edges.append(EdgePlan(from: .step(step.id), to: .step(next.id), input: 0, entry: input.edge))
      }
      from = .step(steps[steps.count - 1].id)
    }
    signal.edge = EdgeID(edges.count)
    edges.append(EdgePlan(from: from, to: end, input: input))
  }

  private mutating func visitInner(_ component: any Component, _ step: StepID) {
    components[step.number] = component
    for inner in component.innerPlans { visit(inner, to: .step(step), fedBy: step) }
  }
}
