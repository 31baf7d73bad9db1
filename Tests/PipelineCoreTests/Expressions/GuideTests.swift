import Foundation
import PipelineCore
import Testing

/// Runs the examples of docs/expressions.md.
@Suite struct ExpressionGuideTests {
  struct Row: Sendable, CustomTestStringConvertible {
    var line: Int
    var event: String
    var expression: String
    var expected: String
    var testDescription: String { "line \(line): \(expression)" }
  }

  static let guide: String = {
    var folder = URL(fileURLWithPath: #filePath)
    for _ in 0..<4 { folder.deleteLastPathComponent() }
    return (try? String(contentsOf: folder.appendingPathComponent("docs/expressions.md"), encoding: .utf8)) ?? ""
  }()

  /// The rows of tables that have the columns `expression` and `gives`.
  static let rows: [Row] = {
    var rows: [Row] = []
    var event = "{}"
    var block: [Substring]?
    var columns: (expression: Int, gives: Int)?
    for (number, line) in guide.split(separator: "\n", omittingEmptySubsequences: false).enumerated() {
      if line.hasPrefix("```") {
        if let text = block, !text.isEmpty { event = text.joined(separator: "\n") }
        block = block == nil && line == "```json" ? [] : nil
      } else if block != nil {
        block?.append(line)
      } else if line.hasPrefix("|") {
        let cells = line.replacing("\\|", with: "\u{1}").split(separator: "|").map {
          $0.trimmingCharacters(in: .whitespaces).replacing("\u{1}", with: "|")
        }
        if let known = columns {
          guard cells.count > known.gives, !cells[0].hasPrefix("---") else { continue }
          rows.append(
            Row(
              line: number + 1, event: event,
              expression: cells[known.expression].trimmingCharacters(in: ["`"]),
              expected: cells[known.gives].trimmingCharacters(in: ["`"])))
        } else if let expression = cells.firstIndex(of: "expression"), let gives = cells.firstIndex(of: "gives") {
          columns = (expression, gives)
        }
      } else {
        columns = nil
      }
    }
    return rows
  }()

  @Test func theGuideIsComplete() {
    let jq = Self.guide.components(separatedBy: "## Coming from VRL")[0].components(separatedBy: "## Coming from jq")
    #expect(jq.last.map { $0.split(separator: "\n").filter { $0.hasPrefix("| `") }.count } ?? 0 >= 40)
    #expect(Self.rows.count > 140)
  }

  @Test(arguments: rows)
  func example(_ row: Row) {
    if row.expected.hasPrefix("error: ") {
      let reason = row.expected.dropFirst("error: ".count)
      var diagnostics = Diagnostics()
      let scope = ExpressionScope([.init("event"), .init("meta"), .init("now", .timestamp)])
      let checked = ExpressionSyntax.parse(LocatedText(row.expression), into: &diagnostics)?
        .check(in: scope, into: &diagnostics)
      // Reported by the checker, or at run time.
      let reported = checked == nil ? diagnostics.all.first?.message : evaluate(row.expression, row.event)
      #expect(reported?.contains(reason) == true, "\(row.expression): \(reported ?? "nothing")")
      return
    }
    guard let got = evaluate(row.expression, row.event) else { return }
    func value(_ text: String) -> NSObject? {
      (try? JSONSerialization.jsonObject(with: Data(text.utf8), options: .fragmentsAllowed)) as? NSObject
    }
    // `evaluate` removes the spaces of texts, on both sides.
    #expect(value(got) == value(dense(row.expected)), "\(row.expression): \(got)")
    #expect(value(got) != nil)
  }
}
