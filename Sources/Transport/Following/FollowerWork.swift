import CLinux
import Glibc
import PipelineCore

/// The work of a `FileFollower`. Made elsewhere, then used on the follower's thread only.
final class FollowerWork: @unchecked Sendable {
  typealias Key = FollowedFile.Key

  /// The files with a matching name that are being renamed.
  struct Renames {
    /// Paths that no pattern matches, to which files with a matching name have been renamed.
    var former: Set<String> = []
    /// The new paths of renamed files that have not been opened yet.
    var unopened: Set<String> = []
    /// The cookies of renames of files with a matching name whose second event has not come yet.
    var leaving: Set<UInt32> = []
  }

  /// The links on the way to followed paths, and the directories of the links and of their targets.
  struct Links {
    var names: Set<String> = []
    var directories: Set<String> = []
  }

  /// The checks that are repeated after a time.
  struct Polling {
    /// When to scan again because of failing paths or unresolved positions, on the monotonic clock, and the last pause.
    var nextScan: Int64?
    var pause: Int64 = 0
    /// Whether all files are polled, because there are no events for some files or directories.
    var isOn = false
    /// When the next poll is due, on the monotonic clock.
    var nextLook: Int64 = 0
    /// When to ask again for watches; nil: none were refused.
    var rewatchAt: Int64?
    var isReported = false
  }

  /// Files read to their end and closed: a file that reappears under another name is not read twice.
  struct Finished {
    typealias File = (born: Int64, position: FilePosition, isCompressed: Bool)

    private(set) var files: [Key: File] = [:]
    private var order: [Key] = []
    private static let most = 10_000

    /// Beyond ``most``, the oldest half is forgotten.
    mutating func add(_ file: File, _ key: Key) {
      if files.updateValue(file, forKey: key) == nil { order.append(key) }
      if order.count > Self.most {
        for key in order.prefix(Self.most / 2) { files[key] = nil }
        order.removeFirst(Self.most / 2)
      }
    }
  }

  let options: FileFollower.Options
  let stop: WakeEvent
  let deliver: (FileBlock) -> Void
  let notify: (FileFollower.Notice) -> Void
  /// The notices of `prepare`; nil once the thread runs.
  var early: [FileFollower.Notice]? = []

  var inotify: Inotify?
  /// Watched directories by watch number, each under one or several paths, and by path.
  var directories: [Int32: [String]] = [:]
  var directoryWatches: [String: Int32] = [:]
  var fileWatches: [Int32: FollowedFile] = [:]
  /// The files in reading order: a rotated file before its successor.
  var files: [FollowedFile] = []
  var byKey: [Key: FollowedFile] = [:]
  var renames = Renames()
  var links = Links()
  var polling = Polling()
  var finished = Finished()
  /// Paths for which a failure has been reported.
  var reported: Set<String> = []
  /// Directories that have existed.
  var seenDirectories: Set<String> = []
  /// Paths that could not be read in the current scan, and those already reported.
  var failing: Set<String> = []
  var troubled: Set<String> = []
  /// Positions of files that could not be checked so far.
  var unresolved: [FilePosition] = []
  /// Incomplete compressed files that positions may belong to and that have been reported.
  var awaited: Set<String> = []
  lazy var resumedPaths = Set(options.resume.map(\.path))
  /// The targets of links to followed paths.
  var targets: Set<String> = []
  /// Directories that the patterns can lead through.
  lazy var found = FoundFiles(by: options.paths, options.links)
  lazy var ancestors = options.paths.flatMap(Glob.ancestors)
  lazy var resumedTargets = Set(options.resume.compactMap(\.target))
  /// The file systems without events that were reported.
  var remoteSystems: Set<String> = []
  /// Whether the order of the files must be checked, because files may have been added or lost their names.
  var mustSort = true
  var pace: ReadingPace
  /// Usually large enough for data that arrives during reading.
  let small: UnsafeMutableRawBufferPointer

  /// How many blocks of one file are read before the next file.
  static let turn = 16
  /// The pause after a failing scan, in nanoseconds: the first, which doubles up to the longest.
  static let firstPause: Int64 = 100_000_000
  static let longestPause: Int64 = 60_000_000_000

  init(
    _ options: FileFollower.Options, _ stop: WakeEvent, _ deliver: @escaping (FileBlock) -> Void,
    _ notice: @escaping (FileFollower.Notice) -> Void
  ) {
    self.options = options
    pace = ReadingPace(nanoseconds: options.pace.nanoseconds)
    small = .allocate(byteCount: min(options.blockBytes, 16 << 10), alignment: 64)
    self.stop = stop
    self.deliver = deliver
    notify = notice
  }

  deinit { small.deallocate() }

  /// The position of each open file.
  var positions: [FilePosition] { files.map(\.position) }

