import CLinux
import PipelineHost
import Synchronization
import Testing

@testable import PipelineCore
@testable import Transport

/// A name whose address has changed: kept connections move to it, soon and without losing or repeating anything. The tests control the names.
@Suite(.serialized) struct AddressWatchTests {
  /// The addresses of every name.
  private final class Names: Sendable {
    private let addresses = Mutex<[String]>([])
    private let looks = Atomic(0)
    var count: Int { looks.load(ordering: .relaxed) }

    func lead(to addresses: String...) { self.addresses.withLock { $0 = addresses } }

    var options: NameLookup {
      var options = NameLookup()
      options.every = .milliseconds(5)
      options.addresses = { [self] _, port, isDatagram throws(SocketFailure) in
        looks.add(1, ordering: .relaxed)
        var found: [rx_address] = []
        for address in addresses.withLock({ $0 }) {
          found += try SocketPeer.resolve(address, port, isDatagram: isDatagram)
        }
        if found.isEmpty { throw SocketFailure(message: "the name cannot be looked up") }
        return found
      }
      return options
    }
  }

  /// Lines received at one address.
  private final class Receiver: Sendable {
    private let receiver: StreamReceiver?
    private let datagrams: DatagramReceiver?
    private let received = Guarded<[String]>([])
    var lines: [String] { received.withLock { $0 } }

    init(_ host: String, _ port: Int, isDatagram: Bool) throws {
      let place = SocketEndpoint.network(host: host, port: port, isDatagram: isDatagram)
      var options = StreamReceiver.Options()
      options.decoding = DecoderOptions(.text)
      receiver = isDatagram ? nil : try StreamReceiver(place, options)
      datagrams = isDatagram ? try DatagramReceiver(place, DatagramReceiver.Options()) : nil
      let received = received
      @Sendable func take(_ rows: [DecodedBlock?]) -> Bool {
        for text in rows.compactMap({ $0 }).map({ String(decoding: $0.text, as: UTF8.self) }) {
          received.withLock { $0 += text.split(separator: "\n").map(String.init) }
        }
        return true
      }
      try receiver?.start(notify: { _ in }, deliver: { take($0.map(\.rows)) })
      try datagrams?.start(notify: { _ in }, deliver: { take($0.map(\.rows)) })
    }

    deinit {
      receiver?.cancel()
      datagrams?.cancel()
    }
  }

  /// Sends one message after another, and connects when one waits.
  private final class Link {
    private struct State {
      var isOpening = false
      var isOpen = false
      var waiting: [UInt8] = []
      var isGiven = false
    }
    private let sender: any MessageSender
    private let state = Guarded(State())
    init(_ sender: any MessageSender) { self.sender = sender }

    /// Whether the last message has passed. Called until it has.
    var isDone: Bool {
      let (opens, message) = state.withLock { state -> (Bool, [UInt8]?) in
        if state.waiting.isEmpty || state.isGiven || state.isOpening { return (false, nil) }
        if !state.isOpen {
          state.isOpening = true
          return (true, nil)
        }
        state.isGiven = true
        return (false, state.waiting)
      }
      if let message { sender.send(SentBlock(bytes: message, ends: [message.count])) }
      if opens {
        let state = state
        sender.open { report in
          state.withLock { state in
            switch report {
            case .opened: (state.isOpening, state.isOpen) = (false, true)
            case .passed: (state.waiting, state.isGiven) = ([], false)
            case .lost, .ended: (state.isOpening, state.isOpen, state.isGiven) = (false, false, false)
            case .refused: break
            }
          }
        }
      }
      return state.withLock(\.waiting.isEmpty)
    }

    func send(_ text: String) { state.withLock { $0.waiting = Array(text.utf8) } }
  }

