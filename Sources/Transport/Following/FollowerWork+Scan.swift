import CLinux
import Glibc
import PipelineCore

/// Finds, opens and watches files.
extension FollowerWork {
  func watchDirectories() {
    // A directory may appear after the search and before its parent is watched: repeats as long as there are new ones.
    for _ in 0..<16 where watchPresentDirectories() { return }
  }

  /// Watches the directories that exist; returns whether all of them were already watched.
  func watchPresentDirectories() -> Bool {
    guard let inotify else { return true }
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
      wanted.insert(Self.nearest(Glob.directories(pattern).last ?? "."))
    }
    // Links lead through these directories. If one is missing, the nearest existing one above it is watched.
    for directory in links.directories { wanted.insert(Self.nearest(directory)) }
    for path in wanted where watch(path, inotify) { foundNew = true }
    guard isComplete else { return !foundNew }
    for (path, watch) in directoryWatches where !wanted.contains(path) {
      directoryWatches[path] = nil
      directories[watch]?.removeAll { $0 == path }
      if directories[watch]?.isEmpty ?? false {
        directories[watch] = nil
        inotify.unwatch(watch)
      }
    }
    return !foundNew
  }

  /// The directory, or its nearest ancestor that exists.
  private static func nearest(_ directory: String) -> String {
    var base = directory
    while FileDescriptor.Status(path: base)?.kind != .directory, base != "/", base != "." {
      base = splitPath(base).directory
    }
    return base
  }

  /// Watches a directory; returns whether it was not watched before.
  private func watch(_ path: String, _ inotify: Inotify) -> Bool {
    if isRemote(path) {
      seenDirectories.insert(path)
      return false
    }
    do throws(PosixError) {
      let watch = try inotify.watch(path, Inotify.directoryEvents)
      seenDirectories.insert(path)
      if let old = directoryWatches.updateValue(watch, forKey: path), old != watch {
        directories[old]?.removeAll { $0 == path }
        if directories[old]?.isEmpty ?? false {
          directories[old] = nil
          inotify.unwatch(old)
        }
      }
      let isNew = directories[watch] == nil
      if !(directories[watch]?.contains(path) ?? false) { directories[watch, default: []].append(path) }
      return isNew
    } catch {
      // This user may lack permission for a link's directory and still be able to read the file.
      if error.code == ENOSPC || error.code == EACCES && links.directories.contains(path) {
        poll(instead: error)
      } else {
        failed(error)
      }
      return false
    }
  }

  /// Finds the files of the paths, opens new ones, and marks those that have lost their name.
  func scan(isFirst: Bool = false) {
    if !isFirst {
      failing = []
      watchDirectories()
      if !unresolved.isEmpty { resume(unresolved) }
    }
    mustSort = true
    var named: Set<Key> = []
    var found: [FollowedFile] = []
    let (paths, ends, statuses) = matchingPathsAndTargets()
    for path in paths {
      let status: FileDescriptor.Status
      switch statuses[path].map({ .success($0) }) ?? FileDescriptor.Status.read(path) {
      case .success(let known): status = known
      case .failure(let error):
        failed(error)
        continue
      }
      if let known = byKey[Key(status)] {
        if !renames.unopened.isEmpty { renames.unopened.remove(path) }
        if named.insert(Key(status)).inserted {
          known.target = ends[path]
          if known.path != path {
            known.path = path
            known.isDirty = true
          }
        }
        continue
      }
      do throws(PosixError) {
        let file = try openFile(path)
        let status = try file.status()  // The path may lead to another file by now.
        reported.remove(path)
        if !renames.unopened.isEmpty { renames.unopened.remove(path) }
        guard byKey[Key(status)] == nil, named.insert(Key(status)).inserted else { continue }
        // The file's starting position is not known yet.
        if unresolved.contains(where: { $0.inode == status.inode }) { continue }
        let followed = FollowedFile(file, status, options)
        followed.target = ends[path]
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
        // Data written before the rename must be read before the successor's.
        file.isDirty = true
        file.lastChange = monotonicNow()
      }
      file.isNamed = isNamed
    }
    if !isFirst {
      for file in found where file.lines.offset == 0 && !file.isRefused {
        file.earlier = earlierContent(at: file.path, named)
      }
    }
    for file in ReadingOrder.oldestFirst(found) { add(file) }
    lookAgainIfNeeded()
  }

  /// The matching paths, and the targets of those that go through links. Everything that determines the targets is
  /// watched, so any later change is an event. For paths without links, also returns the status of the file.
  func matchingPathsAndTargets() -> (
    paths: [String], targets: [String: String], statuses: [String: FileDescriptor.Status]
  ) {
    var paths = matchingPaths()
    for _ in 0..<16 {
      var trails = FileTrails()
      var ends: [String: String] = [:]
      var (names, directories): (Set<String>, Set<String>) = ([], [])
      for path in paths {
        guard let trail = trails.trail(of: path) else { continue }
        ends[path] = trail.target
        names.formUnion(trail.links)
        directories.formUnion(trail.directories)
      }
      targets = resumedTargets.union(ends.values)
      for file in files { if let target = file.target { targets.insert(target) } }
      for position in unresolved { if let target = position.target { targets.insert(target) } }
      links.names = names
      let isKnown = directories == links.directories
      links.directories = directories
      if isKnown || inotify == nil || watchPresentDirectories() { return (paths, ends, trails.statuses) }
      paths = matchingPaths()
    }
    return (paths, [:], [:])
  }

  func matchingPaths() -> [String] {
    options.paths.flatMap { pattern in
      let found = Glob.expand(pattern, by: options.list)
      for failure in found.failures { failed(failure) }
      return found.paths
    }
  }

  /// Whether the file may still have its old name, after an incomplete scan.
  func mayBeNamed(_ file: FollowedFile) -> Bool {
    switch FileDescriptor.Status.read(file.path) {
    case .success(let status): Key(status) == file.key
    case .failure(let error): !Self.isAbsence(error)
    }
  }

  static func isAbsence(_ error: PosixError) -> Bool { error.code == ENOENT || error.code == ENOTDIR }

  /// Notes that a path could not be read. A missing path is awaited silently; a directory that once existed may come
  /// back without an event, as on a network, so it is polled.
  func failed(_ error: PosixError) {
    guard !Self.isAbsence(error) || seenDirectories.contains(error.path) else { return }
    failing.insert(error.path)
    if troubled.insert(error.path).inserted { notice(.retrying(error)) }
  }

  /// Called after a scan.
  func lookAgainIfNeeded() {
    for path in troubled.subtracting(failing).sorted() {
      troubled.remove(path)
      notice(.recovered(path: path))
    }
    if !failing.isEmpty || !unresolved.isEmpty {
      lookAgain()
    } else if !files.contains(where: \.isUnreadable) {
      polling.nextScan = nil
      polling.pause = 0
    }
  }

  func lookAgain() {
    guard polling.nextScan == nil else { return }
    polling.pause = min(max(polling.pause * 2, Self.firstPause), Self.longestPause)
    polling.nextScan = monotonicNow() &+ polling.pause
  }

  func isResumed(_ path: String) -> Bool { resumedPaths.contains(path) }

  func report(_ error: PosixError) {
    if error.code != ENOENT, reported.insert(error.path).inserted { notice(.failed(error)) }
  }

  func add(_ file: FollowedFile) {
    // The decompressed form replaces the refused one.
    if let refused = byKey[file.key] { forget(refused) }
    mustSort = true
    files.append(file)
    byKey[file.key] = file
    watch(file)
    // A file that may get earlier content back is reported later, when its position is known.
    if file.earlier == nil { notice(.opened(file.position)) }
  }

  func watch(_ file: FollowedFile) {
    guard let inotify, !isRemote(file.path) else { return }
    do throws(PosixError) {
      // Watches through the descriptor, because the name may now lead to another file.
      file.watch = try inotify.watch("/proc/self/fd/\(file.file.number)", Inotify.fileEvents)
      fileWatches[file.watch] = file
    } catch { poll(instead: error) }
  }

  /// Resumes a file that had been closed; returns whether it is one.
  func wasFinished(_ file: FollowedFile) -> Bool {
    guard let record = finished.files[file.key], record.born == file.born,
      record.position.fingerprintBytes > 0, file.isSame(as: record.position)
    else { return false }
    file.seek(to: record.position.offset)
    return true
  }

  /// Whether the file is neither followed nor has been.
  func isNew(_ file: FollowedFile) -> Bool {
    byKey[file.key].map { $0.isRefused } ?? (finished.files[file.key]?.born != file.born)
  }
}
