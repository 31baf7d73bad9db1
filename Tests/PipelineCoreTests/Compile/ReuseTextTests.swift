import Foundation
import PipelineRuntime
import PipelineTestSupport
import Sinks
import Sources_
import Testing

@testable import PipelineCore

/// Texts within quotes, and templates that are not used.
@Suite struct ReuseTextTests {
  /// Any text stays the same text within quotes of any kind, also in a template.
  @Test(arguments: [
    "it's", "say \"x\"", "a\\b", "a\\", "'", "\\'", "tab\there", "line\nend", "bell\u{7}", "é 漢 \u{1F600}",
    "' + string(env) + '", "}} x {", "''' \"\"\"", "\\x41", "$(w)",
  ]) func aTextWithinQuotesIsEscaped(_ text: String) throws {
    func json(_ text: String) -> String {
      String(
        decoding: (try? JSONSerialization.data(
          withJSONObject: text, options: [.fragmentsAllowed, .withoutEscapingSlashes])) ?? Data(), as: UTF8.self)
    }
    for step in [
      "map: \"'<' + '$(w)'\"", "map: '\"<\" + \"$(w)\"'", "map: \"'''<$(w)'''\"", "map: \"'<' + '''$(w)'''\"",
    ] {
      let run = try PipelineRun(
        """
        templates: { t: { parameters: { w: text }, chain: [ { \(step) } ] } }
        sources: { s: { values: [ 1 ] } }
        sinks: { out: { from: s, chain: [ { use: t, with: { w: \(json(text)) } } ], probe: {} } }
        """, sources: [:])
      let shown = try #require(run.texts["out"]?.first)
      let value = try JSONSerialization.jsonObject(with: Data(shown.utf8), options: [.fragmentsAllowed]) as? String
      #expect(value == "<" + text, "\(step)")
    }
  }

  /// In a raw text nothing can be escaped, and outside of quotes a text would become a part of the expression.
  @Test(arguments: [
    ("it's", "filter: \"event.a == r'$(w)'\"", "RX223"), ("a\\b", "filter: \"event.a == r'$(w)'\"", ""),
    ("it's", "filter: \"event.a == 'r' + '$(w)'\"", ""), ("event.b", "filter: event.a == $(w)", "RX223"),
    ("event.b", "log: { message: '{{ event.a + $(w) }}' }", "RX223"),
    ("it's", "log: { message: \"{{ event.a + '$(w)' }}\" }", ""), ("it's", "log: { message: \"it is $(w)\" }", ""),
    ("-3", "filter: event.a == $(w)", ""), ("3 || true", "filter: event.a == $(w)", "RX223"),
  ]) func whereATextCanStand(_ text: String, _ step: String, _ code: String) {
    let found = FrontEnd(.builtIn).compile(
      """
      templates: { t: { parameters: { w: text }, chain: [ { \(step) } ] } }
      sources: { s: { stdin: { decode: json } } }
      sinks: { out: { from: s, chain: [ { use: t, with: { w: "\(text.replacing("\\", with: "\\\\"))" } } ], stdout: {} } }
      """
    ).diagnostics
    #expect(found.map(\.code.name) == (code.isEmpty ? [] : [code]), "\(found.map(\.line))")
  }

  private func unused(_ templates: String, _ more: String = "") -> [String] {
    FrontEnd(.builtIn).compile(
      "templates: \(templates)\n\(more)sources: { s: { stdin: {} } }\nsinks: { out: { from: s, stdout: {} } }"
    ).diagnostics.map { "\($0.code.name): \($0.message)" }
  }

  /// A mistake that a template has for all parameters is reported even if the template is not used.
  @Test(arguments: [
    ("{ t: { chain: [ { fliter: event.a } ] } }", "RX220: there is no operator 'fliter'"),
    ("{ t: { chain: [ { take: many } ] } }", "RX203: 'count' of 'take' must be a whole number, not a text"),
    ("{ t: { chain: [ { filter: event.a > } ] } }", "RX401: expected a value, found the end of the expression"),
    ("{ t: { chain: [ { filter: 'size(event, 2) > 1' } ] } }", "RX413: size(dyn, int) does not exist"),
    ("{ t: { parameters: { n: int }, chain: [ { take: $(m) } ] } }", "RX356: there is no parameter 'm'"),
    ("{ t: { source: { stdin: { decod: json } } } }", "RX221: 'stdin' has no parameter 'decod'"),
    ("{ t: { sink: { fille: a } } }", "RX220: there is no sink 'fille'"),
    ("{ t: { signal: { chain: [ { use: u } ] } } }", "RX352: there is no template 'u'"),
    ("{ t: { chain: [ { filter: lenght(event) > 1 } ] } }", "RX412: there is no function 'lenght'"),
  ]) func anUnusedTemplateIsChecked(_ templates: String, _ expected: String) {
    #expect(unused(templates) == [expected])
  }

  /// Nothing is reported that a parameter or the position could make valid.
  @Test(arguments: [
    "{ t: { parameters: { n: int, e: expression, d: duration, w: text }, chain: [ { take: $(n) }, { filter: $(e) }, { throttle: $(d) }, { filter: \"event.a == '$(w)' && event.n > $(n)\" } ] } }",
    "{ t: { chain: [ { filter: outer.a == event.a }, { map: running + 1 } ] } }",
    "{ t: { parameters: { s: name }, chain: [ { takeUntil: $(s) } ] } }",
    "{ t: { parameters: { c: chain }, signal: { chain: $(c) } } }",
    "{ t: { parameters: { n: int? }, chain: [ { window: { count: $(n), every: 1s } } ] } }",
    "{ t: { signal: { merge: [ s, x ] } } }", "{ t: { sink: { chain: [ { take: 1 } ], stdout: {} } } }",
    "{ t: { parameters: { u: text }, sink: { http: { url: $(u) } } } }",
    "{ t: { chain: [ { use: u } ] }, u: { chain: [ { take: 1 } ] } }",
  ]) func whatDependsOnTheUseIsNotReported(_ templates: String) {
    #expect(unused(templates) == [])
  }

  @Test func anUnusedTemplateKnowsFunctions() {
    #expect(
      unused(
        "{ t: { chain: [ { map: double(twice(event.a)) } ] } }",
        "functions: { twice: { parameters: { n: dyn }, value: n * 2 } }\n")
        == ["RX304: nothing calls the function 'twice'"])
  }
}
