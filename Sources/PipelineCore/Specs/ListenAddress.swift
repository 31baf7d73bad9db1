/// The address where a source listens.
public struct ListenAddress: Sendable, Equatable {
  enum Kind: Sendable, Hashable {
    case stream, datagram
    /// The host is the path of a Unix socket.
    case socket
  }

  /// An IP address without brackets, a name, or a path.
  package var host: String
  /// The port; 0: the system chooses a free one.
  package var port: Int
  /// The location in the file, if it is given there.
  package var location: SourceLocation?
  let kind: Kind
  /// The part that is served over HTTP; nil: the address is for one component alone.
  var site: Site?

  /// The part of an address that one HTTP server serves.
  package struct Site: Sendable, Equatable {
    /// The path that the server serves; nil: all paths that no other server has.
    package var path: String?
    package var methods: [String]?
    /// The files of the certificate; empty: connections are not encrypted.
    package var tls: [String]
    /// Whether the server serves WebSockets.
    package var isWebSocket: Bool

    package init(path: String?, methods: [String]?, tls: [String?] = [], isWebSocket: Bool = false) {
      self.isWebSocket = isWebSocket
      self.path = path
      self.methods = methods
      self.tls = tls.allSatisfy { $0 == nil } ? [] : tls.map { $0 ?? "" }
    }

    var scope: ServingRules.Scope { ServingRules.Scope(path: path, methods: methods) }
  }

  /// A server that shares the address with others.
  package init(host: String, port: Int, location: SourceLocation?, site: Site) {
    self.init(host: host, port: port, location: location)
    self.site = site
  }

  package init(host: String, port: Int, location: SourceLocation? = nil, isDatagram: Bool = false) {
    // Datagrams and streams have separate ports.
    kind = isDatagram ? .datagram : .stream
    self.host = host
    self.port = port
    self.location = location
  }

  /// A Unix socket.
  package init(socket path: String, location: SourceLocation? = nil) {
    kind = .socket
    host = path
    port = 0
    self.location = location
  }

  /// `HOST:PORT`, or the path.
  var text: String {
    if kind == .socket { return host }
    return host.utf8.contains(UInt8(ascii: ":")) ? "[\(host)]:\(port)" : "\(host):\(port)"
  }

  /// The address in a canonical spelling: two servers with the same spelling can share it.
  package var canonicalAddress: String { kind == .socket ? FileProbe.normal(host) : "\(Self.canonical(host)):\(port)" }

  /// A key that is equal for all addresses that may denote the same socket: the hosts are not compared.
  struct Key: Hashable {
    var kind: Kind
    var port: Int
    var path: String
  }
  var key: Key { Key(kind: kind, port: port, path: kind == .socket ? FileProbe.normal(host) : "") }

  /// Whether the two addresses may denote the same socket, depending on their hosts.
  private func shares(_ other: ListenAddress) -> Bool { key == other.key && (kind == .socket || port != 0) }

  /// Whether only one of the two addresses can be listened on at a time: the ports are equal, and the hosts are equal
  /// or one of them means all addresses. Names are not resolved, so two names for one address go unnoticed.
  func excludes(_ other: ListenAddress) -> Bool {
    guard shares(other) else { return false }
    if kind == .socket { return true }
    let (host, second) = (Self.canonical(host), Self.canonical(other.host))
    if host == second || host == "::" || second == "::" { return true }
    if host == "0.0.0.0" || second == "0.0.0.0" { return !Self.isVersion6(host) && !Self.isVersion6(second) }
    // The system decides which of these addresses `localhost` is.
    func isLocal(_ host: String) -> Bool { host == "127.0.0.1" || host == "::1" }
    return host == "localhost" && isLocal(second) || second == "localhost" && isLocal(host)
  }

  /// Why the two cannot be listened on at the same time; nil: they can.
  func conflict(_ other: ListenAddress) -> Conflict? {
    guard excludes(other) else { return nil }
    guard let site, let second = other.site else { return .address }
    guard canonicalAddress == other.canonicalAddress else { return .spelling }
    if site.tls != second.tls { return .tls }
    return site.scope.conflict(second.scope).map { .site($0) }
  }

  enum Conflict: Equatable {
    case address
    /// Both serve HTTP and could share the address if the files spelt it in the same way.
    case spelling
    case tls
    /// The site that both serve.
    case site(String)
  }

  /// Whether data that this machine sends to this address arrives at `listener`. Names are not resolved, so another
  /// name of this machine goes unnoticed.
  func arrives(at listener: ListenAddress) -> Bool {
    guard shares(listener) else { return false }
    if kind == .socket { return true }
    let (target, own) = (Self.canonical(host), Self.canonical(listener.host))
    let isLoopback =
      target == "localhost" || target == "::1"
      || AddressPolicy.bytes(ofHost: target).map { $0.count == 4 && $0[0] == 127 } == true
    if target == own || !isLoopback { return target == own }
    if own == "::" { return true }
    return own == "0.0.0.0" ? !Self.isVersion6(target) : excludes(listener)
  }

  private static func isVersion6(_ host: String) -> Bool { host.utf8.contains(UInt8(ascii: ":")) }

  /// A host in its canonical spelling: addresses as the system writes them, names in lower case.
  private static func canonical(_ host: String) -> String {
    guard let bytes = AddressPolicy.bytes(ofHost: host) else { return host.lowercased() }
    if bytes.count == 4 { return bytes.map { String($0) }.joined(separator: ".") }
    if bytes.allSatisfy({ $0 == 0 }) { return "::" }
    if bytes.dropLast().allSatisfy({ $0 == 0 }), bytes.last == 1 { return "::1" }
    return stride(from: 0, to: 16, by: 2).map { String(UInt16(bytes[$0]) << 8 | UInt16(bytes[$0 + 1]), radix: 16) }
      .joined(separator: ":")
  }
}

/// The address that a sink sends to.
public struct TargetAddress: Sendable {
  package var address: ListenAddress
  /// The HTTP request; nil: the sink does not use HTTP.
  var request: Request?

  struct Request: Sendable {
    /// The path without the query.
    var path: String
    var method: String
    var isSecure: Bool
    var isWebSocket: Bool
  }

  package init(_ address: ListenAddress) { self.address = address }

  /// The address of an http or ws URL; nil: it is not known yet.
  package init?(url: String, method: String, at location: SourceLocation?) {
    guard let target = URLSyntax.target(Array(url.utf8)) else { return nil }
    address = ListenAddress(host: target.host, port: target.port, location: location)
    request = Request(
      path: target.path, method: method, isSecure: target.isSecure,
      isWebSocket: target.scheme.hasPrefix("ws"))
  }

  /// The address in a URL template; nil: a part of it is not known yet.
  package init?(_ url: TemplateParameter, method: String) {
    guard let template = url.template, template.isConstant, !template.literalPrefix.contains("${") else { return nil }
    self.init(url: template.literalPrefix, method: method, at: url.location)
  }

  /// Whether a listener with these rules receives the data. Without HTTP and TLS on either side, it always does.
  func arrives(at listener: ListenAddress, _ rules: ServingRules?) -> Bool {
    guard address.arrives(at: listener) else { return false }
    guard let request, let site = listener.site else { return request == nil && listener.site == nil && rules == nil }
    guard request.isSecure != site.tls.isEmpty, request.isWebSocket == site.isWebSocket else { return false }
    if let rules { return rules.scope.refusal(ofPath: Substring(request.path), method: request.method) == nil }
    return site.path.map { $0 == request.path } ?? true
  }
}
