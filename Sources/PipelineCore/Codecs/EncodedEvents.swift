/// Events as a sink writes them, in one piece of memory: unchanged lines of the input, or the output of a ``ParallelStage``.
package struct EncodedEvents: @unchecked Sendable {
  /// The kind of a line.
  package enum Lines: Sendable {
    /// Each line is a JSON document.
    case documents
    /// Each line is text without line breaks.
    case strings
  }
  /// Valid as long as `memory` lives.
  package let bytes: UnsafeRawBufferPointer
  /// How many events there are.
  package let count: Int
  /// Owns the memory of `bytes`.
  package let memory: AnyObject
  /// Set if each event is one line with a line feed, from which it can be read again.
  package let lines: Lines?
}
