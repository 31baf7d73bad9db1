import CJSON
import PipelineCore
import PipelineTestSupport
import Testing

#if canImport(Glibc)
  import Glibc
#endif

@Suite struct JSONParserTests {
  let parser = JSONParser()
  let arena = Arena()

  func parse(_ text: String) -> Plain { parse(Array(text.utf8)) }

  func parse(_ bytes: [UInt8]) -> Plain {
    let text = ExactText(bytes)
    return Plain(parser.parse(text.bytes, into: arena), arena)
  }

  // MARK: What must be accepted and refused

  static let accepted = [
    "[[]   ]", "[\"\"]", "[]", "[\"a\"]", "[false]", "[null, 1, \"1\", {}]", "[null]", "[1\n]", " [1]",
    "[1,null,null,null,2]", "[2] ", "[123e65]", "[0e+1]", "[0e1]", "[ 4]", "[-0.000000000000000000000000001]",
    "[20e1]", "[-0]", "[-123]", "[-1]", "[1E22]", "[1E-2]", "[1E+2]", "[123e45]", "[123.456e78]", "[1e-2]",
    "[1e+2]", "[123]", "[123.456789]", "{\"asd\":\"sdf\", \"dfg\":\"fgh\"}", "{\"asd\":\"sdf\"}",
    "{\"a\":\"b\",\"a\":\"c\"}", "{}", "{\"\":0}", "{\"foo\\u0000bar\": 42}", "{\"a\":[]}",
    "{\n\"a\": \"b\"\n}", "[\"\\u0060\\u012a\\u12AB\"]", "[\"\\uD801\\udc37\"]", "[\"\\ud83d\\ude39\\ud83d\\udc8d\"]",
    "[\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"]", "[\"\\\\u0000\"]", "[\"\\\"\"]", "[\"a/*b*/c/*d//e\"]", "[\"\\\\a\"]",
    "[\"\\\\n\"]", "[\"\\u0012\"]", "[\"\\uFFFF\"]", "[\"asd\"]", "[ \"asd\"]", "[\"\u{10FFFF}\"]",
    "[\"\u{FFFF}\"]", "[\"\\u0000\"]", "[\"\\u002c\"]", "[\"π\"]", "[\"\u{1BFFF}\"]", "[\"asd \"]", "\" \"",
    "[\"\\uD834\\uDd1e\"]", "[\"\u{2028}\"]", "[\"\u{2029}\"]", "[\"\\u0061\\u30af\\u30EA\\u30b9\"]",
    "[\"new\\u000Aline\"]", "[\"\u{7f}\"]", "[\"\\uA66D\"]", "[\"\\u005C\"]", "[\"⍂㈴⍂\"]", "[\"\\u200B\"]",
    "[\"\\u2064\"]", "[\"\\uFDD0\"]", "[\"\\uFFFE\"]", "[\"\\u0022\"]", "[\"aa\u{7f}a\"]", "false", "42",
    "-0.1", "null", "\"asd\"", "true", "\"\"", "[\"a\"]\n", "[true]", " [] ", "{ }", "[ ]",
    "{\"a\":{\"b\":{\"c\":[{},[],{}]}}}",
    // Accepted here, although the standard leaves it open.
    "[123.456e-789]", "[0.4e00669999999999999999999999999999999999999999999999999999]", "[-1e+9999]",
    "[1.5e+9999]", "[-123123e100000]", "[123123e100000]", "[-123123123123123123123123123123]",
    "[100000000000000000000]", "[\"\\uDADA\"]", "[\"\\uD888\\u1234\"]", "[\"\\uD800\\n\"]",
    "[\"\\uDd1ea\"]", "[\"\\uD800\\uD800\\n\"]", "[\"\\ud800\"]", "[\"\\ud800abc\"]", "[\"\\uDd1e\\uD834\"]",
    "[\"\\uDFAA\"]",
  ]

