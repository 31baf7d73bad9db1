public import PipelineCore
import Transport

/// `webSocket`: receives the messages of WebSockets, as a client or as a server.
public struct WebSocketSource: SourceComponent {
  var url = TemplateParameter()
  var listen: NetworkAddress?
  public var decode = DecodeParameter(.json)
  var headers = Table<TemplateParameter>()
  var auth: HTTPAuth?
  var tls = TLSParameter()
  var subprotocols: [String] = []
  var send = TemplateParameter()
  var connectTimeout = TimeSpan.seconds(10)
  var reconnect = TimeSpan.seconds(1)
  var maxReconnect = TimeSpan.seconds(60)
  var path = "/"
  var serverTLS: ServingTLSParameter?
  var origins: [String] = []
  var maxConnections = 1000
  var idleTimeout: TimeSpan?
  var allowUnauthenticated = false
  var ping = TimeSpan.seconds(20)
  var pingTimeout = TimeSpan.seconds(20)
  var maxMessage = ByteSize(1 << 20)
  var maxFrame: ByteSize?

  public init() {}

  public static let spec = ComponentSpec<WebSocketSource>(
    "webSocket",
    summary: "Receives the messages of WebSockets, as a client of a server or as a server for clients.",
    details: """
      With `url` it connects to a server and stays connected. When a connection cannot be made or ends, it connects again \
      after `reconnect`; after failures in a row the pause doubles up to `maxReconnect`, and each is shortened by a random part of up \
      to half. `send` is a message that it sends on each connection first, such as a subscription. An answer to the opening \
      handshake other than 101, 408, 425, 429 and 5xx ends it with an error. The log says with which code the server has closed.

      With `listen` it is a server: clients connect to `path`. Other sources and sinks that serve HTTP can share the address, as \
      `httpServer` says. A page of a browser may connect if it comes from the same host and port, or from one of \
      `origins`; programs say no origin. By default it listens on the loopback address; any other address requires `auth`, \
      `serverTLS` with `clientCA`, or `allowUnauthenticated`.

      Each message is decoded by itself: text and binary messages alike, whole when their last fragment has come. `meta.type` is `text` or \
      `binary`; of a server's messages `meta.peer` is the client's address, and `meta.path` and `meta.query` are those of its request. \
      Where the pipeline is slow, nothing more is read from a connection for which 64 KiB wait.

      A connection on which nothing comes for `ping` is asked for a sign, and broken off if none comes within `pingTimeout`. A \
      message or frame that is too large closes it with the code 1009, a text that is not UTF-8 with 1007, anything that \
      breaks the rules of RFC 6455 with 1002.

      WebSockets have no acknowledgement: messages that were sent while nobody was connected, and those that had been read \
      when the process was killed, are lost.
      """,
    parameters: [
      .init("url", \.url, primary: true, "The server to connect to, ws or wss."),
      .init("listen", \.listen, "HOST:PORT, or a port on 127.0.0.1, to be a server."),
      .init("decode", \.decode, "How messages are decoded into events."),
      .init("headers", \.headers, "Client: further headers of the opening handshake."),
      .init("auth", \.auth, "The credentials that a client presents, or that clients must present."),
      .init("tls", \.tls, "Client: certificates, with wss."),
      .init(
        "subprotocols", \.subprotocols,
        "The subprotocols that are offered, or spoken, the preferred one first. The other side must choose, or offer, one of them."
      ),
      .init("send", \.send, "Client: a text message that is sent first on each connection."),
      .init(
        "connectTimeout", \.connectTimeout, range: 1_000_000...Int64.max,
        "Client: how long connecting may take, and then the opening handshake."),
      .init("reconnect", \.reconnect, range: 1_000_000...Int64.max, "Client: the pause before it connects again."),
      .init(
        "maxReconnect", \.maxReconnect, range: 1_000_000...Int64.max,
        "Client: the longest pause after failures in a row."),
      .init("path", \.path, "Server: the path to serve; others are answered 404, or by other servers of the address."),
      .init("serverTLS", \.serverTLS, "Server: the certificate; by default connections are not encrypted."),
      .init(
        "origins", \.origins,
        "Server: the web sites whose pages may connect, or `*`; by default the same host and port."),
      .init(
        "maxConnections", \.maxConnections, range: 1...100_000,
        "Server: the largest number of connections; more are answered 503."),
      .init(
        "idleTimeout", \.idleTimeout, range: 1_000_000...Int64.max,
        "Server: a client that sends no message for so long is closed; by default never."),
      .init(
        "allowUnauthenticated", \.allowUnauthenticated, "Server: serve every client on an address other than loopback."),
      .init(
        "ping", \.ping, range: 1_000_000...Int64.max,
        "The time without a sign of the other side after which a ping is sent."),
      .init("pingTimeout", \.pingTimeout, range: 1_000_000...Int64.max, "How long an answer to a ping may take."),
      .init("maxMessage", \.maxMessage, "The largest message, all fragments together."),
      .init("maxFrame", \.maxFrame, "The largest frame; by default as `maxMessage`."),
    ],
    examples: [
      .snippet(
        "a subscription",
        #"webSocket: { url: 'wss://feed.example.org/v1', send: '{"subscribe":"trades"}', reconnect: 2s }"#),
      .snippet(
        "a server for pages of one site", "webSocket: { listen: 8090, path: /clicks, origins: ['https://example.org'] }"
      ),
      .snippet(
        "events of devices that know a token",
        "webSocket: { listen: '0.0.0.0:8443', path: /in, decode: ndjson, auth: { bearer: '${secret:TOKEN}' }, serverTLS: /etc/rxd/server.pem, idleTimeout: 5m }"
      ),
    ],
    edges: EdgeCases(
      empty: "It waits for messages.",
      error: """
        A port that cannot be used, a wrong address or an answer that is no WebSocket ends it with an error; lost connections \
        are made again. A message that cannot be decoded goes to the errors output.
        """,
      completion: "Only when the pipeline is stopped: connections are closed with the code 1001.",
      disposal: "Closes its connections with the code 1001."),
    memory: "For each connection a message that comes in, and 64 KiB that the pipeline has not taken yet.",
    knownAs: ["Vector websocket", "Benthos websocket", "Benthos http_server ws_path", "Node-RED websocket"],
    useCases: [
      .init(.reading, "follow a WebSocket feed", "webSocket: wss://feed.example.org/v1"),
      .init(.reading, "receive events from web pages", "webSocket: { listen: 8090, path: /clicks }"),
    ],
    seeAlso: ["httpServer", "sse", "tcp"])

  public func validate(_ context: inout DecodingContext) {
    context.validateWebSocket(
      hasURL: url.isGiven, listen: listen, path: path, subprotocols: subprotocols, origins: origins,
      ofClient: [("headers", !headers.entries.isEmpty), ("send", send.isGiven)],
      ofServer: [
        ("path", path != "/"), ("serverTLS", serverTLS != nil), ("origins", !origins.isEmpty),
        ("idleTimeout", idleTimeout != nil), ("allowUnauthenticated", allowUnauthenticated),
      ], isProtected: auth != nil || serverTLS?.clientCA != nil || allowUnauthenticated)
    serverTLS?.validate(at: "serverTLS", &context)
    guard url.isGiven else { return }
    URLConfinement.validate(url, scheme: "ws", &context)
    headers.validateHeaders(isRequest: true, hasAuth: auth != nil, &context)
    tls.validate(at: "tls", &context)
    if reconnect > maxReconnect {
      context.badValue(
        at: context.location(of: "reconnect"),
        "'reconnect' is \(reconnect), longer than 'maxReconnect', which is \(maxReconnect)",
        .conflictingParameters, help: "Give 'maxReconnect' a value of at least \(reconnect)")
    }
  }

  private var serving: WebSocketServing? {
    guard let listen else { return nil }
    var serving = WebSocketServing()
    serving.address = listen
    serving.path = path
    serving.origins = origins
    serving.subprotocols = subprotocols
    serving.auth = auth
    serving.tls = serverTLS
    serving.maxConnections = maxConnections
    return serving
  }

  private var session: WebSocketSession.Options {
    var options = WebSocketSession.Options()
    options.maxMessage = maxMessage.bytes
    options.maxFrame = maxFrame?.bytes ?? maxMessage.bytes
    options.room = 64 << 10
    options.ping = ping
    options.pingTimeout = pingTimeout
    options.idle = idleTimeout
    return options
  }

  public var listens: ListenAddress? { serving?.listens }
  public var outputType: EventType { decode.options.eventType }
  public func threads(_ limit: Int?) -> String? {
    "received by the network thread, decoded on the pipeline thread"
  }
  public func makeSource(_ nodeContext: NodeContext, downstream: Downstream) -> RunningSource {
    Node(self, nodeContext, downstream)
  }

  final class Node: DecodingSource {
    private struct Peer {
      var session: WebSocketSession
      /// What the metadata of its messages has.
      var peer: String?
      var path: String?
      var query: [(name: String, value: String)] = []
      var subject: String?
    }

    private let parameters: WebSocketSource
    private let sessionOptions: WebSocketSession.Options
    private var decoder: (any EventDecoder)?
    private lazy var frame = makeFrame()
    /// The connections by number; a client has one.
    private var peers: [Int: Peer] = [:]
    private var last = 0
    private var server: HTTPServer?
    private var attempt: (any Cancellable)?
    private var isReady = false
    /// How many connections in a row have failed.
    private var failures = 0
    private var timer = Wake.none
    private var counts = PipelineStatistics.Connections()
    private lazy var closings = OncePerSecond { [services = execution.services, label] in
      services.log(.warning, label, $0)
    }
    private lazy var label = execution.plan.steps[nodeContext.step.number].label

    init(_ parameters: WebSocketSource, _ nodeContext: NodeContext, _ downstream: Downstream) {
      self.parameters = parameters
      sessionOptions = parameters.session
      super.init(nodeContext, downstream: downstream)
    }

    override var connections: PipelineStatistics.Connections? {
      var counts = counts
      counts.open = peers.count
      counts.refused = server?.counts.refused ?? counts.refused
      return counts
    }

    private func log(_ level: Services.Level, _ text: String) { execution.services.log(level, label, text) }

    private func fail(_ message: String) {
      finish(failing: SignalFailure(.source, message, at: nodeContext.location))
    }

    /// The options of the server with its certificate; nil: it cannot be used, and the source has failed.
    private func servingOptions(_ serving: WebSocketServing) -> HTTPServer.Options? {
      do throws(SocketFailure) {
        return try serving.options.encrypted(by: serving.tls, execution.services, label)
      } catch {
        fail(error.message)
        return nil
      }
    }

    override func dryRun() {
      guard let serving = parameters.serving, let options = servingOptions(serving) else { return }
      do throws(HTTPServerFailure) { try HTTPServer.reserve(options) } catch { fail(error.message) }
    }

    override var isEndless: Bool { true }

    override func begin() {
      decoder = makeDecoder(parameters.decode.options.ofMessages)
      guard decoder != nil else { return }
      if let serving = parameters.serving { serve(serving) } else { connect() }
    }
    override func resume() { begin() }

    // MARK: Server

    private func serve(_ serving: WebSocketServing) {
      guard let options = servingOptions(serving) else { return }
      let server = HTTPServer(options: options)
      let (executor, services, label, node) = (executor, execution.services, label, Weak(self))
      do throws(HTTPServerFailure) {
        let port = try server.start { notice in
          services.report(notice, label)
        } handler: { request in
          executor.post {
            if let node = node.object { node.accept(request, serving) } else { request.reply.reply(.stopped) }
          }
        }
        self.server = server
        log(.info, "listening on \(options.host):\(port)")
      } catch {
        fail(error.message)
      }
    }

    private func accept(_ request: ServerRequest, _ serving: WebSocketServing) {
      guard server != nil, !isClosed else {
        request.reply.reply(.stopped)
        return
      }
      last += 1
      let number = last
      let session = makeSession(number, isServer: true)
      peers[number] = Peer(
        session: session, peer: request.peer, path: request.path, query: request.query, subject: request.subject)
      if serving.accept(request, session, sessionOptions) { counts.opened &+= 1 } else { peers[number] = nil }
    }

    // MARK: Client

    private func connect() {
      guard !isClosed else { return }
      frame.loadNothing()
      let template = RequestTemplate(
        method: "GET", url: parameters.url, headers: parameters.headers, body: parameters.send)
      let request: HTTPRequest
      switch template.render(frame) {
      case .failure(let failure):
        return finish(failing: failure)
      case .success(let rendered): request = rendered
      }
      guard let target = WebSocketClient.Target(request.url) else {
        return fail("'\(request.shownURL)' is no URL of a WebSocket")
      }
      var options = WebSocketClient.Options()
      options.headers = request.headers + [parameters.auth?.header].compactMap { $0 }
      options.subprotocols = parameters.subprotocols
      options.tls = parameters.tls.value
      options.connectTimeout = parameters.connectTimeout
      last += 1
      let number = last
      let first = request.body
      let session = makeSession(number, isServer: false, first: first)
      isReady = false
      peers[number] = Peer(session: session)
      let (executor, node) = (executor, Weak(self))
      attempt = WebSocketClient.connect(target, options, session, sessionOptions) { failure in
        executor.post { node.object?.failed(failure, number) }
      }
    }

    private func failed(_ failure: WebSocketClient.Failure, _ number: Int) {
      guard peers.removeValue(forKey: number) != nil, !isClosed else { return }
      attempt = nil
      counts.broken &+= 1
      if let response = failure.response, ![408, 425, 429].contains(response.status), response.status < 500 {
        return finish(
          failing: SignalFailure(
            .source, failure.message, at: nodeContext.location, details: [.init("status", Int64(response.status))]))
      }
      if failure.isFinal { return fail(failure.message) }
      connectAgain(
        failure.message,
        after: failure.response.flatMap {
          ServerPause.after($0, wallTime: executor.wallTime, longest: .seconds(3600))
        })
    }

    private func connectAgain(_ reason: String, after asked: TimeSpan? = nil) {
      failures += 1
      if failures == 1 { log(.warning, "\(reason); connecting again") }
      let span = parameters.reconnect.doubled(after: failures, most: parameters.maxReconnect)
        .shortened(by: execution.services.random())
      timer = wake(after: max(span, asked ?? .zero), 0)
    }

    override func woke(_ token: Int) {
      timer = .none
      connect()
    }

    // MARK: Messages

    private func makeSession(_ number: Int, isServer: Bool, first: [UInt8]? = nil) -> WebSocketSession {
      let (executor, node) = (executor, Weak(self))
      return WebSocketSession(isServer: isServer, sessionOptions) { session in
        if let first { _ = session.send(isText: true, first) }
        executor.post { node.object?.opened(number) }
      } message: { session, message in
        executor.postBatch {
          node.object?.take(message, number)
          session.handled(message.bytes.count)
        }
      } ended: { _, end in
        executor.postBatch { node.object?.ended(number, end) }
      }
    }

    private func opened(_ number: Int) {
      guard parameters.serving == nil, peers[number] != nil, !isClosed else { return }
      attempt = nil
      counts.opened &+= 1
      if failures > 0 { log(.info, "connected again") }
      failures = 0
      isReady = true
    }

    private func ended(_ number: Int, _ end: WebSocketSession.End) {
      guard peers.removeValue(forKey: number) != nil, !isClosed else { return }
      if !end.isClean { counts.broken &+= 1 }
      if parameters.serving == nil { return connectAgain(end.message) }
      if !end.isClean { closings.write("a connection is over: \(end.message)") }
    }

    private func take(_ message: WebSocketMessage, _ number: Int) {
      guard let decoder, let peer = peers[number], !isClosed else { return }
      var members: [(key: Value, value: Value)] = [
        (arena.string("type"), arena.string(message.isText ? "text" : "binary"))
      ]
      if let address = peer.peer { members.append((arena.string("peer"), arena.string(address))) }
      if peer.peer != nil {
        var query: [(key: Value, value: Value)] = []
        for pair in peer.query where !query.contains(where: { $0.key.rawBytes.elementsEqual(pair.name.utf8) }) {
          query.append((arena.string(pair.name), arena.string(pair.value)))
        }
        members.append((arena.string("query"), arena.map(query)))
      }
      if let subject = peer.subject { members.append((arena.string("subject"), arena.string(subject))) }
      let origin = Origin(
        source: origin.source, path: peer.path, receivedAt: executor.wallTime, fields: OwnedValue(arena.map(members)),
        reply: origin.reply, identity: origin.identity)
      arena.keep(origin)
      decoder.reset()
      take(Slab(message.bytes), offset: 0, isLast: true, by: decoder, origin: origin)
    }

    // MARK: The end

    override func suspend() {
      super.suspend()
      close(handsOver: true)
    }

    override func drain() {
      close()
      super.drain()
    }

    override func stop() { close() }

    private func close(handsOver: Bool = false) {
      cancelWake(&timer)
      attempt?.cancel()
      attempt = nil
      for peer in peers.values { peer.session.close(1001, "the pipeline stops") }
      peers = [:]
      guard let server else { return }
      self.server = nil
      server.stopListening(handsOver: handsOver)
      let execution = Weak(execution)
      let executor = executor
      execution.object?.hold()
      let thread = try? OwnThread("rxd close") {
        server.stop(within: .seconds(5))
        executor.post { execution.object?.release() }
      }
      if thread == nil {
        server.stop(within: .zero)
        execution.object?.release()
      }
    }
  }
}
