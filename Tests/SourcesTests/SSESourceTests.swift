import PipelineHost
import PipelineTestSupport
import Synchronization
import Testing
import Transport

@testable import PipelineCore
@testable import Sources_

/// The source `sse`: messages, reconnections, and the positions from which they continue.
@Suite struct SSESourceTests {
  private static func yaml(_ parameters: String) -> String {
    """
    name: t
    sources: { feed: { sse: { url: 'http://h.example/feed?key=1', decode: text\(parameters) } } }
    signals: { seen: { from: feed, chain: [ { map: '[meta.event, meta.eventId, event]' } ] } }
    sinks:
      out: { from: seen, probe: {} }
      bad: { from: feed.errors, chain: [ { map: event.error } ], probe: {} }
    """
  }

  private func feed(
    _ parameters: String = "", restoring state: [UInt8]? = nil,
    _ script: @escaping (Int, ScriptedHTTP.Exchange) -> ScriptedHTTP.Answer?
  ) throws -> VirtualPipeline {
    let feed = try VirtualPipeline(Self.yaml(parameters), random: .max, restoring: state)
    feed.http.script = script
    return feed
  }

  private static func answer(_ body: String, _ status: Int = 200, _ type: String = "text/event-stream; charset=utf-8")
    -> ScriptedHTTP.Answer
  { ScriptedHTTP.status(status, body, [HTTPHeader("Content-Type", type)]) }

  private func seconds(_ feed: VirtualPipeline) -> [Int64] { feed.http.times.map { $0.nanoseconds / 1_000_000_000 } }

