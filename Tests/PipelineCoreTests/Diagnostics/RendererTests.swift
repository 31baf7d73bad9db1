import Foundation
import PipelineTestSupport
import Testing

@testable import PipelineCore
@testable import PipelineDiagnostics

@Suite struct RendererTests {
  static let golden = packageRoot.appending(path: "Tests/Golden/Diagnostics")

  /// RXD_UPDATE_GOLDEN=1 writes the current output.
  @Test(arguments: [
    "unclosed-closed-later", "ternary", "not-and", "template-block", "shallower-key", "alias-bomb",
    "rival-outputs", "step-two-operators", "sink-no-from", "latin1", "duplicate-nested",
    "combine-same-twice",
  ])
  func reportOfAFile(_ name: String) throws {
    let file = MalformedTests.folder.appending(path: name + ".yaml")
    let reading = readPipeline(
      SourceText(name: name + ".yaml", bytes: Array(try Data(contentsOf: file))))
    try compare(DiagnosticRenderer().text(reading.diagnostics), name + ".txt")
  }

  @Test func reportOfAllMistakesInEveryForm() throws {
    let text = """
      sorces: { typed: { stdin: {} } }
      signals:
        x: { form: typed }
        größe: { from: a }
      sinks:
        漢字: { from: x, stdout: {} }
        x: { from: "a b", stdout: {} }
      """
    let diagnostics = readPipeline(text, name: "dir/a b.yaml").diagnostics
    try compare(DiagnosticRenderer().text(diagnostics), "every-form.txt")
    try compare(DiagnosticRenderer(colors: true).text(diagnostics), "every-form.ansi")
    try compare(DiagnosticRenderer().json(diagnostics), "every-form.json")
    try compare(DiagnosticRenderer().github(diagnostics), "every-form.github")
    let sarif = DiagnosticRenderer(toolVersion: "1.0.0").sarif(diagnostics)
    let log = try #require(
      JSONSerialization.jsonObject(with: Data(sarif.utf8)) as? [String: Any])
    #expect(log["version"] as? String == "2.1.0")
    let run = try #require((log["runs"] as? [[String: Any]])?.first)
    let results = try #require(run["results"] as? [[String: Any]])
    #expect(results.count == diagnostics.count)
    let rootSubscriber = try #require((run["tool"] as? [String: [String: Any]])?["driver"])
    let rules = try #require(rootSubscriber["rules"] as? [[String: Any]])
    for result in results {
      let index = try #require(result["ruleIndex"] as? Int)
      #expect(rules[index]["id"] as? String == result["ruleId"] as? String)
    }
  }

  private func compare(_ text: String, _ name: String) throws {
    let file = Self.golden.appending(path: name)
    if ProcessInfo.processInfo.environment["RXD_UPDATE_GOLDEN"] == "1" {
      try Data(text.utf8).write(to: file)
    }
    #expect(text == (try? String(contentsOf: file, encoding: .utf8)), "\(name)")
  }

  private func report(_ text: String, _ offset: Int, _ length: Int) -> [String] {
    let source = SourceText(name: "f", text: text)
    let diagnostic = Diagnostic(
      .syntax, "wrong", at: SourceLocation(source, offset: offset, length: length))
    return DiagnosticRenderer().text([diagnostic]).components(separatedBy: "\n")
  }

  @Test func marksStandUnderWideAndCombiningCharacters() throws {
    let text = "漢字 e\u{301} 😀 x"
    let offset = Array(text.utf8).count - 1
    let lines = report(text, offset, 1)
    #expect(try lines.item(1) == " --> f:1:9")
    #expect(try lines.item(3) == "1 | " + text)
    //                         漢字 = 4, blank, e, blank, 😀 = 2, blank
    #expect(try lines.item(4) == "  | " + String(repeating: " ", count: 10) + "^")
    #expect(try report(text, 0, 6).item(4) == "  | ^^^^")
  }

  @Test func tabsAndControlsAreMadeVisible() throws {
    let lines = report("\ta\u{1B}[1mb\u{202E}c", 2, 1)
    #expect(try lines.item(3) == "1 |     a\\x1B[1mb\\u{202E}c")
    #expect(try lines.item(4) == "  |      ^^^^")
  }

  /// One code point of each invisible kind: each is shown as an escape, whose width is counted.
  @Test(arguments: [
    ("\u{AD}", "\\u{00AD}"), ("\u{34F}", "\\u{034F}"), ("\u{61C}", "\\u{061C}"), ("\u{115F}", "\\u{115F}"),
    ("\u{180E}", "\\u{180E}"), ("\u{200B}", "\\u{200B}"), ("\u{200C}", "\\u{200C}"), ("\u{200D}", "\\u{200D}"),
    ("\u{200F}", "\\u{200F}"), ("\u{2028}", "\\u{2028}"), ("\u{2029}", "\\u{2029}"), ("\u{2060}", "\\u{2060}"),
    ("\u{2064}", "\\u{2064}"), ("\u{E000}", "\\u{E000}"), ("\u{FE0F}", "\\u{FE0F}"), ("\u{FEFF}", "\\u{FEFF}"),
    ("\u{FFFE}", "\\u{FFFE}"), ("\u{E0001}", "\\u{E0001}"), ("\u{E0100}", "\\u{E0100}"), ("\u{10FFFD}", "\\u{10FFFD}"),
    ("\u{50000}", "\\u{50000}"), ("\u{85}", "\\x85"),
  ])
  func theInvisibleIsMadeVisible(_ text: String, _ shown: String) throws {
    let lines = report("a\(text)b", 1 + text.utf8.count, 1)
    #expect(try lines.item(1) == " --> f:1:3")
    #expect(try lines.item(3) == "1 | a\(shown)b")
    #expect(try lines.item(4) == "  | " + String(repeating: " ", count: 1 + shown.utf8.count) + "^")
    #expect(Printable.cut(text) == shown)
  }

  /// Letters, signs, spaces and combining marks of all languages are kept.
  @Test func theVisibleStays() throws {
    let text = "\u{A0}aéßẞ ₿ ‰ ا۱ क्षि ไทย 漢字 한글 ﬁ e\u{301} 😀 𝒳 \u{FFFD} — “x”"
    #expect(Printable.cut(text) == text)
    #expect(try report(text, 0, 1).item(3) == "1 | " + text)
  }

  @Test func longLinesAreCutAroundTheMark() throws {
    let text = String(repeating: "a", count: 5_000) + "XYZ" + String(repeating: "b", count: 500_000)
    let lines = report(text, 5_000, 3)
    #expect(try lines.item(1) == " --> f:1:5001")
    let shown = try Array(lines.item(3).unicodeScalars)
    let mark = try lines.item(4).firstIndex(of: "^")
    let column = try mark.map { try lines.item(4).distance(from: lines.item(4).startIndex, to: $0) } ?? 0
    #expect(shown[column] == "X")
    #expect(try lines.item(4).hasSuffix("^^^") && !lines.item(4).contains("^^^^"))
    #expect(shown.count <= 105)
    #expect(shown.first(where: { $0 == "…" }) != nil && shown.last == "…")
  }

  @Test func theFirstFiftyErrorsAreShown() {
    let source = SourceText(name: "f", text: "x")
    let many = (0..<80).map { _ in
      Diagnostic(.syntax, "wrong", at: SourceLocation(source, offset: 0))
    }
    let text = DiagnosticRenderer().text(many)
    #expect(text.components(separatedBy: "error[RX130]").count - 1 == 50)
    #expect(text.hasSuffix("30 more are not shown\n80 errors in f\n"))
  }

  @Test func orderAndSummary() {
    let a = SourceText(name: "a", text: "xyz")
    let b = SourceText(name: "b", text: "xyz")
    let diagnostics = [
      Diagnostic(.syntax, "4", at: SourceLocation(b, offset: 0)),
      Diagnostic(.commentCutsValue, "3", at: SourceLocation(a, offset: 2)),
      Diagnostic(.syntax, "2", at: SourceLocation(a, offset: 1)),
      Diagnostic(.unreadableFile, "1", at: nil),
    ]
    #expect(DiagnosticRenderer.ordered(diagnostics).map(\.message) == ["1", "2", "3", "4"])
    #expect(DiagnosticRenderer.summary(diagnostics) == "3 errors, 1 warning in 2 files")
    #expect(DiagnosticRenderer.summary([]) == "no errors")
    #expect(DiagnosticRenderer().text([]) == "")
  }

  @Test func messagesCannotDriveTheTerminal() {
    let text = DiagnosticRenderer().text([
      Diagnostic(.syntax, "a\u{1B}[2J\nb", at: nil, help: "\u{7}")
    ])
    #expect(text == "error[RX130]: a\\x1B[2J\\nb\n  = help: \\x07\n\n1 error\n")
  }

  @Test func colors() {
    #expect(ColorMode.auto.isEnabled(isTerminal: true, noColor: false))
    #expect(!ColorMode.auto.isEnabled(isTerminal: true, noColor: true))
    #expect(!ColorMode.auto.isEnabled(isTerminal: false, noColor: false))
    #expect(ColorMode.always.isEnabled(isTerminal: false, noColor: true))
    #expect(!ColorMode.never.isEnabled(isTerminal: true, noColor: false))
  }
}
