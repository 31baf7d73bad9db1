import CLinux
import Glibc
import PipelineCore

/// Finds the files of positions again after renames, copies and compression.
extension FollowerWork {
  func resume(_ positions: [FilePosition]) {
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
    let isFirst = files.count == resumed.count
    let successors = addSuccessors(of: resumed, &listings)
    guard isFirst else { return }
    // The order of the positions is the reading order, unless a file was compressed: that is younger than its content. A file without
    // a position may be older than one with: it had lost its name, and was not found yet, when the positions were noted.
    let files = resumed.map(\.file)
    let known = files.contains(where: \.isCompressed) ? ReadingOrder.oldestFirst(files) : files
    setOrder(ReadingOrder.merge(successors, into: known) { ReadingOrder.isOlder($0, than: $1) })
  }

  /// The file of the position: under its name, or under another one in the same directory; nil: it is gone.
  func find(
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
  static let rotationLimit = 100

  /// The copy of a file that was truncated since the position was noted: younger than that, with the same name plus a
  /// suffix, starting with the same bytes, and at least as long as the file had been.
  func findCopy(of position: FilePosition, _ listings: inout DirectoryListings) -> FollowedFile? {
    guard options.savedAt > 0, position.fingerprintBytes > 0, position.offset > 0 else { return nil }
    // The clock of births lags by some milliseconds.
    let earliest = options.savedAt &- 1_000_000_000
    return siblings(of: position.path, &listings).first { copy in
      copy.born >= earliest && copy.key.inode != position.inode && byKey[copy.key] == nil
        && copy.startsAs(position) && ((try? copy.file.status().size) ?? 0) >= position.offset
    }
  }

  /// `file`, as it is or decompressed, if the position belongs to it.
  func file(_ file: FollowedFile, of position: FilePosition) throws(PosixError) -> FollowedFile? {
    if file.isSame(as: position) { return file }
    guard file.key.inode == position.inode, let file = try decompressed(file.file), file.isSame(as: position)
    else { return nil }
    return file
  }

  /// Whether the file of the position still has its name, whatever it holds now.
  func isPresent(_ position: FilePosition) -> Bool {
    guard let file = try? FileDescriptor.openForReading(position.path), let status = try? file.status() else {
      return false
    }
    return status.inode == position.inode && rx_birth_time(file.number) == position.born
  }

  func openIfPresent(_ path: String) throws(PosixError) -> FollowedFile? {
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
        if options.paths.contains(where: { Glob.matches($0, other.path) }) { continue }
        if !found.contains(where: { $0.key == other.key }) { found.append(other) }
      }
      for file in ReadingOrder.oldestFirst(found) {
        add(file)
        added.append(file)
      }
      // These are known now, in case they are being compressed.
      for _ in 0..<Self.rotationLimit {
        var isMoving = false
        for candidate in compressedSiblings(of: path, &listings) where Self.isRotation(candidate.path, of: path) {
          guard let other = open(candidate) else {
            isMoving = true
            continue
          }
          if ReadingOrder.isOlder(file, than: other), isNew(other), !isKnown(other) {
            add(other)
            added.append(other)
          }
        }
        if !isMoving { break }
        // Their names have changed after the directory was listed.
        listings.forget(splitPath(path).directory)
      }
    }
    return added
  }

  /// See ``FileFollower/pathBeforeRotation(_:of:isShortest:)``.
  func pathBeforeRotation(_ path: String, isShortest: Bool = false) -> String {
    FileFollower.pathBeforeRotation(path, of: options.paths, isShortest: isShortest)
  }

  /// The files beside that of the path with the same name plus a suffix, not compressed.
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

  func open(_ path: String) -> FollowedFile? {
    guard let file = try? FileDescriptor.openForReading(path), let status = try? file.status()
    else { return nil }
    return FollowedFile(file, status, options)
  }
}

extension FileFollower {
  /// The path that is followed, of a file that has been renamed: `in.log` for `in.log.2`. A pattern may match several: the longest or
  /// shortest.
  package static func pathBeforeRotation(_ path: String, of patterns: [String], isShortest: Bool = false) -> String {
    let (directory, name) = splitPath(path)
    var base = name[...]
    var found = path
    while !base.isEmpty {
      let path = Glob.join(directory, String(base))
      if patterns.contains(where: { Glob.matches($0, path) }) {
        found = path
        if !isShortest { break }
      }
      guard let end = base.lastIndex(where: { $0 == "." || $0 == "-" }) else { break }
      base = base[..<end]
    }
    return found
  }
}
