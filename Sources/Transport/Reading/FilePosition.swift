import CLinux
import Glibc
import PipelineCore

/// The position up to which a file has been read, in a form that survives a restart. The file is identified by its
/// inode and first bytes, under any name; a file that was restored with another inode, by its name, its first bytes and
/// those before the position.
package struct FilePosition: Sendable, Equatable {
  /// The name at the time.
  package var path: String
  package var device: UInt64
  package var inode: UInt64
  /// A hash of the first `fingerprintBytes` bytes.
  package var fingerprint: UInt64
  package var fingerprintBytes: Int
  /// Everything before it has been delivered.
  package var offset: Int64
  /// The creation time of the file, in nanoseconds since 1970; 0 if the file system does not report it.
  package var born: Int64 = 0
  /// The path without symbolic links that the file had when it was found; nil: `path` has no links. Saved by its owner,
  /// because older states do not have it.
  package var target: String?
  /// The last bytes before the position; nil: unknown. The owner of the position saves it, too.
  package var tail: FileTail?

  /// The number of bytes at the start of a file that are compared.
  static let headBytes = 256

  /// FNV-1a, of first bytes.
  static func hash(_ bytes: ArraySlice<UInt8>) -> UInt64 {
    bytes.reduce(0xcbf2_9ce4_8422_2325) { ($0 ^ UInt64($1)) &* 0x100_0000_01b3 }
  }

  package init(
    path: String, device: UInt64, inode: UInt64, fingerprint: UInt64, fingerprintBytes: Int,
    offset: Int64, born: Int64 = 0
  ) {
    self.path = path
    self.device = device
    self.inode = inode
    self.fingerprint = fingerprint
    self.fingerprintBytes = fingerprintBytes
    self.offset = offset
    self.born = born
  }
}

extension FilePosition {
  /// A name for the file that survives renames: its inode and birth time; if the file system has no birth times, its
  /// inode and path.
  package var fileName: String {
    String(inode, radix: 16) + "-" + (born == 0 ? path : String(UInt64(bitPattern: born), radix: 16))
  }
}

extension FilePosition: StateValue {
  package func save(to state: inout StateWriter) {
    state.write(path)
    state.write(device)
    state.write(inode)
    state.write(fingerprint)
    state.write(fingerprintBytes)
    state.write(offset)
    state.write(born)
  }

  package init(from state: inout StateReader) throws(StateFault) {
    path = try state.read()
    device = try state.read()
    inode = try state.read()
    fingerprint = try state.read()
    fingerprintBytes = try state.read(in: 0...FilePosition.headBytes)
    offset = try state.read()
    born = try state.read()
    guard offset >= 0, !path.utf8.contains(0) else { throw StateFault("a file position is invalid") }
  }
}

extension FilePosition {
  /// A position in an open file.
  init(
    of file: FileDescriptor, _ status: FileDescriptor.Status, _ path: String, head: [UInt8], offset: Int64 = 0
  ) {
    self.init(
      path: path, device: status.device, inode: status.inode, fingerprint: FilePosition.hash(head[...]),
      fingerprintBytes: head.count, offset: offset, born: rx_birth_time(file.number))
  }

  /// The position at the start of an open file.
  ///
  /// - Parameter isCompressed: Whether the decompressed content is read.
  package init(of file: FileDescriptor, _ status: FileDescriptor.Status, _ path: String, isCompressed: Bool = false) {
    self.init(of: file, status, path, head: file.head())
    if isCompressed { tail = file.tail(ofCompressed: status.size) }
  }

  /// Finds the file under another name in its directory, where log rotation leaves it; nil: it is not there.
  ///
  /// - Parameter open: Opens a path; nil: it cannot be opened.
  package func findRenamed(_ open: (String) -> FileDescriptor?) -> (
    file: FileDescriptor, status: FileDescriptor.Status
  )? {
    let (directory, _) = splitPath(path)
    for (name, inode) in (try? directoryEntries(directory)) ?? [] where inode == self.inode {
      guard let file = open(Glob.join(directory, name)), let status = try? file.status(), status.kind == .regular,
        file.isFile(of: self, status)
      else { continue }
      return (file, status)
    }
    return nil
  }
}

extension FileDescriptor {
  /// The first bytes of a regular file, at most ``FilePosition/headBytes``; empty without permission to read.
  func head() -> [UInt8] {
    [UInt8](unsafeUninitializedCapacity: FilePosition.headBytes) { buffer, count in
      let (start, size) = (buffer.baseAddress, buffer.count)
      count = max(0, uninterrupted { pread(number, start, size, 0) })
    }
  }

  /// Whether the position belongs to this file: inode, birth time and first bytes are the same.
  package func isFile(of position: FilePosition, _ status: Status) -> Bool {
    guard status.inode == position.inode else { return false }
    let born = rx_birth_time(number)
    guard born == 0 || position.born == 0 || born == position.born else { return false }
    let head = head()
    // Without permission to read, inode and birth time must do.
    if head.isEmpty, status.size > 0 { return true }
    return Self.starts(head, as: position)
  }

  static func starts(_ head: [UInt8], as position: FilePosition) -> Bool {
    head.count >= position.fingerprintBytes
      && FilePosition.hash(head.prefix(position.fingerprintBytes)) == position.fingerprint
  }
}
