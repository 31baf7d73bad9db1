import CLinux
import Glibc
import PipelineCore

/// Finds the files of positions again after renames, copies and compression.
extension FollowerWork {
  func resume(_ positions: [FilePosition]) {
    unresolved = []
    var listings = DirectoryListings(options.list)
    // Filled for all positions before successors are searched: these are files without a position.
    var resumed: [(file: FollowedFile, path: String)] = []
    var restored: Set<Key> = []
    for position in positions {
      switch find(position, &listings) {
      case .failure(let error):
        // The file may exist, so it counts neither as lost nor as new.
        unresolved.append(position)
        failed(error)
      case .success(let file):
        if let file, byKey[file.key] != nil { continue }
        let size = file.flatMap { try? $0.file.status().size } ?? 0
        if let file, file.isCompressed || position.offset <= size && file.file.endsAs(position) {
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
          let copy = compressed ?? findCopy(of: position, &listings)
          if file == nil, let found = findRestored(position, among: positions),
            copy.map({ continues(found, $0) }) ?? true
          {
            found.seek(to: position.offset)
            notice(.restored(position, found.position))
            add(found)
            restored.insert(found.key)
            resumed.append((found, base(of: position)))
            continue
          }
          if let copy {
            copy.seek(to: position.offset)
            notice(copy.isCompressed ? .compressed(position, copy.position) : .copied(position, copy.position))
            add(copy)
            resumed.append((copy, base(of: position)))
          } else {
            notice(.gone(position, absence(of: position, file)))
          }
        }
        guard let file else { continue }
        add(file)
        // A file to which the link still leads has no successor.
        let base = base(of: position)
        let isThere = file.path == position.path && base != pathBeforeRotation(position.path)
        resumed.append((file, isThere ? file.path : base))
      }
    }
    let isFirst = files.count == resumed.count
    // The birth time of a restored file says nothing about the age of its neighbours.
    let successors = addSuccessors(of: resumed.filter { !restored.contains($0.file.key) }, &listings)
    guard isFirst else { return }
    // The positions are in reading order, unless a file was compressed: its birth time is then younger than its
    // content. A file without a position may be older than one that has a position: it may have lost its name before
    // the positions were noted, and was not found then.
    let files = resumed.map(\.file)
    let known = files.contains(where: \.isCompressed) ? ReadingOrder.oldestFirst(files) : files
    setOrder(ReadingOrder.merge(successors, into: known) { ReadingOrder.isOlder($0, than: $1) })
  }

  /// Finds the file of the position under its name or another name in the same directory; nil: it is gone.
  func find(
    _ position: FilePosition, _ listings: inout DirectoryListings
  ) -> Result<FollowedFile?, PosixError> {
    var failure: PosixError?
    var trails = FileTrails()
    var paths = [position.path]
    // The target of the link when the position was noted, and its target now.
    for path in [position.target, trails.trail(of: position.path)?.target].compactMap({ $0 })
    where !paths.contains(path) {
      paths.append(path)
    }
    for path in paths {
      do throws(PosixError) {
        if let file = try find(position, at: path, &listings) {
          file.target = position.target
          return .success(file)
        }
      } catch { if !Self.isAbsence(error) { failure = failure ?? error } }
    }
    return failure.map { .failure($0) } ?? .success(nil)
  }

  private func find(
    _ position: FilePosition, at path: String, _ listings: inout DirectoryListings
  ) throws(PosixError) -> FollowedFile? {
    let (directory, _) = splitPath(path)
    for _ in 0..<Self.rotationLimit {
      if let file = try openIfPresent(path), let file = try self.file(file, of: position) { return file }
      var isMoving = false
      for name in try listings[directory].names(of: position.inode) {
        let file = try openIfPresent(Glob.join(directory, name))
        if let file, let file = try self.file(file, of: position) { return file }
        if file?.key.inode != position.inode { isMoving = true }
      }
      if !isMoving { return nil }
      // The file was renamed after the directory was listed.
      listings.forget(directory)
    }
    return nil
  }

  /// The maximum number of times that a directory is listed again because its files are being renamed.
  static let rotationLimit = 100

