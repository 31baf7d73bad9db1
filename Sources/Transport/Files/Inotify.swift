import Glibc
import PipelineCore
import Synchronization

/// Kernel events of directories and files for one reader, such as a follower, a directory watcher or the daemon's
/// configuration.
///
/// All readers of the process share one inotify instance, because a user has few of them (128 by default). A single
/// reader reads it itself; as soon as there are two, a thread distributes the events. Used by one thread at a time.
package final class Inotify {
  package struct Event: Sendable {
    var watch: Int32
    var mask: UInt32
    /// Pairs the two events of a rename.
    var cookie: UInt32
    /// The name of the entry, for events of a directory.
    var name: String
    func has(_ bits: Int) -> Bool { mask & UInt32(truncatingIfNeeded: bits) != 0 }
  }

  /// Entries of a directory are created, removed, renamed or change their permissions; or the directory itself.
  static let directoryEvents = UInt32(
    IN_CREATE | IN_MOVED_TO | IN_MOVED_FROM | IN_DELETE | IN_ATTRIB | IN_DELETE_SELF | IN_MOVE_SELF)
  /// Events of a directory, and writes to its entries.
  package static let contentEvents = directoryEvents | UInt32(IN_MODIFY | IN_CLOSE_WRITE)
  static let fileEvents = UInt32(IN_MODIFY | IN_ATTRIB | IN_MOVE_SELF | IN_DELETE_SELF | IN_CLOSE_WRITE)

  private let mailbox: InotifyMailbox

  /// - Parameter onlyWakes: Whether the reader waits only for ``descriptor``, and not in ``wait(stop:milliseconds:)``.
  package init(onlyWakes: Bool = false) throws(PosixError) {
    mailbox = try InotifyMailbox()
    try InotifyHub.shared.enter(mailbox, needsThread: onlyWakes)
  }

  deinit { InotifyHub.shared.leave(mailbox) }

  /// Readable while events wait, with `onlyWakes`.
  package var descriptor: Int32 { mailbox.wake.descriptor }

  /// Watches the file at the path; the same file gives the same number.
  package func watch(_ path: String, _ events: UInt32) throws(PosixError) -> Int32 {
    try InotifyHub.shared.watch(path, events, for: mailbox)
  }

  package func unwatch(_ watch: Int32) { InotifyHub.shared.unwatch(watch, for: mailbox) }

  /// The events since the last call, in order. Never waits.
  package func read() -> [Event] {
    InotifyHub.shared.pump(for: mailbox)
    return mailbox.take()
  }

  /// The events since the last call; waits until there is one. Empty if the time has passed; nil if `stop` was woken.
  func wait(stop: WakeEvent, milliseconds: Int32) -> [Event]? {
    var entries = (
      pollfd(fd: stop.descriptor, events: Int16(POLLIN), revents: 0),
      pollfd(fd: mailbox.wake.descriptor, events: Int16(POLLIN), revents: 0),
      pollfd(fd: InotifyHub.shared.descriptorOfSingleReader, events: Int16(POLLIN), revents: 0)
    )
    withUnsafeMutableBytes(of: &entries) { bytes in
      _ = uninterrupted { Glibc.poll(bytes.assumingMemoryBound(to: pollfd.self).baseAddress, 3, milliseconds) }
    }
    if entries.0.revents != 0 { return nil }
    return entries.1.revents == 0 && entries.2.revents == 0 ? [] : read()
  }

  /// Whether this refusal of an instance or a watch is the first of its kind: only that one is worth a warning.
  package static func isNews(_ error: PosixError) -> Bool { InotifyHub.shared.isNews(error.code) }
}

/// The events for one reader.
private final class InotifyMailbox: Sendable {
  private struct Pending {
    var events: [Inotify.Event] = []
    /// The watches with a pending write that no close follows: a further write adds nothing.
    var written: Set<Int32> = []
    var isOverfull = false
  }

  let wake: WakeEvent
  private let pending = Mutex(Pending())
  /// The number of events that the kernel keeps by default.
  private static let limit = 16_384

  init() throws(PosixError) { wake = try WakeEvent() }