  @Test(arguments: [false, true]) func aSenderGoesWhereTheNameLeads(_ isDatagram: Bool) throws {
    let port = try FreePort().number
    let (old, new) = (
      try Receiver("127.0.0.1", port, isDatagram: isDatagram), try Receiver("127.0.0.2", port, isDatagram: isDatagram)
    )
    let names = Names()
    names.lead(to: "127.0.0.1")
    var options = SocketSender.Options()
    options.names = names.options
    let notices = Guarded<[SocketSender.Notice]>([])
    let sender = try SocketSender(
      .network(host: "logs.example", port: port, isDatagram: isDatagram), options
    ) { notice in notices.withLock { $0.append(notice) } }
    defer { sender.cancel() }
    let link = Link(sender)
    var sent = 0
    /// Sends one message after another, each when the previous one has been delivered, until the condition holds.
    func send(until condition: () -> Bool) {
      Polling.until(within: 60, pause: 1) {
        guard link.isDone else { return false }
        if condition() { return true }
        link.send("\(sent)\n")
        sent += 1
        return false
      }
    }
    send { old.lines.count >= 5 }
    // A lookup that fails, and one that returns the address among others, change nothing.
    names.lead()
    var looks = names.count
    send { names.count >= looks + 3 }
    names.lead(to: "127.0.0.2", "127.0.0.1")
    looks = names.count
    send { names.count >= looks + 3 }
    #expect(new.lines.isEmpty)
    names.lead(to: "127.0.0.2")
    send { new.lines.count >= 5 }
    Polling.until(within: 60) { old.lines.count + new.lines.count >= sent }
    #expect(old.lines + new.lines == (0..<sent).map { "\($0)" })
    #expect(notices.withLock { $0 } == [.moved])
    if let counts = sender.connections { #expect(counts.opened == 2 && counts.broken == 0) }
  }

  /// Also while nothing is sent: the first message goes to the new address.
  @Test func anIdleSenderGoesThereToo() throws {
    let port = try FreePort().number
    let (old, new) = (
      try Receiver("127.0.0.1", port, isDatagram: false), try Receiver("127.0.0.2", port, isDatagram: false)
    )
    let names = Names()
    names.lead(to: "127.0.0.1")
    var options = SocketSender.Options()
    options.names = names.options
    let moved = Guarded(false)
    let sender = try SocketSender(.network(host: "logs.example", port: port, isDatagram: false), options) { notice in
      if notice == .moved { moved.withLock { $0 = true } }
    }
    defer { sender.cancel() }
    let link = Link(sender)
    link.send("1\n")
    Polling.until(within: 60) { link.isDone && old.lines == ["1"] }
    names.lead(to: "127.0.0.2")
    #expect(Polling.until(within: 60) { moved.withLock { $0 } })
    link.send("2\n")
    #expect(Polling.until(within: 60) { link.isDone && new.lines == ["2"] })
    #expect(old.lines == ["1"])
  }

  /// A numeric address is not looked up.
  @Test func anAddressIsNotLookedUp() {
    for host in ["127.0.0.1", "::1", "[::1]", "10.1.2.3"] {
      #expect(NameLookup().watch(host, 80, isDatagram: false) {} == nil)
    }
    #expect(NameLookup().watch("localhost", 80, isDatagram: false) {} != nil)
  }

  /// A WebSocket is closed normally, and the next message uses a new one.
  @Test func aWebSocketIsMadeAnew() throws {
    let received = Guarded<[String]>([])
    let opened = Atomic(0)
    let server = HTTPServer(options: HTTPServer.Options())
    let port = try server.start { request in
      opened.add(1, ordering: .relaxed)
      let listener = WebSocketSession.Listener(
        opened: { _ in },
        message: { session, message in
          received.withLock { $0.append(String(decoding: message.bytes, as: UTF8.self)) }
          session.handled(message.bytes.count)
        }, ended: { _, _ in })
      _ = request.acceptWebSocket(WebSocketSession(isServer: true, WebSocketSession.Options(), listener))
    }
    defer { server.stop() }
    let names = Names()
    names.lead(to: "127.0.0.1", "::1")
    var options = WebSocketSender.Options()
    options.client.names = names.options
    options.client.http.allowPrivate = true
    let notices = Guarded<[SocketSender.Notice]>([])
    let target = try #require(WebSocketClient.Target("ws://localhost:\(port)/"))
    let sender = try WebSocketSender(target, options, by: CurlClient()) { notice in
      notices.withLock { $0.append(notice) }
    }
    defer { sender.cancel() }
    let link = Link(sender)
    var sent = 0
    func send(until condition: () -> Bool) {
      Polling.until(within: 60, pause: 1) {
        let isDone = link.isDone
        if condition() { return true }
        guard isDone else { return false }
        link.send("\(sent)")
        sent += 1
        return false
      }
    }
    send { received.withLock(\.count) >= 5 }
    #expect(opened.load(ordering: .relaxed) == 1)
    names.lead(to: "127.0.0.9")
    send { notices.withLock { $0.contains(.moved) } }
    names.lead(to: "127.0.0.1", "::1")
    let before = sent
    send { received.withLock(\.count) >= before + 5 }
    Polling.until(within: 60) { received.withLock(\.count) >= sent }
    #expect(received.withLock { $0 } == (0..<sent).map { "\($0)" })
    #expect(notices.withLock { $0.allSatisfy { $0 == .moved } })
    #expect(sender.connections?.broken == 0 && opened.load(ordering: .relaxed) >= 2)
  }

  /// Connections for requests, and resolved names, are kept for as long as the options say.
  @Test func connectionsForRequestsAreMadeAnew() async throws {
    let server = try ScriptedServer { connection in
      while connection.message(hasBody: false) != nil {
        connection.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
      }
    }
    defer { server.stop() }
    let client = CurlClient()
    var request = HTTPRequest(url: "\(server.url)/")
    request.options.connectionLife = .seconds(1)
    var answers = 0
    let end = monotonicNow() &+ 60_000_000_000
    while server.connections < 2, monotonicNow() < end {
      let response = try await client.answer(request).get()
      #expect(response.status == 200)
      answers += 1
    }
    #expect(server.connections == 2 && answers > 2)
  }
}
