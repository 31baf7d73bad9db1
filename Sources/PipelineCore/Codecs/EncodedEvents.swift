/// Events as a sink writes them, in one block of memory: unchanged lines of the input, or the output of a
/// ``ParallelStage``.
package struct EncodedEvents: @unchecked Sendable {
  /// The content of each line.
  package enum Lines: Sendable {
    /// Each line is a JSON document.
    case documents
    /// Each line is text without line breaks.
    case strings
  }
  /// Valid as long as `memory` lives.
  package let bytes: UnsafeRawBufferPointer
  /// The number of events.
  package let count: Int
  /// Owns the memory of `bytes`.
  package let memory: AnyObject
  /// Set if each event is exactly one line from which it can be decoded again.
  package let lines: Lines?
}
