/// The page of one component in Markdown, for the reference and for `rxd describe --format markdown`.
package struct ComponentPage {
  /// The targets that a page's links can refer to.
  package struct Surroundings: Sendable {
    /// The lines at the head of the page.
    var note: String
    /// The components that have pages in the same directory; nil: the page is not part of a set and has no links or pictures.
    var catalogue: Catalogue?
    /// The parameters that have their own page in the parent directory.
    var shared: [SharedParameter]

    package init(note: String = "", catalogue: Catalogue? = nil, shared: [SharedParameter] = []) {
      self.note = note
      self.catalogue = catalogue
      self.shared = shared
    }
  }

  private let entry: CatalogueEntry
  private let surroundings: Surroundings

  package init(_ entry: CatalogueEntry, in surroundings: Surroundings = Surroundings()) {
    self.entry = entry
    self.surroundings = surroundings
  }

  package static func folder(_ kind: ComponentKind) -> String { "\(kind.rawValue)s" }

  /// A text escaped for a table cell.
  package static func cell(_ text: String) -> String {
    var result = ""
    for scalar in text.unicodeScalars {
      if scalar == "|" {
        result += "\\|"
      } else if scalar == "\n" {
        result += " "
      } else {
        result.unicodeScalars.append(scalar)
      }
    }
    return result
  }

  /// Splits a text after its first sentence.
  static func firstSentence(_ text: String) -> (first: String, rest: String) {
    let bytes = Array(text.utf8)
    for (at, byte) in bytes.enumerated() where byte == UInt8(ascii: ".") || byte == UInt8(ascii: ":") {
      let next = at + 1
      if byte == UInt8(ascii: "."), next == bytes.count { break }
      guard byte == UInt8(ascii: "."), bytes[next] == 0x20 || bytes[next] == 0x0A else { continue }
      return (
        String(decoding: bytes[..<next], as: UTF8.self),
        String(decoding: bytes[next...].drop { $0 == 0x20 || $0 == 0x0A }, as: UTF8.self)
      )
    }
    return (text, "")
  }

  package var text: String {
    let (second, rest) = Self.firstSentence(entry.details)
    var page = surroundings.note + "# \(entry.name)\n\n*\(entry.kind.rawValue)*\n\n**\(entry.summary)**"
    page += second.isEmpty ? "\n" : " \(second)\n"
    let drawn = entry.examples.first { isDrawn($0) }
    if let drawn, hasPictures { page += "\n\(image(drawn))\n" }
    if !rest.isEmpty { page += "\n\(rest)\n" }
    page += parameters
    page += examples
    let edges = entry.edges.rows
    if !edges.isEmpty {
      page += "\n## At the edges\n\n| | |\n|---|---|\n"
      for edge in edges { page += "| \(edge.title) | \(Self.cell(edge.text)) |\n" }
    }
    page += "\n## Keeps\n\n\(SpecText.kept(entry))\n"
    if let crash = entry.afterCrash {
      let link = surroundings.catalogue == nil ? "" : " [What is promised](../../reliability.md#what-is-promised)"
      page += "\n## After a crash\n\n\(crash)\(link)\n"
    }
    if !entry.useCases.isEmpty {
      page += "\n## Use it to ...\n\n"
      for useCase in entry.useCases {
        page += "- \(useCase.text)" + (useCase.yaml.isEmpty ? "\n" : ": `\(useCase.yaml)`\n")
      }
    }
    if !entry.knownAs.isEmpty { page += "\n## Elsewhere\n\n\(entry.knownAs.joined(separator: "; "))\n" }
    let links = entry.seeAlso.compactMap { name -> String? in
      guard let catalogue = surroundings.catalogue else { return "`\(name)`" }
      let found = catalogue.components.filter { $0.name == name }
      guard let other = found.first(where: { $0.kind == entry.kind }) ?? found.first else { return nil }
      return "[`\(name)`](../\(Self.folder(other.kind))/\(name).md)"
    }
    if !links.isEmpty { page += "\n## See also\n\n\(links.joined(separator: ", "))\n" }
    return page
  }

  // MARK: Parameters

  private var parameters: String {
    guard !entry.parameters.isEmpty else { return "\n## Parameters\n\nNone.\n" }
    var text = "\n## Parameters\n\n" + ParameterRow.head
    var others: [(parameter: SharedParameter, rows: [ParameterRow])] = []
    for info in entry.parameters {
      let rows = ParameterRow.rows(of: info)
      if let shared = surroundings.shared.first(where: { $0.isOn(entry) && $0.name == info.name }) {
        text += rows[0].linked(to: shared)
        others.append((shared, shared.different(rows)))
      } else {
        text += rows.map(\.text).joined()
      }
    }
    if let primary = entry.parameters.first(where: \.isPrimary) {
      text += "\nThe short form `\(entry.name): ...` gives `\(primary.name)`.\n"
    }
    for (shared, rows) in others {
      text += "\n### \(shared.name)\n\n\(shared.introduction)"
      text += rows.isEmpty ? " All of them are the same here.\n" : " These differ here:\n\n"
      if !rows.isEmpty { text += ParameterRow.head + rows.map(\.text).joined() }
    }
    return text
  }

  // MARK: Examples

  /// The examples after the one at the top of the page.
  private var examples: String {
    guard !entry.examples.isEmpty else { return "" }
    var text = "\n## Examples\n"
    for example in entry.examples {
      text += "\n\(capitalized(example.title)):\n\n```yaml\n"
      switch example.body {
      case .marble(let step, _, _, _) where hasPictures: text += step + "\n```\n\n\(image(example))\n"
      case .marble:
        text += SpecText.text(example).joined(separator: "\n") + "\n```\n"
      case .pipeline(let yaml), .snippet(let yaml): text += yaml + "\n```\n"
      }
    }
    return text
  }

  private func isDrawn(_ example: Example) -> Bool {
    if case .marble = example.body { true } else { false }
  }

  private func capitalized(_ text: String) -> String { text.prefix(1).uppercased() + text.dropFirst() }

  private var hasPictures: Bool { surroundings.catalogue != nil }

  private func image(_ example: Example) -> String {
    let words = SpecText.text(example).dropFirst().joined(separator: ", ")
    var quoted = ""
    for scalar in words.split(whereSeparator: { $0 == " " || $0 == "\n" }).joined(separator: " ").unicodeScalars {
      if "[]\\`*_<>|#!".unicodeScalars.contains(scalar) { quoted += "\\" }
      quoted.unicodeScalars.append(scalar)
    }
    return "![\(quoted)](marbles/\(fileName(example)))"
  }

  package func fileName(_ example: Example) -> String {
    var name = entry.name
    var isGap = true
    for scalar in example.title.lowercased().unicodeScalars {
      if ("a"..."z").contains(scalar) || ("0"..."9").contains(scalar) {
        if isGap { name += "-" }
        isGap = false
        name.unicodeScalars.append(scalar)
      } else {
        isGap = true
      }
    }
    return name + ".svg"
  }
}

extension SpecText {
  /// The memory of a running component, at least a sentence.
  package static func kept(_ entry: CatalogueEntry) -> String {
    [entry.memory.isEmpty ? "Nothing." : entry.memory, entry.persistence.meaning ?? "", entry.lateness ?? ""].filter {
      !$0.isEmpty
    }
    .joined(separator: " ")
  }
}
