import CLinux
import Glibc

/// The files below one directory. No path leads out of it: symbolic links below it are not followed.
package struct FileTree: Sendable {
  /// The directory. Links in its own path are followed.
  package let root: String

  package init(_ root: String) { self.root = root }

  /// The path of a file below the directory, for messages.
  package func name(_ path: String) -> String { Glob.join(root, path) }

  /// Whether an open failed because of the path below the directory, so that other paths may be fine.
  func isRefusal(_ error: PosixError) -> Bool {
    error.path != root
      && [
        EACCES, EPERM, ENOENT, ENOTDIR, EISDIR, ELOOP, ENAMETOOLONG, EINVAL, ENXIO, EMLINK, EILSEQ, ETXTBSY, EOPNOTSUPP,
      ].contains(error.code)
  }

  /// Throws if the directory cannot be entered.
  package func check() throws(PosixError) { _ = try openRoot() }

  private func openRoot() throws(PosixError) -> FileDescriptor {
    let number = uninterrupted { open(root, RX_O_PATH | O_DIRECTORY | O_CLOEXEC) }
    if number < 0 { throw PosixError("open the directory", root) }
    return FileDescriptor(number, name: root)
  }

  /// Opens a regular file for appending.
  ///
  /// - Parameters:
  ///   - path: Names with `/` between them, none of them empty, `.` or `..`.
  ///   - makes: Whether the file and its directories are made where they are missing, with `permissions` and 0750 less the umask.
  ///   - syncs: Whether new directories are on the device when this returns.
  func openForAppending(
    _ path: String, permissions: mode_t = 0o640, makes: Bool = true, syncs: Bool = false
  ) throws(PosixError) -> FileDescriptor {
    let (directory, last) = try openDirectory(of: path, makes: makes, syncs: syncs)
    let shown = Glob.join(directory.name, last)
    let flags = O_RDWR | O_APPEND | O_CLOEXEC | O_NONBLOCK | O_NOCTTY | O_NOFOLLOW | (makes ? O_CREAT : 0)
    var number = uninterrupted { openat(directory.number, last, flags, permissions) }
    if number < 0, errno == EACCES {  // Write permission alone is enough for appending.
      number = uninterrupted { openat(directory.number, last, flags & ~O_RDWR | O_WRONLY, permissions) }
    }
    if number < 0 { throw failure("open", last, of: directory, shown) }
    let opened = FileDescriptor(number, name: shown)
    let kind = try opened.status().kind
    guard kind == .regular else { throw PosixError("write to", shown, code: EINVAL, detail: "it is \(kind.rawValue)") }
    return opened
  }

  /// The contents of a regular file; nil: it is a directory.
  ///
  /// - Parameter path: As for ``openForAppending(_:permissions:makes:syncs:)``.
  package func read(_ path: String, limit: Int) throws(PosixError) -> [UInt8]? {
    let (directory, last) = try openDirectory(of: path)
    let shown = Glob.join(directory.name, last)
    let number = uninterrupted {
      openat(directory.number, last, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY | O_NOFOLLOW)
    }
    if number < 0 { throw failure("open", last, of: directory, shown) }
    let opened = FileDescriptor(number, name: shown)
    let status = try opened.status()
    if status.kind == .directory { return nil }
    guard status.kind == .regular else {
      throw PosixError("read", shown, code: EINVAL, detail: "it is \(status.kind.rawValue)")
    }
    guard status.size <= limit else { throw PosixError("read", shown, code: EFBIG) }
    var content = [UInt8](repeating: 0, count: Int(status.size))
    var count = 0
    while count < content.count {
      let before = count
      let outcome: Result<Int, PosixError> = content.withUnsafeMutableBytes { buffer in
        do throws(PosixError) {
          return .success(
            try opened.read(into: UnsafeMutableRawBufferPointer(rebasing: buffer[before...]), at: Int64(before)))
        } catch { return .failure(error) }
      }
      let more = try outcome.get()
      // The file was truncated meanwhile.
      guard more > 0 else { break }
      count += more
    }
    return Array(content.prefix(count))
  }

  /// The directory of a path, and the name of the path in it. See ``openForAppending(_:permissions:makes:syncs:)``.
  func openDirectory(
    of path: String, makes: Bool = false, syncs: Bool = false
  ) throws(PosixError) -> (directory: FileDescriptor, name: String) {
    var directory = try openRoot()
    var shown = root
    var names = pathNames(path, omittingEmpty: false)
    let last = names.removeLast()
    for name in names + [last] where name.isEmpty || name == "." || name == ".." || name.utf8.contains(0) {
      throw PosixError("open", self.name(path), code: EINVAL, detail: "it is not a path below \(root)")
    }
    for name in names {
      shown = Glob.join(shown, name)
      directory = try enter(name, of: directory, shown, makes: makes, syncs: syncs)
    }
    return (directory, last)
  }

  private func enter(
    _ name: String, of directory: FileDescriptor, _ shown: String, makes: Bool, syncs: Bool
  ) throws(PosixError) -> FileDescriptor {
    do throws(PosixError) { return try entered(name, of: directory, shown) } catch {
      guard error.code == ENOENT, makes else { throw error }
    }
    if mkdirat(directory.number, name, 0o750) == 0 {
      if syncs { try directory.syncEntries() }
    } else if errno != EEXIST {
      throw PosixError("make the directory", shown)
    }
    return try entered(name, of: directory, shown)
  }

  /// No link is followed.
  private func entered(
    _ name: String, of directory: FileDescriptor, _ shown: String
  ) throws(PosixError) -> FileDescriptor {
    do throws(PosixError) {
      let entry = try PathWalk.Entry(name, in: directory, shownAs: shown)
      if entry.isDirectory { return entry.descriptor }
      errno = ENOTDIR
    } catch { errno = error.code }
    throw failure("open the directory", name, of: directory, shown)
  }

  private func failure(_ operation: String, _ name: String, of directory: FileDescriptor, _ shown: String) -> PosixError
  {
    let code = errno
    var status = stat()
    if code == ELOOP || code == ENOTDIR, fstatat(directory.number, name, &status, AT_SYMLINK_NOFOLLOW) == 0,
      status.st_mode & S_IFMT == S_IFLNK
    {
      return PosixError(
        operation, shown, code: ELOOP, detail: "it is a symbolic link, and links below \(root) are not followed")
    }
    return PosixError(operation, shown, code: code)
  }
}
