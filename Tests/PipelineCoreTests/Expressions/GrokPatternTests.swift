import Foundation
import Testing

@testable import PipelineCore

/// Every shipped pattern against a text of its kind, kept in Tests/Golden/grok.tsv: the pattern, `common` or `ecs`, the
/// text, and what is found of it, as JSON. `=`: Logstash's pattern of that name finds the same. `~`: it finds something
/// else, or there is none; the page of `grok` lists the differences.
@Suite struct GrokPatternTests {
  struct Line {
    var name: String
    var naming: GrokPattern.Naming
    var text: String
    var found: String
  }

  static let lines: [Line] = {
    let file = packageRoot.appending(path: "Tests/Golden/grok.tsv")
    let text = (try? String(contentsOf: file, encoding: .utf8)) ?? ""
    return text.split(separator: "\n").compactMap { line in
      let cells = line.split(separator: "\t", omittingEmptySubsequences: false).map(String.init)
      guard cells.count == 5 else { return nil }
      return Line(name: cells[0], naming: cells[1] == "ecs" ? .ecs : .common, text: cells[3], found: cells[4])
    }
  }()

  @Test func everyPatternFindsWhatItsKindHas() {
    for line in Self.lines {
      let function = line.naming == .ecs ? "grok.ecs" : "grok"
      let found = Evaluation("\(function)(event.t, '(?<all>%{\(line.name)})')", "{\"t\":\(line.text)}")?.text
      #expect(found == line.found.replacing(" ", with: ""), "\(line.name) \(line.naming)")
    }
  }

  @Test func everyPatternHasItsTexts() {
    for naming in [GrokPattern.Naming.common, .ecs] {
      let names = Set(Self.lines.filter { $0.naming == naming }.map(\.name))
      #expect(Set(GrokLibrary.names).subtracting(names).sorted() == [], "\(naming)")
    }
  }

  /// Values of groups that took part and are empty, and of groups that took no part.
  @Test(arguments: [
    ("grok('a=', 'a=%{DATA:x}$')", "{}"), ("grok('a=', 'a=%{DATA:x:int}$')", "{}"),
    ("grok('a', 'a(?:=%{DATA:x})?')", "{}"), ("grok('a', '(?<x>)a')", "{}"),
    ("grok('a:', '%{DATA:x}:%{DATA:x}$')", #"{"x":"a"}"#), ("grok(':b', '%{DATA:x}:%{DATA:x}$')", #"{"x":"b"}"#),
    ("grok('a:', '%{DATA:m.x}:%{DATA:n.y}$')", #"{"m":{"x":"a"}}"#), ("grok.ecs('', '%{DATA:x}')", "{}"),
    ("has(grok('a', 'a%{DATA:x}$').x)", "false"),
  ])
  func anEmptyCaptureSetsNoField(_ expression: String, _ expected: String) {
    #expect(evaluate(expression) == expected, "\(expression)")
  }

  /// Addresses are hidden whole, also those that begin with a digit or have a quote in them.
  @Test func addressesAreRedactedWhole() {
    #expect(evaluate("redact('to 1ann@example.org', '%{EMAILADDRESS}')") == #""to[REDACTED]""#)
    #expect(evaluate(#"redact("to o'neil@example.org", '%{EMAILADDRESS}')"#) == #""to[REDACTED]""#)
  }
}
