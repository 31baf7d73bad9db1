import CJSON
import PipelineCore
import PipelineTestSupport
import Testing

@Suite struct JSONWriterTests {
  let arena = Arena()
  let parser = JSONParser()

  static let doubles: [(Double, String)] = [
    (7, "7.0"), (0, "0.0"), (-0.0, "-0.0"), (0.1, "0.1"), (1.5, "1.5"), (-2.25, "-2.25"),
    (1e20, "100000000000000000000.0"),
    (1e21, "1e+21"), (1.5e300, "1.5e+300"), (1e-6, "0.000001"), (1e-7, "1e-7"), (1.25e-7, "1.25e-7"),
    (.leastNonzeroMagnitude, "5e-324"), (.greatestFiniteMagnitude, "1.7976931348623157e+308"),
    (123456789.125, "123456789.125"),
    (9_007_199_254_740_992, "9007199254740992.0"), (0.30000000000000004, "0.30000000000000004"),
    (.nan, "\"NaN\""), (.infinity, "\"Infinity\""), (-.infinity, "\"-Infinity\""), (1_234_567, "1234567.0"),
  ]

  @Test(arguments: doubles)
  func writesDoubles(_ number: Double, _ text: String) { #expect(written(.double(number)) == text) }

  @Test func doublesReadBackAsTheSameDoubles() {
    var dice = SplitMix(3)
    for index in 0..<20_000 {
      let number =
        index % 2 == 0
        ? Double(bitPattern: dice.next()) : Double(Int64(truncatingIfNeeded: dice.next()) >> 20) / 1000
      if !number.isFinite { continue }
      let text = ExactText(written(.double(number)))
      #expect(Plain(parser.parse(text.bytes, into: arena)) == .number(number))
    }
  }

  @Test func writesScalars() {
    #expect(written(.null) == "null")
    #expect(written(.absent) == "null")
    #expect(written(.bool(true)) == "true")
    #expect(written(.int(Int64.min)) == "-9223372036854775808")
    #expect(written(.int(9_007_199_254_740_993 as Int64)) == "9007199254740993")
    #expect(written(.uint(.max)) == "18446744073709551615")
    #expect(written(Value(kind: .type, pointer: Value.literal("int").pointer, length: 3)) == "\"int\"")
    #expect(written(arena.optional(nil)) == "null")
    #expect(written(arena.optional(.int(1))) == "1")
    #expect(written(Value(kind: .error)) == "failure: the value is an error")
  }

  @Test func writesBytesAsBase64() {
    let cases: [([UInt8], String)] = [
      ([], ""), ([0x66], "Zg=="), ([0x66, 0x6f], "Zm8="), (Array("foo".utf8), "Zm9v"), ([0xFB, 0xFF], "+/8="),
      (Array("foobar".utf8), "Zm9vYmFy"),
    ]
    for (bytes, text) in cases {
      let exact = bytes.exact
      #expect(written(.bytes(exact.bytes)) == "\"\(text)\"")
    }
  }

  static let timestamps: [(Int64, UInt32, String)] = [
    (0, 0, "1970-01-01T00:00:00Z"), (-1, 500_000_000, "1969-12-31T23:59:59.5Z"),
    (951_782_400, 0, "2000-02-29T00:00:00Z"), (1_769_846_400, 1, "2026-01-31T08:00:00.000000001Z"),
    (253_402_300_799, 999_999_999, "9999-12-31T23:59:59.999999999Z"), (-62_135_596_800, 0, "0001-01-01T00:00:00Z"),
    (1_431_857_103, 120_000_000, "2015-05-17T10:05:03.12Z"), (4_107_542_399, 0, "2100-02-28T23:59:59Z"),
  ]

  @Test(arguments: timestamps)
  func writesTimestamps(_ seconds: Int64, _ nanoseconds: UInt32, _ text: String) {
    #expect(written(.timestamp(seconds: seconds, nanoseconds: nanoseconds)) == "\"\(text)\"")
  }

  @Test func survivesTimesThatNoCalendarHas() {
    for seconds in [Int64.min, .min + 1, .max, .max - 1] {
      #expect(written(.timestamp(seconds: seconds, nanoseconds: 0)).hasSuffix("Z\""))
    }
  }

  @Test func writesDurations() {
    let cases: [(Int64, String)] = [
      (0, "0s"), (1_500_000_000, "1.5s"), (-250_000_000, "-0.25s"), (3_600_000_000_000, "3600s"), (1, "0.000000001s"),
      (.min, "-9223372036.854775808s"),
    ]
    for (nanoseconds, text) in cases { #expect(written(.duration(nanoseconds: nanoseconds)) == "\"\(text)\"") }
  }

  @Test func escapesStrings() {
    let text = "a\"b\\c\u{8}\u{c}\n\r\t\u{1}\u{1f}\u{7f}é\u{2028}🎈 and a long plain tail behind all of that"
    #expect(
      written(arena.string(text))
        == "\"a\\\"b\\\\c\\b\\f\\n\\r\\t\\u0001\\u001f\u{7f}é\u{2028}🎈 and a long plain tail behind all of that\"")
    #expect(written(arena.string("")) == "\"\"")
    // Every byte that needs an escape, at every offset of a block.
    for place in 0..<40 {
      for byte in (0..<0x20).map(UInt8.init) + [0x22, 0x5C] {
        var bytes = [UInt8](repeating: 0x78, count: 40)
        bytes[place] = byte
        let exact = bytes.exact
        let output = OutputBuffer()
        JSONWriter.append(.string(exact.bytes), to: output)
        #expect(Plain(parser.parse(output.bytes, into: arena), arena) == .string(bytes))
      }
    }
  }

  @Test func writesMapsAndLists() {
    let map = arena.map([
      (key: Value.literal("s"), value: Value.literal("x")), (key: .int(1), value: .null),
      (key: .bool(true), value: arena.list([.int(1), .double(2)])), (key: .uint(9), value: arena.list([])),
      (key: Value.literal("m"), value: arena.map([] as [(key: Value, value: Value)])),
    ])
    #expect(written(map) == "{\"s\":\"x\",\"1\":null,\"true\":[1,2.0],\"9\":[],\"m\":{}}")
    #expect(
      written(map, .pretty(indent: 2))
        == """
        {
          "s": "x",
          "1": null,
          "true": [
            1,
            2.0
          ],
          "9": [],
          "m": {}
        }
        """)
    let bad = arena.map([(key: Value.null, value: Value.null)])
    #expect(written(bad) == "failure: a map with a key of kind null cannot be written; make its keys strings")
  }

