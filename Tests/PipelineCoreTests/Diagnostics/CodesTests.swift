import Foundation
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

  /// The codes whose example is a situation: limits, bytes that are no text, other files and servers, and what no small
  /// file can show.
  private static let situations: Set<String> = [
    "RX101", "RX102", "RX103", "RX104", "RX109", "RX110", "RX111", "RX112", "RX117", "RX118", "RX130", "RX211", "RX212",
    "RX215", "RX216", "RX217", "RX218",
    "RX232", "RX240",
    "RX308", "RX321", "RX325", "RX338", "RX365", "RX369", "RX403", "RX501", "RX502", "RX504", "RX507", "RX524", "RX525",
    "RX526", "RX527", "RX528", "RX606", "RX607",
    "RX511", "RX534", "RX550", "RX551", "RX703", "RX704", "RX710", "RX711", "RX713", "RX714", "RX901",
  ]

  @Test(arguments: Diagnostic.Code.all.map(\.name))
  func exampleShowsTheMistakeAndItsRemedy(_ name: String) throws {
    let code = try #require(Diagnostic.Code.named(name))
    let example = try #require(CodeExample.of(code), "\(name) has no example")
    #expect((example.place == .situation) == Self.situations.contains(name))
    if example.place == .situation {
      for text in [example.wrong, example.right] {
        #expect(text.first?.isLowercase == false && text.utf8.count > 10, "\(text)")
      }
      return
    }
    let (wrong, right) = (try Self.codes(example, example.wrong, name), try Self.codes(example, example.right, name))
    #expect(wrong.contains(name), "\(example.file(example.wrong))\n\(wrong)")
    #expect(!right.contains(name), "\(example.file(example.right))\n\(right)")
    if !"7".contains(name.dropFirst(2).first ?? " ") {
      #expect(right.isEmpty, "\(example.file(example.right))\n\(right)")
    }
  }

  /// The codes of the errors, and of the code `wanted`, that a file brings: when it is checked, run with the events, or
  /// tested.
  private static func codes(_ example: CodeExample, _ text: String, _ wanted: String) throws -> [String] {
    let file = example.file(text)
    func relevant(_ diagnostics: [Diagnostic]) -> [String] {
      diagnostics.filter { $0.severity == .error || $0.code.name == wanted }.map(\.code.name)
    }
    if wanted.hasPrefix("RX6") {
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
    return run.deadLetters.compactMap { letter in
      letter.firstMatch(of: /"code":"(RX[0-9]+)"/).map { String($0.1) }
    }
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
