import PipelineCore
import PipelineRuntime
import Transport

/// An address to listen on, the value of `--metrics-listen` and `--ui-listen`.
struct TCPAddress {
  var host: String
  var port: Int

  /// `HOST:PORT`, `[IPV6]:PORT`, or a port alone, which means 127.0.0.1.
  init?(_ text: String) {
    var port = Substring(text)
    host = "127.0.0.1"
    if let colon = text.utf8.lastIndex(of: UInt8(ascii: ":")) {
      var name = text[..<colon]
      port = text[text.utf8.index(after: colon)...]
      let isBracketed = name.hasPrefix("[") && name.hasSuffix("]")
      if isBracketed { name = name.dropFirst().dropLast() }
      guard let kind = HostSyntax.kind(String(name)), (kind == .version6) == isBracketed else { return nil }
      host = String(name)
    }
    guard (1...5).contains(port.utf8.count), port.utf8.allSatisfy({ (0x30...0x39).contains($0) }),
      let number = Int(port),
      number <= 65_535
    else { return nil }
    self.port = number
  }

  /// Whether only programs of this machine can connect.
  var isLoopback: Bool { HostSyntax.isLoopback(host) }

  /// The authority part of a URL.
  func authority(port: Int) -> String {
    host.utf8.contains(UInt8(ascii: ":")) ? "[\(host)]:\(port)" : "\(host):\(port)"
  }
}
