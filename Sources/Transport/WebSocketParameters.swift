public import PipelineCore

/// What is said of a WebSocket in the same way in sources and sinks.
public struct WebSocketServing: Sendable {
  public var address = NetworkAddress()
  public var path = "/"
  public var origins: [String] = []
  public var subprotocols: [String] = []
  public var auth: HTTPAuth?
  public var tls: ServingTLSParameter?
  public var maxConnections = 1000
  public init() {}

  public static let methods = ["GET"]

  public var listens: ListenAddress {
    ListenAddress(
      host: address.host, port: address.port, location: address.location,
      site: ListenAddress.Site(path: path, methods: Self.methods, tls: tls?.files.all ?? []))
  }

  public var options: HTTPServer.Options {
    var options = HTTPServer.Options()
    options.host = address.host
    options.port = address.port
    options.isShared = true
    options.rules.path = path
    options.rules.methods = Self.methods
    options.rules.maxBodyBytes = 1 << 10
    options.rules.maxConnections = maxConnections
    options.rules.auth = auth?.value ?? .none
    return options
  }

  /// Whether a page of that origin may connect to the host that the request names. Programs say no origin; they are admitted.
  public func admits(origin: String?, host: String?) -> Bool {
    guard let origin else { return true }
    if !origins.isEmpty { return origins.contains { $0 == "*" || HTTPSyntax.same($0, origin) } }
    guard let host, let scheme = origin.firstRange(of: "://") else { return false }
    return HTTPSyntax.same(String(origin[scheme.upperBound...]), host)
  }

  /// Checks the request and makes its connection a WebSocket; otherwise it has been answered.
  /// - Returns: Whether it did.
  @discardableResult
  public func accept(
    _ request: ServerRequest, _ session: WebSocketSession, _ sessionOptions: WebSocketSession.Options
  ) -> Bool {
    let rules = options.rules
    if let refusal = rules.refusal(ofAuthorization: request.header("authorization")) {
      request.reply.reply(refusal)
      return false
    }
    guard admits(origin: request.header("origin"), host: request.header("host")) else {
      request.reply.reply(ServerAnswer(403, error: "pages of this origin may not connect"))
      return false
    }
    let chosen = subprotocols.first(where: request.webSocketProtocols.contains)
    if chosen == nil, !subprotocols.isEmpty {
      request.reply.reply(ServerAnswer(400, error: "the client offers none of the subprotocols that are spoken here"))
      return false
    }
    return request.acceptWebSocket(session, sessionOptions, subprotocol: chosen)
  }
}

extension DecodingContext {
  /// Checks what a WebSocket has as a client or as a server.
  ///
  /// - Parameters:
  ///   - ofClient: Names of parameters that only a client has, with whether they are given.
  ///   - ofServer: The same of a server.
  public mutating func validateWebSocket(
    hasURL: Bool, listen: NetworkAddress?, path: String, subprotocols: [String], origins: [String],
    ofClient: [(String, Bool)], ofServer: [(String, Bool)], isProtected: Bool
  ) {
    guard hasURL != (listen != nil) else {
      return badValue(
        at: location,
        hasURL
          ? "'\(component)' is a client or a server: it has 'url' or 'listen', not both"
          : "'\(component)' has neither 'url' nor 'listen'", hasURL ? .conflictingParameters : .missingParameter,
        help: "Write 'url: ws://HOST/PATH' to connect to a server, or 'listen: HOST:PORT' to be one")
    }
    for (name, isGiven) in hasURL ? ofServer : ofClient where isGiven {
      badValue(
        at: location(of: name), "'\(name)' has no effect with '\(hasURL ? "url" : "listen")'", .conflictingParameters,
        help: "Leave it out")
    }
    for name in subprotocols where !HostSyntax.isToken(name) {
      badValue(
        at: location(of: "subprotocols"), "'\(Printable.cut(name))' is no name of a subprotocol",
        help: "Write one such as mqtt, without spaces and commas")
    }
    for origin in origins
    where origin != "*" && (!origin.contains("://") || origin.hasSuffix("/") || origin.utf8.contains(0x20)) {
      badValue(
        at: location(of: "origins"), "'\(Printable.cut(origin))' is no origin",
        help: "Write scheme and host, such as https://example.org, or '*'")
    }
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

extension HTTPAuth {
  /// The header of a request.
  public var header: HTTPHeader? {
    switch value {
    case .bearer(let token): return HTTPHeader("Authorization", "Bearer \(token.revealed)", isSecret: true)
    case .basic(let user, let password):
      let text = WebSocketHandshake.base64(Array("\(user):\(password.revealed)".utf8))
      return HTTPHeader("Authorization", "Basic \(text)", isSecret: true)
    case .none, .oauth2, .awsSigV4: return nil
    }
  }
}
