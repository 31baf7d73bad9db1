import PipelineTestSupport
import Testing

@testable import PipelineCore

/// An unchanged number is written as it was read.
@Suite struct NumberTextTests {
  /// JSON numbers of every form, including unusual ones.
  static func randomNumber(_ dice: inout SplitMix) -> String {
    func digits(_ count: Int, _ dice: inout SplitMix) -> String {
      let alphabet = dice.below(3) == 0 ? ["0", "0", "0", "9"] : (0...9).map { "\($0)" }
      return (0..<count).map { _ in alphabet[dice.below(alphabet.count)] }.joined()
    }
    var text = dice.below(3) == 0 ? "-" : ""
    text += dice.below(2) == 0 ? "0" : "\(1 + dice.below(9))" + digits(dice.below(dice.below(4) == 0 ? 30 : 8), &dice)
    if dice.below(3) > 0 { text += "." + digits(1 + dice.below(dice.below(4) == 0 ? 30 : 8), &dice) }
    if dice.below(3) == 0 {
      text += ["e", "E"][dice.below(2)] + ["", "+", "-"][dice.below(3)] + digits(1 + dice.below(4), &dice)
    }
    return text
  }

  /// Every way in which JSON text becomes a value.
  @Test(arguments: 0..<4) func writesNumbersAsTheyCame(_ seed: UInt64) throws {
    var dice = SplitMix(seed)
    let parser = JSONParser()
    let arena = Arena()
    for _ in 0..<5000 {
      let text = Self.randomNumber(&dice)
      let number = ExactText(text)
      let list = ExactText("[\(text)]")
      let map = ExactText("{\"a\":\(text)}")
      let key = ExactText("a")
      let values = [
        parser.open(number.bytes), parser.parse(list.bytes, into: arena).elements[0],
        parser.parse(map.bytes, into: arena).entries[0].value,
        JSONParser.element(parser.open(list.bytes), at: 0), JSONParser.lookup(parser.open(map.bytes), key: key.bytes),
        try #require(JSONParser.number(number.bytes)),
      ]
      for value in values {
        #expect(written(value) == text)
        #expect(written(.double(Double(text) ?? .nan)) == written(.double(value.asNumber)), "\(text)")
        // A redundant text costs nothing.
        if value.is(.double), value.hasNumberText, text.utf8.count < 17, !text.contains("e"), !text.contains("E") {
          #expect(written(value.withoutNumberText) != text, "\(text)")
        }
      }
      arena.reset()
    }
  }

  @Test(arguments: [
    "1.5", "0.1", "-2.25", "123456.789", "0.0", "-0.0", "7.0", "-7.0", "99999999.999999", "0.000001", "0.00001",
    "123456789012.345", "0.12345678901234", "100.0", "1000000.25",
  ]) func whatIsWrittenTheSameNeedsNoText(_ text: String) throws {
    let number = try #require(JSONParser.number(ExactText(text).bytes))
    #expect(!number.hasNumberText)
    #expect(number.isScalar)
    #expect(written(number) == text)
  }

  @Test(arguments: [
    "-0", "1.50", "0.00", "1e3", "1E+03", "-0e0", "0.0000001", "0.0000010", "123456789012345678901234567890",
    "0.1000000000000000055", "1e400", "-1e400", "1e-400", "18446744073709551616", "-9223372036854775809",
    "100000000000000000000000.0",
  ]) func whatIsWrittenOtherwiseKeepsItsText(_ text: String) throws {
    let number = try #require(JSONParser.number(ExactText(text).bytes))
    #expect(number.hasNumberText)
    #expect(!number.isScalar)
    #expect(written(number) == text)
    #expect(written(number.withoutNumberText) != text)
    #expect(written(number, .pretty(indent: 2)) == text)
  }

