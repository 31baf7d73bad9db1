import PipelineCore
import PipelineTestSupport
import Testing

/// `jsonDocuments`: documents that need not end with their lines.
@Suite struct JSONDocumentsTests {
  private func options(_ limit: Int = 16 << 20) -> DecoderOptions {
    var options = DecoderOptions(.jsonDocuments)
    options.json.maxBytes = limit
    return options
  }

  @Test func documentsOverSeveralLines() throws {
    #expect(
      try decoded(options(), "{\n  \"a\": 1\n}\n{\n \"b\": \"}{\\\"\"\n}") == [#"{"a":1}@0"#, #"{"b":"}{\""}@13"#])
  }

  @Test func documentsOnOneLine() throws {
    #expect(
      try decoded(options(), #"{"a":1}{"b":[]}[1,{"c":2}]"x"12 -0.5e3 null true"#) == [
        #"{"a":1}@0"#, #"{"b":[]}@7"#, #"[1,{"c":2}]@15"#, #""x"@26"#, "12@29", "-0.5e3@32", "null@39", "true@44",
      ])
    #expect(try decoded(options(), "") == [])
    #expect(try decoded(options(), " \r\n\t") == [])
    #expect(try decoded(options(), "\u{FEFF}[1]") == ["[1]@3"])
  }

