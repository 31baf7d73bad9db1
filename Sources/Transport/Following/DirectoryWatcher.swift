import Glibc
import PipelineCore
import Synchronization

/// An entry of a directory.
package struct DirectoryEntry: Sendable, Equatable {
  package enum Kind: UInt8, Sendable {
    case file, directory, link, other
    init(mode: mode_t) {
      switch mode & S_IFMT {
      case S_IFREG: self = .file
      case S_IFDIR: self = .directory
      case S_IFLNK: self = .link
      default: self = .other
      }
    }
  }
  package var kind: Kind
  package var inode: UInt64
  /// Bytes.
  package var size: Int64
  /// Nanoseconds since 1970.
  package var modified: Int64

  package init(kind: Kind, inode: UInt64, size: Int64, modified: Int64) {
    self.kind = kind
    self.inode = inode
    self.size = size
    self.modified = modified
  }

  init(_ raw: stat) {
    kind = Kind(mode: raw.st_mode)
    inode = UInt64(raw.st_ino)
    size = Int64(raw.st_size)
    modified = Int64(raw.st_mtim.tv_sec) &* 1_000_000_000 &+ Int64(raw.st_mtim.tv_nsec)
  }

  /// The entry itself, even if it is a symbolic link.
  static func read(_ path: String) -> Result<DirectoryEntry, PosixError> {
    var raw = stat()
    guard uninterrupted({ fstatat(AT_FDCWD, path, &raw, AT_SYMLINK_NOFOLLOW) }) == 0 else {
      return .failure(PosixError("examine", path))
    }
    return .success(DirectoryEntry(raw))
  }
}

/// Watches a directory and those below it: reports created, changed and removed entries, on a thread of its own.
///
/// It compares entries with those that it has reported, so it does not depend on the kernel to report every event:
/// events only select the directories to scan. After an overflow, or if there are no watches left, it scans all of
/// them. An entry that is created and removed between two scans is not reported. Symbolic links below the directory are
/// entries and are not followed.
package final class DirectoryWatcher: Sendable {
  package struct Options: Sendable {
    package var root: String
    /// The number of directory levels below the root that are watched.
    package var depth = 0
    /// Patterns of entries to report, and to exclude. A pattern without a `/` is matched with the name, any other with
    /// the path below the root.
    package var include = ["*"]
    package var exclude: [String] = []
    package var maxEntries = 10_000
    package var maxDirectories = 1000
    /// The entries reported by an earlier watcher; nil: this is the first start.
    package var known: [String: DirectoryEntry]?
    /// At the first start: whether existing entries are reported as created.
    package var reportsExisting = false
    /// Whether to end after the first scan.
    package var once = false
    package var watch = WatchMethod.auto
    /// The name of a path's file system if the kernel does not report all its changes; replaced in tests.
    var networkFileSystem: @Sendable (String) -> String? = { NetworkFileSystem.name(of: $0) }
    package init(root: String) { self.root = root }
  }

  package struct Change: Sendable, Equatable {
    package enum What: Sendable { case created, changed, removed, found }
    /// `found`: the entry exists at the start, which is not an event.
    package var what: What
    /// The path below the root.
    package var path: String
    /// The entry; of a removed one, its last state.
    package var entry: DirectoryEntry
    /// Whether a pattern matches the entry; otherwise it is a directory that is only watched.
    package var isReported: Bool
  }

  package enum Notice: Sendable, Equatable {
    case watching(directories: Int, entries: Int)
    /// There are more entries than `maxEntries`, or more directories than `maxDirectories`.
    case tooManyEntries, tooManyDirectories
    /// The kernel dropped events; all directories were scanned.
    case overflow
    /// No watches are left: directories are scanned once a second instead.
    case polling(PosixError)
    /// The directory is on a file system on which other machines change files without events; it is scanned once a second.
    case remote(fileSystem: String)
    /// A directory cannot be read. The root is tried again every second, any other directory when it changes.
    case unreadable(PosixError)
    case recovered(path: String)
    /// A name in this directory is not UTF-8, and is skipped.
    case unnamed(directory: String)
  }

  private let options: Options
  private let stopEvent: WakeEvent

  package init(_ options: Options) throws(PosixError) {
    self.options = options
    stopEvent = try WakeEvent()
  }

  /// Starts the thread; called once. The callbacks are called on it, one at a time, and may block. `deliver` returns
  /// false to end watching; it gets an empty list after the first scan. `end` is called last, after `stop` or, with
  /// `once`, after the first scan; with an error if that scan cannot list the root.
  package func start(
    deliver: @escaping @Sendable ([Change]) -> Bool, notice: @escaping @Sendable (Notice) -> Void,
    end: @escaping @Sendable (PosixError?) -> Void
  ) throws(PosixError) {
    let work = DirectoryWork(options, stopEvent, deliver, notice)
    _ = try OwnThread("rxd directory") { end(work.run()) }
  }

  /// Ends watching soon.
  package func stop() { stopEvent.wake() }

  /// The reason why the directory cannot be watched now; nil: it can be.
  package static func check(_ root: String) -> PosixError? {
    do throws(PosixError) {
      _ = try directoryEntries(root)
      return nil
    } catch { return error }
  }
}

