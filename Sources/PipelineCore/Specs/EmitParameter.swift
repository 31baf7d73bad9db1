/// When results are sent: `emit: update`, `emit: { early: 10s }`.
package struct EmitParameter: RecordParameter {
  enum When: String, ChoiceParameter {
    case close, update
    var help: String {
      switch self {
      case .close: "at the end"
      case .update: "each time it changes"
      }
    }
  }

  var when = When.close
  var early: TimeSpan?
  var update: TimeSpan?
  var pairs = false

  package init() {}

  package static var fields: [RecordField<EmitParameter>] {
    [
      .init("when", \.when, primary: true, "When a result is sent."),
      .init(
        "early", \.early, range: 1...(1 << 60),
        "Also before the end: this long after the first event that changed what was sent last."),
      .init("update", \.update, range: 0...(1 << 60), "Each time it changes, but at most once in this time."),
      .init(
        "pairs", \.pairs,
        "Before a row that replaces an earlier one, send that one again with `meta.retracts`, as a retraction."),
    ]
  }

  package func validate(_ node: YAMLNode, _ context: inout DecodingContext) {
    if early != nil, update != nil || when == .update {
      context.diagnostics.report(
        Diagnostic(
          .conflictingParameters, "'emit' is 'early' or 'update', not both", at: node.location,
          help: "Keep one: 'emit: { early: 10s }' or 'emit: { update: 1s }'"))
    }
  }
}

extension EmitParameter? {
  /// How rows that are sent in this way change earlier ones. `corrected`: also if they are sent only at the end.
  func changes(corrected: Bool = false) -> Changes {
    guard let self else { return corrected ? .rows : .none }
    if self.pairs { return .pairs }
    return self.when == .update || self.early != nil || self.update != nil || corrected ? .rows : .none
  }
}