  /// Its length is stored in one byte.
  @Test func aTextOfMoreThan255BytesIsForgotten() throws {
    for count in [253, 254, 255, 256, 1000] {
      let text = "1." + String(repeating: "0", count: count - 2)
      let number = try #require(JSONParser.number(ExactText(text).bytes))
      #expect(written(number) == (count <= 255 ? text : "1.0"))
    }
  }

  // MARK: Holding

  /// A value with numbers of all forms, and lists, maps, optionals and texts around them.
  private static func randomValue(_ dice: inout SplitMix, _ arena: Arena, _ parser: JSONParser, depth: Int = 0) -> Value
  {
    switch dice.below(depth > 3 ? 4 : 7) {
    case 0, 1, 2:
      let text = randomNumber(&dice)
      return Array(text.utf8).withUnsafeBytes { JSONParser.number(arena.copy($0)) } ?? .null
    case 3: return [.int(7), .null, .literal("text"), .double(2.5)][dice.below(4)]
    case 4: return arena.list((0..<dice.below(4)).map { _ in randomValue(&dice, arena, parser, depth: depth + 1) })
    case 5: return arena.optional(randomValue(&dice, arena, parser, depth: depth + 1))
    default:
      // Repeated names: members replace earlier ones.
      return arena.map(
        ["a", "b", "c"].prefix(1 + dice.below(3)).map {
          (key: arena.string($0), value: randomValue(&dice, arena, parser, depth: depth + 1))
        })
    }
  }

