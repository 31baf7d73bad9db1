import CLinux
import Glibc
import Synchronization

/// An open descriptor with its name for error messages. Closes itself unless borrowed.
package final class FileDescriptor: Sendable {
  package let number: Int32
  /// The path, or `standard input` and the like.
  package let name: String
  private let owned: Bool

  /// Takes over a descriptor; with `owned: false` the caller closes it.
  package init(_ number: Int32, name: String, owned: Bool = true) {
    self.number = number
    self.name = name
    self.owned = owned
  }

  deinit {
    if owned { close(number) }
  }

  package static let standardInput = FileDescriptor(0, name: "standard input", owned: false)
  package static let standardOutput = FileDescriptor(1, name: "standard output", owned: false)
  package static let standardError = FileDescriptor(2, name: "standard error", owned: false)

  /// The type of a descriptor or path.
  package enum Kind: String, Sendable {
    case regular = "a regular file"
    case directory = "a directory"
    case fifo = "a FIFO"
    case socket = "a socket"
    case characterDevice = "a character device"
    case blockDevice = "a block device"
    case other = "an unknown kind of file"

    init(mode: mode_t) {
      switch mode & S_IFMT {
      case S_IFREG: self = .regular
      case S_IFDIR: self = .directory
      case S_IFIFO: self = .fifo
      case S_IFSOCK: self = .socket
      case S_IFCHR: self = .characterDevice
      case S_IFBLK: self = .blockDevice
      default: self = .other
      }
    }
  }

  /// The result of `fstat`, as far as it is needed.
  package struct Status: Sendable, Equatable {
    package var kind: Kind
    package var device: UInt64
    package var inode: UInt64
    /// Bytes.
    package var size: Int64
    package var links: Int
    /// Nanoseconds since 1970.
    package var modified: Int64

    init(_ raw: stat) {
      kind = Kind(mode: raw.st_mode)
      device = UInt64(raw.st_dev)
      inode = UInt64(raw.st_ino)
      size = Int64(raw.st_size)
      links = Int(raw.st_nlink)
      modified = Int64(raw.st_mtim.tv_sec) &* 1_000_000_000 &+ Int64(raw.st_mtim.tv_nsec)
    }

    /// The status of the file at the path, following symbolic links; nil if there is none.
    package init?(path: String) {
      guard case .success(let status) = Self.read(path) else { return nil }
      self = status
    }

    /// The status of the file at the path, or why it cannot be read.
    static func read(_ path: String, followsLinks: Bool = true) -> Result<Status, PosixError> {
      var raw = stat()
      let flags = followsLinks ? 0 : AT_SYMLINK_NOFOLLOW
      guard uninterrupted({ fstatat(AT_FDCWD, path, &raw, flags) }) == 0 else {
        return .failure(PosixError("examine", path))
      }
      return .success(Status(raw))
    }
  }

  /// Opens for reading. Never waits for the writer of a FIFO, never makes a terminal the controlling terminal, and
  /// rejects files of other `kinds` before reading a byte.
  package static func openForReading(_ path: String, kinds: [Kind] = [.regular])
    throws(PosixError) -> FileDescriptor
  {
    let number = uninterrupted { open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY) }
    if number < 0 { throw PosixError("open", path) }
    let opened = FileDescriptor(number, name: path)
    let kind = try opened.status().kind
    guard kinds.contains(kind) else {
      throw PosixError("read", path, code: EINVAL, detail: "it is \(kind.rawValue)")
    }
    return opened
  }

  /// Opens for appending, and creates the file if it does not exist.
  /// - Parameter permissions: The mode of a new file, before the umask is applied.
  package static func openForAppending(_ path: String, permissions: mode_t = 0o640)
    throws(PosixError) -> FileDescriptor
  {
    let flags = O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC | O_NONBLOCK | O_NOCTTY
    var number = uninterrupted { open(path, flags, permissions) }
    if number < 0, errno == EACCES {  // Write permission alone is enough for appending.
      number = uninterrupted { open(path, flags & ~O_RDWR | O_WRONLY, permissions) }
    }
    if number < 0 { throw PosixError("open", path) }
    let opened = FileDescriptor(number, name: path)
    let kind = try opened.status().kind
    guard kind != .directory, kind != .socket, kind != .blockDevice else {
      throw PosixError("write to", path, code: EINVAL, detail: "it is \(kind.rawValue)")
    }
    return opened
  }

  /// Whether a regular file of `size` bytes does not end with a line feed. False without permission to read.
  func endsWithinLine(size: Int64) -> Bool {
    var last: UInt8 = 10
    return size > 0 && uninterrupted { pread(number, &last, 1, off_t(size - 1)) } == 1 && last != 10
  }

  package func status() throws(PosixError) -> Status {
    var raw = stat()
    if uninterrupted({ fstat(number, &raw) }) != 0 { throw PosixError("examine", name) }
    return Status(raw)
  }

  /// Reads once; waits for data even if the descriptor is non-blocking.
  /// - Returns: The number of bytes, 0 at the end; nil if `stop` was woken first.
  package func read(into buffer: UnsafeMutableRawBufferPointer, stop: WakeEvent? = nil)
    throws(PosixError) -> Int?
  {
    guard let start = buffer.baseAddress, buffer.count > 0 else { return 0 }
    while true {
      if let stop, try wait(for: .readable, stop: stop) == false { return nil }
      let count = uninterrupted { Glibc.read(number, start, buffer.count) }
      if count >= 0 { return count }
      guard errno == EAGAIN else { throw PosixError("read", name) }
      if stop == nil { _ = try wait(for: .readable, stop: nil) }
    }
  }

  /// Reads once at an offset of a regular file. Returns 0 at and after the end.
  package func read(into buffer: UnsafeMutableRawBufferPointer, at offset: Int64)
    throws(PosixError) -> Int
  {
    guard let start = buffer.baseAddress, buffer.count > 0 else { return 0 }
    let count = uninterrupted { pread(number, start, buffer.count, off_t(offset)) }
    if count < 0 { throw PosixError("read", name) }
    return count
  }

  /// Writes everything, in as many system calls as needed.
  /// - Returns: False if `stop` was woken before the end; `written` is the number of written bytes.
  @discardableResult
  package func write(
    _ bytes: UnsafeRawBufferPointer, written: inout Int, stop: WakeEvent? = nil
  ) throws(PosixError) -> Bool {
    while written < bytes.count {
      guard let start = bytes.baseAddress else { return true }
      let rest = bytes.count - written
      let count = uninterrupted { Glibc.write(number, start + written, rest) }
      if count >= 0 {
        written += count
      } else if errno == EAGAIN {
        if try wait(for: .writable, stop: stop) == false { return false }
      } else {
        throw PosixError("write to", name)
      }
    }
    return true
  }

  /// Writes all bytes; waits for room even if the descriptor is non-blocking.
  package func write(_ bytes: [UInt8]) throws(PosixError) {
    var written = 0
    let failure: PosixError? = bytes.withUnsafeBytes { raw in
      do throws(PosixError) {
        try write(raw, written: &written)
        return nil
      } catch { return error }
    }
    if let failure { throw failure }
  }

  /// Returns when the written data is on the device. After a failure, everything written since the last success must
  /// count as lost: the kernel reports a failure only once.
  package func sync() throws(PosixError) {
    if uninterrupted({ fdatasync(number) }) != 0 {
      // Pipes, sockets and some devices cannot and need not be synced.
      if errno == EINVAL || errno == EROFS { return }
      throw PosixError("sync", name)
    }
  }

  /// Makes the system start writing a range of a regular file to the device, so that the next ``sync()`` waits for
  /// less.
  func beginWriteback(from offset: Int64, count: Int64) { rx_begin_writeback(number, offset, count) }

  enum Readiness { case readable, writable }

  /// Waits until a call would not block; false if `stop` was woken first.
  func wait(for readiness: Readiness, stop: WakeEvent?) throws(PosixError) -> Bool {
    let events = Int16(readiness == .readable ? POLLIN : POLLOUT)
    var entries = [
      pollfd(fd: number, events: events, revents: 0),
      pollfd(fd: stop?.descriptor ?? -1, events: Int16(POLLIN), revents: 0),
    ]
    if uninterrupted({ poll(&entries, 2, -1) }) < 0 { throw PosixError("wait for", name) }
    return entries[1].revents == 0
  }
}