/// The work of a `DirectoryWatcher`. Used on its thread only.
private final class DirectoryWork: @unchecked Sendable {
  typealias Change = DirectoryWatcher.Change
  typealias Notice = DirectoryWatcher.Notice

  private let options: DirectoryWatcher.Options
  private let stop: WakeEvent
  private let deliver: ([Change]) -> Bool
  private let notify: (Notice) -> Void

  private var inotify: Inotify?
  /// Watched directories by watch number and by path; the root's path is empty.
  private var directories: [Int32: String] = [:]
  private var watches: [String: Int32] = [:]
  /// The reported entries, and the directories that lead to them, by path.
  private var table: [String: DirectoryEntry]
  /// The names in `table`, by directory.
  private var names: [String: Set<String>] = [:]
  private var root: DirectoryEntry?
  /// Whether this is the first scan, so that new entries are not events.
  private var isFirstLook: Bool
  private var isPolling = false
  private var hasReportedPolling = false
  /// When to ask again for watches that the system has refused, on the monotonic clock.
  private var rewatchAt: Int64?
  private static let rewatchPause: Int64 = 60_000_000_000
  /// Whether entries were left out because of the limit.
  private var isFull = false
  private var batch: [Change] = []
  private var isRefused = false
  private var reported: Set<String> = []
  private var hasReportedEntries = false
  private var hasReportedDirectories = false

  private static let batchLimit = 256
  /// In milliseconds: the pause between scans of the root, because renaming a directory above it causes no event, and
  /// the pause between scans of all directories while there are no events.
  private static let (pause, pollPause): (Int32, Int32) = (60_000, 1000)

  init(
    _ options: DirectoryWatcher.Options, _ stop: WakeEvent, _ deliver: @escaping ([Change]) -> Bool,
    _ notice: @escaping (Notice) -> Void
  ) {
    self.options = options
    self.stop = stop
    self.deliver = deliver
    notify = notice
    table = options.known ?? [:]
    isFirstLook = options.known == nil && !options.reportsExisting
    for path in table.keys {
      let (directory, name) = Self.parts(path)
      names[directory, default: []].insert(name)
    }
  }

  private var isOver: Bool { isRefused || stop.isAwake }

  func run() -> PosixError? {
    if !options.once { beginWatching() }
    let failure = enterRoot()
    isFirstLook = false
    flush()
    if options.once { return failure }
    // The empty list reports that the first scan is over.
    if !isOver { isRefused = !deliver([]) }
    if failure == nil, !isOver {
      notify(.watching(directories: max(watches.count, 1), entries: table.count))
    }
    while !isOver {
      let events = wait()
      if isOver { break }
      take(events)
      flush()
    }
    return nil
  }

  private func wait() -> [Inotify.Event] {
    let pause = isPolling || root == nil ? Self.pollPause : Self.pause
    if let inotify { return inotify.wait(stop: stop, milliseconds: pause) ?? [] }
    var entry = pollfd(fd: stop.descriptor, events: Int16(POLLIN), revents: 0)
    _ = uninterrupted { Glibc.poll(&entry, 1, pause) }
    return []
  }

  private func beginWatching() {
    isPolling = options.watch == .poll
    if isPolling { return }
    if options.watch == .auto, let name = options.networkFileSystem(options.root) {
      isPolling = true
      notify(.remote(fileSystem: name))
      return
    }
    do throws(PosixError) { inotify = try Inotify() } catch { poll(instead: error) }
  }

  /// Asks again for watches that the system has refused.
  private func watchAgain() {
    guard let due = rewatchAt, monotonicNow() >= due else { return }
    rewatchAt = nil
    isPolling = false
    if inotify == nil { beginWatching() }
  }

