import PipelineCore

/// A source or sink that uses WebSockets, as a client or as a server.
package protocol WebSocketComponent: Component {
  var socket: WebSocketParameters { get set }
}

/// Parameters of a WebSocket that sources and sinks share.
package struct WebSocketParameters: Sendable {
  package var url = TemplateParameter()
  package var headers = Table<TemplateParameter>()
  package var auth: ClientAuth?
  package var tls = TLSParameter()
  package var subprotocols: [String] = []
  package var connectTimeout = TimeSpan.seconds(10)
  package var proxy: String?
  package var allowPrivate = false
  package var listen: NetworkAddress?
  package var path = "/"
  package var serverTLS: ServingTLSParameter?
  package var origins: [String] = []
  package var hosts: [String] = []
  package var maxConnections = 1000
  package var allowUnauthenticated = false
  package var ping = TimeSpan.seconds(20)
  package var pingTimeout = TimeSpan.seconds(20)
  package init() {}

  /// The settings of the server; nil: the component is a client.
  package var serving: WebSocketServing? { listen.map { WebSocketServing(self, $0) } }

  /// How a client connects, without the headers.
  package var client: WebSocketClient.Options {
    var options = WebSocketClient.Options()
    options.subprotocols = subprotocols
    options.http.tls = tls.value
    options.http.connectTimeout = connectTimeout
    options.http.timeout = connectTimeout
    options.http.auth = auth?.value ?? .none
    options.http.proxy = proxy
    options.http.allowPrivate = allowPrivate
    return options
  }

  /// A library that the client needs and this machine lacks; nil: none is known to be missing.
  package var clientFault: String? {
    guard WebSocketHandshake.isAvailable else { return WebSocketHandshake.needsLibrary }
    let text = url.template?.literalPrefix.prefix(4).lowercased() ?? ""
    guard text == "wss:" else { return nil }
    do throws(SocketFailure) { _ = try TLSContext(asking: tls.value) } catch { return error.message }
    return nil
  }

  /// The address to which a client connects, as far as the file determines it.
  package var target: TargetAddress? { TargetAddress(url, method: "GET") }
}

extension WebSocketComponent {
  /// The first parameters: the address.
  package static var addressParameters: [Parameter<Self>] {
    [
      .init("url", \.socket.url, primary: true, "The server to connect to, ws or wss."),
      .init("listen", \.socket.listen, "HOST:PORT, or a port on 127.0.0.1, to be a server."),
    ]
  }

  /// The last parameters, after the component's own.
  package static var clientParameters: [Parameter<Self>] {
    [
      .init("headers", \.socket.headers, applies: .with("url"), "Further headers of the opening handshake."),
      .init(
        "auth", \.socket.auth,
        "The credentials that a client presents, or that clients must present; a server knows `basic` and `bearer`."),
      .init("tls", \.socket.tls, applies: .begins("url", ["wss:"]), "Certificates."),
      .init(
        "subprotocols", \.socket.subprotocols,
        "The subprotocols that are offered, or spoken, the preferred one first. The other side must choose, or offer, one of them."
      ),
      .init(
        "connectTimeout", \.socket.connectTimeout, range: 1_000_000...Int64.max,
        applies: .with("url"), "How long connecting may take, and then the opening handshake."),
      .init(
        "proxy", \.socket.proxy, applies: .with("url"), "A proxy, http://HOST:PORT; the environment's is not used."),
      .init(
        "allowPrivate", \.socket.allowPrivate,
        applies: .with("url"),
        "Whether a host name may resolve to a private address. Literal addresses are always allowed."),
    ]
  }

  package static var serverParameters: [Parameter<Self>] {
    [
      .init(
        "path", \.socket.path, applies: .with("listen"),
        "The path to serve; others are answered 404, or by other servers of the address."
      ),
      .init(
        "serverTLS", \.socket.serverTLS, applies: .with("listen"),
        "The certificate; by default connections are not encrypted."),
      .init(
        "origins", \.socket.origins,
        applies: .with("listen"),
        "The web sites whose pages may connect, or `*`, besides pages of the same host and port."),
      .init("hosts", \.socket.hosts, applies: .with("listen"), "The \(PageAccess.namesHelp)"),
      .init(
        "maxConnections", \.socket.maxConnections, range: 1...100_000,
        applies: .with("listen"), "The largest number of connections; more are answered 503."),
      .init(
        "allowUnauthenticated", \.socket.allowUnauthenticated,
        applies: .with("listen"), "Serve every client on an address other than loopback."),
    ]
  }

  package static var pingParameters: [Parameter<Self>] {
    [
      .init(
        "ping", \.socket.ping, range: 1_000_000...Int64.max,
        "The time without a sign of the other side after which a ping is sent."),
      .init(
        "pingTimeout", \.socket.pingTimeout, range: 1_000_000...Int64.max, "How long an answer to a ping may take."),
    ]
  }

