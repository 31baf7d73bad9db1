import Foundation
import Testing

/// The files and links that docs/architecture.md names exist.
@Suite struct ArchitecturePageTests {
  private static let root = packageRoot

  private static func exists(_ path: String) -> Bool {
    FileManager.default.fileExists(atPath: root.appending(path: path).standardizedFileURL.path)
  }

  @Test func everyHopIsAFile() throws {
    let page = try String(contentsOf: Self.root.appending(path: "docs/architecture.md"), encoding: .utf8)
    let paths = page.matches(of: #/`([\w+/]+\.swift)`/#).map { String($0.1) }
    #expect(paths.count > 25)
    for path in paths {
      #expect(Self.exists("Sources/\(path)") || Self.exists("Sources/PipelineCore/\(path)"), "\(path)")
    }
    for link in page.matches(of: #/\]\(([^)#]+)[^)]*\)/#) { #expect(Self.exists("docs/\(link.1)"), "\(link.1)") }
  }

  /// Slots are filled only in the files that the page names; `SeenFields` reads fields for later, and evaluates
  /// nothing.
  @Test func slotsAreFilledWhereThePageSays() throws {
    let sources = Self.root.appending(path: "Sources")
    let files = try FileManager.default.subpathsOfDirectory(atPath: sources.path).filter { $0.hasSuffix(".swift") }
    let filling = try files.filter {
      try String(contentsOf: sources.appending(path: $0), encoding: .utf8).contains(#/\.fill(Alone)?\(/#)
    }
    #expect(
      Set(filling.map { URL(fileURLWithPath: $0).lastPathComponent }) == [
        "EventFrame.swift", "SeenFields.swift", "StandaloneExpression.swift",
      ])
  }

  /// Private terms that the field's terms have replaced.
  @Test func replacedWordsStayAway() throws {
    let words =
      #/\b([sS]eat|[lL]entTurn|[lL]oan|[eE]rrands?|[sS]ettlement|[wW]orkbench|[bB]lockWork|[rR]owRun|[gG]raveyard|[cC]ongest|[sS]urrender|[iI]ntake|[vV]erbatim|letsPass|letsGo|letGo|lookAt)\b/#
    let root = Self.root.appending(path: "Sources")
    let paths = try FileManager.default.subpathsOfDirectory(atPath: root.path).filter { $0.hasSuffix(".swift") }
    #expect(paths.count > 500)
    for path in paths {
      let text = try String(contentsOf: root.appending(path: path), encoding: .utf8)
      for found in text.matches(of: words) { Issue.record("\(path): \(found.output.0)") }
    }
  }

  /// Each folder of the core has a row on the page.
  @Test func everyRoomIsNamed() throws {
    let page = try String(contentsOf: Self.root.appending(path: "docs/architecture.md"), encoding: .utf8)
    let core = Self.root.appending(path: "Sources/PipelineCore")
    let files = try FileManager.default.subpathsOfDirectory(atPath: core.path)
      .filter { $0.hasSuffix(".swift") && $0.contains("/") }
    for room in Set(files.map { String($0.prefix { $0 != "/" }) }) { #expect(page.contains("`\(room)`"), "\(room)") }
  }
}
