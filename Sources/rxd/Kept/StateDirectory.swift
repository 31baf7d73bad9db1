import ArgumentParser
import Glibc
import PipelineCore
import PipelineRuntime
import Synchronization
import Transport

/// The storage that a process keeps between its runs. It belongs to one user, and to one process at a time.
final class StateDirectory: Sendable {
  enum Refusal: Error {
    case unusable(String)
    /// Another process uses the directory, perhaps temporarily.
    case inUse(String)

    /// Prints the reason; returns the exit status. `advice`: what to do about a directory that is in use.
    func reported(_ advice: String = "") -> ExitCode {
      switch self {
      case .unusable(let message):
        Console.printError(message)
        return ExitStatus.inputOutput
      case .inUse(let message):
        Console.printError(message + advice)
        return ExitStatus.temporary
      }
    }
  }

  /// The folder of the stores.
  static let stores = "pipelines"
  /// The file that marks the directory as a standby, whose stores must not be run.
  static func standbyMarker(in path: String) -> String { path + "/standby" }
  /// The file that marks the directory as a promoted standby.
  static func promotedMarker(in path: String) -> String { path + "/promoted" }

  let path: String
  private let directory: FileDescriptor
  /// Holds the directory's lock while it is open.
  private let lock: FileDescriptor
  /// The lease of this directory; nil: it is run without a lease.
  private let heldLease = Mutex<Lease?>(nil)

  /// Creates the directory if there is none, accessible to its owner only.
  ///
  /// - Parameter isStandby: Whether it has the copies of another process's stores, which nothing may run.
  init(_ path: String, isStandby: Bool = false) throws(Refusal) {
    self.path = path
    if mkdir(path, 0o700) != 0, errno != EEXIST { throw Self.refusal("make the state directory", path) }
    // Links are followed, because the directory that the service manager gives is one.
    directory = try Self.open(AT_FDCWD, path, O_RDONLY | O_DIRECTORY, path)
    try Self.check(directory)
    lock = try Self.open(directory.number, "lock", O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK, path + "/lock")
    // `rxd state` takes the lock for a moment to check whether another process holds it.
    switch FileLock.take(lock.number, within: .milliseconds(100)) {
    case 0: break
    case EWOULDBLOCK: throw .inUse("the state directory \(path) is in use by \(Self.owner(lock))")
    case let code:
      errno = code
      throw Self.refusal("lock", path)
    }
    let (marker, promoted) = (Self.standbyMarker(in: path), Self.promotedMarker(in: path))
    if isStandby {
      guard access(promoted, F_OK) != 0 else {
        throw .unusable(
          "\(path) was promoted, so it is no longer a standby: use an empty directory for a new one, or delete this directory with its contents"
        )
      }
      guard access(marker, F_OK) == 0 || access("\(path)/\(Self.stores)", F_OK) != 0 else {
        throw .unusable(
          "\(path) is the state directory of pipelines that run here: a standby needs its own directory")
      }
      try Self.make(marker)
    } else if access(marker, F_OK) == 0 {
      throw .unusable(
        "\(path) is the directory of a standby, whose pipelines run elsewhere: 'rxd promote-standby \(path)' makes it a state directory"
      )
    }
    ftruncate(lock.number, 0)
    let line = isStandby ? "\(getpid()) \(Self.standbyWord)\n" : "\(getpid())\n"
    do throws(PosixError) { try lock.write(Array(line.utf8)) } catch { throw .unusable(error.message) }
  }

  /// A subdirectory, created if there is none.
  func folder(_ name: String) throws(Refusal) -> FileDescriptor {
    let path = "\(self.path)/\(name)"
    if mkdirat(directory.number, name, 0o700) != 0, errno != EEXIST { throw Self.refusal("make", path) }
    let folder = try Self.open(directory.number, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW, path)
    try Self.check(folder)
    return folder
  }

  /// The state directory from the command line, else from `RXD_STATE_DIR`, else from the service manager. Nil: none is
  /// given.
  static func named(_ given: String?) -> String? {
    // The service manager may name several directories; the first is the unit's.
    let managed = ProcessEnvironment["STATE_DIRECTORY"]?.split(separator: ":").first.map(String.init)
    return [given, ProcessEnvironment["RXD_STATE_DIR"], managed].compactMap { $0 }.first { !$0.isEmpty }
  }

  /// The holder of a directory's lock, `process 4711`; nil: the lock is free. Changes nothing.
  static func user(of path: String) -> String? {
    let number = Glibc.open(path + "/lock", O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC)
    guard number >= 0 else { return nil }
    let lock = FileDescriptor(number, name: path + "/lock")
    guard flock(lock.number, LOCK_SH | LOCK_NB) != 0, errno == EWOULDBLOCK else { return nil }
    return owner(lock)
  }

  /// Waits until no process holds a directory's lock; returns false after the limit.
  static func awaitFree(_ path: String, within limit: TimeSpan) -> Bool {
    let number = Glibc.open(path + "/lock", O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC)
    guard number >= 0 else { return true }
    defer { close(number) }
    return FileLock.take(number, within: limit) != EWOULDBLOCK
  }

