/// `movedFrom`: the former name of a step, or of a source, signal, command or sink with all of its steps, in a saved
/// state.
extension Compilation {
  /// Records the former name of a named part of the file.
  func note(formerNameOf name: Located<String>, _ kind: String, _ options: [OptionNode]) {
    guard let option = options["movedFrom"] else { return }
    guard let former = option.string, !former.isEmpty, !former.contains("/"), !former.contains(".") else {
      diagnostics.report(
        Diagnostic(
          .wrongType,
          "'movedFrom' of a \(kind) must be the former name of the \(kind), not "
            + (option.string.map { "'\($0)'" } ?? option.kindName), at: option.location,
          help: "Write e.g. 'movedFrom: orders' if its name was 'orders'"))
      return
    }
    formerNames.append(
      FormerName(
        name: name.value, former: former, isSink: kind == "sink", kind: kind, location: option.location))
  }

  /// Reports former names that the file still uses or uses twice, and records the former names of the steps of renamed
  /// parts.
  func applyFormerNames() {
    if formerNames.isEmpty { return }
    let parts =
      file.sources.map { ($0.name, "source") } + file.signals.map { ($0.name, "signal") }
      + file.tables.map { ($0.name, "table") }
      + file.commands.map { ($0.name, "command") } + file.sinks.map { ($0.name, "sink") }
    let present = Dictionary(parts.map { ($0.0.value, $0) }) { first, _ in first }
    var claimed: [String: FormerName] = [:]
    for move in formerNames {
      if move.former == move.name {
        diagnostics.report(
          Diagnostic(
            .conflictingParameters, "'movedFrom' names the \(move.kind) itself", at: move.location,
            help: "Write its former name, or remove 'movedFrom'"))
      } else if let (name, kind) = present[move.former] {
        diagnostics.report(
          Diagnostic(
            .conflictingParameters, "'movedFrom' names a \(kind) that the file still has, '\(move.former)'",
            at: move.location, notes: [.init("it is defined here", at: name.location)],
            help: "Write the former name of the \(move.kind), or remove 'movedFrom'"))
      } else if let other = claimed[move.former] {
        diagnostics.report(
          Diagnostic(
            .conflictingParameters, "the \(other.kind) '\(other.name)' has 'movedFrom: \(move.former)', too",
            at: move.location, help: "Only one can continue from it"))
      }
      claimed[move.former] = claimed[move.former] ?? move
      let (now, before) = (
        FormerName.prefix(move.name, isSink: move.isSink), FormerName.prefix(move.former, isSink: move.isSink)
      )
      for number in steps.indices where steps[number].key.hasPrefix(now) {
        let keys = [steps[number].key] + steps[number].formerKeys
        steps[number].formerKeys += keys.filter { $0.hasPrefix(now) }.map { before + $0.dropFirst(now.count) }
      }
    }
  }

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
            at: node.location, help: "Write the former name of the step, or remove 'movedFrom'"))
      } else if let name = names.first, !claimed.insert(name).inserted {
        diagnostics.report(
          Diagnostic(
            .conflictingParameters, "another step has 'movedFrom: \(node.shown)', too", at: node.location,
            help: "Only one step can continue from that state"))
      }
    }
  }
}