  @Test(arguments: accepted)
  func accepts(_ text: String) {
    let exact = ExactText(text)
    #expect(parser.validate(exact.bytes) == nil)
    #expect(!parser.parse(exact.bytes, into: arena).isError)
    #expect(!parser.open(exact.bytes).isError)
    #expect(!parser.open(exact.bytes, checking: .everything).isError)
  }

  static let refused: [(String, Int, JSONFailure.Reason)] = [
    ("", 0, .empty), (" \n\t", 3, .empty),
    ("[1 true]", 3, .expectedCommaOrBracket), ("[\"\": 1]", 3, .expectedCommaOrBracket),
    ("[\"\"],", 4, .expectedEnd), ("[,1]", 1, .expectedValue), ("[1,,2]", 3, .expectedValue),
    ("[\"x\",,]", 5, .expectedValue), ("[\"x\"]]", 5, .expectedEnd), ("[\"\",]", 4, .expectedValue),
    ("[\"x\"", 4, .expectedCommaOrBracket), ("[x", 1, .expectedValue), ("[3[4]]", 2, .expectedCommaOrBracket),
    ("[1:2]", 2, .expectedCommaOrBracket), ("[,]", 1, .expectedValue), ("[-]", 1, .malformedNumber),
    ("[   , \"\"]", 4, .expectedValue), ("[\"a\",\n4\n,1,", 11, .expectedValue), ("[1,]", 3, .expectedValue),
    ("[*]", 1, .expectedValue), ("[\"\"", 3, .expectedCommaOrBracket), ("[1,", 3, .expectedValue),
    ("[{}", 3, .expectedCommaOrBracket), ("[fals]", 1, .expectedValue), ("[nul]", 1, .expectedValue),
    ("[tru]", 1, .expectedValue), ("[True]", 1, .expectedValue), ("[nullx]", 1, .expectedValue),
    ("[++1234]", 1, .expectedValue), ("[+1]", 1, .expectedValue), ("[-01]", 1, .malformedNumber),
    ("[-1.0.]", 1, .malformedNumber), ("[-2.]", 1, .malformedNumber), ("[.-1]", 1, .expectedValue),
    ("[.2e-3]", 1, .expectedValue), ("[0.1.2]", 1, .malformedNumber), ("[0.3e+]", 1, .malformedNumber),
    ("[0.3e]", 1, .malformedNumber), ("[0.e1]", 1, .malformedNumber), ("[0E+]", 1, .malformedNumber),
    ("[1.0e+]", 1, .malformedNumber), ("[1 000.0]", 3, .expectedCommaOrBracket),
    ("[1eE2]", 1, .malformedNumber), ("[2.e+3]", 1, .malformedNumber), ("[NaN]", 1, .expectedValue),
    ("[Infinity]", 1, .expectedValue), ("[-Infinity]", 1, .malformedNumber), ("[0x42]", 1, .malformedNumber),
    ("[012]", 1, .malformedNumber), ("[1+2]", 1, .malformedNumber), ("[- 1]", 1, .malformedNumber),
    ("[1a]", 1, .malformedNumber), ("[1\"a\"]", 1, .malformedNumber), ("[true\"a\"]", 1, .expectedValue),
    ("[\"a\"\"b\"]", 4, .expectedCommaOrBracket), ("[\"a\"1]", 4, .expectedCommaOrBracket),
    ("{[: \"x\"}", 1, .expectedKeyOrEnd), ("{\"x\", null}", 4, .expectedColon),
    ("{\"x\"::\"b\"}", 5, .expectedValue), ("{\"a\":\"a\" 123}", 9, .expectedCommaOrBrace),
    ("{key: 'value'}", 1, .expectedKeyOrEnd), ("{\"a\" b}", 5, .expectedColon), ("{:\"b\"}", 1, .expectedKeyOrEnd),
    ("{\"a\":", 5, .expectedValue), ("{\"a\"", 4, .expectedColon), ("{1:1}", 1, .expectedKeyOrEnd),
    ("{\"id\":0,,,,,}", 8, .expectedKey), ("{'a':0}", 1, .expectedKeyOrEnd), ("{\"id\":0,}", 8, .expectedKey),
    ("{\"a\":\"b\"}/**/", 9, .expectedEnd), ("{\"a\":\"b\",,\"c\":\"d\"}", 9, .expectedKey),
    ("{\"a\":\"b\"}#", 9, .expectedEnd), ("{\"a\": true} \"x\"", 12, .expectedEnd),
    ("{\"a\":1} {\"b\":2}", 8, .expectedEnd), ("{\"a\":1", 6, .expectedCommaOrBrace),
    ("{\"a\":[1}", 7, .expectedCommaOrBracket), ("[{\"a\":1]]", 7, .expectedCommaOrBrace),
    ("[\"\\uD800\\u\"]", 8, .malformedEscape), ("[\"\\u00A\"]", 2, .malformedEscape),
    ("[\"\\x00\"]", 2, .malformedEscape), ("[\"\\\u{00e9}\"]", 2, .malformedEscape),
    ("[\"\\a\"]", 2, .malformedEscape), ("[\"\\uqqqq\"]", 2, .malformedEscape),
    ("[\"a", 1, .unclosedString), ("[\"\\\"]", 1, .unclosedString), ("\"", 0, .unclosedString),
    ("{\"abc", 1, .unclosedString), ("[\"new\nline\"]", 5, .controlCharacter), ("[\"\t\"]", 2, .controlCharacter),
    ("[\u{60}a\u{60}]", 1, .expectedValue), ("<null>", 0, .expectedValue), ("[1]x", 3, .expectedEnd),
    ("abc", 0, .expectedValue), ("tru", 0, .expectedValue), ("truee", 0, .expectedValue), ("1 2", 2, .expectedEnd),
    ("\"a\" \"b\"", 4, .expectedEnd), ("2@", 0, .malformedNumber), ("{}}", 2, .expectedEnd), ("]", 0, .expectedValue),
    ("{]", 1, .expectedKeyOrEnd), ("[}", 1, .expectedValue), ("[1}", 2, .expectedCommaOrBracket),
    ("\u{FEFF}[]", 0, .expectedValue), ("[\u{2060}]", 1, .expectedValue), ("[\u{0c}]", 1, .expectedValue),
    ("{\"a\":1 \"b\":2}", 7, .expectedCommaOrBrace), ("-", 0, .malformedNumber), ("", 0, .empty),
    ("{\"first\": \"value\" x}", 18, .expectedCommaOrBrace),
  ]

