/// The names that a server answers to, and the web sites whose pages may send requests to it.
///
/// A browser lets any page send requests to the loopback address of the browser's machine, even under the name of the
/// page's site, which that site can make resolve to the address (DNS rebinding). It sends that name in `Host` and the
/// site of the page in `Origin`. So a server on a loopback address answers only to names of the machine itself and to
/// `hosts`, and accepts requests only from programs, from its own pages, and from pages of `origins`. A proxy that
/// passes on the `Host` that it was sent is such a program; if `hosts` are given, they apply to programs, too.
package struct PageAccess: Sendable, Equatable {
  /// Whether the server listens on a loopback address.
  package var isLocal = false
  /// Further names that the server answers to, without ports; `*`: all names. On other than loopback addresses, names
  /// are checked only if this list is not empty.
  package var hosts: [String] = []
  /// The sites, such as `https://example.org`, whose pages may send requests, in addition to the server's own; `*`: all
  /// sites. On other than loopback addresses, sites are checked only if this list is not empty.
  package var origins: [String] = []
  /// Whether origins are checked on every address: browsers let the pages of all sites read WebSockets.
  package var alwaysChecksOrigins = false

  package init(isLocal: Bool = false) { self.isLocal = isLocal }

  /// The headers of a request that are checked.
  package struct Headers {
    package var host: UnsafeRawBufferPointer?
    package var origin: UnsafeRawBufferPointer?
    /// Whether the browser names no site, but says that the request comes from a page of another site or port and that
    /// its answer is not opened as a page.
    package var isOfOtherPage = false
    /// Whether only a program can have sent the request: with any method but GET and HEAD, a browser names the site of
    /// the page, even under a rebound name. A browser that withholds the site still sends `Sec-Fetch-Site`.
    package var isOfProgram = false

    package init(
      host: UnsafeRawBufferPointer? = nil, origin: UnsafeRawBufferPointer? = nil, isOfOtherPage: Bool = false,
      isOfProgram: Bool = false
    ) {
      self.host = host
      self.origin = origin
      self.isOfOtherPage = isOfOtherPage
      self.isOfProgram = isOfProgram
    }
  }

  package var checksHosts: Bool { isLocal || !hosts.isEmpty }
  package var checksOrigins: Bool { isLocal || alwaysChecksOrigins || !origins.isEmpty }

  /// The answer to a request that is refused; nil: it is accepted. A request without `Host` is HTTP/1.0, which no
  /// browser uses.
  package func refusal(_ headers: Headers) -> ServerAnswer? {
    if checksHosts, !(headers.isOfProgram && hosts.isEmpty), let host = headers.host, !answers(to: host) {
      return Self.otherName
    }
    if checksOrigins, !admits(headers) { return Self.otherOrigin }
    return nil
  }

  /// The answer to a request with these headers that is refused; nil: it is accepted.
  package func refusal(host: String?, origin: String?) -> ServerAnswer? {
    Array((host ?? "").utf8).withUnsafeBytes { hostBytes in
      Array((origin ?? "").utf8).withUnsafeBytes { originBytes in
        refusal(Headers(host: host.map { _ in hostBytes }, origin: origin.map { _ in originBytes }))
      }
    }
  }

  package static let otherName = ServerAnswer(
    421, error: "this address is not served under the name in 'Host'; 'hosts' names those under which it is")
  package static let otherOrigin = ServerAnswer(
    403, error: "pages of this origin may send no requests here; 'origins' names those that may")

  /// Whether the server answers to the name in a `Host` header. The port is ignored, because it may have been
  /// forwarded.
  package func answers(to host: UnsafeRawBufferPointer) -> Bool {
    let name = Self.name(of: host)
    return Self.isOwn(name) || hosts.contains { $0 == "*" || Self.isSame(name, $0.utf8) }
  }

  /// Whether the page that sends the request may do so. Programs send no origin.
  private func admits(_ headers: Headers) -> Bool {
    guard let origin = headers.origin else {
      return !headers.isOfOtherPage || origins.contains("*")
    }
    if let host = headers.host, let site = Self.site(of: origin), Self.isSame(site, host) { return true }
    return origins.contains { $0 == "*" || Self.isSame(origin[...], $0.utf8) }
  }

  /// The name without the port.
  private static func name(of host: UnsafeRawBufferPointer) -> Slice<UnsafeRawBufferPointer> {
    if host.first == UInt8(ascii: "["), let end = host.firstIndex(of: UInt8(ascii: "]")) {
      let rest = host[(end + 1)...]
      return rest.isEmpty || rest.first == UInt8(ascii: ":") ? host[...end] : host[...]
    }
    return host.prefix { $0 != UInt8(ascii: ":") }
  }

  /// Host and port after the scheme of an origin; nil: the origin is `null`.
  private static func site(of origin: UnsafeRawBufferPointer) -> Slice<UnsafeRawBufferPointer>? {
    guard let colon = origin.firstIndex(of: UInt8(ascii: ":")), origin[colon...].starts(with: "://".utf8) else {
      return nil
    }
    return origin[(colon + 3)...]
  }

  /// Whether a name means the machine itself: `localhost`, an address of 127.0.0.0/8, or `[::1]`.
  private static func isOwn(_ name: Slice<UnsafeRawBufferPointer>) -> Bool {
    isSame(name, "localhost".utf8) || name.elementsEqual("[::1]".utf8) || isLoopbackAddress(name)
  }

  private static func isLoopbackAddress(_ name: Slice<UnsafeRawBufferPointer>) -> Bool {
    guard name.count <= 15, name.starts(with: "127.".utf8) else { return false }
    var parts = 1
    var digits = 0
    var number = 0
    for byte in name {
      if byte == UInt8(ascii: ".") {
        guard digits > 0 else { return false }
        (parts, digits, number) = (parts + 1, 0, 0)
      } else {
        guard byte &- 48 < 10, digits < 3 else { return false }
        (digits, number) = (digits + 1, number * 10 + Int(byte &- 48))
        guard number < 256 else { return false }
      }
    }
    return parts == 4 && digits > 0
  }

  /// Whether the texts are equal, ignoring the case of ASCII letters.
  private static func isSame(
    _ one: Slice<UnsafeRawBufferPointer>, _ other: some Collection<UInt8>
  ) -> Bool {
    one.count == other.count && zip(one, other).allSatisfy { lower($0) == lower($1) }
  }

  private static func lower(_ byte: UInt8) -> UInt8 { byte &- 65 < 26 ? byte | 0x20 : byte }
}
