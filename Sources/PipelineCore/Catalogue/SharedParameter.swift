/// A parameter in the table of a page.
struct ParameterRow: Equatable {
  static let head = "| name | type | default | meaning |\n|---|---|---|---|\n"

  /// The dotted name, with the names of the enclosing mappings.
  var path: String
  var type: String
  var fallback: String
  var help: String
  var choices: [Choice]

  struct Choice: Equatable {
    var name: String
    var help: String
  }

  var text: String { row(help) + choices.map { "| | | | `\($0.name)`: \($0.help) |\n" }.joined() }

  private func row(_ help: String) -> String { "| `\(path)` | \(type) | \(fallback) | \(help) |\n" }

  /// The row on the page of a component, without the choices.
  func linked(to shared: SharedParameter) -> String {
    row("\(help) [`\(shared.name)`](../\(shared.file)) has the \(shared.noun)s.")
  }

  /// A parameter and, if it is a mapping, those in it.
  static func rows(of info: ParameterInfo, below prefix: String = "", depth: Int = 0) -> [ParameterRow] {
    let help = ([info.help] + [SpecText.range(info), SpecText.condition(info)].compactMap { $0 }).joined(separator: " ")
    var rows = [
      ParameterRow(
        path: prefix + info.name, type: ComponentPage.cell(typeName(info.shape)),
        fallback: info.isRequired ? "required" : info.defaultText.map { "`\(ComponentPage.cell($0))`" } ?? "",
        help: ComponentPage.cell(help),
        choices: SpecText.choices(info.shape).map { Choice(name: $0.name, help: ComponentPage.cell($0.help)) })
    ]
    if depth < 3 {
      for field in SpecText.records(info.shape).joined() {
        rows += Self.rows(of: field, below: "\(prefix)\(info.name).", depth: depth + 1)
      }
    }
    return rows
  }

  private static func typeName(_ shape: ParameterShape) -> String {
    switch shape {
    case .choice: "choice"
    case .oneOf(let shapes): shapes.map(typeName).joined(separator: " or ")
    default: SpecText.typeName(shape)
    }
  }
}

/// A parameter that many components share: it is documented on one page, and a component's page has only the
/// differences.
package struct SharedParameter: Sendable {
  package let name: String
  package let kind: ComponentKind
  /// The kind of thing that a value selects, such as a decoder.
  let noun: String
  private let summary: String
  private let rows: [ParameterRow]
  private let users: [String]

  /// The parameters that have pages of their own.
  package static func all(in catalogue: Catalogue) -> [SharedParameter] {
    [
      SharedParameter(
        "decode", of: .source, in: catalogue, noun: "decoder",
        "How bytes become events. [The guide](../formats.md#decoders) has a line and its event for each of them."),
      SharedParameter(
        "encode", of: .sink, in: catalogue, noun: "encoder",
        "How events become bytes. [The guide](../formats.md#encoders) has an event and its line for each of them."),
    ]
  }

  private init(_ name: String, of kind: ComponentKind, in catalogue: Catalogue, noun: String, _ summary: String) {
    self.name = name
    self.kind = kind
    self.noun = noun
    self.summary = summary
    let tables = catalogue.components.filter { $0.kind == kind }.compactMap { entry in
      entry.parameters.first { $0.name == name }.map { (entry.name, ParameterRow.rows(of: $0)) }
    }
    users = tables.map(\.0).sorted { $0.utf8.lexicographicallyPrecedes($1.utf8) }
    rows = Self.usual(tables.map(\.1))
  }

  /// For each path, the row that most components have; on a tie, the shortest, which has the fewest conditions. Rows
  /// about a single component ("has no effect here") are excluded.
  private static func usual(_ tables: [[ParameterRow]]) -> [ParameterRow] {
    var order: [String] = []
    var found: [String: [(row: ParameterRow, count: Int)]] = [:]
    for row in tables.joined() {
      if found[row.path] == nil { order.append(row.path) }
      if let at = found[row.path]?.firstIndex(where: { $0.row == row }) {
        found[row.path]?[at].count += 1
      } else {
        found[row.path, default: []].append((row, 1))
      }
    }
    return order.compactMap { path in
      let general = found[path]?.filter { !$0.row.help.contains(" here") } ?? []
      return (general.isEmpty ? found[path] : general)?
        .max { ($0.count, -$0.row.text.utf8.count) < ($1.count, -$1.row.text.utf8.count) }?.row
    }
  }

  package var file: String { "\(name).md" }

  func isOn(_ entry: CatalogueEntry) -> Bool { entry.kind == kind && users.contains(entry.name) }

  /// The sentence above the rows that differ.
  var introduction: String { "[The page `\(name)`](../\(file)) has the \(noun)s and their parameters." }

  /// The rows of a component, after the first, that differ from this page, including a note for each row that the
  /// component lacks.
  func different(_ own: [ParameterRow]) -> [ParameterRow] {
    let known = Dictionary(uniqueKeysWithValues: rows.map { ($0.path, $0) })
    let paths = Set(own.map(\.path))
    var differing = own.dropFirst().compactMap { row -> ParameterRow? in
      guard let known = known[row.path] else { return row }
      if known == row { return nil }
      var row = row
      // The choices are on the shared page.
      if known.choices == row.choices { row.choices = [] }
      return row
    }
    differing += rows.dropFirst().filter { !paths.contains($0.path) }.map { row in
      ParameterRow(path: row.path, type: row.type, fallback: "", help: "Not possible here.", choices: [])
    }
    if let first = own.first, let usual = rows.first {
      if first.choices != usual.choices {
        differing.insert(
          ParameterRow(path: name, type: "", fallback: "", help: "One of:", choices: first.choices), at: 0)
      }
    }
    return differing
  }

  /// The text of the page: the choices and the parameters of each.
  package func page(note: String) -> String {
    var page = note + "# \(name)\n\n*parameter of \(kind.rawValue)s*\n\n\(summary)\n\n"
    let links = users.map { "[`\($0)`](\(ComponentPage.folder(kind))/\($0).md#\(name))" }
    page += "These \(kind.rawValue)s have it, with defaults of their own: \(links.joined(separator: ", ")).\n\n"
    let direct = rows.filter { $0.path.split(separator: ".").count == 2 }
    func inside(_ one: ParameterRow) -> [ParameterRow] { rows.filter { $0.path.hasPrefix(one.path + ".") } }
    let example = direct.max { inside($0).count < inside($1).count }
    page += "`\(name): NAME` chooses \(article) \(noun). With parameters it is a mapping:"
    if let inner = example.flatMap({ inside($0).first }) {
      let names = inner.path.split(separator: ".")
      page += " `\(name): { \(names[1]): { \(names[2]): ... } }`."
    }
    page += "\n\n| \(noun) | what it does |\n|---|---|\n"
    for choice in rows.first?.choices ?? [] {
      page += "| `\(choice.name)` | \(choice.help) |\n"
    }
    for one in direct {
      let inner = inside(one)
      page += "\n## \(one.path.dropFirst(name.count + 1))\n\n\(one.help)\n"
      if one.type != "mapping" { page += "\nAs \(one.type).\n" }
      if !inner.isEmpty { page += "\n" + ParameterRow.head + inner.map(\.text).joined() }
    }
    return page
  }

  private var article: String { "aeiou".contains(noun.first ?? "x") ? "an" : "a" }
}
