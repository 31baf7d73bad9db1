import CRE2

/// A compiled regular expression in RE2's syntax; immutable, safe to share between threads.
final class Pattern: @unchecked Sendable {
  private let compiled: OpaquePointer
  private let source: [UInt8]

  init(_ source: UnsafeRawBufferPointer) {
    self.source = Array(source)
    compiled = self.source.withUnsafeBytes {
      rx_re2_compile($0.baseAddress?.assumingMemoryBound(to: CChar.self), $0.count)
    }
  }

  deinit { rx_re2_free(compiled) }

  /// Why the pattern does not compile, and at which of its bytes, or nil.
  var failure: (reason: String, offset: Int?)? {
    var offset = -1
    guard let text = rx_re2_error(compiled, &offset) else { return nil }
    return (String(cString: text), offset >= 0 ? offset : nil)
  }

  func matches(source other: UnsafeRawBufferPointer) -> Bool {
    source.count == other.count && source.withUnsafeBytes { $0.elementsEqual(other) }
  }

  /// Whether it matches anywhere in the text.
  func matches(_ text: UnsafeRawBufferPointer) -> Bool {
    rx_re2_matches(compiled, text.baseAddress?.assumingMemoryBound(to: CChar.self), text.count)
  }

  var groupCount: Int { Int(rx_re2_group_count(compiled)) }

  func groupName(_ index: Int) -> String? {
    rx_re2_group_name(compiled, Int32(index)).map { String(cString: $0) }
  }

  /// The groups of the first match at or after `start`, the whole match first; -1 for a group without part.
  func find(
    _ text: UnsafeRawBufferPointer, from start: Int, into groups: inout [Int], anchored: Bool = false
  ) -> Bool {
    groups.withUnsafeMutableBufferPointer {
      rx_re2_find(
        compiled, text.baseAddress?.assumingMemoryBound(to: CChar.self), text.count, start,
        anchored ? 1 : 0, $0.baseAddress, Int32($0.count / 2))
    }
  }
}
