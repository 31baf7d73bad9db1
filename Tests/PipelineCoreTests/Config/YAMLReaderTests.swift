import PipelineTestSupport
import Testing

@testable import PipelineCore

@Suite struct YAMLReaderTests {
  @Test(arguments: [
    ("a: 1", "{a: 1}"),
    ("a: 'it''s'", "{a: \"it's\"}"),
    ("a: \"t\\u00e9\\n\\x41\\\\\"", "{a: \"té\\nA\\\"}"),
    ("a: \"x \\\n   y\"", "{a: \"x y\"}"),
    ("a: \"x\n\n  y\n  z\"", "{a: \"x\\ny z\"}"),
    ("a: plain\n  text\n\n  more", "{a: \"plain text\\nmore\"}"),
    ("a: |\n  x\n   y\n\n  z\n", "{a: \"x\\n y\\n\\nz\\n\"}"),
    ("a: |-\n  x\n", "{a: \"x\"}"),
    ("a: |+\n  x\n\n", "{a: \"x\\n\\n\"}"),
    ("a: >\n  x\n  y\n\n  z\n   w\n  v\n", "{a: \"x y\\nz\\n w\\nv\\n\"}"),
    ("a:\n  - |2\n     x\n    y\n", "{a: [\" x\\ny\\n\"]}"),
    ("a: |\r\n  x\r\n  y\r\nb: z\r\n", "{a: \"x\\ny\\n\", b: \"z\"}"),
    ("a: &x [1, *y]\n", "RX115"),
    ("a: &x [1]\nb: *x", "{a: [1], b: [1]}"),
    ("a: {b: , c: ~}", "{a: {b: null, c: null}}"),
    ("- a\n-\n- - b", "[\"a\", null, [\"b\"]]"),
    ("a: !!str 1", "{a: \"1\"}"),
    ("a: ! 1", "{a: \"1\"}"),
    ("a: !!float 1", "{a: 1}"),
    ("%YAML 1.2\n---\na: b\n...\n", "{a: \"b\"}"),
    ("\u{FEFF}a: b", "{a: \"b\"}"),
    ("a: x#y", "{a: \"x#y\"}"),
    ("a: event.x ? 1 :2", "{a: \"event.x ? 1 :2\"}"),
    ("é: 漢字", "{é: \"漢字\"}"),
    ("a: \"\\L\"", "{a: \"\\u{2028}\"}"),
  ])
  func reads(_ text: String, _ expected: String) {
    let reading = readYAML(text)
    #expect((reading.node.map(\.description) ?? reading.errors.first?.code.name) == expected)
  }

  @Test(
    arguments: [
      ("1", .int), ("-17", .int), ("+3", .int), ("0o17", .int), ("0x1F", .int), ("007", .int),
      ("1.", .float), (".5", .float), ("1e3", .float), ("-1.5E-3", .float), (".inf", .float),
      ("-.INF", .float), (".NaN", .float), ("true", .bool), ("False", .bool), ("~", .null),
      ("NULL", .null), ("nULL", .string), ("yes", .string), ("on", .string), ("No", .string),
      ("0b1", .string), ("1_000", .string), ("1:30", .string), ("0x", .string), ("-", .string),
      (".", .string), ("1e", .string), ("+.nan", .string), ("2024-01-01", .string),
      ("300ms", .string), ("-0x1", .string),
    ] as [(String, YAMLScalar.Kind)])
  func resolvesByTheCoreSchema(_ text: String, _ kind: YAMLScalar.Kind) {
    #expect(YAMLCoreSchema.kind(of: Array(text.utf8)) == kind, "\(text)")
  }

  @Test func numbersKeepTheirValue() throws {
    let node = try #require(
      readYAML("[9223372036854775807, -9223372036854775808, 9223372036854775808, 0o17, 1e2, .inf]")
        .node)
    let items = try #require(node.items)
    #expect(items.map(\.int) == [.max, .min, nil, 15, nil, nil])
    #expect(try items.item(2).double == 9_223_372_036_854_775_808)
    #expect(try items.item(4).double == 100)
    #expect(try items.item(5).double == .infinity)
  }

  /// Every byte of every value must know its offset; where the text is the file's, byte by byte.
  @Test(arguments: [
    "a: some text\n", "a: 'it''s'\n", "a: \"x\\ty\"\n", "a: >-\n  one\n  two\n\n  three\n",
    "a: |\n    deep\n      er\n", "a: first\n   second\n", "a: \"é漢\\u00e9 x\"\n",
    "a: &anchor  text\n", "a: !!str\n  text\n", "a: |3-\n   x\n    y\n",
  ])
  func bytesKnowTheirPlace(_ text: String) throws {
    let node = try #require(readYAML(text).node)
    let value = try #require(node["a"]?.scalar?.text)
    let bytes = Array(text.utf8)
    #expect(value.offsets.count == value.text.count + 1)
    for (index, byte) in value.text.enumerated() {
      let offset = Int(value.offsets[index])
      let written = bytes[offset]
      let isFolded = byte == 0x20 && written == 0x0A
      let isEscape = written == UInt8(ascii: "\\")
      #expect(written == byte || isFolded || isEscape, "byte \(index) of \(text)")
    }
  }

  @Test func aValueNeverGrowsASecondKey() {
    for separator in ["\u{85}", "\u{2028}", "\u{2029}", "\r"] {
      let reading = readYAML("a: b\(separator)c: d\n")
      #expect(reading.found == ["RX104 1:5"])
      #expect(reading.node == nil)
    }
  }

  @Test func locationsCoverQuotesAndBrackets() throws {
    let node = try #require(readYAML("a: 'x'\nb: [1, 2]\nc:\n  d: e\n  f: g\nh: |\n  i\n").node)
    func place(_ key: String) throws -> [Int] {
      let location = try #require(node[key]).location
      return [location.offset, location.length]
    }
    #expect(try place("a") == [3, 3])
    #expect(try place("b") == [10, 6])
    #expect(try place("c") == [22, 11])
    #expect(try place("h") == [37, 5])
  }

  @Test func expressionThatACommentCutsIsWarnedOf() {
    let reading = readYAML("a: event.x == \"b # c\"\n")
    #expect(reading.found == ["RX143 1:18"])
    #expect(reading.diagnostics.first?.fixIts.first?.replacement == "'event.x == \"b # c\"'")
    #expect(readYAML("a: don't # won't\n").diagnostics.isEmpty)
    #expect(readYAML("a: size(event) > 3  # a (comment)\n").diagnostics.isEmpty)
    #expect(readYAML("a: 'x' # y\n").diagnostics.isEmpty)
  }

  @Test func aliasedValuesShareTheirPlace() throws {
    let node = try #require(readYAML("a: &x [1]\nb: *x\n").node)
    #expect(node["b"]?.location == node["a"]?.location)
  }

  @Test func errorsAreBounded() {
    let reading = readYAML(String(repeating: "a: 1\n", count: 5_000))
    #expect(reading.diagnostics.count == YAMLLimits.standard.errors)
    #expect(reading.node == nil)
  }
}