  /// Checks the parameters that sources and sinks share.
  package func validateSocket(_ context: inout DecodingContext) {
    let basics = socket.auth.flatMap { $0.oauth2 == nil && $0.awsSigV4 == nil ? $0 : nil }
    context.validateWebSocket(
      socket,
      isProtected: basics != nil || socket.serverTLS?.clientCA != nil || socket.allowUnauthenticated)
    socket.serverTLS?.validate(at: "serverTLS", &context)
    if socket.listen != nil, socket.auth != nil, basics == nil {
      context.badValue(
        at: context.location(of: "auth"), "clients of a server present 'basic' or 'bearer' credentials",
        .conflictingParameters, help: "Write 'auth: { bearer: \"${secret:NAME}\" }', or 'serverTLS' with 'clientCA'")
    }
    guard socket.url.isGiven else { return }
    URLConfinement.validate(socket.url, scheme: "ws", &context)
    URLConfinement.validate(proxy: socket.proxy, &context)
    socket.headers.validateHeaders(isRequest: true, hasAuth: socket.auth != nil, &context)
    socket.tls.validate(at: "tls", &context)
  }
}

/// The server side of a WebSocket.
package struct WebSocketServing: Sendable {
  let address: NetworkAddress
  let path: String
  let access: PageAccess
  let subprotocols: [String]
  let auth: HTTPOptions.Auth
  package let tls: ServingTLSParameter?
  let maxConnections: Int

  init(_ parameters: WebSocketParameters, _ address: NetworkAddress) {
    self.address = address
    path = parameters.path
    var access = PageAccess()
    access.alwaysChecksOrigins = true
    access.origins = parameters.origins
    access.hosts = parameters.hosts
    self.access = access
    subprotocols = parameters.subprotocols
    maxConnections = parameters.maxConnections
    tls = parameters.serverTLS
    auth = parameters.auth?.value ?? .none
  }

  /// Whether connections that these rules have admitted may stay under the `other` rules.
  func admitsAll(of other: WebSocketServing) -> Bool {
    access == other.access && subprotocols == other.subprotocols && auth == other.auth
      && tls?.files == other.tls?.files
  }

  package static let methods = ["GET"]

  package var listens: ListenAddress {
    ListenAddress(
      host: address.host, port: address.port, location: address.location,
      site: ListenAddress.Site(path: path, methods: Self.methods, tls: tls?.files.all ?? [], isWebSocket: true))
  }

  package var options: HTTPServer.Options {
    var options = HTTPServer.Options()
    options.host = address.host
    options.port = address.port
    options.isShared = true
    options.rules.path = path
    options.rules.methods = Self.methods
    options.rules.maxBodyBytes = 1 << 10
    options.rules.maxConnections = maxConnections
    options.rules.auth = auth
    options.rules.access = access
    return options
  }

  /// Checks the request and upgrades its connection to a WebSocket; otherwise answers it with the reason.
  /// - Returns: Whether the connection is a WebSocket now.
  @discardableResult
  package func accept(_ request: ServerRequest, _ session: WebSocketSession) -> Bool {
    let chosen = subprotocols.first(where: request.webSocketProtocols.contains)
    if chosen == nil, !subprotocols.isEmpty {
      request.reply.reply(
        ServerAnswer(400, error: "the client offers none of the subprotocols that this server supports"))
      return false
    }
    return request.acceptWebSocket(session, subprotocol: chosen)
  }
}

extension DecodingContext {
  /// Checks that the parameters fit the side, client or server.
  fileprivate mutating func validateWebSocket(_ socket: WebSocketParameters, isProtected: Bool) {
    let (hasURL, listen, path) = (socket.url.isGiven, socket.listen, socket.path)
    guard hasURL != (listen != nil) else {
      return badValue(
        at: location,
        hasURL
          ? "'\(component)' is a client or a server: it has 'url' or 'listen', not both"
          : "'\(component)' has neither 'url' nor 'listen'", hasURL ? .conflictingParameters : .missingParameter,
        help: "Write 'url: ws://HOST/PATH' to connect to a server, or 'listen: HOST:PORT' to be one")
    }
    for name in socket.subprotocols where !HostSyntax.isToken(name) {
      badValue(
        at: location(of: "subprotocols"), "'\(Printable.cut(name))' is not the name of a subprotocol",
        help: "Write one such as mqtt, without spaces and commas")
    }
    PageAccess.validate(origins: socket.origins, &self)
    PageAccess.validate(hosts: socket.hosts, &self)
    guard let listen else { return }
    if !path.hasPrefix("/")
      || !path.utf8.allSatisfy({ $0 > 0x20 && $0 < 0x7F && $0 != UInt8(ascii: "?") && $0 != UInt8(ascii: "#") })
    {
      badValue(
        at: location(of: "path"), "no request has the path '\(Printable.cut(path))'",
        help: "Write it as clients send it, beginning with '/', such as /live")
    }
    if !listen.isLoopback, !isProtected {
      badValue(
        at: location, "'\(component)' would serve every client that can reach \(listen.host)", .conflictingParameters,
        help: "Add 'auth', or 'serverTLS' with 'clientCA', listen on 127.0.0.1, or set 'allowUnauthenticated: true'")
    }
  }
}