  /// Finds the copy of a file that was truncated after the position was noted: a file that is younger than the
  /// position, has the same name plus a suffix, starts with the same bytes, and is at least as long as the part that
  /// was read.
  func findCopy(of position: FilePosition, _ listings: inout DirectoryListings) -> FollowedFile? {
    guard options.savedAt > 0, position.fingerprintBytes > 0, position.offset > 0 else { return nil }
    // Birth times may lag by some milliseconds, because file systems use a coarse clock.
    let earliest = options.savedAt &- 1_000_000_000
    return siblings(of: position.target ?? position.path, &listings).first { copy in
      copy.born >= earliest && copy.key.inode != position.inode && byKey[copy.key] == nil
        && copy.startsAs(position) && ((try? copy.file.status().size) ?? 0) >= position.offset
    }
  }

  /// The file at the path of the position if it is a different file with the same content up to the position: restored
  /// from a backup, moved to another file system, or rewritten by an editor.
  func findRestored(_ position: FilePosition, among positions: [FilePosition]) -> FollowedFile? {
    guard let tail = position.tail else { return nil }
    for path in [position.path, position.target].compactMap({ $0 }) {
      guard let opened = try? openIfPresent(path),
        let file = tail.isOfCompressed ? try? decompressed(opened.file) : opened,
        byKey[file.key] == nil, file.startsAs(position), let status = try? file.file.status(),
        file.file.holdsContent(of: position, status, savedAt: options.savedAt),
        !positions.contains(where: file.isSame)
      else { continue }
      file.target = position.target
      return file
    }
    return nil
  }

  /// Whether `file` begins with the whole content of `copy`.
  private func continues(_ file: FollowedFile, _ copy: FollowedFile) -> Bool {
    guard !copy.isCompressed, !file.isCompressed, let size = try? copy.file.status().size,
      let tail = copy.file.tail(before: size)
    else { return false }
    var end = copy.position
    end.tail = tail
    return file.file.endsAs(end)
  }

  /// - Parameter file: The file of the position, whose content no longer fits the position; nil: it was not found.
  private func absence(of position: FilePosition, _ file: FollowedFile?) -> FileFollower.Absence {
    let status: FileDescriptor.Status
    if let file, let found = try? file.file.status() {
      status = found
    } else {
      guard case .success(let found) = FileDescriptor.Status.read(position.path) else { return .removed }
      guard isPresent(position) else { return .replaced }
      status = found
    }
    return status.size < position.offset ? .truncated(size: status.size) : .rewritten
  }

  /// `file`, unchanged or decompressed, if the position belongs to it.
  func file(_ file: FollowedFile, of position: FilePosition) throws(PosixError) -> FollowedFile? {
    if file.isSame(as: position) { return file }
    guard file.key.inode == position.inode, let file = try decompressed(file.file), file.isSame(as: position)
    else { return nil }
    return file
  }

  /// Whether the file of the position still has its name, whatever its content is now.
  func isPresent(_ position: FilePosition) -> Bool {
    guard let file = try? openFile(position.path), let status = try? file.status() else {
      return false
    }
    return status.inode == position.inode && rx_birth_time(file.number) == position.born
  }

  func openIfPresent(_ path: String) throws(PosixError) -> FollowedFile? {
    do throws(PosixError) {
      let file = try openFile(path)
      return FollowedFile(file, try file.status(), options)
    } catch {
      if Self.isAbsence(error) || error.detail != nil { return nil }
      throw error
    }
  }

