import Foundation
import PipelineCore
import PipelineHost
import PipelineTestSupport
import Testing

/// Events that decoder threads have encoded for a sink pass through its outbox unchanged.
@Suite struct OutboxLinesTests {
  let scratch = Scratch()
  private static let count = 20_000

  @Test(arguments: [
    ("ndjson", "ndjson", UInt8(16)), ("ndjson", "lines", 17), ("lines", "lines", 17),
    ("ndjson", "{ csv: { columns: [n] } }", 1),
  ])
  func fileToFile(_ decode: String, _ encode: String, _ kind: UInt8) throws {
    scratch.append((0..<Self.count).map { "{\"n\":\($0)}\n" }.joined(), to: "in.log")
    let store = MemoryStore()
    let pipeline = try RealPipeline(
      """
      threads: 2
      sources: { in: { file: { path: '\(scratch("in.log"))', decode: \(decode) } } }
      sinks:
        out:
          from: in
          chain: [ { filter: "\(decode == "ndjson" ? "event.n % 2 == 0" : "!event.endsWith('1}')")" } ]
          file: { path: '\(scratch("out.log"))', encode: \(encode) }
      """,
      before: {
        $0.reading.blockBytes = 1000
        $0.reading.startsAllThreads = true
        $0.commit(with: DeliveryOptions(store: store, isDurable: true))
      })
    pipeline.run { store.waiting > 0 }
    #expect(scratch.read("out.log") == "")
    var rows: [OutboxRow] = []
    pipeline.run {
      store.takeOne()
      rows += store.disk.rows.values.filter { row in !rows.contains { $0.number == row.number } }
      return pipeline.outcome != nil
    }
    #expect(pipeline.outcome == .completed)
    // The first blocks may be encoded in their turns.
    #expect(Set(rows.map { $0.bytes[0] }).subtracting([1]) == (kind == 1 ? [] : [kind]))
    let wanted = (0..<Self.count).compactMap { number -> String? in
      guard decode == "ndjson" ? number % 2 == 0 : number % 10 != 1 else { return nil }
      return encode.contains("csv") ? "\(number)\n" : "{\"n\":\(number)}\n"
    }
    #expect(scratch.read("out.log") == (encode.contains("csv") ? "n\n" : "") + wanted.joined())
  }

  /// Rows of named events have another format, and are not lines.
  @Test func namedEvents() throws {
    scratch.append("a\nb\n", to: "in.log")
    let store = MemoryStore(isImmediate: true)
    let pipeline = try RealPipeline(
      """
      sources: { in: { file: '\(scratch("in.log"))' } }
      sinks: { out: { from: in, chain: [ { map: "[event, size(meta.id) > 0]" } ], file: '\(scratch("out.log"))' } }
      """, before: { $0.commit(with: DeliveryOptions(store: store, isDurable: true)) })
    pipeline.run { pipeline.outcome != nil }
    #expect(scratch.read("out.log") == "[\"a\",true]\n[\"b\",true]\n")
  }
}
