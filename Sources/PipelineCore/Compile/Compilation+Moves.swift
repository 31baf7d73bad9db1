/// `movedFrom` of a step: the former name of the step in a saved state.
extension Compilation {
  /// Records the former name of the last step: its keyword or name, preceded by the signal's name if the step was in
  /// another signal. Both the form of messages and states (`books/scan`) and that of older messages (`books/2 scan`)
  /// are accepted.
  func note(movedFrom option: YAMLNode, _ context: SignalContext) {
    guard let text = option.string, !text.isEmpty else {
      diagnostics.report(
        Diagnostic(
          .wrongType, "'movedFrom' must be the former name of the step, not \(option.kindName)", at: option.location,
          help: "Write e.g. 'movedFrom: scan', or 'movedFrom: books/scan' if it was in the signal 'books'"))
      return
    }
    let parts = text.split(separator: "/", omittingEmptySubsequences: false).map(Self.withoutNumber)
    let former = parts.joined(separator: "/")
    steps[steps.count - 1].formerKeys =
      parts.count == 1 ? ["\(context.path)/\(former)"] : [former, "sinks.\(former)"]
    moves.append((steps.count - 1, option))
  }

  /// The name in a saved state, without the number: `scan` for `2 scan`, `total` for `2 (total)`.
  private static func withoutNumber(_ part: Substring) -> String {
    let digits = part.prefix { $0.isASCII && $0.isNumber }
    guard !digits.isEmpty, part.dropFirst(digits.count).first == " " else { return String(part) }
    let name = part.dropFirst(digits.count + 1)
    return name.first == "(" && name.last == ")" ? String(name.dropFirst().dropLast()) : String(name)
  }

  /// Reports former names that a step of the file still has, and former names that several steps claim.
  func checkMoves() {
    if moves.isEmpty { return }
    let present = Set(steps.map(\.key))
    var claimed: Set<String> = []
    for (number, node) in moves {
      let names = steps[number].formerKeys
      if let name = names.first(where: present.contains) {
        diagnostics.report(
          Diagnostic(
            .conflictingParameters,
            name == steps[number].key
              ? "'movedFrom' names the step itself" : "'movedFrom' names a step that the file still has, '\(name)'",
            at: node.location, help: "Name the step as it was called before, or remove 'movedFrom'"))
      } else if let name = names.first, !claimed.insert(name).inserted {
        diagnostics.report(
          Diagnostic(
            .conflictingParameters, "another step has 'movedFrom: \(node.shown)', too", at: node.location,
            help: "Only one step can continue from that state"))
      }
    }
  }
}
