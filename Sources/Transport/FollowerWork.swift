import CLinux
import Glibc
import PipelineCore

/// The work of a `FileFollower`. Made elsewhere, then used on the follower's thread only.
final class FollowerWork: @unchecked Sendable {
  private typealias Key = FollowedFile.Key

  private let options: FileFollower.Options
  private let stop: WakeEvent
  private let deliver: (FileBlock) -> Void
  private let notify: (FileFollower.Notice) -> Void
  /// The notices of `prepare`; nil once the thread runs.
  private var early: [FileFollower.Notice]? = []

  private var inotify: Inotify?
  /// Watched directories by watch number and by path.
  private var directories: [Int32: String] = [:]
  private var directoryWatches: [String: Int32] = [:]
  private var fileWatches: [Int32: FollowedFile] = [:]
  /// The files in reading order: a rotated file before its successor.
  private var files: [FollowedFile] = []
  private var byKey: [Key: FollowedFile] = [:]
  /// Unmatched paths that files with a matching name have been renamed to.
  private var formerNames: Set<String> = []
  /// Paths of renamed files that could not be opened under them yet.
  private var unopened: Set<String> = []
  /// Renames of such files whose second event is outstanding.
  private var leaving: Set<UInt32> = []
  /// Files read to their end and closed: a file that reappears under another name is not read twice.
  private var finished: [Key: (born: Int64, position: FilePosition, isCompressed: Bool)] = [:]
  private var finishedOrder: [Key] = []
  /// Paths whose failure has been reported.
  private var reported: Set<String> = []
  /// Directories that have existed.
  private var seenDirectories: Set<String> = []
  /// Paths that could not be read in the present scan, and those already reported.
  private var failing: Set<String> = []
  private var troubled: Set<String> = []
  /// Positions of files that could not be checked so far.
  private var unresolved: [FilePosition] = []
  /// Unfinished compressed files that positions may belong to, as far as reported.
  private var awaited: Set<String> = []
  /// When to scan again because of such paths, on the monotonic clock, and the last pause.
  private var nextPoll: Int64?
  private var pollPause: Int64 = 0
  private lazy var resumedPaths = Set(options.resume.map(\.path))
  private var nextOrder = 0
  private var isPolling = false
  /// Files may have come or lost their names: their order must be checked.
  private var mustSort = true
  private var pace: ReadingPace
  /// Usually large enough for data that arrives during reading.
  private let small: UnsafeMutableRawBufferPointer