  /// Adds files that took the name of one of `files` and were renamed in turn while the follower was not running:
  /// younger files with the same name plus a suffix; for compressed files, a suffix that rotation gives. `path`: the
  /// name that the file had when its position was noted.
  func addSuccessors(
    of files: [(file: FollowedFile, path: String)], _ listings: inout DirectoryListings
  ) -> [FollowedFile] {
    var added: [FollowedFile] = []
    // The oldest file of each followed path that has another name now.
    var oldest: [String: FollowedFile] = [:]
    for (file, path) in files where file.born != 0 {
      let path = pathBeforeRotation(path)
      guard file.path != path, oldest[path].map({ ReadingOrder.isOlder(file, than: $0) }) ?? true else { continue }
      oldest[path] = file
    }
    for (path, file) in oldest.sorted(by: { $0.key < $1.key }) {
      var found: [FollowedFile] = []
      for other in siblings(of: path, &listings) where ReadingOrder.isOlder(file, than: other) && isNew(other) {
        if isFollowedName(other.path) { continue }
        if !found.contains(where: { $0.key == other.key }) { found.append(other) }
      }
      for found in ReadingOrder.oldestFirst(found) {
        found.target = file.target
        add(found)
        added.append(found)
      }
      // The plain files were added first, so a file that is being compressed meanwhile is already known.
      for _ in 0..<Self.rotationLimit {
        var isMoving = false
        for candidate in compressedSiblings(of: path, &listings) where Self.isRotation(candidate.path, of: path) {
          guard let other = open(candidate) else {
            isMoving = true
            continue
          }
          if ReadingOrder.isOlder(file, than: other), isNew(other), !isKnown(other) {
            other.target = file.target
            add(other)
            added.append(other)
          }
        }
        if !isMoving { break }
        // Files were renamed after the directory was listed.
        listings.forget(splitPath(path).directory)
      }
    }
    return added
  }

  /// See ``FileFollower/pathBeforeRotation(_:of:isShortest:)``.
  func pathBeforeRotation(_ path: String, isShortest: Bool = false) -> String {
    FileFollower.pathBeforeRotation(path, isShortest: isShortest, isFollowed: isFollowedName)
  }

  /// The path to which rotation adds a suffix for the file of a position: if links lead to the file, the path of their
  /// target.
  func base(of position: FilePosition, isShortest: Bool = false) -> String {
    if let target = position.target { return target }
    var trails = FileTrails()
    if isFollowedName(position.path), let trail = trails.trail(of: position.path) { return trail.target }
    return pathBeforeRotation(position.path, isShortest: isShortest)
  }

  /// The link target whose name a file with this path had before rotation; nil: no link leads there.
  func base(of path: String) -> String? {
    let base = pathBeforeRotation(path)
    return targets.contains(base) ? base : nil
  }

  /// Opens a file at one of the followed paths, or in the directory of one.
  func openFile(_ path: String) throws(PosixError) -> FileDescriptor {
    try found.open(path)
  }

  /// The files in the directory of the path that have its name plus a suffix and are not compressed.
  func siblings(of path: String, _ listings: inout DirectoryListings) -> [FollowedFile] {
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
        // A file that cannot be read stays unreadable; a file that is missing has been renamed, so the directory is listed again.
        if case .failure(let error) = FileDescriptor.Status.read(path), Self.isAbsence(error) { isMoving = true }
        return nil
      }
      // A file found under two names was renamed during the listing, unless it always has two names.
      let keys = files.map(\.key)
      if Set(keys).count < keys.count, keys != before { isMoving = true }
      if !isMoving { break }
      before = keys
      listings.forget(directory)
    }
    return files
  }

  func open(_ path: String) -> FollowedFile? {
    guard let file = try? openFile(path), let status = try? file.status()
    else { return nil }
    return FollowedFile(file, status, options)
  }
}

extension FileFollower {
  /// The followed path that a renamed file had before: `in.log` for `in.log.2`. If a pattern matches several, the
  /// longest or the shortest of them.
  package static func pathBeforeRotation(_ path: String, of patterns: [String], isShortest: Bool = false) -> String {
    pathBeforeRotation(path, isShortest: isShortest) { path in patterns.contains { Glob.matches($0, path) } }
  }

  static func pathBeforeRotation(_ path: String, isShortest: Bool, isFollowed: (String) -> Bool) -> String {
    let (directory, name) = splitPath(path)
    var base = name[...]
    var found = path
    while !base.isEmpty {
      let path = Glob.join(directory, String(base))
      if isFollowed(path) {
        found = path
        if !isShortest { break }
      }
      guard let end = base.lastIndex(where: { $0 == "." || $0 == "-" }) else { break }
      base = base[..<end]
    }
    return found
  }
}