  @Test func copiesJSONTextUnchanged() {
    let text = ExactText("{\"a\" : 1.0e2,  \"b\":\"\\u00e9\\/\"}")
    #expect(written(parser.open(text.bytes)) == "{\"a\" : 1.0e2,  \"b\":\"\\u00e9\\/\"}")
    let lines = ExactText("{\n  \"a\": \" x\\n \",\r\n  \"b\": [ 1 ]\n}")
    #expect(written(parser.open(lines.bytes)) == "{\"a\":\" x\\n \",\"b\":[1]}")
    #expect(written(arena.list([parser.open(lines.bytes)])) == "[{\"a\":\" x\\n \",\"b\":[1]}]")
  }

  @Test func laysOutJSONText() {
    let text = ExactText("{\"a\":[1,{}, [ ],{\"b\":\"{,}\\\"\"}],\"c\":null}")
    let lazy = parser.open(text.bytes)
    let expected = """
      {
        "a": [
          1,
          {},
          [],
          {
            "b": "{,}\\\""
          }
        ],
        "c": null
      }
      """
    #expect(written(lazy, .pretty(indent: 2)) == expected)
    #expect(written(parser.expand(lazy, into: arena), .pretty(indent: 2)) == expected)
    #expect(
      written(arena.list([lazy]), .pretty(indent: 2))
        == "[\n  " + expected.split(separator: "\n").joined(separator: "\n  ") + "\n]")
  }

  @Test func removesWhatItBeganWhenItFails() {
    let output = OutputBuffer()
    output.append("kept")
    let failure = JSONWriter.append(arena.list([.int(1), Value(kind: .error)]), to: output)
    #expect(failure == .error)
    #expect(String(decoding: output.bytes, as: UTF8.self) == "kept")
    var deep = arena.list([])
    for _ in 0..<600 { deep = arena.list([deep]) }
    #expect(JSONWriter.append(deep, to: output) == .tooDeep)
  }

  @Test func randomTreesSurviveWritingAndReading() {
    var dice = SplitMix(77)
    for _ in 0..<3000 {
      let text = ExactText(randomDocument(&dice))
      let tree = parser.parse(text.bytes, into: arena)
      #expect(!tree.isError)
      for layout in [JSONWriter.Layout.compact, .pretty(indent: 1)] {
        let again = ExactText(written(tree, layout))
        let lazy = ExactText(written(parser.open(text.bytes), layout))
        #expect(Plain(parser.parse(again.bytes, into: arena)) == Plain(tree))
        #expect(Plain(parser.parse(lazy.bytes, into: arena)) == Plain(tree))
      }
      arena.reset()
    }
  }

  /// Typical decimals, and whole numbers and doubles of any bits: the shortest digits that read back.
  @Test func numbersReadBackFromTheFewestDigits() {
    var random = SplitMix(12)
    let output = OutputBuffer()
    for round in 0..<200_000 {
      let number: Double =
        switch round % 4 {
        case 0: Double(random.below(2_000_000_000)) / 1000
        case 1: Double(bitPattern: random.next())
        case 2: Double(Int64(truncatingIfNeeded: random.next() >> UInt64(random.below(64)))) / 1e5
        default: -Double(random.below(1_000_000)) / 1e6
        }
      guard number.isFinite else { continue }
      output.clear()
      JSONWriter.append(.double(number), to: output)
      let text = String(decoding: output.bytes, as: UTF8.self)
      #expect(Double(text)?.bitPattern == number.bitPattern, "\(text)")
      // The standard library also writes the fewest digits; only the range of exponents differs.
      if !"\(number)".contains("e"), !text.contains("e") { #expect(text == "\(number)") }

      let whole = Int64(bitPattern: random.next()) >> Int64(random.below(64))
      output.clear()
      JSONWriter.append(.int(whole), to: output)
      #expect(String(decoding: output.bytes, as: UTF8.self) == "\(whole)")
      output.clear()
      JSONWriter.append(.uint(UInt64(bitPattern: whole)), to: output)
      #expect(String(decoding: output.bytes, as: UTF8.self) == "\(UInt64(bitPattern: whole))")
    }
  }
}
