import CLinux
import Glibc
import PipelineCore

/// A file that rxd trusts: the one rule for the programs and libraries that it runs and for the state that it keeps.
///
/// A file is trusted if nobody but root and the user of the process can change it, or what its path leads to. So every directory of the way, and every
/// symbolic link, belongs to one of the two, and nobody else may write to it: neither by its mode, nor as a member of its group, nor by its access
/// list. A directory with the sticky bit, such as `/tmp`, may stand on the way, because others cannot rename what is not theirs; it must not
/// be the file's own, where others can put further files beside it.
///
/// What is trusted cannot be replaced between a check and its use, so the path may be followed again.
package struct TrustedFile {
  /// Open for reading.
  package let descriptor: FileDescriptor

  package struct Refusal: Error, Sendable {
    /// A clause that begins with the path.
    package var message: String
  }

  /// Follows the path, one directory after the other, and opens the regular file at its end.
  package init(_ path: String) throws(Refusal) {
    var walk = Walk()
    descriptor = try walk.open(path)
  }

  /// The whole content; nil: it cannot be read, or has more than `most` bytes.
  package func contents(most: Int = 256 << 20) -> [UInt8]? {
    guard let size = try? descriptor.status().size, size <= most else { return nil }
    var bytes = [UInt8](repeating: 0, count: Int(size))
    var at = 0
    while at < bytes.count {
      let count = bytes.withUnsafeMutableBytes {
        (try? descriptor.read(into: UnsafeMutableRawBufferPointer(rebasing: $0[at...]))) ?? nil
      }
      guard let count, count > 0 else { return nil }
      at += count
    }
    return bytes
  }

  /// Why an open file or directory is not trusted by itself, whatever its path is, a clause that begins with `name`; nil: it is.
  package static func problem(of descriptor: Int32, named name: String) -> String? {
    var status = stat()
    guard fstat(descriptor, &status) == 0 else { return cannotOpen(name) }
    return strangeOwner(status, name) ?? (isOpen(descriptor, status) ? mayWrite(name) : nil)
  }

  // MARK: The rule

  static func isKnown(_ user: uid_t) -> Bool { user == 0 || user == geteuid() }

  fileprivate static func strangeOwner(_ status: stat, _ name: String) -> String? {
    isKnown(status.st_uid) ? nil : "'\(name)' belongs to the user \(status.st_uid), who could replace it"
  }

  fileprivate static func mayWrite(_ name: String) -> String { "others may write '\(name)': use chmod go-w on it" }

  fileprivate static func cannotOpen(_ name: String) -> String {
    "'\(name)' cannot be opened: \(PosixError.text(errno))"
  }

  /// Whether anyone other than root and the user may write. The mode's bits of the group are also the most that an access list gives to anybody
  /// but the owner.
  fileprivate static func isOpen(_ descriptor: Int32, _ status: stat) -> Bool {
    if status.st_mode & 0o002 != 0 { return true }
    guard status.st_mode & 0o020 != 0 else { return false }
    var list = [UInt8](repeating: 0, count: 64 << 10)
    let count = rx_access_list(descriptor, &list, list.count)
    // Without a list the mode says everything; a list that cannot be read may say anything.
    if count <= 0 { return count < 0 || !isPrivate(status.st_gid) }
    return isOpen(list[..<count], status)
  }

  /// Reads an access list: a version, then entries of a tag, permissions and an identity.
  private static func isOpen(_ list: ArraySlice<UInt8>, _ status: stat) -> Bool {
    guard list.count >= 4, (list.count - 4) % 8 == 0 else { return true }
    for at in stride(from: 4, to: list.count, by: 8) {
      func number(_ offset: Int, _ bytes: Int) -> UInt32 {
        (0..<bytes).reduce(0) { $0 | UInt32(list[at + offset + $1]) << (8 * UInt32($1)) }
      }
      guard number(2, 2) & 2 != 0 else { continue }
      switch number(0, 2) {
      case 0x01, 0x10: continue  // the owner; the mask
      case 0x02: if !isKnown(number(4, 4)) { return true }
      case 0x04: if !isPrivate(status.st_gid) { return true }
      case 0x08: if !isPrivate(number(4, 4)) { return true }
      default: return true
      }
    }
    return false
  }

  /// Whether a group has no other members than root and the user: that of root, or the user's own of the same name.
  private static func isPrivate(_ group: gid_t) -> Bool {
    let bytes = 64 << 10
    let space = UnsafeMutablePointer<CChar>.allocate(capacity: bytes)
    defer { space.deallocate() }
    var user = passwd()
    var foundUser: UnsafeMutablePointer<passwd>?
    guard getpwuid_r(geteuid(), &user, space, bytes, &foundUser) == 0, foundUser != nil,
      let name = user.pw_name.map({ String(cString: $0) })
    else { return false }
    let isOwn = user.pw_gid == group
    var entry = Glibc.group()
    var foundGroup: UnsafeMutablePointer<Glibc.group>?
    guard getgrgid_r(group, &entry, space, bytes, &foundGroup) == 0, foundGroup != nil else {
      return false
    }
    guard group == 0 || isOwn && entry.gr_name.map({ String(cString: $0) }) == name else { return false }
    var member = entry.gr_mem
    while let place = member, let one = place.pointee {
      if !["root", name].contains(String(cString: one)) { return false }
      member = place.advanced(by: 1)
    }
    return true
  }
}