  /// How many blocks of one file are read before the next file.
  private static let turn = 16
  private static let maxFinished = 10_000
  /// Pauses between failing scans: the first, doubled up to the longest, in nanoseconds.
  private static let firstPause: Int64 = 100_000_000
  private static let longestPause: Int64 = 60_000_000_000

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
    do throws(PosixError) { inotify = try Inotify() } catch { poll(instead: error) }
    watchDirectories()
    resume(options.resume)
    scan(isFirst: true)
  }

  /// Hands out the notices of `prepare` in place of `run`.
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
      guard let events = wait() else { return }
      let isDue = nextPoll.map { monotonicNow() >= $0 } ?? false
      if isDue {
        nextPoll = nil
        for file in files where file.isUnreadable { file.isDirty = true }
      }
      if isPolling {
        for file in files { file.isDirty = true }
        scan()
      } else if take(events) || isDue {
        scan()
      }
    }
  }

  /// Handles the events that came while files were being opened, then sorts the files: during renames, a younger file
  /// may have been opened under the name of an older one.
  private func sortFiles() {
    mustSort = false
    for _ in 0..<100 {
      let events = inotify?.read() ?? []
      if events.isEmpty { break }
      if take(events) { scan() }
    }
    let new = files.filter { $0.order == .max }
    for file in Self.oldestFirst(new) {
      file.order = nextOrder
      nextOrder += 1
    }
    // A stable sort within each group, since the orders differ.
    if !new.isEmpty || files.contains(where: { !$0.isNamed }) {
      files.sort { $0.isNamed == $1.isNamed ? $0.order < $1.order : !$0.isNamed }
    }
  }

  private func notice(_ notice: FileFollower.Notice) {
    if early == nil { notify(notice) } else { early?.append(notice) }
  }

  private func poll(instead error: PosixError) {
    if !isPolling { notice(.polling(error)) }
    isPolling = true
  }

  // MARK: - Waiting

  /// Sleeps until there are events; nil once stopped.
  private func wait() -> [Inotify.Event]? {
    let timeout = timeout
    if pace.isBusy, timeout != 0, let inotify {
      guard wait(until: pace.nextPoll) else { return nil }
      let events = inotify.read()
      if !events.isEmpty { return events }
      pace.foundNothing()
    }
    var entries = (
      pollfd(fd: stop.descriptor, events: Int16(POLLIN), revents: 0),
      pollfd(fd: inotify?.descriptor ?? -1, events: Int16(POLLIN), revents: 0)
    )
    withUnsafeMutableBytes(of: &entries) { bytes in
      _ = uninterrupted { Glibc.poll(bytes.assumingMemoryBound(to: pollfd.self).baseAddress, 2, timeout) }
    }
    if entries.0.revents != 0 { return nil }
    return entries.1.revents == 0 ? [] : inotify?.read() ?? []
  }

  /// Waits; false: stopped.
  private func wait(until time: Int64) -> Bool {
    let rest = time &- monotonicNow()
    guard rest > 0 else { return !stop.isAwake }
    return rx_wait_readable(stop.descriptor, rest) == 0
  }

  /// In milliseconds; usually -1, for ever: only a file without a name and a failed scan need a timer.
  private var timeout: Int32 {
    if files.contains(where: \.isDirty) { return 0 }
    let leaving = files.lazy.filter { !$0.isNamed }.map(retirement).min()
    var result: Int64 = isPolling ? 1000 : -1
    for instant in [leaving, nextPoll] {
      guard let instant else { continue }
      let rest = (instant &- monotonicNow()) / 1_000_000 + 1
      let wait = min(max(rest, 1), 60_000)
      result = result < 0 ? wait : min(result, wait)
    }
    return Int32(result)
  }

  /// Handles the events; returns whether the paths must be scanned again.
  private func take(_ events: [Inotify.Event]) -> Bool {
    var mustScan = false
    if leaving.count > 1000 { leaving = [] }  // Halves of renamings into unwatched directories.
    var arrived: Set<String> = []
    for event in events {
      if event.has(Int(IN_Q_OVERFLOW)) {
        notice(.overflow)
        for file in files { file.isDirty = true }
        mustScan = true
      } else if let file = fileWatches[event.watch] {
        file.isDirty = true
        if event.has(Int(IN_MOVE_SELF) | Int(IN_DELETE_SELF) | Int(IN_ATTRIB)) { mustScan = true }
        if event.has(Int(IN_IGNORED)) {
          fileWatches[event.watch] = nil
          file.watch = -1
        }
      } else if let directory = directories[event.watch] {
        if event.has(Int(IN_IGNORED)) {
          directories[event.watch] = nil
          if directoryWatches[directory] == event.watch { directoryWatches[directory] = nil }
          mustScan = true
        } else if event.name.isEmpty {
          mustScan = true
        } else {
          mustScan = takeEntry(event, directory, &arrived) || mustScan
        }
      }
    }
    follow(formerNames: arrived)
    return mustScan
  }

  /// Handles an event of a directory entry: tracks where files with a matching name are now.
  private func takeEntry(
    _ event: Inotify.Event, _ directory: String, _ arrived: inout Set<String>
  ) -> Bool {
    let path = Glob.join(directory, event.name)
    if event.has(Int(IN_ISDIR)) { return true }
    let matches = options.paths.contains { Glob.matches($0, path) }
    if event.has(Int(IN_ATTRIB)) { return matches }
    let wasOurs = formerNames.remove(path) != nil
    let hasArrived = arrived.remove(path) != nil
    let wasUnopened = unopened.remove(path) != nil || hasArrived
    let isCompressed = CompressedContent.original(path) != nil
    if event.has(Int(IN_MOVED_FROM)), matches && !isCompressed || wasOurs { leaving.insert(event.cookie) }
    if event.has(Int(IN_MOVED_TO)), leaving.remove(event.cookie) != nil {
      if matches, !isCompressed {
        unopened.insert(path)  // The scan opens it.
      } else {
        formerNames.insert(path)
        arrived.insert(path)
      }
    }
    if event.has(Int(IN_DELETE)), wasUnopened, !isCompressed {
      // It may have been compressed.
      for ending in CompressedContent.endings {
        formerNames.insert(path + ending)
        arrived.insert(path + ending)
      }
    }
    return matches
  }

  /// Opens files that were renamed away from a matching name before they were found.
  private func follow(formerNames paths: Set<String>) {
    var found: [FollowedFile] = []
    for path in paths {
      if CompressedContent.original(path) != nil {
        if let file = missedFile(path) { found.append(file) } else { formerNames.remove(path) }
        continue
      }
      guard let file = try? FileDescriptor.openForReading(path), let status = try? file.status()
      else {
        // Renamed again or removed: that news is still to come.
        unopened.insert(path)
        continue
      }
      if let known = byKey[Key(status)] {
        known.isDirty = true
        // Its position among the new files depends on its present path.
        if known.order == .max { known.path = path }
        continue
      }
      let followed = FollowedFile(file, status, options)
      if wasFinished(followed), followed.lines.offset >= status.size { continue }
      followed.isNamed = false
      // A file renamed between two opens can appear under two of the paths.
      if !found.contains(where: { $0.key == followed.key }) { found.append(followed) }
    }
    for file in Self.oldestFirst(found) { add(file) }
  }

  /// The compressed file at the path, unless it is that of a file that has been opened.
  private func missedFile(_ path: String) -> FollowedFile? {
    guard let file = try? FileDescriptor.openForReading(path),
      let followed = try? decompressed(file), isNew(followed), !isKnown(followed)
    else { return nil }
    return followed
  }

  // MARK: - Which files

  private func watchDirectories() {
    // A directory may appear after the search and before its parent is watched: repeats as long as there are new ones.
    for _ in 0..<16 where !watchPresentDirectories() { return }
  }

  /// Returns whether all were watched before.
  private func watchPresentDirectories() -> Bool {
    guard let inotify else { return false }
    var foundNew = false
    var wanted: Set<String> = []
    var isComplete = true
    for pattern in options.paths {
      for directory in Glob.directories(pattern) {
        let found = Glob.expand(directory, directoriesOnly: true, by: options.list)
        wanted.formUnion(found.paths)
        for failure in found.failures { failed(failure) }
        if !found.failures.allSatisfy(Self.isAbsence) { isComplete = false }
      }
      // A missing directory is awaited in its nearest existing parent.
      var base = Glob.directories(pattern).last ?? "."
      while FileDescriptor.Status(path: base)?.kind != .directory, base != "/", base != "." {
        base = splitPath(base).directory
      }
      wanted.insert(base)
    }
    for path in wanted {
      do throws(PosixError) {
        let watch = try inotify.watch(path, Inotify.directoryEvents)
        if let old = directoryWatches[path], old != watch {
          inotify.unwatch(old)
          directories[old] = nil
        }
        if directories.updateValue(path, forKey: watch) == nil { foundNew = true }
        directoryWatches[path] = watch
        seenDirectories.insert(path)
      } catch {
        if error.code == ENOSPC { poll(instead: error) } else { failed(error) }
      }
    }
    guard isComplete else { return foundNew }
    for (path, watch) in directoryWatches where !wanted.contains(path) {
      inotify.unwatch(watch)
      directories[watch] = nil
      directoryWatches[path] = nil
    }
    return foundNew
  }

  /// Finds the files of the paths, opens new ones, and marks those that have lost their name.
  private func scan(isFirst: Bool = false) {
    if !isFirst {
      failing = []
      watchDirectories()
      if !unresolved.isEmpty { resume(unresolved) }
    }
    mustSort = true
    var named: Set<Key> = []
    var found: [FollowedFile] = []
    for path in matchingPaths() {
      let status: FileDescriptor.Status
      switch FileDescriptor.Status.read(path) {
      case .success(let known): status = known
      case .failure(let error):
        failed(error)
        continue
      }
      if let known = byKey[Key(status)] {
        if !unopened.isEmpty { unopened.remove(path) }
        if named.insert(Key(status)).inserted, known.path != path {
          known.path = path
          known.isDirty = true
        }
        continue
      }
      do throws(PosixError) {
        let file = try FileDescriptor.openForReading(path)
        let status = try file.status()  // The path may lead elsewhere by now.
        reported.remove(path)
        if !unopened.isEmpty { unopened.remove(path) }
        guard byKey[Key(status)] == nil, named.insert(Key(status)).inserted else { continue }
        // Its starting position is not known yet.
        if unresolved.contains(where: { $0.inode == status.inode }) { continue }
        let followed = FollowedFile(file, status, options)
        if hasDecompressed(followed) { continue }
        if !wasFinished(followed), isFirst, options.start == .end, !isResumed(path) {
          try followed.seek(toLineAfter: status.size)
        }
        found.append(followed)
      } catch { if error.detail == nil { failed(error) } else { report(error) } }
    }
    for file in files {
      if file.isCompressed { continue }
      var isNamed = named.contains(file.key)
      if !isNamed, file.isNamed, !failing.isEmpty { isNamed = mayBeNamed(file) }
      if file.isNamed, !isNamed {
        // Data written before the rename comes before the successor's.
        file.isDirty = true
        file.lastChange = monotonicNow()
      }
      file.isNamed = isNamed
    }
    for file in Self.oldestFirst(found) { add(file) }
    lookAgainIfNeeded()
  }

  private func matchingPaths() -> [String] {
    options.paths.flatMap { pattern in
      let found = Glob.expand(pattern, by: options.list)
      for failure in found.failures { failed(failure) }
      return found.paths
    }
  }

  /// After an incomplete scan: whether the file may still have its old name.
  private func mayBeNamed(_ file: FollowedFile) -> Bool {
    switch FileDescriptor.Status.read(file.path) {
    case .success(let status): Key(status) == file.key
    case .failure(let error): !Self.isAbsence(error)
    }
  }

  private static func isAbsence(_ error: PosixError) -> Bool { error.code == ENOENT || error.code == ENOTDIR }

  /// A path could not be read. A missing path is awaited silently; a directory that has existed may come back without
  /// an event, as on a network.
  private func failed(_ error: PosixError) {
    guard !Self.isAbsence(error) || seenDirectories.contains(error.path) else { return }
    failing.insert(error.path)
    if troubled.insert(error.path).inserted { notice(.retrying(error)) }
  }

  /// Called after a scan.
  private func lookAgainIfNeeded() {
    for path in troubled.subtracting(failing).sorted() {
      troubled.remove(path)
      notice(.recovered(path: path))
    }
    if !failing.isEmpty || !unresolved.isEmpty {
      lookAgain()
    } else if !files.contains(where: \.isUnreadable) {
      nextPoll = nil
      pollPause = 0
    }
  }

  private func lookAgain() {
    guard nextPoll == nil else { return }
    pollPause = min(max(pollPause * 2, Self.firstPause), Self.longestPause)
    nextPoll = monotonicNow() &+ pollPause
  }

  private func isResumed(_ path: String) -> Bool { resumedPaths.contains(path) }

  private func report(_ error: PosixError) {
    if error.code != ENOENT, reported.insert(error.path).inserted { notice(.failed(error)) }
  }

  private func add(_ file: FollowedFile) {
    // As it is, it is refused.
    if let refused = byKey[file.key] { forget(refused) }
    mustSort = true
    files.append(file)
    byKey[file.key] = file
    if let inotify {
      do throws(PosixError) {
        // Through the descriptor: the name may lead to another file by now.
        file.watch = try inotify.watch("/proc/self/fd/\(file.file.number)", Inotify.fileEvents)
        fileWatches[file.watch] = file
      } catch { poll(instead: error) }
    }
    notice(.opened(file.position))
  }

  /// Resumes a file that had been closed; returns whether it is one.
  private func wasFinished(_ file: FollowedFile) -> Bool {
    guard let record = finished[file.key], record.born == file.born,
      record.position.fingerprintBytes > 0, file.isSame(as: record.position)
    else { return false }
    file.seek(to: record.position.offset)
    return true
  }

  /// Whether the content of this compressed file has been read to its end.
  private func hasDecompressed(_ file: FollowedFile) -> Bool {
    file.isRefused && finished[file.key].map { $0.isCompressed && $0.born == file.born } ?? false
  }

  /// Whether the file is neither followed nor has been.
  private func isNew(_ file: FollowedFile) -> Bool {
    byKey[file.key].map { $0.isRefused } ?? (finished[file.key]?.born != file.born)
  }

  /// Whether the compressed file has the content of one that was removed and has been followed or still is: programs
  /// that compress a file remove it at the end.
  private func isKnown(_ compressed: FollowedFile) -> Bool {
    let position = compressed.position
    guard position.fingerprintBytes > 0 else { return true }
    return files.contains { file in
      guard !file.isCompressed, let status = try? file.file.status(), status.links == 0 else { return false }
      let head = file.file.head()
      return head.count == position.fingerprintBytes && FollowedFile.hash(head[...]) == position.fingerprint
    }
      || finished.values.contains { record in
        record.position.fingerprintBytes == position.fingerprintBytes
          && record.position.fingerprint == position.fingerprint
      }
  }

  // MARK: - Resuming

  private func resume(_ positions: [FilePosition]) {
    unresolved = []
    var listings = DirectoryListings(options.list)
    // All of them are known before successors are searched, which are files without a position.
    var resumed: [(file: FollowedFile, path: String)] = []
    for position in positions {
      switch find(position, &listings) {
      case .failure(let error):
        // Its file may exist: it is neither lost nor new.
        unresolved.append(position)
        failed(error)
      case .success(let file):
        if let file, byKey[file.key] != nil { continue }
        let size = file.flatMap { try? $0.file.status().size } ?? 0
        if let file, file.isCompressed || position.offset <= size {
          file.seek(to: position.offset)
        } else {
          let compressed: FollowedFile?
          switch findCompressed(position, &listings) {
          case .success(let found): compressed = found
          case .failure(let unfinished):
            unresolved.append(position)
            if awaited.insert(unfinished.path).inserted {
              notice(.waiting(path: unfinished.path, options.unfinishedWait))
            }
            continue
          }
          if let copy = compressed ?? findCopy(of: position, &listings) {
            copy.seek(to: position.offset)
            notice(copy.isCompressed ? .compressed(position, copy.position) : .copied(position, copy.position))
            add(copy)
            resumed.append((copy, position.path))
          } else {
            notice(.lost(position))
          }
        }
        guard let file else { continue }
        add(file)
        resumed.append((file, position.path))
      }
    }
    // The order of the positions is the reading order, unless a file was compressed: that is younger than its content.
    let files = resumed.map(\.file)
    for file in files.contains(where: \.isCompressed) ? Self.oldestFirst(files) : files {
      file.order = nextOrder
      nextOrder += 1
    }
    addSuccessors(of: resumed, &listings)
  }

  /// The file of the position: under its name, or under another one in the same directory; nil: it is gone.
  private func find(
    _ position: FilePosition, _ listings: inout DirectoryListings
  ) -> Result<FollowedFile?, PosixError> {
    do throws(PosixError) {
      let (directory, _) = splitPath(position.path)
      for _ in 0..<Self.rotationLimit {
        if let file = try openIfPresent(position.path), let file = try self.file(file, of: position) {
          return .success(file)
        }
        var isMoving = false
        for name in try listings[directory].names(of: position.inode) {
          let file = try openIfPresent(Glob.join(directory, name))
          if let file, let file = try self.file(file, of: position) { return .success(file) }
          if file?.key.inode != position.inode { isMoving = true }
        }
        if !isMoving { return .success(nil) }
        // It got another name after the directory was listed.
        listings.forget(directory)
      }
      return .success(nil)
    } catch {
      return Self.isAbsence(error) ? .success(nil) : .failure(error)
    }
  }

  /// How often a directory is listed again because its files are renamed meanwhile.
  private static let rotationLimit = 100

  /// The copy of a file that was truncated since the position was noted: younger than that, with the same name plus a
  /// suffix, starting with the same bytes, and at least as long as the file had been.
  private func findCopy(of position: FilePosition, _ listings: inout DirectoryListings) -> FollowedFile? {
    guard options.savedAt > 0, position.fingerprintBytes > 0, position.offset > 0 else { return nil }
    // The clock of births lags by some milliseconds.
    let earliest = options.savedAt &- 1_000_000_000
    return siblings(of: position.path, &listings).first { copy in
      copy.born >= earliest && copy.key.inode != position.inode && byKey[copy.key] == nil
        && copy.startsAs(position) && ((try? copy.file.status().size) ?? 0) >= position.offset
    }
  }

  /// `file`, as it is or decompressed, if the position belongs to it.
  private func file(_ file: FollowedFile, of position: FilePosition) throws(PosixError) -> FollowedFile? {
    if file.isSame(as: position) { return file }
    guard file.key.inode == position.inode, let file = try decompressed(file.file), file.isSame(as: position)
    else { return nil }
    return file
  }

  /// The content of the file, if it has the name of a compressed one and the library is installed.
  private func decompressed(_ file: FileDescriptor) throws(PosixError) -> FollowedFile? {
    guard let (_, format) = CompressedContent.original(file.name),
      let head = try CompressedContent.head(of: file, format), let content = CompressedContent(file, format)
    else { return nil }
    return FollowedFile(file, try file.status(), content, head: head.bytes, options)
  }

  private struct Unfinished: Error { var path: String }

  /// The compressed file with the content of that of the position, which is gone or was truncated: the oldest one, last
  /// written to after that was made, that starts with the same bytes. Failure: one that may be it is unfinished.
  private func findCompressed(
    _ position: FilePosition, _ listings: inout DirectoryListings
  ) -> Result<FollowedFile?, Unfinished> {
    // The clock of births lags by some milliseconds.
    let savedAt = options.savedAt > 0 ? options.savedAt &- 1_000_000_000 : .max
    var earliest = position.born
    // A file without bytes is none of those that were written to before; a truncated one was copied, which is later, too.
    if position.fingerprintBytes == 0 || isPresent(position) { earliest = max(earliest, savedAt) }
    let path = pathBeforeRotation(position.path, isShortest: true)
    for _ in 0..<Self.rotationLimit {
      let candidates = compressedSiblings(of: path, &listings).filter { candidate in
        candidate.status.modified >= earliest && byKey[Key(candidate.status)]?.isRefused != false
      }.sorted { $0.isOlder(than: $1) }
      let matches = candidates.filter { $0.starts(as: position) }
      // Without births the youngest one is the likeliest.
      guard let match = position.born == 0 ? matches.last : matches.first else {
        let now = Int64(time(nil)) &* 1_000_000_000
        for candidate in candidates where candidate.head.count < position.fingerprintBytes {
          switch candidate.state {
          case .unfinished:
            if candidate.status.modified >= now &- options.unfinishedWait.nanoseconds {
              return .failure(Unfinished(path: candidate.path))
            }
            report(PosixError("decompress", candidate.path, code: EINVAL, detail: "it ends in the middle"))
          case .damaged: report(PosixError("decompress", candidate.path, code: EINVAL, detail: "it is damaged"))
          case .more, .whole: break
          }
        }
        return .success(nil)
      }
      if let file = open(match) { return .success(file) }
      listings.forget(splitPath(path).directory)
    }
    return .success(nil)
  }

  /// Whether the file of the position still has its name, whatever it holds now.
  private func isPresent(_ position: FilePosition) -> Bool {
    guard let file = try? FileDescriptor.openForReading(position.path), let status = try? file.status() else {
      return false
    }
    return status.inode == position.inode && rx_birth_time(file.number) == position.born
  }

  /// Nil: another file has its path by now.
  private func open(_ candidate: CompressedFile) -> FollowedFile? {
    guard let file = try? FileDescriptor.openForReading(candidate.path), let status = try? file.status(),
      status.inode == candidate.status.inode
    else { return nil }
    return try? decompressed(file)
  }

  /// The compressed files beside that of the path with the same name plus a suffix. Not those that are being made: the
  /// file of which they are is there as well.
  private func compressedSiblings(of path: String, _ listings: inout DirectoryListings) -> [CompressedFile] {
    let (directory, base) = splitPath(path)
    var files: [CompressedFile] = []
    for _ in 0..<Self.rotationLimit {
      guard let listing = try? listings.settled(directory) else { return [] }
      var isMoving = false
      files = listing.names(with: [base + ".", base + "-"]).compactMap { name in
        guard let (original, format) = CompressedContent.original(name) else { return nil }
        if original != base, listing.inode(of: original) != nil { return nil }
        let path = Glob.join(directory, name)
        if let known = listings.compressed[path], known.status.inode == listing.inode(of: name) { return known }
        guard let file = try? FileDescriptor.openForReading(path), let status = try? file.status() else {
          // One that cannot be read stays so; one that is gone has another name now.
          if case .failure(let error) = FileDescriptor.Status.read(path), Self.isAbsence(error) { isMoving = true }
          return nil
        }
        guard status.inode == listing.inode(of: name) else {
          isMoving = true
          return nil
        }
        guard let head = try? CompressedContent.head(of: file, format) else { return nil }
        let found = CompressedFile(
          path: path, status: status, head: head.bytes, state: head.state)
        if found.state != .unfinished { listings.compressed[path] = found }
        return found
      }
      if !isMoving { break }
      listings.forget(directory)
    }
    return files
  }

  private func openIfPresent(_ path: String) throws(PosixError) -> FollowedFile? {
    do throws(PosixError) {
      let file = try FileDescriptor.openForReading(path)
      return FollowedFile(file, try file.status(), options)
    } catch {
      if Self.isAbsence(error) || error.detail != nil { return nil }
      throw error
    }
  }

  /// Adds files that took the name of one of `files` and were renamed in turn while the follower was not running: younger,
  /// with the same name plus a suffix; of compressed ones, that of a rotation. `path`: the name that the file had when
  /// its position was noted.
  private func addSuccessors(of files: [(file: FollowedFile, path: String)], _ listings: inout DirectoryListings) {
    // The oldest file of each followed path that has another name now.
    var oldest: [String: FollowedFile] = [:]
    for (file, path) in files where file.born != 0 {
      let path = pathBeforeRotation(path)
      guard file.path != path, oldest[path].map({ Self.isOlder(file, than: $0) }) ?? true else { continue }
      oldest[path] = file
    }
    for (path, file) in oldest.sorted(by: { $0.key < $1.key }) {
      var found: [FollowedFile] = []
      for other in siblings(of: path, &listings) where Self.isOlder(file, than: other) && isNew(other) {
        if options.paths.contains(where: { Glob.matches($0, other.path) }) { continue }
        if !found.contains(where: { $0.key == other.key }) { found.append(other) }
      }
      for file in Self.oldestFirst(found) { add(file) }
      // These are known now, in case they are being compressed.
      for _ in 0..<Self.rotationLimit {
        var isMoving = false
        for candidate in compressedSiblings(of: path, &listings) where Self.isRotation(candidate.path, of: path) {
          guard let other = open(candidate) else {
            isMoving = true
            continue
          }
          if Self.isOlder(file, than: other), isNew(other), !isKnown(other) { add(other) }
        }
        if !isMoving { break }
        // Their names have changed after the directory was listed.
        listings.forget(splitPath(path).directory)
      }
    }
  }

  /// Whether the compressed file is named as rotation does it: the suffix is a number or a time.
  private static func isRotation(_ compressed: String, of path: String) -> Bool {
    guard let (original, _) = CompressedContent.original(compressed) else { return false }
    let marks = Set("0123456789.-_:+TZ".utf8)
    return original.utf8.dropFirst(path.utf8.count).allSatisfy(marks.contains)
  }

  /// The path that is followed, of a file that had been renamed when its position was noted: `in.log` for `in.log.2`. A pattern may
  /// match several: the longest or shortest.
  private func pathBeforeRotation(_ path: String, isShortest: Bool = false) -> String {
    let (directory, name) = splitPath(path)
    var base = name[...]
    var found = path
    while !base.isEmpty {
      let path = Glob.join(directory, String(base))
      if options.paths.contains(where: { Glob.matches($0, path) }) {
        found = path
        if !isShortest { break }
      }
      guard let end = base.lastIndex(where: { $0 == "." || $0 == "-" }) else { break }
      base = base[..<end]
    }
    return found
  }

  /// The files beside that of the path with the same name plus a suffix, not compressed.
  private func siblings(of path: String, _ listings: inout DirectoryListings) -> [FollowedFile] {
    let (directory, base) = splitPath(path)
    let endings = [".gz", ".xz", ".bz2", ".zst"]
    var before: [FollowedFile.Key] = []
    var files: [FollowedFile] = []
    for _ in 0..<Self.rotationLimit {
      let names = ((try? listings[directory].names(with: [base + ".", base + "-"])) ?? []).filter { name in
        !endings.contains { name.hasSuffix($0) }
      }
      var isMoving = false
      files = names.compactMap { name in
        let path = Glob.join(directory, name)
        if let file = open(path) { return file }
        // One that cannot be read stays so; one that is gone has another name now.
        if case .failure(let error) = FileDescriptor.Status.read(path), Self.isAbsence(error) { isMoving = true }
        return nil
      }
      // Two names of one file were given to it one after the other, unless it has two for good.
      let keys = files.map(\.key)
      if Set(keys).count < keys.count, keys != before { isMoving = true }
      if !isMoving { break }
      before = keys
      listings.forget(directory)
    }
    return files
  }

  /// Sorts by birth. The clock of births ticks every few milliseconds, so for equal times the higher number at the end
  /// of the name, which rotation gives to the older file, comes first: `log.10`, `log.9`, `log`. A compressed file is born
  /// later than its content: it comes before the first other file that was written to after that.
  private static func oldestFirst(_ files: [FollowedFile]) -> [FollowedFile] {
    let plain = files.filter { !$0.isCompressed }.sorted { isOlder($0, than: $1) }
    guard plain.count < files.count else { return plain }
    var compressed = files.filter(\.isCompressed).sorted { isOlder($0, than: $1) }[...]
    var sorted: [FollowedFile] = []
    for file in plain {
      while let first = compressed.first, isOlder(first, than: file) { sorted.append(compressed.removeFirst()) }
      sorted.append(file)
    }
    return sorted + compressed
  }

  private static func isOlder(_ a: FollowedFile, than b: FollowedFile) -> Bool {
    let (first, second) = a.isCompressed || b.isCompressed ? (a.modified, b.modified) : (a.born, b.born)
    return first != second ? first < second : hasOlderName(a.path, than: b.path)
  }

  private func open(_ path: String) -> FollowedFile? {
    guard let file = try? FileDescriptor.openForReading(path), let status = try? file.status()
    else { return nil }
    return FollowedFile(file, status, options)
  }

  // MARK: - Reading

  private func readFiles() {
    let time = monotonicNow()
    var found = false
    defer {
      if found, !isPolling { pace.found(at: time) } else { pace.foundNothing() }
    }
    for file in files where file.isDirty {
      // A file without a name is read to its end before its successor.
      var left = file.isNamed ? Self.turn : Int.max
      file.isDirty = false
      do throws(PosixError) {
        while left > 0 {
          if stop.isAwake { return }
          let progress = try file.read(options.blockBytes, small: small) {
            deliver($0, of: file, isNewest: $1)
          }
          if file.isUnreadable {
            file.isUnreadable = false
            reported.remove(file.path)
          }
          if progress == .end {
            switch file.compressed {
            case .whole, .damaged: close(file)  // Before its successor is read.
            case .unfinished:
              if awaited.insert(file.path).inserted {
                notice(.waiting(path: file.path, options.unfinishedWait))
              }
            case .more, nil: break
            }
            break
          }
          found = true
          // Later data causes an event; without events it must be polled for.
          if progress == .caughtUp, file.watch >= 0, !isPolling { break }
          if case .truncated(let offset) = progress {
            notice(.truncated(path: file.path, offset: offset))
          }
          left -= 1
        }
        if left == 0 { file.isDirty = true }
      } catch {
        report(error)
        if error.detail == nil {
          file.isUnreadable = true
          lookAgain()
        }
      }
    }
  }

  private func deliver(_ lines: LineBlock, of file: FollowedFile, isNewest: Bool = false) {
    deliver(FileBlock(lines: lines, position: file.position(at: lines.endOffset), isNewest: isNewest))
  }

  /// When a file without a name is closed if it does not grow until then, on the monotonic clock.
  private func retirement(of file: FollowedFile) -> Int64 {
    file.lastChange &+ (file.isCompressed ? options.unfinishedWait : options.rotateWait).nanoseconds
  }

  /// Closes files without a name that have not grown for a while.
  private func retire() {
    guard files.contains(where: { !$0.isNamed }) else { return }
    let now = monotonicNow()
    for file in files where !file.isNamed && !file.isDirty && retirement(of: file) <= now { close(file) }
  }

  /// Ends a file, after its last line.
  private func close(_ file: FollowedFile) {
    if let damage = damage(of: file) {
      // The start of a line is no line.
      notice(.damaged(file.position, damage))
    } else {
      file.finish { deliver($0, of: file) }
    }
    forget(file)
    remember(file)
    notice(.finished(path: file.path, at: file.position))
  }

  /// Why the rest of a compressed file cannot be read.
  private func damage(of file: FollowedFile) -> FileFollower.Damage? {
    switch file.compressed {
    case nil: nil
    case .damaged: .damaged
    case .more, .unfinished: .unfinished
    case .whole: file.isTooShort ? .tooShort : nil
    }
  }

  /// Does not follow the file any more.
  private func forget(_ file: FollowedFile) {
    if file.watch >= 0 {
      fileWatches[file.watch] = nil
      inotify?.unwatch(file.watch)
    }
    byKey[file.key] = nil
    files.removeAll { $0 === file }
  }

  private func remember(_ file: FollowedFile) {
    if finished.updateValue((file.born, file.position, file.isCompressed), forKey: file.key) == nil {
      finishedOrder.append(file.key)
    }
    if finishedOrder.count > Self.maxFinished {
      for key in finishedOrder.prefix(Self.maxFinished / 2) { finished[key] = nil }
      finishedOrder.removeFirst(Self.maxFinished / 2)
    }
  }
}

