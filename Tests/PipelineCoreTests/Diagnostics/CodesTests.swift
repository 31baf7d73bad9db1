import Foundation
import PipelineRuntime
import PipelineTestSupport
import Testing

@testable import PipelineCore
@testable import PipelineDiagnostics
@testable import PipelineTesting

@Suite struct CodesTests {
  @Test func codesAreUnique() {
    let names = Diagnostic.Code.all.map(\.name)
    #expect(Set(names).count == names.count)
  }

  @Test(arguments: Diagnostic.Code.all.map(\.name)) func isWellFormed(_ name: String) throws {
    let code = try #require(Diagnostic.Code.named(name))
    #expect(name.utf8.count == 5 && name.hasPrefix("RX") && Int(name.dropFirst(2)) != nil)
    #expect(code.summary.hasSuffix("."))
    #expect(code.summary.first?.isLowercase == false)
  }

  /// The codes whose example is a situation: limits, invalid bytes, other files and servers, and errors that no small
  /// file can show.
  private static let situations: Set<String> = [
    "RX101", "RX102", "RX103", "RX104", "RX109", "RX110", "RX111", "RX112", "RX117", "RX118", "RX130", "RX211",
    "RX215", "RX216", "RX217", "RX218",
    "RX321", "RX325", "RX338", "RX365", "RX369", "RX403", "RX501", "RX502", "RX504", "RX507", "RX524", "RX525",
    "RX526", "RX527", "RX528", "RX606", "RX607", "RX650",
    "RX511", "RX534", "RX550", "RX551", "RX552", "RX703", "RX704", "RX710", "RX711", "RX713", "RX714",
  ]

  @Test(arguments: Diagnostic.Code.all.map(\.name))
  func exampleShowsTheMistakeAndItsRemedy(_ name: String) throws {
    let code = try #require(Diagnostic.Code.named(name))
    let example = try #require(CodeExample.of(code), "\(name) has no example")
    #expect((example.context == .situation) == Self.situations.contains(name))
    if example.context == .situation {
      for text in [example.wrong, example.right] {
        #expect(text.first?.isLowercase == false && text.utf8.count > 10, "\(text)")
      }
      return
    }
    let wrong = try Self.reports(example, example.wrong, name).map(\.code)
    let right = try Self.reports(example, example.right, name).map(\.code)
    #expect(wrong.contains(name), "\(example.file(example.wrong))\n\(wrong)")
    #expect(!right.contains(name), "\(example.file(example.right))\n\(right)")
    if !"7".contains(name.dropFirst(2).first ?? " ") {
      #expect(right.isEmpty, "\(example.file(example.right))\n\(right)")
    }
  }

  private struct Report {
    var code: String
    /// The location, the message and the help.
    var text: String

    init(_ diagnostic: Diagnostic) {
      code = diagnostic.code.name
      text =
        (diagnostic.location.map { "\($0.line):\($0.column): " } ?? "") + diagnostic.message
        + (diagnostic.help.map { "\n  help: \($0)" } ?? "")
    }

    /// Reads the error of a dead letter.
    init?(letter: String) throws {
      guard let document = try JSONSerialization.jsonObject(with: Data(letter.utf8)) as? [String: Any],
        let code = document["code"] as? String, let error = document["error"] as? String
      else { return nil }
      (self.code, text) = (code, error)
    }
  }

  /// The errors, and any report with the code `wanted`, of a file when it is checked, run with the events, or tested.
  private static func reports(_ example: CodeExample, _ text: String, _ wanted: String) throws -> [Report] {
    let file = example.file(text)
    func relevant(_ diagnostics: [Diagnostic]) -> [Report] {
      diagnostics.filter { $0.severity == .error || $0.code.name == wanted }.map(Report.init)
    }
    if wanted.hasPrefix("RX60") {
      var diagnostics = Diagnostics()
      let (plan, tests) = TestSuite.read(SourceText(name: "t.yaml", text: file), &diagnostics)
      guard let plan, !diagnostics.hasErrors else { return relevant(diagnostics.all) }
      return tests.flatMap { relevant(TestRunner(plan).run($0).failures.map(\.diagnostic)) }
    }
    if ["RX701", "RX702"].contains(wanted) {
      var diagnostics = Diagnostics()
      if let root = YAMLReader.read(SourceText(name: "t.yaml", text: file), into: &diagnostics) {
        _ = Interpolation(variable: { _ in .missing }, secret: { _ in .missing }).apply(to: root, into: &diagnostics)
      }
      return relevant(diagnostics.all)
    }
    let checked = relevant(CheckingTests.check(Array(file.utf8)).diagnostics)
    guard !example.events.isEmpty, checked.isEmpty else { return checked }
    let yaml =
      "name: t\n"
      + file.replacingOccurrences(of: "stdin: { decode: json }", with: "scripted: {}")
      .replacingOccurrences(of: "stdout: {}", with: "probe: {}")
    let letters = "abcdefgh".prefix(example.events.count)
    let values = Dictionary(
      uniqueKeysWithValues: try zip(letters, example.events).map { (String($0), try MarbleCase.value($1)) })
    let script = SignalHistory(try Marbles("-\(letters.map(String.init).joined())-|"), values: values).script
    let run = try PipelineRun(yaml, sources: ["s": ScriptedSource(script)])
    return try run.deadLetters.compactMap { try Report(letter: $0) }
  }

  // MARK: Every code is in a test

  private static let tests = packageRoot.appending(path: "Tests")
  private static let golden = tests.appending(path: "Golden/Diagnostics/codes.txt")

