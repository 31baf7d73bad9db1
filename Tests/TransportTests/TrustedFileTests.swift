import CLinux
import Glibc
import PipelineHost
import Testing
import Transport

/// A file is trusted if only root and the user can change it, the directories on its path, or the files next to it.
@Suite struct TrustedFileTests {
  private static let isRoot = geteuid() == 0
  private static let other: uid_t = 65534
  /// An access list that lets a user or a group write.
  private static func list(_ tag: UInt16, _ permissions: UInt16, mask: UInt16 = 7) -> [UInt8] {
    var bytes: [UInt8] = [2, 0, 0, 0]
    func add(_ tag: UInt16, _ permissions: UInt16, _ identity: UInt32 = .max) {
      bytes += [UInt8(tag & 0xFF), UInt8(tag >> 8), UInt8(permissions), 0]
      bytes += (0..<4).map { UInt8(truncatingIfNeeded: identity >> (8 * $0)) }
    }
    add(0x01, 7)
    if tag == 0x02 { add(tag, permissions, other) }
    add(0x04, 5)
    if tag == 0x08 { add(tag, permissions, other) }
    add(0x10, mask)
    add(0x20, 5)
    return bytes
  }
  private static func set(_ list: [UInt8], of path: String) -> Bool {
    let number = open(path, O_RDONLY | O_CLOEXEC)
    defer { close(number) }
    return rx_set_attribute(number, "system.posix_acl_access", list, list.count) == 0
  }
  private static let hasLists: Bool = {
    let scratch = Scratch()
    scratch.append("x", to: "probe")
    return set(list(0x02, 5), of: scratch("probe"))
  }()

  private let scratch: Scratch

  init() {
    scratch = Scratch()
    mkdir(scratch("own"), 0o755)
    scratch.append("content", to: "own/file")
    chmod(scratch("own/file"), 0o644)
  }

  private func refusal(_ path: String) -> String? {
    do throws(TrustedFile.Refusal) {
      let file = try TrustedFile(path)
      return file.contents().map { String(decoding: $0, as: UTF8.self) } == "content" ? nil : "it has other contents"
    } catch { return error.message }
  }

  @Test func aFileOfTheUserIsTrusted() throws {
    #expect(refusal(scratch("own/file")) == nil)
    #expect(refusal(scratch("own/../own/./file")) == nil)
    #expect(refusal(scratch("own/file/")) == nil)
    symlink("own", scratch("link"))
    symlink(scratch("link"), scratch("far"))
    #expect(refusal(scratch("far/file")) == nil)
    #expect(refusal("/usr/bin/env") == "it has other contents")
  }

  @Test func whatIsNoFileIsRefused() throws {
    symlink("loop", scratch("loop"))
    mkfifo(scratch("fifo"), 0o600)
    #expect(refusal(scratch("own"))?.hasSuffix("is not a regular file") == true)
    #expect(refusal(scratch("fifo"))?.hasSuffix("is not a regular file") == true)
    #expect(refusal(scratch("own/file/more"))?.contains("Not a directory") == true)
    #expect(refusal(scratch("own/none"))?.contains("No such file or directory") == true)
    #expect(refusal(scratch("loop"))?.contains("Too many levels of symbolic links") == true)
  }

  /// A slash before a combining mark is a separator, too.
  @Test func aCombiningMarkHidesNoDirectory() throws {
    let path = scratch("own/\u{301}file")
    scratch.append("content", to: "own/\u{301}file")
    chmod(path, 0o644)
    #expect(refusal(path) == nil)
    chmod(scratch("own"), 0o757)
    #expect(refusal(path)?.hasSuffix("own': use chmod go-w on it") == true)
  }

  @Test func othersMayNotWriteByTheMode() throws {
    chmod(scratch("own/file"), 0o646)
    #expect(refusal(scratch("own/file"))?.hasPrefix("others may write '") == true)
    chmod(scratch("own/file"), 0o644)
    chmod(scratch("own"), 0o757)
    #expect(refusal(scratch("own/file"))?.hasSuffix("own': use chmod go-w on it") == true)
    // A link points through a directory that others may write to.
    mkdir(scratch("other"), 0o755)
    symlink("../own/file", scratch("other/link"))
    #expect(refusal(scratch("other/link"))?.contains("own'") == true)
    chmod(scratch("own"), 0o755)
    #expect(refusal(scratch("other/link")) == nil)
    chmod(scratch("other"), 0o757)
    #expect(refusal(scratch("other/link"))?.contains("other'") == true)
  }

  /// In a directory with the sticky bit others cannot replace entries, but can add files next to them.
  @Test func aStickyDirectoryMayStandOnTheWay() throws {
    mkdir(scratch("shared"), 0o777)
    chmod(scratch("shared"), 0o1777)
    mkdir(scratch("shared/mine"), 0o755)
    scratch.append("content", to: "shared/mine/file")
    scratch.append("content", to: "shared/file")
    #expect(refusal(scratch("shared/mine/file")) == nil)
    #expect(refusal(scratch("shared/file"))?.hasPrefix("others may put files next to '") == true)
  }

