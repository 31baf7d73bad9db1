import CLinux
import Glibc
import PipelineCore

/// Finds files that rotation has compressed.
extension FollowerWork {
  /// The content of the file, if it has the name of a compressed one and the library is installed.
  func decompressed(_ file: FileDescriptor) throws(PosixError) -> FollowedFile? {
    guard let (_, format) = CompressedContent.original(file.name),
      let head = try CompressedContent.head(of: file, format), let content = CompressedContent(file, format)
    else { return nil }
    return FollowedFile(file, try file.status(), content, head: head.bytes, options)
  }

  struct Unfinished: Error { var path: String }

  /// Finds the compressed form of a position's file that is gone or was truncated: the oldest compressed file that was
  /// last written to after that file was created and starts with the same bytes. Fails if a file that may be the one is
  /// incomplete.
  func findCompressed(
    _ position: FilePosition, _ listings: inout DirectoryListings
  ) -> Result<FollowedFile?, Unfinished> {
    // Birth times lag behind the clock by some milliseconds.
    let savedAt = options.savedAt > 0 ? options.savedAt &- 1_000_000_000 : .max
    var earliest = position.born
    // An empty file, and one that was truncated after a copy was made, can only be among files written to after the
    // position was noted.
    if position.fingerprintBytes == 0 || isPresent(position) { earliest = max(earliest, savedAt) }
    let path = base(of: position, isShortest: true)
    for _ in 0..<Self.rotationLimit {
      let candidates = compressedSiblings(of: path, &listings).filter { candidate in
        candidate.status.modified >= earliest && byKey[Key(candidate.status)]?.isRefused != false
      }.sorted { $0.isOlder(than: $1) }
      let matches = candidates.filter { $0.starts(as: position) }
      // If birth times are unknown, the youngest file is the likeliest.
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

  /// Opens a candidate; nil: its path now leads to another file.
  func open(_ candidate: CompressedFile) -> FollowedFile? {
    guard let file = try? openFile(candidate.path), let status = try? file.status(),
      status.inode == candidate.status.inode
    else { return nil }
    return try? decompressed(file)
  }

  /// The compressed files in the directory of the path that have its name plus a suffix, without those whose
  /// uncompressed file also exists: they are still being written.
  func compressedSiblings(of path: String, _ listings: inout DirectoryListings) -> [CompressedFile] {
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
        guard let file = try? openFile(path), let status = try? file.status() else {
          // A file that cannot be read stays unreadable; a file that is missing has been renamed, so the directory is listed again.
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

  /// Whether the compressed file has a name that rotation gives: the suffix is a number or a time.
  static func isRotation(_ compressed: String, of path: String) -> Bool {
    guard let (original, _) = CompressedContent.original(compressed) else { return false }
    let marks = Set("0123456789.-_:+TZ".utf8)
    return original.utf8.dropFirst(path.utf8.count).allSatisfy(marks.contains)
  }

  /// The compressed file at the path, unless its content has been followed under another name.
  func missedFile(_ path: String) -> FollowedFile? {
    guard let file = try? openFile(path),
      let followed = try? decompressed(file), isNew(followed), !isKnown(followed)
    else { return nil }
    return followed
  }

  /// Whether the content of this compressed file has been read to its end.
  func hasDecompressed(_ file: FollowedFile) -> Bool {
    file.isRefused && finished.files[file.key].map { $0.isCompressed && $0.born == file.born } ?? false
  }

  /// Whether the compressed file has the content of a removed file that is or was followed: programs that compress a
  /// file remove it at the end.
  func isKnown(_ compressed: FollowedFile) -> Bool {
    let position = compressed.position
    guard position.fingerprintBytes > 0 else { return true }
    return files.contains { file in
      guard !file.isCompressed, let status = try? file.file.status(), status.links == 0 else { return false }
      let head = file.file.head()
      return head.count == position.fingerprintBytes && FilePosition.hash(head[...]) == position.fingerprint
    }
      || finished.files.values.contains { record in
        record.position.fingerprintBytes == position.fingerprintBytes
          && record.position.fingerprint == position.fingerprint
      }
  }
}

/// A compressed file.
struct CompressedFile {
  var path: String
  var status: FileDescriptor.Status
  /// The first bytes of its content, and the state after them.
  var head: [UInt8]
  var state: CompressedContent.State

  func isOlder(than other: CompressedFile) -> Bool {
    let (first, second) = (status.modified, other.status.modified)
    return first != second ? first < second : hasOlderName(path, than: other.path)
  }

  func starts(as position: FilePosition) -> Bool {
    FileDescriptor.starts(head, as: position)
  }
}