  /// The report for the example of each code, with its location, kept in Tests/Golden/Diagnostics/codes.txt; RXD_UPDATE_GOLDEN=1
  /// rewrites it.
  @Test func reportsOfExamplesAreAsKept() throws {
    var text = ""
    for name in Diagnostic.Code.all.map(\.name).sorted() where !Self.situations.contains(name) {
      let code = try #require(Diagnostic.Code.named(name))
      let example = try #require(CodeExample.of(code))
      let reports = try Self.reports(example, example.wrong, name)
      // Another error may follow from that of a file, and none may precede it. A run or a test also reports the cause.
      let isOfFile = example.events.isEmpty && !name.hasPrefix("RX60")
      #expect(!isOfFile || reports.first?.code == name, "\(name): \(reports)")
      for report in reports { text += "\(report.code) \(report.text)\n" }
    }
    if ProcessInfo.processInfo.environment["RXD_UPDATE_GOLDEN"] == "1" { try Data(text.utf8).write(to: Self.golden) }
    #expect(text == (try? String(contentsOf: Self.golden, encoding: .utf8)), "\(Self.golden.path)")
  }

  /// Reported only if memory is exhausted.
  private static let unreported: Set<String> = ["RX109"]

  /// Codes of earlier versions that are no longer reported: they must not get another meaning.
  private static let retired: Set<String> = ["RX212", "RX232", "RX240", "RX308", "RX322", "RX901"]

  @Test func retiredCodesAreNotReused() {
    #expect(Self.retired.intersection(Diagnostic.Code.all.map(\.name)).sorted() == [])
  }

  /// Each code of the table occurs in a golden file, or by its number in a test.
  @Test func everyCodeIsTested() throws {
    var tested: Set<String> = []
    var files = 0
    for path in try FileManager.default.subpathsOfDirectory(atPath: Self.tests.path)
    where [".swift", ".txt", ".expect", ".yaml", ".py", ".json"].contains(where: path.hasSuffix) {
      guard let text = try? String(contentsOf: Self.tests.appending(path: path), encoding: .utf8) else { continue }
      // Lists of all codes test none.
      if path.hasPrefix("Compatibility/") { continue }
      files += 1
      // The lists in this file test nothing.
      let counted =
        path.hasSuffix("/CodesTests.swift") ? text.components(separatedBy: "// MARK: Situations").last ?? "" : text
      for match in counted.matches(of: /RX[0-9]{3}/) { tested.insert(String(match.output)) }
    }
    #expect(files > 400)
    let codes = Set(Diagnostic.Code.all.map(\.name))
    #expect(codes.subtracting(tested).sorted() == Self.unreported.sorted())
  }

  // MARK: Situations

  private static func found(_ diagnostics: [Diagnostic]) -> [String] {
    diagnostics.map { "\($0.code.name) \($0.message)" }
  }

  @Test(arguments: [
    ("sources.typed.stdin.decode", "RX215 there is no '=' after the path"),
    ("sources..stdin=lines", "RX215 a part of the path is empty"),
  ]) func anOverrideIsAPathAndAValue(_ text: String, _ message: String) {
    var diagnostics = Diagnostics()
    #expect(Override(text, into: &diagnostics) == nil)
    #expect(Self.found(diagnostics.all) == [message])
  }

  @Test(arguments: [16, 17]) func innerSignalsAreNested16Deep(_ depth: Int) {
    var signal = "from: s"
    for _ in 0..<depth { signal = "from: s, chain: [ { takeUntil: { \(signal) } } ]" }
    let file = "sources: { s: { stdin: {} } }\nsinks: { out: { \(signal), stdout: {} } }\n"
    let errors = CheckingTests.check(Array(file.utf8)).diagnostics.filter { $0.severity == .error }
    #expect(Self.found(errors) == (depth == 16 ? [] : ["RX321 inner signals are nested more than 16 deep"]))
  }

  @Test func partsOfSchemasThatAreNoTypes() {
    let file =
      "sources: { s: { stdin: { decode: json }, schema: outside.schema.json } }\nsinks: { out: { from: s, stdout: {} } }\n"
    let diagnostics = CheckingTests.check(Array(file.utf8)).diagnostics
    #expect(
      Self.found(diagnostics) == [
        "RX325 the reference 'other.json#/$defs/customer' points outside the file, so any value is accepted here"
      ])
    #expect(diagnostics.first?.severity == .warning)
  }

  @Test func aPluginThatNothingLoads() {
    let file = "plugins: [./a.so]\nsources: { s: { stdin: {} } }\nsinks: { out: { from: s, stdout: {} } }\n"
    #expect(
      Self.found(CheckingTests.check(Array(file.utf8)).diagnostics) == [
        "RX711 the plugin './a.so' cannot be loaded: this program loads none"
      ])
  }

  @Test func aFileThatIsNotThere() {
    let loaded = PipelineLoader().load("/nowhere/a.yaml")
    #expect(loaded.plan == nil)
    #expect(loaded.diagnostics.map(\.code.name) == ["RX710"])
    #expect(loaded.diagnostics.first?.message.contains("/nowhere/a.yaml") == true)
  }

  @Test func everyCodeOfTheSourcesIsInTheTable() throws {
    let sources = packageRoot.appending(path: "Sources")
    let files = try #require(FileManager.default.enumerator(atPath: sources.path))
    var written: Set<String> = []
    for case let path as String in files where path.hasSuffix(".swift") {
      let text = try String(contentsOf: sources.appending(path: path), encoding: .utf8)
      for match in text.matches(of: /"(RX[0-9]{3})"/) { written.insert(String(match.1)) }
    }
    let known = Set(Diagnostic.Code.all.map(\.name))
    #expect(written.subtracting(known).sorted() == [])
  }
}
