import Foundation
import PipelineCore
import PipelineHost
import Synchronization
import Testing

@testable import Transport

@Suite struct HTTPServerTests {
  /// Answers 200 with method, path, query and body; holds the requests that it is told to hold.
  private final class Echo: Sendable {
    let server: HTTPServer
    let port: Int
    private let recorder: Recorder

    private final class Recorder: Sendable { let requests = Mutex(0) }
    var handled: Int { recorder.requests.withLock { $0 } }

    init(
      _ change: (inout HTTPServer.Options) -> Void = { _ in },
      answer: @escaping @Sendable (ServerRequest) -> Void = Echo.echo
    ) throws {
      var options = HTTPServer.Options()
      change(&options)
      server = HTTPServer(options: options)
      let seen = Recorder()
      port = try server.start {
        seen.requests.withLock { $0 += 1 }
        answer($0)
      }
      recorder = seen
    }

    static let echo: @Sendable (ServerRequest) -> Void = { request in
      let query = request.query.map { "\($0.name)=\($0.value)" }.joined(separator: ",")
      let body = String(decoding: request.body.bytes, as: UTF8.self)
      request.reply.reply(
        status: 200, headers: [("X-Path", request.path)],
        body: Array("\(request.method) \(query) \(body)".utf8))
    }

    deinit { server.stop(within: .zero) }

    /// Sends the text and reads to the end of the connection.
    func exchange(_ text: String) throws -> String {
      let connection = try Connection(port: port)
      connection.send(text)
      return connection.readAll()
    }
  }

  private static func status(_ answer: String) -> String {
    answer.split(separator: " ").dropFirst().first.map(String.init) ?? "none"
  }

  @Test func decodesTheRequest() throws {
    let echo = try Echo()
    let answer = try echo.exchange(
      "POST /a/b?x=1%202&y=%C3%BC+z&empty&=v HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\n"
        + "Connection: close\r\n\r\nbody")
    #expect(answer.contains("X-Path: /a/b\r\n"))
    #expect(answer.hasSuffix("\r\n\r\nPOST x=1 2,y=ü z,empty=,=v body"))
  }

