/// Supplies the text of schema files, because the compiler opens no files.
package struct SchemaFiles: Sendable {
  /// The result of reading a schema file.
  package enum Outcome: Sendable {
    /// The text, and the name to show in messages.
    case found(name: String, bytes: [UInt8])
    /// The reason, as a continuation of "the schema file ... ".
    case refused(String)
  }
  /// Reads a file that a pipeline file names; relative paths start at the pipeline file's directory.
  package var read: @Sendable (_ path: String) -> Outcome

  package init(read: @escaping @Sendable (_ path: String) -> Outcome) { self.read = read }

  /// Supplies no files.
  package static let none = SchemaFiles { _ in .refused("cannot be read here") }
}

/// Reads `schema:`, the type of a source's events: a type, a mapping of fields to types, or the path of a file with a
/// JSON Schema.
///
/// Types are written as in expressions (`int`, `list(string)`, `map(string, double)`). `[T]` is a list, a mapping is an
/// object. `T?` may be null or absent and then reads as null. The key `...` allows further fields of any type.
struct EventSchema {
  private var diagnostics: [Diagnostic] = []
  /// The maximum nesting of types.
  private static let depthLimit = 32

  /// The type; nil, with a diagnostic, after an error.
  static func read(
    _ node: YAMLNode, _ files: SchemaFiles, into diagnostics: inout Diagnostics
  ) -> ExpressionType? {
    if let scalar = node.scalar, isPath(scalar.string) {
      return read(file: scalar.string, at: node.location, files, into: &diagnostics)
    }
    return type(node, into: &diagnostics)
  }

  /// A type that cannot be a file, such as that of a function's parameter; nil, with a diagnostic, after an error.
  static func type(_ node: YAMLNode, into diagnostics: inout Diagnostics) -> ExpressionType? {
    var reader = EventSchema()
    let type = reader.type(node, 0)
    diagnostics.report(contentsOf: reader.diagnostics)
    return reader.diagnostics.contains { $0.severity == .error } ? nil : type
  }

  /// Whether a text is a path: it contains a slash or a dot, which no type does.
  private static func isPath(_ text: String) -> Bool {
    text.utf8.contains(UInt8(ascii: "/")) || text.utf8.contains(UInt8(ascii: "."))
  }

  private static func read(
    file path: String, at location: SourceLocation, _ files: SchemaFiles, into diagnostics: inout Diagnostics
  ) -> ExpressionType? {
    switch files.read(path) {
    case .refused(let reason):
      diagnostics.report(
        Diagnostic(
          .schemaFile, "the schema file '\(Printable.cut(path))' \(reason)", at: location,
          help: "The path is relative to the directory of the pipeline file"))
      return nil
    case .found(let name, var bytes):
      // Tabs may indent JSON but not YAML, and the YAML reader reads this file; texts in JSON cannot contain tabs.
      if path.hasSuffix(".json") { for index in bytes.indices where bytes[index] == 0x09 { bytes[index] = 0x20 } }
      let source = SourceText(name: name, bytes: bytes)
      guard let root = YAMLReader.read(source, into: &diagnostics) else { return nil }
      return JSONSchema.type(of: root, into: &diagnostics)
    }
  }

  // MARK: Inline

  private mutating func report(_ message: String, _ location: SourceLocation, help: String?, fix: String? = nil) {
    diagnostics.append(
      Diagnostic(
        .schemaType, message, at: location, help: help, fixIts: fix.map { [.init(location, $0)] } ?? []))
  }

  private mutating func type(_ node: YAMLNode, _ depth: Int) -> ExpressionType {
    guard depth < Self.depthLimit else {
      report("the schema is nested more than \(Self.depthLimit) deep", node.location, help: nil)
      return .dyn
    }
    switch node.content {
    case .scalar(let scalar):
      if scalar.kind == .null, !scalar.string.utf8.elementsEqual("null".utf8) {
        report("the field has no type", node.location, help: "Write e.g. 'int', 'string?' or 'any'")
        return .dyn
      }
      var text = TypeText(scalar.text)
      let type = text.read()
      diagnostics += text.diagnostics.map(scalar.text.concealing)
      return type
    case .sequence(let items):
      guard items.count == 1 else {
        report("a list is written with the type of its elements", node.location, help: "Write e.g. [string]")
        return .dyn
      }
      return .list(type(items[0], depth + 1))
    case .mapping(let entries):
      var fields: [ExpressionType.Field] = []
      var isOpen = false
      for entry in entries {
        if entry.name == "..." {
          isOpen = true
          continue
        }
        let isOptional = entry.name.utf8.last == UInt8(ascii: "?")
        let name = isOptional ? String(decoding: entry.name.utf8.dropLast(), as: UTF8.self) : entry.name
        let type = type(entry.value, depth + 1)
        if fields.contains(where: { $0.name == name }) {
          report("the field '\(Printable.cut(name))' is declared twice", entry.key.location, help: nil)
          continue
        }
        var field = ExpressionType.Field(name, isOptional ? type.orNull : type)
        field.isDeclared = true
        fields.append(field)
      }
      return .object(fields: fields, open: isOpen)
    }
  }
}

