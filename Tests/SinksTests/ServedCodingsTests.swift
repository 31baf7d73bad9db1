import Foundation
import PipelineCore
import PipelineHost
import Synchronization
import Testing
import Transport

/// Compressed request bodies.
@Suite struct ServedCodingsTests {
  private let serving: RealPipeline
  private let url: String
  private let client = CurlClient()

  init() throws {
    serving = try RealPipeline(
      """
      sources: { events: { httpServer: { address: '127.0.0.1:0', decode: ndjson, maxBody: 64KiB } } }
      sinks:
        out: { from: events, probe: {} }
        bad: { from: events.errors, probe: {} }
      """)
    url = "http://127.0.0.1:\(try #require(serving.port()))/"
  }

  private func post(_ body: [UInt8], _ coding: String...) throws -> HTTPResponse {
    var request = HTTPRequest(
      method: "POST", url: url, headers: coding.map { HTTPHeader("Content-Encoding", $0) }, body: body)
    request.options.timeout = .seconds(60)
    return try ask(serving, client, request)
  }

  static let text = "{\"n\":1}\n{\"n\":2,\"t\":\"\(String(repeating: "ab", count: 500))\"}\n"
  private static func gzip(_ bytes: [UInt8]) throws -> [UInt8] {
    let compressor = try #require(Compressor(.gzip, level: 6))
    return try #require(compressor.compress(bytes))
  }
  private static func zstd(_ bytes: [UInt8]) throws -> [UInt8] {
    let compressor = try #require(Compressor(.zstd, level: 3))
    return try #require(compressor.compress(bytes))
  }
  /// Raw deflate, without the gzip format.
  private static func raw(_ bytes: [UInt8]) throws -> [UInt8] { Array(try gzip(bytes).dropFirst(10).dropLast(8)) }
  /// In the zlib format.
  private static func deflate(_ bytes: [UInt8]) throws -> [UInt8] {
    var (a, b) = (UInt32(1), UInt32(0))
    for byte in bytes {
      a = (a + UInt32(byte)) % 65521
      b = (b + a) % 65521
    }
    return [0x78, 0x9C] + (try raw(bytes)) + withUnsafeBytes(of: (b << 16 | a).bigEndian) { Array($0) }
  }

  @Test func takesWhatIsCompressed() throws {
    let bytes = Array(Self.text.utf8)
    let bodies: [(coding: String, body: [UInt8])] = [
      ("gzip", try Self.gzip(bytes)), ("GZip", try Self.gzip(bytes)), ("x-gzip", try Self.gzip(bytes)),
      ("zstd", try Self.zstd(bytes)), ("deflate", try Self.deflate(bytes)), ("deflate", try Self.raw(bytes)),
      ("identity", bytes),
      // Several members, several frames.
      ("gzip", try Self.gzip(Array(bytes.prefix(8))) + Self.gzip(Array(bytes.dropFirst(8)))),
      ("zstd", try Self.zstd(Array(bytes.prefix(8))) + Self.zstd(Array(bytes.dropFirst(8)))),
    ]
    let lines = Self.text.split(separator: "\n").map(String.init)
    for (number, one) in bodies.enumerated() {
      #expect(try post(one.body, one.coding).status == 200, "\(number)")
      #expect(serving.events.suffix(2) == lines[...], "\(number)")
    }
    #expect(serving.events.count == 2 * bodies.count)
    #expect(try post([], "gzip").status == 200)
  }

  @Test func refusesWhatBecomesTooLarge() throws {
    let zeros = [UInt8](repeating: 0x20, count: 16 << 20)
    for (coding, body) in [
      ("gzip", try Self.gzip(zeros)), ("zstd", try Self.zstd(zeros)), ("deflate", try Self.deflate(zeros)),
    ] {
      #expect(body.count < 64 << 10)
      #expect(try post(body, coding).status == 413, "\(coding)")
    }
    // The maximum size, and one byte more.
    let line = "\"\(String(repeating: "x", count: (64 << 10) - 3))\"\n"
    #expect(try post(Self.gzip(Array(line.utf8)), "gzip").status == 200)
    #expect(try post(Self.zstd(Array((line + " ").utf8)), "zstd").status == 413)
    #expect(try post(Self.gzip(Array((line + " ").utf8)), "gzip").status == 413)
    #expect(serving.events.count == 1)
  }

