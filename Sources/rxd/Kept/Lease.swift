import ArgumentParser
import Glibc
import PipelineCore
import PipelineRuntime
import Synchronization
import Transport

/// A lease file on storage shared by two machines. It names the state directory that may be run. The holder renews it;
/// a holder that cannot renew it exits before another process may take it.
///
/// A lease passes to another directory only by a promotion (``give(_:to:waits:)``), never by a start. Its file has one
/// line: `OWNER BOOT SECONDS COUNT HOST PROCESS`, of which the first is the identity of the state directory and the
/// second that of the machine's boot.
final class Lease: Sendable {
  enum Refusal: Error {
    /// Another process holds it.
    case held(String)
    /// The lease belongs to another state directory.
    case elsewhere(String)
    case unusable(String)

    /// Prints the reason; returns the exit status. `advice`: text to append if another process holds the lease.
    func reported(_ advice: String = "") -> ExitCode {
      switch self {
      case .held(let message):
        Console.printError(message + advice)
        return ExitStatus.temporary
      case .elsewhere(let message):
        Console.printError(message)
        return ExitStatus.configuration
      case .unusable(let message):
        Console.printError(message)
        return ExitStatus.inputOutput
      }
    }
  }

  /// The contents of the file.
  struct Holder: Equatable {
    var owner: String
    var boot: String
    var seconds: Int64
    var count: UInt64
    var host: String
    var process: Int32

    init(owner: String, seconds: Int64) {
      self.owner = owner
      self.seconds = seconds
      boot = Lease.boot()
      count = 0
      host = Lease.host()
      process = getpid()
    }

    /// Parses the contents; nil: the text is not a lease.
    init?(_ text: String) {
      let words = text.split(separator: "\n", omittingEmptySubsequences: false).first?.split(separator: " ") ?? []
      guard words.count == 6, let seconds = Int64(words[2]), seconds > 0, let count = UInt64(words[3]),
        let process = Int32(words[5])
      else { return nil }
      (owner, boot, self.seconds, self.count) = (String(words[0]), String(words[1]), seconds, count)
      (host, self.process) = (String(words[4]), process)
    }

    var text: String { "\(owner) \(boot) \(seconds) \(count) \(host) \(process)\n" }
    var shown: String { "process \(process) of \(Printable.cut(host, limit: 100))" }
  }

  private struct State {
    var holder: Holder
    /// The time until which the lease is held, on the clock of ``now()``.
    var end: Int64
    var isOver = false
    var hasFailed = false
  }

  let path: String
  private let file: FileDescriptor
  private let state: Guarded<State>
  /// Called once, on any thread, when the lease is lost: the process must end at once. The reason is a sentence without a full stop.
  private let lost: @Sendable (String) -> Void
  private let warn: @Sendable (String) -> Void

  /// Acquires the lease and keeps renewing it.
  ///
  /// - Parameters:
  ///   - owner: The identity of the state directory.
  ///   - isNew: Whether the directory has never held a lease, so that the file may be created.
  ///   - seconds: The time after which others may take a lease that is not renewed.
  ///   - waits: Called before waiting until the former holder's lease has expired.
  init(
    _ path: String, owner: String, isNew: Bool, seconds: Int64, waits: (String) -> Void,
    warn: @escaping @Sendable (String) -> Void,
    lost: @escaping @Sendable (String) -> Void
  ) throws(Refusal) {
    let file = try Self.open(path, makes: isNew)
    let known = try Self.read(file, path)
    guard known != nil || isNew else { throw Self.missing(path) }
    if let known {
      guard known.owner == owner else {
        throw .elsewhere(
          "the lease \(path) belongs to another state directory, that of \(known.shown): only 'rxd promote-standby --lease' gives it to this one"
        )
      }
      try Self.awaitEnd(of: known, file, path, waits)
    }
    var holder = Holder(owner: owner, seconds: seconds)
    holder.count = (known?.count ?? 0) &+ 1
    let start = Self.now()
    do throws(PosixError) { try Self.write(holder, file) } catch { throw .unusable(error.message) }
    (self.path, self.file, self.lost, self.warn) = (path, file, lost, warn)
    state = Guarded(State(holder: holder, end: start + seconds * 1_000_000_000))
    do throws(PosixError) {
      _ = try OwnThread("rxd lease", stackBytes: 512 << 10) { [weak self] in
        while let self, self.renewOnce() {}
      }
      _ = try OwnThread("rxd lease end", stackBytes: 512 << 10) { [weak self] in
        while let self, self.watchOnce() {}
      }
    } catch { throw .unusable(error.message) }
  }

