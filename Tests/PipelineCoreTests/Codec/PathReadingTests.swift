import CJSON
import PipelineTestSupport
import Testing

@testable import PipelineCore

/// Paths read from the tokens of a block, against the same paths looked up in the whole document as the careful
/// reader builds it: random documents, each way of finding tokens that this processor has.
@Suite(.serialized) struct PathReadingTests {
  /// Writes a random document and keeps what it means.
  private struct Writer {
    var random: SplitMix
    var text: [UInt8] = []

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
      while random.below(6) == 0 { text.append([0x20, 0x09, 0x20, 0x0D][random.below(4)]) }
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

  private static let paths: [[String]] = [
    ["a"], ["b"], ["status"], ["a", "b"], ["a", "status"], ["b", "a", "b"], [""], ["a:b"], ["q\""], ["ü", "文{"],
    ["k\\"],
    ["a", "b", "status"], ["x-status"],
  ]

  /// The first member of each name on the path; absent where it ends.
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
    for path in paths { _ = projection.slot(for: path, wants: .value) }
    projection.freeze()
    return projection
  }

  @Test(arguments: [0, 1, 2]) func readsWhatTheCarefulReaderReads(variant: Int32) throws {
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
        writer.white()
        writer.object(0)
        writer.white()
        documents.append(writer.text)
      }
      let slab = Slab([UInt8](documents.joined(separator: [0x0A])))
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

  /// Damage anywhere: every variant says the same of every line.
  @Test func variantsAgree() throws {
    let projection = projection(Self.paths)
    let marks = Array("{}[]\",:\\ \n\r\u{1}é7".utf8)
    for seed in 0..<1500 as Range<UInt64> {
      var writer = Writer(seed)
      for _ in 0..<4 {
        writer.value(0)
        writer.put("\n")
      }
      var bytes = writer.text
      for _ in 0..<writer.random.below(3) {
        bytes[writer.random.below(bytes.count)] = marks[writer.random.below(marks.count)]
      }
      let slab = Slab(bytes)
      var said: [String] = []
      for variant in 0...2 as ClosedRange<Int32> {
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
      #expect(said[0] == said[1] && said[1] == said[2], "\(String(decoding: bytes, as: UTF8.self))")
      withExtendedLifetime(slab) {}
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
