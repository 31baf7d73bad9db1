/// Checks the URL of a request by its text alone.
enum URLSyntax {
  /// The reason why no request can be sent to a URL.
  struct Problem {
    /// One sentence without a full stop. It quotes nothing that may be a password.
    var message: String
    var help: String?
    /// Whether the URL contains a user name or a password. How to give them depends on the component, so `help` is nil.
    var isCredentials = false
  }

  /// Checks an absolute http or https URL, or the start of one up to its host.
  static func problem(_ url: [UInt8]) -> Problem? {
    if let byte = url.first(where: { $0 <= 0x20 || $0 == 0x7F }) {
      return Problem(
        message: "the URL contains a \(byte == 0x20 ? "space" : "control character")",
        help: byte == 0x20 ? "Write %20 in its place" : nil)
    }
    func isDigit(_ byte: UInt8) -> Bool { (0x30...0x39).contains(byte) || (0x61...0x66).contains(byte | 0x20) }
    for at in url.indices.dropLast(2)
    where url[at] == UInt8(ascii: "%") && !(isDigit(url[at + 1]) && isDigit(url[at + 2])) {
      return Problem(
        message: "the URL contains a '%' without two hexadecimal digits after it", help: "Write %25 for a '%'")
    }
    guard let authority = authority(of: url) else { return nil }
    if let at = authority.lastIndex(of: UInt8(ascii: "@")) {
      let hasPassword = authority[..<at].contains(UInt8(ascii: ":"))
      return Problem(
        message: "the URL contains a \(hasPassword ? "password" : "user name")", isCredentials: true)
    }
    if authority.first == UInt8(ascii: "[") {
      guard let close = authority.firstIndex(of: UInt8(ascii: "]")) else {
        return Problem(message: "the address in the URL has no closing ]")
      }
      let behind = authority[(close + 1)...]
      guard behind.isEmpty || behind.first == UInt8(ascii: ":") else {
        return Problem(message: "the URL has something other than a port after its address")
      }
    }
    let (host, port) = parts(of: authority)
    return problem(port: port) ?? problem(host: String(decoding: host, as: UTF8.self))
  }

  /// The part between `://` and the path; nil: there is no `://`.
  private static func authority(of url: [UInt8]) -> ArraySlice<UInt8>? {
    guard let scheme = url.firstRange(of: Array("://".utf8)) else { return nil }
    let rest = url[scheme.upperBound...]
    return rest.prefix { ![UInt8(ascii: "/"), UInt8(ascii: "?"), UInt8(ascii: "#")].contains($0) }
  }

  /// The host, with its brackets, and the port of an authority; the port is empty if there is none.
  private static func parts(of authority: ArraySlice<UInt8>) -> (host: ArraySlice<UInt8>, port: ArraySlice<UInt8>) {
    let close = authority.first == UInt8(ascii: "[") ? authority.firstIndex(of: UInt8(ascii: "]")) : nil
    let behind = close.map { $0 + 1 } ?? authority.startIndex
    guard let colon = authority[behind...].firstIndex(of: UInt8(ascii: ":")) else { return (authority, []) }
    return (authority[..<colon], authority[(colon + 1)...])
  }

  /// The server of a URL.
  struct Target {
    /// In lower case: http, https, ws or wss.
    var scheme: String
    /// Without brackets.
    var host: String
    var port: Int
    /// Without the query.
    var path: String
    var isSecure: Bool { Self.isSecure(scheme) }
    static func isSecure(_ scheme: String) -> Bool { scheme == "https" || scheme == "wss" }
  }

  /// The server of an http or ws URL; nil: it is not such a URL, or a part of it is not known yet.
  static func target(_ url: [UInt8]) -> Target? {
    let scheme = String(decoding: url.prefix { $0 != UInt8(ascii: ":") }, as: UTF8.self).lowercased()
    guard ["http", "https", "ws", "wss"].contains(scheme), problem(url) == nil, let authority = authority(of: url)
    else { return nil }
    let (host, port) = parts(of: authority)
    let path = url[authority.endIndex...].prefix { $0 != UInt8(ascii: "?") && $0 != UInt8(ascii: "#") }
    return Target(
      scheme: scheme,
      host: String(decoding: host.filter { $0 != UInt8(ascii: "[") && $0 != UInt8(ascii: "]") }, as: UTF8.self),
      port: Int(String(decoding: port, as: UTF8.self)) ?? (Target.isSecure(scheme) ? 443 : 80),
      path: path.isEmpty ? "/" : String(decoding: path, as: UTF8.self))
  }

  private static func problem(port: ArraySlice<UInt8>) -> Problem? {
    if port.isEmpty { return nil }
    guard port.allSatisfy({ (UInt8(ascii: "0")...UInt8(ascii: "9")).contains($0) }),
      let number = Int(String(decoding: port, as: UTF8.self)), (1...65_535).contains(number)
    else {
      return Problem(message: "the port of the URL must be a number from 1 to 65535")
    }
    return nil
  }

