import Glibc
import PipelineCore

/// What a host may be, by its text alone.
public enum HostSyntax {
  public enum Kind: Sendable {
    case version4, version6
    /// A name, which may be known or not.
    case name
  }

  /// Nil: it can be no host.
  public static func kind(_ text: String) -> Kind? {
    // Texts of C would end there.
    if text.utf8.contains(0) { return nil }
    var address = in6_addr()
    if inet_pton(AF_INET, text, &address) == 1 { return .version4 }
    // Behind the % is the interface, which link-local addresses need.
    let zone = text.split(separator: "%", maxSplits: 1, omittingEmptySubsequences: false)
    if zone.count < 2 || !zone[1].isEmpty, inet_pton(AF_INET6, String(zone[0]), &address) == 1 { return .version6 }
    // A name of digits alone would be taken for an address.
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

  /// Whether a text may be a method or the name of a header: letters, digits and the marks of RFC 9110.
  public static func isToken(_ text: String) -> Bool { HTTPHeader.isToken(text) }
}
