/// The texts of a component's spec for help and reference pages.
package enum SpecText {
  /// The range of a parameter's values, one sentence; nil if the type determines it.
  package static func range(_ info: ParameterInfo) -> String? {
    guard let range = info.range else { return nil }
    switch info.shape {
    case .int, .number:
      return range.upperBound == .max
        ? "At least \(range.lowerBound)." : "From \(range.lowerBound) to \(range.upperBound)."
    case .duration where range.lowerBound > 0:
      return range.lowerBound == 1
        ? "Longer than 0." : "At least \(TimeSpan(nanoseconds: range.lowerBound))."
    default: return nil
    }
  }

  /// When a parameter has an effect, one sentence; nil: always.
  package static func condition(_ info: ParameterInfo) -> String? { info.applies?.sentence }

  /// The type in a word or two; the fields of a record are listed after it.
  package static func typeName(_ shape: ParameterShape) -> String {
    switch shape {
    case .choice(let choices):
      choices.count <= 3 ? choices.map(\.name).joined(separator: "|") : "choice"
    case .list(let element): "list of \(typeName(element))"
    case .table(let element): "names to \(typeName(element))"
    case .mapping: "expressions"
    case .record: "mapping"
    case .oneOf(let shapes): shapes.map(typeName).joined(separator: " or ")
    default: "\(shape)"
    }
  }

  /// The words of a choice, also within lists and alternatives.
  package static func choices(_ shape: ParameterShape) -> [ParameterShape.Choice] {
    switch shape {
    case .choice(let choices): choices
    case .oneOf(let shapes): shapes.flatMap(choices)
    case .list(let element), .table(let element): choices(element)
    default: []
    }
  }

  /// The fields of each record, also within lists and alternatives.
  package static func records(_ shape: ParameterShape) -> [[ParameterInfo]] {
    switch shape {
    case .record(let fields): [fields]
    case .oneOf(let shapes): shapes.flatMap(records)
    case .list(let element), .table(let element): records(element)
    default: []
    }
  }

  /// An example as lines of text.
  package static func text(_ example: Example) -> [String] {
    switch example.body {
    case .marble(let step, let inputs, let output, let values):
      let width = max(inputs.map(\.name.utf8.count).max() ?? 0, 3)
      func row(_ name: String, _ text: String) -> String {
        "  " + name + String(repeating: " ", count: width - name.utf8.count) + "  " + text
      }
      return [step] + inputs.map { row($0.name, $0.marbles) } + [row("out", output)]
        + values.map { "  with \($0.0) = \($0.1)" }
    case .pipeline(let text), .snippet(let text):
      return text.split(separator: "\n", omittingEmptySubsequences: false).map(String.init)
    }
  }
}