  private func poll(instead error: PosixError) {
    if !hasReportedPolling { notify(.polling(error)) }
    hasReportedPolling = true
    isPolling = true
    rewatchAt = rewatchAt ?? monotonicNow() &+ Self.rewatchPause
  }

  // MARK: Events

  private func take(_ events: [Inotify.Event]) {
    var checksEverything = isPolling || root == nil
    watchAgain()
    var paths: [String] = []
    var seen: Set<String> = []
    for event in events {
      if event.has(Int(IN_Q_OVERFLOW)) {
        notify(.overflow)
        checksEverything = true
        continue
      }
      guard let directory = directories[event.watch] else { continue }
      if event.has(Int(IN_IGNORED)) {
        directories[event.watch] = nil
        if watches[directory] == event.watch { watches[directory] = nil }
      }
      if event.name.isEmpty {
        // An event of the root itself; for any other directory, its parent reports the change.
        if directory.isEmpty { checksEverything = true }
      } else if case let path = Self.join(directory, event.name), seen.insert(path).inserted {
        paths.append(path)
      }
    }
    if events.isEmpty, !checksEverything { checksEverything = hasOtherRoot }
    if checksEverything {
      lookEverywhere()
    } else {
      for path in paths where !isOver { look(at: path) }
    }
    if isFull, table.count < options.maxEntries - options.maxEntries / 10, !isOver {
      isFull = false
      lookEverywhere()
    }
  }

  private var hasOtherRoot: Bool {
    var raw = stat()
    return uninterrupted { fstatat(AT_FDCWD, options.root, &raw, 0) } != 0 || UInt64(raw.st_ino) != root?.inode
  }

  private func lookEverywhere() {
    if hasOtherRoot { for watch in Array(watches.keys) { unwatch(watch) } }
    _ = enterRoot()
  }

  // MARK: Scanning

  private func enterRoot() -> PosixError? {
    var raw = stat()
    var failure: PosixError?
    if uninterrupted({ fstatat(AT_FDCWD, options.root, &raw, 0) }) != 0 {
      failure = PosixError("watch", options.root)
    } else if raw.st_mode & S_IFMT != S_IFDIR {
      failure = PosixError("watch", options.root, code: ENOTDIR)
    }
    root = failure == nil ? DirectoryEntry(raw) : nil
    if failure == nil { failure = enter("") }
    guard let failure else {
      if reported.remove("") != nil { notify(.recovered(path: options.root)) }
      return nil
    }
    root = nil
    if !options.once, reported.insert("").inserted { notify(.unreadable(failure)) }
    // The entries count as removed only if the directory is gone: one that cannot be read for a while may still have
    // them.
    if failure.code == ENOENT || failure.code == ENOTDIR { removeAll(in: "") }
    return failure
  }

  /// Watches a directory, then scans its entries. Returns the error, if any.
  private func enter(_ directory: String) -> PosixError? {
    let full = directory.isEmpty ? options.root : Self.join(options.root, directory)
    if let inotify, watches[directory] == nil {
      if watches.count >= options.maxDirectories {
        if !hasReportedDirectories { notify(.tooManyDirectories) }
        hasReportedDirectories = true
        return nil
      }
      do throws(PosixError) {
        let events =
          Inotify.directoryEvents | UInt32(IN_CLOSE_WRITE | IN_ONLYDIR)
          | (directory.isEmpty ? 0 : UInt32(IN_DONT_FOLLOW))
        let watch = try inotify.watch(full, events)
        // The same directory may have been watched under another name.
        if let old = directories[watch], old != directory { watches[old] = nil }
        directories[watch] = directory
        watches[directory] = watch
      } catch {
        if error.code == ENOSPC { poll(instead: error) } else { return error }
      }
    }
    let listed: [String]
    do throws(PosixError) { listed = try directoryEntries(full).map(\.name) } catch { return error }
    let present = Set(listed)
    for name in names[directory, default: []].subtracting(present).sorted(by: Self.isBefore) where !isOver {
      look(at: Self.join(directory, name))
    }
    for name in present.sorted(by: Self.isBefore) where name != "." && name != ".." && !isOver {
      look(at: Self.join(directory, name), isListed: true)
    }
    return nil
  }

