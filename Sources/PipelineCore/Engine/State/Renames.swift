/// The parts that a saved state has under other names than the plan.
struct Renames {
  /// The renames that apply: the state has the former name and not the new one.
  let all: [FormerName]
  /// The renames for which the state has neither name.
  let unknown: [FormerName]
  /// New names by the former ones.
  private let signals: [String: String]
  private let sinks: [String: String]

  /// - Parameters:
  ///   - former: The renames of the plan.
  ///   - known: The names of the sources, signals and commands in the state.
  ///   - references: The references in the state.
  init(_ former: [FormerName], signals known: Set<String>, references: Set<String>) {
    func has(_ name: String, _ isSink: Bool) -> Bool {
      isSink ? references.contains("sinks.\(name)") : known.contains(name)
    }
    let open = former.filter { !has($0.name, $0.isSink) }
    all = open.filter { has($0.former, $0.isSink) }
    unknown = open.filter { !has($0.former, $0.isSink) }
    self.signals = Dictionary(all.filter { !$0.isSink }.map { ($0.former, $0.name) }) { first, _ in first }
    sinks = Dictionary(all.filter(\.isSink).map { ($0.former, $0.name) }) { first, _ in first }
  }

  var isEmpty: Bool { all.isEmpty }

  /// The former names of signals by their present names.
  var formerSignals: [String: String] { Dictionary(signals.map { ($1, $0) }) { first, _ in first } }

  /// The part that owned the step with that key in the state; nil: the part was not renamed.
  func owner(of key: String) -> FormerName? {
    all.first { key.hasPrefix(FormerName.prefix($0.former, isSink: $0.isSink)) }
  }

  /// The key of a reference under the present names.
  func now(_ reference: String) -> String {
    for head in ["share/", "errors/", "drivers."] where reference.hasPrefix(head) {
      let rest = reference.dropFirst(head.count)
      // A signal may be called 'share'.
      if !rest.hasPrefix("@") { return head + Self.replacing(rest, signals) }
    }
    if reference.hasPrefix("sinks.") {
      return "sinks." + target(Self.replacing(reference.dropFirst("sinks.".count), sinks))
    }
    return target(Self.replacing(reference[...], signals))
  }

  /// Renames the target of a reference, `@NAME` at its end.
  private func target(_ reference: String) -> String {
    guard let at = reference.utf8.lastIndex(of: UInt8(ascii: "@")) else { return reference }
    let name = reference[reference.utf8.index(after: at)...]
    return reference[...at] + Self.replacing(name, signals.merging(sinks) { first, _ in first })
  }

  /// The text with the name at its start replaced: names contain no '/', '.' or '#'.
  private static func replacing(_ text: Substring, _ names: [String: String]) -> String {
    let name = text.prefix { $0 != "/" && $0 != "." && $0 != "#" }
    guard let new = names[String(name)] else { return String(text) }
    return new + text[name.endIndex...]
  }
}
