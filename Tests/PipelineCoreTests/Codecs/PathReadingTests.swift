import CJSON
import PipelineTestSupport
import Testing

@testable import PipelineCore

/// Paths read from the tokens of a block, compared with the same paths looked up in the whole document by the careful
/// reader: random documents, with each tokenizer that this processor supports.
@Suite(.serialized) struct PathReadingTests {
  /// Writes a random document and remembers its content.
  private struct Writer {
    var random: SplitMix
    var text: [UInt8] = []
    /// Whether it has no white space, as most programs write it.
    var isTight = false

    init(_ seed: UInt64) { random = SplitMix(seed) }

    static let names = [
      "a", "b", "ab", "status", "x-status", "", "a:b", "q\\\"", "\\u0061", "st\\u0061tus", "ü", "文{", "k\\\\",
    ]
    static let strings = [
      "", "x", "a long text without anything in it that would be special to anybody", "\\\"", "\\\\", "\\\\\\\"",
      "{\\\"a\\\":1}",
      "]}", ",:", "ü", "文字", "𝄞", "\\ud834\\udd1e", "tab\\t", "\\/",
    ]
    static let scalars = [
      "0", "-1", "12345678", "9223372036854775807", "9223372036854775808", "1e3", "-0.25", "true", "false", "null",
      "1234567890123456789012",
    ]

    mutating func white() {
      while !isTight, random.below(6) == 0 { text.append([0x20, 0x09, 0x20, 0x0D][random.below(4)]) }
    }

    mutating func put(_ part: String) { text += Array(part.utf8) }

    mutating func value(_ depth: Int) {
      white()
      switch random.below(depth > 4 ? 2 : 5) {
      case 0: put(Self.scalars[random.below(Self.scalars.count)])
      case 1: put("\"" + Self.strings[random.below(Self.strings.count)] + "\"")
      case 2:
        put("[")
        for index in 0..<random.below(4) {
          if index > 0 { put(",") }
          value(depth + 1)
        }
        white()
        put("]")
      default: object(depth)
      }
      white()
    }

    mutating func object(_ depth: Int) {
      put("{")
      for index in 0..<random.below(7) {
        if index > 0 { put(",") }
        white()
        put("\"" + Self.names[random.below(Self.names.count)] + "\"")
        white()
        put(":")
        value(depth + 1)
      }
      white()
      put("}")
    }
  }

  /// Each tokenizer, with and without the fast path for blocks that pass through.
  private static let variants: [Int32] = [0, 1, 2].flatMap { [$0, $0 | RX_LINES_LONG_WAY] }

  private static let paths: [[String]] = [
    ["a"], ["b"], ["status"], ["a", "b"], ["a", "status"], ["b", "a", "b"], [""], ["a:b"], ["q\""], ["ü", "文{"],
    ["k\\"],
    ["a", "b", "status"], ["x-status"],
  ]

  /// The first member of each name on the path; absent where the path ends.
  private func lookUp(_ path: [String], in document: Value, _ arena: Arena) -> Value {
    var value = document
    for name in path {
      guard value.is(.map),
        let entry = value.entries.first(where: {
          Array(JSONParser.unescape($0.key, into: arena).rawBytes) == Array(name.utf8)
        })
      else { return .absent }
      value = entry.value
    }
    return value
  }

  private func projection(_ paths: [[String]]) -> Projection {
    let projection = Projection()
    for path in paths { _ = projection.slot(for: path, needs: .value) }
    projection.freeze()
    return projection
  }

