import PipelineTestSupport
import Testing

@testable import PipelineCore

/// Lines of several senders in one stream, and partial lines of containers.
@Suite struct KeyedJoiningTests {
  private func keyed(
    _ rule: LineJoining.Rule, by key: String = #"^\w+"#, maxLines: Int = 1000, maxBytes: Int = 1 << 20,
    maxKeys: Int = 1000
  ) -> DecoderOptions {
    var options = DecoderOptions(.text)
    options.join = LineJoining(rule, maxLines: maxLines, maxBytes: maxBytes)
    options.join?.key = key
    options.join?.maxKeys = maxKeys
    return options
  }

  private func container(_ rule: LineJoining.Rule? = nil, maxBytes: Int = 1 << 20) -> DecoderOptions {
    var options = DecoderOptions(.container)
    options.join = LineJoining(rule, maxBytes: maxBytes)
    return options
  }

  static let mixed = """
    a 1 first
    b 1 first
    a  at x
    b  at y
    a  at z
    a 2 second
    other
    b 3 third
    b  at w

    """

  @Test func linesOfOneKeyBelongTogether() throws {
    let expected = [
      #""a 1 first\na  at x\na  at z"@0"#, #""b 1 first\nb  at y"@10"#, #""a 2 second"@44"#, #""other"@55"#,
      #""b 3 third\nb  at w"@61"#,
    ]
    #expect(try decoded(keyed(.start(#"^\w+ \d"#)), Self.mixed) == expected)
    #expect(try decoded(keyed(.start(#"^\w+ \d"#), by: #"^(\w+) "#), Self.mixed) == expected)
    #expect(try decoded(keyed(.continuation(#"^\w+  at"#)), Self.mixed) == expected)
    // A line without a key is joined with other lines without a key.
    #expect(
      try decoded(keyed(.start(#"\d"#), by: #"^(\w+):"#), "a: 1\nx\na: y\n2\nz\n")
        == [#""a: 1\na: y"@0"#, #""x"@5"#, #""2\nz"@12"#])
  }

  @Test func theOldestEventEndsForAnotherKey() throws {
    #expect(
      try decoded(keyed(.start(#"\d"#), maxKeys: 2), "a 1\nb 1\nc 1\na x\nb x\n")
        == [#""a 1"@0"#, #""b 1"@4"#, #""c 1"@8"#, #""a x"@12"#, #""b x"@16"#])
    #expect(
      try decoded(keyed(.start(#"\d"#), maxKeys: 3), "a 1\nb 1\nc 1\na x\nb x\n")
        == [#""a 1\na x"@0"#, #""b 1\nb x"@4"#, #""c 1"@8"#])
  }

  @Test func limitsEndEvents() throws {
    #expect(
      try decoded(keyed(.start(#"\d"#), maxLines: 2), "a 1\nb 1\na x\na y\n")
        == [#""a 1\na x"@0"#, #""b 1"@4"#, #""a y"@12"#])
    // The input since the start of an event is limited, so a silent key does not hold the position for long.
    let input = "a 1\n" + String(repeating: "b 1 of twenty bytes\n", count: 30) + "a x\n"
    let found = try decoded(keyed(.start(#"\d"#), maxBytes: 50), input)
    #expect(found.first == #""a 1"@0"#)
    #expect(found.contains(#""a x"@604"#))
    #expect(found.count == 32)
  }

  static let cri = """
    2026-01-31T08:00:01.000000001Z stdout F whole
    2026-01-31T08:00:01.000000002Z stdout P one
    2026-01-31T08:00:01.000000003Z stderr P err
    2026-01-31T08:00:01.000000004Z stdout P  two
    2026-01-31T08:00:01.000000005Z stderr F or
    2026-01-31T08:00:01.000000006Z stdout F  three
    2026-01-31T08:00:01.000000007Z stdout F
    2026-01-31T08:00:01.000000008Z stdout F:x after

    """

  @Test func piecesOfCRIArePutTogetherForEachStream() throws {
    func event(_ nanosecond: Int, _ stream: String, _ log: String) -> String {
      #"{"stream":"\#(stream)","message":"\#(log)","time":"2026-01-31T08:00:01.00000000\#(nanosecond)Z"}"#
    }
    #expect(
      try decoded(container(), Self.cri).map { String($0.prefix { $0 != "@" }) } == [
        event(1, "stdout", "whole"), event(2, "stdout", "one two three"), event(3, "stderr", "error"),
        event(7, "stdout", ""), event(8, "stdout", "after"),
      ])
  }

  @Test func piecesOfDockerArePutTogetherForEachStream() throws {
    let input = #"""
      {"log":"whole\n","stream":"stdout","time":"2026-01-31T08:00:01Z"}
      {"log":"one \"q\" \\","stream":"stdout","time":"2026-01-31T08:00:02Z"}
      {"log":"n\ttwo\r\n","stream":"stdout","time":"2026-01-31T08:00:03Z","attrs":{"tag":"x"}}
      {"stream":"stderr","log":"é\u00e9\n","time":"2026-01-31T08:00:04Z","attrs":{"tag":"x"}}
      {"log":"last","stream":"stdout","time":"2026-01-31T08:00:05Z"}

      """#
    #expect(
      try decoded(container(), input).map { String($0.prefix { $0 != "@" }) } == [
        #"{"stream":"stdout","message":"whole","time":"2026-01-31T08:00:01Z"}"#,
        #"{"stream":"stdout","message":"one \"q\" \\n\ttwo","time":"2026-01-31T08:00:02Z"}"#,
        #"{"stream":"stderr","message":"éé","time":"2026-01-31T08:00:04Z","attrs":{"tag":"x"}}"#,
        #"{"stream":"stdout","message":"last","time":"2026-01-31T08:00:05Z"}"#,
      ])
  }

  @Test func otherLinesAreRejectedInTheirPlace() throws {
    let input =
      "2026-01-31T00:00:00Z stdout P a\nnonsense\n2026-01-31T00:00:00Z stdout X b\n{\"a\":1}\n{\"log\":1\n2026-01-31T00:00:00Z stdout F b\n2026-01-31T00:00:00Z\n"
    #expect(
      try decoded(container(), input) == [
        #"{"stream":"stdout","message":"ab","time":"2026-01-31T00:00:00Z"}@0"#, "!malformed_container@32:nonsense",
        "!malformed_container@41:2026-01-31T00:00:00Z stdout X b", "!malformed_container@73:{\"a\":1}",
        "!malformed_json@81:{\"log\":1",
        "!malformed_container@122:2026-01-31T00:00:00Z",
      ])
    #expect(
      "\(RejectReason.malformed(.container, expected: "F or P", at: 13))"
        == "not a line of a container: expected F or P at byte 13")
  }

  @Test func aLineThatIsTooLongIsRejectedWithItsFurtherPieces() throws {
    let piece = "2026-01-31T00:00:00Z stdout P " + String(repeating: "x", count: 40) + "\n"
    let input =
      piece + "2026-01-31T00:00:00Z stderr F e\n" + piece + piece + piece
      + "2026-01-31T00:00:00Z stdout F end\n2026-01-31T00:00:00Z stdout F next\n"
    let found = try decoded(container(maxBytes: 160), input)
    #expect(found.count == 3)
    #expect(found.first?.hasPrefix("!row_too_long@0:2026-01-31T00:00:00Z stdout P xxx") == true)
    #expect(found.dropFirst().first?.contains(#""message":"e""#) == true)
    #expect(found.last?.contains(#""message":"next""#) == true)
  }

  /// A character that the container runtime has split is joined again.
  @Test func piecesMayCutCharacters() throws {
    let bytes =
      Array("2026-01-31T00:00:00Z stdout P a".utf8) + [0xC3, 0x0A] + Array("2026-01-31T00:00:00Z stdout F ".utf8) + [
        0xA9, 0x0A,
      ]
    #expect(try decoded(container(), bytes) == [#"{"stream":"stdout","message":"aé","time":"2026-01-31T00:00:00Z"}@0"#])
    #expect(
      try decoded(container(), Array("2026-01-31T00:00:00Z stdout F ".utf8) + [0xFF, 0x0A]).first?.hasPrefix(
        "!invalid_utf8@0") == true)
  }

  @Test func stackTracesInContainers() throws {
    let input = """
      t1 x
      2026-01-31T00:00:00Z stdout F 1 error
      2026-01-31T00:00:00Z stderr F 2 other
      2026-01-31T00:00:00Z stdout P   at
      2026-01-31T00:00:00Z stdout F  a
      2026-01-31T00:00:00Z stderr F   at b
      2026-01-31T00:00:00Z stdout F 3 next

      """
    #expect(
      try decoded(container(.start(#"^\d"#)), input).dropFirst().map { String($0.prefix { $0 != "@" }) } == [
        #"{"stream":"stdout","message":"1 error\n  at a","time":"2026-01-31T00:00:00Z"}"#,
        #"{"stream":"stderr","message":"2 other\n  at b","time":"2026-01-31T00:00:00Z"}"#,
        #"{"stream":"stdout","message":"3 next","time":"2026-01-31T00:00:00Z"}"#,
      ])
    // The rule is applied to the text itself, not to its JSON escapes.
    #expect(
      try decoded(container(.indented), #"{"log":"a\n","stream":"o"}"# + "\n" + #"{"log":"\tb\n","stream":"o"}"# + "\n")
        == [#"{"stream":"o","message":"a\n\tb"}@0"#])
  }

  /// Text whose length a charset conversion changes stays in its own event.
  @Test(arguments: ["latin1", "utf-16le"]) func convertedText(_ charset: String) throws {
    func bytes(_ text: String) -> [UInt8] {
      charset == "latin1"
        ? text.unicodeScalars.map { UInt8($0.value) } : text.utf16.flatMap { [UInt8($0 & 0xFF), UInt8($0 >> 8)] }
    }
    func check(_ options: DecoderOptions, _ text: String, _ expected: [String]) throws {
      var options = options
      options.charset = try Charset(charset)
      #expect(try decoded(options, bytes(text)).map { String($0.prefix { $0 != "@" }) } == expected)
      try expectSameForAllCuts(options, bytes(text))
    }
    try check(
      keyed(.start(#"^\w+ \d"#)),
      "a 1 \u{E9}\u{E9}\nb 1 \u{E8}\na  \u{FC}\nb  x\na 2 \u{E9}\nb 2 end\n",
      [
        "\"a 1 \u{E9}\u{E9}\\na  \u{FC}\"", "\"b 1 \u{E8}\\nb  x\"", "\"a 2 \u{E9}\"", "\"b 2 end\"",
      ])
    try check(
      container(),
      "2026-01-31T00:00:00Z o P \u{E9}\u{E9}\n2026-01-31T00:00:00Z e P x\n2026-01-31T00:00:00Z o F \u{FC}\n2026-01-31T00:00:00Z e F y\n",
      [
        "{\"stream\":\"o\",\"message\":\"\u{E9}\u{E9}\u{FC}\",\"time\":\"2026-01-31T00:00:00Z\"}",
        "{\"stream\":\"e\",\"message\":\"xy\",\"time\":\"2026-01-31T00:00:00Z\"}",
      ])
  }

  private var all: [(DecoderOptions, [UInt8])] {
    var latin1 = keyed(.start(#"^\w+ \d"#))
    latin1.charset = try? Charset("latin1")
    return [
      (latin1, Self.mixed.utf8.map { $0 == UInt8(ascii: "x") ? 0xE9 : $0 }),
      (keyed(.start(#"^\w+ \d"#)), Array(Self.mixed.utf8)),
      (keyed(.start(#"^\w+ \d"#), maxKeys: 1), Array(Self.mixed.utf8)),
      (keyed(.start(#"^\w+ \d"#), maxBytes: 8), Array(Self.mixed.utf8)),
      (keyed(.end("[xyz]$")), Array(Self.mixed.utf8)), (keyed(.wrapped("t$")), Array(Self.mixed.utf8)),
      (container(), Array(Self.cri.utf8)), (container(.start("^[a-z]")), Array(Self.cri.utf8)),
      (container(maxBytes: 80), Array(Self.cri.utf8)),
    ]
  }

  @Test func anyCutOfTheInputGivesTheSameEvents() throws {
    for (options, input) in all { try expectSameForAllCuts(options, input) }
  }

  /// Wherever a run ends, another decoder continues at the pending event with the saved state of the first: no event is lost, none
  /// is repeated, and none is partial.
  @Test func decodingContinuesAtThePendingEvent() throws {
    for (options, input) in all {
      let whole = try decoded(options, input)
      for cut in 1...input.count where input[cut - 1] == 0x0A {
        let decoder = try options.decoder()
        let (arena, rows) = (Arena(), RowBatch())
        func take() -> [String] {
          defer { rows.clear() }
          let events = rows.rows.map { ($0.offset, "\(written($0.value))@\($0.offset)") }
          let refused = rows.rejected.map {
            ($0.offset, "!\($0.reason.code)@\($0.offset):" + String(decoding: $0.bytes.rawBytes, as: UTF8.self))
          }
          return (events + refused).sorted { $0.0 < $1.0 }.map(\.1)
        }
        let slab = Slab(input)
        decoder.decode(slab, 0..<cut, offset: 0, isLast: false, arena: arena, into: rows)
        let place = Int(decoder.pendingOffset ?? Int64(cut))
        let first = take()
        let another = try options.decoder()
        another.reset(memory: decoder.memory)
        another.decode(slab, place..<input.count, offset: Int64(place), isLast: true, arena: arena, into: rows)
        #expect(first + take() == whole, "cut at \(cut)")
      }
    }
  }

  /// A turn may end between two events of a block: the next run continues at the first unsent one.
  @Test func decodingContinuesAtAnyEventThatWasNotSent() throws {
    for (options, input) in all {
      let whole = try decoded(options, input)
      for cut in 1...input.count where input[cut - 1] == 0x0A {
        let decoder = try options.decoder()
        let (arena, rows) = (Arena(), RowBatch())
        let slab = Slab(input)
        decoder.decode(slab, 0..<cut, offset: 0, isLast: false, arena: arena, into: rows)
        for unsent in rows.rows.map(\.offset) {
          let another = try options.decoder()
          another.reset(memory: decoder.memory)
          let more = RowBatch()
          another.decode(slab, Int(unsent)..<input.count, offset: unsent, isLast: true, arena: arena, into: more)
          let wanted = whole.filter { !$0.hasPrefix("!") && (Int($0.split(separator: "@").last ?? "") ?? -1) >= unsent }
          #expect(more.rows.map { "\(written($0.value))@\($0.offset)" } == wanted, "cut at \(cut), unsent \(unsent)")
        }
      }
    }
  }

  /// Saved state of another rule is ignored: lines are read again, not skipped.
  @Test func theMemoryOfOtherOptionsIsIgnored() throws {
    let input = Array(Self.mixed.utf8)
    let decoder = try keyed(.start(#"^\w+ \d"#)).decoder()
    let (arena, rows) = (Arena(), RowBatch())
    let slab = Slab(input)
    decoder.decode(slab, 0..<55, offset: 0, isLast: false, arena: arena, into: rows)
    rows.clear()
    let other = try keyed(.start(#"^\w+ \d"#), by: "^.").decoder()
    other.reset(memory: decoder.memory)
    other.decode(slab, 10..<input.count, offset: 10, isLast: true, arena: arena, into: rows)
    #expect(rows.rows.map(\.offset) == [10, 20, 44, 55, 61])
    for cut in 0...decoder.memory.count { other.reset(memory: Array(decoder.memory.prefix(cut))) }
  }

  /// The saved state does not depend on the iteration order of types, which differs between processes.
  @Test func theMemoryIsTheSameInEachProcess() throws {
    var memories: [[UInt8]] = []
    for capacity in [8, 4096] {
      var options = keyed(.start(#"^\w+ \d"#))
      options.format = .logfmt
      options.logfmt.types.reserveCapacity(capacity)
      for name in ["m", "n", "o", "p", "q", "r", "s", "t"] { options.logfmt.types[name] = .int }
      let decoder = try options.decoder()
      let (arena, rows) = (Arena(), RowBatch())
      decoder.decode(Slab(Array(Self.mixed.utf8)), 0..<55, offset: 0, isLast: false, arena: arena, into: rows)
      memories.append(decoder.memory)
    }
    #expect(memories[0] == memories[1])
    #expect(!memories[0].isEmpty)
  }

  @Test func eachKeyHasItsTime() throws {
    var options = keyed(.start(#"\d"#))
    options.join?.wait = .seconds(1)
    let decoder = try options.decoder()
    let (arena, rows) = (Arena(), RowBatch())
    var offset: Int64 = 0
    func add(_ text: String, at time: Int64) {
      decoder.setTime(time)
      let slab = Slab(Array(text.utf8))
      decoder.decode(slab, 0..<slab.count, offset: offset, isLast: false, arena: arena, into: rows)
      offset += Int64(slab.count)
      arena.keep(slab)
    }
    #expect(decoder.dueAt == nil)
    add("a 1\n", at: 0)
    add("b 1\n", at: 500_000_000)
    add("b x\n", at: 900_000_000)
    #expect(decoder.dueAt == 1_000_000_000)
    decoder.endOnlyDue(at: 999_999_999)
    _ = decoder.endRow(offset: offset, arena: arena, into: rows)
    #expect(rows.count == 0)
    decoder.endOnlyDue(at: 1_000_000_000)
    #expect(decoder.endRow(offset: offset, arena: arena, into: rows))
    #expect(rows.rows.map { written($0.value) } == [#""a 1""#])
    #expect(decoder.dueAt == 1_900_000_000)
    // Lines of other keys do not extend the time limit.
    add("c 1\n", at: 1_800_000_000)
    decoder.endOnlyDue(at: 1_900_000_000)
    #expect(decoder.endRow(offset: offset, arena: arena, into: rows))
    #expect(rows.rows.map { written($0.value) } == [#""a 1""#, #""b 1\nb x""#])
    #expect(decoder.pendingOffset == 12)
  }

  @Test func theKeyThatIsSilentForTheLongestIsDueFirst() throws {
    var options = keyed(.start(#"\d"#))
    options.join?.wait = .seconds(1)
    let decoder = try options.decoder()
    let (arena, rows) = (Arena(), RowBatch())
    var offset: Int64 = 0
    func due(after text: String, at time: Int64) -> Int64? {
      decoder.setTime(time)
      let slab = Slab(Array(text.utf8))
      decoder.decode(slab, 0..<slab.count, offset: offset, isLast: false, arena: arena, into: rows)
      offset += Int64(slab.count)
      arena.keep(slab)
      return decoder.dueAt.map { $0 - 1_000_000_000 }
    }
    #expect(due(after: "a 1\n", at: 0) == 0)
    #expect(due(after: "b 1\nc 1\n", at: 1) == 0)
    #expect(due(after: "c x\n", at: 2) == 0)
    #expect(due(after: "a x\n", at: 3) == 1)
    // Another event with this key starts, which ends the previous one.
    #expect(due(after: "b 2\n", at: 4) == 2)
    #expect(due(after: "c 2\n", at: 5) == 3)
    #expect(due(after: "a 2\n", at: 6) == 4)
    decoder.endOnlyDue(at: 1_000_000_005)
    #expect(decoder.endRow(offset: offset, arena: arena, into: rows))
    #expect(decoder.dueAt == 1_000_000_006)
    decoder.reset()
    #expect(decoder.dueAt == nil)
  }

  /// Any text with any cuts: nothing traps, and the held text stays within the limits.
  @Test func anyText() throws {
    var dice = SplitMix(7)
    let words = [
      "a ", "b ", "1", "\n", "\n", " stdout P ", " stderr F ", "2026-01-31T00:00:00Z", "{\"log\":\"x\"}", "\u{FF}",
      "\r\n", "\\", "{",
    ]
    for round in 0..<300 {
      let text = (0..<dice.below(60)).map { _ in words[dice.below(words.count)] }.joined()
      let options =
        round % 2 == 0
        ? keyed(.start(#"\d"#), maxLines: 1 + dice.below(3), maxBytes: 1 + dice.below(30), maxKeys: 1 + dice.below(3))
        : container(dice.below(2) == 0 ? nil : .indented, maxBytes: 1 + dice.below(60))
      let input = Array(text.utf8)
      let whole = try decoded(options, input)
      let cuts = (0..<dice.below(4)).map { _ in dice.below(input.count + 1) }.sorted()
      #expect(try decoded(options, input, cuts: cuts, emptyEnd: true) == whole, "\(text.debugDescription)")
    }
  }
}