  /// Compares the entry at a path with the reported one.
  ///
  /// - Parameter isListed: Whether the path's parent has just been listed: if the path is a directory, it is then
  ///   scanned, too.
  private func look(at path: String, isListed: Bool = false) {
    let old = table[path]
    let new: DirectoryEntry
    switch DirectoryEntry.read(Self.join(options.root, path)) {
    case .success(let entry): new = entry
    case .failure(let error):
      if error.code == ENOENT || error.code == ENOTDIR {
        if old != nil { remove(path) }
        let directory = Self.parts(path).directory
        if isListed, path.unicodeScalars.contains("\u{FFFD}"), reported.insert("?\(directory)").inserted {
          notify(.unnamed(directory: Self.join(options.root, directory)))
        }
      } else if reported.insert(path).inserted {
        notify(.unreadable(error))
      }
      return
    }
    if let old, old.kind != new.kind || old.kind == .directory && old.inode != new.inode { remove(path) }
    guard let old = table[path] else { return add(path, new) }
    if new.kind == .directory {
      table[path] = new
      if isListed || watches[path] == nil { enterBelow(path) }
    } else if old != new {
      table[path] = new
      report(.changed, path, new)
    }
  }

  private func add(_ path: String, _ entry: DirectoryEntry) {
    let (directory, name) = Self.parts(path)
    if matches(path, name, options.exclude) { return }
    let isIncluded = matches(path, name, options.include)
    let isEntered = entry.kind == .directory && canEnter(path, name)
    guard isIncluded || isEntered else { return }
    guard table.count < options.maxEntries else {
      isFull = true
      if !hasReportedEntries { notify(.tooManyEntries) }
      hasReportedEntries = true
      return
    }
    table[path] = entry
    names[directory, default: []].insert(name)
    report(isFirstLook ? .found : .created, path, entry)
    if isEntered { enterBelow(path) }
  }

  private func enterBelow(_ path: String) {
    guard canEnter(path, Self.parts(path).name) else { return }
    if let error = enter(path) {
      // The directory may have been removed again.
      guard error.code != ENOENT, error.code != ENOTDIR else { return }
      if reported.insert(path).inserted { notify(.unreadable(error)) }
    } else if reported.remove(path) != nil {
      notify(.recovered(path: Self.join(options.root, path)))
    }
  }

  private func canEnter(_ path: String, _ name: String) -> Bool {
    name.utf8.first != UInt8(ascii: ".") && path.utf8.count(where: { $0 == UInt8(ascii: "/") }) < options.depth
  }

  private func remove(_ path: String) {
    removeAll(in: path)
    unwatch(path)
    guard let entry = table.removeValue(forKey: path) else { return }
    let (directory, name) = Self.parts(path)
    names[directory]?.remove(name)
    reported.remove(path)
    report(.removed, path, entry)
  }

  private func removeAll(in directory: String) {
    guard let all = names.removeValue(forKey: directory) else { return }
    for name in all.sorted(by: Self.isBefore) { remove(Self.join(directory, name)) }
  }

  private func unwatch(_ directory: String) {
    guard let watch = watches.removeValue(forKey: directory) else { return }
    directories[watch] = nil
    inotify?.unwatch(watch)
  }

  // MARK: Reporting

  private func report(_ what: Change.What, _ path: String, _ entry: DirectoryEntry) {
    batch.append(
      Change(what: what, path: path, entry: entry, isReported: matches(path, Self.parts(path).name, options.include)))
    if batch.count >= Self.batchLimit { flush() }
  }

  private func flush() {
    guard !batch.isEmpty, !isRefused else { return }
    if !deliver(batch) { isRefused = true }
    batch.removeAll(keepingCapacity: true)
  }

  // MARK: Paths

  private func matches(_ path: String, _ name: String, _ patterns: [String]) -> Bool {
    patterns.contains { Glob.matches($0, $0.utf8.contains(UInt8(ascii: "/")) ? path : name) }
  }

  private static func join(_ directory: String, _ name: String) -> String {
    directory.isEmpty ? name : directory.hasSuffix("/") ? directory + name : "\(directory)/\(name)"
  }

  private static func parts(_ path: String) -> (directory: String, name: String) {
    guard let slash = path.utf8.lastIndex(of: UInt8(ascii: "/")) else { return ("", path) }
    return (String(path[..<slash]), String(path[path.utf8.index(after: slash)...]))
  }

  private static func isBefore(_ a: String, _ b: String) -> Bool { a.utf8.lexicographicallyPrecedes(b.utf8) }
}
