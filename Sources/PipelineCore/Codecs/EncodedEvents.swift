/// Events as a sink writes them, in one piece of memory: unchanged lines of the input, or the output of a ``ParallelStage``.
public struct EncodedEvents: @unchecked Sendable {
  /// The kind of a line.
  public enum Lines: Sendable {
    /// Each line is a JSON document.
    case documents
    /// Each line is text without line breaks.
    case strings
  }
  /// Valid as long as `memory` lives.
  public let bytes: UnsafeRawBufferPointer
  /// How many events there are.
  public let count: Int
  /// Owns the memory of `bytes`.
  public let memory: AnyObject
  /// Set if each event is one line with a line feed, from which it can be read again.
  public let lines: Lines?
}