  /// Transfers the lease to the state directory of this identity if no process holds it.
  static func give(_ path: String, to owner: String, waits: (String) -> Void) throws(Refusal) {
    // The file must not be created: a missing file means a wrong path, or storage that is not mounted.
    if let bytes = SystemFile.read(path, limit: 512), Holder(String(decoding: bytes, as: UTF8.self))?.owner == owner {
      return
    }
    let file = try open(path, makes: false)
    guard let known = try read(file, path) else { throw missing(path) }
    try awaitEnd(of: known, file, path, waits)
    var holder = Holder(owner: owner, seconds: known.seconds)
    holder.count = known.count &+ 1
    do throws(PosixError) { try write(holder, file) } catch { throw .unusable(error.message) }
  }

  /// Whether the lease is held now. Must be checked before every action that only the holder may take.
  var isHeld: Bool {
    let now = Self.now()
    return state.withLock { now < $0.end && !$0.isOver }
  }

  // MARK: While it is held

  /// Returns false when the lease has ended.
  private func renewOnce() -> Bool {
    let pause = state.withLock { $0.holder.seconds * 1_000_000_000 / 3 }
    let isOver = state.wait(until: monotonicNow() + pause) { $0.isOver ? true : nil } ?? false
    if isOver { return false }
    let start = Self.now()
    var holder = state.withLock(\.holder)
    do throws(PosixError) {
      guard try isOwn(holder) else {
        end("the lease \(path) was given away or removed")
        return false
      }
      holder.count &+= 1
      try Self.write(holder, file)
      let hadFailed = state.withLock { state in
        defer { state.hasFailed = false }
        (state.holder, state.end) = (holder, start + holder.seconds * 1_000_000_000)
        return state.hasFailed
      }
      if hadFailed { warn("the lease \(path) is renewed again") }
    } catch {
      let isFirst = state.withLock { state in
        defer { state.hasFailed = true }
        return !state.hasFailed
      }
      if isFirst { warn("the lease cannot be renewed, and without it this process ends: \(error.message)") }
    }
    return true
  }

  /// Ends the process if the lease was not renewed in time, even while a renewal hangs.
  private func watchOnce() -> Bool {
    let isOver = state.wait(until: monotonicNow() + 100_000_000) { $0.isOver ? true : nil } ?? false
    if isOver { return false }
    let (seconds, isLate) = state.withLock { ($0.holder.seconds, Self.now() >= $0.end) }
    if isLate { end("the lease \(path) could not be renewed for \(seconds) s") }
    return !isLate
  }

  private func end(_ reason: String) {
    let isFirst = state.withLock { state in
      defer { state.isOver = true }
      return !state.isOver
    }
    state.notify()
    if isFirst { lost(reason) }
  }

  /// Whether the file still exists, with the contents that this process has written.
  private func isOwn(_ holder: Holder) throws(PosixError) -> Bool {
    var named = stat()
    if stat(path, &named) != 0 {
      guard errno == ENOENT else { throw PosixError("read", path) }
      return false
    }
    let open = try file.status()
    guard UInt64(named.st_dev) == open.device, UInt64(named.st_ino) == open.inode else { return false }
    return try Self.text(file, path).flatMap(Holder.init)?.owner == holder.owner
  }

  // MARK: The file