  /// Watches and opens the existing files. Called once, before `run`, by the thread that starts the follower's thread,
  /// so nothing after the call is missed. `run` reports the notices, because the caller may have to receive them
  /// itself.
  func prepare() {
    begin()
    watchDirectories()
    // The directories of links are watched, too, before the first search for files.
    _ = matchingPathsAndTargets()
    resume(options.resume)
    scan(isFirst: true)
  }

  private func begin() {
    if options.watch == .poll {
      polling.isOn = true
    } else {
      do throws(PosixError) { inotify = try Inotify() } catch { poll(instead: error) }
    }
    targets = resumedTargets
  }

  /// Reports the notices of `prepare`, instead of `run`.
  func handOut(_ early: (FileFollower.Notice) -> Void) {
    for notice in self.early ?? [] { early(notice) }
    self.early = []
  }

  func run() {
    for notice in early.take() ?? [] { notify(notice) }
    while !stop.isAwake {
      if mustSort { sortFiles() }
      readFiles()
      retire()
      endLines()
      guard let events = wait() else { return }
      var mustScan = take(events)
      let now = monotonicNow()
      for file in files where file.earlier != nil { file.isDirty = true }
      if let due = polling.nextScan, now >= due {
        polling.nextScan = nil
        for file in files where file.isUnreadable { file.isDirty = true }
        mustScan = true
      }
      if polling.isOn, now >= polling.nextLook {
        polling.nextLook = now &+ options.pollInterval.nanoseconds
        if let due = polling.rewatchAt, now >= due { watchAgain() }
        for file in files { file.isDirty = true }
        mustScan = true
      }
      if mustScan { scan() }
    }
  }

  /// Asks again for watches that the system has refused.
  private func watchAgain() {
    polling.rewatchAt = nil
    polling.isOn = false
    if inotify == nil {
      do throws(PosixError) { inotify = try Inotify() } catch { return poll(instead: error) }
    }
    watchDirectories()
    for file in files where file.watch < 0 { watch(file) }
    if !polling.isOn { notice(.watching) }
    if !remoteSystems.isEmpty { polling.isOn = true }
  }

  /// Handles the events that arrived while files were being opened, then sorts the files: during renames, a younger
  /// file may have been opened under the name of an older one.
  func sortFiles() {
    mustSort = false
    for _ in 0..<100 {
      let events = inotify?.read() ?? []
      if events.isEmpty { break }
      if take(events) { scan() }
    }
    let new = files.filter { $0.order == .max }
    if !new.isEmpty {
      let known = files.filter { $0.order != .max }.sorted { $0.order < $1.order }
      setOrder(ReadingOrder.merge(new, into: known, by: ReadingOrder.isBornBefore))
    }
    // Files without a name come first; within each group the order decides.
    if !new.isEmpty || files.contains(where: { !$0.isNamed }) {
      files.sort { $0.isNamed == $1.isNamed ? $0.order < $1.order : !$0.isNamed }
    }
  }

  func setOrder(_ files: [FollowedFile]) {
    for (order, file) in files.enumerated() { file.order = order }
  }

  func notice(_ notice: FileFollower.Notice) {
    if early == nil { notify(notice) } else { early?.append(notice) }
  }

  func poll(instead error: PosixError) {
    if polling.rewatchAt == nil {
      if !polling.isReported { notice(.polling(error)) }
      polling.isReported = true
      polling.rewatchAt = monotonicNow() &+ options.rewatchInterval.nanoseconds
    }
    polling.isOn = true
  }

  /// Whether the kernel reports no events for the path, because other machines change its file system.
  func isRemote(_ path: String) -> Bool {
    guard options.watch == .auto, let name = options.networkFileSystem(path) else { return false }
    polling.isOn = true
    if remoteSystems.insert(name).inserted { notice(.remote(path: path, fileSystem: name)) }
    return true
  }

  // MARK: - Waiting

  /// Sleeps until there are events; nil once stopped.
  func wait() -> [Inotify.Event]? {
    let timeout = timeout
    if pace.isBusy, timeout != 0, let inotify {
      guard wait(until: pace.nextPoll) else { return nil }
      let events = inotify.read()
      if !events.isEmpty { return events }
      pace.foundNothing()
    }
    if let inotify { return inotify.wait(stop: stop, milliseconds: timeout) }
    var entry = pollfd(fd: stop.descriptor, events: Int16(POLLIN), revents: 0)
    _ = uninterrupted { Glibc.poll(&entry, 1, timeout) }
    return entry.revents == 0 ? [] : nil
  }

  /// Waits; false: stopped.
  func wait(until time: Int64) -> Bool {
    let rest = time &- monotonicNow()
    guard rest > 0 else { return !stop.isAwake }
    return rx_wait_readable(stop.descriptor, rest) == 0
  }

