import Foundation
import PipelineCore
import Testing

/// Links between pages have targets, every page can be reached from the README, and some pages are short.
@Suite struct DocumentationPagesTests {
  /// A page of Markdown.
  struct Page {
    /// The targets of its links as written, except in code.
    var links: [String] = []
    /// The anchors of its headings.
    var anchors: Set<String> = []
    /// Texts outside of code that a browser takes for tags, and does not show.
    var tags: [String] = []

    init(_ text: String) {
      var isCode = false
      var times: [String: Int] = [:]
      for line in text.components(separatedBy: "\n") {
        if line.drop(while: { $0 == " " }).hasPrefix("```") {
          isCode.toggle()
        } else if !isCode {
          if line.hasPrefix("#") {
            let name = Self.anchor(line)
            let earlier = times[name, default: 0]
            anchors.insert(earlier == 0 ? name : "\(name)-\(earlier)")
            times[name] = earlier + 1
          }
          let prose = line.components(separatedBy: "`").enumerated().filter { $0.offset.isMultiple(of: 2) }
          let text = prose.map(\.element).joined()
          links += Self.targets(text)
          tags += text.matches(of: #/<(?!https?:)\/?[A-Za-z][^>]*>/#).map { String($0.output) }
        }
      }
    }

    private static func targets(_ line: String) -> [String] {
      line.components(separatedBy: "](").dropFirst().map { String($0.prefix { $0 != ")" && $0 != " " }) }
    }

    /// Lower case, hyphens for spaces, no other punctuation.
    private static func anchor(_ heading: String) -> String {
      var title = heading.drop { $0 == "#" }.trimmingCharacters(in: .whitespaces)
      for target in targets(title) { title = title.replacingOccurrences(of: "](\(target))", with: "]") }
      let kept = title.lowercased().unicodeScalars.filter {
        $0.properties.isAlphabetic || $0.properties.numericType != nil || "_- ".unicodeScalars.contains($0)
      }
      return String(String.UnicodeScalarView(kept)).replacingOccurrences(of: " ", with: "-")
    }
  }

  private static func text(_ path: String) throws -> String {
    try String(contentsOf: packageRoot.appending(path: path), encoding: .utf8)
  }

  /// The pages by path: those of the root, of `docs`, of the plugins and of the pipelines.
  private static let pages: [String: Page] = {
    let files = FileManager.default
    let root = packageRoot.path
    var paths = (try? files.contentsOfDirectory(atPath: root)) ?? []
    for folder in ["docs", "Plugins", "pipelines"] {
      paths += ((try? files.subpathsOfDirectory(atPath: "\(root)/\(folder)")) ?? []).map { "\(folder)/\($0)" }
    }
    var pages: [String: Page] = [:]
    for path in paths where path.hasSuffix(".md") && !path.contains("/.") {
      if let text = try? text(path) { pages[path] = Page(text) }
    }
    return pages
  }()

  /// The target of a link in this repository; nil: it is elsewhere.
  private static func goal(of link: String, on page: String) -> (path: String, anchor: String?)? {
    if link.contains("://") || link.hasPrefix("mailto:") { return nil }
    let parts = link.split(separator: "#", maxSplits: 1, omittingEmptySubsequences: false).map(String.init)
    let anchor = parts.count > 1 ? parts[1] : nil
    if parts[0].isEmpty { return (page, anchor) }
    let folder = packageRoot.appending(path: page).deletingLastPathComponent()
    let path = folder.appending(path: parts[0]).standardizedFileURL.path
    let root = packageRoot.standardizedFileURL.path
    guard path.hasPrefix(root + "/") else { return (path, anchor) }
    return (String(path.dropFirst(root.count + 1)), anchor)
  }

  /// A user who looks for a system finds the plugin that connects to it.
  @Test func everyPluginIsAnIntegration() throws {
    let page = try Self.text("docs/integrations.md")
    for plugin in KnownPlugin.all {
      #expect(page.contains("](../Plugins/\(plugin.folder)/README.md)"), "\(plugin.name)")
      for component in plugin.components {
        let name = plugin.nameInFiles(component)
        #expect(page.contains("`\(name)`"), "\(name)")
      }
    }
  }

