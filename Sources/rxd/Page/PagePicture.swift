import PipelineCore

/// A pipeline as the live page draws it: the picture, and for each step its lines of the file and its lanes.
struct PagePicture {
  let plan: Plan
  let revision: String
  /// Whether the process can explain why events did not pass.
  let answersWhy: Bool

  init(_ plan: Plan, revision: String, answersWhy: Bool) {
    self.plan = plan
    self.answersWhy = answersWhy
    self.revision = revision
  }

  /// The relation of an edge to a step.
  enum Role: String {
    /// The edge leaves a source that the step depends on.
    case source
    case input
    /// The edge comes from an inner signal of the step.
    case inner
    case output
    /// The edge is part of the signal, or leads into the sink, that contains the step.
    case signal
  }

  var document: JSONText {
    let steps = plan.steps.indices.map { StepID($0) }.filter(plan.isInFile)
    return .object([
      ("name", .string(plan.name)), ("revision", .string(revision)),
      ("description", plan.description.map(JSONText.string) ?? .null),
      // Shows every step, even if branches are alike.
      ("svg", .string(GraphPicture(plan, folding: false).svg(.page))),
      ("answers", .bool(answersWhy)),
      (
        "edges",
        .array(
          plan.edges.dropFirst().filter { $0.from != .nothing }.map { edge in
            .object([
              ("from", .string(plan.id(of: edge.from))), ("to", .string(plan.id(of: edge.to))),
              ("output", .string(edge.output)), ("inner", .bool(isInner(edge))),
            ])
          })
      ),
      ("steps", .array(steps.map(describe))),
    ])
  }

  private func isInner(_ edge: EdgePlan) -> Bool {
    if case .step = edge.to { edge.input == nil } else { false }
  }

  private func describe(_ step: StepID) -> JSONText {
    let planned = plan.steps[step.number]
    return .object([
      ("id", .string(plan.id(of: step))), ("kind", .string(plan.kind(of: step).rawValue)),
      ("type", .string(planned.keyword)),
      ("owner", .string(planned.owner)), ("at", .string("\(planned.location)")),
      ("text", .string(SecretMask.process.masked(lines(at: planned.location)))),
      (
        "lanes",
        .array(
          lanes(of: step).map { edge, role in
            let ends = plan.edges[edge.number]
            return .object([
              ("from", .string(plan.id(of: ends.from))), ("to", .string(plan.id(of: ends.to))),
              ("role", .string(role.rawValue)),
            ])
          })
      ),
    ])
  }

  /// The lines of the file that describe the element at `location`: its line, and those that are indented further.
  private func lines(at location: SourceLocation) -> String {
    let source = location.text
    let (first, column) = source.position(at: location.offset)
    func line(_ number: Int) -> String { String(decoding: source.bytes[source.lineRange(number)], as: UTF8.self) }
    var lines = [String(line(first).drop { $0 == " " })]
    var number = first + 1
    while number <= source.lineCount, lines.count < 24 {
      let text = line(number)
      let margin = text.prefix { $0 == " " }.utf8.count
      let isEmpty = margin == text.utf8.count
      if !isEmpty, margin < column { break }
      if !isEmpty { lines.append(String(text.dropFirst(column - 1))) }
      number += 1
    }
    return lines.joined(separator: "\n")
  }

  /// The edges to watch for a step, each once, in the order of the lanes.
  func lanes(of step: StepID) -> [(edge: EdgeID, role: Role)] {
    var lanes: [(edge: EdgeID, role: Role)] = []
    func add(_ edges: [EdgeID], _ role: Role) {
      for edge in edges where !lanes.contains(where: { $0.edge == edge }) { lanes.append((edge, role)) }
    }
    func edges(_ isWanted: (EdgePlan) -> Bool) -> [EdgeID] {
      plan.edges.indices.dropFirst().filter { plan.edges[$0].from != .nothing && isWanted(plan.edges[$0]) }.map(
        EdgeID.init)
    }
    let inputs = edges { $0.to == .step(step) && $0.input != nil }
    let inner = edges { $0.to == .step(step) && $0.input == nil }
    let outputs = edges { $0.from == .step(step) }
    let sources = plan.sources(of: step).filter { !inputs.contains($0) && !inner.contains($0) && !outputs.contains($0) }
    add(sources, .source)
    add(inputs, .input)
    add(inner, .inner)
    add(outputs, .output)
    add(plan.signalEdges(of: step), .signal)
    return Array(lanes.prefix(TapSession.mostEdges))
  }
}