  @Test(arguments: refused)
  func refuses(_ text: String, _ offset: Int, _ reason: JSONFailure.Reason) throws {
    let exact = ExactText(text)
    let failure = try #require(parser.validate(exact.bytes), "\(text)")
    #expect(failure.offset == offset, "\(text): \(failure)")
    #expect(failure.reason == reason, "\(text): \(failure)")
    #expect(failure.isAtEnd == (offset == text.utf8.count), "\(text)")
    #expect(JSONFailure(parser.parse(exact.bytes, into: arena)) == failure)
    #expect(JSONFailure(parser.open(exact.bytes, checking: .everything)) == failure)
    let opened = parser.open(exact.bytes)
    #expect(!opened.isError || JSONFailure(opened) == failure)
  }

  static let invalidText: [([UInt8], Int)] = [
    ([0x22, 0xFF, 0x22], 1), (Array("[\"a".utf8) + [0xC0, 0xAF] + Array("\"]".utf8), 3),
    (Array("[\"".utf8) + [0xED, 0xA0, 0x80] + Array("\"]".utf8), 2),
    (Array("[\"".utf8) + [0xF4, 0xBF, 0xBF, 0xBF] + Array("\"]".utf8), 2),
    (Array("[\"é".utf8) + [0xE9] + Array("\"]".utf8), 4), (Array("{\"a\":1,\"".utf8) + [0x81] + Array("\":2}".utf8), 8),
    (Array("[".utf8) + [0xFF] + Array("]".utf8), 1), (Array("[\"".utf8) + [0xE0, 0x80, 0x80] + Array("\"]".utf8), 2),
    (Array("[\"".utf8) + [0xF0, 0x9F, 0x8E] + Array("\"]".utf8), 2),
  ]

