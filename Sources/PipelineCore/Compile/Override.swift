/// A value that replaces one in a pipeline file: `sources.typed.stdin.decode=lines`, the argument of `--set`.
///
/// The path consists of the keys from the top of the file, and the indexes of list items from 0, separated by dots;
/// `\\.` is a dot within a key. The value is YAML. If a component or a parameter has its short form (`stdin: lines`), a
/// path to one of its parameters changes it to the long form. The value is checked together with the file; its
/// locations are in the text of the option.
struct Override {
  /// The name of the text in diagnostics.
  static let sourceName = "--set"

  private struct Part {
    var name: String
    var location: SourceLocation
  }

  private let path: [Part]
  private let value: YAMLNode

  /// Nil, with a diagnostic, if the text does not have the form PATH=VALUE or the value is not YAML.
  init?(_ text: String, into diagnostics: inout Diagnostics) {
    let source = SourceText(name: Self.sourceName, text: text)
    let bytes = source.bytes
    func malformed(_ message: String, _ from: Int, _ to: Int) {
      diagnostics.report(
        Diagnostic(
          .overrideForm, message, at: SourceLocation(source, offset: from, length: to - from),
          help: "Write --set PATH=VALUE, such as --set sources.typed.stdin.decode=lines"))
    }
    guard let equals = bytes.firstIndex(of: UInt8(ascii: "=")) else {
      malformed("there is no '=' after the path", bytes.count, bytes.count)
      return nil
    }
    var path: [Part] = []
    var name: [UInt8] = []
    var start = 0
    var at = 0
    while at <= equals {
      let byte = bytes[at]
      if byte == UInt8(ascii: "\\"), at + 1 < equals, bytes[at + 1] == UInt8(ascii: ".") {
        name.append(bytes[at + 1])
        at += 2
        continue
      }
      if at == equals || byte == UInt8(ascii: ".") {
        guard !name.isEmpty else {
          malformed("a part of the path is empty", start, at)
          return nil
        }
        path.append(
          Part(
            name: String(decoding: name, as: UTF8.self),
            location: SourceLocation(source, offset: start, length: at - start)))
        name = []
        start = at + 1
      } else {
        name.append(byte)
      }
      at += 1
    }
    self.path = path
    if bytes[(equals + 1)...].allSatisfy({ $0 == 0x20 }) {
      let end = SourceLocation(source, offset: bytes.count)
      let nothing = LocatedText(text: [], source: source, offsets: [Int32(clamping: bytes.count)])
      value = YAMLNode(.scalar(YAMLScalar(text: nothing, location: end)), at: end)
    } else {
      guard let read = YAMLReader.read(source, from: equals + 1, into: &diagnostics) else { return nil }
      value = read
    }
  }

  /// The file with the value inserted; nil, with a diagnostic, if the path leads nowhere.
  func apply(to root: YAMLNode, _ catalogue: Catalogue, into diagnostics: inout Diagnostics) -> YAMLNode? {
    do throws(Diagnostic) {
      return try replace(in: root, 0, Container(), catalogue)
    } catch {
      diagnostics.report(error)
      return nil
    }
  }

  /// The known facts about a value on the path.
  private struct Container {
    /// The value as messages name it: `the file`, `'sources.typed'`.
    var name = "the file"
    /// The parameters that the value may have; nil if it is neither a component's value nor a parameter with fields.
    var fields: [ParameterInfo]?
    /// Whether the value is an item of a list, in which a step without parameters may be a bare word.
    var isItem = false
  }

  private func replace(
    in node: YAMLNode, _ depth: Int, _ container: Container, _ catalogue: Catalogue
  ) throws(Diagnostic) -> YAMLNode {
    guard depth < path.count else { return value }
    var result = node
    if case .sequence(var items) = node.content {
      let index = try index(path[depth], in: items, container)
      items[index] = try replace(
        in: items[index], depth + 1, inner(depth, container, catalogue, isItem: true), catalogue)
      result.content = .sequence(items)
      return result
    }
    var entries = try entries(of: node, path[depth], container)
    let inner = inner(depth, container, catalogue)
    if let at = entries.firstIndex(where: { $0.name == path[depth].name }) {
      entries[at].value = try replace(in: entries[at].value, depth + 1, inner, catalogue)
    } else {
      let isLast = depth == path.count - 1
      guard isLast || container.fields?.contains(where: { $0.name == path[depth].name }) == true else {
        throw unknown(path[depth], among: entries.map(\.name), container)
      }
      let empty = YAMLNode(.mapping([]), at: path[depth].location)
      entries.append(YAMLEntry(key: key(path[depth]), value: try replace(in: empty, depth + 1, inner, catalogue)))
    }
    result.content = .mapping(entries)
    return result
  }

