import CLinux
import Glibc
import PipelineCore

/// The one rule of what rxd trusts: for the programs and libraries that it runs, its state, its secrets and its
/// sockets, and the links that it follows.
///
/// A file is trusted if only root and the user of the process can change it, or change where its path leads. So every
/// directory and every symbolic link on the path must belong to one of the two, and nobody else may write to it:
/// neither by its mode, nor as a member of its group, nor by its access list. A directory with the sticky bit, such as
/// `/tmp`, is allowed on the path, because others cannot rename what is not theirs; but not as the directory of the
/// file, where others could put further files next to it.
///
/// A trusted file cannot be replaced between the check and its use, so its path may be followed again.
package struct TrustedFile {
  /// The file, open for reading.
  package let descriptor: FileDescriptor

  package struct Refusal: Error, Sendable {
    /// A clause that begins with the path.
    package var message: String
  }

  /// Follows the path, one directory at a time, and opens the regular file at its end.
  package init(_ path: String) throws(Refusal) {
    do throws(PosixError) { descriptor = try Self.open(path) } catch {
      throw Refusal(
        message: error.operation == Self.trusting
          ? error.detail ?? "" : "'\(error.path)' cannot be opened: \(PosixError.text(error.code))")
    }
  }

  /// The operation named in errors that report a distrusted file.
  private static let trusting = "trust"

  private static func open(_ path: String) throws(PosixError) -> FileDescriptor {
    func distrust(_ why: String) -> PosixError { PosixError(trusting, path, code: EPERM, detail: why) }
    func look(_ entry: PathWalk.Entry, _ directory: PathWalk.Entry) throws(PosixError) {
      if let distrust = Distrust(of: entry, in: directory) {
        throw PosixError(trusting, path, code: EPERM, detail: distrust.text)
      }
    }
    var whole = path
    if path.utf8.first != UInt8(ascii: "/") {
      guard let current = Glob.currentDirectory else { throw PosixError("open", path) }
      whole = current + "/" + path
    }
    let root = try PathWalk.Entry(directory: "/", shownAs: "/")
    try look(root, root)
    var walk = PathWalk(whole, from: root)
    let (entry, name) = try walk.end(look)
    let shown = entry.descriptor.name
    guard entry.status.st_mode & S_IFMT == S_IFREG else { throw distrust("'\(shown)' is not a regular file") }
    if isOpen(walk.directory) {
      throw distrust("others may put files next to '\(shown)', which it could load: move it into a separate directory")
    }
    let file = try FileDescriptor.openRegular(name, in: walk.directory.descriptor, shownAs: shown)
    if let problem = problem(of: file.number, named: shown) { throw distrust(problem) }
    return file
  }

  /// The whole content; nil: the file cannot be read, or has more than `most` bytes.
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

  /// Why an open file or directory is not trusted, regardless of its path: a clause that begins with `name`. Nil: it is trusted.
  package static func problem(of descriptor: Int32, named name: String) -> String? {
    var status = stat()
    guard fstat(descriptor, &status) == 0 else { return "'\(name)' cannot be opened: \(PosixError.text(errno))" }
    if !isKnown(status.st_uid) { return Distrust.owner(status.st_uid, of: name).text }
    return isOpen(descriptor, status) ? Distrust.writable(name).text : nil
  }

  /// Whether anyone but root, the owner of an open file and the user of the process may write to it.
  package static func isWritableByOthers(_ descriptor: Int32) -> Bool {
    var status = stat()
    return fstat(descriptor, &status) != 0 || isOpen(descriptor, status)
  }

  // MARK: The rule

  static func isKnown(_ user: uid_t) -> Bool { user == 0 || user == geteuid() }

  /// How others could have created an entry of a directory, or could replace it.
  enum Distrust {
    case owner(uid_t, of: String)
    /// Others may write to the directory.
    case writable(String)

    /// Nil: they cannot. In a directory with the sticky bit, others cannot rename files that are not theirs.
    init?(of entry: PathWalk.Entry, in directory: PathWalk.Entry) {
      if !TrustedFile.isKnown(entry.status.st_uid) {
        self = .owner(entry.status.st_uid, of: entry.descriptor.name)
      } else if directory.status.st_mode & S_ISVTX == 0, TrustedFile.isOpen(directory) {
        self = .writable(directory.descriptor.name)
      } else {
        return nil
      }
    }

    /// A clause that begins with the path.
    var text: String {
      switch self {
      case .owner(let user, let name): "'\(name)' belongs to the user \(user), who could replace it"
      case .writable(let name): "others may write '\(name)': use chmod go-w on it"
      }
    }
  }

  static func isOpen(_ entry: PathWalk.Entry) -> Bool { isOpen(entry.descriptor.number, entry.status) }

  /// Whether anyone other than root and the user may write. The mode's group bits also limit the permissions that an
  /// access list can give to anybody but the owner.
  private static func isOpen(_ descriptor: Int32, _ status: stat) -> Bool {
    if status.st_mode & 0o002 != 0 { return true }
    guard status.st_mode & 0o020 != 0 else { return false }
    var list = [UInt8](repeating: 0, count: 64 << 10)
    let count = rx_access_list(descriptor, &list, list.count)
    // Without an access list the mode decides; a list that cannot be read could allow anything.
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

  /// Whether a group has no members but root and the user: root's group, or the user's own group of the same name.
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
    while let pointer = member, let one = pointer.pointee {
      if !["root", name].contains(String(cString: one)) { return false }
      member = pointer.advanced(by: 1)
    }
    return true
  }
}