/// Replaces a file atomically: opening `path` gives the old content or the new, even after a power cut. Until then the
/// new content has no name or, on file systems without nameless files, is in the same directory under a name that
/// starts with a dot; see ``removeLeftovers(of:)``.
package func replaceFile(
  _ path: String, with bytes: UnsafeRawBufferPointer, permissions: mode_t = 0o640
) throws(PosixError) {
  let (directory, name) = splitPath(path)
  let number = replacements.add(1, ordering: .relaxed).newValue
  let temporary = Glob.join(directory, ".\(name).\(getpid())-\(number).tmp")
  unlink(temporary)
  let nameless = uninterrupted { open(directory, O_WRONLY | RX_O_TMPFILE | O_CLOEXEC, permissions) }
  if nameless >= 0 {
    let file = try filled(nameless, path, bytes)
    if linkat(AT_FDCWD, "/proc/self/fd/\(nameless)", AT_FDCWD, temporary, AT_SYMLINK_FOLLOW) == 0 {
      defer { withExtendedLifetime(file) {} }
      return try put(temporary, at: path, in: directory)
    }
    // Without /proc a nameless file cannot be linked to a name.
  }
  let flags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC
  let named = uninterrupted { open(temporary, flags, permissions) }
  if named < 0 { throw PosixError("replace", path) }
  do throws(PosixError) {
    let file = try filled(named, path, bytes)
    defer { withExtendedLifetime(file) {} }
    try put(temporary, at: path, in: directory)
  } catch {
    unlink(temporary)
    throw error
  }
}