  @Test(arguments: Self.variants) func readsWhatTheCarefulReaderReads(variant: Int32) throws {
    _ = rx_lines_use(variant)
    defer { _ = rx_lines_use(2) }
    let all = projection(Self.paths)
    let few = projection([["status"]])
    var sound = 0
    for seed in 0..<400 as Range<UInt64> {
      var writer = Writer(seed &* 77 &+ UInt64(variant))
      var documents: [[UInt8]] = []
      for _ in 0..<5 {
        writer.text = []
        writer.isTight = seed % 2 == 0
        writer.white()
        writer.object(0)
        writer.white()
        documents.append(writer.text)
      }
      let slab = Slab([UInt8](documents.joined(separator: [0x0A])) + [0x0A])
      let rows = RowBatch()
      let arena = Arena()
      try DecoderOptions(.ndjson).decoder().decode(slab, arena: arena, into: rows)
      try #require(rows.count == documents.count)
      let json = JSONParser()
      for (row, document) in zip(rows.rows, documents) {
        let text = String(decoding: document, as: UTF8.self)
        #expect(row.token != RowBatch.Row.none, "\(text)")
        let expected = document.withUnsafeBytes { json.parse($0, into: arena) }
        for (projection, paths) in [(all, Self.paths), (few, [["status"]])] {
          let frame = EvaluationFrame(slots: projection.slotCount, arena: arena, json: json)
          json.indexed.pointee = rx_lines_row(
            lines: rows.lines, payload: row.value.payload, length: row.value.length, token: row.token)
          let outcome = projection.fill(row.value, frame)
          json.indexed.pointee.lines = nil
          #expect(!outcome.isError, "\(text)")
          for (slot, path) in paths.enumerated() {
            var found = frame.slots[slot]
            if found.isAnyMap || found.isAnyList { found = json.parse(found.rawBytes, into: arena) }
            #expect(
              Plain(found, arena) == Plain(lookUp(path, in: expected, arena), arena),
              "\(path.joined(separator: ".")) of \(text)")
          }
          sound += 1
        }
        withExtendedLifetime(document) {}
      }
      withExtendedLifetime(slab) {}
    }
    #expect(sound == 4000)
  }

  /// With random damage, every variant gives the same result for every line.
  @Test func variantsAgree() throws {
    let projection = projection(Self.paths)
    let marks = Array("{}[]\",:\\ \n\r\u{1}é7".utf8)
    for seed in 0..<1500 as Range<UInt64> {
      var writer = Writer(seed)
      writer.isTight = seed % 2 == 0
      for _ in 0..<4 {
        if writer.isTight { writer.object(0) } else { writer.value(0) }
        writer.put("\n")
      }
      var bytes = writer.text
      for _ in 0..<writer.random.below(3) {
        bytes[writer.random.below(bytes.count)] = marks[writer.random.below(marks.count)]
      }
      let slab = Slab(bytes)
      var said: [String] = []
      for variant in Self.variants {
        _ = rx_lines_use(variant)
        let rows = RowBatch()
        let arena = Arena()
        try DecoderOptions(.ndjson).decoder().decode(slab, arena: arena, into: rows)
        let frame = EvaluationFrame(slots: projection.slotCount, arena: arena, json: JSONParser())
        var all = rows.rejected.map { "\($0.offset) \($0.reason)" }.joined(separator: "\n")
        for row in rows.rows {
          all += "\n\(row.offset) \(row.token) \(Plain(row.value, arena)) "
          all +=
            projection.fill(row.value, frame).isError
            ? "error" : "\((0..<projection.slotCount).map { Plain(frame.slots[$0], arena) })"
        }
        said.append(all)
      }
      _ = rx_lines_use(2)
      #expect(Set(said).count == 1, "\(String(decoding: bytes, as: UTF8.self))")
      withExtendedLifetime(slab) {}
    }
  }

  /// The result of the fast path for a block, by each variant, compared with the normal path; nil: the block does not
  /// pass through.
  private func shortWay(_ bytes: [UInt8]) -> [Int?] {
    bytes.withUnsafeBytes { text in
      let start = text.baseAddress?.assumingMemoryBound(to: CChar.self)
      return ([0, 1, 2, RX_LINES_LONG_WAY] as [Int32]).map { variant in
        _ = rx_lines_use(variant)
        let lines = rx_lines_new()
        defer { rx_lines_free(lines) }
        var count = 0
        if variant != RX_LINES_LONG_WAY {
          return rx_lines_count_pass_through(lines, start, text.count, &count) ? count : nil
        }
        guard rx_lines_index(lines, start, text.count), rx_lines_pass_through(lines) else { return nil }
        _ = rx_lines_rows(lines, &count)
        return count
      }
    }
  }

  /// Complete and damaged lines: blocks pass through on the fast path exactly if they do on the normal path.
  @Test func countsWhatPassesThrough() throws {
    defer { _ = rx_lines_use(2) }
    let marks = Array("{}[]\",:\\ \n\r\u{1}é7".utf8)
    var passing = 0
    for seed in 0..<3000 as Range<UInt64> {
      var writer = Writer(seed)
      writer.isTight = seed % 8 != 0
      for _ in 0..<writer.random.below(6) {
        writer.object(0)
        writer.put("\n")
      }
      var bytes = writer.text
      for _ in 0..<writer.random.below(3) where !bytes.isEmpty {
        bytes[writer.random.below(bytes.count)] = marks[writer.random.below(marks.count)]
      }
      let found = shortWay(bytes)
      #expect(Set(found).count == 1, "\(found) \(String(decoding: bytes, as: UTF8.self))")
      if found[0] != nil { passing += 1 }
    }
    #expect(passing > 500)
  }

  /// Each sequence of two, three or four bytes at a border of valid UTF-8, at random offsets, so that some cross the
  /// end of 64 bytes.
  @Test func countsOnlyWhatIsUTF8() throws {
    defer { _ = rx_lines_use(2) }
    let borders: [UInt8] = [
      0x61, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC0, 0xC1, 0xC2, 0xDF, 0xE0, 0xE1, 0xEC, 0xED, 0xEE, 0xEF, 0xF0,
      0xF1, 0xF3, 0xF4, 0xF5, 0xFF,
    ]
    var random = SplitMix(5)
    var valid = 0
    for first in borders[2...] {
      for second in borders {
        for third in borders {
          let text = [first, second, third] + (random.below(2) == 0 ? [borders[random.below(borders.count)]] : [])
          // Few non-ASCII characters, and so many that the whole text is checked.
          let before = random.below(5) == 0 ? Array(repeating: Array("文".utf8), count: 40).flatMap { $0 } : []
          let padding = [UInt8](repeating: 0x78, count: random.below(130))
          let bytes =
            Array("{\"k\":\"".utf8) + before + padding + text + Array("\"}\n{\"k\":1}\n".utf8)
          let isValid = String(validating: text, as: UTF8.self) != nil
          if isValid { valid += 1 }
          #expect(shortWay(bytes) == Array(repeating: isValid ? 2 : nil, count: 4), "\(text) behind \(padding.count)")
        }
      }
    }
    #expect(valid > 100)
  }

  /// Rows that were only counted are found when a reader appears.
  @Test func countedLinesAreFoundLater() throws {
    _ = rx_lines_use(2)
    let slab = Slab(Array("{\"a\":1}\n[2]\n{}\n".utf8))
    let decoder = try DecoderOptions(.ndjson).decoder()
    for isPassedOn in [true, false] {
      let rows = RowBatch()
      #expect(decoder.index(slab, offset: 7, isPassedOn: isPassedOn, into: rows))
      #expect(rows.passThrough?.count == 3)
      if case .lazy = rows.form { #expect(isPassedOn) } else { #expect(!isPassedOn) }
      let json = JSONParser()
      var seen: [String] = []
      let stop = rows.forEachRow(tokens: json.indexed) { value, _ in
        seen.append("\(String(decoding: value.rawBytes, as: UTF8.self)) \(json.indexed.pointee.token)")
        return true
      }
      #expect(stop == nil)
      #expect(seen == ["{\"a\":1} 0", "[2] 4", "{} 7"])
      if case .documents(let lines, _, let offset) = rows.form {
        #expect(lines.count == 3 && offset == 7)
      } else {
        Issue.record("the lines were not found")
      }
    }
  }

  @Test func emptyKeysAndShortLines() throws {
    let projection = projection([[""], ["a"]])
    for (text, empty, letter) in [
      (#"{"":1}"#, Plain.int(1), Plain.absent), (#"{ "":2,"a":3}"#, .int(2), .int(3)),
      (#"{"a":4,"":5}"#, .int(5), .int(4)),
      (#"{"a":{}, "" : 6}"#, .int(6), .other("{}")), ("{}", .absent, .absent),
    ] {
      let slab = Slab(Array(text.utf8))
      let frame = EvaluationFrame(slots: 2, arena: Arena(), json: JSONParser())
      #expect(!projection.fill(Value(kind: .jsonMap, pointer: slab.start, length: slab.count), frame).isError)
      #expect(Plain(frame.slots[0]) == empty, "\(text)")
      #expect(Plain(frame.slots[1]) == letter, "\(text)")
    }
  }
}
