import Glibc

/// Decides which addresses requests may go to. The address itself decides, not the name.
package enum AddressPolicy {
  /// The decision for an address.
  package enum Verdict: Sendable, Equatable {
    case allowed
    /// Loopback or private: allowed only if the pipeline file gives the host as an address, or allows private
    /// addresses.
    case privateNetwork
    /// Never allowed: link-local (including cloud metadata), multicast, unspecified, reserved.
    case forbidden
  }

  /// - Parameter bytes: 4 or 16 bytes in network order; anything else is forbidden.
  package static func judge(_ bytes: [UInt8]) -> Verdict {
    switch bytes.count {
    case 4: judgeV4(bytes[0], bytes[1], bytes[2], bytes[3])
    case 16: judgeV6(bytes)
    default: .forbidden
    }
  }

  /// Whether the host of a URL may mean a private address: it is an address itself, or `localhost`.
  package static func maySayPrivate(host: String) -> Bool {
    let lowered = host.lowercased()
    return bytes(ofHost: host) != nil || lowered == "localhost" || lowered.hasSuffix(".localhost")
  }

  /// Why a connection to an address is refused, one sentence without a full stop; nil if it is allowed.
  ///
  /// - Parameters:
  ///   - host: As written in the URL.
  ///   - port: As written in the URL.
  ///   - mayBePrivate: Whether the host is an address itself, or private addresses are allowed.
  package static func refusal(of address: [UInt8], host: String, port: String, mayBePrivate: Bool) -> String? {
    switch judge(address) {
    case .allowed: nil
    case .privateNetwork where mayBePrivate: nil
    case .privateNetwork:
      "\(host) leads to a loopback or private address; write the address itself, or allow private addresses"
    case .forbidden: "\(host):\(port) is a link-local, multicast or reserved address, which is never used"
    }
  }

  /// The address that a URL's host denotes, 4 or 16 bytes in network order; nil if the host is a name.
  ///
  /// IPv6 addresses may have brackets and a zone. IPv4 addresses may have any form that C libraries read: `127.1`,
  /// `0x7f000001`, `2130706433`.
  package static func bytes(ofHost host: String) -> [UInt8]? {
    var text = Substring(host)
    if text.utf8.first == UInt8(ascii: "[") { text = text.dropFirst() }
    if text.utf8.last == UInt8(ascii: "]") { text = text.dropLast() }
    if let zone = text.utf8.firstIndex(of: UInt8(ascii: "%")) { text = text[..<zone] }
    var v6 = in6_addr()
    if inet_pton(AF_INET6, String(text), &v6) == 1 { return withUnsafeBytes(of: v6) { Array($0) } }
    var v4 = in_addr()
    // Only texts of digits, x and dots that start with a digit are passed on: the C library would also accept an
    // address followed by a space.
    guard let first = text.utf8.first, (UInt8(ascii: "0")...UInt8(ascii: "9")).contains(first),
      text.utf8.allSatisfy({ isHexadecimal($0) || $0 == UInt8(ascii: ".") || $0 | 0x20 == UInt8(ascii: "x") }),
      inet_aton(String(text), &v4) == 1
    else { return nil }
    return withUnsafeBytes(of: v4) { Array($0) }
  }

  private static func isHexadecimal(_ byte: UInt8) -> Bool {
    (UInt8(ascii: "0")...UInt8(ascii: "9")).contains(byte)
      || (UInt8(ascii: "a")...UInt8(ascii: "f")).contains(byte | 0x20)
  }

  private static func judgeV4(_ a: UInt8, _ b: UInt8, _ c: UInt8, _ d: UInt8) -> Verdict {
    switch (a, b, c, d) {
    case (0, _, _, _), (169, 254, _, _), (224..., _, _, _): .forbidden
    // Metadata services outside the link-local range: Alibaba, Oracle.
    case (100, 100, 100, 200), (192, 0, 0, 192): .forbidden
    case (10, _, _, _), (127, _, _, _), (172, 16...31, _, _), (192, 168, _, _), (100, 64...127, _, _):
      .privateNetwork
    default: .allowed
    }
  }

  private static func judgeV6(_ a: [UInt8]) -> Verdict {
    let embedded = judgeV4(a[12], a[13], a[14], a[15])
    let leading = a.prefix { $0 == 0 }.count
    if leading == 16 { return .forbidden }  // ::
    if leading == 15, a[15] == 1 { return .privateNetwork }  // ::1
    if leading >= 12 { return embedded == .allowed ? .privateNetwork : embedded }  // ::a.b.c.d
    if leading == 10, a[10] == 0xff, a[11] == 0xff { return embedded }  // ::ffff:a.b.c.d
    if a.starts(with: [0x00, 0x64, 0xff, 0x9b]) { return embedded }  // NAT64
    if a.starts(with: [0x20, 0x02]) { return judgeV4(a[2], a[3], a[4], a[5]) }  // 6to4
    if a[0] == 0xff { return .forbidden }  // multicast
    if a[0] == 0xfe, a[1] & 0xc0 == 0x80 { return .forbidden }  // link-local
    // fd00:ec2::254, Amazon's metadata service.
    if a.starts(with: [0xfd, 0x00, 0x0e, 0xc2]) { return .forbidden }
    if a[0] & 0xfe == 0xfc { return .privateNetwork }  // unique local
    if a[0] == 0xfe, a[1] & 0xc0 == 0xc0 { return .privateNetwork }  // site-local
    return .allowed
  }
}
