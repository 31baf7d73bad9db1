import PipelineTestSupport
import Testing

@testable import PipelineCore

/// What a decoder reports about bytes that are not a row yet: another decoder can start with them.
@Suite struct UndecodedTests {
  private static func options(
    _ format: DecoderFormat, join: LineJoining.Rule? = nil, charset: String? = nil, maxBytes: Int = 16 << 20
  ) -> DecoderOptions {
    var options = DecoderOptions(format)
    options.join = join.map { LineJoining($0, maxLines: 3) }
    options.charset = charset.flatMap { try? Charset($0) }
    options.json.maxBytes = maxBytes
    options.csv.rowLimit = 24
    return options
  }

  private static func utf16(_ text: String) -> [UInt8] {
    [0xFF, 0xFE] + text.utf16.flatMap { [UInt8(truncatingIfNeeded: $0), UInt8(truncatingIfNeeded: $0 >> 8)] }
  }

  static let cases: [(options: DecoderOptions, input: [UInt8], mayBeGone: Bool)] = [
    (options(.text), Array("a\nb\nc".utf8), false),
    (options(.text, join: .indented), Array("a\n 1\n 2\n 3\nb\n 4\nc".utf8), false),
    (options(.json, join: .start("^\\{")), Array("{\"a\":\n1}\n{\"b\":2}\n".utf8), false),
    (
      options(.csv),
      Array("n,t\n1,\"a\nb\"\n2,\"c \"\" d\ne\nf\"\n3,x\"y\n4,\"zzzzzzzzzzzzzz\nzzzzzzzzzzz\nq\"\n5,6\n".utf8), false
    ),
    (options(.jsonDocuments), Array(#" {"a": [1, "x\"]"]} {"b":} tru 12 "s" {"c": 3}"#.utf8), false),
    (options(.jsonDocuments, maxBytes: 8), Array("[1] [1,2,3,4,5,6] {\"a\":1}\n[2]".utf8), true),
    (
      options(.text, join: .indented, charset: "latin1"),
      Array("\u{61}\n ".utf8) + [0xE9, 0x0A] + Array("b\n 2\n".utf8), false
    ),
    (
      options(.csv, charset: "windows-1252"), Array("n,t\n1,\"a".utf8) + [0x80, 0x0A] + Array("b\"\n2,c\n".utf8), false
    ),
    (options(.text, charset: "utf-16"), utf16("ab\ncé\u{1F600}\n\nd"), false),
  ]

  /// The bytes after the pending offset include a part of an event that was already sent, also after a charset
  /// conversion.
  @Test(arguments: [nil, "latin1"] as [String?]) func arePartsOfEventsThatHaveLeft(_ charset: String?) throws {
    var options = Self.options(.text, join: .start(#"\d"#), charset: charset)
    options.join?.key = #"^\w+"#
    let decoder = try options.decoder()
    let (arena, rows) = (Arena(), RowBatch())
    let slab = Slab(Array("a 1\nb 1\na x\na 2\n".utf8))
    decoder.decode(slab, 0..<slab.count, offset: 0, isLast: false, arena: arena, into: rows)
    #expect(rows.rows.map { written($0.value) } == [#""a 1\na x""#])
    #expect(decoder.pendingOffset == 4)
    #expect(decoder.undecoded == nil)
  }

  @Test(arguments: cases.indices) func areTheBytesBehindThePendingPlace(_ index: Int) throws {
    let (options, input, mayBeGone) = Self.cases[index]
    var found = 0
    var dice = SplitMix(UInt64(input.count))
    for cut in 0...input.count {
      for step in [1, 3, input.count] {
        let decoder = try options.decoder()
        let (arena, rows) = (Arena(), RowBatch())
        let slab = Slab(input)
        var start = 0
        func decode(_ end: Int) {
          guard end > start else { return }
          decoder.decode(slab, start..<end, offset: Int64(start), isLast: false, arena: arena, into: rows)
          start = end
        }
        if decoder.framing == .lines {
          for at in 0..<cut where input[at] == 0x0A && (step == 1 || dice.below(2) == 0 || at == cut - 1) {
            decode(at + 1)
          }
        } else {
          for end in stride(from: step, to: cut, by: step) { decode(end) }
          decode(cut)
        }
        let pending = decoder.pendingOffset
        guard let undecoded = decoder.undecoded else {
          #expect(mayBeGone, "cut at \(cut)")
          continue
        }
        #expect(undecoded == pending.map { Array(input[Int($0)..<start]) } ?? [], "cut at \(cut) by \(step)")
        if !undecoded.isEmpty { found += 1 }
      }
    }
    #expect(found > 0 || options.format == .text && options.join == nil && options.charset == nil)
  }
}
