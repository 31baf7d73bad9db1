import Foundation
import PipelineCore
import PipelineHost
import PipelineTestSupport
import Testing

/// What decoding threads have encoded for a sink goes through its outbox as it is.
@Suite struct OutboxLinesTests {
  let scratch = Scratch()

  @Test(arguments: [
    ("ndjson", "ndjson", UInt8(2)), ("ndjson", "lines", 1), ("lines", "lines", 3),
    ("ndjson", "{ csv: { columns: [n] } }", 1),
  ])
  func fileToFile(_ decode: String, _ encode: String, _ kind: UInt8) throws {
    for number in 0..<1000 { scratch.append("{\"n\":\(number)}\n", to: "in.log") }
    let store = MemoryStore()
    let pipeline = try RealPipeline(
      """
      sources: { in: { file: { path: '\(scratch("in.log"))', follow: true, decode: \(decode) } } }
      sinks:
        out:
          from: in
          chain: [ { filter: "\(decode == "ndjson" ? "event.n % 2 == 0" : "!event.endsWith('1}')")" } ]
          file: { path: '\(scratch("out.log"))', encode: \(encode) }
      """, before: { $0.commit(with: DeliveryOptions(store: store, isDurable: true)) })
    pipeline.run { store.waiting > 0 }
    #expect(scratch.read("out.log") == "")
    store.takeOne()
    var rows: [OutboxRow] = []
    pipeline.run {
      rows += store.disk.rows.values.filter { row in !rows.contains { $0.number == row.number } }
      store.takeOne()
      return store.disk.rows.isEmpty && rows.reduce(0) { $0 + $1.events } >= (decode == "ndjson" ? 500 : 900)
    }
    #expect(Set(rows.map { $0.bytes[0] }) == [kind])
    let wanted = (0..<1000).compactMap { number -> String? in
      guard decode == "ndjson" ? number % 2 == 0 : number % 10 != 1 else { return nil }
      return encode.contains("csv") ? "\(number)\n" : "{\"n\":\(number)}\n"
    }
    #expect(scratch.read("out.log") == (encode.contains("csv") ? "n\n" : "") + wanted.joined())
  }
}
