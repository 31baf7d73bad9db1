/// `movedFrom` beside a step: the name of the step in a saved state.
extension Compilation {
  /// Notes the former name of the last step: its keyword or name, with the signal before it if that was another one, as messages and
  /// states name it (`books/scan`), or as older messages did (`books/2 scan`).
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

  /// `2 scan` and `2 (total)` as a state names them: `scan`, `total`.
  private static func withoutNumber(_ part: Substring) -> String {
    let digits = part.prefix { $0.isASCII && $0.isNumber }
    guard !digits.isEmpty, part.dropFirst(digits.count).first == " " else { return String(part) }
    let name = part.dropFirst(digits.count + 1)
    return name.first == "(" && name.last == ")" ? String(name.dropFirst().dropLast()) : String(name)
  }

  /// Reports former names that a step of the file still has, and former names that two steps claim.
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
            help: "Only one step can go on from it"))
      }
    }
  }
}
