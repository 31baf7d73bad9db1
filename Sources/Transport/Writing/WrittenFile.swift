import Glibc
import PipelineCore
import Synchronization

/// An open file with the directory entry that leads to it. Any thread may sync it.
final class SyncedFile: Sendable {
  let descriptor: FileDescriptor
  /// The directory must be synced before the file counts as on the device: the file may be new.
  private let isDirectoryDue: Atomic<Bool>

  init(_ descriptor: FileDescriptor, inDirectory: Bool = false) {
    self.descriptor = descriptor
    isDirectoryDue = Atomic(inDirectory)
  }

  /// Notes that its whole file system was synced after the last write.
  func wasSynced() { isDirectoryDue.store(false, ordering: .releasing) }

  /// Returns when the written data is on the device, under its name. See ``FileDescriptor/sync()``.
  func sync() throws(PosixError) {
    try descriptor.sync()
    guard isDirectoryDue.load(ordering: .acquiring) else { return }
    do throws(PosixError) {
      try syncDirectory(splitPath(descriptor.path ?? descriptor.name).directory)
    } catch {
      // A directory without read permission cannot be synced.
      if error.code != EACCES, error.code != ENOENT { throw error }
    }
    isDirectoryDue.store(false, ordering: .releasing)
  }
}

extension FileDescriptor {
  /// The current path of the open file, without symbolic links; nil: the file has none.
  var path: String? {
    var buffer = [CChar](repeating: 0, count: Int(PATH_MAX))
    let count = readlink("/proc/self/fd/\(number)", &buffer, buffer.count - 1)
    guard count > 0, buffer[0] == CChar(bitPattern: UInt8(ascii: "/")) else { return nil }
    return String(decoding: buffer.prefix(count).map { UInt8(bitPattern: $0) }, as: UTF8.self)
  }
}

extension WriterWork {
  /// A stretch of writing to one file: it begins when the file is opened, or changed by others.
  struct Stretch: Sendable {
    /// The number of bytes that had been written before.
    let start: Int64
    /// The size of the file then.
    let size: Int64
    /// A line feed is written first.
    let needsNewline: Bool
    /// Others write to the file, too.
    let isShared: Bool
    /// Whether the file is that of the previous stretch, which has lost its contents.
    let isSameFile: Bool
    private var position: FilePosition
    private var head: [UInt8]

    init(
      _ file: FileDescriptor, _ status: FileDescriptor.Status, _ path: String, after written: Int64, needsNewline: Bool,
      isShared: Bool = false, isSameFile: Bool = false
    ) {
      start = written
      size = status.size
      self.needsNewline = needsNewline
      self.isShared = isShared
      self.isSameFile = isSameFile
      head = file.head()
      position = FilePosition(of: file, status, path, head: head)
    }

    /// Reads the first bytes as long as there are few; returns whether there are more than before.
    mutating func readHead(of file: FileDescriptor) -> Bool {
      guard head.count < FilePosition.headBytes else { return false }
      let now = file.head()
      defer { head = now }
      return now.count != head.count
    }

    /// The end of the file when the given number of bytes has been written in all; nil: unknown.
    func position(after count: Int64) -> FilePosition? {
      if isShared { return nil }
      var position = position
      // Bytes written before a truncation are lost.
      position.offset = count <= start ? size : size + (needsNewline ? 1 : 0) + (count - start)
      // After a crash the bytes after the position may differ.
      let head = head.prefix(Int(min(position.offset, Int64(head.count))))
      position.fingerprintBytes = head.count
      position.fingerprint = FilePosition.hash(head)
      return position
    }
  }

  /// The maximum number of stretches that are remembered: one for each rotation of the file since a position was last requested.
  static let mostStretches = 64
}

extension [WriterWork.Stretch] {
  /// Appends the newer ones, the first of which continues the last of these if it begins at the same byte.
  func extended(by newer: [WriterWork.Stretch]) -> [WriterWork.Stretch] {
    guard let first = newer.first else { return self }
    var all = filter { $0.start < first.start } + newer
    if let known = all.lastIndex(where: \.isSameFile) { all.removeFirst(known) }
    return all.count > WriterWork.mostStretches ? Array(all.suffix(WriterWork.mostStretches)) : all
  }
}

/// The position in a file where an earlier writer ended; the part after it will be written again.
struct WriterPosition {
  private let saved: FilePosition
  /// The path that the writer appends to.
  private let path: String

  init(_ saved: FilePosition, _ path: String) {
    self.saved = saved
    self.path = path
  }

  /// Truncates the file to the position, or only checks that the position is within the file.
  ///
  /// - Parameter opened: The file that the path names now.
  /// - Returns: `size`: the size of `opened`, if it ends at the position.
  func restore(
    in opened: FileDescriptor, _ status: FileDescriptor.Status, cutsBack: Bool
  ) -> (resumption: FileWriter.Resumption?, size: Int64?) {
    guard cutsBack else {
      guard opened.isFile(of: saved, status), status.size >= saved.offset else { return (nil, nil) }
      return status.size == saved.offset ? (.exact, saved.offset) : (.kept, nil)
    }
    if opened.isFile(of: saved, status) {
      let resumption = cut(opened, status, path)
      if case .lost = resumption { return (resumption, nil) }
      return (resumption, saved.offset)
    }
    guard let (renamed, other) = find() else {
      return (.lost("\(path) was truncated, removed or replaced since the last checkpoint; lines may be repeated"), nil)
    }
    let resumption = cut(renamed, other, renamed.name)
    // The contents of the new file may come from this sink, or from others.
    if status.size > 0 {
      return (.lost("\(path) was replaced since the last checkpoint; its lines may be repeated"), nil)
    }
    return (resumption, nil)
  }

  /// Cuts the file back under the name that it has now; nil: it is not in its directory any more.
  func restoreRenamed() -> FileWriter.Resumption? { find().map { cut($0, $1, $0.name) } }

  private func cut(
    _ file: FileDescriptor, _ status: FileDescriptor.Status, _ path: String
  ) -> FileWriter.Resumption {
    Self.cut(file, status, path, to: saved.offset)
  }

  /// Truncates a file to `end` bytes.
  static func cut(
    _ file: FileDescriptor, _ status: FileDescriptor.Status, _ path: String, to end: Int64
  ) -> FileWriter.Resumption {
    if status.size < end {
      return .lost("\(path) has \(status.size) bytes, but had \(end) at the last checkpoint; lines may be repeated")
    }
    if status.size == end { return .exact }
    if uninterrupted({ ftruncate(file.number, off_t(end)) }) != 0 {
      return .lost("\(PosixError("shorten", path).message); lines may be repeated")
    }
    return .cut(path: path, bytes: status.size - end)
  }

  private func find() -> (FileDescriptor, FileDescriptor.Status)? {
    saved.findRenamed { path in
      let number = uninterrupted { open(path, O_RDWR | O_APPEND | O_CLOEXEC | O_NONBLOCK | O_NOCTTY | O_NOFOLLOW) }
      return number < 0 ? nil : FileDescriptor(number, name: path)
    }
  }
}