/// Whether rotation gives the first of two names to the older file.
private func hasOlderName(_ a: String, than b: String) -> Bool { (a.utf8.count, a) > (b.utf8.count, b) }

/// A compressed file.
private struct CompressedFile {
  var path: String
  var status: FileDescriptor.Status
  /// The first bytes of its content, and what follows them.
  var head: [UInt8]
  var state: CompressedContent.State

  func isOlder(than other: CompressedFile) -> Bool {
    let (first, second) = (status.modified, other.status.modified)
    return first != second ? first < second : hasOlderName(path, than: other.path)
  }

  func starts(as position: FilePosition) -> Bool {
    head.count >= position.fingerprintBytes
      && FollowedFile.hash(head.prefix(position.fingerprintBytes)) == position.fingerprint
  }
}

/// What directories hold, listed once each.
private struct DirectoryListings {
  struct Listing {
    private var byInode: [UInt64: [String]] = [:]
    private var byName: [String: UInt64] = [:]
    /// In the order of their bytes.
    private var names: [String] = []
    /// Another listing was the same: no file was renamed meanwhile, so none is missing.
    fileprivate var isSettled = false

    init(_ entries: [(name: String, inode: UInt64)]) {
      for (name, inode) in entries {
        byInode[inode, default: []].append(name)
        byName[name] = inode
      }
      names = entries.map(\.name).sorted { $0.utf8.lexicographicallyPrecedes($1.utf8) }
    }

