import Glibc
import PipelineCore

/// Checks hosts by their text alone.
package enum HostSyntax {
  package enum Kind: Sendable {
    case version4, version6
    /// A name, known or not.
    case name
  }

  /// Whether only programs of this machine can connect to the host. Names are not resolved: only `localhost` and literal addresses count.
  package static func isLoopback(_ host: String) -> Bool {
    host == "::1" || host == "localhost" || host.hasPrefix("127.") && kind(host) == .version4
  }

  /// Nil: the text cannot be a host.
  package static func kind(_ text: String) -> Kind? {
    // A C string would end at the zero byte.
    if text.utf8.contains(0) { return nil }
    var address = in6_addr()
    if inet_pton(AF_INET, text, &address) == 1 { return .version4 }
    // The interface follows the %; link-local addresses need one.
    let zone = text.split(separator: "%", maxSplits: 1, omittingEmptySubsequences: false)
    if zone.count < 2 || !zone[1].isEmpty, inet_pton(AF_INET6, String(zone[0]), &address) == 1 { return .version6 }
    // A name of digits and dots only would be taken for an address.
    guard text.utf8.count <= 253, !text.utf8.allSatisfy({ $0 == UInt8(ascii: ".") || (0x30...0x39).contains($0) })
    else { return nil }
    let labels = text.utf8.split(separator: UInt8(ascii: "."), omittingEmptySubsequences: false)
    let isName = labels.allSatisfy { label in
      (1...63).contains(label.count) && label.first != UInt8(ascii: "-") && label.last != UInt8(ascii: "-")
        && label.allSatisfy { byte in
          (byte | 0x20) &- 97 < 26 || byte &- 48 < 10 || byte == UInt8(ascii: "-") || byte == UInt8(ascii: "_")
        }
    }
    return isName ? .name : nil
  }

  /// Whether a text can be a method or the name of a header: letters, digits and the characters of RFC 9110.
  package static func isToken(_ text: String) -> Bool { HTTPHeader.isToken(text) }
}
