import PipelineTestSupport
import Testing

@testable import PipelineCore

/// CSV with lines before the header.
@Suite struct CSVSkippingTests {
  private func csv(_ skipLines: Int = 0, headerAt: String? = nil, _ header: CSVDecoding.Header = .firstRow)
    -> DecoderOptions
  {
    var options = DecoderOptions(.csv)
    options.csv.skipLines = skipLines
    options.csv.headerAt = headerAt
    options.csv.header = header
    return options
  }

  static let export = "Report, \"of\" today\r\n\n# made by x\nid,name\n1,ann\n2,\"b\nc\"\n"

  @Test func linesBeforeTheHeaderAreLeftOut() throws {
    let rows = [#"{"id":"1","name":"ann"}@41"#, #"{"id":"2","name":"b\nc"}@47"#]
    #expect(try decoded(csv(3), Self.export) == rows)
    #expect(try decoded(csv(headerAt: "^id,"), Self.export) == rows)
    #expect(try decoded(csv(1, headerAt: "^id,"), Self.export) == rows)
    #expect(try decoded(csv(3), "\u{FEFF}" + Self.export).count == 2)
    #expect(try decoded(csv(1, .names(["a"])), "title\nx\ny\n") == [#"{"a":"x"}@6"#, #"{"a":"y"}@8"#])
    #expect(try decoded(csv(1, .none), "title\nx\n") == [#"["x"]@6"#])
  }

  @Test func aMissingHeaderIsAnError() throws {
    #expect(try decoded(csv(headerAt: "^id,"), "a,b\n1,2\n") == ["!no_header@0:a,b"])
    #expect(try decoded(csv(5), "a,b\n1,2\n") == ["!no_header@0:a,b"])
    #expect(try decoded(csv(5), "") == [])
    #expect(try decoded(csv(2), "a\nb\nid\n") == [])
    // A stream never ends, so each line after the 1,000th is rejected.
    let found = try decoded(csv(headerAt: "^id,"), String(repeating: "x\n", count: 1002) + "id,a\n1,2\n")
    #expect(found == ["!no_header@2000:x", "!no_header@2002:x", #"{"id":"1","a":"2"}@2009"#])
    #expect("\(RejectReason.noHeader(lines: 1000))" == "no header in the first 1000 lines")
  }

  @Test func aMissingHeaderIsKnownAfterARestart() throws {
    let options = csv(headerAt: "^id,")
    let decoder = try options.decoder()
    let (arena, rows) = (Arena(), RowBatch())
    let first = Slab(Array(String(repeating: "x\n", count: 1001).utf8))
    decoder.decode(first, 0..<first.count, offset: 0, isLast: false, arena: arena, into: rows)
    #expect(decoder.pendingOffset == nil)
    #expect(rows.rejected.count == 1)
    let another = try options.decoder()
    another.reset(memory: decoder.memory)
    rows.clear()
    let second = Slab(Array("y\nid,a\n1,2\n".utf8))
    another.decode(second, 0..<second.count, offset: 2002, isLast: true, arena: arena, into: rows)
    #expect(rows.rejected.map { "\($0.reason)" } == ["no header in the first 1001 lines"])
    #expect(rows.rows.map { "\(written($0.value))@\($0.offset)" } == [#"{"id":"1","a":"2"}@2009"#])
    // The saved header replaces the skipped lines now.
    let last = try options.decoder()
    last.reset(memory: another.memory)
    rows.clear()
    let third = Slab(Array("3,4\n".utf8))
    last.decode(third, 0..<third.count, offset: 2013, isLast: true, arena: arena, into: rows)
    #expect(rows.rows.map { "\(written($0.value))@\($0.offset)" } == [#"{"id":"3","a":"4"}@2013"#])
  }

  @Test func optionsThatExcludeEachOther() {
    for (options, message) in [
      (csv(headerAt: "(", .firstRow), "does not compile"), (csv(headerAt: "", .firstRow), "is empty"),
      (csv(headerAt: "^id", .none), "says that the input has none"),
      (csv(headerAt: "^id", .names(["a"])), "says that the input has none"),
    ] {
      #expect { try options.decoder() } throws: { error in
        let failure = error as? CodecFailure
        return failure?.option == "headerAt" && failure?.message.contains(message) == true
      }
    }
  }

  private var all: [DecoderOptions] {
    [csv(3), csv(headerAt: "^id,"), csv(2, headerAt: "^id,"), csv(4, .names(["a", "b"])), csv(4, .none)]
  }

  @Test func anyCutOfTheInputGivesTheSameRows() throws {
    for options in all { try expectSameForAllCuts(options, Array(Self.export.utf8)) }
  }

  /// Wherever a run ends, even before the header, another decoder continues from the position and the saved state of the
  /// first.
  @Test func decodingContinuesAnywhere() throws {
    let exports = all.map { ($0, Self.export) } + [(csv(1), "title\n\nid,\"na\nme\"\n1,ann\n2,bob\n")]
    for (options, text) in exports {
      let input = Array(text.utf8)
      let whole = try decoded(options, input)
      for cut in 0...input.count where cut == 0 || input[cut - 1] == 0x0A {
        let decoder = try options.decoder()
        let (arena, rows) = (Arena(), RowBatch())
        let slab = Slab(input)
        decoder.decode(slab, 0..<cut, offset: 0, isLast: false, arena: arena, into: rows)
        let place = Int(decoder.pendingOffset ?? Int64(cut))
        let first = rows.rows.map { "\(written($0.value))@\($0.offset)" }
        rows.clear()
        let another = try options.decoder()
        another.reset(memory: decoder.memory)
        another.decode(slab, place..<input.count, offset: Int64(place), isLast: true, arena: arena, into: rows)
        #expect(first + rows.rows.map { "\(written($0.value))@\($0.offset)" } == whole, "cut at \(cut)")
      }
    }
  }
}