  private static func problem(host: String) -> Problem? {
    if host.isEmpty { return Problem(message: "the URL has no host", help: "Write http://HOST/PATH") }
    let shown = Printable.cut(host)
    // A dot at the end of an address has no effect.
    let address = AddressPolicy.bytes(ofHost: host.utf8.last == UInt8(ascii: ".") ? String(host.dropLast()) : host)
    if host.utf8.first == UInt8(ascii: "["), address?.count != 16 {
      return Problem(message: "'\(shown)' is not an IPv6 address")
    }
    if let address {
      guard AddressPolicy.judge(address) == .forbidden else { return nil }
      return Problem(
        message: "'\(shown)' is a link-local, multicast or reserved address, to which rxd sends no requests")
    }
    let labels = host.utf8.split(separator: UInt8(ascii: "."), omittingEmptySubsequences: false)
    // The name may end with a dot.
    let named = labels.last?.isEmpty == true ? labels.dropLast() : labels[...]
    // A name whose last part is a number would be read as an address (the URL standard of WHATWG, 3.5).
    if let last = named.last, !last.isEmpty, last.allSatisfy({ (0x30...0x39).contains($0) }) {
      return Problem(message: "'\(shown)' is not an IPv4 address")
    }
    if host.utf8.contains(where: { $0 >= 0x80 }) {
      return Problem(
        message: "the host '\(shown)' contains letters outside ASCII",
        help: "Write its encoded form, which begins with xn--")
    }
    guard host.utf8.count <= 254, !named.isEmpty,
      named.allSatisfy({ label in
        (1...63).contains(label.count) && label.first != UInt8(ascii: "-") && label.last != UInt8(ascii: "-")
      }), host.utf8.allSatisfy(isHostByte)
    else { return Problem(message: "'\(shown)' is not a host name") }
    return nil
  }

  /// Letters, digits, - and _ form host names.
  private static func isHostByte(_ byte: UInt8) -> Bool {
    switch byte {
    case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
      UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "-"), UInt8(ascii: "_"), UInt8(ascii: "."):
      true
    default: false
    }
  }
}

extension HTTPHeader {
  /// Whether a text can be the name of a header, or a method: letters, digits and the characters that RFC 9110 allows.
  package static func isToken(_ text: String) -> Bool {
    !text.isEmpty
      && text.utf8.allSatisfy { byte in
        switch byte {
        case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
          UInt8(ascii: "0")...UInt8(ascii: "9"):
          true
        default: marks.contains(byte)
        }
      }
  }

  private static let marks = Array("!#$%&'*+-.^_`|~".utf8)

  /// Whether only rxd may write this header, because it determines where a message ends.
  package static func isFraming(_ name: String) -> Bool {
    framing.contains { known in
      known.count == name.utf8.count && zip(known, name.utf8).allSatisfy { $0 == ($1 &- 65 < 26 ? $1 | 0x20 : $1) }
    }
  }

  private static let framing = [
    "content-length", "transfer-encoding", "connection", "keep-alive", "te", "trailer", "upgrade",
  ].map { Array($0.utf8) }
}

extension Table<TemplateParameter> {
  /// Checks headers in the file.
  ///
  /// - Parameter isRequest: Whether they belong to requests, not to answers.
  package func validateHeaders(isRequest: Bool, hasAuth: Bool = false, _ context: inout DecodingContext) {
    for header in entries {
      let shown = Printable.cut(Array(header.name.utf8))
      let name = header.name.lowercased()
      if !HTTPHeader.isToken(header.name) {
        context.badValue(
          at: header.location, "'\(shown)' is not a valid header name: use letters, digits and !#$%&'*+-.^_`|~")
      } else if HTTPHeader.isFraming(name) {
        context.badValue(
          at: header.location, "the header '\(shown)' cannot be set: rxd writes it itself", help: "Leave it out")
      } else if isRequest, hasAuth, name == "authorization" {
        context.badValue(
          at: header.location, "'auth' sets the header Authorization, and so does 'headers'", .conflictingParameters,
          help: "Leave one of them out")
      } else if isRequest, name == "host" {
        context.badValue(
          at: header.location,
          "the header 'Host' replaces the URL's host for the server; the connection still goes to the URL's host",
          .doubtfulValue, help: "Remove it, unless the server must answer for another name")
      }
      let value = header.value.template
      if let value, value.isConstant, value.literalPrefix.utf8.contains(where: Self.isForbidden) {
        context.badValue(
          at: header.value.location ?? header.location,
          """
          the header '\(shown)' contains a line break or control character
          """)
      }
    }
  }

  /// Whether a header value must not contain this byte: a line break or another control character.
  static func isForbidden(_ byte: UInt8) -> Bool { byte < 0x20 && byte != 0x09 || byte == 0x7F }
}
