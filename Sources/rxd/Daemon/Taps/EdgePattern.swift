import PipelineCore

/// Names edges of a pipeline: by a signal, step or sink, by both ends, or by a line of the file.
struct EdgePattern: Sendable {
  private enum Kind: Sendable {
    case ends(from: String, to: String)
    case line(file: String, number: Int)
    case name(String)
  }
  private let kind: Kind

  /// `books`, `books.errors`, `books/filter`, `books/*`, `books -> sink`, `14`, `search.yaml:14`.
  init(_ text: String) {
    if let arrow = text.firstRange(of: "->") {
      func trimmed(_ part: Substring) -> String {
        String(part.drop { $0 == " " }.reversed().drop { $0 == " " }.reversed())
      }
      kind = .ends(from: trimmed(text[..<arrow.lowerBound]), to: trimmed(text[arrow.upperBound...]))
    } else if let number = Int(text), number > 0 {
      kind = .line(file: "", number: number)
    } else if let colon = text.utf8.lastIndex(of: UInt8(ascii: ":")),
      let number = Int(text[text.index(after: colon)...]),
      number > 0
    {
      kind = .line(file: String(text[..<colon]), number: number)
    } else {
      kind = .name(text)
    }
  }

  func edges(of plan: Plan) -> [EdgeID] {
    plan.edges.indices.dropFirst().filter { means(plan.edges[$0], in: plan) }.map { EdgeID($0) }
  }

  private func means(_ edge: EdgePlan, in plan: Plan) -> Bool {
    if case .nothing = edge.from { return false }
    switch kind {
    case .ends(let from, let to):
      return Wildcard.matches(from, plan.id(of: edge.from)) && Wildcard.matches(to, plan.id(of: edge.to))
    case .name(let pattern): return Self.names(of: edge, in: plan).contains { Wildcard.matches(pattern, $0) }
    case .line(let file, let number):
      let path = plan.source.name
      guard path == file || path.hasSuffix("/" + file) || file.isEmpty else { return false }
      return Self.lines(of: edge, in: plan).contains(number)
    }
  }

  /// The names of an edge: that of its signal, of the errors that it carries, or of the step that it leads to. An edge
  /// that leaves a source also has the name of the source.
  static func names(of edge: EdgePlan, in plan: Plan) -> [String] {
    var names: [String] = []
    if case .named(let index) = edge.to { names.append(plan.named[index].name) }
    if case .errors = edge.from { names.append(plan.id(of: edge.from)) }
    if case .step(let step) = edge.from, plan.isSource(step) { names.append(plan.id(of: step)) }
    if case .step(let step) = edge.to, edge.input != nil {
      names.append(plan.id(of: step))
      names += plan.sinks.filter { $0.step == step }.map(\.name)
    }
    return names
  }

  private static func lines(of edge: EdgePlan, in plan: Plan) -> [Int] {
    var lines: [Int] = []
    if case .named(let index) = edge.to { lines.append(plan.named[index].location.line) }
    if case .step(let step) = edge.from, plan.isSource(step) { lines.append(plan.steps[step.number].location.line) }
    if case .step(let step) = edge.to, edge.input != nil {
      lines.append(plan.steps[step.number].location.line)
      lines += plan.sinks.filter { $0.step == step }.map(\.location.line)
    }
    return lines
  }
}

/// Patterns in which `*` matches any text and `?` one byte.
enum Wildcard {
  static func matches(_ pattern: String, _ text: String) -> Bool {
    let pattern = Array(pattern.utf8)
    let text = Array(text.utf8)
    var (at, position) = (0, 0)
    // Where to continue after the last star, if the rest does not match.
    var star: (pattern: Int, text: Int)?
    while position < text.count {
      if at < pattern.count, pattern[at] == UInt8(ascii: "*") {
        star = (at + 1, position)
        at += 1
      } else if at < pattern.count, pattern[at] == text[position] || pattern[at] == UInt8(ascii: "?") {
        at += 1
        position += 1
      } else if let last = star {
        star = (last.pattern, last.text + 1)
        at = last.pattern
        position = last.text + 1
      } else {
        return false
      }
    }
    return pattern[at...].allSatisfy { $0 == UInt8(ascii: "*") }
  }
}

extension Plan {
  /// The names of edges that a request can use, each once, in the order of the file.
  var edgeNames: [String] {
    var seen: Set<String> = []
    return edges.dropFirst().flatMap { EdgePattern.names(of: $0, in: self) }.filter { seen.insert($0).inserted }
  }
}
