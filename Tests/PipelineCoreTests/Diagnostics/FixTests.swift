import Foundation
import PipelineRuntime
import PipelineTestSupport
import Sinks
import Sources_
import Testing

@testable import PipelineCore
@testable import PipelineDiagnostics

/// Fixes for names from other tools, and diagnostics on one line.
@Suite struct FixTests {
  /// A fix replaces a foreign name by the name used here only if nothing else is then wrong there.
  @Test(arguments: ForeignNames.table.keys.sorted()) func aFixMakesNoNewError(_ name: String) throws {
    let values = [
      "", ": 5", ": 1s", ": event.a", ": { a: 1 }", ": { source: \". = parse_json!(.message)\" }", ": [a]", ": \"/x\"",
      ": {}",
    ]
    let files = values.flatMap { value -> [String] in
      let node = value.isEmpty ? name : "{ \(name)\(value) }"
      let step =
        "sources: { s: { stdin: { decode: json } } }\nsinks: { out: { from: s, chain: [\n\(node)\n], stdout: {} } }"
      if value.isEmpty { return [step] }
      return [
        step, "sources: { s:\n\(node)\n}\nsinks: { out: { from: s, stdout: {} } }",
        "sources: { s: { stdin: {} } }\nsinks: { out: { from: s,\n\(name)\(value)\n} }",
      ]
    }
    for text in files {
      let before = FrontEnd(.builtIn).compile(text).diagnostics
      for diagnostic in before where diagnostic.code == .unknownComponent && diagnostic.fixIts.count == 1 {
        let fix = try diagnostic.fixIts.item(0)
        var bytes = Array(text.utf8)
        bytes.replaceSubrange(
          fix.location.offset..<fix.location.offset + fix.location.length, with: Array(fix.replacement.utf8))
        let after = FrontEnd(.builtIn).compile(String(decoding: bytes, as: UTF8.self)).diagnostics
        let line = fix.location.line
        #expect(
          !after.contains { $0.severity == .error && $0.location?.line == line && $0.code.name.hasPrefix("RX2") },
          "\(text) with \(fix.replacement): \(after.map(\.line))")
      }
    }
  }

  @Test func whatHasOtherParametersIsAdviceOnly() throws {
    func first(_ step: String) throws -> Diagnostic {
      try #require(
        FrontEnd(.builtIn).compile(
          "sources: { s: { stdin: {} } }\nsinks: { out: { from: s, chain: [ { \(step) } ], stdout: {} } }"
        ).diagnostics.first)
    }
    let parse = try first("parse: event.line")
    #expect(parse.code == .unknownComponent && parse.help != nil && parse.fixIts.isEmpty)
    // A misspelt name is replaced, whatever else is wrong.
    #expect(try first("fliter: { a: 5 }").fixIts.map(\.replacement) == ["filter"])
    #expect(try first("where: event == 'a'").fixIts.map(\.replacement) == ["filter"])
  }

  @Test func aLineIsOneSentence() {
    let line = FrontEnd(.builtIn).compile(
      "sources: { s: { stdin: { decode: json } } }\nsinks: { out: { from: s, chain: [ { map: nope } ], stdout: {} } }",
      name: "p.yaml"
    ).diagnostics.first?.line
    #expect(
      line
        == "p.yaml:2:42: error[RX411]: there is nothing called 'nope' here; write event.nope for a field of the event, or 'nope' in quotes for a text."
    )
    let text = SourceText(name: "p.yaml", text: "x")
    func tail(_ help: String) -> String? {
      Diagnostic(.expressionSyntax, "m", at: .init(text, offset: 0), help: help).line.components(separatedBy: "; ").last
    }
    #expect(tail("RE2 has no back-references.") == "RE2 has no back-references.")
    #expect(tail("YAML takes its own quotes away") == "YAML takes its own quotes away")
    #expect(tail("A text") == "a text" && tail("'x' is") == "'x' is")
  }

  /// The last line names the checked file, not an included one.
  @Test func theSummaryNamesTheFileThatIncludes() {
    var front = FrontEnd(.builtIn)
    front.included = IncludedFiles { path, _ in
      .found(name: "lib/" + path, bytes: Array("sources: { s: { stdin: { decod: json } } }".utf8))
    }
    let found = front.compile(
      SourceText(name: "main.yaml", text: "include: a.yaml\nsinks: { out: { from: s, stdout: {} } }")
    ).diagnostics
    #expect(found.first?.location?.text.name == "lib/a.yaml")
    #expect(DiagnosticRenderer.summary(found) == "1 error in main.yaml")
  }

  @Test func aDatabaseThatIsNotThereIsAWarning() {
    func warnings(_ more: String, isMissing: Bool = true) -> [String] {
      FrontEnd(.builtIn, files: FileProbe(isMissingFile: { _ in isMissing })).compile(
        "sources: { s: { sqlite: { path: a.db, query: SELECT 1 } } }\nsinks: { out: { from: s, \(more) } }"
      ).diagnostics.map { "\($0.code.name) \($0.severity.rawValue): \($0.message)" }
    }
    #expect(warnings("stdout: {}") == ["RX369 warning: there is no file 'a.db', and the source does not create it"])
    #expect(warnings("stdout: {}", isMissing: false) == [])
  }
}