  /// In debug builds freed memory is overwritten, so a dangling address would be detected.
  @Test(arguments: 0..<4) func whatIsHeldHasItsOwnTexts(_ seed: UInt64) {
    var dice = SplitMix(100 + seed)
    let parser = JSONParser()
    let turn = Arena()
    var held = OwnedValue()
    var copies: [(OwnedValue, String)] = []
    for _ in 0..<4000 {
      let arena = Arena()
      let value = Self.randomValue(&dice, arena, parser)
      let text = written(value)
      switch dice.below(4) {
      case 0:
        let emitted = held.value
        let before = written(emitted)
        held.assign(value, retiring: turn)
        #expect(written(emitted) == before)
      case 1:
        if !held.assign(scalar: value) { held.assign(value) }
      case 2: held = OwnedValue(value)
      default: held.assign(value)
      }
      arena.reset()
      turn.reset()
      #expect(written(held.value) == text)
      if dice.below(8) == 0 { copies.append((held, text)) }
      // A part of the held value.
      if held.value.is(.list) || held.value.is(.map), held.value.length > 0, dice.below(2) == 0 {
        let part =
          held.value.is(.list)
          ? held.value.elements[Int(held.value.length) - 1] : held.value.entries[Int(held.value.length) - 1].value
        let text = written(part)
        held.assign(part)
        #expect(written(held.value) == text)
        held.assign(held.value)
        #expect(written(held.value) == text)
      }
    }
    for (copy, text) in copies { #expect(written(copy.value) == text) }
  }

  @Test func aHeldNumberReusesItsMemory() throws {
    var held = OwnedValue(try #require(JSONParser.number(ExactText("1.50").bytes)))
    let place = held.value.numberText.baseAddress
    for text in ["2.50", "3.5000", "1e3"] {
      held.assign(try #require(JSONParser.number(ExactText(text).bytes)))
      #expect(written(held.value) == text)
      #expect(held.value.numberText.baseAddress == place)
    }
  }

  // MARK: Expressions

  static let event = """
    {"x": 1.50, "y": 1e3, "z": -0, "big": 123456789012345678901234567890, "long": 0.1000000000000000055, \
    "l": [1.50, 2.0, 1e0], "o": {"x": 2.50}}
    """

  @Test(arguments: [
    // Values that are passed on stay unchanged.
    ("event.x", "1.50"),
    (
      "[event.x, event.y, event.z, event.big, event.long]",
      "[1.50,1e3,-0,123456789012345678901234567890,0.1000000000000000055]"
    ),
    ("{'a': event.x, 'b': {'c': [event.y]}}", #"{"a":1.50,"b":{"c":[1e3]}}"#), ("event.l[0]", "1.50"),
    ("event.l.map(v, v)", "[1.50,2.0,1e0]"), ("event.l.filter(v, v > 1.0)", "[1.50,2.0]"), ("event.o.x", "2.50"),
    ("event.x > 1.0 ? event.x : event.y", "1.50"), ("event.?x.orValue(0.0)", "1.50"),
    ("event.?q.orValue(event.y)", "1e3"),
    ("dyn(event.x)", "1.50"), ("double(event.x)", "1.50"), ("[event.x][0]", "1.50"), ("{'k': event.x}.k", "1.50"),
    ("event.l.sort()", "[1e0,1.50,2.0]"), ("event.l.reverse()", "[1e0,2.0,1.50]"),
    ("event.l.min()", "1e0"), ("[event.x, 0.5].max()", "1.50"), ("math.greatest(event.x, 1.0)", "1.50"),
    ("[event.x, 1.5, 2.5].distinct()", "[1.50,2.5]"),
    ("toJson([event.x])", #""[1.50]""#), ("parseJson('[1.50]')[0]", "1.50"), ("[event.l].flatten()", "[1.50,2.0,1e0]"),
    // Computed values are numbers.
    ("event.x + 0.0", "1.5"), ("event.x * 1.0", "1.5"), ("-event.x", "-1.5"), ("-event.z", "0.0"),
    ("math.abs(event.x)", "1.5"),
    ("event.y + event.x", "1001.5"), ("event.l.sum()", "4.5"), ("math.round(event.x)", "2.0"), ("int(event.y)", "1000"),
    // Only the number matters.
    ("event.x == 1.5", "true"), ("event.x == event.l[0] && event.y == 1000", "true"), ("event.x in [1.5]", "true"),
    ("event.y in [1, 1000]", "true"), ("event.x < 1.6 && event.x >= 1.5", "true"), ("string(event.x)", #""1.5""#),
    ("'%s %.3f'.format([event.x, event.x])", #""1.51.500""#), ("event.z == 0", "true"),
    ("{1000: 'a'}[event.y]", #""a""#),
    ("event.l == [1.5, 2, 1]", "true"), ("type(event.z) == double", "true"),
  ]) func expressions(_ expression: String, _ expected: String) {
    #expect(evaluate(expression, Self.event) == expected, "\(expression)")
  }

  /// Random numbers through expressions that change nothing.
  @Test(arguments: 0..<4) func identities(_ seed: UInt64) throws {
    var dice = SplitMix(200 + seed)
    let identities = [
      "event.x", "[event.x][0]", "{'a': event.x}.a", "true ? event.x : 0", "dyn(event.x)", "event.?x.orValue(1)",
      "[event.x, event.x].map(v, v)[1]", "event.l[0]", "event.o.x", "event['x']", "[[event.o.x]].flatten()[0]",
      "[event.l].map(v, v[0])[0]", "parseJson(toJson(event)).x",
    ]
    for _ in 0..<150 {
      let text = Self.randomNumber(&dice)
      let expression = identities[dice.below(identities.count)]
      let event = "{\"x\": \(text), \"l\": [\(text)], \"o\": {\"x\": \(text)}}"
      #expect(evaluate(expression, event) == text, "\(expression)")
    }
  }

  /// Keys are numbers, whatever their text.
  @Test func keysDoNotSeeTheText() throws {
    let arena = Arena()
    func map(_ text: String) throws -> Value {
      arena.map(["a": try #require(JSONParser.number(ExactText(text).bytes))])
    }
    func key(_ value: Value) -> String {
      let buffer = OutputBuffer()
      JSONWriter.appendKey(value, to: buffer)
      return String(decoding: buffer.bytes, as: UTF8.self)
    }
    #expect(try key(map("1.50")) == #"{"a":1.5}"#)
    #expect(try key(map("1e3")) == key(map("1000.0")))
    #expect(try written(map("1e3")) == #"{"a":1e3}"#)
  }
}