  @Test func refusesWhatIsDamaged() throws {
    let bytes = Array(Self.text.utf8)
    var flipped = try Self.gzip(bytes)
    flipped[flipped.count - 6] ^= 1
    let bodies: [(String, [UInt8])] = [
      ("gzip", bytes), ("zstd", bytes), ("gzip", flipped), ("gzip", try Self.gzip(bytes).dropLast(1)),
      ("zstd", try Self.zstd(bytes).dropLast(1)), ("deflate", try Self.raw(bytes).dropLast(2)),
      ("gzip", try Self.gzip(bytes) + [1, 2, 3]), ("deflate", try Self.deflate(bytes) + [0]),
      ("gzip", try Self.zstd(bytes)), ("gzip", [0x1F]),
    ]
    for (number, one) in bodies.enumerated() {
      let answer = try post(one.1, one.0)
      #expect(answer.status == 400, "\(number)")
      #expect(String(decoding: answer.body, as: UTF8.self).contains("cannot be decompressed"))
      #expect(serving.probe("bad").events.count == number + 1)
    }
    #expect(serving.probe("bad").events.first?.contains("the body is not gzip, its Content-Encoding") == true)
    #expect(serving.events == [])
  }

  @Test func refusesOtherCodings() throws {
    for codings in [["br"], ["gzip, gzip"], ["gzip", "gzip"], ["compress"]] {
      var request = HTTPRequest(
        method: "POST", url: url, headers: codings.map { HTTPHeader("Content-Encoding", $0) },
        body: Array(Self.text.utf8))
      request.options.timeout = .seconds(60)
      let answer = try ask(serving, client, request)
      #expect(answer.status == 415, "\(codings)")
      #expect(answer.header("accept-encoding") == "gzip, deflate, zstd")
    }
    #expect(serving.events == [])
  }

  @Test func theRequestHasTheContent() throws {
    let asked = try RealPipeline(
      """
      sources: { requests: { httpServer: '127.0.0.1:0' } }
      signals: { seen: { from: requests, chain: [ { map: "[event.body, 'content-encoding' in event.headers]" } ] } }
      sinks: { out: { from: seen, reply: {} } }
      """)
    let request = HTTPRequest(
      method: "POST", url: "http://127.0.0.1:\(try #require(asked.port()))/",
      headers: [HTTPHeader("Content-Encoding", "gzip")], body: try Self.gzip(Array("höllo".utf8)))
    let answer = try ask(asked, client, request)
    #expect(String(decoding: answer.body, as: UTF8.self) == #"["höllo",false]"#)
  }

  /// A body may be as large as the budget: its head does not count.
  @Test func theLargestBodyFitsIntoTheBudget() throws {
    let taking = try RealPipeline(
      """
      sources: { events: { httpServer: { address: '127.0.0.1:0', decode: text, maxBody: 1MiB, maxBuffered: 1MiB } } }
      sinks: { out: { from: events, discard: {} } }
      """)
    let url = "http://127.0.0.1:\(try #require(taking.port()))/"
    for _ in 0..<3 {
      var request = HTTPRequest(method: "POST", url: url, body: [UInt8](repeating: 0x61, count: 1 << 20))
      request.options.timeout = .seconds(60)
      #expect(try ask(taking, client, request).status == 200)
    }
  }

  /// The server accepts what rxd's own sink compresses.
  @Test(arguments: ["gzip", "zstd"]) func theSinkIsUnderstood(_ format: String) throws {
    let sending = try RealPipeline(
      """
      sources: { made: { values: { list: [{ n: 1 }, { n: 2 }, { n: 3 }] } } }
      signals: { padded: { from: made, chain: [ { set: { text: "'\(String(repeating: "z", count: 800))'" } } ] } }
      sinks: { out: { from: padded, http: { url: '\(url)', encode: ndjson, batch: 3, compress: \(format) } } }
      """, http: client)
    nonisolated(unsafe) let serving = serving
    nonisolated(unsafe) var isOver = false
    let thread = try OwnThread("serve") {
      serving.run(within: .seconds(60)) { answersQueue.sync { isOver } }
    }
    #expect(sending.runToEnd() == .completed, "\(String(describing: sending.outcome))")
    answersQueue.sync { isOver = true }
    serving.ring()
    thread.join()
    #expect(serving.events.count == 3)
  }

  /// Sends a request and runs the pipeline's turns until the answer arrives.
  private func ask(_ pipeline: RealPipeline, _ client: CurlClient, _ request: HTTPRequest) throws -> HTTPResponse {
    final class Box: @unchecked Sendable { var result: Result<HTTPResponse, HTTPFailure>? }
    let box = Box()
    let ring = pipeline.ring
    let exchange = client.send(request) { result in
      answersQueue.sync { box.result = result }
      ring()
    }
    #expect(pipeline.run { answersQueue.sync { box.result != nil } })
    withExtendedLifetime(exchange) {}
    return try #require(answersQueue.sync { box.result }).get()
  }
}

/// Protects the answers that are passed to the thread of a test.
private let answersQueue = DispatchQueue(label: "answers")
