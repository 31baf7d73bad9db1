import PipelineCore
import Transport

/// `webSocket`: sends events over WebSockets, to a server or to all connected clients.
package struct WebSocketSink: SinkComponent, WebSocketComponent {
  enum Kind: String, ChoiceParameter {
    case text, binary
    var help: String {
      switch self {
      case .text: "text messages; an event whose bytes are not UTF-8 goes to the errors output"
      case .binary: "binary messages"
      }
    }
  }

  enum Slow: String, ChoiceParameter {
    case disconnect, skip
    var help: String {
      switch self {
      case .disconnect: "the client is disconnected"
      case .skip: "the client misses the messages that do not fit; the log counts them"
      }
    }
  }

  package var socket = WebSocketParameters()
  package var encode = EncodeParameter(.json)
  var type = Kind.text
  var reconnect = ReconnectParameter()
  var queue: ByteSize?
  var slow: Slow?

  package init() {}

  package var listens: ListenAddress? { socket.serving?.listens }

  /// The bytes that may wait for a client, and the longest message.
  static let room = 256 << 10
  static let largest = room / 2

  package static let spec = ComponentSpec<WebSocketSink>(
    "webSocket",
    summary: "Sends each event as a message of a WebSocket, to a server or to all clients that are connected.",
    details: """
      With `url` it connects to a server when the first event comes, and again when a connection ends and events wait: beyond \
      `queue` the pipeline reads no further input. The log says when that begins and when events flow again. An event counts as \
      delivered when the system has taken its message; before, it is sent again on the next connection. WebSockets have no \
      acknowledgement: events on their way when a connection breaks are lost, without a report.

      With `listen` it is a server, and each client that is connected to `path` gets each event from then on; an event counts as \
      delivered when it has been queued for them, also if there are none. Nothing waits for clients: if 256 KiB wait for one, \
      `slow` decides. Other sources and sinks that serve HTTP can share the address, as `httpServer` says. A \
      page of a browser may connect if it comes from the same host and port, or from one of `origins`; programs send no origin. By default it \
      listens on the loopback address; any other address requires `auth`, `serverTLS` with `clientCA`, or `allowUnauthenticated`.

      What the other side sends is dropped. If nothing comes for `ping`, it is asked for a sign, and the connection is broken off \
      if none comes within `pingTimeout`.
      """,
    parameters: addressParameters + [
      .init("encode", \.encode, "How events are encoded as messages."),
      .init("type", \.type, "The type of the messages."),
    ] + clientParameters + [
      .init("reconnect", \.reconnect, applies: .with("url"), "The pauses between attempts to connect."),
      .init("queue", \.queue, applies: .with("url"), "How much may wait; 16MiB by default."),
    ] + serverParameters + [
      .init(
        "slow", \.slow, applies: .with("listen"),
        "What happens to a client for which 256 KiB wait; `disconnect` by default.")
    ] + pingParameters,
    examples: [
      .snippet("a live feed for a web page", "webSocket: { listen: 8090, path: /live }"),
      .snippet("to a server", "webSocket: { url: 'wss://in.example.org/events', auth: { bearer: '${secret:TOKEN}' } }"),
      .snippet(
        "for pages of another site, which may miss events",
        "webSocket: { listen: 8090, path: /live, origins: ['https://example.org'], slow: skip }"),
    ],
    edges: EdgeCases(
      empty: "A client does not connect; a server sends nothing but pings.",
      error: """
        A lost connection is made again, for ever. An event that cannot be encoded, and one of a server that is larger than 128 KiB, goes to the errors \
        output. A port that cannot be used ends the pipeline.
        """,
      completion:
        "Waiting events are sent first; connections are closed with the code 1000, those of a server with 1001.",
      disposal: """
        Closes its connections. Events of a client that were not sent go to the errors output; without a reader they become dead letters or, without a \
        state directory, a number in a warning.
        """),
    memory: "A client's waiting events, up to `queue`; at most 256 KiB for each client of a server.",
    persistence: .position(version: 1),
    knownAs: [
      "Vector websocket", "Vector websocket_server", "Benthos websocket", "Benthos http_server ws_path",
      "Node-RED websocket",
    ],
    useCases: [
      .init(.writing, "send events live to web pages over WebSocket", "webSocket: { listen: 8090, path: /live }"),
      .init(.writing, "send events to a WebSocket server", "webSocket: wss://in.example.org/events"),
    ],
    seeAlso: ["sse", "httpServer", "tcp"])

  package func validate(_ context: inout DecodingContext) {
    validateSocket(&context)
    let isConstant = socket.url.isConstant && socket.headers.entries.allSatisfy { $0.value.isConstant }
    if socket.url.isGiven, !isConstant {
      context.badValue(
        at: context.location, "one connection is for all events, so its URL and headers cannot come from an event",
        help: "Write them out, or with ${NAME} of the environment")
    }
  }

  private var session: WebSocketSession.Options {
    var options = WebSocketSession.Options()
    options.maxMessage = 64 << 10
    options.maxFrame = 64 << 10
    options.sendingRoom = Self.room
    options.ping = socket.ping
    options.pingTimeout = socket.pingTimeout
    return options
  }

  /// A server keeps no messages for its clients.
  package var persistence: Persistence { socket.serving == nil ? Self.spec.persistence : .nothing }
  package var encoding: EncodeParameter? { encode }
  package var servesEvents: Bool { socket.listen != nil }
  package var sendsTo: [TargetAddress] { [socket.target].compactMap { $0 } }
  package var threads: String? { "encoded on the pipeline thread, sent by the network thread" }

  package func makeSink(_ nodeContext: NodeContext) -> RunningSink {
    if let serving = socket.serving { return Server(self, serving, nodeContext) }
    var settings = MessageConnector.Settings(endpoint: .network(host: "", port: 0, isDatagram: false), encode: encode)
    settings.framing = .none
    settings.attempts = reconnect.attempts
    settings.queue = queue?.bytes ?? 16 << 20
    settings.webSocket = client
    return MessageConnector(settings, nodeContext).sink(nodeContext)
  }

  /// The server to which the client connects, as far as that is known without an event.
  private var client: MessageConnector.WebSocketTarget {
    var options = WebSocketSender.Options()
    options.isText = type == .text
    options.session = session
    options.session.sendingRoom = 1 << 20
    options.client = socket.client
    return MessageConnector.WebSocketTarget(parameters: socket, options: options)
  }

  /// Sends each event to all clients.
  final class Server: RunningSink {
    private let parameters: WebSocketSink
    private let serving: WebSocketServing
    private let sessionOptions: WebSocketSession.Options
    private let encoder: any EventEncoder
    private let buffer = OutputBuffer()
    private var server: HTTPServer?
    private var clients: [Int: WebSocketSession] = [:]
    /// The sessions that are connected or about to be.
    private var coming: [Int: WebSocketSession] = [:]
    private var last = 0
    private var counts = PipelineStatistics.Connections()
    private var slow = 0
    private var missed = 0
    private let label: String
    private let log: OncePerSecond

    init(_ parameters: WebSocketSink, _ serving: WebSocketServing, _ nodeContext: NodeContext) {
      self.parameters = parameters
      self.serving = serving
      sessionOptions = parameters.session
      var encode = parameters.encode
      encode.options.terminated = false
      encoder = encode.makeEncoder()
      let services = nodeContext.execution.services
      let label = nodeContext.execution.plan.steps[nodeContext.step.number].label
      self.label = label
      log = OncePerSecond { services.log(.warning, label, $0) }
      super.init(nodeContext)
    }

    override var connections: PipelineStatistics.Connections? {
      var counts = counts
      counts.open = clients.count
      counts.refused = server?.counts.refused ?? 0
      return counts
    }

    private func fail(_ message: String) {
      fail(because: SignalFailure(.sink, message, at: nodeContext.location))
    }

    private func servingOptions() -> HTTPServer.Options? {
      do throws(SocketFailure) {
        return try serving.options.encrypted(by: serving.tls, execution.services, label)
      } catch {
        fail(error.message)
        return nil
      }
    }

    override func dryRun() {
      guard let options = servingOptions() else { return }
      do throws(HTTPServerFailure) { try HTTPServer.reserve(options) } catch { fail(error.message) }
    }

    override func open() {
      guard let options = servingOptions() else { return }
      let server = HTTPServer(options: options)
      let (executor, services, label, node) = (executor, execution.services, label, Weak(self))
      do throws(HTTPServerFailure) {
        let port = try server.start { notice in
          services.report(notice, label)
        } handler: { request in
          executor.post {
            if let node = node.object { node.accept(request) } else { request.reply.reply(.stopped) }
          }
        }
        self.server = server
        services.log(.info, label, "listening on \(options.host):\(port)")
      } catch {
        fail(error.message)
      }
    }

    // MARK: Clients

    private func accept(_ request: ServerRequest) {
      guard server != nil else {
        request.reply.reply(.stopped)
        return
      }
      last += 1
      let number = last
      let (executor, node) = (executor, Weak(self))
      let listener = WebSocketSession.Listener { session in
        executor.post { node.object?.opened(number, session) }
      } message: { session, message in
        session.handled(message.bytes.count)
      } ended: { _, end in
        executor.post { node.object?.ended(number, end) }
      }
      let session = WebSocketSession(isServer: true, sessionOptions, listener)
      coming[number] = session
      if !serving.accept(request, session) { coming[number] = nil }
    }

    private func opened(_ number: Int, _ session: WebSocketSession) {
      guard coming.removeValue(forKey: number) != nil, server != nil else {
        return session.close(1001, "the server stops")
      }
      clients[number] = session
      counts.opened &+= 1
    }

    private func ended(_ number: Int, _ end: WebSocketSession.End) {
      coming[number] = nil
      guard clients.removeValue(forKey: number) != nil else { return }
      if !end.isClean { counts.broken &+= 1 }
    }

    private func send(_ frame: [UInt8]) {
      for (number, session) in clients where !session.send(frame: frame) {
        if parameters.slow == .skip {
          missed += 1
          log.write("clients read too slowly and missed \(missed) message\(missed == 1 ? "" : "s") so far")
        } else {
          clients[number] = nil
          session.abort("the client reads too slowly")
          slow += 1
          log.write("a client reads too slowly and was disconnected, \(slow) so far")
        }
      }
    }

    // MARK: Events

    override func receive(_ event: Event) {
      buffer.clear()
      encoder.reset()
      if let failure = encoder.append(event.value, to: buffer) { return reject(event, because: failure) }
      let bytes = buffer.bytes
      guard bytes.count <= WebSocketSink.largest else {
        return reject(event, "the event takes \(bytes.count) bytes, and a message may have \(WebSocketSink.largest)")
      }
      if parameters.type == .text, !UTF8Text.isValid(bytes) {
        return reject(event, "a text message must be UTF-8; 'type: binary' sends any bytes")
      }
      send(WebSocketFrame.ofServer(isText: parameters.type == .text, bytes))
      countBytes(bytes.count)
      delivered()
    }

    // MARK: The end

    override func finish() {
      close { [weak self] in self?.drained() }
    }

    override func cancel() { close {} }

    private func close(_ done: @escaping () -> Void) {
      guard let server else { return done() }
      self.server = nil
      for session in clients.values { session.close(1001, "the server stops") }
      clients = [:]
      // Output on its way to clients is awaited, except in a reload.
      server.end(
        of: execution, handsOver: true, within: .seconds(5), waits: execution.successor == nil, done)
    }
  }
}
