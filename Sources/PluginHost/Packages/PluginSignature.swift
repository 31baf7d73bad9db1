import CDigest
import PipelineCore

/// A public key of minisign, whose signatures on packages are accepted.
package struct PluginKey: Sendable {
  /// The eight bytes by which a signature names its key.
  let number: [UInt8]
  private let key: [UInt8]
  /// Where it was read, for messages.
  package let source: String

  /// The number as minisign prints it.
  package var name: String { Self.name(number) }

  static func name(_ number: [UInt8]) -> String {
    number.reversed().map { ($0 < 16 ? "0" : "") + String($0, radix: 16, uppercase: true) }.joined()
  }

  /// Reads a key: the content of a `.pub` file, or its second line alone.
  package init(_ text: String, from source: String) throws(PackageFault) {
    let lines = text.split(whereSeparator: \.isNewline)
    guard let line = lines.last(where: { !$0.hasPrefix("untrusted comment:") }),
      let bytes = Base64.decode(String(line)),
      bytes.count == 42, bytes.starts(with: "Ed".utf8)
    else {
      throw PackageFault(
        "\(source) is not a public key of minisign", help: "Its second line begins with RW and has 56 characters")
    }
    number = Array(bytes[2..<10])
    key = Array(bytes[10...])
    self.source = source
  }

  /// Whether the key made the signature.
  func verifies(_ signature: [UInt8], _ bytes: [UInt8]) throws(PackageFault) -> Bool {
    let verdict = bytes.withUnsafeBytes { rx_verify_ed25519(key, signature, $0.baseAddress, $0.count) }
    guard verdict >= 0 else {
      throw PackageFault("signatures need libcrypto, which is not installed", help: "Install the package libssl3")
    }
    return verdict == 1
  }
}

/// A signature of minisign: the content of a `.minisig` file.
package struct PluginSignature: Sendable {
  private let isHashed: Bool
  private let number: [UInt8]
  private let signature: [UInt8]
  /// The comment that is signed, too: minisign writes the time and the name of the file.
  package let comment: String
  /// The signature of the first one with the comment.
  private let whole: [UInt8]

  package init(_ text: String, of file: String) throws(PackageFault) {
    let lines = text.split(omittingEmptySubsequences: false, whereSeparator: \.isNewline)
    let prefix = "trusted comment: "
    guard lines.count >= 4, lines[0].hasPrefix("untrusted comment:"), lines[2].hasPrefix(prefix),
      let bytes = Base64.decode(String(lines[1])), bytes.count == 74, let whole = Base64.decode(String(lines[3])),
      whole.count == 64, bytes.starts(with: "ED".utf8) || bytes.starts(with: "Ed".utf8)
    else {
      throw PackageFault("'\(file)' is not a signature of minisign", help: "Sign the package with 'minisign -Sm FILE'")
    }
    // `ED`: the digest is signed, not the content itself.
    isHashed = bytes[1] == UInt8(ascii: "D")
    number = Array(bytes[2..<10])
    signature = Array(bytes[10...])
    comment = String(lines[2].dropFirst(prefix.count))
    self.whole = whole
  }

  /// The key that signed these bytes; throws if none of the keys did.
  package func check(_ bytes: [UInt8], by keys: [PluginKey], of file: String) throws(PackageFault) -> PluginKey {
    let candidates = keys.filter { $0.number == number }
    guard !candidates.isEmpty else {
      throw PackageFault(
        "'\(file)' is signed with the key \(PluginKey.name(number)), which is none of the trusted ones",
        help: keys.isEmpty
          ? "Name its public key with --key, or put it into the directory of trusted keys"
          : "The trusted keys are \(keys.map(\.source).joined(separator: ", "))")
    }
    var signed = bytes
    if isHashed {
      var out = [UInt8](repeating: 0, count: Int(RX_DIGEST_MAX))
      let count = bytes.withUnsafeBytes { rx_digest(Int32(RX_BLAKE2B_512), $0.baseAddress, $0.count, &out) }
      guard count == 64 else { throw PackageFault("signatures need BLAKE2b of libcrypto, which is not available") }
      signed = out
    }
    for key in candidates {
      guard try key.verifies(signature, signed) else { continue }
      guard try key.verifies(whole, signature + Array(comment.utf8)) else {
        throw PackageFault("the comment of the signature of '\(file)' has been changed")
      }
      return key
    }
    throw PackageFault(
      "the signature of '\(file)' is wrong: it has been changed since it was signed",
      help: "Fetch the package and its signature again")
  }
}
