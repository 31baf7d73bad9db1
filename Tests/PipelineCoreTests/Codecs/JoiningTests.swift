import PipelineCore
import PipelineTestSupport
import Testing

/// Several lines that form one event.
@Suite struct JoiningTests {
  private func options(
    _ rule: LineJoining.Rule, _ format: DecoderFormat = .text, maxLines: Int = 1000, maxBytes: Int = 1 << 20
  ) -> DecoderOptions {
    var options = DecoderOptions(format)
    options.join = LineJoining(rule, maxLines: maxLines, maxBytes: maxBytes)
    return options
  }

  static let trace = """
    2026-11-24 first
    2026-11-24 error\r
    java.lang.Error: x
    \tat a.b(C.java:1)
    Caused by: y

    2026-11-24 last

    """

  @Test func aLineBeginsAnEvent() throws {
    let rule = LineJoining.Rule.start(#"^\d{4}-"#)
    #expect(
      try decoded(options(rule), Self.trace) == [
        #""2026-11-24 first"@0"#,
        #""2026-11-24 error\r\njava.lang.Error: x\n\tat a.b(C.java:1)\nCaused by: y\n"@17"#,
        #""2026-11-24 last"@86"#,
      ])
    // Lines before the first start of an event are an event too.
    #expect(try decoded(options(rule), "x\ny\n2026-\nz") == [#""x\ny"@0"#, #""2026-\nz"@4"#])
    #expect(try decoded(options(rule), "") == [])
    #expect(try decoded(options(rule), "\u{FEFF}2026-\n2027-\n") == [#""2026-"@0"#, #""2027-"@9"#])
  }

  @Test func aLineEndsAnEvent() throws {
    #expect(try decoded(options(.end(";$")), "a\nb;\n\nc;\r\nd") == [#""a\nb;"@0"#, #""\nc;"@5"#, #""d"@10"#])
  }

  @Test func aLineContinuesTheOneBefore() throws {
    #expect(
      try decoded(options(.continuation(#"^(\s|Caused by:)"#)), "a\n b\nCaused by: c\nd\n")
        == [#""a\n b\nCaused by: c"@0"#, #""d"@18"#])
    #expect(try decoded(options(.indented), " a\n\tb\n\nc\n d") == [#"" a\n\tb"@0"#, "\"\"@6", #""c\n d"@7"#])
  }

  @Test func aLineIsContinuedByTheNext() throws {
    #expect(
      try decoded(options(.wrapped(#"\\$"#)), "a \\\nb \\\r\nc\nd\ne\\\n")
        == [#""a \\\nb \\\r\nc"@0"#, #""d"@11"#, #""e\\"@13"#])
  }

  @Test func limitsBeginAnotherEvent() throws {
    #expect(
      try decoded(options(.indented, maxLines: 2), "a\n b\n c\n d\n e\nf\n")
        == [#""a\n b"@0"#, #"" c\n d"@5"#, #"" e"@11"#, #""f"@14"#])
    #expect(
      try decoded(options(.indented, maxBytes: 5), "a\n b\n c\n long line\n d\n")
        == [#""a\n b"@0"#, #"" c"@5"#, #"" long line"@8"#, #"" d"@19"#])
  }

  @Test func otherFormatsReadJoinedLines() throws {
    var pattern = options(.start("^E"), .regex)
    pattern.regex.pattern = #"(?s)^E (?P<code>\d+) (?P<rest>.*)"#
    #expect(
      try decoded(pattern, "E 1 a\n b\nE 2 c\n") == [#"{"code":"1","rest":"a\n b"}@0"#, #"{"code":"2","rest":"c"}@9"#])
    #expect(
      try decoded(options(.start("^\\{"), .json), "{\n \"a\": 1\n}\n{\"b\":\n2}\n")
        == [#"{"a":1}@0"#, #"{"b":2}@12"#])
    #expect(try decoded(options(.indented, .logfmt), "a=1\n b=2\nc=3\n") == [#"{"a":"1","b":"2"}@0"#, #"{"c":"3"}@9"#])
    #expect(
      try decoded(options(.indented), Array("a\n ".utf8) + [0xFF] + Array("\nb\n".utf8)).first
        == "!invalid_utf8@0:a\n \u{FFFD}")
  }

  static let rules: [LineJoining.Rule] = [
    .start(#"^\d{4}-"#), .end("e$"), .continuation(#"^[\sjC]"#), .wrapped("[xy]$"), .indented,
  ]

  @Test(arguments: rules) func anyCutOfTheInputGivesTheSameEvents(_ rule: LineJoining.Rule) throws {
    let input = Array((Self.trace + "x\ne\n\ty\n z\n").utf8)
    for limits in [(1000, 1 << 20), (2, 1 << 20), (1000, 20)] {
      try expectSameForAllCuts(options(rule, maxLines: limits.0, maxBytes: limits.1), input)
    }
  }

  /// At any pending event, a fresh decoder that starts there finds the same events, without saved state.
  @Test(arguments: rules) func decodingContinuesAtThePendingEvent(_ rule: LineJoining.Rule) throws {
    let input = Array((Self.trace + "x\ne\n\ty\n z\n").utf8)
    for maxLines in [2, 1000] {
      let options = options(rule, maxLines: maxLines)
      let whole = try decoded(options, input)
      for cut in 1...input.count where input[cut - 1] == 0x0A {
        let decoder = try options.decoder()
        let (arena, rows) = (Arena(), RowBatch())
        let slab = Slab(input)
        decoder.decode(slab, 0..<cut, offset: 0, isLast: false, arena: arena, into: rows)
        let place = Int(decoder.pendingOffset ?? Int64(cut))
        let first = rows.rows.map { "\(written($0.value))@\($0.offset)" }
        rows.clear()
        decoder.reset()
        decoder.decode(slab, place..<input.count, offset: Int64(place), isLast: true, arena: arena, into: rows)
        #expect(first + rows.rows.map { "\(written($0.value))@\($0.offset)" } == whole, "cut at \(cut)")
      }
    }
  }
}
