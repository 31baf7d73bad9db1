import PipelineCore
import PipelineTestSupport
import Testing

@Suite struct CSVTests {
  func options(_ change: (inout CSVDecoding) -> Void = { _ in }) -> DecoderOptions {
    var options = DecoderOptions(.csv)
    change(&options.csv)
    return options
  }

  static let table =
    "name,text,n\r\nann,\"two\nlines, and \"\"quotes\"\"\",1\n\nbob,,2\r\nshort,1\n\"\",\"\r\n\",\nlong,1,2,3\nlast,\"x\",9"

  static let rows = [
    "{\"name\":\"ann\",\"text\":\"two\\nlines, and \\\"quotes\\\"\",\"n\":\"1\"}@13",
    "{\"name\":\"bob\",\"text\":\"\",\"n\":\"2\"}@48", "!field_count@56:short,1",
    "{\"name\":\"\",\"text\":\"\\r\\n\",\"n\":\"\"}@64", "!field_count@73:long,1,2,3",
    "{\"name\":\"last\",\"text\":\"x\",\"n\":\"9\"}@84",
  ]

  @Test func rowsAreMapsByTheHeader() throws {
    #expect(try decoded(options(), Self.table) == Self.rows)
  }

  @Test func quotedLineBreaksSpanPieces() throws {
    try expectSameForAllCuts(options(), Array(Self.table.utf8))
    try expectSameForAllCuts(options { $0.types = .infer }, Array(Self.table.utf8))
    try expectSameForAllCuts(options { $0.header = .none }, Array(Self.table.utf8))
  }

  @Test func headersMayBeGivenOrMissing() throws {
    #expect(try decoded(options { $0.header = .none }, "a,b\nc") == ["[\"a\",\"b\"]@0", "[\"c\"]@4"])
    #expect(try decoded(options { $0.header = .names(["x", "x"]) }, "a,b") == ["{\"x\":\"a\",\"x_2\":\"b\"}@0"])
    #expect(try decoded(options(), "a,a,a_2\n1,2,3") == ["{\"a\":\"1\",\"a_2\":\"2\",\"a_2_2\":\"3\"}@8"])
    #expect(try decoded(options(), "\u{FEFF}\"a\n\",b\n1,2") == ["{\"a\\n\":\"1\",\"b\":\"2\"}@10"])
    #expect(try decoded(options(), "a,b\n") == [])
  }

