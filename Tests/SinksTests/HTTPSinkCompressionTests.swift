import CInflate
import Foundation
import PipelineCore
import PipelineHost
import PipelineTestSupport
import Synchronization
import Testing
import Transport

@testable import Sinks

/// Decompresses bodies.
enum Inflated {
  /// Nil if the bytes are not a complete gzip or zstd body.
  static func bytes(_ body: [UInt8]) -> [UInt8]? {
    var length = -1
    let text = [UInt8](unsafeUninitializedCapacity: 1 << 20) { room, count in
      length = inflate_body(body, body.count, room.baseAddress, room.count)
      count = max(0, length)
    }
    return length < 0 ? nil : text
  }

  /// Decompresses according to the request's header; empty if the header is wrong.
  static func text(_ exchange: ScriptedHTTP.Exchange) -> String {
    let body = exchange.request.body ?? []
    guard exchange.header("content-encoding") != nil else { return exchange.body }
    return bytes(body).map { String(decoding: $0, as: UTF8.self) } ?? ""
  }
}

/// Runs its jobs when the test says so. For one thread, that of the test.
final class HandWorker: Worker, @unchecked Sendable {
  private var waiting: [@Sendable () -> Void] = []
  private(set) var done = 0
  var count: Int { waiting.count }

  func enqueue(_ work: @escaping @Sendable () -> Void) { waiting.append(work) }

  /// Runs the oldest job; false if there is none.
  @discardableResult
  func work() -> Bool {
    guard !waiting.isEmpty else { return false }
    waiting.removeFirst()()
    done += 1
    return true
  }
}

@Suite struct HTTPSinkCompressionTests {
  /// Events of 1,001 bytes, `a...`, `b...` and so on.
  private func pipeline(_ parameters: String, events: String = "abcdef", worker: any Worker = ImmediateWorker())
    throws -> VirtualPipeline
  {
    let list = events.map { "'" + String(repeating: $0, count: 1000) + "'" }.joined(separator: ", ")
    return try .sending(parameters + ", encode: text", events: "[\(list)]", worker: worker)
  }

  /// The first letters of the events of each request.
  private func requests(_ pipeline: VirtualPipeline) -> [String] {
    pipeline.http.exchanges.map { exchange in
      String(Inflated.text(exchange).split(separator: "\n").compactMap(\.first))
    }
  }

  private let accept: (Int, ScriptedHTTP.Exchange) -> ScriptedHTTP.Answer? = { _, _ in ScriptedHTTP.status(200) }

