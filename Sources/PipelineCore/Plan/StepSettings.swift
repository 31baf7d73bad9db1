/// The settings of a step in the file, as text for drawings. Secrets are masked, and the length of every text is
/// limited.
package struct StepSettings: Sendable, Equatable {
  /// One setting.
  package struct Entry: Sendable, Equatable {
    /// The parameter, or the field of a mapping; empty: the text is the value as a whole.
    package var name: String
    /// The value in one line: an expression, a number, a list in brackets.
    package var text: String
    /// Whether the value is a mapping, or a list with one.
    package var isNested: Bool
  }

  /// The entries of a mapping, or one entry without a name.
  package private(set) var entries: [Entry] = []
  /// The number of settings in the file; only the first ``limit`` are stored.
  package private(set) var count = 0
  /// The names of a combination's inputs; empty if the file gives none.
  package var inputs: [String] = []

  static let limit = 32
  static let textLimit = 400

  package init() {}

  init(_ arguments: YAMLNode?, inputs: [String] = []) {
    self.inputs = inputs
    guard let arguments, !arguments.isNull else { return }
    guard let fields = arguments.entries else {
      count = 1
      entries = [Self.entry("", arguments)]
      return
    }
    count = fields.count
    entries = fields.prefix(Self.limit).map { Self.entry($0.key.shown, $0.value) }
  }

  private static func entry(_ name: String, _ node: YAMLNode) -> Entry {
    var writer = Writer()
    writer.write(node, named: name, depth: 0)
    return Entry(name: name, text: Printable.cut(writer.text, limit: textLimit), isNested: writer.isNested)
  }

  /// Writes a value in flow style, without quotes, until it is long enough.
  private struct Writer {
    var text = ""
    var isNested = false

    private var isFull: Bool { text.utf8.count > StepSettings.textLimit * 4 }

    mutating func write(_ node: YAMLNode, named name: String, depth: Int) {
      if isFull { return }
      switch node.content {
      case .scalar(let scalar):
        if scalar.text.text.isEmpty {
          text += scalar.kind == .null ? "null" : "\"\""
        } else if StepSettings.isSecret(name) {
          text += "(secret)"
        } else {
          text += StepSettings.withoutPassword(Printable.cut(scalar.text.shown, limit: StepSettings.textLimit))
        }
      case .sequence(let items):
        list("[", "]", items) { writer, item in writer.write(item, named: name, depth: depth + 1) }
      case .mapping(let entries):
        isNested = true
        list("{ ", " }", entries) { writer, entry in
          writer.text += entry.key.shown + ": "
          writer.write(entry.value, named: entry.key.shown, depth: depth + 1)
        }
      }
    }

    private mutating func list<Item>(
      _ open: String, _ close: String, _ items: [Item], _ each: (inout Writer, Item) -> Void
    ) {
      text += open
      for (index, item) in items.enumerated() {
        if isFull { return }
        if index > 0 { text += ", " }
        each(&self, item)
      }
      text += close
    }
  }

  /// Whether a value of this name is most likely a credential, also if the file has it as plain text.
  static func isSecret(_ name: String) -> Bool {
    let name = Array(name.lowercased().utf8)
    return secretNames.contains { secret in
      name.count >= secret.count && (0...name.count - secret.count).contains { name[$0...].starts(with: secret) }
    }
  }

  private static let secretNames = [
    "authorization", "password", "secret", "token", "cookie", "apikey", "api-key", "api_key",
  ].map { Array($0.utf8) }

  /// `https://user:password@host` without the password.
  static func withoutPassword(_ text: String) -> String {
    guard text.utf8.contains(UInt8(ascii: "@")), let scheme = text.firstRange(of: "://") else { return text }
    let rest = text[scheme.upperBound...]
    let authority = rest.prefix { $0 != "/" && $0 != "?" && $0 != "#" }
    guard let at = authority.lastIndex(of: "@"), let colon = authority[..<at].firstIndex(of: ":") else { return text }
    return text[..<colon] + ":(secret)" + text[at...]
  }
}
