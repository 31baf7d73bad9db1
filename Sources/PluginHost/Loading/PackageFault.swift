import CDigest
import Glibc
import PipelineCore
import Transport

/// Why a package cannot be made, read or installed.
package struct PackageFault: Error, Sendable {
  /// One sentence without a full stop.
  package var message: String
  package var help: String?

  package init(_ message: String, help: String? = nil) {
    self.message = message
    self.help = help
  }
}

/// The names, digests and contents of a package's files.
package enum PackageFile {
  /// Whether a text can be the name of a file in every directory: no separators, no hidden files, nothing that a shell or a terminal would read
  /// otherwise.
  static func isName(_ text: String) -> Bool {
    guard let first = text.utf8.first, first != UInt8(ascii: "."), first != UInt8(ascii: "-"), text.utf8.count <= 200
    else { return false }
    return text.utf8.allSatisfy {
      switch $0 {
      case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
        UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "."), UInt8(ascii: "-"), UInt8(ascii: "_"),
        UInt8(ascii: "+"), UInt8(ascii: "~"):
        true
      default: false
      }
    }
  }

  static func isDigest(_ text: String) -> Bool {
    text.utf8.count == 64 && text.allSatisfy { $0.isHexDigit && ($0.isNumber || $0.isLowercase) }
  }

  /// Writes a file atomically.
  package static func write(_ bytes: [UInt8], to path: String, _ permissions: mode_t = 0o644) throws(PackageFault) {
    let problem = bytes.withUnsafeBytes { bytes -> PosixError? in
      do throws(PosixError) {
        try replaceFile(path, with: bytes, permissions: permissions)
        return nil
      } catch { return error }
    }
    if let problem { throw PackageFault(problem.message) }
  }
}

/// The path of a file in a directory.
func pathIn(_ directory: String, _ name: String) -> String {
  directory.hasSuffix("/") ? directory + name : "\(directory)/\(name)"
}

/// The last part of a path.
func splitName(_ path: String) -> String { String(path.split(separator: "/").last ?? Substring(path)) }

/// SHA-256, in hexadecimal digits.
func sha256(_ bytes: [UInt8]) throws(PackageFault) -> String {
  var out = [UInt8](repeating: 0, count: Int(RX_DIGEST_MAX))
  let count = bytes.withUnsafeBytes { rx_digest(Int32(RX_SHA256), $0.baseAddress, $0.count, &out) }
  guard count == 32 else {
    throw PackageFault("digests need libcrypto, which is not installed", help: "Install the package libssl3")
  }
  return out[..<count].map { $0 < 16 ? "0" + String($0, radix: 16) : String($0, radix: 16) }.joined()
}
