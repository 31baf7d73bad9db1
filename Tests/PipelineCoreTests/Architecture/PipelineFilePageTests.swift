import Foundation
import PipelineCore
import PipelineTestSupport
import Testing

/// docs/pipeline-file.md has every key of every part of a file, and no other.
@Suite struct PipelineFilePageTests {
  /// A part of a file: its keys, those that only some forms of it have, and those that no version can run yet.
  struct Part: CustomTestStringConvertible, Sendable {
    var name: String
    var keys: [String]
    var further: [String] = []
    /// With a file that has one of them.
    var later: [String: String] = [:]
    var testDescription: String { name }
  }

  private static let template = ["use", "with"]
  private static func file(source: String = "", signal: String = "", sink: String = "", top: String = "") -> String {
    """
    \(top)
    sources: { a: { values: [1]\(source) } }
    signals: { b: { from: a\(signal) } }
    sinks: { c: { from: b, stdout: {}\(sink) } }
    """
  }

  static let parts = [
    Part(
      name: "top level", keys: ReservedKeys.topLevel, further: ["x-..."],
      later: ["defaults": file(top: "defaults: { http: { timeout: 5s } }")]),
    Part(
      name: "source", keys: ReservedKeys.source, further: template, later: ["buffer": file(source: ", buffer: 1MiB")]),
    Part(
      name: "signal", keys: ReservedKeys.signal, further: template + ["reduce"],
      later: [
        "buffer": file(signal: ", buffer: 1MiB"), "onError": file(signal: ", onError: drop"),
        "schema": file(signal: ", schema: int"),
      ]),
    Part(name: "step", keys: ReservedKeys.step, further: template + ["each", "in", "do"]),
    Part(name: "table", keys: ReservedKeys.table),
    Part(name: "command", keys: ReservedKeys.command),
    Part(
      name: "sink", keys: ReservedKeys.sink, further: template,
      later: ["onError": file(sink: ", onError: drop"), "require": file(sink: ", require: durable")]),
    Part(name: "test", keys: ReservedKeys.test),
  ]

  /// The names in the first column of the table behind `<!-- keys: NAME -->`.
  private static func shown(_ name: String) throws -> [String] {
    let page = try String(contentsOf: packageRoot.appending(path: "docs/pipeline-file.md"), encoding: .utf8)
    let begin = try #require(page.range(of: "<!-- keys: \(name) -->\n"))
    let end = try #require(page.range(of: "<!-- end -->", range: begin.upperBound..<page.endIndex))
    return page[begin.upperBound..<end.lowerBound].components(separatedBy: "\n").flatMap { row -> [String] in
      let first = row.components(separatedBy: " | ").first ?? ""
      return first.components(separatedBy: "`").enumerated().filter { !$0.offset.isMultiple(of: 2) }.map(\.element)
    }
  }

  @Test(arguments: parts) func keysAreThoseOfThePage(_ part: Part) throws {
    let shown = try Self.shown(part.name)
    #expect(Set(shown).count == shown.count)
    #expect(Set(shown) == Set(part.keys).subtracting(part.later.keys).union(part.further))
  }

  /// What the page leaves out cannot be run.
  @Test(arguments: parts) func reservedKeysAreRefused(_ part: Part) {
    for (key, text) in part.later {
      let result = FrontEnd(.builtIn).compile(SourceText(name: "a.yaml", text: text))
      #expect(result.diagnostics.contains { $0.code.name == "RX320" }, "\(key)")
    }
  }
}
