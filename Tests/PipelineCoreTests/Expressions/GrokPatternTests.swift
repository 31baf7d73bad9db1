import Foundation
import Testing

@testable import PipelineCore

/// Every shipped pattern with a text of its kind, kept in Tests/Golden/grok.tsv: the pattern, `common` or `ecs`, the
/// text, and the match as JSON. `=`: Logstash's pattern of that name gives the same match. `~`: it gives another match,
/// or does not exist; the page of `grok` lists the differences.
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

  /// Values of empty groups, and of groups that did not participate.
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

  /// Addresses are masked as a whole, even if they begin with a digit or contain a quote.
  @Test func addressesAreRedactedWhole() {
    #expect(evaluate("redact('to 1ann@example.org', '%{EMAILADDRESS}')") == #""to[REDACTED]""#)
    #expect(evaluate(#"redact("to o'neil@example.org", '%{EMAILADDRESS}')"#) == #""to[REDACTED]""#)
  }
}