  @Test func messagesAreEventsAndTheFeedContinuesBehindThem() throws {
    let following = try feed { number, _ in
      switch number {
      case 0: Self.answer("retry: 5000\nid: 1\nevent: new\ndata: a\ndata: b\n\n: comment\n\ndata: c\n\ndata: lost")
      case 1: Self.answer("id: 2\ndata: d\n\nid\ndata: e\n\n")
      case 2: Self.answer("id: 3\n\n")
      default: Self.answer("", 204)
      }
    }
    following.run()
    #expect(
      following.out == [
        #"0s ["new","1","a\nb"]"#, #"0s ["message","1","c"]"#, #"5s ["message","2","d"]"#, #"5s ["message","","e"]"#,
        "15s |",
      ])
    #expect(seconds(following) == [0, 5, 10, 15])
    #expect(following.http.exchanges.map { $0.header("Last-Event-ID") } == [nil, "1", nil, nil])
    #expect(try following.http.exchanges.item(0).header("Accept") == "text/event-stream")
    #expect(following.outcome == .completed)
  }

  /// A feed can request a longer pause, but not none.
  @Test(arguments: [
    ("", "retry: 0", 1000), ("", "retry: 7", 1000), (", reconnect: 200ms", "retry: 0", 200), ("", "retry: 2000", 2000),
  ])
  func aFeedCannotAskForNoPause(_ parameters: String, _ retry: String, _ milliseconds: Int64) throws {
    let following = try feed(parameters) { _, _ in Self.answer("\(retry)\ndata: x\n\n") }
    following.run(until: .seconds(10))
    let times = following.http.times.map { $0.nanoseconds / 1_000_000 }
    #expect(times.count > 4 && times.enumerated().allSatisfy { $1 == Int64($0) * milliseconds }, "\(times)")
  }

  /// A feed that requires an access token: fetched, cached, and renewed when the feed rejects it.
  @Test func aFeedGetsAnAccessToken() throws {
    let seen = Mutex<[String]>([])
    let server = try ScriptedServer { connection in
      while let request = connection.message() {
        let line = String(request.head.prefix { $0 != "\r\n" })
        let auth = request.head.split(separator: "\r\n").first { $0.hasPrefix("Authorization: ") } ?? "-"
        let count = seen.withLock { seen in
          seen.append(line.hasPrefix("POST") ? "token" : String(auth))
          return seen.count { $0 == "token" }
        }
        if line.hasPrefix("POST") {
          let body = #"{"access_token":"t\#(count)","token_type":"Bearer"}"#
          connection.send("HTTP/1.1 200 OK\r\nContent-Length: \(body.utf8.count)\r\n\r\n\(body)")
        } else if auth == "Authorization: Bearer t2" {
          let body = "data: one\n\n"
          connection.send(
            "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: \(body.utf8.count)\r\n\r\n\(body)")
        } else {
          connection.send("HTTP/1.1 401 Unauthorized\r\nContent-Length: 2\r\n\r\nno")
        }
      }
    }
    let pipeline = try RealPipeline(
      """
      sources:
        feed:
          sse:
            { url: '\(server.url)/feed', decode: text, reconnect: 1h, maxReconnect: 1h, auth: { oauth2: { tokenURL: '\(server.url)/token', clientID: me, clientSecret: pw } } }
      sinks: { out: { from: feed, probe: {} } }
      """, http: CurlClient())
    pipeline.run { pipeline.events.count == 1 }
    #expect(pipeline.events == [#""one""#])
    #expect(seen.withLock { $0 } == ["token", "Authorization: Bearer t1", "token", "Authorization: Bearer t2"])
    pipeline.inTurn { $0.execution.drain() }
    #expect(pipeline.runToEnd() == .completed)
    server.stop()
  }

  @Test func pausesGrowWithFailuresInARow() throws {
    let following = try feed(", reconnect: 1s, maxReconnect: 4s") { number, _ in
      number == 5
        ? Self.answer("data: x\n\n")
        : number == 2 ? Self.answer("", 503) : .failure(HTTPFailure(.connect, "cannot connect to h.example:80"))
    }
    following.run(until: .seconds(16))
    #expect(seconds(following) == [0, 1, 3, 7, 11, 15, 16])
    #expect(following.out == [#"15s ["message","","x"]"#])
    #expect(following.log.count { $0.contains("connecting again") } == 2, "\(following.log)")
    #expect(following.log.contains { $0.contains("connected again") })
  }

  @Test func aServerMayAskForALongerPause() throws {
    let following = try feed { number, _ in
      number == 0 ? ScriptedHTTP.status(429, "", [HTTPHeader("Retry-After", "50")]) : Self.answer("", 204)
    }
    following.run()
    #expect(seconds(following) == [0, 50])
  }

  @Test func silenceEndsAConnection() throws {
    let following = try feed(", idleTimeout: 20s") { number, _ in number == 0 ? nil : Self.answer("", 204) }
    following.run()
    #expect(seconds(following) == [0, 23])
    #expect(try following.http.exchanges.item(0).isCancelled)
    #expect(following.log.contains { $0.contains("the feed was silent for 20s; connecting again") }, "\(following.log)")
  }

  @Test(arguments: [
    (404, "text/event-stream", "the feed answered 404"),
    (200, "text/html", "the answer is not a feed: its type is 'text/html'"),
    (301, "text/event-stream", "the feed answered 301"),
  ]) func whatIsNoFeedEndsTheSignal(_ status: Int, _ type: String, _ message: String) throws {
    let following = try feed { _, _ in Self.answer("data: x\n\n", status, type) }
    following.run()
    #expect(following.failure?.message.hasPrefix(message) == true, "\(String(describing: following.outcome))")
    #expect(following.failure?.details == [.init("status", Int64(status))])
    #expect(following.http.exchanges.count == 1 && following.probe().events.isEmpty)
  }

  @Test func aMessageHasALimit() throws {
    let following = try feed(", maxMessage: 64B") { number, _ in
      number == 0
        ? Self.answer("id: 1\ndata: ok\n\ndata: \(String(repeating: "x", count: 80))\n\n") : Self.answer("", 204)
    }
    following.run()
    #expect(following.out.count == 2 && following.out[0] == #"0s ["message","1","ok"]"#, "\(following.out)")
    #expect(following.log.contains { $0.contains("a message is longer than 64 bytes") })
    #expect(following.http.exchanges.last?.header("Last-Event-ID") == "1")
  }

  @Test func theIDIsSaved() throws {
    let first = try feed { number, _ in number == 0 ? Self.answer("id: 41\ndata: a\n\nid: 42\ndata: b\n\n") : nil }
    first.run(until: .seconds(1))
    let state = try #require(first.execution.saveState())
    for (parameters, id) in [("", "42"), (", idleTimeout: 10s", "42")] {
      let second = try feed(parameters, restoring: state) { _, _ in Self.answer("", 204) }
      second.run()
      #expect(second.execution.refusals.isEmpty)
      #expect(second.http.exchanges.map { $0.header("Last-Event-ID") } == [id])
    }
    let elsewhere = try VirtualPipeline(
      Self.yaml("").replacing("/feed?", with: "/other?"), restoring: state)
    elsewhere.settle()
    #expect(elsewhere.http.exchanges.map { $0.header("Last-Event-ID") } == [nil])
  }

  /// However the bytes are divided into reads.
  @Test(arguments: 1...20) func messagesAreThoseOfTheWholeText(_ seed: UInt64) {
    let text =
      "\u{FEFF}id: 1\r\ndata: a\r\rdata:b\ndata:  c\r\n\r\nevent: x\ndata\n\nretry: 7\nretry: x\nnobody: knows\n:\ndata: é\n\nid: a\0b\ndata: d\n\ndata: cut"
    func items(_ pieces: [[UInt8]]) -> [String] {
      var parser = SSEParser(limit: 1000)
      var found: [String] = []
      for piece in pieces {
        let isTaken = parser.take(piece) { item in
          switch item {
          case .message(let message):
            found.append("\(message.type) \(message.id ?? "-") \(String(decoding: message.data, as: UTF8.self))")
          case .retry(let milliseconds): found.append("retry \(milliseconds)")
          }
        }
        #expect(isTaken)
      }
      return found
    }
    let bytes = Array(text.utf8)
    var random = SplitMix(seed)
    var pieces: [[UInt8]] = []
    var at = 0
    while at < bytes.count {
      let end = min(bytes.count, at + 1 + Int(random.below(7)))
      pieces.append(Array(bytes[at..<end]))
      at = end
    }
    #expect(items(pieces) == ["message 1 a", "message 1 b\n c", "x 1 ", "retry 7", "message 1 é", "message 1 d"])
  }

  // MARK: Real connections

  /// Both of rxd's ends: the source receives what the sink sends while the connection stays open.
  @Test func followsTheSinkOfThisName() throws {
    let sender = TrackedSource()
    let sink = try RealPipeline(
      "sources: { in: { never: {} } }\nsinks: { out: { from: in, sse: { address: '127.0.0.1:0', id: '{{ event }}' } } }"
    ) { execution in
      execution.replacements.sources = { $0 == "in" ? sender : nil }
    }
    let port = try #require(sink.port())
    let follower = try RealPipeline(
      """
      sources: { feed: { sse: { url: 'http://127.0.0.1:\(port)/events', reconnect: 1ms } } }
      sinks: { out: { from: feed, chain: [ { map: '[event, meta.eventId]' } ], probe: {} } }
      """, http: CurlClient())
    var number: Int64 = 0
    // Events sent before the follower is connected are lost.
    while follower.events.isEmpty, number < 10_000 {
      number += 1
      sender.feed.send(Int(number), [number])
      let wanted = UInt64(number)
      sink.run { sink.counters.received >= wanted }
      follower.run(within: .milliseconds(20)) { !follower.events.isEmpty }
    }
    let first = follower.events.count
    sender.feed.send(Int(number) + 1, [100_001, 100_002])
    sink.run { sink.counters.received >= UInt64(number) + 2 }
    follower.run { follower.events.count >= first + 2 }
    #expect(Array(follower.events.suffix(2)) == [#"[100001,"100001"]"#, #"[100002,"100002"]"#])
  }

  /// A receiver that handles nothing gets no more than the maximum of outstanding events; the rest follows.
  @Test func aSlowReceiverSlowsTheFeedDown() throws {
    let total = 4 << 20
    let server = try ScriptedServer { connection in
      guard let (head, _) = connection.message() else { return }
      if head.hasPrefix("GET /small") {
        connection.send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
      } else {
        connection.send("HTTP/1.1 200 OK\r\nContent-Length: \(total)\r\nConnection: close\r\n\r\n")
        connection.send([UInt8](repeating: 0x78, count: total))
      }
    }
    defer { server.stop() }
    let client = CurlClient()
    let received = Guarded((bytes: 0, isOver: false, status: 0))
    let call = client.stream(HTTPRequest(url: "\(server.url)/large")) { part in
      received.withLock {
        switch part {
        case .head(let response): $0.status = response.status
        case .bytes(let bytes): $0.bytes += bytes.count
        case .end(let failure): $0.isOver = failure == nil
        }
      }
      received.notify()
    }
    let deadline = monotonicNow() + 600_000_000_000
    let most = 256 << 10
    #expect(received.wait(until: deadline) { $0.bytes >= most ? true : nil } == true)
    // The thread of all requests does other work meanwhile, and would read more if it could.
    for _ in 0..<20 {
      let isAnswered = Guarded(false)
      _ = client.send(HTTPRequest(url: "\(server.url)/small")) { _ in
        isAnswered.withLock { $0 = true }
        isAnswered.notify()
      }
      #expect(isAnswered.wait(until: deadline) { $0 ? true : nil } == true)
    }
    var seen = received.withLock(\.bytes)
    #expect(seen < most + (64 << 10) && received.withLock(\.status) == 200, "\(seen)")
    var handled = 0
    while !received.withLock(\.isOver), monotonicNow() < deadline {
      call.handled(seen - handled)
      handled = seen
      let before = seen
      seen = received.wait(until: deadline) { $0.bytes > before || $0.isOver ? $0.bytes : nil } ?? seen
    }
    #expect(seen == total)
  }
}
