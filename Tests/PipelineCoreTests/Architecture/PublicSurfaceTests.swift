import Foundation
import Testing

/// The public interface is small and documented: declarations for the package's own targets are `package`.
@Suite struct PublicSurfaceTests {
  /// The number of public declarations may fall but not rise. Decisions 115, 179 and 187 define what belongs to them.
  private static let most = 705

  private struct Declaration {
    var place: String
    var text: String
    var hasDocumentation: Bool
    /// `wake` of `func wake(after:)`, or the name of a type; nil: a declaration without a name, such as an initializer.
    var name: String?
    var isOverride: Bool
    var isRequirement: Bool
  }

  /// Attributes and modifiers, then `public` or `open`, then the keyword and the name.
  nonisolated(unsafe) private static let published =
    #/^\s*((?:@\w+(?:\([^)]*\))?|\w+(?:\(set\))?|unowned\(unsafe\))\s+)*?(public|open)\s+(?:(?:\w+(?:\(\w+\))?)\s+)*?(func|var|let|init|subscript|case|struct|class|enum|protocol|typealias|actor)\b\s*(?:`?(\w+|[<>=+\-*\/]+)`?)?/#
  nonisolated(unsafe) private static let requirement =
    #/^  (?:static |mutating )*(func|var|init)\b\s*`?(\w+)?/#
  nonisolated(unsafe) private static let attributes = #/^\s*(@\w+(\([^)]*\))?\s*)+$/#

  private static func declarations() throws -> [Declaration] {
    var result: [Declaration] = []
    for target in ["PipelineCore", "PipelineRuntime", "RxdProgram", "Transport"] {
      let root = packageRoot.appending(path: "Sources/\(target == "RxdProgram" ? "rxd" : target)")
      for path in try FileManager.default.subpathsOfDirectory(atPath: root.path).sorted() where path.hasSuffix(".swift")
      {
        let lines = try String(contentsOf: root.appending(path: path), encoding: .utf8)
          .split(separator: "\n", omittingEmptySubsequences: false)
        var isText = false
        var isPublicProtocol = false
        for (index, line) in lines.enumerated() {
          defer { if line.matches(of: #/"""/#).count % 2 == 1 { isText.toggle() } }
          if isText || line.drop(while: { $0 == " " }).hasPrefix("//") { continue }
          if line == "}" { isPublicProtocol = false }
          var above = index - 1
          while above >= 0, lines[above].wholeMatch(of: attributes) != nil || lines[above].contains("// swift-format") {
            above -= 1
          }
          let hasDocumentation = above >= 0 && lines[above].drop(while: { $0 == " " }).hasPrefix("///")
          let place = "\(target)/\(path):\(index + 1)"
          if let found = try published.prefixMatch(in: line) {
            if found.output.3 == "protocol" { isPublicProtocol = true }
            result.append(
              Declaration(
                place: place, text: String(line), hasDocumentation: hasDocumentation,
                name: found.output.4.map(String.init), isOverride: line.contains("override "), isRequirement: false))
          } else if isPublicProtocol, let found = try requirement.prefixMatch(in: line) {
            result.append(
              Declaration(
                place: place, text: String(line), hasDocumentation: hasDocumentation,
                name: found.output.2.map(String.init), isOverride: false, isRequirement: true))
          }
        }
      }
    }
    return result
  }

  /// Names of the standard library's requirements, whose meaning is known.
  private static let standard: Set<String> = ["description", "customMirror", "hash", "<", "=="]

  @Test func everyPublicDeclarationHasDocumentation() throws {
    let all = try Self.declarations()
    let requirements = all.filter(\.isRequirement)
    #expect(requirements.count > 60)
    for declaration in requirements where !declaration.hasDocumentation {
      Issue.record("\(declaration.place): \(declaration.text)")
    }
    // What fulfils a requirement, or overrides a method, has the documentation of that.
    let documented = Set(requirements.compactMap(\.name)).union(Self.standard)
    for declaration in all where !declaration.isRequirement && !declaration.hasDocumentation && !declaration.isOverride
    {
      if let name = declaration.name, name != "init", documented.contains(name) { continue }
      if declaration.text.contains("init(from state: inout StateReader)")
        || declaration.text.contains("public init() {")
      {
        continue
      }
      Issue.record("\(declaration.place): \(declaration.text)")
    }
  }

  @Test func theSurfaceDoesNotGrow() throws {
    let count = try Self.declarations().count { !$0.isRequirement }
    #expect(count > 300, "the test sees no declarations")
    #expect(
      count <= Self.most,
      "\(count) declarations are public: make new ones package, or say in decisions 115 and 179 why not")
  }

  /// The code that docs/embedding.md shows is that of the package that is built and run.
  @Test func theEmbeddingPageShowsTheCodeThatRuns() throws {
    let folder = packageRoot.appending(path: "Tests/Embedding")
    let files = try ["Package.swift", "Sources/Embedding/main.swift", "Sources/Components/main.swift"].map {
      try String(contentsOf: folder.appending(path: $0), encoding: .utf8)
    }
    let page = try String(contentsOf: packageRoot.appending(path: "docs/embedding.md"), encoding: .utf8)
    let blocks = page.matches(of: #/```swift\n([\s\S]*?)```/#).map { String($0.output.1) }
    #expect(blocks.count >= 6)
    for block in blocks { #expect(files.contains { $0.contains(block) }, "\(block)") }
    #expect(blocks.contains(files[1]), "the page shows the whole of the first program")
    #expect(files[1].split(separator: "\n").count <= 10)
    for link in page.matches(of: #/\]\(([^)#]+)[^)]*\)/#) {
      let file = packageRoot.appending(path: "docs/\(link.1)").standardizedFileURL
      #expect(FileManager.default.fileExists(atPath: file.path), "\(link.1)")
    }
  }
}