  /// The process that holds a directory's lock, and whether it is a standby; nil: none does.
  static func process(of path: String) -> (id: pid_t, isStandby: Bool)? {
    guard let user = user(of: path), user.hasPrefix("process "), let id = pid_t(user.dropFirst("process ".count)) else {
      return nil
    }
    let text = SystemFile.read(path + "/lock", limit: 64).map { String(decoding: $0, as: UTF8.self) } ?? ""
    return (id, text.hasPrefix("\(id) \(standbyWord)\n"))
  }

  /// What a standby writes behind its number into the lock.
  private static let standbyWord = "standby"

  // MARK: The lease

  var lease: Lease? { heldLease.withLock { $0 } }

  /// Takes the lease for this directory, and ends the process when it is lost.
  func take(lease path: String, for seconds: Int, _ log: LogWriter) throws(Lease.Refusal) {
    // Without this mark, a machine whose storage is not mounted would create its own lease.
    let mark = self.path + "/leased"
    let lease = try Lease(
      path, owner: try Self.identity(of: self.path), isNew: access(mark, F_OK) != 0, seconds: Int64(seconds),
      waits: { log.write(.info, "", $0) },
      warn: { log.write(.warning, "", $0) },
      lost: { reason in
        log.write(.error, "", "\(reason): this process ends at once, because another machine may take over")
        log.flush(patience: .seconds(1))
        kill(getpid(), SIGQUIT)
      })
    try Self.note(mark)
    heldLease.withLock { $0 = lease }
  }

  /// Transfers the lease to the directory of a standby if no process holds it.
  static func give(lease path: String, to directory: String, waits: (String) -> Void) throws(Lease.Refusal) {
    try Lease.give(path, to: try identity(of: directory), waits: waits)
    try note(directory + "/leased")
  }

  private static func note(_ mark: String) throws(Lease.Refusal) {
    do throws(Refusal) {
      try make(mark)
      try sync(String(mark.prefix(upTo: mark.lastIndex(of: "/") ?? mark.startIndex)))
    } catch { throw .unusable("\(error)") }
  }

  /// The unique identity of a directory: 32 hexadecimal digits, created on first use.
  private static func identity(of directory: String) throws(Lease.Refusal) -> String {
    let path = directory + "/identity"
    if let bytes = SystemFile.read(path, limit: 64) {
      let text = String(decoding: bytes.prefix { $0 != 0x0A }, as: UTF8.self)
      if text.utf8.count == 32, text.allSatisfy(\.isHexDigit) { return text }
    }
    let (high, low) = (UInt64.random(in: 0 ... .max), UInt64.random(in: 0 ... .max))
    // 16 hexadecimal digits with leading zeros.
    let text = [high, low].map { String(String($0 >> 4 | 1 << 60, radix: 16) + String($0 & 15, radix: 16)).suffix(16) }
      .joined()
    let line = Array("\(text)\n".utf8)
    let failure = line.withUnsafeBytes { bytes -> PosixError? in
      do throws(PosixError) {
        try replaceFile(path, with: bytes, permissions: 0o600)
        return nil
      } catch { return error }
    }
    if let failure { throw .unusable(failure.message) }
    return text
  }

  private static func make(_ path: String) throws(Refusal) {
    let number = uninterrupted { Glibc.open(path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0o600) }
    if number < 0 { throw refusal("make", path) }
    close(number)
  }

  /// Syncs a directory, so that its entries survive a power failure.
  static func sync(_ path: String) throws(Refusal) {
    let number = uninterrupted { Glibc.open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC) }
    if number < 0 { throw refusal("open", path) }
    defer { close(number) }
    if fsync(number) != 0 { throw refusal("sync", path) }
  }

  private static func open(_ parent: Int32, _ name: String, _ flags: Int32, _ path: String) throws(Refusal)
    -> FileDescriptor
  {
    let number = uninterrupted { openat(parent, name, flags | O_CLOEXEC, 0o600) }
    if number < 0 { throw refusal("open", path) }
    return FileDescriptor(number, name: path)
  }

  /// Refuses a directory to which another user can write, because that user could read or replace the stored data.
  private static func check(_ directory: FileDescriptor) throws(Refusal) {
    if let problem = TrustedFile.problem(of: directory.number, named: directory.name) {
      throw .unusable("the state directory cannot be used: \(problem), or name another directory")
    }
  }

  private static func owner(_ lock: FileDescriptor) -> String {
    var bytes = [UInt8](repeating: 0, count: 20)
    let count = pread(lock.number, &bytes, bytes.count, 0)
    let digits = bytes.prefix(max(0, count)).prefix { (0x30...0x39).contains($0) }
    return digits.isEmpty ? "another process" : "process \(String(decoding: digits, as: UTF8.self))"
  }

  private static func refusal(_ operation: String, _ path: String) -> Refusal {
    .unusable(PosixError(operation, path).message)
  }
}