  @Test func textSequences() throws {
    #expect(
      try decoded(options(), "\u{1E}{\"a\":\n1}\n\u{1E}12\n\u{1E}\u{1E}{\"cut\": [1,\u{1E}{\"b\":2}\n")
        == [#"{"a":1}@1"#, "12@11", "!malformed_json@16:{\"cut\": [1,", "{\"b\":2}@28"])
  }

  /// A list with one document per line is one document.
  @Test func listsOfDocuments() throws {
    #expect(try decoded(options(), "[\n{\"a\":1},\n{\"a\":2}\n]\n[]") == [#"[{"a":1},{"a":2}]@0"#, "[]@21"])
  }

  static let faulty: [(input: String, rows: [String])] = [
    // The malformed document alone, where its brackets close.
    (#"{"a":1,}{"b":2}"#, [#"!malformed_json@0:{"a":1,}"#, #"{"b":2}@8"#]),
    (#"{a:{}} [1]"#, ["!malformed_json@0:{a:{}}", "[1]@7"]),
    ("[1 2] [3]", ["!malformed_json@0:[1 2]", "[3]@6"]),
    ("[1] {\"a\":[}] [2]", ["[1]@0", "!malformed_json@4:{\"a\":[}]", "[2]@13"]),
    // Cut off: the next document starts a line where no value is allowed.
    ("{\"a\": 1,\n{\"b\":2}\n[3]", ["!malformed_json@0:{\"a\": 1,", "{\"b\":2}@9", "[3]@17"]),
    ("{\"a\": {\"b\": 1\n{\n \"c\": 2\n}\n", ["!malformed_json@0:{\"a\": {\"b\": 1", #"{"c":2}@14"#]),
    ("{\"a\": \"cut\n{\"b\":2}", ["!malformed_json@0:{\"a\": \"cut", "{\"b\":2}@11"]),
    // Cut off where a value is allowed: the next document is lost too, later ones are found.
    ("{\"a\":\n{\"b\":2}\n{\"c\":3}\n", ["!malformed_json@0:{\"a\":\n{\"b\":2}", "{\"c\":3}@14"]),
    // Input that is not JSON at all.
    ("name,age\nann,3\n{\"a\":1}\n", ["!malformed_json@0:name,age\nann,3", "{\"a\":1}@15"]),
    ("{\"a\":1}} x\n{\"b\":2}", ["{\"a\":1}@0", "!malformed_json@7:} x", "{\"b\":2}@11"]),
    ("nul tru 1\n[1]", ["!malformed_json@0:nul tru 1", "[1]@10"]), ("1.2.3 4", ["!malformed_json@0:1.2.3", "4@6"]),
    ("{\"a\":[1", ["!malformed_json@0:{\"a\":[1"]), ("\"open", ["!malformed_json@0:\"open"]),
  ]

  @Test(arguments: faulty) func continuesBehindAFault(_ input: String, _ rows: [String]) throws {
    #expect(try decoded(options(), input) == rows)
    try expectSameForAllCuts(options(), Array(input.utf8))
  }

  @Test func aFaultIsLocated() throws {
    let decoder = try options().decoder()
    let rows = RowBatch()
    decoder.decode(Slab(Array("[1]\n{\"a\": 1,\n \"b\" 2}".utf8)), arena: Arena(), into: rows)
    #expect(rows.rejected.map { "\($0.offset): \($0.reason)" } == ["4: expected ':' at byte 14"])
  }

  @Test func longDocuments() throws {
    let input = #"{"a":"0123456789"}{"b":1}{"a":[0,1,2,3,4,5,6]}[1]"#
    let expected = [
      #"!row_too_long@0:{"a":"0123456789"}"#, #"{"b":1}@18"#, #"!row_too_long@25:{"a":[0,1,2,3,4,5,6]}"#, "[1]@46",
    ]
    #expect(try decoded(options(10), input) == expected)
    // The kept part of a long document depends on the cuts; nothing else does.
    for cut in 0...input.utf8.count {
      let rows = try decoded(options(10), Array(input.utf8), cuts: [cut])
      #expect(rows.map { $0.prefix { $0 != ":" } } == expected.map { $0.prefix { $0 != ":" } }, "cut at \(cut)")
    }
  }

  /// Memory is bounded for any input.
  @Test func endlessInput() throws {
    for piece in ["{\"a\":", "[", "x", "\"", "{\n", "]", "\\", "[1,"] {
      let decoder = try options(1000).decoder()
      let (arena, rows) = (Arena(), RowBatch())
      let slab = Slab(Array(String(repeating: piece, count: 100).utf8))
      var offset: Int64 = 0
      for _ in 0..<300 {
        decoder.decode(slab, 0..<slab.count, offset: offset, isLast: false, arena: arena, into: rows)
        offset += Int64(slab.count)
        #expect(rows.rejected.allSatisfy { $0.bytes.rawBytes.count <= 4096 })
        rows.clear()
        arena.reset()
      }
      decoder.decode(slab, 0..<0, offset: offset, isLast: true, arena: arena, into: rows)
    }
  }

  static let mixed =
    "{\n \"a\": [1, {\"b\": \"x\\\\\\\"}\"}]\n}{\"c\":2}\n\u{1E}[true,\nfalse]\n12 \"é\"\n{\"cut\": [1,\n{\"d\":\"\n{\"e\":5}\n} x\n[6]null"

  @Test func anyCutGivesTheSame() throws { try expectSameForAllCuts(options(), Array(Self.mixed.utf8)) }

  @Test func anyCutOfAnythingGivesTheSame() throws {
    let pieces = [
      "{", "}", "[", "]", "\"", "\\", ",", ":", "\n", " ", "\u{1E}", "1", "-", "t", "true", "null", "\"a\"",
      "{\"a\":1}", "\n{", "x",
    ]
    var dice = SplitMix(7)
    for _ in 0..<2000 {
      let input = Array((0..<dice.below(25)).map { _ in pieces[dice.below(pieces.count)] }.joined().utf8)
      let whole = try decoded(options(), input)
      #expect(
        try decoded(options(), input, cuts: Array(0...input.count)) == whole,
        "\(String(decoding: input, as: UTF8.self).debugDescription)")
      let cut = dice.below(input.count + 1)
      #expect(
        try decoded(options(), input, cuts: [cut]) == whole,
        "\(String(decoding: input, as: UTF8.self).debugDescription) cut at \(cut)")
      // No byte is dropped silently.
      if whole.isEmpty { #expect(input.allSatisfy { [0x20, 0x0A, 0x1E].contains($0) }) }
    }
  }

  @Test func decodingContinuesAtThePendingDocument() throws {
    let input = Array(Self.mixed.utf8)
    let whole = try decoded(options(), input)
    for cut in 1..<input.count {
      let decoder = try options().decoder()
      let (arena, rows) = (Arena(), RowBatch())
      let slab = Slab(input)
      func all() -> [String] {
        var result: [(Int64, String)] = rows.rows.map { ($0.offset, "\(written($0.value))@\($0.offset)") }
        result += rows.rejected.map {
          ($0.offset, "!\($0.reason.code)@\($0.offset):\(String(decoding: $0.bytes.rawBytes, as: UTF8.self))")
        }
        return result.sorted { $0.0 < $1.0 }.map(\.1)
      }
      decoder.decode(slab, 0..<cut, offset: 0, isLast: false, arena: arena, into: rows)
      let place = Int(decoder.pendingOffset ?? Int64(cut))
      let first = all()
      rows.clear()
      decoder.reset()
      decoder.decode(slab, place..<input.count, offset: Int64(place), isLast: true, arena: arena, into: rows)
      #expect(first + all() == whole, "cut at \(cut)")
    }
  }

  @Test func bodies() throws {
    #expect(try decoded(DecoderOptions(.jsonDocuments, unit: .body), "{\n\"a\":1}{}") == [#"{"a":1}@0"#, "{}@8"])
  }
}
