import Foundation
import PipelineRuntime
import PipelineTestSupport
import Sinks
import Sources_
import Testing

@testable import PipelineCore

/// Templates, repetitions and included files: their results, and the reports on mistakes in them.
@Suite struct ReuseTests {
  private static let folder = CheckingTests.folder.deletingLastPathComponent().appendingPathComponent("Reuse")

  /// The equivalent file without reuse, on one line.
  private func expanded(_ text: String, files: [String: String] = [:]) -> String {
    var front = FrontEnd(.builtIn)
    front.included = Self.files(files)
    let result = front.parse(SourceText(name: "test.yaml", text: text))
    let errors = result.diagnostics.filter { $0.severity == .error }
    return errors.isEmpty ? "\(result.node.map { "\($0)" } ?? "")" : errors.map(\.line).joined(separator: "\n")
  }

  private static func files(_ files: [String: String]) -> IncludedFiles {
    IncludedFiles { path, including in
      let folder = including.contains("/") ? including.prefix { $0 != "/" } + "/" : ""
      return files[folder + path].map { .found(name: folder + path, bytes: Array($0.utf8)) }
        ?? .refused("cannot be read: No such file or directory")
    }
  }

  private let ends = "sources: { s: { stdin: {} } }\nsinks: { out: { from: x, stdout: {} } }\n"

  private func chain(_ templates: String, _ steps: String) -> String {
    let text = expanded("templates: \(templates)\n\(ends)signals: { x: { from: s, chain: \(steps) } }")
    guard let from = text.range(of: "\"chain\": ")?.upperBound ?? text.range(of: "chain: ")?.upperBound else {
      return text
    }
    return String(text[from...].prefix { $0 != "]" }) + "]"
  }

  @Test func aTemplateOfAChainStandsAmongSteps() {
    #expect(
      chain(
        "{ slow: { parameters: { for: { type: duration, default: 1s } }, chain: [ { throttle: $(for) }, distinct ] } }",
        "[ { skip: 1 }, { use: slow }, { use: slow, with: { for: 5s } } ]")
        == #"[{skip: 1}, {throttle: "1s"}, "distinct", {throttle: "5s"}, "distinct"]"#)
  }

  @Test func valuesKeepTheirTypes() {
    let template = "{ t: { parameters: { n: int, w: text, e: expression }, chain: [ STEP ] } }"
    func step(_ step: String) -> String {
      chain(template.replacing("STEP", with: step), "[ { use: t, with: { n: 3, w: ab, e: event.a || event.b } } ]")
    }
    #expect(step("{ take: $(n) }") == "[{take: 3}]")
    #expect(step("{ filter: event.n > $(n) }") == #"[{filter: "event.n > 3"}]"#)
    #expect(step("{ filter: \"event.w == '$(w)'\" }") == #"[{filter: "event.w == 'ab'"}]"#)
    // An inserted expression is one operand in any position.
    #expect(step("{ filter: $(e) && event.c }") == #"[{filter: "(event.a || event.b) && event.c"}]"#)
    #expect(step("{ filter: $(e) }") == #"[{filter: "event.a || event.b"}]"#)
    #expect(step("{ log: { message: \"$$(w) $5 $ (w)\" } }") == #"[{log: {message: "$(w) $5 $ (w)"}}]"#)
    #expect(step("{ filter: \"event.w == '$(e)'\" }").contains("RX356"))
    #expect(step("{ map: $(q) }").contains("there is no parameter 'q'"))
  }

  /// A text can neither leave the quotes around it nor become an expression of a template.
  @Test func aTextStaysAText() {
    func errors(_ value: String, _ step: String) -> [String] {
      FrontEnd(.builtIn).compile(
        """
        templates: { t: { parameters: { w: text }, chain: [ \(step) ] } }
        sources: { s: { stdin: { decode: json } } }
        sinks: { out: { from: s, chain: [ { use: t, with: { w: \(value) } } ], stdout: {} } }
        """
      ).diagnostics.map(\.code.name)
    }
    #expect(errors("plain", "{ filter: \"event.a == '$(w)'\" }") == [])
    #expect(errors("\"a' || true || 'b\"", "{ filter: \"event.a == '$(w)'\" }") == [])
    #expect(errors("event.b", "{ filter: event.a == $(w) }") == ["RX223"])
    #expect(errors("\"{{ event }}\"", "{ log: { message: 'a $(w)' } }") == ["RX356"])
    #expect(errors("\"{{ event }}\"", "{ log: { message: $(w) } }") == ["RX356"])
    #expect(errors("event.b", "{ filter: $(w) }") == ["RX223"])
  }

  @Test func whatAnOptionalParameterMakesUpIsLeftOut() {
    let template = "{ t: { parameters: { a: int?, b: int? }, chain: [ { window: { count: $(a), every: $(b) } } ] } }"
    #expect(chain(template, "[ { use: t, with: { a: 1 } } ]") == "[{window: {count: 1}}]")
  }