  private func key(_ part: Part) -> YAMLScalar {
    // If a backslash before a dot was removed, offsets no longer match, so every byte gets the location of the whole
    // part.
    let bytes = Array(part.name.utf8)
    let isLiteral = bytes.count == part.location.length
    let offsets = (0...bytes.count).map { Int32(clamping: part.location.offset + (isLiteral ? $0 : 0)) }
    return YAMLScalar(
      text: LocatedText(text: bytes, source: part.location.text, offsets: offsets), kind: .string,
      location: part.location)
  }

  /// The known facts about the value of the part at `depth`.
  private func inner(_ depth: Int, _ container: Container, _ catalogue: Catalogue, isItem: Bool = false) -> Container {
    let name = path[depth].name
    var inner = Container(name: "'\(path[...depth].map(\.name).joined(separator: "."))'")
    inner.isItem = isItem
    if let field = container.fields?.first(where: { $0.name == name }) {
      inner.fields = field.shape.fields
    } else if container.fields == nil, !isItem {
      // Sources, signals, commands and sinks may have the names of components.
      let isName = depth == 1 && ["sources", "signals", "commands", "sinks"].contains(path[0].name)
      let kinds: [ComponentKind] = [.operator, .source, .sink, .combination, .command]
      if !isName { inner.fields = kinds.compactMap { catalogue.component($0, name) }.first?.parameters }
    }
    return inner
  }

  private func index(_ part: Part, in items: [YAMLNode], _ container: Container) throws(Diagnostic) -> Int {
    if let index = Int(part.name), items.indices.contains(index) { return index }
    let range =
      items.isEmpty ? "it is empty" : items.count == 1 ? "its only item is 0" : "its items are 0 to \(items.count - 1)"
    throw Diagnostic(
      .overridePath, "\(container.name) is a list, and has no item '\(Printable.cut(part.name))'", at: part.location,
      help: "Name an item by its index: \(range)")
  }

  /// The entries of a mapping, or of a short form written as a mapping.
  private func entries(of node: YAMLNode, _ part: Part, _ container: Container) throws(Diagnostic) -> [YAMLEntry] {
    if let entries = node.entries { return entries }
    if node.isNull { return [] }
    if container.isItem, let word = node.string, word == part.name {
      return [YAMLEntry(key: key(part), value: YAMLNode(.mapping([]), at: node.location))]
    }
    if let fields = container.fields, let primary = fields.first(where: \.isPrimary) {
      if primary.name == part.name { return [] }
      let name = LocatedText(
        text: Array(primary.name.utf8), source: node.location.text,
        offsets: Array(repeating: Int32(clamping: node.location.offset), count: primary.name.utf8.count + 1))
      return [YAMLEntry(key: YAMLScalar(text: name, kind: .string, location: node.location), value: node)]
    }
    if container.fields != nil { return [] }
    throw Diagnostic(
      .overridePath, "\(container.name) is \(node.kindName), and has no '\(Printable.cut(part.name))'",
      at: part.location,
      help: "End the path before it, to replace the whole value")
  }

  private func unknown(_ part: Part, among known: [String], _ container: Container) -> Diagnostic {
    let fields = container.fields?.map(\.name) ?? []
    let all = known + fields.filter { !known.contains($0) }
    let near = Suggestion.nearest(to: part.name, among: all)
    return Diagnostic(
      .overridePath, "\(container.name) has no '\(Printable.cut(part.name))'", at: part.location,
      help: near.map { "Did you mean '\($0)'?" }
        ?? (all.isEmpty ? "It is empty" : "It has \(Suggestion.list(all))"))
  }
}

extension ParameterShape {
  /// The fields of a value that has any.
  fileprivate var fields: [ParameterInfo]? {
    switch self {
    case .record(let fields): fields
    case .oneOf(let shapes): shapes.compactMap(\.fields).first
    default: nil
    }
  }
}