  /// - Parameter wakes: Whether the reader may be waiting.
  func add(_ event: Inotify.Event, wakes: Bool) {
    pending.withLock { pending in
      if pending.isOverfull { return }
      if event.mask == UInt32(IN_MODIFY), event.name.isEmpty, !pending.written.insert(event.watch).inserted { return }
      if event.has(Int(IN_CLOSE_WRITE)) { pending.written.remove(event.watch) }
      if pending.events.count >= Self.limit {
        pending.isOverfull = true
        pending.events = [Inotify.Event(watch: -1, mask: UInt32(IN_Q_OVERFLOW), cookie: 0, name: "")]
      } else {
        pending.events.append(event)
      }
      if wakes, !wake.isAwake { wake.wake() }
    }
  }

  func take() -> [Inotify.Event] {
    pending.withLock { pending in
      if wake.isAwake { wake.clear() }
      if pending.events.isEmpty { return [] }
      let events = pending.events
      pending.events = []
      pending.written.removeAll(keepingCapacity: true)
      pending.isOverfull = false
      return events
    }
  }
}

/// The inotify instance of the process, and the readers of its watches.
private final class InotifyHub: Sendable {
  static let shared = InotifyHub()

  private struct State {
    /// -1: none, because the system has refused it so far.
    var descriptor: Int32 = -1
    var readers: [ObjectIdentifier: InotifyMailbox] = [:]
    /// The readers of each watch, with their events.
    var watchers: [Int32: [(reader: InotifyMailbox, events: UInt32)]] = [:]
    var hasThread = false
    /// The error codes that were reported since the last success.
    var reported: Set<Int32> = []
    var buffer: [UInt8] = []
  }

  private let state = Mutex(State())

  /// The bits of an event that say what happened.
  private static let happenings: UInt32 = 0xFFF
  /// Events that every reader of a watch gets.
  private static let always = UInt32(IN_IGNORED | IN_UNMOUNT)

  /// The descriptor that a single reader reads itself; -1: a thread reads it.
  var descriptorOfSingleReader: Int32 { state.withLock { $0.hasThread ? -1 : $0.descriptor } }

  func isNews(_ code: Int32) -> Bool { state.withLock { $0.reported.insert(code).inserted } }

  func enter(_ reader: InotifyMailbox, needsThread: Bool) throws(PosixError) {
    try state.withLock { state throws(PosixError) in
      if state.descriptor < 0 {
        state.descriptor = inotify_init1(Int32(IN_CLOEXEC) | Int32(IN_NONBLOCK))
        if state.descriptor < 0 { throw Self.refusal() }
        state.reported.remove(EMFILE)
      }
      if !state.hasThread, needsThread || !state.readers.isEmpty {
        let descriptor = state.descriptor
        _ = try OwnThread("rxd inotify", stackBytes: 256 << 10) { [self] in run(descriptor) }
        state.hasThread = true
      }
      state.readers[ObjectIdentifier(reader)] = reader
    }
  }

  func leave(_ reader: InotifyMailbox) {
    state.withLock { state in
      state.readers[ObjectIdentifier(reader)] = nil
      for watch in state.watchers.filter({ $0.value.contains { $0.reader === reader } }).keys {
        Self.remove(watch, reader, &state)
      }
    }
  }

  func watch(_ path: String, _ events: UInt32, for reader: InotifyMailbox) throws(PosixError) -> Int32 {
    try state.withLock { state throws(PosixError) in
      // Adds to the mask, because other readers may watch the same file for other events.
      let watch = inotify_add_watch(state.descriptor, path, events | UInt32(IN_MASK_ADD))
      if watch < 0 { throw Self.refusal(of: path) }
      state.reported.remove(ENOSPC)
      var readers = state.watchers[watch] ?? []
      if let index = readers.firstIndex(where: { $0.reader === reader }) {
        readers[index].events |= events & Self.happenings
      } else {
        readers.append((reader, events & Self.happenings))
      }
      state.watchers[watch] = readers
      return watch
    }
  }

  func unwatch(_ watch: Int32, for reader: InotifyMailbox) {
    state.withLock { Self.remove(watch, reader, &$0) }
  }

  private static func remove(_ watch: Int32, _ reader: InotifyMailbox, _ state: inout State) {
    guard var readers = state.watchers[watch] else { return }
    readers.removeAll { $0.reader === reader }
    state.watchers[watch] = readers.isEmpty ? nil : readers
    if readers.isEmpty { inotify_rm_watch(state.descriptor, watch) }
  }