  private static func open(_ path: String, makes: Bool) throws(Refusal) -> FileDescriptor {
    let flags = O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | (makes ? O_CREAT : 0)
    let number = uninterrupted { Glibc.open(path, flags, 0o600) }
    guard number >= 0 else {
      throw errno == ENOENT && !makes ? missing(path) : .unusable(PosixError("open", path).message)
    }
    let file = FileDescriptor(number, name: path)
    switch FileLock.take(file.number, within: .milliseconds(100)) {
    case 0: return file
    case EWOULDBLOCK:
      let holder = (try? read(file, path)).flatMap { $0 }
      throw .held("the lease \(path) is held by \(holder?.shown ?? "another process")")
    case let code:
      errno = code
      throw .unusable(PosixError("lock", path).message)
    }
  }

  private static func missing(_ path: String) -> Refusal {
    .unusable(
      "there is no lease \(path), although there was one: is its storage mounted, and is this the path of both machines?"
    )
  }

  /// Reads the holder; nil: the file is new.
  private static func read(_ file: FileDescriptor, _ path: String) throws(Refusal) -> Holder? {
    let text: String?
    do throws(PosixError) { text = try Self.text(file, path) } catch { throw .unusable(error.message) }
    guard let text else { return nil }
    guard let holder = Holder(text) else {
      throw .unusable("\(path) is not a lease of rxd: name a file that does not exist yet")
    }
    return holder
  }

  /// Reads the text; nil: the file is empty.
  private static func text(_ file: FileDescriptor, _ path: String) throws(PosixError) -> String? {
    var bytes = [UInt8](repeating: 0, count: 512)
    let count = uninterrupted { pread(file.number, &bytes, bytes.count, 0) }
    guard count >= 0 else { throw PosixError("read", path) }
    return count == 0 ? nil : String(decoding: bytes.prefix(count), as: UTF8.self)
  }

  private static func write(_ holder: Holder, _ file: FileDescriptor) throws(PosixError) {
    // A single write, so that a reader sees either the old or the new line.
    let bytes = Array(holder.text.utf8)
    let count = uninterrupted { pwrite(file.number, bytes, bytes.count, 0) }
    guard count == bytes.count else { throw PosixError("write", file.name, code: count < 0 ? errno : ENOSPC) }
    guard ftruncate(file.number, off_t(bytes.count)) == 0, uninterrupted({ fdatasync(file.number) }) == 0 else {
      throw PosixError("write", file.name)
    }
  }

  /// Waits until the former holder has ended. A holder on this machine has, because its lock is free; one on another
  /// machine may only have lost its lock.
  private static func awaitEnd(
    of known: Holder, _ file: FileDescriptor, _ path: String, _ waits: (String) -> Void
  ) throws(Refusal) {
    guard known.boot != boot() else { return }
    waits("the lease \(path) was that of \(known.shown): waiting \(known.seconds) s to see whether it is renewed")
    // A quarter more, because clocks run at different rates.
    let end = now() + known.seconds * 1_250_000_000
    while now() < end {
      poll(nil, 0, 200)
      // Reopened each time, because network file systems check for changes on open.
      let number = uninterrupted { Glibc.open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK) }
      guard number >= 0 else { throw .unusable(PosixError("open", path).message) }
      let again = FileDescriptor(number, name: path)
      guard try read(again, path) == known else {
        throw .held("the lease \(path) is held by \(known.shown), which renews it")
      }
    }
  }

  /// Nanoseconds, including the time during which the machine was suspended.
  private static func now() -> Int64 {
    var time = timespec()
    clock_gettime(CLOCK_BOOTTIME, &time)
    return Int64(time.tv_sec) * 1_000_000_000 + Int64(time.tv_nsec)
  }

  private static func boot() -> String {
    let text = SystemFile.read("/proc/sys/kernel/random/boot_id", limit: 64).map { String(decoding: $0, as: UTF8.self) }
    return text?.split(separator: "\n").first.map(String.init) ?? "unknown"
  }

  private static func host() -> String {
    var bytes = [UInt8](repeating: 0, count: 256)
    gethostname(&bytes, bytes.count - 1)
    let name = String(decoding: bytes.prefix { $0 != 0 }, as: UTF8.self).filter { !$0.isWhitespace }
    return name.isEmpty ? "unknown" : name
  }
}
