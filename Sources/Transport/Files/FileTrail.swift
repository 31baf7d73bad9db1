import CLinux
import Glibc

/// Which symbolic links to files are followed.
package enum LinkPolicy: String, Sendable {
  /// Only links that root or the user of this process owns, in directories in which nobody else can replace them
  /// (``TrustedFile/Distrust``).
  case trusted
  case always
  case never
}

/// The target of a path, and the directories whose entries determine it.
struct FileTrail {
  /// The path with all links resolved; its last part may not exist.
  var target = ""
  /// The paths of the links on the way, with the links in their directories resolved.
  var links: [String] = []
  /// The directories of the links and of the target; empty without links.
  var directories: [String] = []

  /// The maximum number of links, which is the kernel's.
  static let mostLinks = 40
}

/// Finds out where paths lead; each directory is examined once.
struct FileTrails {
  private var known: [String: FileTrail] = [:]
  /// The status of entries that are not links, by path, kept because examining an entry gives both.
  private(set) var statuses: [String: FileDescriptor.Status] = [:]

  /// The trail of a path; nil: there is no link on the way.
  mutating func trail(of path: String) -> FileTrail? {
    var trail = self[path, 0]
    guard !trail.links.isEmpty else { return nil }
    trail.directories.append(splitPath(trail.target).directory)
    return trail
  }

  /// The trail of a path, after `count` links.
  private subscript(path: String, count: Int) -> FileTrail {
    mutating get {
      let (directory, name) = splitPath(path)
      var trail = FileTrail()
      switch directory {
      case ".", "/": trail.target = directory
      default:
        if let known = known[directory] {
          trail = known
        } else {
          trail = self[directory, count]
          known[directory] = trail
        }
      }
      switch name {
      case "", ".": return trail
      case "..":
        let last = splitPath(trail.target)
        trail.target =
          trail.target == "." || last.name == ".."
          ? Glob.join(trail.target, "..") : trail.target == "/" ? "/" : last.directory
        return trail
      default: break
      }
      let parent = trail.target
      let full = Glob.join(parent, name)
      guard count + trail.links.count < FileTrail.mostLinks, let link = link(full) else {
        trail.target = full
        return trail
      }
      trail.links.append(full)
      trail.directories.append(parent)
      let isWhole = parent == "." || link.utf8.first == UInt8(ascii: "/")
      let rest = self[isWhole ? link : "\(parent)/\(link)", count + trail.links.count]
      trail.target = rest.target
      trail.links += rest.links
      trail.directories += rest.directories
      return trail
    }
  }

  /// The target text of a link; nil: the entry is not a link.
  private mutating func link(_ path: String) -> String? {
    var raw = stat()
    guard uninterrupted({ fstatat(AT_FDCWD, path, &raw, AT_SYMLINK_NOFOLLOW) }) == 0 else { return nil }
    guard raw.st_mode & S_IFMT == S_IFLNK else {
      statuses[path] = FileDescriptor.Status(raw)
      return nil
    }
    return Self.text { readlink(path, $0, $1) }
  }

  /// The text that `read` writes, which is readlink(2) or readlinkat(2); nil: it fails.
  static func text(_ read: (UnsafeMutablePointer<CChar>, Int) -> Int) -> String? {
    withUnsafeTemporaryAllocation(of: CChar.self, capacity: Int(PATH_MAX)) { space in
      guard let start = space.baseAddress, case let count = read(start, space.count), count > 0 else { return nil }
      return String(decoding: UnsafeRawBufferPointer(UnsafeBufferPointer(space)).prefix(count), as: UTF8.self)
    }
  }
}

extension PosixError {
  /// The operation of an error about a link that the policy refuses.
  static let followingLink = "follow"
  /// Whether a link on the way was not followed, because of its owner or its directory.
  package var isRefusedLink: Bool { operation == Self.followingLink && code == ELOOP }
}

extension FileDescriptor {
  /// Opens a regular file for reading like ``openForReading(_:kinds:)``, but walks the directories below `base` one by
  /// one, and follows links there according to `links`.
  ///
  /// - Parameter base: A directory, the start of the path; links in it are followed.
  static func openForReading(_ path: String, below base: String, _ links: LinkPolicy) throws(PosixError)
    -> FileDescriptor
  {
    if links == .always { return try openForReading(path) }
    let start = base == "." ? path : String(decoding: path.utf8.dropFirst(base.utf8.count), as: UTF8.self)
    var walk = PathWalk(start, from: try PathWalk.Entry(directory: base, shownAs: path), shownAs: path)
    let (_, name) = try walk.end { entry, directory throws(PosixError) in
      guard entry.isLink else { return }
      let why: String
      if links == .never {
        why = "it is a symbolic link, or below one"
      } else {
        switch TrustedFile.Distrust(of: entry, in: directory) {
        case nil: return
        case .owner(let user, _): why = "user \(user) owns the symbolic link on the path"
        case .writable: why = "others may write to the directory of the symbolic link on the path"
        }
      }
      throw PosixError(PosixError.followingLink, path, code: ELOOP, detail: why)
    }
    if name.isEmpty { throw PosixError("read", path, code: EINVAL, detail: "it is \(Kind.directory.rawValue)") }
    return try openRegular(name, in: walk.directory.descriptor, shownAs: path)
  }

  /// Opens a regular file in a directory for reading; a link is not followed.
  static func openRegular(_ name: String, in directory: FileDescriptor, shownAs path: String) throws(PosixError)
    -> FileDescriptor
  {
    let flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY | O_NOFOLLOW
    let number = uninterrupted { openat(directory.number, name, flags) }
    if number < 0 { throw PosixError("open", path) }
    let opened = FileDescriptor(number, name: path)
    let kind = try opened.status().kind
    guard kind == .regular else { throw PosixError("read", path, code: EINVAL, detail: "it is \(kind.rawValue)") }
    return opened
  }
}

/// File systems on which other machines can change files without an event from this machine's kernel.
package enum NetworkFileSystem {
  private static let names: [UInt32: String] = [
    0x6969: "nfs", 0xFF53_4D42: "cifs", 0xFE53_4D42: "smb", 0x517B: "smb", 0x6573_5546: "fuse", 0x0102_1997: "9p",
    0x00C3_6400: "ceph", 0x5346_414F: "afs", 0x6B41_4653: "afs", 0x7375_7245: "coda", 0x0BD0_0BD0: "lustre",
    0x4750_4653: "gpfs", 0x0116_1970: "gfs2", 0x7461_636F: "ocfs2", 0x1983_0326: "beegfs", 0x2003_0528: "orangefs",
    0xAAD7_AAEA: "panfs", 0x786F_4256: "vboxsf", 0xBACB_ACBC: "vmhgfs", 0x7C7C_6673: "prl_fs", 0x564C: "ncpfs",
  ]

  /// The name of the path's file system, if it is one of these.
  package static func name(of path: String) -> String? {
    names[rx_file_system(path)]
  }
}
