/// The interface of an HTTP client: the transport implements it, tests stub it.
package protocol HTTPClient: AnyObject, Sendable {
  /// Starts a request. `completion` is called exactly once, on any thread, possibly before `send` returns; it is not
  /// called if the exchange is cancelled first.
  func send(
    _ request: HTTPRequest, _ completion: @escaping @Sendable (Result<HTTPResponse, HTTPFailure>) -> Void
  ) -> any Cancellable

  /// Starts a request with a streamed response: `timeout` does not limit it, and no redirect is followed. `receive` is
  /// called on any thread, in the order of the parts, until the last one or until the exchange is cancelled.
  func stream(_ request: HTTPRequest, _ receive: @escaping @Sendable (HTTPStreamPart) -> Void) -> any HTTPStream

  /// Fetches an access token, or returns a cached one. `completion` is called once, on any thread, unless the call is
  /// cancelled first.
  /// - Parameters:
  ///   - options: The options of the connection that presents the token; their `auth` must be OAuth 2.0.
  ///   - refused: A token that a server has rejected.
  func accessToken(
    _ options: HTTPOptions, insteadOf refused: Secret?,
    _ completion: @escaping @Sendable (Result<Secret, HTTPFailure>) -> Void
  ) -> any Cancellable

  /// Why no request can be made on this machine; nil if no reason is known. May load a library.
  var fault: HTTPFailure? { get }
}

extension HTTPClient {
  package var fault: HTTPFailure? { nil }
  package func accessToken(
    _ options: HTTPOptions, insteadOf refused: Secret?,
    _ completion: @escaping @Sendable (Result<Secret, HTTPFailure>) -> Void
  ) -> any Cancellable {
    completion(.failure(HTTPFailure(.unavailable, "there is no client for the token endpoint")))
    return NoCall()
  }
}

/// An activity that runs until it is cancelled. Cancelling twice is harmless.
package protocol Cancellable: AnyObject, Sendable {
  func cancel()
}

/// An activity that has already ended.
package final class NoCall: Cancellable {
  package init() {}
  package func cancel() {}
}

/// A header of a request or a response.
package struct HTTPHeader: Sendable, Equatable {
  package var name: String
  package var value: String
  /// Whether the value contains a secret of the pipeline file.
  package var isSecret = false
  package init(_ name: String, _ value: String, isSecret: Bool = false) {
    self.name = name
    self.value = value
    self.isSecret = isSecret
  }

  /// The value for logs: `(secret)` if it contains a secret.
  package var shown: String {
    isSecret || name.lowercased() == "authorization" ? LocatedText.mask : value
  }
}

/// A request to an HTTP server.
package struct HTTPRequest: Sendable, Equatable {
  package var method: String
  /// Absolute, `http` or `https`. Print ``shownURL``.
  package var url: String
  /// The URL with `(secret)` in place of the secrets of the pipeline file; nil if it contains none.
  package var maskedURL: String?
  /// The body with `(secret)` in place of secrets; nil if it contains none.
  package var maskedBody: [UInt8]?
  package var headers: [HTTPHeader] = []
  package var body: [UInt8]?
  package var options = HTTPOptions()

  package init(method: String = "GET", url: String, headers: [HTTPHeader] = [], body: [UInt8]? = nil) {
    self.method = method
    self.url = url
    self.headers = headers
    self.body = body
  }

  /// The URL for logs.
  package var shownURL: String { maskedURL ?? url }
  /// The body for logs.
  package var shownBody: [UInt8]? { maskedBody ?? body }
}

/// How requests are made; the same for all requests of one component. The defaults are safe: redirects are not
/// followed, and everything has a limit.
package struct HTTPOptions: Sendable, Equatable {
  /// The time limit for name resolution, connecting and TLS together.
  package var connectTimeout: TimeSpan = .seconds(5)
  /// The time limit for the whole exchange, from its start to the last byte of the response. Nothing else limits the
  /// time of a response.
  package var timeout: TimeSpan = .seconds(30)
  /// The maximum number of redirects to follow; only to the same scheme and host, never after a body was sent.
  package var maxRedirects = 0
  /// The maximum size of a response in bytes, counted after decompression while it arrives.
  package var maxResponseBytes = 16 << 20
  /// Whether a longer response is truncated instead of failing the exchange: for callers that need only the status.
  package var cutsResponse = false
  /// Whether to request a compressed response, which is decompressed while it arrives.
  package var acceptCompressed = false
  /// Whether a host given as a name may resolve to a loopback or private address. A host given as an address always
  /// may, and so may `localhost`.
  package var allowPrivate = false
  package var auth: Auth = .none
  package var tls = TLSOptions()
  /// `http://host:port`; nil: no proxy, even if the environment sets one.
  package var proxy: String?
  /// The path of the Unix socket to connect to, whatever the URL's host; nil: connect to the host.
  package var unixSocket: String?
  /// Counts the connections; nil: they are not counted.
  package var connections: HTTPConnections?
  /// The name of the sink that sends the request; nil if a source does. For tests of pipelines.
  package var sink: String?

  /// The authentication of a request.
  package enum Auth: Sendable, Equatable {
    case none
    case basic(user: String, password: Secret)
    case bearer(Secret)
    /// The client fetches, caches and renews the token.
    case oauth2(OAuth2)
    case awsSigV4(AWSSigV4)
  }

  /// How long a connection is kept for further requests, and an address of a name for further connections; in whole seconds.
  package var connectionLife = TimeSpan.seconds(30)

  package init() {}
}

/// The TLS settings of a request.
package struct TLSOptions: Sendable, Equatable {
  /// A file of PEM certificates to trust instead of the system's.
  package var caFile: String?
  /// The files of the client certificate and its key, in PEM.
  package var certificateFile: String?
  package var keyFile: String?
  package var verify = true
  package init() {}
}

/// The answer of an HTTP server.
package struct HTTPResponse: Sendable, Equatable {
  package var status: Int
  package var headers: [HTTPHeader]
  package var body: [UInt8]
  /// Charges the body to the memory of the process as long as the answer lives; nil: it is not charged.
  package var charge: MemoryCharge?
  package init(status: Int, headers: [HTTPHeader] = [], body: [UInt8] = [], charge: MemoryCharge? = nil) {
    self.status = status
    self.headers = headers
    self.body = body
    self.charge = charge
  }

  /// The value of the first header with this name, compared without case.
  package func header(_ name: String) -> String? {
    headers.first { $0.name.lowercased() == name.lowercased() }?.value
  }
}

/// Why there is no response.
package struct HTTPFailure: Error, Sendable, Equatable {
  /// The cause of a failure.
  package enum Kind: String, Sendable {
    /// The URL cannot be used: it has a wrong scheme, or is not a URL.
    case badRequest
    case resolve, connect, tls, timeout
    /// The connection broke, or the peer does not speak HTTP.
    case protocolError
    case responseTooLarge, redirect
    /// An address that the policy forbids.
    case forbidden
    /// No request can ever be made on this machine: a library is missing.
    case unavailable
  }
  package var kind: Kind
  /// One sentence without a full stop; may name the URL's host, but never credentials.
  package var message: String
  package init(_ kind: Kind, _ message: String) {
    self.kind = kind
    self.message = message
  }
}

/// A text that must never be shown: its description is masked.
public struct Secret: Sendable, Hashable, CustomStringConvertible, CustomReflectable {
  /// The text itself: pass it to a protocol, never print it.
  public let revealed: String
  package init(_ text: String) { revealed = text }
  public var description: String { "(secret)" }
  public var customMirror: Mirror { Mirror(self, children: []) }
}
