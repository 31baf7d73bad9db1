import CLinux
import Glibc

/// Follows a path by descriptors: each entry is opened in the directory before it, without following a link, and
/// checked before it is entered or followed. So the entry that was checked is the one that is used, whatever is renamed
/// meanwhile.
struct PathWalk {
  /// An entry of a directory, opened with O_PATH: it cannot be read or written.
  struct Entry {
    /// Its name is the path to show in messages.
    let descriptor: FileDescriptor
    let status: stat
    var isLink: Bool { status.st_mode & S_IFMT == S_IFLNK }
    var isDirectory: Bool { status.st_mode & S_IFMT == S_IFDIR }

    /// Opens the entry itself, even if it is a symbolic link.
    init(_ name: String, in directory: FileDescriptor, shownAs shown: String) throws(PosixError) {
      try self.init(
        uninterrupted { openat(directory.number, name, RX_O_PATH | O_NOFOLLOW | O_CLOEXEC) }, shownAs: shown)
    }

    /// Opens a directory, following links on the way to it.
    init(directory path: String, shownAs shown: String) throws(PosixError) {
      try self.init(uninterrupted { open(path, RX_O_PATH | O_DIRECTORY | O_CLOEXEC) }, shownAs: shown)
    }

    private init(_ number: Int32, shownAs shown: String) throws(PosixError) {
      if number < 0 { throw PosixError("open", shown) }
      descriptor = FileDescriptor(number, name: shown)
      var status = stat()
      if uninterrupted({ fstat(number, &status) }) != 0 { throw PosixError("examine", shown) }
      self.status = status
    }
  }

  /// The directory that the path has led to so far.
  private(set) var directory: Entry
  /// The names that are left, the next one last.
  private var rest: [String]
  private var links = 0
  /// The path to show in all messages; nil: each entry's own.
  private let shown: String?

  /// - Parameters:
  ///   - path: Names below `start`, with slashes between them.
  ///   - shown: The path to show in messages; nil: that of the entry concerned.
  init(_ path: String, from start: Entry, shownAs shown: String? = nil) {
    directory = start
    rest = pathNames(path).reversed()
    self.shown = shown
  }

  /// Walks to the end of the path. Returns an entry that is neither a directory nor a link, with its name in
  /// ``directory``; or a directory, without a name.
  ///
  /// - Parameter look: Called for each entry on the way and for the last one, with the directory in which it is.
  mutating func end(
    _ look: (_ entry: Entry, _ directory: Entry) throws(PosixError) -> Void
  ) throws(PosixError) -> (entry: Entry, name: String) {
    while let name = rest.popLast() {
      if name == "." { continue }
      let entry = try Entry(
        name, in: directory.descriptor, shownAs: shown ?? Glob.join(directory.descriptor.name, name))
      try look(entry, directory)
      if entry.isLink {
        try follow(entry)
      } else if entry.isDirectory {
        directory = entry
      } else {
        guard rest.isEmpty else { throw PosixError("open", entry.descriptor.name, code: ENOTDIR) }
        return (entry, name)
      }
    }
    return (directory, "")
  }

  private mutating func follow(_ link: Entry) throws(PosixError) {
    links += 1
    let number = link.descriptor.number
    guard links <= FileTrail.mostLinks, let text = FileTrails.text({ readlinkat(number, "", $0, $1) }) else {
      throw PosixError("open", link.descriptor.name, code: ELOOP)
    }
    if text.utf8.first == UInt8(ascii: "/") { directory = try Entry(directory: "/", shownAs: shown ?? "/") }
    rest += pathNames(text).reversed()
  }
}
