import Foundation
import Testing

/// The page of connector laws names existing tests, and every law has one.
@Suite struct ConnectorLawsTests {
  private struct Law {
    var number: Int
    /// `Suite/function`.
    var tests: [String]
  }

  private static func laws() throws -> [Law] {
    let page = try String(contentsOf: packageRoot.appending(path: "docs/connector-laws.md"), encoding: .utf8)
    return page.components(separatedBy: "\n").compactMap { line in
      let cells = line.components(separatedBy: "|").map { $0.trimmingCharacters(in: .whitespaces) }
      guard cells.count == 5, let number = Int(cells[1]) else { return nil }
      let tests = cells[3].components(separatedBy: "`").enumerated().filter { !$0.offset.isMultiple(of: 2) }
      return Law(number: number, tests: tests.map(\.element))
    }
  }

  /// The test functions of each suite.
  private static func functions() throws -> [String: Set<String>] {
    let tests = packageRoot.appending(path: "Tests")
    var found: [String: Set<String>] = [:]
    for path in try FileManager.default.subpathsOfDirectory(atPath: tests.path) where path.hasSuffix(".swift") {
      let text = try String(contentsOf: tests.appending(path: path), encoding: .utf8)
      let names = text.matches(of: /func ([A-Za-z0-9]+)/).map { String($0.1) }
      for suite in text.matches(of: /(?:struct|class) ([A-Za-z0-9]+Tests)\b/) {
        found[String(suite.1), default: []].formUnion(names)
      }
    }
    return found
  }

  @Test func everyLawHasATest() throws {
    let laws = try Self.laws()
    #expect(laws.map(\.number) == Array(1...39))
    for law in laws { #expect(!law.tests.isEmpty, "law \(law.number)") }
  }

  @Test func everyNamedTestExists() throws {
    let functions = try Self.functions()
    for law in try Self.laws() {
      for test in law.tests {
        let parts = test.split(separator: "/").map(String.init)
        try #require(parts.count == 2, "law \(law.number): \(test)")
        #expect(functions[parts[0]]?.contains(parts[1]) == true, "law \(law.number): there is no test \(test)")
      }
    }
  }
}
