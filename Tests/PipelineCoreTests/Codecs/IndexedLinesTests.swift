import CJSON
import PipelineTestSupport
import Testing

@testable import PipelineCore

/// The tokens of a block of lines are found in one pass and used twice. For any lines, the result equals that of
/// reading each line separately.
@Suite struct IndexedLinesTests {
  static let documents = [
    #"{"status":500,"a":{"status":1,"b":[1,{"status":2}]},"s":"x"}"#,
    #" { "a" : { "b" : "q\"}{" , "c" : [ ] } , "status" : -7.5e3 , "status" : 1 } "#,
    #"{"sta\u0074us":3,"status":4,"a":{"\u0062":1,"b":2}}"#, #"{"a":{},"b":[],"status":null}"#,
    #"{"a":[1,2,3],"status":"文\n"}"#, #"{"status":true}"#, "{}", "[]", "[1,{\"status\":2}]", "7", "\"s\"", "",
    "  ", "null", #"{"status":18446744073709551615,"a":{"b":{"c":9223372036854775807}}}"#,
    // Errors, some of which only a reader of that part finds.
    #"{"a":1,}"#, #"{"a" 1,"status":2}"#, #"{"a":tru,"status":2}"#, #"{"status":01}"#, #"{"status":1"#,
    #"{"status":1}}"#, #"{"a":[1}],"status":3}"#, #"{"a":"open}"#, #"{"a":1}\"#, #"\{"a":1}"#, #"{,"status":1}"#,
    #"{"status"}"#, #"{"status":}"#, #"{"status":,}"#, #"{"a":1 "status":2}"#, #"["status":1}"#, #"{"a":"\q"}"#,
    #"{"status":"a"b}"#, #"{"a":{"b":1},"a":{"b":2},"status":{"x":1}}"#, "{\"a\":\"\u{1}\"}", "}{", "{\"\":1}",
  ]

  private func projection() -> Projection {
    let projection = Projection()
    _ = projection.slot(for: ["status"], needs: .value)
    _ = projection.slot(for: ["a"], needs: .presence)
    _ = projection.slot(for: ["a", "b"], needs: .value)
    _ = projection.slot(for: ["a", "b", "c"], needs: .value)
    _ = projection.slot(for: ["b"], needs: .value)
    projection.freeze()
    return projection
  }

  private func same(_ a: Value, _ b: Value) -> Bool {
    a.kind == b.kind && a.payload == b.payload && a.length == b.length && a.flags == b.flags && a.aux == b.aux
  }

  /// Checks one block; returns the number of rows that used the shared index.
  private func check(_ lines: [[UInt8]], _ projection: Projection) throws -> Int {
    let slab = Slab([UInt8](lines.joined(separator: [0x0A])))
    let decoder = try DecoderOptions(.ndjson).decoder()
    let arena = Arena()
    let rows = RowBatch()
    decoder.decode(slab, arena: arena, into: rows)

    let alone = JSONParser()
    var row = 0
    var refusal = 0
    var start = 0
    for line in lines {
      defer { start += line.count + 1 }
      var text = UnsafeRawBufferPointer(rebasing: slab.bytes[start..<start + line.count])
      if text.last == 0x0D { text = UnsafeRawBufferPointer(rebasing: text.dropLast()) }
      let expected = alone.open(text)
      if let failure = JSONFailure(expected) {
        if failure.reason == .empty { continue }
        try #require(refusal < rows.rejected.count)
        #expect(rows.rejected[refusal].reason == .json(failure))
        #expect(rows.rejected[refusal].offset == Int64(start))
        #expect(rows.rejected[refusal].index == row)
        refusal += 1
      } else {
        try #require(row < rows.count)
        #expect(same(rows.rows[row].value, expected))
        #expect(rows.rows[row].offset == Int64(start))
        row += 1
      }
    }
    #expect(row == rows.count)
    #expect(refusal == rows.rejected.count)

    let json = JSONParser()
    let indexed = EvaluationFrame(slots: projection.slotCount, arena: arena, json: json)
    let plain = EvaluationFrame(slots: projection.slotCount, arena: arena, json: JSONParser())
    var shared = 0
    for row in rows.rows where row.token != RowBatch.Row.none {
      shared += 1
      json.indexed.pointee = rx_lines_row(
        lines: rows.lines, payload: row.value.payload, length: row.value.length, token: row.token)
      let outcome = projection.fill(row.value, indexed)
      json.indexed.pointee.lines = nil
      let text = String(decoding: row.value.rawBytes, as: UTF8.self)
      #expect(same(outcome, projection.fill(row.value, plain)), "\(text)")
      // If a document is malformed in a part that is not read, only the outcome must be the same.
      if outcome.isError || alone.validate(row.value.rawBytes) != nil { continue }
      for slot in 0..<projection.slotCount {
        #expect(same(indexed.slots[slot], plain.slots[slot]), "slot \(slot) of \(text)")
      }
    }
    withExtendedLifetime(slab) {}
    return shared
  }

  @Test func eachDocumentAlone() throws {
    let projection = projection()
    for document in Self.documents { _ = try check([Array(document.utf8)], projection) }
    let shared = try check(Self.documents.prefix(12).map { Array($0.utf8) }, projection)
    #expect(shared == 9)
  }

  @Test func damagedBlocks() throws {
    let projection = projection()
    var dice = SplitMix(11)
    var shared = 0
    for round in 0..<5000 {
      var lines = (0..<Int.random(in: 1...6, using: &dice)).map { _ in
        Array((Self.documents.randomElement(using: &dice) ?? "").utf8)
      }
      // Without damage most of the block is indexed, unless the list contains a document that cannot be read.
      for _ in 0..<(round % 3) {
        let at = Int.random(in: 0..<lines.count, using: &dice)
        guard !lines[at].isEmpty else { continue }
        let marks = Array("{}[]\",:\\ \r0aé\n".utf8)
        lines[at][Int.random(in: 0..<lines[at].count, using: &dice)] = marks.randomElement(using: &dice) ?? 0
      }
      lines = lines.flatMap { $0.split(separator: 0x0A, omittingEmptySubsequences: false).map(Array.init) }
      shared += try check(lines, projection)
    }
    #expect(shared > 2000)
  }

  @Test func manyPathsAndLongKeys() throws {
    let projection = Projection()
    for number in 0..<70 { _ = projection.slot(for: ["key-number-\(number)"], needs: .value) }
    projection.freeze()
    let members = (0..<70).map { "\"key-number-\($0)\":\($0)" }.joined(separator: ",")
    #expect(try check([Array("{\(members)}".utf8)], projection) == 1)
  }
}