  @Test func delimiterAndQuoteMayChange() throws {
    #expect(
      try decoded(
        options {
          $0.delimiter = 0x3B
          $0.quote = 0x27
        }, "a;b\n'x;''y''';\"") == ["{\"a\":\"x;'y'\",\"b\":\"\\\"\"}@4"])
    #expect(try decoded(options { $0.delimiter = 0x09 }, "a\tb\n1\t2") == ["{\"a\":\"1\",\"b\":\"2\"}@4"])
    #expect(try decoded(options { $0.quote = nil }, "a,b\n\"1,2\"") == ["{\"a\":\"\\\"1\",\"b\":\"2\\\"\"}@4"])
  }

  /// Only an empty field without quotes can become null.
  @Test func emptyFieldsAreNullOrEmpty() throws {
    for (types, isNull, expected) in [
      (.infer, nil, "[null,\"\",1]@0"), (.infer, false, "[\"\",\"\",1]@0"), (.infer, true, "[null,\"\",1]@0"),
      (.string, nil, "[\"\",\"\",\"1\"]@0"), (.string, false, "[\"\",\"\",\"1\"]@0"),
      (.string, true, "[null,\"\",\"1\"]@0"),
    ] as [(FieldType, Bool?, String)] {
      let options = options {
        $0.header = .none
        $0.types = types
        $0.emptyIsNull = isNull
      }
      #expect(try decoded(options, ",\"\",1") == [expected])
    }
    // Column names stay texts.
    let named = options { $0.emptyIsNull = true }
    #expect(try decoded(named, "a,,c\n1,,3") == ["{\"a\":\"1\",\"\":null,\"c\":\"3\"}@5"])
  }

  @Test func typesMayBeInferred() throws {
    #expect(
      try decoded(
        options {
          $0.header = .none
          $0.types = .infer
        },
        "1,-2,1.5,007,true,false,,\"\",\"1\",1e3,x,18446744073709551615,TRUE,-") == [
          "[1,-2,1.5,\"007\",true,false,null,\"\",\"1\",1e3,\"x\",18446744073709551615,\"TRUE\",\"-\"]@0"
        ])
  }

  @Test func aQuoteInsideAPlainFieldIsText() throws {
    #expect(
      try decoded(options(), "a,b\n5\" disk,x\ny,z") == [
        "{\"a\":\"5\\\" disk\",\"b\":\"x\"}@4", "{\"a\":\"y\",\"b\":\"z\"}@14",
      ])
  }

  static let damaged: [(String, [String])] = [
    ("a,b\n\"x\"y,1\n2,3", ["!malformed_quotes@4:\"x\"y,1", "{\"a\":\"2\",\"b\":\"3\"}@11"]),
    (
      "a,b\n\"open,1\n2,3\n4,5",
      ["!malformed_quotes@4:\"open,1", "{\"a\":\"2\",\"b\":\"3\"}@12", "{\"a\":\"4\",\"b\":\"5\"}@16"]
    ),
    (
      "a,b\n\"x\n\"y,1\n2,3\n",
      ["!malformed_quotes@4:\"x", "!malformed_quotes@7:\"y,1", "{\"a\":\"2\",\"b\":\"3\"}@12"]
    ),
    (
      "a,b\n1,\"x\n\"\ry,1\n2,3\n",
      ["!malformed_quotes@4:1,\"x", "!malformed_quotes@9:\"\ry,1", "{\"a\":\"2\",\"b\":\"3\"}@15"]
    ),
  ]

  @Test(arguments: damaged)
  func aDamagedRowCostsItsLine(_ text: String, _ expected: [String]) throws {
    #expect(try decoded(options(), text) == expected)
    try expectSameForAllCuts(options(), Array(text.utf8))
  }

  @Test func anEndlessRowIsRefusedAtTheLimit() throws {
    let options = options { $0.rowLimit = 1000 }
    let text = "a,b\n\"open,1\n" + String(repeating: "x,y\n", count: 500)
    let whole = try decoded(options, text)
    #expect(whole.count == 501)
    #expect(whole.first == "!row_too_long@4:\"open,1")
    let cuts = Array(stride(from: 0, to: text.utf8.count, by: 4))
    #expect(try decoded(options, Array(text.utf8), cuts: cuts) == whole)
    let closed = "a,b\n\"" + String(repeating: "x\n", count: 600) + "\",1\n2,3"
    #expect(try decoded(options, closed).last?.hasPrefix("{\"a\":\"2\"") == true)
  }

  @Test func manySmallPiecesOfAnOpenRowTakeLinearTime() throws {
    let options = options { $0.rowLimit = 1 << 20 }
    let text = "a,b\n\"" + String(repeating: "xxxx\"\"xxx\n", count: 20_000) + "\",1\n"
    let cuts = Array(stride(from: 0, to: text.utf8.count, by: 10))
    #expect(try decoded(options, Array(text.utf8), cuts: cuts).count == 1)
  }

  @Test func knowsWhatIsPendingAndContinuesWithItsHeader() throws {
    let decoder = try options().decoder()
    let arena = Arena()
    let rows = RowBatch()
    let first = Slab(Array("a,b\n1,2\n3,\"x\n".utf8))
    decoder.decode(first, 0..<first.count, offset: 0, isLast: false, arena: arena, into: rows)
    #expect(rows.count == 1)
    #expect(decoder.pendingOffset == 8)
    let memory = decoder.memory
    let other = try options().decoder()
    other.reset(memory: memory)
    #expect(other.pendingOffset == nil)
    rows.clear()
    let rest = Slab(Array("3,\"x\ny\"\n".utf8))
    other.decode(rest, 0..<rest.count, offset: 8, isLast: true, arena: arena, into: rows)
    #expect(rows.rows.map { written($0.value) } == ["{\"a\":\"3\",\"b\":\"x\\ny\"}"])
    other.reset()
    rows.clear()
    let fresh = Slab(Array("c\n1".utf8))
    other.decode(fresh, arena: arena, into: rows)
    #expect(rows.rows.map { written($0.value) } == ["{\"c\":\"1\"}"])
  }

  @Test func refusesUnusableOptions() {
    for bad in [
      options { $0.delimiter = 0x22 }, options { $0.delimiter = 0x0A }, options { $0.delimiter = 0xC3 },
      options { $0.quote = 0x0D }, options { $0.types = .int }, options { $0.header = .names([]) },
    ] {
      #expect(throws: CodecFailure.self) { try bad.decoder() }
    }
  }

  // MARK: Random tables

  @Test func randomTablesSurviveWritingAndReading() throws {
    var dice = SplitMix(31)
    let pieces = ["a", ",", "\"", "\n", "\r\n", " ", "é", "long text", "\"\"", "1"]
    let arena = Arena()
    for _ in 0..<300 {
      let values = (0..<1 + dice.below(5)).map { _ in
        arena.list(
          (0..<1 + dice.below(4)).map { _ in
            arena.string((0..<dice.below(5)).map { _ in pieces[dice.below(pieces.count)] }.joined())
          })
      }
      let text = Array(try encoded(EncoderOptions(.csv), values).utf8)
      let options = options { $0.header = .none }
      let rows = try decoded(options, text)
      #expect(rows.map { String($0.prefix(upTo: $0.lastIndex(of: "@") ?? $0.endIndex)) } == values.map { written($0) })
      let cuts = (0..<4).map { _ in dice.below(text.count + 1) }.sorted()
      #expect(try decoded(options, text, cuts: cuts) == rows)
    }
  }
}
