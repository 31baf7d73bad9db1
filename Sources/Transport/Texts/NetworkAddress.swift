import PipelineCore

/// `127.0.0.1:8899`, `[::1]:8899`, or a port alone, which means 127.0.0.1.
package struct NetworkAddress: ParameterValue {
  package var host = "127.0.0.1"
  package var port = 0
  package var location: SourceLocation?
  package init() {}

  package static func shape(range: ClosedRange<Int64>?) -> ParameterShape {
    .oneOf([.text, .int(0...65_535)])
  }
  package var defaultText: String? { nil }
  /// Names are not resolved: only `localhost` and literal addresses count.
  package var isLoopback: Bool { HostSyntax.isLoopback(host) }

  package static func decode(_ node: YAMLNode, _ context: inout DecodingContext) -> NetworkAddress? {
    guard let text = String.decode(node, &context) else { return nil }
    if node.scalar?.isPlaceholder == true { return NetworkAddress() }
    func refuse(_ reason: String, _ help: String? = nil) -> NetworkAddress? {
      context.badValue(
        node, "'\(node.shown)' is not an address\(reason)",
        help: help ?? "Write a port, or HOST:PORT such as 127.0.0.1:8899")
      return nil
    }
    var address = NetworkAddress()
    address.location = node.location
    var port = Substring(text)
    if let colon = text.lastIndex(of: ":") {
      let host = text[..<colon]
      port = text[text.index(after: colon)...]
      if host.hasPrefix("["), host.hasSuffix("]") {
        address.host = String(host.dropFirst().dropLast())
        guard HostSyntax.kind(address.host) == .version6 else {
          return refuse(": brackets must contain an IPv6 address")
        }
      } else if !host.isEmpty {
        address.host = String(host)
        switch HostSyntax.kind(address.host) {
        case .version4, .name: break
        case .version6: return refuse(": an IPv6 address needs brackets", "Write '[\(host)]:\(port)'")
        case nil where HostSyntax.kind(text) == .version6:
          return refuse(": an IPv6 address needs brackets", "Write '[\(text)]:PORT'")
        case nil where host == "*":
          return refuse(
            ": all IPv4 addresses are 0.0.0.0; all addresses, with IPv6, are [::]", "Write '0.0.0.0:\(port)'")
        case nil where host.contains("/"):
          return refuse(": a server listens on a host and a port, not on a URL; its path is the parameter 'path'")
        case nil: return refuse(": its host is neither an IP address nor a name")
        }
      }
    }
    guard !port.isEmpty, port.utf8.allSatisfy({ (0x30...0x39).contains($0) }), let number = Int(port),
      number <= 65_535
    else { return refuse("") }
    address.port = number
    return address
  }
}
