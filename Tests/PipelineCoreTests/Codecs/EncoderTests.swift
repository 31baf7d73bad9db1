import PipelineCore
import PipelineTestSupport
import Testing

@Suite struct EncoderTests {
  let arena = Arena()
  let parser = JSONParser()

  func json(_ text: String) -> Value { parser.open(ExactText(text).bytes) }

  @Test func textWritesStringsBare() throws {
    let values = [
      Value.literal("a\"b\n"), json("\"tab\\t\\u00e9\""), .int(1), json("{\"a\": 1}"), .null, .duration(nanoseconds: 1),
      .timestamp(seconds: 0, nanoseconds: 0), arena.optional(.literal("in")), arena.optional(nil),
    ]
    #expect(
      try encoded(EncoderOptions(.text), values)
        == "a\"b\n\ntab\té\n1\n{\"a\": 1}\nnull\n0.000000001s\n1970-01-01T00:00:00Z\nin\nnull\n")
    #expect(try encoded(EncoderOptions(.lines), values).hasPrefix("a\"b\\n\ntab\té\n1\n"))
    var bare = EncoderOptions(.text)
    bare.terminated = false
    #expect(try encoded(bare, [.literal("x"), .int(1)]) == "x1")
    #expect(try encoded(EncoderOptions(.bytes), [.literal("x"), .bytes([0x79].exact.bytes), .int(1)]) == "xy1")
  }

  @Test func jsonWritesALineOrIndents() throws {
    let value = json("{\"a\": [1,\n2]}")
    #expect(try encoded(EncoderOptions(.json), [value, .literal("x")]) == "{\"a\":[1,2]}\n\"x\"\n")
    var options = EncoderOptions(.json)
    options.indent = 2
    #expect(try encoded(options, [value]) == "{\n  \"a\": [\n    1,\n    2\n  ]\n}\n")
    options.format = .ndjson
    #expect(try encoded(options, [value]) == "{\"a\":[1,2]}\n")
    #expect(try encoded(EncoderOptions(.json), [Value(kind: .error)]) == "!the value is an error\n")
  }

  @Test func csvWritesAHeaderAndRows() throws {
    let values = [
      json("{\"a\":1,\"b\":\"x,y\",\"c\":null}"), json("{\"c\":\"\",\"a\":\"q\\\"r\",\"b\":[1,\"z\"]}"),
      json("{\"a\":true}"),
      json("{\"a\":1,\"d\":2}"), .int(3), json("{\"a\":tru}"),
    ]
    #expect(
      try encoded(EncoderOptions(.csv), values) == """
        a,b,c
        1,"x,y",
        "q""r","[1,""z""]",""
        true,,
        !the event has a key that the first event did not have; name the columns under 'columns'
        !a value of kind int cannot be written in this format
        !the value is an error

        """)
    var options = EncoderOptions(.csv)
    options.csv.columns = ["b", "new\ncolumn"]
    options.csv.delimiter = 0x3B
    #expect(try encoded(options, Array(values[..<2])) == "b;\"new\ncolumn\"\nx,y;\n\"[1,\"\"z\"\"]\";\n")
    options.csv.header = false
    #expect(try encoded(options, Array(values[..<1])) == "x,y;\n")
    options.csv.columns = ["a", "a"]
    #expect(throws: CodecFailure.self) { try options.encoder() }
    let times = arena.list([
      .timestamp(seconds: 0, nanoseconds: 0), .double(.nan), .double(1), arena.optional(.literal("a\"b")),
    ])
    #expect(try encoded(EncoderOptions(.csv), [times]) == "1970-01-01T00:00:00Z,NaN,1.0,\"a\"\"b\"\n")
  }

  @Test func csvBeginsAnewAfterReset() throws {
    let encoder = try EncoderOptions(.csv).encoder()
    let output = OutputBuffer()
    #expect(encoder.append(json("{\"a\":1}"), to: output) == nil)
    encoder.reset()
    #expect(encoder.append(json("{\"b\":2}"), to: output) == nil)
    #expect(String(decoding: output.bytes, as: UTF8.self) == "a\n1\nb\n2\n")
  }

  @Test func logfmtWritesPairs() throws {
    let value = json(
      "{\"level\":\"info\",\"msg\":\"two words\",\"q\":\"a\\\"b\",\"n\":1,\"none\":null,\"m\":{\"x\":[1]},\"a key\":true,\"e\":\"\"}"
    )
    #expect(
      try encoded(EncoderOptions(.logfmt), [value, .int(1)])
        == "level=info msg=\"two words\" q=\"a\\\"b\" n=1 none= m=\"{\\\"x\\\":[1]}\" a_key=true e=\"\"\n"
        + "!a value of kind int cannot be written in this format\n")
  }

  @Test func terminalsAreSafe() throws {
    let nasty = "\u{1b}[31mred\u{7}\u{7f}\u{9b}31m \u{202e}abc\u{2066} \u{200f} line\nbreak\r\ttab é🎈漢"
    var options = EncoderOptions(.text)
    options.escapeControls = true
    #expect(
      try encoded(options, [arena.string(nasty), .bytes([0x61, 0xFF, 0x1B, 0xC3].exact.bytes)])
        == "\\u001b[31mred\\u0007\\u007f\\u009b31m \\u202eabc\\u2066 \\u200f line\\nbreak\\r\ttab é🎈漢\na\\xff\\u001b\\xc3\n"
    )
    // Invisible characters that some scripts and emoji need are kept; those that hide text are escaped.
    let joined = "می\u{200C}روم ❤\u{FE0F} 👩\u{200D}👧"
    #expect(
      try encoded(options, [arena.string(joined + "\u{AD}\u{FEFF}\u{E0041}")]) == joined
        + "\\u00ad\\ufeff\\udb40\\udc41\n")
    options.format = .json
    let text = try encoded(options, [arena.string(nasty)])
    #expect(text.utf8.dropLast().allSatisfy { $0 >= 0x20 && $0 != 0x7F })
    #expect(Plain(parser.parse(ExactText(text).bytes, into: arena), arena) == .text(nasty))
    let raw = json("{\"a\":\"\u{7f}\u{202e}\"}")
    #expect(try encoded(options, [raw]) == "{\"a\":\"\\u007f\\u202e\"}\n")
    options.indent = 1
    #expect(try encoded(options, [raw]) == "{\n \"a\": \"\\u007f\\u202e\"\n}\n")
  }

  @Test func whatIsWrittenReadsBack() throws {
    var dice = SplitMix(12)
    for _ in 0..<500 {
      let tree = parser.parse(ExactText(randomDocument(&dice)).bytes, into: arena)
      let text = try encoded(EncoderOptions(.json), [tree, tree])
      let again = try decoded(DecoderOptions(.json), text)
      #expect(again.count == 2)
      #expect(again.first == written(tree) + "@0")
    }
  }

  @Test func formsArePercentEscaped() throws {
    let values = [
      json(#"{"a":1,"b c":"x y&=+ü~*-._","n":null,"l":["p",2,null],"m":{"k":[1]},"t":true,"q":"a\"\n"}"#), json("{}"),
      .literal("x"), json("[1]"),
    ]
    #expect(
      try encoded(EncoderOptions(.form), values) == """
        a=1&b+c=x+y%26%3D%2B%C3%BC%7E*-._&l=p&l=2&m=%7B%22k%22%3A%5B1%5D%7D&t=true&q=a%22%0A

        !a value of kind string cannot be written in this format
        !a value of kind list cannot be written in this format

        """)
    var bare = EncoderOptions(.form)
    bare.terminated = false
    #expect(try encoded(bare, [json(#"{"a":"b"}"#)]) == "a=b")
  }

  @Test func pointsAreLinesOfTheProtocol() throws {
    let time = #""timestamp":"2026-01-01T00:00:00.123456789Z""#
    let values = [
      json(
        #"{"measurement":"my m,=x","tags":{"z":"1","a b":"c,d=e f","empty":"","none":null,"n":7,"t":true},"fields":{"i":1,"f":1.50,"b":false,"s":"say \"hi\" \\o/\nnext","null":null},\#(time)}"#
      ), json(#"{"measurement":"m","fields":{"f k,=":-2e3},"timestamp":5}"#),
      json(#"{"measurement":"m","fields":{"v":9007199254740993}}"#),
      arena.map([
        "measurement": .literal("m"), "fields": arena.map(["u": .uint(UInt64.max), "d": .double(3)]),
        "timestamp": .timestamp(seconds: -1, nanoseconds: 999_999_999),
      ]),
    ]
    let lines = """
      my\\ m\\,=x,a\\ b=c\\,d\\=e\\ f,n=7,t=true,z=1 i=1i,f=1.50,b=false,s="say \\"hi\\" \\\\o/
      next" 1767225600123456789
      m f\\ k\\,\\==-2e3 5
      m v=9007199254740993i
      m u=18446744073709551615u,d=3.0 -1

      """
    #expect(try encoded(EncoderOptions(.influx), values) == lines)
    var options = EncoderOptions(.influx)
    for (precision, time) in [
      (InfluxPrecision.us, "1767225600123456"), (.ms, "1767225600123"), (.s, "1767225600"),
    ] {
      options.precision = precision
      #expect(try encoded(options, [values[0]]).hasSuffix(" \(time)\n"))
    }
    options.precision = .s
    #expect(try encoded(options, [values[3]]).hasSuffix(" -1\n"))
  }

  @Test func whatIsNoPointHasAReason() throws {
    let point = #""measurement":"m","fields":{"v":1}"#
    let cases: [(String, InfluxFault)] = [
      ("1", .noMap), (#"{"fields":{"v":1}}"#, .noMeasurement),
      (#"{"measurement":"","fields":{"v":1}}"#, .noMeasurement),
      (#"{"measurement":3,"fields":{"v":1}}"#, .noMeasurement), (##"{"measurement":"#m","fields":{"v":1}}"##, .comment),
      (#"{"measurement":"m"}"#, .noField), (#"{"measurement":"m","fields":{}}"#, .noField),
      (#"{"measurement":"m","fields":{"a":null}}"#, .noField), (#"{"measurement":"m","fields":{"":1}}"#, .emptyKey),
      (#"{\#(point),"tags":{"":"x"}}"#, .emptyKey), (#"{\#(point),"tags":[]}"#, .tagKind),
      (#"{\#(point),"tags":{"a":[1]}}"#, .tagKind), (#"{"measurement":"m","fields":{"a":{}}}"#, .fieldKind),
      (#"{"measurement":"m","fields":3}"#, .fieldKind), (#"{\#(point),"tags":{"a":"C:\\"}}"#, .backslash),
      (#"{"measurement":"m\\","fields":{"v":1}}"#, .backslash), (#"{\#(point),"tags":{"a":"x\ny"}}"#, .lineBreak),
      (#"{\#(point),"timestamp":"now"}"#, .time), (#"{\#(point),"timestamp":1.5}"#, .time),
      (#"{\#(point),"timestamp":"9999-01-01T00:00:00Z"}"#, .tooLarge),
    ]
    for (text, fault) in cases {
      #expect(try encoded(EncoderOptions(.influx), [json(text)]) == "!\(fault)\n", "\(text)")
    }
    let infinite = arena.map(["measurement": .literal("m"), "fields": arena.map(["v": .double(.infinity)])])
    #expect(try encoded(EncoderOptions(.influx), [infinite]) == "!\(InfluxFault.notFinite)\n")
    // Earlier output is kept, and none of the refused event remains.
    #expect(
      try encoded(
        EncoderOptions(.influx), [json("{\(point)}"), json(#"{\#(point),"timestamp":"x"}"#), json("{\(point)}")])
        == "m v=1i\n!\(InfluxFault.time)\nm v=1i\n")
  }
}
