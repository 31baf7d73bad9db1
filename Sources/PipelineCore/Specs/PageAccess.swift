/// The names that a server answers to, and the web sites whose pages may send requests to it.
///
/// A browser sends requests of any page to the loopback address of its own machine, also under the name of the page's site, which that site can
/// have resolved to the address (DNS rebinding). It says the name in `Host` and the site of the page in `Origin`. So a server on a loopback
/// address answers only to names of the machine itself and to `hosts`, and takes requests only from programs, from its own pages, and
/// from pages of `origins`. A proxy that passes on the name by which it was asked is such a program; where `hosts` are given, they count for
/// programs, too.
package struct PageAccess: Sendable, Equatable {
  /// Whether it listens on a loopback address.
  package var isLocal = false
  /// Further names that it answers to, without ports; `*`: all names. Elsewhere than on a loopback address they count if there are any.
  package var hosts: [String] = []
  /// The sites, `https://example.org`, whose pages may send requests besides its own; `*`: all. Elsewhere than on a loopback address
  /// they count if there are any.
  package var origins: [String] = []
  /// Whether the origin counts on every address: browsers let the pages of all sites read WebSockets.
  package var alwaysChecksOrigins = false

  package init(isLocal: Bool = false) { self.isLocal = isLocal }

  /// The headers that decide, as far as a request has them.
  package struct Headers {
    package var host: UnsafeRawBufferPointer?
    package var origin: UnsafeRawBufferPointer?
    /// The browser names no site and says that a page of another site, or of another port, sends the request, and does not open its answer as a page.
    package var isOfOtherPage = false
    /// Whether only a program can have sent it: with any method but GET and HEAD a browser names the site of the page, also under a name that leads
    /// here. One that keeps this from servers still says in `Sec-Fetch-Site` that it is a browser.
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

  /// The answer to a request that is not taken; nil: it is. A request without `Host` is of HTTP/1.0, which no browser speaks.
  package func refusal(_ headers: Headers) -> ServerAnswer? {
    if checksHosts, !(headers.isOfProgram && hosts.isEmpty), let host = headers.host, !answers(to: host) {
      return Self.otherName
    }
    if checksOrigins, !admits(headers) { return Self.otherOrigin }
    return nil
  }

  /// The same for texts.
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

  /// Whether it answers to the name in a `Host` header, whatever the port: it may have been forwarded.
  package func answers(to host: UnsafeRawBufferPointer) -> Bool {
    let name = Self.name(of: host)
    return Self.isOwn(name) || hosts.contains { $0 == "*" || Self.isSame(name, $0.utf8) }
  }

  /// Whether the page that sends the request may do so. Programs name no origin.
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

  /// Host and port behind the scheme of an origin; nil: it has none (`null`).
  private static func site(of origin: UnsafeRawBufferPointer) -> Slice<UnsafeRawBufferPointer>? {
    guard let colon = origin.firstIndex(of: UInt8(ascii: ":")), origin[colon...].starts(with: "://".utf8) else {
      return nil
    }
    return origin[(colon + 3)...]
  }

  /// Whether a name is that of every machine for itself: `localhost`, an address of 127.0.0.0/8, or `[::1]`.
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
