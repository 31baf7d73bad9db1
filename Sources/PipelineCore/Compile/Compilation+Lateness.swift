/// `whenLate` of a source or a step.
extension Compilation {
  /// Determines `whenLate` of a step: its own value, or the file's value if that applies to the step.
  func settleLateness(of component: any Component, _ node: ComponentNode, _ step: StepID) {
    let general = file.whenLate?.value ?? .fire
    steps[step.number].whenLate = component.refusal(of: general) == nil ? general : .fire
    guard let option = node.options["whenLate"], !option.isPlaceholder else { return }
    switch option.decodeChoice("'whenLate'", WhenLate.allCases.map(\.rawValue)) {
    case .failure(let diagnostic): diagnostics.report(diagnostic)
    case .success(let text):
      guard let value = WhenLate(rawValue: text) else { return }
      if let reason = component.refusal(of: value) {
        let known = WhenLate.allCases.filter { component.refusal(of: $0) == nil }.map(\.rawValue)
        diagnostics.report(
          Diagnostic(
            .lateWithoutMeaning,
            "'whenLate: \(text)' has no meaning for this '\(node.keyword.value)': \(reason)", at: option.location,
            help: known.isEmpty ? "Remove it" : "Write \(Suggestion.list(known)), or remove it"))
        return
      }
      steps[step.number].whenLate = value
      steps[step.number].ownsWhenLate = true
    }
  }
}