/// Follows a path part by part, so that each is checked before the next one is opened.
private struct Walk {
  private struct Place {
    var descriptor: FileDescriptor
    var name: String
    /// Others may add entries: it has the sticky bit.
    var isShared = false
  }
  /// The directories from the root on.
  private var places: [Place] = []
  /// What is left, the next one last.
  private var rest: [String] = []

  mutating func open(_ path: String) throws(TrustedFile.Refusal) -> FileDescriptor {
    func missing(_ name: String) -> TrustedFile.Refusal {
      TrustedFile.Refusal(message: TrustedFile.cannotOpen(name))
    }
    try begin(path)
    if path.utf8.first != UInt8(ascii: "/") {
      guard let current = getcwd(nil, 0) else { throw missing(path) }
      defer { free(current) }
      push(String(cString: current))
    }
    var links = 0
    while let name = rest.popLast() {
      if name == ".." {
        if places.count > 1 { places.removeLast() }
        continue
      }
      guard let directory = places.last else { throw missing(path) }
      let shown = directory.name == "/" ? "/\(name)" : "\(directory.name)/\(name)"
      let isLast = rest.isEmpty
      let number = uninterrupted { openat(directory.descriptor.number, name, RX_O_PATH | O_NOFOLLOW | O_CLOEXEC) }
      guard number >= 0 else { throw missing(shown) }
      let found = FileDescriptor(number, name: shown)
      var status = stat()
      guard fstat(number, &status) == 0 else { throw missing(shown) }
      if let problem = TrustedFile.strangeOwner(status, shown) { throw TrustedFile.Refusal(message: problem) }
      switch status.st_mode & S_IFMT {
      case S_IFLNK:
        links += 1
        if links > FileTrail.mostLinks { errno = ELOOP }
        guard links <= FileTrail.mostLinks, let text = FileTrails.text({ readlinkat(number, "", $0, $1) }) else {
          throw missing(shown)
        }
        if text.utf8.first == UInt8(ascii: "/") { places.removeLast(places.count - 1) }
        push(text)
      case S_IFDIR:
        guard !isLast else { throw TrustedFile.Refusal(message: "'\(shown)' is no file") }
        try enter(found, status, shown)
      case S_IFREG where isLast: return try end(name, in: directory, shown)
      case S_IFREG:
        errno = ENOTDIR
        throw missing(shown)
      default: throw TrustedFile.Refusal(message: "'\(shown)' is no file")
      }
    }
    throw TrustedFile.Refusal(message: "'\(path)' is no file")
  }

  private mutating func push(_ path: String) {
    rest += pathNames(path).reversed().filter { $0 != "." }
  }

  private mutating func begin(_ path: String) throws(TrustedFile.Refusal) {
    let root = uninterrupted { Glibc.open("/", RX_O_PATH | O_DIRECTORY | O_CLOEXEC) }
    guard root >= 0 else { throw TrustedFile.Refusal(message: TrustedFile.cannotOpen("/")) }
    let found = FileDescriptor(root, name: "/")
    var status = stat()
    guard fstat(root, &status) == 0 else { throw TrustedFile.Refusal(message: TrustedFile.cannotOpen("/")) }
    if let problem = TrustedFile.strangeOwner(status, "/") { throw TrustedFile.Refusal(message: problem) }
    try enter(found, status, "/")
    push(path)
  }

  private mutating func enter(_ found: FileDescriptor, _ status: stat, _ name: String) throws(TrustedFile.Refusal) {
    let isShared = TrustedFile.isOpen(found.number, status)
    guard !isShared || status.st_mode & S_ISVTX != 0 else {
      throw TrustedFile.Refusal(message: TrustedFile.mayWrite(name))
    }
    places.append(Place(descriptor: found, name: name, isShared: isShared))
  }

  private func end(_ name: String, in directory: Place, _ shown: String) throws(TrustedFile.Refusal) -> FileDescriptor {
    if directory.isShared {
      throw TrustedFile.Refusal(
        message: "others may put files beside '\(shown)', which it could load: move it into a directory of its own")
    }
    let number = uninterrupted {
      openat(directory.descriptor.number, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC)
    }
    guard number >= 0 else { throw TrustedFile.Refusal(message: TrustedFile.cannotOpen(shown)) }
    let file = FileDescriptor(number, name: shown)
    var status = stat()
    guard fstat(number, &status) == 0, status.st_mode & S_IFMT == S_IFREG else {
      throw TrustedFile.Refusal(message: "'\(shown)' is no file")
    }
    if let problem = TrustedFile.problem(of: number, named: shown) { throw TrustedFile.Refusal(message: problem) }
    return file
  }
}
