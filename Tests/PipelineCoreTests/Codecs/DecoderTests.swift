import Foundation
import PipelineCore
import PipelineTestSupport
import Testing

@Suite struct DecoderTests {
  // MARK: Text

  static let awkward: [UInt8] =
    [0xEF, 0xBB, 0xBF] + Array("first\r\nsecond\n\n\r\nlone\rreturn\n\u{2028}stays\nNUL\0in\n".utf8)
    + [0x61, 0xFF, 0x62, 0x0A] + Array("é🎈\r\r\nlast".utf8)

  @Test func textIsALineAnEvent() throws {
    #expect(
      try decoded(DecoderOptions(.text), Self.awkward) == [
        "\"first\"@3", "\"second\"@10", "\"\"@17", "\"\"@18", "\"lone\\rreturn\"@20", "\"\u{2028}stays\"@32",
        "\"NUL\\u0000in\"@41", "!invalid_utf8@48:a\u{FFFD}b", "\"é🎈\\r\"@52", "\"last\"@61",
      ])
    #expect(try decoded(DecoderOptions(.text), "a\n") == ["\"a\"@0"])
    #expect(try decoded(DecoderOptions(.text), "\n") == ["\"\"@0"])
    #expect(try decoded(DecoderOptions(.text), "") == [])
  }

  @Test func textOfABodyIsOneEvent() throws {
    #expect(try decoded(DecoderOptions(.text, unit: .body), "a\nb\n") == ["\"a\\nb\\n\"@0"])
    #expect(try decoded(DecoderOptions(.whole), "a\r\nb") == ["\"a\\r\\nb\"@0"])
    #expect(try decoded(DecoderOptions(.lines, unit: .body), "a\nb") == ["\"a\"@0", "\"b\"@2"])
  }

  @Test func invalidTextIsRefusedReplacedOrKept() throws {
    var options = DecoderOptions(.lines)
    let input: [UInt8] = [0x61, 0xC3, 0x0A, 0x62, 0x0A]
    #expect(try decoded(options, input) == ["!invalid_utf8@0:a\u{FFFD}", "\"b\"@3"])
    options.invalidUTF8 = .replace
    #expect(try decoded(options, input) == ["\"a\u{FFFD}\"@0", "\"b\"@3"])
    options.invalidUTF8 = .bytes
    #expect(try decoded(options, input) == ["bytes \"YcM=\"@0", "\"b\"@3"])
  }

  @Test func bytesAreLeftAlone() throws {
    #expect(try decoded(DecoderOptions(.bytes), [0xEF, 0xBB, 0xBF, 0xFF, 0x0A]) == ["bytes \"77u//wo=\"@0"])
    #expect(try decoded(DecoderOptions(.bytes), []) == ["bytes \"\"@0"])
    #expect(
      try decoded(DecoderOptions(.bytes), [1, 2, 3], cuts: [1]) == ["bytes \"AQ==\"@0", "bytes \"AgM=\"@1"])
  }

  // MARK: JSON

  static let lines =
    "\u{FEFF}{\"a\":1}\r\n\n  \n{\"b\": [1, 2] }  \n{\"broken\":\nnull\n\"text\\n\"\n{\"c\":\"\u{2028}\"}\n{\"d\":1} {}\n[1]\n-0.5"

  @Test func jsonIsADocumentALine() throws {
    let expected = [
      "{\"a\":1}@3", "{\"b\": [1, 2] }@16", "!malformed_json@33:{\"broken\":", "null@44", "\"text\\n\"@49",
      "{\"c\":\"\u{2028}\"}@58", "!malformed_json@70:{\"d\":1} {}", "[1]@81", "-0.5@85",
    ]
    #expect(try decoded(DecoderOptions(.json), Self.lines) == expected)
    #expect(try decoded(DecoderOptions(.ndjson, unit: .body), Self.lines) == expected)
  }

  @Test func jsonSaysWhatIsWrongAndWhere() throws {
    let decoder = try DecoderOptions(.json).decoder()
    let rows = RowBatch()
    decoder.decode(Slab(Array("{\"a\":1}\n{\"a\" 1\n".utf8)), arena: Arena(), into: rows)
    #expect(rows.rejected.map(\.offset) == [8])
    #expect(
      rows.rejected.map(\.reason.description) == ["expected ':' at byte 5"])
  }

  @Test func jsonMayBeCheckedCompletely() throws {
    var options = DecoderOptions(.json)
    #expect(try decoded(options, "{\"a\":tru}") == ["{\"a\":tru}@0"])
    options.json.check = .everything
    #expect(try decoded(options, "{\"a\":tru}") == ["!malformed_json@0:{\"a\":tru}"])
  }

  @Test func jsonRepairsTextWhenAsked() throws {
    var options = DecoderOptions(.json)
    let input = Array("{\"a\":\"".utf8) + [0xFF] + Array("\"}\n{}".utf8)
    #expect(try decoded(options, input) == ["!malformed_json@0:{\"a\":\"\u{FFFD}\"}", "{}@10"])
    options.invalidUTF8 = .replace
    #expect(try decoded(options, input) == ["{\"a\":\"\u{FFFD}\"}@0", "{}@10"])
  }

  static let bodies: [(String, [String])] = [
    ("{\n  \"a\": [\n    1\n  ]\n}\n", ["{\"a\":[1]}@0"]),
    ("\u{FEFF}[1,2]", ["[1,2]@3"]),
    ("{\"a\":1}\n{\"b\":2}\n", ["{\"a\":1}@0", "{\"b\":2}@8"]),
    ("{\"a\":1}{\"b\":2} 3 \"x\" null", ["{\"a\":1}@0", "{\"b\":2}@7", "3@15", "\"x\"@17", "null@21"]),
    ("{\n\"a\":1}\n{\n\"b\":2\n}", ["{\"a\":1}@0", "{\"b\":2}@9"]),
    ("{\"a\":\n{\"b\":2}\n[3]\n", ["!malformed_json@0:{\"a\":", "{\"b\":2}@6", "[3]@14"]),
    ("{\n  \"title\": \"x\",\n  \"n\": 1\n", ["!malformed_json@0:{\n  \"title\": \"x\",\n  \"n\": 1"]),
    ("{} nonsense {}", ["{}@0", "!malformed_json@3:nonsense", "{}@12"]),
    ("", []), (" \n ", []), ("<html>\n", ["!malformed_json@0:<html>"]),
    ("}{\"a\":1}\n{\"b\":1}", ["!malformed_json@0:}{\"a\":1}", "{\"b\":1}@9"]),
  ]

  @Test(arguments: bodies)
  func aBodyIsOneDocumentOrSeveral(_ body: String, _ expected: [String]) throws {
    #expect(try decoded(DecoderOptions(.json, unit: .body), body) == expected)
  }

  @Test func aBodyOfBrokenLinesTakesLinearTime() throws {
    let body = String(repeating: "{\"a\":\n", count: 100_000)
    #expect(try decoded(DecoderOptions(.json, unit: .body), body).count == 100_000)
  }

  @Test func readsLinesOfTenMebibytes() throws {
    let long = "{\"a\":\"" + String(repeating: "x", count: 10 << 20) + "\"}"
    #expect(try decoded(DecoderOptions(.json), long + "\n{}\n").count == 2)
    #expect(try decoded(DecoderOptions(.text), long + "\nshort").count == 2)
  }

  // MARK: logfmt

  static let logfmt =
    "level=info msg=\"two \\\"words\\\"\\n\" n=1 debug empty= q=\"\" \n\n=x\nopen=\"abc\na=1 a=2\nk=\"v\"x\nu=\"\\u00e9\" p==q\r\n"

  @Test func logfmtIsAMap() throws {
    #expect(
      try decoded(DecoderOptions(.logfmt), Self.logfmt) == [
        "{\"level\":\"info\",\"msg\":\"two \\\"words\\\"\\n\",\"n\":\"1\",\"debug\":true,\"empty\":\"\",\"q\":\"\"}@0",
        "!empty_key@57:=x", "!malformed_quotes@60:open=\"abc", "{\"a\":\"1\"}@70", "!malformed_quotes@78:k=\"v\"x",
        "{\"u\":\"é\",\"p\":\"=q\"}@85",
      ])
    var options = DecoderOptions(.logfmt)
    options.logfmt.types = ["n": .int, "t": .double, "b": .bool]
    #expect(try decoded(options, "n=007 t=1e3 b=false x=1") == ["{\"n\":7,\"t\":1e3,\"b\":false,\"x\":\"1\"}@0"])
    #expect(try decoded(options, "n= t=\"\"") == ["{\"n\":null,\"t\":null}@0"])
    #expect(try decoded(options, "n=x") == ["!wrong_type@0:n=x"])
    let many = (0..<1001).map { "k\($0)=v" }.joined(separator: " ")
    #expect(try decoded(DecoderOptions(.logfmt), many).first?.hasPrefix("!too_many_fields") == true)
  }

  // MARK: regex

  @Test func regexGivesItsNamedGroups() throws {
    var options = DecoderOptions(.regex)
    options.regex = RegexDecoding(
      pattern: "(?P<word>\\pL+)=(?P<n>\\d+)(?:;(?P<rest>.*))?(unnamed)?", types: ["n": .int])
    #expect(
      try decoded(options, "..é=12;x\nabc=1\nnothing\n\na=99999999999999999999") == [
        "{\"word\":\"é\",\"n\":12,\"rest\":\"x\"}@0", "{\"word\":\"abc\",\"n\":1,\"rest\":null}@10",
        "!no_match@16:nothing", "!no_match@24:", "!wrong_type@25:a=99999999999999999999",
      ])
  }

  @Test func refusesUselessPatterns() throws {
    func failure(_ pattern: String, _ types: [String: FieldType] = [:]) -> CodecFailure? {
      var options = DecoderOptions(.regex)
      options.regex = RegexDecoding(pattern: pattern, types: types)
      do {
        _ = try options.decoder()
        return nil
      } catch { return error }
    }
    #expect(failure("") != nil)
    #expect(failure("(?P<a>x")?.message.contains("missing )") == true)
    #expect(failure("(x)")?.message.contains("no named group") == true)
    #expect(failure("(?P<a>x)", ["b": .int])?.option == "types")
    #expect(failure("(?P<a>\(String(repeating: "x", count: 2000)))")?.message.contains("1024") == true)
    #expect(failure("combined", ["statuss": .int])?.option == "types")
    #expect(failure("combined", ["status": .string]) == nil)
  }

  static let accessLog = """
    192.0.2.1 - frank [10/Oct/2000:13:55:36 -0700] "GET /a b?x=\\"1\\" HTTP/1.0" 200 2326 "http://e.org/" "Moz \\\\"
    ::1 - - [01/Jan/2024:00:00:00 +0000] "GET /x HTTP/2.0" 304 - "-" "-"
    h - - [01/Jan/2024:00:00:00 +0000] "\\x16\\x03" 400 0
    h - A User [01/Jan/2024:00:00:00 +0000] "-" 408 0 "-" "agent" "10.0.0.1" 0.003
    h - - [32/Jan/2024:00:00:00 +0000] "GET / HTTP/1.1" 200 1
    h - - [01/Jan/2024:00:00:00 +0000] "GET / HTTP/1.1" OK 1
    nonsense
    h - - [01/Jan/2024:00:00:00 +0000] "open 200 1
    """

  static let accessRows: [String] = [
    #"{"host":"192.0.2.1","ident":null,"user":"frank","time":"2000-10-10T20:55:36Z","method":null,"path":"GET /a b?x=\\\"1\\\" HTTP/1.0","protocol":null,"status":200,"bytes":2326,"referrer":"http://e.org/","agent":"Moz \\\\"}@0"#,
    #"{"host":"::1","ident":null,"user":null,"time":"2024-01-01T00:00:00Z","method":"GET","path":"/x","protocol":"HTTP/2.0","status":304,"bytes":null,"referrer":null,"agent":null}@109"#,
    #"{"host":"h","ident":null,"user":null,"time":"2024-01-01T00:00:00Z","method":null,"path":"\\x16\\x03","protocol":null,"status":400,"bytes":0,"referrer":null,"agent":null}@178"#,
    #"{"host":"h","ident":null,"user":"A User","time":"2024-01-01T00:00:00Z","method":null,"path":null,"protocol":null,"status":408,"bytes":0,"referrer":null,"agent":"agent","extra":"\"10.0.0.1\" 0.003"}@230"#,
  ]

  @Test func combinedTakesAccessLogsApart() throws {
    var options = DecoderOptions(.regex)
    options.regex = RegexDecoding(pattern: "combined")
    let rows = try decoded(options, Self.accessLog)
    #expect(rows.count == 8)
    #expect(Array(rows.prefix(4)) == Self.accessRows)
    #expect(
      rows.suffix(4).map { String($0.prefix { $0 != "@" }) } == [
        "!wrong_type", "!wrong_type", "!no_match", "!no_match",
      ])
  }

  @Test func readsTimestamps() throws {
    var options = DecoderOptions(.logfmt)
    options.logfmt.types = ["t": .timestamp]
    let good = [
      ("2024-02-29T23:59:60Z", "2024-02-29T23:59:59Z"),
      ("2024-02-29t01:02:03.000000001z", "2024-02-29T01:02:03.000000001Z"),
      ("2024-01-01T00:00:00.5+02:00", "2023-12-31T22:00:00.5Z"),
      ("9999-12-31T23:59:59.999999999999Z", "9999-12-31T23:59:59.999999999Z"),
    ]
    for (text, expected) in good { #expect(try decoded(options, "t=\(text)") == ["{\"t\":\"\(expected)\"}@0"]) }
    for text in [
      "2023-02-29T00:00:00Z", "2024-13-01T00:00:00Z", "2024-01-01T24:00:00Z", "2024-01-01", "2024-01-01T00:00:00",
      "2024-01-01T00:00:00.Z", "2024-01-01T00:00:00+0200", "0000-01-01T00:00:00Z", "x", "31/Feb/2024:00:00:00",
      "9999-12-31T23:59:59-01:00", "2024-01-01T00:00:00Zx",
    ] {
      #expect(try decoded(options, "t=\(text)") == ["!wrong_type@0:t=\(text)"])
    }
  }

  // MARK: Every cut

  @Test(arguments: DecoderFormat.allCases)
  func anyCutGivesTheSameRows(_ format: DecoderFormat) throws {
    if format == .bytes || format == .whole { return }
    var options = DecoderOptions(format)
    options.regex = RegexDecoding(pattern: "(?P<first>\\w+)")
    try expectSameForAllCuts(options, Self.awkward)
    try expectSameForAllCuts(options, Array(Self.lines.utf8))
    try expectSameForAllCuts(options, Array(Self.logfmt.utf8))
  }

  @Test func everyFormatHasASummary() {
    for summary in DecoderFormat.allCases.map(\.summary) + EncoderFormat.allCases.map(\.summary) {
      #expect(summary.hasSuffix("."))
      #expect(!summary.dropLast().contains("."))
    }
  }

  @Test(arguments: DecoderFormat.allCases)
  func noDecoderMindsDamage(_ format: DecoderFormat) throws {
    var dice = SplitMix(2)
    var options = DecoderOptions(format)
    options.regex = RegexDecoding(pattern: format == .regex ? "combined" : "")
    options.csv.types = .infer
    options.logfmt.types = ["n": .int, "t": .timestamp]
    let seeds = [Self.awkward, Array(Self.lines.utf8), Array(Self.logfmt.utf8), Array(Self.accessLog.utf8)]
    for round in 0..<400 {
      var input = seeds[round % seeds.count]
      for _ in 0..<1 + dice.below(12) {
        let at = dice.below(input.count)
        if dice.below(2) == 0 { input[at] = UInt8(dice.below(256)) } else { input.remove(at: at) }
      }
      options.unit = round % 2 == 0 ? .stream : .body
      _ = try decoded(options, input, cuts: [dice.below(input.count + 1)].sorted())
    }
  }

  // MARK: Real input

  static let shared = URL(fileURLWithPath: #filePath).deletingLastPathComponent()
    .appendingPathComponent("../../../../shared/data").standardizedFileURL
  static let sharedInputComment: Comment =
    "needs whole logs of real servers in ../shared/data, which is not part of the repository"
  static var hasSharedInput: Bool { FileManager.default.fileExists(atPath: shared.path) }

  static func read(_ name: String) throws -> [UInt8] {
    Array(try Data(contentsOf: shared.appendingPathComponent(name)))
  }

  @Test(.enabled(if: hasSharedInput, sharedInputComment))
  func readsARealAccessLog() throws {
    var options = DecoderOptions(.regex)
    options.regex = RegexDecoding(pattern: "combined")
    let decoder = try options.decoder()
    let rows = RowBatch()
    let arena = Arena()
    let slab = Slab(try Self.read("apache-combined.log"))
    decoder.decode(slab, arena: arena, into: rows)
    // One line of the file ends in the middle of its agent, without the closing quote.
    #expect(rows.count == 9_999)
    #expect(rows.rejected.map(\.reason) == [.noMatch])
    #expect(rows.rejected.first.map { String(decoding: $0.bytes.rawBytes.suffix(9), as: UTF8.self) } == "/bot.html")
    #expect(rows.rows.allSatisfy { $0.value.entries[7].value.is(.int) })
    #expect(rows.rows.allSatisfy { $0.value.length == 11 })
    let withoutMethod = rows.rows.filter { $0.value.entries[4].value.isNull }.count
    #expect(withoutMethod == 0)
    withExtendedLifetime(slab) {}
  }

  @Test(.enabled(if: hasSharedInput, sharedInputComment))
  func readsRealStatusDocuments() throws {
    let decoder = try DecoderOptions(.json).decoder()
    let rows = RowBatch()
    let arena = Arena()
    let input = try Self.read("nginx-plus-status.ndjson")
    let slab = Slab(input)
    decoder.decode(slab, arena: arena, into: rows)
    #expect(rows.count == 500)
    #expect(rows.rejected.isEmpty)
    let parser = JSONParser()
    let output = OutputBuffer()
    for row in rows.rows {
      let tree = parser.expand(row.value, into: arena)
      #expect(tree.is(.map))
      JSONWriter.append(row.value, to: output)
      output.append(UInt8(ascii: "\n"))
    }
    #expect(Array(output.bytes) == input)
    withExtendedLifetime(slab) {}
  }
}