  @Test func answersPipelinedRequestsInOrder() throws {
    // The first answer is given last.
    let held = Box<any ReplyTarget>()
    let echo = try Echo(answer: { request in
      if request.path == "/first" {
        held.value.withLock { $0 = request.reply }
        _ = try? OwnThread("late") {
          let reply = held.value.withLock { $0.take() }
          reply?.reply(status: 200, headers: [], body: Array("one".utf8))
        }
      } else {
        request.reply.reply(status: 200, headers: [], body: Array("two".utf8))
      }
    })
    let answer = try echo.exchange(
      "GET /first HTTP/1.1\r\nHost: localhost\r\n\r\nGET /second HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    )
    let first = try #require(answer.range(of: "one"))
    let second = try #require(answer.range(of: "two"))
    #expect(first.lowerBound < second.lowerBound)
    #expect(echo.handled == 2)
  }

  @Test func keepsConnectionsOpen() throws {
    let echo = try Echo()
    let connection = try Connection(port: echo.port)
    for round in 0..<50 {
      connection.send("GET /?n=\(round) HTTP/1.1\r\nHost: localhost\r\n\r\n")
      let answer = try #require(connection.message())
      #expect(String(decoding: answer.body, as: UTF8.self) == "GET n=\(round) ")
    }
  }

  @Test func answersHeadWithoutBody() throws {
    let echo = try Echo()
    let answer = try echo.exchange("HEAD / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    #expect(answer.contains("Content-Length: 6\r\n"))
    #expect(answer.hasSuffix("\r\n\r\n"))
  }

  @Test func reportsContinueBeforeTheBody() throws {
    let echo = try Echo()
    let connection = try Connection(port: echo.port)
    connection.send(
      "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n")
    #expect(connection.message()?.head == "HTTP/1.1 100 Continue")
    connection.send("ok")
    #expect(connection.message().map { String(decoding: $0.body, as: UTF8.self) } == "POST  ok")
  }

  @Test func refusesWhatIsTooLong() throws {
    let echo = try Echo {
      $0.rules.maxBodyBytes = 10
      $0.maxHeaderBytes = 1000
      $0.maxHeaderLines = 10
    }
    let declared = "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 11\r\nExpect: 100-continue\r\n\r\n"
    #expect(Self.status(try echo.exchange(declared)) == "413")
    let chunked = "POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    #expect(Self.status(try echo.exchange(chunked + "6\r\nabcdef\r\n6\r\nabcdef\r\n")) == "413")
    let huge = "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999999999999999\r\n\r\n"
    #expect(["400", "413"].contains(Self.status(try echo.exchange(huge))))
    let wide = "GET / HTTP/1.1\r\nHost: localhost\r\nX: \(String(repeating: "x", count: 2000))\r\n\r\n"
    #expect(Self.status(try echo.exchange(wide)) == "431")
    let many = String(repeating: "X: y\r\n", count: 11)
    #expect(Self.status(try echo.exchange("GET / HTTP/1.1\r\nHost: localhost\r\n\(many)\r\n")) == "431")
    let target = String(repeating: "a", count: 2000)
    #expect(Self.status(try echo.exchange("GET /\(target) HTTP/1.1\r\nHost: localhost\r\n\r\n")) == "431")
    #expect(echo.handled == 0)
  }

  /// Forms in which two readers could disagree about the end of a request.
  static let smuggled = [
    "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n",
    "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
    "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\nContent-Length: 3\r\n\r\nabc",
    "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3, 3\r\n\r\nabc",
    "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: +3\r\n\r\nabc",
    "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0x3\r\n\r\nabc",
    "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\nabc",
    "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length:\r\n\r\n",
    "POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
    "POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    "POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
    "POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding:\u{0b}chunked\r\n\r\n0\r\n\r\n",
    "POST / HTTP/1.0\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "POST / HTTP/1.1\r\nHost: localhost\r\n Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n\r\n",
    "POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n0x1\r\na\r\n0\r\n\r\n",
    "POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\na",
    "GET / HTTP/1.1\r\nHost: localhost\r\nHost: i\r\n\r\n",
    "GET / HTTP/1.1\r\nX: 1\r\n\r\n",
    "GET / HTTP/1.1\r\nHost: localhost\r\nX\u{0}Y: 1\r\n\r\n",
    "GET / HTTP/1.1\r\nHost: localhost\r\nno colon\r\n\r\n",
    "GET / HTTP/2.0\r\nHost: localhost\r\n\r\n",
    "GET /\u{1} HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "CONNECT h:80 HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "G\u{0}T / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "\u{16}\u{3}\u{1}\u{2}\u{0}\u{1}",
  ]

  @Test(arguments: smuggled) func refusesAmbiguousRequests(_ text: String) throws {
    let echo = try Echo()
    let answer = try echo.exchange(text + "GET /smuggled HTTP/1.1\r\nHost: localhost\r\n\r\n")
    #expect(Self.status(answer) == "400", "\(text.debugDescription)")
    #expect(echo.handled == 0)
    #expect(answer.components(separatedBy: "HTTP/1.1 ").count == 2)
  }

  @Test func cutsSlowClients() throws {
    let echo = try Echo {
      $0.limits.header = .milliseconds(100)
      $0.limits.body = .milliseconds(100)
      $0.limits.idle = .milliseconds(100)
    }
    #expect(Self.status(try echo.exchange("GET / HT")) == "408")
    #expect(
      Self.status(
        try echo.exchange("POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\nab")) == "408")
    // An idle connection is closed without an answer.
    let answer = try echo.exchange("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
    #expect(answer.hasSuffix("GET  "))
  }

  @Test func answersWhenNobodyElseDoes() throws {
    let kept = Box<any ReplyTarget>()
    let late = try Echo(
      { $0.rules.replyTimeout = .milliseconds(100) },
      answer: { request in kept.value.withLock { $0 = request.reply } })
    let request = "GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    #expect(Self.status(try late.exchange(request)) == "504")
    let dropped = try Echo(answer: { _ in })
    #expect(Self.status(try dropped.exchange(request)) == "503")
  }

  @Test func countsTheFirstAnswerOnly() throws {
    let results = Box<[Bool]>()
    let echo = try Echo(answer: { request in
      let first = request.reply.reply(status: 202, headers: [("A", "b\r\nEvil: 1")], body: [])
      let second = request.reply.reply(status: 500, headers: [], body: [])
      results.value.withLock { $0 = [first, second] }
    })
    let answer = try echo.exchange("GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    #expect(Self.status(answer) == "202")
    #expect(!answer.contains("Evil"))
    #expect(results.value.withLock { $0 } == [true, false])
  }

  /// The handler is woken once for requests that arrive together, not for each.
  @Test func handsOverTogetherWhatComesTogether() throws {
    enum Call: Equatable { case request, handOver }
    let calls = Guarded<[Call]>([])
    let (isHeld, mayGoOn) = (WaitOnce(), WaitOnce())
    let server = HTTPServer()
    defer { server.stop(within: .zero) }
    let handOver: @Sendable () -> Void = {
      calls.withLock { $0.append(.handOver) }
      calls.notify()
    }
    let port = try server.start(handOver: handOver) { request in
      calls.withLock { $0.append(.request) }
      if request.path == "/hold" {
        isHeld.signal()
        mayGoOn.wait()
      }
      request.reply.reply(status: 200, headers: [], body: [])
    }
    let get = { (path: String) in "GET \(path) HTTP/1.1\r\nHost: localhost\r\n\r\n" }
    let connections = try (0..<20).map { _ in try Connection(port: port) }
    for connection in connections {
      connection.send(get("/"))
      _ = try #require(connection.message())
    }
    // One after another: each separately.
    let before = calls.wait(until: monotonicNow() + 60_000_000_000) { $0.count == 40 ? $0 : nil }
    #expect(before == Array(repeating: [.request, .handOver], count: 20).flatMap(\.self))
    calls.withLock { $0 = [] }
    connections[0].send(get("/hold"))
    isHeld.wait()
    // While the network thread waits, requests arrive on all other connections.
    for connection in connections.dropFirst() { connection.send(get("/")) }
    mayGoOn.signal()
    for connection in connections { _ = try #require(connection.message()) }
    let after = calls.wait(until: monotonicNow() + 60_000_000_000) {
      $0.last == .handOver && $0.count(where: { $0 == .request }) == 20 ? $0 : nil
    }
    // On a loaded machine they may arrive in a few parts.
    let handOvers = try #require(after).count { $0 == .handOver }
    #expect(handOvers >= 2 && handOvers <= 6, "\(handOvers)")
    #expect(after?.prefix(2) == [.request, .handOver])
  }

  /// Answers given together from another thread each reach their connection.
  @Test func answersThatComeTogetherGoWhereTheyBelong() throws {
    let server = HTTPServer()
    defer { server.stop(within: .zero) }
    let arrived = WaitOnce()
    let port = try server.start { request in
      server.queue.add(request)
      arrived.signal()
    }
    let connections = try (0..<50).map { _ in try Connection(port: port) }
    for round in 1...20 {
      for (number, connection) in connections.enumerated() {
        connection.send("GET /\(number)/\(round) HTTP/1.1\r\nHost: localhost\r\n\r\n")
      }
      #expect(arrived.wait(round * connections.count))
      while let request = server.queue.take().request {
        request.reply.reply(status: 200, headers: [], body: Array(request.path.utf8))
      }
      for (number, connection) in connections.enumerated() {
        let answer = try #require(connection.message())
        #expect(String(decoding: answer.body, as: UTF8.self) == "/\(number)/\(round)")
      }
    }
  }

  /// An answer that the socket does not accept immediately arrives whole, and before the next one.
  @Test func largeAnswersOfPipelinedRequestsArriveWhole() throws {
    let body = { @Sendable (number: Int) in
      [UInt8](repeating: UInt8(ascii: "0") + UInt8(number), count: 6_000_000 + number)
    }
    let echo = try Echo(answer: { request in
      let number = Int(request.path.dropFirst()) ?? 0
      request.reply.reply(status: 200, headers: [], body: number == 2 ? Array("small".utf8) : body(number))
    })
    let connection = try Connection(port: echo.port)
    let continued = "POST /3 HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\nok"
    connection.send(
      "GET /1 HTTP/1.1\r\nHost: localhost\r\n\r\nGET /2 HTTP/1.1\r\nHost: localhost\r\n\r\n" + continued
        + "GET /4 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    #expect(connection.message()?.body == body(1))
    #expect(connection.message()?.body == Array("small".utf8))
    #expect(connection.message()?.head == "HTTP/1.1 100 Continue")
    #expect(connection.message()?.body == body(3))
    #expect(connection.message()?.body == body(4))
    #expect(connection.byte() == nil)
  }

  @Test func cutsWhoDoesNotReadTheAnswer() throws {
    let echo = try Echo(
      { $0.limits.write = .milliseconds(100) },
      answer: { $0.reply.reply(status: 200, headers: [], body: [UInt8](repeating: 0, count: 20 << 20)) })
    let connection = try Connection(port: echo.port)
    connection.send("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
    let isCut = echo.server.state.wait(until: monotonicNow() + 60_000_000_000) {
      echo.handled == 1 && $0.connections.isEmpty ? true : nil
    }
    #expect(isCut == true)
    #expect(connection.message() == nil)
  }

  @Test func servesOnlyItsPathAndMethods() throws {
    let echo = try Echo {
      $0.rules.path = "/in"
      $0.rules.methods = ["POST"]
    }
    let end = "HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    #expect(Self.status(try echo.exchange("POST /in?a=1 \(end)")) == "200")
    #expect(Self.status(try echo.exchange("POST /other \(end)")) == "404")
    #expect(Self.status(try echo.exchange("GET /in \(end)")) == "405")
  }

  @Test func namesTheAddressThatIsTaken() throws {
    let echo = try Echo()
    var options = HTTPServer.Options()
    options.port = echo.port
    let failure = #expect(throws: HTTPServerFailure.self) {
      _ = try HTTPServer(options: options).start { _ in }
    }
    #expect(failure?.kind == .addressInUse)
    #expect(failure?.message.contains("127.0.0.1:\(echo.port)") == true)
  }

  @Test func refusesTooManyConnections() throws {
    let echo = try Echo { $0.rules.maxConnections = 2 }
    let first = try Connection(port: echo.port)
    let second = try Connection(port: echo.port)
    for connection in [first, second] {
      connection.send("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
      _ = try #require(connection.message())
    }
    #expect(Self.status(try echo.exchange("")) == "503")
  }

  @Test func finishesAnswersWhenItStops() throws {
    let asked = WaitOnce()
    let held = Box<any ReplyTarget>()
    let echo = try Echo(answer: { request in
      held.value.withLock { $0 = request.reply }
      asked.signal()
    })
    let connection = try Connection(port: echo.port)
    connection.send("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
    asked.wait()
    let stopping = try OwnThread("stop") { echo.server.stop(within: .seconds(60)) }
    held.value.withLock { $0.take() }?.reply(status: 200, headers: [], body: Array("done".utf8))
    let answer = connection.readAll()
    #expect(answer.hasSuffix("done"))
    stopping.join()
    #expect(throws: PosixError.self) { _ = try Connection(port: echo.port) }
  }
}

/// Lets one thread wait for another.
final class WaitOnce: Sendable {
  private let state = Guarded(0)
  func signal() {
    state.withLock { $0 += 1 }
    state.notify()
  }
  /// Waits for a total of so many signals, at most 60 s; false if they did not arrive.
  @discardableResult
  func wait(_ count: Int = 1) -> Bool {
    state.wait(until: monotonicNow() + 60_000_000_000) { $0 >= count ? true : nil } ?? false
  }
}

/// A value that several threads can access.
final class Box<Value: Sendable>: Sendable {
  let value = Mutex<Value?>(nil)
}