  @Test func keysBesideAUseTakePrecedenceAndChainsAreJoined() {
    #expect(
      expanded(
        """
        templates:
          mine: { sink: { chain: [ { take: 2 } ], file: a, buffer: 1MiB } }
          ticks: { parameters: { every: duration }, source: { interval: $(every) } }
          few: { signal: { chain: [ { take: 1 } ], description: short } }
        sources: { s: { use: ticks, with: { every: 1s }, cold: true } }
        signals: { x: { from: s, use: few, chain: [ { take: 2 } ] }, y: { from: { use: ticks, with: { every: 2s } } } }
        sinks: { out: { from: x, use: mine, chain: [ { take: 1 } ], buffer: 2MiB } }
        """)
        == #"{sources: {s: {interval: "1s", cold: true}}, signals: {x: {chain: [{take: 1}, {take: 2}], "#
        + #"description: "short", from: "s"}, y: {from: {interval: "2s"}}}, "#
        + #"sinks: {out: {chain: [{take: 1}, {take: 2}], file: "a", buffer: "2MiB", from: "x"}}}"#)
  }

  @Test func sectionsAndItemsAreRepeated() {
    #expect(
      expanded(
        """
        x-rooms: &rooms [a, b]
        foreach: { each: r, in: *rooms, sources: { $(r)_in: { interval: 1s } } }
        signals: { all: { merge: [ { each: r, in: *rooms, do: $(r)_in } ] } }
        sinks: { out: { from: all, stdout: {} } }
        """)
        == #"{signals: {all: {merge: ["a_in", "b_in"]}}, sinks: {out: {from: "all", stdout: {}}}, "#
        + #"sources: {a_in: {interval: "1s"}, b_in: {interval: "1s"}}}"#)
  }

  @Test func includedFilesBringTemplatesAndSections() {
    let text = "include: [lib/a.yaml, lib/a.yaml]\nsinks: { out: { from: s, chain: [ { use: t } ], stdout: {} } }"
    #expect(
      expanded(
        text,
        files: [
          "lib/a.yaml": "include: b.yaml\ntemplates: { t: { chain: [ { take: 1 } ] } }",
          "lib/b.yaml": "sources: { s: { stdin: {} } }",
        ])
        == #"{sinks: {out: {from: "s", chain: [{take: 1}], stdout: {}}}, sources: {s: {stdin: {}}}}"#)
    #expect(expanded(text, files: ["lib/a.yaml": "include: a.yaml"]).contains("includes itself"))
    #expect(expanded(text, files: ["lib/a.yaml": "name: x"]).contains("RX365"))
    #expect(expanded(text).contains("No such file"))
    for path in ["../a", "a/../../b", "/a", "a/.."] {
      #expect(expanded("include: \(path)\n\(ends)", files: [path: ends]).contains("RX359"), "\(path)")
    }
  }

  /// Templates that use each other cannot make a small file large.
  @Test func whatTemplatesMakeIsBounded() {
    var text = "templates:\n  t0: { chain: [ { take: 1 } ] }\n"
    for level in 1...12 {
      text +=
        "  t\(level): { chain: [ \(Array(repeating: "{ use: t\(level - 1) }", count: 8).joined(separator: ", ")) ] }\n"
    }
    #expect(expanded(text + ends + "signals: { x: { from: s, chain: [ { use: t12 } ] } }").contains("RX357"))
  }

  @Test func twoSpellingsMeanTheSame() {
    let plain = FrontEnd(.builtIn).compile(ends + "signals: { x: { from: s, chain: [ { throttle: 1s } ] } }")
    let reused = FrontEnd(.builtIn).compile(
      "templates: { t: { chain: [ { throttle: 1s } ] } }\n" + ends
        + "signals: { x: { from: s, chain: [ { use: t } ] } }")
    #expect(plain.plan != nil && plain.meaning == reused.meaning)
  }

  @Test(arguments: ["mistakes", "within"]) func reportIsAsKept(_ name: String) throws {
    let bytes = Array(try Data(contentsOf: Self.folder.appendingPathComponent(name + ".yaml")))
    let text = DiagnosticRenderer().text(CheckingTests.check(bytes, name + ".yaml").diagnostics)
    let file = Self.folder.appendingPathComponent(name + ".txt")
    if ProcessInfo.processInfo.environment["RXD_UPDATE_GOLDEN"] == "1" { try Data(text.utf8).write(to: file) }
    #expect(text == (try? String(contentsOf: file, encoding: .utf8)))
  }

  @Test(arguments: Preset.all.map(\.name)) func presetsAreTemplates(_ name: String) throws {
    let preset = try #require(Preset.named(name))
    #expect(preset.summary.hasSuffix("."))
    #expect(expanded(preset.text + "\n" + ends).hasPrefix("{sources"))
  }
}