  @Test func noTextIsTakenForATag() {
    for (name, page) in Self.pages { #expect(page.tags == [], "\(name)") }
  }

  @Test func everyLinkLeadsSomewhere() {
    var links = 0
    for (name, page) in Self.pages {
      for link in page.links {
        guard let goal = Self.goal(of: link, on: name) else { continue }
        links += 1
        let file = packageRoot.appending(path: goal.path).path
        #expect(FileManager.default.fileExists(atPath: file), "\(name): \(link)")
        if let anchor = goal.anchor, let other = Self.pages[goal.path] {
          #expect(other.anchors.contains(anchor), "\(name): \(link)")
        }
      }
    }
    #expect(links > 1_000)
  }

  /// A link to a folder reaches the pages in it.
  @Test func everyPageIsFoundFromTheReadme() {
    var found: Set<String> = []
    var next = ["README.md"]
    while let path = next.popLast() {
      if !found.insert(path).inserted { continue }
      if let page = Self.pages[path] {
        next += page.links.compactMap { Self.goal(of: $0, on: path)?.path }
      } else {
        next += Self.pages.keys.filter { ($0 as NSString).deletingLastPathComponent == path }
      }
    }
    let lost = Self.pages.keys.filter { !found.contains($0) }
    #expect(lost.isEmpty, "\(lost.sorted())")
  }

  /// At 250 words a minute: five minutes for performance, ten for the architecture.
  @Test(arguments: [("performance", 1_250), ("architecture", 2_500)])
  func shortPagesStayShort(_ name: String, _ most: Int) throws {
    let words = try Self.text("docs/\(name).md").split { $0.isWhitespace }.count
    #expect(words > most / 2)
    #expect(words <= most)
  }

  /// A decision: its file, number, title, and the text before its question.
  private struct Decision {
    var file: String
    var number: Int
    var title: String
    var head: [String]
  }

  private static func decisions() throws -> [Decision] {
    let folder = packageRoot.appending(path: "docs/decisions")
    let files = try FileManager.default.contentsOfDirectory(atPath: folder.path).filter {
      $0.hasSuffix(".md") && $0 != "README.md"
    }
    return try files.sorted().map { file in
      let lines = try text("docs/decisions/\(file)").components(separatedBy: "\n")
      let found = try #require(
        lines.first?.wholeMatch(of: #/# (\d+)\. (.+)/#), "\(file): the first line is '# NUMBER. TITLE'")
      let number = try #require(Int(found.1))
      #expect(Int(file.prefix(4)) == number, "\(file): the number of the file is that of the title")
      return Decision(
        file: file, number: number, title: String(found.2),
        head: Array(lines.dropFirst().prefix { !$0.hasPrefix("**") && !$0.hasPrefix("|") }))
    }
  }

  @Test func everyDecisionIsInTheIndexOnce() throws {
    let decisions = try Self.decisions()
    #expect(decisions.count > 120)
    #expect(Set(decisions.map(\.number)).count == decisions.count)
    let index = try Self.text("docs/decisions/README.md").components(separatedBy: "\n").filter { $0.hasPrefix("- ") }
    let wanted = decisions.map { "- [\($0.number)](\($0.file)) \($0.title)" }
    #expect(index.sorted() == wanted.sorted(), "docs/decisions/README.md has one line for each decision")
  }

  /// A decision that changes another one is named at the top of the latter.
  @Test func aChangedDecisionSaysSo() throws {
    let decisions = try Self.decisions()
    var changes = 0
    for decision in decisions {
      for line in decision.head
      where ["Changes", "Replaces", "Supersedes", "Amends", "Extends"].contains(where: line.hasPrefix) {
        for link in line.prefix(while: { $0 != ";" }).matches(of: #/\]\((\d{4}-[^)#]+)\)/#) {
          let changed = try #require(decisions.first { $0.file == link.1 }, "\(decision.file): \(link.1)")
          changes += 1
          #expect(
            changed.head.contains { $0.contains("(\(decision.file))") },
            "\(changed.file) does not name \(decision.file)")
        }
      }
    }
    #expect(changes > 10)
  }
}
