import PipelineCore
import PipelineRuntime
import Testing

/// What the pages of components and the shared pages say together is what each page alone would say.
@Suite struct SharedParameterTests {
  private static let catalogue = Catalogue.builtIn
  private static let shared = SharedParameter.all(in: catalogue)

  /// Rows of tables by the names in their first cells, with the choices below them.
  private static func rows(_ page: String) -> [String: String] {
    var rows: [String: String] = [:]
    var name = ""
    for line in page.split(separator: "\n") {
      if line.hasPrefix("| | | | ") {
        rows[name, default: ""] += "\n" + line
      } else if line.hasPrefix("| `"), let end = line.dropFirst(3).firstIndex(of: "`") {
        name = String(line[line.index(line.startIndex, offsetBy: 3)..<end])
        rows[name] = String(line)
      }
    }
    return rows
  }

  private static func users(of parameter: SharedParameter) -> [CatalogueEntry] {
    catalogue.components.filter { entry in
      entry.kind == parameter.kind && entry.parameters.contains { $0.name == parameter.name }
    }
  }

  @Test func nothingIsLost() throws {
    for parameter in Self.shared {
      let common = Self.rows(parameter.page(note: ""))
      let users = Self.users(of: parameter)
      #expect(users.count > 5)
      for entry in users {
        let whole = Self.rows(ComponentPage(entry).text)
        let own = Self.rows(
          ComponentPage(entry, in: .init(catalogue: Self.catalogue, shared: Self.shared)).text)
        let inside = whole.filter { $0.key.hasPrefix(parameter.name + ".") }
        #expect(!inside.isEmpty, "\(entry.name)")
        for (path, row) in inside where path.split(separator: ".").count > 2 {
          let said = own[path] ?? common[path]
          // Choices that are the same are on the shared page alone.
          let isThere =
            said == row
            || own[path].map { row.hasPrefix($0 + "\n") && common[path]?.hasSuffix(row.dropFirst($0.count)) == true }
              == true
          #expect(isThere, "\(entry.kind) \(entry.name): \(row) is \(said ?? "nowhere")")
        }
        for path in common.keys where path.hasPrefix(parameter.name + ".") && inside[path] == nil {
          #expect(own[path]?.contains("Not possible here.") == true, "\(entry.name): \(path)")
        }
        #expect(own.keys.filter { $0.hasPrefix(parameter.name + ".") }.count <= 8, "\(entry.name)")
        #expect(own[parameter.name]?.contains("](../\(parameter.file))") == true, "\(entry.name)")
      }
    }
  }

  @Test func decodersAndEncodersAreShared() { #expect(Self.shared.map(\.name) == ["decode", "encode"]) }
}
