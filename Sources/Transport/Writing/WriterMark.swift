import CLinux
import Glibc

/// A mark in an extended attribute of a file, made when a writer begins to write to it, so that a later writer knows the former end of the
/// file, whether or not a state was saved since.
struct WriterMark: Sendable, Equatable {
  /// A number that no other sink has.
  var writer: UInt64
  /// The number of the file among those of the sink, ascending over all executions.
  var number: UInt64
  /// The number of bytes that had been written to the file before.
  var start: Int64
  /// The size of the file then.
  var size: Int64

  private static let name = "user.rxd.file"

  /// The end of the file when the given number of bytes has been written for it; nil: that was before the mark.
  func end(after count: Int64) -> Int64? {
    let (written, overflow) = count.subtractingReportingOverflow(start)
    return overflow || written < 0 ? nil : size &+ written
  }

  init(writer: UInt64, number: UInt64, start: Int64, size: Int64) {
    self.writer = writer
    self.number = number
    self.start = start
    self.size = size
  }

  /// The mark of an open file; nil: it has none.
  init?(of file: FileDescriptor) {
    var words: (UInt64, UInt64, Int64, Int64) = (0, 0, 0, 0)
    let size = MemoryLayout.size(ofValue: words)
    let count = withUnsafeMutableBytes(of: &words) {
      rx_get_attribute(file.number, Self.name, $0.baseAddress, size)
    }
    guard count == size else { return nil }
    let start = Int64(littleEndian: words.2)
    let length = Int64(littleEndian: words.3)
    guard start >= 0, length >= 0 else { return nil }
    self.init(
      writer: UInt64(littleEndian: words.0), number: UInt64(littleEndian: words.1), start: start, size: length)
  }

  /// Writes the mark. Does nothing if the file system keeps no attributes.
  func put(on file: FileDescriptor) {
    var words = (writer.littleEndian, number.littleEndian, start.littleEndian, size.littleEndian)
    let size = MemoryLayout.size(ofValue: words)
    _ = withUnsafeBytes(of: &words) { rx_set_attribute(file.number, Self.name, $0.baseAddress, size) }
  }

  static func remove(from file: FileDescriptor) { rx_remove_attribute(file.number, name) }
}

/// The marks of one sink.
package struct WriterMarks: Sendable {
  /// Numbers of files that an execution opened after the state from which the next one continued: the contents of such
  /// files are written, or were written, again.
  package struct Lost: Sendable, Equatable {
    /// The last number that the state knew.
    package var after: UInt64
    /// The first number of the next execution.
    package var before: UInt64

    package init(after: UInt64, before: UInt64) {
      self.after = after
      self.before = before
    }
  }

  /// See ``WriterMark/writer``.
  package var writer: UInt64
  /// Ascending. A file keeps its number until it is opened again, perhaps after many executions.
  package private(set) var lost: [Lost]
  /// The number of ranges that are kept: the rows of older files may be repeated.
  private static let mostLost = 1000

  package init(writer: UInt64, lost: [Lost]) {
    self.writer = writer
    self.lost = lost
  }

  /// An execution whose numbers begin at `first` continues from a state whose last number is `last`.
  package mutating func goOn(after last: UInt64, at first: UInt64) {
    if let newest = lost.last, newest.before > last {
      // No file was begun in between.
      lost[lost.count - 1].before = max(newest.before, first)
    } else {
      lost.append(Lost(after: last, before: first))
      if lost.count > Self.mostLost { lost.removeFirst() }
    }
  }

  /// Whether the contents of the file since its mark are written again.
  func isLost(_ mark: WriterMark) -> Bool {
    mark.writer == writer && lost.contains { $0.after < mark.number && mark.number < $0.before }
  }
}