  @Test(.enabled(if: hasLists, "needs a file system with access lists"))
  func othersMayNotWriteByTheAccessList() throws {
    for tag: UInt16 in [0x02, 0x08] {
      try #require(Self.set(Self.list(tag, 7), of: scratch("own/file")))
      #expect(refusal(scratch("own/file"))?.hasPrefix("others may write '") == true, "\(tag)")
      // Rights that the mask removes are not granted.
      try #require(Self.set(Self.list(tag, 7, mask: 5), of: scratch("own/file")))
      #expect(refusal(scratch("own/file")) == nil, "\(tag)")
      try #require(Self.set(Self.list(tag, 5), of: scratch("own/file")))
      #expect(refusal(scratch("own/file")) == nil, "\(tag)")
    }
    try #require(Self.set(Self.list(0x02, 7), of: scratch("own")))
    #expect(refusal(scratch("own/file"))?.contains("own': use chmod") == true)
  }

  @Test(.enabled(if: isRoot, "needs root")) func thingsOfOtherUsersAreRefused() throws {
    chown(scratch("own/file"), Self.other, 0)
    #expect(refusal(scratch("own/file"))?.contains("belongs to the user 65534, who could replace it") == true)
    chown(scratch("own/file"), 0, 0)
    // The link of another user leads here, until that user changes it.
    symlink("own/file", scratch("link"))
    lchown(scratch("link"), Self.other, 0)
    #expect(refusal(scratch("link"))?.contains("link' belongs to the user 65534") == true)
    chown(scratch("own"), Self.other, 0)
    #expect(refusal(scratch("own/file"))?.contains("own' belongs to the user 65534") == true)
  }

  /// The members of a group are other users, even of the group that the process is in.
  @Test(.enabled(if: isRoot, "needs root")) func groupsAreOthers() throws {
    chmod(scratch("own/file"), 0o664)
    chown(scratch("own/file"), 0, gid_t(Self.other))
    #expect(refusal(scratch("own/file"))?.hasPrefix("others may write '") == true)
    chown(scratch("own/file"), 0, 0)
    #expect(refusal(scratch("own/file")) == nil)
  }

  // MARK: One rule

  /// Why a link in the directory is not followed when a pattern has found it; nil: it is followed.
  private func refusedLink(_ name: String) -> String? {
    do throws(PosixError) {
      _ = try FoundFiles(by: [scratch("*/*")], .trusted).open(scratch(name))
      return nil
    } catch { return error.isRefusedLink ? error.message : "another error: \(error.message)" }
  }

  /// A user who could replace a file that rxd would run could replace a link that it would follow: both are refused in the same directories.
  @Test func filesAndLinksAreTrustedAlike() throws {
    symlink(scratch("own/file"), scratch("own/link"))
    func check(_ isTrusted: Bool, _ what: String) {
      #expect((refusal(scratch("own/file")) == nil) == isTrusted, "\(what)")
      #expect((refusedLink("own/link") == nil) == isTrusted, "\(what): \(refusedLink("own/link") ?? "followed")")
      #expect((refusedLink("own/link")?.contains("others may write to the directory") ?? false) != isTrusted, "\(what)")
    }
    for mode: mode_t in [0o700, 0o750, 0o755, 0o711] {
      chmod(scratch("own"), mode)
      check(true, String(mode, radix: 8))
    }
    for mode: mode_t in [0o757, 0o777, 0o702] {
      chmod(scratch("own"), mode)
      check(false, String(mode, radix: 8))
    }
    chmod(scratch("own"), 0o755)
    if Self.hasLists {
      for tag: UInt16 in [0x02, 0x08] {
        try #require(Self.set(Self.list(tag, 7), of: scratch("own")))
        check(false, "a list with \(tag)")
        try #require(Self.set(Self.list(tag, 5), of: scratch("own")))
        check(true, "a list with \(tag) to read")
      }
    }
  }

  /// A log directory as packages create it: a group may read it. One that a group may write to is not trusted.
  @Test(.enabled(if: isRoot, "needs root")) func groupsMayReadFoldersOfLogs() throws {
    symlink(scratch("own/file"), scratch("own/link"))
    chown(scratch("own"), 0, gid_t(Self.other))
    for mode: mode_t in [0o750, 0o2750, 0o755] {
      chmod(scratch("own"), mode)
      #expect(refusedLink("own/link") == nil && refusedLink("own/file") == nil, "\(mode)")
    }
    for mode: mode_t in [0o770, 0o2775] {
      chmod(scratch("own"), mode)
      #expect(refusedLink("own/link")?.contains("others may write to the directory") == true, "\(mode)")
      // A file that is not a link is read: a user who may write to the directory can only write to it.
      #expect(refusedLink("own/file") == nil, "\(mode)")
    }
  }

  /// In a directory with the sticky bit only owners can replace their entries.
  @Test func linksInStickyDirectoriesAreTheirOwners() throws {
    mkdir(scratch("shared"), 0o777)
    chmod(scratch("shared"), 0o1777)
    symlink(scratch("own/file"), scratch("shared/link"))
    #expect(refusedLink("shared/link") == nil)
    if Self.isRoot {
      lchown(scratch("shared/link"), Self.other, gid_t(Self.other))
      #expect(refusedLink("shared/link")?.contains("user 65534 owns the symbolic link") == true)
    }
  }
}