  /// How long to wait for events, in milliseconds; usually -1, without limit: only a file without a name, a file that
  /// ends within a line, a failed scan and missing events need a timer.
  var timeout: Int32 {
    if files.contains(where: \.isDirty) { return 0 }
    let leaving = files.lazy.filter { !$0.isNamed }.map(retirement).min()
    let ending = files.lazy.filter(\.isWithinLine).compactMap(nextEndOfLine).min()
    var result: Int64 = -1
    let waiting = files.contains { $0.earlier != nil } ? monotonicNow() &+ EarlierContent.look : nil
    for instant in [leaving, ending, waiting, polling.nextScan, polling.isOn ? polling.nextLook : nil] {
      guard let instant else { continue }
      let rest = (instant &- monotonicNow()) / 1_000_000 + 1
      let wait = min(max(rest, 1), 60_000)
      result = result < 0 ? wait : min(result, wait)
    }
    return Int32(result)
  }

  /// Handles the events; returns whether the paths must be scanned again.
  func take(_ events: [Inotify.Event]) -> Bool {
    var mustScan = false
    if renames.leaving.count > 1000 { renames.leaving = [] }  // Renames into unwatched directories never complete.
    var arrived: Set<String> = []
    for event in events {
      if event.has(Int(IN_Q_OVERFLOW)) {
        notice(.overflow)
        for file in files { file.isDirty = true }
        mustScan = true
      } else if let file = fileWatches[event.watch] {
        switch event.mask {
        case UInt32(IN_CLOSE_WRITE): file.writers = .closed
        case UInt32(IN_MODIFY): (file.writers, file.isDirty) = (.open, true)
        default: file.isDirty = true
        }
        if event.has(Int(IN_MOVE_SELF) | Int(IN_DELETE_SELF) | Int(IN_ATTRIB)) { mustScan = true }
        if event.has(Int(IN_IGNORED)) {
          fileWatches[event.watch] = nil
          file.watch = -1
        }
      } else if let paths = directories[event.watch] {
        if event.has(Int(IN_IGNORED)) {
          directories[event.watch] = nil
          for path in paths where directoryWatches[path] == event.watch { directoryWatches[path] = nil }
          mustScan = true
        } else if event.name.isEmpty {
          mustScan = true
        } else {
          mustScan = takeEntry(event, paths, &arrived) || mustScan
        }
      }
    }
    follow(formerNames: arrived)
    return mustScan
  }

  /// Handles an event of a directory entry: tracks where files with a matching name are now.
  func takeEntry(
    _ event: Inotify.Event, _ directories: [String], _ arrived: inout Set<String>
  ) -> Bool {
    if event.has(Int(IN_ISDIR)) { return true }
    let paths = directories.map { Glob.join($0, event.name) }
    // A link on the way may have a new target.
    if paths.contains(where: { path in links.names.contains(path) || ancestors.contains { Glob.matches($0, path) } }) {
      return true
    }
    guard let path = paths.first(where: isFollowedName) ?? paths.first else { return false }
    let matches = isFollowedName(path)
    if event.has(Int(IN_ATTRIB)) { return matches }
    let wasOurs = renames.former.remove(path) != nil
    let hasArrived = arrived.remove(path) != nil
    let wasUnopened = renames.unopened.remove(path) != nil || hasArrived
    let isCompressed = CompressedContent.original(path) != nil
    if event.has(Int(IN_MOVED_FROM)), matches && !isCompressed || wasOurs { renames.leaving.insert(event.cookie) }
    if event.has(Int(IN_MOVED_TO)), renames.leaving.remove(event.cookie) != nil {
      if matches, !isCompressed {
        renames.unopened.insert(path)  // The scan opens it.
      } else {
        renames.former.insert(path)
        arrived.insert(path)
      }
    }
    if event.has(Int(IN_DELETE)), wasUnopened, !isCompressed {
      // The file may have been compressed.
      for ending in CompressedContent.endings {
        renames.former.insert(path + ending)
        arrived.insert(path + ending)
      }
    }
    return matches
  }

  /// Whether a followed path is this one, or leads to it through links.
  func isFollowedName(_ path: String) -> Bool {
    targets.contains(path) || options.paths.contains { Glob.matches($0, path) }
  }

  /// Opens files that were renamed away from a matching name before they were found.
  func follow(formerNames paths: Set<String>) {
    var found: [FollowedFile] = []
    for path in paths {
      if CompressedContent.original(path) != nil {
        if let file = missedFile(path) { found.append(file) } else { renames.former.remove(path) }
        continue
      }
      guard let file = try? openFile(path), let status = try? file.status()
      else {
        // The file was renamed again or removed; the event for that is still to come.
        renames.unopened.insert(path)
        continue
      }
      if let known = byKey[Key(status)] {
        known.isDirty = true
        // The file's position among the new files depends on its current path.
        if known.order == .max { known.path = path }
        continue
      }
      let followed = FollowedFile(file, status, options)
      if wasFinished(followed), followed.lines.offset >= status.size { continue }
      followed.isNamed = false
      followed.target = base(of: path)
      // A file that is renamed between two opens can be found under two of the paths.
      if !found.contains(where: { $0.key == followed.key }) { found.append(followed) }
    }
    for file in ReadingOrder.oldestFirst(found) { add(file) }
  }
}