/// `map(string, list(int))?`
private struct TypeText {
  private let text: LocatedText
  private var at = 0
  private(set) var diagnostics: [Diagnostic] = []

  init(_ text: LocatedText) { self.text = text }

  mutating func read() -> ExpressionType {
    let type = type(0)
    skipBlanks()
    if at < text.text.count, diagnostics.isEmpty {
      report(
        "unexpected text after the end of a type", at, text.text.count,
        help: "Write e.g. 'int', 'string?' or 'list(int)'")
    }
    return type
  }

  private mutating func report(_ message: String, _ start: Int, _ end: Int, help: String?, fix: String? = nil) {
    guard diagnostics.isEmpty else { return }
    let location = text.location(start, end)
    diagnostics.append(
      Diagnostic(
        .schemaType, message, at: location, help: help, fixIts: fix.map { [.init(location, $0)] } ?? []))
  }

  private mutating func skipBlanks() {
    while at < text.text.count, text.text[at] == 0x20 || text.text[at] == 0x0A { at += 1 }
  }

  private mutating func skip(_ byte: Character) -> Bool {
    skipBlanks()
    guard at < text.text.count, text.text[at] == byte.asciiValue else { return false }
    at += 1
    return true
  }

  private mutating func type(_ depth: Int) -> ExpressionType {
    skipBlanks()
    let start = at
    while at < text.text.count, ASCII.isLetterOrUnderscore(text.text[at]) || ASCII.isDigit(text.text[at]) {
      at += 1
    }
    let name = String(decoding: text.text[start..<at], as: UTF8.self)
    let end = at
    var parts: [ExpressionType] = []
    if depth < 16, skip("(") {
      repeat { parts.append(type(depth + 1)) } while skip(",")
      if !skip(")") { report("')' is missing", start, at, help: nil) }
    }
    let result = named(name, parts, start, end)
    return skip("?") ? result.orNull : result
  }

  private mutating func named(
    _ name: String, _ parts: [ExpressionType], _ start: Int, _ end: Int
  ) -> ExpressionType {
    switch (name, parts.count) {
    case ("list", 0): return .list(.dyn)
    case ("list", 1): return .list(parts[0])
    case ("map", 0): return .map(.string, .dyn)
    case ("map", 1): return .map(.string, parts[0])
    case ("map", 2):
      if parts[0] != .string {
        report("the keys of a JSON object are strings, so this can only be map(string, ...)", start, end, help: nil)
      }
      return .map(.string, parts[1])
    case (_, 0):
      if let type = Self.types[name] { return type }
    default: break
    }
    let known = Self.types.keys.sorted() + ["list", "map"]
    let meant = Self.foreignNames[name.lowercased()] ?? Suggestion.nearest(to: name, among: known)
    report(
      name.isEmpty ? "a type is missing" : "there is no type '\(Printable.cut(name))'", start, max(end, start),
      help: meant.map { "Did you mean '\($0)'?" } ?? "Types are " + known.joined(separator: ", "),
      fix: name.isEmpty ? nil : meant)
    return .dyn
  }

  private static let types: [String: ExpressionType] = [
    "any": .dyn, "dyn": .dyn, "null": .null, "bool": .bool, "int": .int, "uint": .uint, "double": .double,
    "string": .string, "bytes": .bytes, "timestamp": .timestamp, "duration": .duration,
  ]

  /// Names of types in other languages, and the names to write instead.
  private static let foreignNames: [String: String] = [
    "integer": "int", "long": "int", "int64": "int", "int32": "int", "number": "double", "float": "double",
    "float64": "double", "boolean": "bool", "str": "string", "text": "string", "object": "map", "dict": "map",
    "record": "map", "struct": "map", "array": "list", "datetime": "timestamp", "date": "timestamp",
    "time": "timestamp", "unknown": "any", "binary": "bytes", "uint64": "uint",
  ]
}