  @Test(arguments: ["gzip", "zstd", "{ format: gzip, level: 1 }", "{ format: zstd, level: 19 }"])
  func compressesAndDeclaresIt(_ compress: String) throws {
    let sending = try pipeline("batch: 4, compress: \(compress)")
    sending.http.script = accept
    sending.run()
    #expect(requests(sending) == ["abcd", "ef"])
    let format = compress.contains("gzip") ? "gzip" : "zstd"
    for exchange in sending.http.exchanges {
      #expect(exchange.header("content-encoding") == format)
      #expect(exchange.header("content-type")?.hasPrefix("text/plain") == true)
      #expect((exchange.request.body ?? []).count < 150)
    }
    #expect(
      try Inflated.text(sending.http.exchanges.item(1)) == String(repeating: "e", count: 1000) + "\n"
        + String(repeating: "f", count: 1000) + "\n")
    #expect(sending.outcome == .completed)
    #expect(sending.counters.sent == 6)
  }

  @Test func smallBodiesGoAsTheyAre() throws {
    let sending = try pipeline("compress: gzip, batch: { count: 2, bytes: 1500B }", events: "ab")
    sending.http.script = accept
    sending.run()
    #expect(sending.http.exchanges.map { $0.header("content-encoding") } == [nil, nil])
    #expect(requests(sending) == ["a", "b"])
  }

  @Test(arguments: ["gzip", "zstd"])
  func theLevelMatters(_ name: String) throws {
    let format = try #require(Compressor.Format(rawValue: name))
    var chance: UInt32 = 1
    let text = (0..<20_000).map { _ -> UInt8 in
      chance = chance &* 1_664_525 &+ 1_013_904_223
      let letter = (chance >> 24) % 12
      let share = (chance >> 16) % 3 + 1
      return UInt8(97 + letter / share)
    }
    let sizes = try format.levels.map { level in
      let compressor = try #require(Compressor(format, level: level))
      let first = try #require(compressor.compress(text))
      #expect(compressor.compress(text) == first, "the same each time")
      #expect(Inflated.bytes(first) == text)
      return first.count
    }
    #expect(try #require(sizes.last) < sizes[0])
  }

  @Test func bodiesOfEachSizeComeOutAsTheyWere() throws {
    for format in [Compressor.Format.gzip, .zstd] {
      let compressor = try #require(Compressor(format, level: format.usualLevel))
      for count in [0, 1, 2, 1023, 65_535, 65_536, 1 << 20] {
        let bytes = (0..<count).map { UInt8(truncatingIfNeeded: $0 &* 2_654_435_761 >> 13) }
        #expect(compressor.compress(bytes).flatMap { Inflated.bytes($0) } == bytes, "\(format) \(count)")
      }
    }
  }

  @Test func whatIsRepeatedIsNotCompressedAnew() throws {
    let worker = HandWorker()
    let sending = try pipeline("batch: 6, compress: gzip", worker: worker)
    sending.http.script = { number, _ in ScriptedHTTP.status(number < 3 ? 503 : 200) }
    sending.run()
    #expect(sending.http.exchanges.isEmpty)
    #expect(worker.work())
    sending.run()
    #expect(requests(sending) == ["abcdef", "abcdef", "abcdef", "abcdef"])
    #expect(Set(sending.http.exchanges.map(\.request.body)).count == 1)
    #expect(Set(sending.http.exchanges.map { $0.header("idempotency-key") }).count == 1)
    #expect(worker.done == 1 && worker.count == 0)
    #expect(sending.outcome == .completed)
  }

  @Test func halvesAreCompressedAnew() throws {
    let sending = try pipeline("batch: 6, compress: zstd")
    sending.http.script = { _, exchange in ScriptedHTTP.status(Inflated.text(exchange).contains("d") ? 422 : 200) }
    sending.run()
    #expect(requests(sending) == ["abcdef", "abc", "def", "d", "ef"])
    #expect(sending.http.exchanges.map { $0.header("content-encoding") } == ["zstd", "zstd", "zstd", nil, "zstd"])
    #expect(sending.counters.rejected == 1 && sending.counters.sent == 5)
  }

  @Test func compressingCountsAsUnderWay() throws {
    let worker = HandWorker()
    let sending = try pipeline("batch: 2, compress: gzip, maxConcurrent: 2", worker: worker)
    sending.settle()
    #expect(worker.count == 2)
    worker.work()
    worker.work()
    sending.settle()
    #expect(requests(sending) == ["ab", "cd"])
    #expect(worker.count == 0)
    try sending.http.exchanges.item(1).answer(200)
    sending.settle()
    #expect(worker.count == 1)
    #expect(sending.counters.sent == 2)
  }

  @Test func aFailureHoldsBackWhatIsBeingCompressed() throws {
    let worker = HandWorker()
    let sending = try pipeline("batch: 2, compress: gzip, maxConcurrent: 2", worker: worker)
    sending.settle()
    worker.work()
    sending.settle()
    try sending.http.exchanges.item(0).answer(503, "", [HTTPHeader("Retry-After", "10")])
    sending.settle()
    worker.work()
    sending.run(until: .milliseconds(9_999))
    #expect(requests(sending) == ["ab"])
    sending.run(until: .seconds(10))
    #expect(requests(sending) == ["ab", "ab"])
    try sending.http.exchanges.item(1).answer(200)
    sending.settle()
    #expect(requests(sending) == ["ab", "ab", "cd"])
    #expect(worker.done == 2)
    #expect(worker.count == 1)
  }

  @Test func nothingIsSentAfterTheEnd() throws {
    let worker = HandWorker()
    let sending = try pipeline("batch: 2, compress: gzip, maxConcurrent: 3", worker: worker)
    sending.settle()
    worker.work()
    sending.settle()
    try sending.http.exchanges.item(0).answer(403)
    sending.settle()
    #expect(sending.failure?.message.contains("403") == true)
    while worker.work() {}
    sending.run()
    #expect(requests(sending) == ["ab"])
    #expect(sending.log.contains { $0.contains("had not acknowledged 6 events") }, "\(sending.log)")
  }

  @Test func aServerThatDoesNotKnowTheFormatEndsThePipeline() throws {
    let sending = try pipeline("batch: 2, compress: zstd")
    sending.http.script = { _, _ in ScriptedHTTP.status(415) }
    sending.run()
    #expect(
      sending.failure?.message
        == "POST answered 415, so the server does not accept bodies compressed with zstd: leave 'compress' out")
    let plain = try pipeline("compress: zstd", events: "a")
    plain.http.script = { _, _ in ScriptedHTTP.status(415) }
    plain.run()
    #expect(plain.failure?.message.contains("check the URL") == true, "it was not compressed")
  }

  @Test(arguments: [
    ("compress: lzma", "lzma"), ("compress: { format: gzip, level: 10 }", "supports 1 to 9"),
    ("compress: { format: zstd, level: 20 }", "level"), ("compress: { level: 3 }", "format"),
    ("compress: { format: none, level: 3 }", "has no effect"),
    ("compress: gzip, headers: { content-encoding: gzip }", "Content-Encoding"),
  ])
  func refusesAtCheckTime(_ parameters: String, _ reason: String) {
    let found = PipelineText.complaints(
      """
      sources: { events: { values: [1] } }
      sinks: { shop: { from: events, http: { url: 'http://h.example/', \(parameters) } } }
      """)
    #expect(found.count == 1 && found[0].contains(reason), "\(found)")
  }

  // MARK: In the real world

  @Test(arguments: ["gzip", "zstd", "none"])
  func arrivesAsItWas(_ format: String) throws {
    // No request is answered until four have arrived.
    let collection = Collection(together: 4)
    let server = try ScriptedServer(collection.serve)
    defer { server.stop() }
    let lines = (0..<4000).map { "{\"id\":\($0),\"text\":\"\(String(repeating: "ä", count: $0 % 50))\"}" }
    let scratch = Scratch()
    scratch.append(lines.joined(separator: "\n") + "\n", to: "in.ndjson")
    let sending = try RealPipeline(
      """
      sources: { lines: { file: { path: '\(scratch("in.ndjson"))', decode: ndjson } } }
      sinks:
        shop:
          from: lines
          http:
            url: '\(server.url)/in'
            encode: ndjson
            batch: 100
            maxConcurrent: 4
            compress: \(format)
      """, http: CurlClient())
    #expect(sending.runToEnd() == .completed)
    let bodies = collection.bodies
    #expect(bodies.count == 40)
    #expect(bodies.allSatisfy { $0.encoding == (format == "none" ? nil : format) })
    let texts = bodies.map { body in
      String(decoding: format == "none" ? body.bytes : Inflated.bytes(body.bytes) ?? [], as: UTF8.self)
    }
    #expect(texts.flatMap { $0.split(separator: "\n").map(String.init) }.sorted() == lines.sorted())
    #expect(sending.counters.sent == 4000)
  }
}

/// The requests that an HTTP server on loopback receives.
private final class Collection: Sendable {
  struct Body: Sendable {
    var encoding: String?
    var bytes: [UInt8]
  }

  private let received = Mutex<[Body]>([])
  private let hasCome = DispatchSemaphore(value: 0)
  private let together: Int

  var bodies: [Body] { received.withLock { $0 } }

  /// - Parameter together: how many requests must arrive before the first is answered.
  init(together: Int) { self.together = together }

  func serve(_ connection: Connection) {
    while let (head, bytes) = connection.message() {
      let fields = head.lowercased().components(separatedBy: "\r\n")
      let encoding = fields.first { $0.hasPrefix("content-encoding:") }?.split(separator: ":").last
      let body = Body(encoding: encoding.map { $0.trimmingCharacters(in: .whitespaces) }, bytes: bytes)
      let count = received.withLock { bodies in
        bodies.append(body)
        return bodies.count
      }
      if count == together { for _ in 1..<together { hasCome.signal() } }
      if count < together { hasCome.wait() }
      guard connection.send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n") else { return }
    }
  }
}
