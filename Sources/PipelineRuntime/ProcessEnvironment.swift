import CLinux
import Glibc

/// The environment of this process at its start.
package enum ProcessEnvironment {
  /// Every variable; values that are not UTF-8 are repaired, for display only.
  package static let variables: [String: String] = {
    var result: [String: String] = [:]
    guard var entry = rx_environment() else { return result }
    while let pointer = entry.pointee {
      let text = String(cString: pointer)
      if let equals = text.utf8.firstIndex(of: UInt8(ascii: "=")) {
        result[String(text[..<equals])] = String(text[text.index(after: equals)...])
      }
      entry += 1
    }
    return result
  }()

  package static subscript(name: String) -> String? { variables[name] }

  /// The bytes of a variable.
  package static func bytes(_ name: String) -> [UInt8]? {
    guard let value = getenv(name) else { return nil }
    return Array(UnsafeBufferPointer(start: value, count: strlen(value)).map(UInt8.init(bitPattern:)))
  }
}