  // MARK: Reading

  /// Distributes the events that the kernel has now. `reader` is about to take its own, so it need not be woken.
  func pump(for reader: InotifyMailbox?) {
    state.withLock { state in
      if state.buffer.isEmpty { state.buffer = [UInt8](repeating: 0, count: 64 << 10) }
      let descriptor = state.descriptor
      while true {
        let count = state.buffer.withUnsafeMutableBytes { buffer in
          uninterrupted { Glibc.read(descriptor, buffer.baseAddress, buffer.count) }
        }
        guard count > 0 else { return }
        Self.hand(out: count, &state, reader)
        // The kernel fills the buffer, so if another event would have fitted, there is none.
        if state.buffer.count - count > MemoryLayout<inotify_event>.size + Int(NAME_MAX) + 1 { return }
      }
    }
  }

  private static func hand(out count: Int, _ state: inout State, _ asking: InotifyMailbox?) {
    var at = 0
    let head = MemoryLayout<inotify_event>.size
    while at + head <= count {
      let event = state.buffer.withUnsafeBytes { buffer in
        let length = Int(buffer.loadUnaligned(fromByteOffset: at + 12, as: UInt32.self))
        let name = buffer[(at + head)..<min(at + head + length, count)].prefix { $0 != 0 }
        defer { at += head + length }
        return Inotify.Event(
          watch: buffer.loadUnaligned(fromByteOffset: at, as: Int32.self),
          mask: buffer.loadUnaligned(fromByteOffset: at + 4, as: UInt32.self),
          cookie: buffer.loadUnaligned(fromByteOffset: at + 8, as: UInt32.self),
          name: name.isEmpty ? "" : String(decoding: name, as: UTF8.self))
      }
      if event.has(Int(IN_Q_OVERFLOW)) {
        for reader in state.readers.values { reader.add(event, wakes: reader !== asking) }
        continue
      }
      for (reader, events) in state.watchers[event.watch] ?? [] where event.mask & (events | always) != 0 {
        reader.add(event, wakes: reader !== asking)
      }
      if event.has(Int(IN_IGNORED)) { state.watchers[event.watch] = nil }
    }
  }

  /// The thread that serves several readers. It never ends.
  private func run(_ descriptor: Int32) {
    var pace = ReadingPace(nanoseconds: 750_000)
    while true {
      var entry = pollfd(fd: descriptor, events: Int16(POLLIN), revents: 0)
      _ = uninterrupted { Glibc.poll(&entry, 1, -1) }
      pump(for: nil)
      // While files grow fast, several events cost one wake-up.
      let now = monotonicNow()
      pace.found(at: now)
      guard pace.isBusy, pace.nextPoll > now else { continue }
      var rest = timespec(tv_sec: 0, tv_nsec: Int(min(pace.nextPoll &- now, 1_000_000)))
      nanosleep(&rest, nil)
    }
  }

  // MARK: Limits

  /// The reason why the system refuses an instance, with the limit that must be raised.
  private static func refusal() -> PosixError {
    let code = errno
    // The error code is the same if the process has no descriptor left.
    let free = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 0)
    let hasRoom = free >= 0 || errno != EMFILE
    if free >= 0 { close(free) }
    guard code == EMFILE, hasRoom else { return PosixError("watch", "files", code: code) }
    return PosixError(
      "watch", "files", code: code,
      detail: "\(limit("max_user_instances", "instances")) of this user are in use; raise fs.inotify.max_user_instances"
    )
  }

  private static func refusal(of path: String) -> PosixError {
    let code = errno
    guard code == ENOSPC else { return PosixError("watch", path, code: code) }
    return PosixError(
      "watch", path, code: code,
      detail: "\(limit("max_user_watches", "watches")) of this user are in use; raise fs.inotify.max_user_watches")
  }

  private static func limit(_ name: String, _ what: String) -> String {
    let digits = (SystemFile.read("/proc/sys/fs/inotify/\(name)") ?? []).filter { 0x30...0x39 ~= $0 }
    return Int(String(decoding: digits, as: UTF8.self)).map { "the \($0) inotify \(what)" } ?? "all inotify \(what)"
  }
}