    func names(of inode: UInt64) -> [String] { byInode[inode] ?? [] }

    func inode(of name: String) -> UInt64? { byName[name] }

    fileprivate func isSame(as other: Listing) -> Bool { byName == other.byName }

    /// Those that start with one of the prefixes.
    func names(with prefixes: [String]) -> [String] {
      prefixes.flatMap { prefix in
        var (first, end) = (0, names.count)
        while first < end {
          let middle = (first + end) / 2
          if names[middle].utf8.lexicographicallyPrecedes(prefix.utf8) { first = middle + 1 } else { end = middle }
        }
        return names[first...].prefix { $0.utf8.starts(with: prefix.utf8) }
      }
    }
  }

  private let list: Glob.Lister
  private var known: [String: Result<Listing, PosixError>] = [:]
  /// Compressed files by their paths.
  var compressed: [String: CompressedFile] = [:]

  init(_ list: @escaping Glob.Lister) { self.list = list }

  /// Has a directory listed again when it is next asked for.
  mutating func forget(_ directory: String) { known[directory] = nil }

  /// The directory, listed until nothing changes meanwhile.
  mutating func settled(_ directory: String) throws(PosixError) -> Listing {
    var listing = try self[directory]
    for _ in 0..<100 where !listing.isSettled {
      let last = listing
      forget(directory)
      listing = try self[directory]
      listing.isSettled = listing.isSame(as: last)
    }
    known[directory] = .success(listing)
    return listing
  }

  subscript(directory: String) -> Listing {
    mutating get throws(PosixError) {
      if let listing = known[directory] { return try listing.get() }
      let listing: Result<Listing, PosixError>
      do throws(PosixError) {
        // Tests replace the listing of directories.
        _ = try list(directory)
        listing = .success(Listing(try directoryEntries(directory)))
      } catch {
        listing = .failure(error)
      }
      known[directory] = listing
      return try listing.get()
    }
  }
}
