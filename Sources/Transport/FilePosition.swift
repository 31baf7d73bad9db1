import PipelineCore

/// How far a file has been read, in a form that survives a restart: the file is identified by its inode and first
/// bytes, under any name.
public struct FilePosition: Sendable, Equatable {
  /// The name at the time.
  public var path: String
  public var device: UInt64
  public var inode: UInt64
  /// A hash of the first `fingerprintBytes` bytes.
  public var fingerprint: UInt64
  public var fingerprintBytes: Int
  /// Everything before it has been delivered.
  public var offset: Int64
  /// The creation time of the file, in nanoseconds since 1970; 0 if the file system does not report it.
  public var born: Int64 = 0

  public init(
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

extension FilePosition: StateValue {
  public func save(to state: inout StateWriter) {
    state.write(path)
    state.write(device)
    state.write(inode)
    state.write(fingerprint)
    state.write(fingerprintBytes)
    state.write(offset)
    state.write(born)
  }

  public init(from state: inout StateReader) throws(StateFault) {
    path = try state.read()
    device = try state.read()
    inode = try state.read()
    fingerprint = try state.read()
    fingerprintBytes = try state.read(in: 0...FollowedFile.headBytes)
    offset = try state.read()
    born = try state.read()
    guard offset >= 0, !path.utf8.contains(0) else { throw StateFault("a file position is none") }
  }
}
