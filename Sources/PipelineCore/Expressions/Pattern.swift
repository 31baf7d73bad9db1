import CRE2

/// A compiled regular expression in RE2's syntax; immutable, safe to share between threads.
///
/// RE2 defines the syntax and decides whether a text matches. A ``RegexMatcher`` finds where groups start and end, in
/// one pass with one lookup per character, however many groups there are; RE2 takes over if the pattern uses features
/// that the matcher lacks, or needs too many states.
final class Pattern: @unchecked Sendable {
  private let compiled: OpaquePointer
  private let source: [UInt8]
  let matcher: RegexMatcher?

  init(_ source: UnsafeRawBufferPointer) {
    self.source = Array(source)
    compiled = self.source.withUnsafeBytes {
      rx_re2_compile($0.baseAddress?.assumingMemoryBound(to: CChar.self), $0.count)
    }
    matcher = rx_re2_error(compiled, nil) == nil ? Self.matcher(self.source, Int(rx_re2_group_count(compiled))) : nil
  }

  private static func matcher(_ source: [UInt8], _ groups: Int) -> RegexMatcher? {
    var parser = RegexParser(source, .re2)
    guard let tree = try? parser.parse(), parser.groupCount == groups,
      let program = try? RegexProgram(tree, groups: groups, .re2)
    else { return nil }
    return RegexMatcher(program)
  }

  deinit { rx_re2_free(compiled) }

  /// Why the pattern is invalid, with the byte offset if known; nil if it is valid.
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

  /// The groups of the first match at or after `start`, the whole match first; -1 for a group that did not match.
  func find(
    _ text: UnsafeRawBufferPointer, from start: Int, into groups: inout [Int], anchored: Bool = false
  ) -> Bool {
    groups.withUnsafeMutableBufferPointer { find(text, from: start, into: $0, anchored: anchored) }
  }

  func find(
    _ text: UnsafeRawBufferPointer, from start: Int, into groups: UnsafeMutableBufferPointer<Int>,
    anchored: Bool = false
  ) -> Bool {
    if let matcher, start <= text.count,
      let found = matcher.find(text, from: start, anchored: anchored, mayGiveUp: true, into: groups)
    {
      return found
    }
    return findWithRE2(text, from: start, into: groups, anchored: anchored)
  }

  /// Finds the groups with RE2 alone.
  func findWithRE2(
    _ text: UnsafeRawBufferPointer, from start: Int, into groups: UnsafeMutableBufferPointer<Int>, anchored: Bool
  ) -> Bool {
    rx_re2_find(
      compiled, text.baseAddress?.assumingMemoryBound(to: CChar.self), text.count, start, anchored ? 1 : 0,
      groups.baseAddress, Int32(groups.count / 2))
  }
}
