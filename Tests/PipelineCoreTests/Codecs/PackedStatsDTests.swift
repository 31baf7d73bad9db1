import PipelineTestSupport
import Testing

@testable import PipelineCore

/// Several values per line, in the packed formats of both kinds of clients.
@Suite struct PackedStatsDTests {
  private func read(_ line: String) throws -> [String] {
    try decoded(DecoderOptions(.statsd, unit: .body), line).map { row in
      guard let end = row.lastIndex(of: "@"), !row.hasPrefix("!") else { return row }
      let text = String(row[..<end])
      func member(_ name: String) -> String {
        guard let at = text.range(of: "\"\(name)\":") else { return "" }
        return String(text[at.upperBound...].prefix { $0 != "," && $0 != "}" })
      }
      return [member("name"), member("type"), member("value"), member("sampleRate")].joined(separator: " ")
    }
  }

  @Test(arguments: [
    ("a:1|c:2|ms", ["\"a\" \"counter\" 1.0 1.0", "\"a\" \"timer\" 2.0 1.0"]),
    ("a:1|c|@0.5:2|ms:3|g", ["\"a\" \"counter\" 1.0 0.5", "\"a\" \"timer\" 2.0 1.0", "\"a\" \"gauge\" 3.0 1.0"]),
    ("a:1:2|c", ["\"a\" \"counter\" 1.0 1.0", "\"a\" \"counter\" 2.0 1.0"]),
    ("a:1|c|#k:v,l:w", ["\"a\" \"counter\" 1.0 1.0"]), ("a:x:y|s", ["\"a\" \"set\" \"x:y\" 1.0"]),
    ("a:1|c\nb:2|ms\n", ["\"a\" \"counter\" 1.0 1.0", "\"b\" \"timer\" 2.0 1.0"]),
  ]) func valuesWithTypesOfTheirOwn(_ line: String, _ wanted: [String]) throws {
    #expect(try read(line) == wanted)
  }
}