/// Takes over the descriptor, and writes the whole new content to it.
private func filled(_ number: Int32, _ path: String, _ bytes: UnsafeRawBufferPointer) throws(PosixError)
  -> FileDescriptor
{
  let file = FileDescriptor(number, name: path)
  // The lock shows that the writer is alive.
  flock(number, LOCK_EX | LOCK_NB)
  var written = 0
  try file.write(bytes, written: &written)
  try file.sync()
  return file
}

private func put(_ temporary: String, at path: String, in directory: String) throws(PosixError) {
  if rename(temporary, path) != 0 {
    let error = PosixError("replace", path)
    unlink(temporary)
    throw error
  }
  try syncDirectory(directory)
}

/// A counter of replacements, for unique names.
private let replacements = Atomic<UInt64>(0)

/// Removes the leftovers of processes that were killed while they replaced the file: `.NAME.NUMBER.tmp` without a lock.
func removeLeftovers(of path: String) {
  let (directory, name) = splitPath(path)
  guard let entries = try? directoryEntries(directory) else { return }
  let prefix = ".\(name)."
  for entry in entries.lazy.map(\.name) where entry.hasPrefix(prefix) && entry.hasSuffix(".tmp") {
    let number = entry.utf8.dropFirst(prefix.utf8.count).dropLast(4)
    let isOurs = !number.isEmpty && number.allSatisfy { $0 == UInt8(ascii: "-") || $0 >= 0x30 && $0 <= 0x39 }
    guard isOurs else { continue }
    let leftover = Glob.join(directory, entry)
    let descriptor = open(leftover, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC)
    guard descriptor >= 0 else { continue }
    defer { close(descriptor) }
    if flock(descriptor, LOCK_EX | LOCK_NB) == 0 { unlink(leftover) }
  }
}

/// The entries of a directory with their inodes, unordered, including `.` and `..`.
package func directoryEntries(_ path: String) throws(PosixError) -> [(name: String, inode: UInt64)] {
  guard let stream = opendir(path) else { throw PosixError("list", path) }
  defer { closedir(stream) }
  var result: [(name: String, inode: UInt64)] = []
  while true {
    errno = 0
    guard let entry = readdir(stream) else {
      if errno != 0 { throw PosixError("list", path) }
      return result
    }
    let name = withUnsafePointer(to: &entry.pointee.d_name) {
      $0.withMemoryRebound(to: CChar.self, capacity: 256) { String(cString: $0) }
    }
    result.append((name, UInt64(entry.pointee.d_ino)))
  }
}

/// Makes creations, renames and removals in a directory durable.
package func syncDirectory(_ path: String) throws(PosixError) {
  let number = uninterrupted { open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC) }
  if number < 0 { throw PosixError("open", path) }
  defer { close(number) }
  if uninterrupted({ fsync(number) }) != 0, errno != EINVAL { throw PosixError("sync", path) }
}

/// The directory (`.` if there is none) and the last component.
func splitPath(_ path: String) -> (directory: String, name: String) {
  let bytes = path.utf8
  guard let slash = bytes.lastIndex(of: UInt8(ascii: "/")) else { return (".", path) }
  let name = String(path[path.index(after: slash)...])
  return (slash == bytes.startIndex ? "/" : String(path[..<slash]), name)
}

/// The names between the slashes of a path. Bytes are compared: for `Character`, a slash before a combining mark is no slash.
func pathNames(_ path: String, omittingEmpty: Bool = true) -> [String] {
  path.utf8.split(separator: UInt8(ascii: "/"), omittingEmptySubsequences: omittingEmpty).map {
    String(decoding: $0, as: UTF8.self)
  }
}