  @Test(arguments: invalidText)
  func refusesInvalidUTF8(_ bytes: [UInt8], _ offset: Int) throws {
    let exact = ExactText(bytes)
    let failure = JSONFailure(.invalidUTF8, offset: offset)
    #expect(parser.validate(exact.bytes) == failure)
    #expect(JSONFailure(parser.open(exact.bytes)) == failure)
    #expect(UTF8Text.firstError(exact.bytes) == offset)
  }

  @Test func reportsWhereInOneSentence() {
    let text = ExactText("{\"first\": \"value\" x}")
    #expect(parser.validate(text.bytes).map(\.description) == "expected ',' or '}' at byte 18")
    let short = ExactText("{\"a\":1")
    #expect(
      parser.validate(short.bytes).map(\.description)
        == "expected ',' or '}' at byte 6, where the text ends")
  }

  @Test func countsOffsetsFromTheStartIncludingWhiteSpace() {
    let text = ExactText("  \n {\"a\" 1}  ")
    #expect(JSONFailure(parser.parse(text.bytes, into: arena)) == JSONFailure(.expectedColon, offset: 9))
    #expect(
      JSONFailure(parser.open(text.bytes, checking: .everything)) == JSONFailure(.expectedColon, offset: 9))
  }

  // MARK: Numbers

  static let numbers: [(String, Plain)] = [
    ("0", .int(0)), ("-0", .number(-0.0)), ("7", .int(7)), ("-7", .int(-7)), ("7.0", .number(7)),
    ("1e2", .number(100)), ("9007199254740993", .int(9_007_199_254_740_993)),
    ("999999999999999999", .int(999_999_999_999_999_999)),
    ("9223372036854775807", .int(.max)), ("-9223372036854775808", .int(.min)),
    ("9223372036854775808", .uint(9_223_372_036_854_775_808)),
    ("18446744073709551615", .uint(.max)), ("18446744073709551616", .number(18_446_744_073_709_551_616)),
    ("-9223372036854775809", .number(-9_223_372_036_854_775_808)),
    ("123456789012345678901234567890", .number(1.2345678901234568e29)),
    ("1e400", .number(.infinity)), ("-1e400", .number(-.infinity)), ("1e-400", .number(0)),
    ("-1e-400", .number(-0.0)), ("0e400", .number(0)), ("0.0e400", .number(0)), ("-0.0", .number(-0.0)),
    ("1.7976931348623157e308", .number(.greatestFiniteMagnitude)), ("5e-324", .number(.leastNonzeroMagnitude)),
    ("2.2250738585072011e-308", .double(0x000F_FFFF_FFFF_FFFF)), ("0.1", .number(0.1)),
    ("0.3", .number(0.3)), ("3.141592653589793", .number(3.141592653589793)),
    ("1e99999999999999999999", .number(.infinity)), ("1e-99999999999999999999", .number(0)),
    ("0.00000000000000000000000000000001", .number(1e-32)), ("123456789.123456789", .number(123456789.123456789)),
    ("9007199254740993.0", .number(9_007_199_254_740_992)), ("1.0000000000000002", .number(1.0000000000000002)),
    ("0." + String(repeating: "0", count: 400) + "1e401", .number(1)),
    ("1" + String(repeating: "0", count: 400) + "e-400", .number(1)),
  ]

  @Test(arguments: numbers)
  func readsNumbers(_ text: String, _ expected: Plain) {
    #expect(parse(text) == expected, "alone")
    #expect(parse("[\(text)]") == .list([expected]))
    #expect(parse("{\"a\": \(text) }") == .map([.init(key: .text("a"), value: expected)]))
    let json = ExactText("{\"a\":\(text)}")
    #expect(Plain(JSONParser.lookup(parser.open(json.bytes), key: Array("a".utf8).exact.bytes)) == expected)
  }

  /// Neither the value nor the text of such a number could be kept; the output would be another value.
  @Test func numbersThatCannotBeKeptAreRefused() {
    for text in [
      "1" + String(repeating: "0", count: 400), "-" + String(repeating: "9", count: 310),
      String(repeating: "9", count: 250) + "e99999",
    ] {
      guard case .failure(let failure) = parse(text) else {
        Issue.record("a number of \(text.utf8.count) bytes was read")
        continue
      }
      #expect(failure.reason == .malformedNumber)
    }
    let kept = String(repeating: "9", count: 249) + "e99999"
    #expect(kept.utf8.count == 255 && parse(kept) == .number(.infinity))
  }

  @Test func readsDoublesAsTheStandardLibraryDoes() {
    var dice = SplitMix(11)
    for _ in 0..<20_000 {
      let double = Double(bitPattern: dice.next())
      if !double.isFinite { continue }
      #expect(parse("[\(double)]") == .list([.number(double)]))
      let decimal = "\(dice.below(1_000_000)).\(dice.below(1_000_000_000))e\(dice.below(60) - 30)"
      #expect(parse("[\(decimal)]") == .list([.number(Double(decimal) ?? .nan)]))
    }
  }

  // MARK: Strings and keys

  @Test func keepsStringsInPlaceAndEscapesUnresolved() throws {
    let text = ExactText("[\"plain\",\"a\\tb\",\"\\ud83d\\ude00\",\"\\ud83d\",\"\\udc00x\",\"\"]")
    let value = parser.parse(text.bytes, into: arena)
    let elements = value.elements
    #expect(elements.map(\.isEscaped) == [false, true, true, true, true, false])
    let start = try #require(text.bytes.baseAddress)
    #expect(elements[0].pointer == start + 2)
    #expect(
      elements.map { Plain($0) } == [
        .text("plain"), .text("a\tb"), .text("😀"), .text("\u{FFFD}"), .text("\u{FFFD}x"), .text(""),
      ])
    #expect(written(value) == String(decoding: text.bytes, as: UTF8.self))
  }

  @Test func resolvesEscapesInKeys() {
    #expect(
      parse("{\"a\\u0062\":1,\"\\\"\":2,\"\\ud800\":3}")
        == .map([
          .init(key: .text("ab"), value: .int(1)), .init(key: .text("\""), value: .int(2)),
          .init(key: .text("\u{FFFD}"), value: .int(3)),
        ]))
    let text = ExactText("{\"x\":0,\"a\\u0062\":1}")
    let value = parser.parse(text.bytes, into: arena)
    #expect(value.entries.allSatisfy { !$0.key.isEscaped })
  }

  @Test func theFirstOfEqualKeysCounts() {
    #expect(parse("{\"a\":1,\"a\":2}") == .map([.init(key: .text("a"), value: .int(1))]))
    #expect(
      parse("{\"a\":1,\"b\":2,\"\\u0061\":3,\"c\":4}")
        == .map([
          .init(key: .text("a"), value: .int(1)), .init(key: .text("b"), value: .int(2)),
          .init(key: .text("c"), value: .int(4)),
        ]))
    // Composed and decomposed forms are different keys.
    #expect(
      parse("{\"\u{e9}\":1,\"e\u{301}\":2}")
        == .map([
          .init(key: .text("\u{e9}"), value: .int(1)), .init(key: .text("e\u{301}"), value: .int(2)),
        ]))
  }

  @Test(arguments: [1, 2, 8, 63, 64, 65, 200, 5000])
  func dropsDuplicatesInLargeMaps(_ count: Int) {
    let members = (0..<count).map { "\"key\($0)\":\($0)" } + (0..<count).map { "\"key\($0)\":-1" }
    let expected = (0..<count).map { Plain.Member(key: .text("key\($0)"), value: .int(Int64($0))) }
    #expect(parse("{" + members.joined(separator: ",") + "}") == .map(expected))
  }

  // MARK: Limits

  @Test func limitsDepth() {
    func nested(_ depth: Int) -> String {
      String(repeating: "[", count: depth) + String(repeating: "]", count: depth)
    }
    #expect(parser.validate(ExactText(nested(64)).bytes) == nil)
    let deeper = ExactText(nested(65))
    #expect(parser.validate(deeper.bytes) == JSONFailure(.tooDeep, offset: 64))
    #expect(JSONFailure(parser.parse(deeper.bytes, into: arena)) == JSONFailure(.tooDeep, offset: 64))
    let maps = ExactText(
      String(repeating: "{\"a\":", count: 65) + "1" + String(repeating: "}", count: 65))
    #expect(parser.validate(maps.bytes)?.reason == .tooDeep)
    let enormous = ExactText(nested(100_000))
    #expect(parser.validate(enormous.bytes)?.reason == .tooDeep)
    #expect(JSONParser(limits: JSONLimits(depth: 5000)).validate(enormous.bytes)?.reason == .tooDeep)
    #expect(JSONParser(limits: JSONLimits(depth: 1024)).validate(ExactText(nested(1024)).bytes) == nil)
    #expect(parser.validate(ExactText(String(repeating: "[", count: 100_000)).bytes)?.reason == .tooDeep)
  }

  @Test func limitsFields() {
    func fields(_ count: Int) -> ExactText {
      ExactText("{" + (0..<count).map { "\"\($0)\":0" }.joined(separator: ",") + "}")
    }
    #expect(parser.validate(fields(10_000).bytes) == nil)
    #expect(parser.validate(fields(10_001).bytes)?.reason == .tooManyFields)
    #expect(JSONFailure(parser.parse(fields(10_001).bytes, into: arena))?.reason == .tooManyFields)
    let strict = JSONParser(limits: JSONLimits(fields: 2))
    let text = ExactText("[{\"a\":1},{\"b\":{\"c\":2}}]")
    #expect(strict.validate(text.bytes) == JSONFailure(.tooManyFields, offset: 15))
  }

  // MARK: Opening

  @Test func opensContainersLazilyOverTheirExactRange() throws {
    let text = ExactText(" \r\n\t{\"a\": [1, 2]} \n")
    let value = parser.open(text.bytes)
    #expect(value.is(.jsonMap))
    #expect(Array(value.rawBytes) == Array("{\"a\": [1, 2]}".utf8))
    #expect(parser.open(ExactText("[1]").bytes).is(.jsonList))
    #expect(parser.open(ExactText(" \"a\\n\" ").bytes).isEscaped)
    #expect(Plain(parser.open(ExactText(" true").bytes)) == .bool(true))
    #expect(Plain(parser.open(ExactText("null\n").bytes)) == .null)
  }

  @Test func opensAnOutlineThatExpandRefuses() {
    let text = ExactText("{\"a\": tru}")
    let value = parser.open(text.bytes)
    #expect(value.is(.jsonMap))
    #expect(JSONFailure(parser.expand(value, into: arena)) == JSONFailure(.expectedValue, offset: 6))
    #expect(JSONFailure(parser.open(text.bytes, checking: .everything))?.offset == 6)
  }

  @Test func expandsDeepAndLeavesOthersAlone() {
    let text = ExactText("{\"a\":[1,{\"b\":null}]}")
    let value = parser.expand(parser.open(text.bytes), into: arena)
    #expect(
      Plain(value)
        == .map([
          .init(key: .text("a"), value: .list([.int(1), .map([.init(key: .text("b"), value: .null)])]))
        ]))
    #expect(Plain(parser.expand(.int(3), into: arena)) == .int(3))
  }

  // MARK: Looking up

  @Test func looksUpMembersAndElements() {
    let text = ExactText(
      """
      { "a" : 1, "s":"x\\ny", "nested":{"a":[1,{"}":"]"}],"q":"\\"}"}, "list" : [10, "b]", [3], {"k":4}, null],
        "k\\u0065y": true, "a": 2, "last":-1.5 }
      """)
    let map = parser.open(text.bytes)
    func field(_ key: String) -> Value { JSONParser.lookup(map, key: Array(key.utf8).exact.bytes) }
    #expect(Plain(field("a")) == .int(1))
    #expect(Plain(field("s")) == .text("x\ny"))
    #expect(Plain(field("nested")) == .other("{\"a\":[1,{\"}\":\"]\"}],\"q\":\"\\\"}\"}"))
    #expect(Plain(field("key")) == .bool(true))
    #expect(Plain(field("last")) == .number(-1.5))
    #expect(Plain(field("absent")) == .absent)
    #expect(Plain(field("")) == .absent)
    let list = field("list")
    #expect(
      (-1...5).map { Plain(JSONParser.element(list, at: $0)) } == [
        .absent, .int(10), .text("b]"), .other("[3]"), .other("{\"k\":4}"), .null, .absent,
      ])
    #expect(Plain(JSONParser.lookup(parser.open(ExactText("{ }").bytes), key: Array("a".utf8).exact.bytes)) == .absent)
    #expect(Plain(JSONParser.element(parser.open(ExactText("[ ]").bytes), at: 0)) == .absent)
  }

  @Test func lookupAgreesWithParse() {
    var dice = SplitMix(5)
    for _ in 0..<3000 {
      let text = ExactText(randomDocument(&dice))
      let whole = parser.parse(text.bytes, into: arena)
      let lazy = parser.open(text.bytes)
      if whole.is(.map) {
        for entry in whole.entries {
          let found = JSONParser.lookup(lazy, key: entry.key.rawBytes)
          #expect(Plain(parser.expand(found, into: arena)) == Plain(entry.value))
        }
      } else if whole.is(.list) {
        for (index, element) in whole.elements.enumerated() {
          let found = JSONParser.element(lazy, at: index)
          #expect(Plain(parser.expand(found, into: arena)) == Plain(element))
        }
        #expect(JSONParser.element(lazy, at: whole.elements.count).isAbsent)
      }
      arena.reset()
    }
  }

  // MARK: Two readers, one opinion

  @Test func bothReadersAgreeOnDamagedText() {
    var dice = SplitMix(42)
    let junk = Array("{}[]:,\"\\ \n\t0-1.eEtfnu\u{1}\u{7f}x".utf8) + [0xC3, 0xA9, 0xFF, 0xED, 0xA0, 0x00]
    for _ in 0..<30_000 {
      var bytes = Array(randomDocument(&dice).utf8)
      for _ in 0..<dice.below(4) where !bytes.isEmpty {
        let at = dice.below(bytes.count)
        switch dice.below(4) {
        case 0: bytes.remove(at: at)
        case 1: bytes[at] = junk[dice.below(junk.count)]
        case 2: bytes.insert(junk[dice.below(junk.count)], at: at)
        default: bytes.removeSubrange(at...)
        }
      }
      let text = ExactText(bytes)
      let shown = String(decoding: bytes, as: UTF8.self)
      var failure = rx_json_failure()
      let plainly = rx_json_validate_plainly(
        text.bytes.baseAddress?.assumingMemoryBound(to: CChar.self), bytes.count,
        rx_json_limits(depth: 64, fields: 10_000), &failure)
      let found = parser.validate(text.bytes)
      #expect((found == nil) == plainly, "\(shown): \(String(describing: found))")
      #expect(found?.reason != .malformed, "\(shown)")
      let whole = parser.parse(text.bytes, into: arena)
      #expect(JSONFailure(whole) == found, "\(shown)")
      let opened = parser.open(text.bytes)
      // The outline check may accept malformed content, never the reverse; reading the content must not trap.
      if opened.isError { #expect(JSONFailure(opened) == found, "\(shown)") }
      if found == nil { #expect(!opened.isError, "\(shown)") }
      if opened.is(.jsonMap) { _ = JSONParser.lookup(opened, key: Array("key".utf8).exact.bytes) }
      if opened.is(.jsonList) { _ = JSONParser.element(opened, at: 2) }
      if opened.isAnyList || opened.isAnyMap { _ = written(opened, .pretty(indent: 2)) }
      arena.reset()
    }
  }

  @Test func agreesWithItselfAtEveryCut() {
    var dice = SplitMix(8)
    for _ in 0..<200 {
      let bytes = Array(randomDocument(&dice).utf8)
      for end in 0..<bytes.count {
        let text = ExactText(Array(bytes[..<end]))
        var failure = rx_json_failure()
        let plainly = rx_json_validate_plainly(
          text.bytes.baseAddress?.assumingMemoryBound(to: CChar.self), end,
          rx_json_limits(depth: 64, fields: 10_000), &failure)
        #expect((parser.validate(text.bytes) == nil) == plainly)
      }
    }
  }

  /// The page after the text is not readable, so wide loads past the end would trap.
  @Test func readsNothingBehindTheText() throws {
    let page = sysconf(Int32(_SC_PAGESIZE))
    let mapped = try #require(
      mmap(nil, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0))
    try #require(mapped != MAP_FAILED)
    defer { munmap(mapped, 2 * page) }
    try #require(mprotect(mapped + page, page, PROT_NONE) == 0)
    var dice = SplitMix(4)
    let key = Array("key".utf8).exact.bytes
    for _ in 0..<5000 {
      var bytes = Array(randomDocument(&dice).utf8.prefix(page))
      if dice.below(3) == 0 { bytes.removeLast(dice.below(bytes.count)) }
      let text = UnsafeRawBufferPointer(start: mapped + page - bytes.count, count: bytes.count)
      UnsafeMutableRawBufferPointer(start: mapped + page - bytes.count, count: bytes.count)
        .copyBytes(from: bytes)
      _ = parser.validate(text)
      _ = UTF8Text.firstError(text)
      let tree = parser.parse(text, into: arena)
      if !tree.isError { _ = written(tree) }
      _ = written(.string(text))
      let lazy = parser.open(text)
      if lazy.isAnyMap || lazy.isAnyList { _ = written(lazy) }
      if lazy.isAnyMap { _ = JSONParser.lookup(lazy, key: key) }
      if lazy.isAnyList { _ = JSONParser.element(lazy, at: 3) }
      _ = JSONParser.unescape(
        Value(kind: .string, pointer: text.baseAddress, length: text.count, flags: 1), into: arena)
      _ = JSONParser.lookup(Value(kind: .jsonMap, pointer: text.baseAddress, length: text.count), key: key)
      _ = JSONParser.element(Value(kind: .jsonList, pointer: text.baseAddress, length: text.count), at: 2)
      _ = JSONParser.number(text)
      arena.reset()
    }
  }

  @Test func ignoresWhatStandsBehindTheText() {
    // A slab's padding contains the remains of an earlier, longer document.
    let memory = ExactText("{\"a\":1}}},\"b\":[\"")
    let text = UnsafeRawBufferPointer(rebasing: memory.bytes[..<7])
    #expect(parser.validate(text) == nil)
    #expect(Plain(parser.parse(text, into: arena)) == .map([.init(key: .text("a"), value: .int(1))]))
    let cut = UnsafeRawBufferPointer(rebasing: memory.bytes[..<6])
    #expect(parser.validate(cut)?.isAtEnd == true)
  }
}

extension [UInt8] {
  var exact: ExactText { ExactText(self) }
}
