/// The interface of an HTTP client: the transport implements it, tests stub it.
public protocol HTTPClient: AnyObject, Sendable {
  /// Starts a request. `completion` is called exactly once, on any thread, unless the exchange is
  /// cancelled before. It may be called before `send` returns.
  func send(
    _ request: HTTPRequest, _ completion: @escaping @Sendable (Result<HTTPResponse, HTTPFailure>) -> Void
  ) -> any Cancellable

  /// Starts a request with a streamed answer: `timeout` does not limit it, and no redirect is followed. `receive` is called
  /// on any thread, in the order of the parts, until the last one or until the exchange is cancelled.
  func stream(_ request: HTTPRequest, _ receive: @escaping @Sendable (HTTPStreamPart) -> Void) -> any HTTPStream

  /// Fetches an access token, or returns a cached one. `completion` is called once, on any thread, unless it is cancelled before.
  /// - Parameters:
  ///   - options: Those of the connection that presents it; their `auth` is OAuth 2.0.
  ///   - refused: A token that a server no longer accepts.
  func accessToken(
    _ options: HTTPOptions, insteadOf refused: Secret?,
    _ completion: @escaping @Sendable (Result<Secret, HTTPFailure>) -> Void
  ) -> any Cancellable

  /// Why no request can be made on this machine; nil: none is known. May load a library.
  var fault: HTTPFailure? { get }
}

extension HTTPClient {
  public var fault: HTTPFailure? { nil }
  public func accessToken(
    _ options: HTTPOptions, insteadOf refused: Secret?,
    _ completion: @escaping @Sendable (Result<Secret, HTTPFailure>) -> Void
  ) -> any Cancellable {
    completion(.failure(HTTPFailure(.unavailable, "there is no client for the token endpoint")))
    return NoCall()
  }
}

/// An activity that runs until it is cancelled. Cancelling twice is harmless.
public protocol Cancellable: AnyObject, Sendable {
  func cancel()
}

/// An activity that has ended already.
public final class NoCall: Cancellable {
  public init() {}
  public func cancel() {}
}

/// A header of a request or a response.
public struct HTTPHeader: Sendable, Equatable {
  public var name: String
  public var value: String
  /// Whether the value contains a secret of the pipeline file.
  public var isSecret = false
  public init(_ name: String, _ value: String, isSecret: Bool = false) {
    self.name = name
    self.value = value
    self.isSecret = isSecret
  }

  /// The value for logs: `(secret)` in place of a secret.
  public var shown: String {
    isSecret || name.lowercased() == "authorization" ? LocatedText.mask : value
  }
}

/// A request to an HTTP server.
public struct HTTPRequest: Sendable, Equatable {
  public var method: String
  /// Absolute, `http` or `https`. Print ``shownURL``.
  public var url: String
  /// The URL with `(secret)` in place of the secrets of the pipeline file; nil: it has none.
  public var maskedURL: String?
  /// The body with `(secret)` in place of secrets; nil: it has none.
  public var maskedBody: [UInt8]?
  public var headers: [HTTPHeader] = []
  public var body: [UInt8]?
  public var options = HTTPOptions()

  public init(method: String = "GET", url: String, headers: [HTTPHeader] = [], body: [UInt8]? = nil) {
    self.method = method
    self.url = url
    self.headers = headers
    self.body = body
  }

  /// The URL for logs.
  public var shownURL: String { maskedURL ?? url }
  /// The body for logs.
  public var shownBody: [UInt8]? { maskedBody ?? body }
}

/// How requests are made; the same for all requests of one component. The defaults are safe: no redirects are followed,
/// everything has a limit.
public struct HTTPOptions: Sendable, Equatable {
  /// Name resolution and connecting together, including TLS.
  public var connectTimeout: TimeSpan = .seconds(5)
  /// The whole exchange, from its start to the last byte of the response. Nothing else limits the time of a response.
  public var timeout: TimeSpan = .seconds(30)
  /// How many redirects to follow; only to the same scheme and host, never after a body was sent.
  public var maxRedirects = 0
  /// Bytes of a response, after decompression, counted in flight.
  public var maxResponseBytes = 16 << 20
  /// Whether a longer response is truncated instead of failing the exchange: for callers that need only the status.
  public var cutsResponse = false
  /// Whether to request a compressed response, which is decompressed in flight.
  public var acceptCompressed = false
  /// Whether a host given by name may resolve to a loopback or private address. A host given as an address may, and so
  /// may `localhost`.
  public var allowPrivate = false
  public var auth: Auth = .none
  public var tls = TLSOptions()
  /// `http://host:port`; nil: no proxy, whatever the environment says.
  public var proxy: String?
  /// The path of a Unix socket that the server listens on, whatever the URL's host; nil: the host is connected to.
  public var unixSocket: String?
  /// The counters of connections; nil: they are not counted.
  public var connections: HTTPConnections?
  /// The name of the sending sink; nil: a source sends the request. For tests of pipelines.
  public var sink: String?

  /// The authentication of a request.
  public enum Auth: Sendable, Equatable {
    case none
    case basic(user: String, password: Secret)
    case bearer(Secret)
    /// The client fetches the token, keeps it and renews it.
    case oauth2(OAuth2)
    case awsSigV4(AWSSigV4)
  }

  public init() {}
}

/// The TLS settings of a request.
public struct TLSOptions: Sendable, Equatable {
  /// A file of PEM certificates to trust instead of the system's.
  public var caFile: String?
  /// Client certificate and its key, PEM files.
  public var certificateFile: String?
  public var keyFile: String?
  public var verify = true
  public init() {}
}

/// The answer of an HTTP server.
public struct HTTPResponse: Sendable, Equatable {
  public var status: Int
  public var headers: [HTTPHeader]
  public var body: [UInt8]
  public init(status: Int, headers: [HTTPHeader] = [], body: [UInt8] = []) {
    self.status = status
    self.headers = headers
    self.body = body
  }

  /// The value of the first header with this name, compared without case.
  public func header(_ name: String) -> String? {
    headers.first { $0.name.lowercased() == name.lowercased() }?.value
  }
}

/// Why there is no response.
public struct HTTPFailure: Error, Sendable, Equatable {
  /// The cause of a failure.
  public enum Kind: String, Sendable {
    /// The URL cannot be used: wrong scheme, not a URL.
    case badRequest
    case resolve, connect, tls, timeout
    /// The connection broke or the peer does not speak HTTP.
    case protocolError
    case responseTooLarge, redirect
    /// An address that the policy forbids.
    case forbidden
    /// No request can ever be made on this machine: a library is missing.
    case unavailable
  }
  public var kind: Kind
  /// One sentence without a full stop, with the URL's host but never with credentials.
  public var message: String
  public init(_ kind: Kind, _ message: String) {
    self.kind = kind
    self.message = message
  }
}

/// A text that must never be shown: its description is masked.
public struct Secret: Sendable, Hashable, CustomStringConvertible, CustomReflectable {
  /// The text itself: pass it to a protocol, never print it.
  public let revealed: String
  public init(_ text: String) { revealed = text }
  public var description: String { "(secret)" }
  public var customMirror: Mirror { Mirror(self, children: []) }
}
