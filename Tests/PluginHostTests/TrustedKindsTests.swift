import CLinux
import Foundation
import Glibc
import PipelineCore
import PipelineHost
import PipelineRuntime
import Testing
import Transport

@testable import PluginHost

/// Every file that rxd trusts because of its owner and mode is checked alike: a plugin's program, the script of an interpreter, a shared library, a
/// file that a plugin uses, the installed spec of a plugin. For a secret the same applies to its file; the directory given on the command line is
/// trusted.
@Suite struct TrustedKindsTests {
  enum Kind: CaseIterable { case program, script, library, used, spec, secret }

  /// A change of the folder `own` and the file `own/file` in it, and which files are then trusted.
  struct Case: Sendable, CustomStringConvertible {
    var name: String
    var isTrusted: Bool
    /// For a secret; nil: as for the others.
    var secret: Bool?
    var needsRoot = false
    var needsLists = false
    /// The path of the file, relative to the folder.
    var path = "own/file"
    var change: @Sendable (Scratch) -> Void
    var description: String { name }
  }

  private static let other: uid_t = 65_534

  /// An access list that grants another user, or a group, the rights in `permissions`.
  private static func setList(_ path: String, _ tag: UInt16, _ permissions: UInt16, mask: UInt16 = 7) {
    var bytes: [UInt8] = [2, 0, 0, 0]
    func add(_ tag: UInt16, _ permissions: UInt16, _ identity: UInt32 = .max) {
      bytes += [UInt8(tag & 0xFF), UInt8(tag >> 8), UInt8(permissions), 0]
      bytes += (0..<4).map { UInt8(truncatingIfNeeded: identity >> (8 * $0)) }
    }
    add(0x01, 7)
    if tag == 0x02 { add(tag, permissions, other) }
    add(0x04, 4)
    if tag == 0x08 { add(tag, permissions, other) }
    add(0x10, mask)
    add(0x20, 0)
    let number = open(path, O_RDONLY | O_CLOEXEC)
    defer { close(number) }
    _ = rx_set_attribute(number, "system.posix_acl_access", bytes, bytes.count)
  }

  private static let hasLists: Bool = {
    let scratch = Scratch()
    scratch.append("x", to: "probe")
    setList(scratch("probe"), 0x02, 7)
    let number = open(scratch("probe"), O_RDONLY | O_CLOEXEC)
    defer { close(number) }
    var list = [UInt8](repeating: 0, count: 256)
    return rx_access_list(number, &list, list.count) > 0
  }()

  static let cases: [Case] = [
    Case(name: "as it is", isTrusted: true) { _ in },
    Case(name: "every user may write it", isTrusted: false) { chmod($0("own/file"), 0o702) },
    Case(name: "every user may write its folder", isTrusted: false, secret: true) { chmod($0("own"), 0o707) },
    Case(name: "in a folder with the sticky bit", isTrusted: false, secret: true) { chmod($0("own"), 0o1777) },
    Case(name: "in a folder of its own below one", isTrusted: true, path: "shared/mine/file") { scratch in
      mkdir(scratch("shared"), 0o777)
      chmod(scratch("shared"), 0o1777)
      mkdir(scratch("shared/mine"), 0o700)
      rename(scratch("own/file"), scratch("shared/mine/file"))
    },
    Case(name: "by a link of the user", isTrusted: true, path: "link") { symlink("own/file", $0("link")) },
    Case(name: "by a link over a folder that every user may write", isTrusted: false, secret: true, path: "link") {
      symlink("own/file", $0("link"))
      chmod($0("own"), 0o707)
    },
    Case(name: "a list lets a user write it", isTrusted: false, needsLists: true) { setList($0("own/file"), 0x02, 6) },
    Case(name: "a list lets a group write it", isTrusted: false, needsLists: true) { setList($0("own/file"), 0x08, 6) },
    Case(name: "a list that its mask takes back", isTrusted: true, needsLists: true) {
      setList($0("own/file"), 0x02, 6, mask: 4)
    },
    Case(name: "a list to read", isTrusted: true, needsLists: true) { setList($0("own/file"), 0x02, 4, mask: 4) },
    Case(name: "a list lets a user write its folder", isTrusted: false, secret: true, needsLists: true) {
      setList($0("own"), 0x02, 7)
    },
    Case(name: "another user owns it", isTrusted: false, secret: true, needsRoot: true) {
      chown($0("own/file"), other, 0)
    },
    Case(name: "another user owns its folder", isTrusted: false, secret: true, needsRoot: true) {
      chown($0("own"), other, 0)
    },
    Case(name: "a group that has others may write it", isTrusted: false, needsRoot: true) {
      chown($0("own/file"), 0, other)
      chmod($0("own/file"), 0o720)
    },
    Case(name: "a group that has others may read it", isTrusted: true, needsRoot: true) {
      chown($0("own/file"), 0, other)
      chmod($0("own/file"), 0o740)
    },
    Case(name: "a group that has others may write its folder", isTrusted: false, secret: true, needsRoot: true) {
      chown($0("own"), 0, other)
      chmod($0("own"), 0o770)
    },
    Case(name: "by a link of another user", isTrusted: false, secret: true, needsRoot: true, path: "link") {
      symlink("own/file", $0("link"))
      lchown($0("link"), other, other)
    },
  ]

  private func isTrusted(_ kind: Kind, _ path: String, in folder: String) -> Bool {
    func plugin(_ program: String, _ form: PluginFile.Form, uses: [String] = []) -> Bool {
      var file = PluginFile(path: program, form: form, directory: folder + "/")
      file.uses = uses
      return file.refusal() == nil
    }
    switch kind {
    case .program: return plugin(path, .program(arguments: []))
    case .script: return plugin("/bin/sh", .program(arguments: [path], isInterpreter: true))
    case .library: return plugin(path, .native)
    case .used: return plugin("/bin/sh", .program(arguments: []), uses: [path])
    case .spec: return PluginFile.contents(path) == Array("content".utf8)
    case .secret:
      var inputs = PipelineLoader.Inputs()
      let (directory, name) = (path.split(separator: "/").dropLast(), path.split(separator: "/").last ?? "")
      inputs.secretDirectories = ["/" + directory.joined(separator: "/")]
      let text =
        "sources: { s: { http: { url: 'http://127.0.0.1/', auth: { bearer: '${secret:\(name)}' } } } }\nsinks: { o: { from: s, discard: {} } }"
      let found = PipelineLoader(inputs).compile("a.yaml", SourceText(name: "a.yaml", text: text)).diagnostics
      return !found.contains { $0.severity == .error }
    }
  }

  private func check(_ one: Case) {
    if one.needsLists, !Self.hasLists { return }
    for kind in Kind.allCases {
      let scratch = Scratch()
      mkdir(scratch("own"), 0o700)
      scratch.append("content", to: "own/file")
      chmod(scratch("own/file"), 0o700)
      one.change(scratch)
      let expected = kind == .secret ? one.secret ?? one.isTrusted : one.isTrusted
      #expect(isTrusted(kind, scratch(one.path), in: scratch.path) == expected, "\(kind): \(one.name)")
    }
  }

  @Test(arguments: cases.filter { !$0.needsRoot }) func allKindsAreTrustedAlike(_ one: Case) { check(one) }

  @Test(.enabled(if: geteuid() == 0, "needs root"), arguments: cases.filter(\.needsRoot))
  func allKindsOfOtherUsersAreTrustedAlike(_ one: Case) { check(one) }

  /// The checked file is the one that is read, even if its path names another file by then.
  @Test func aFileThatIsExchanged() throws {
    let scratch = Scratch()
    mkdir(scratch("own"), 0o700)
    scratch.append("content", to: "own/file")
    let file = try TrustedFile(scratch("own/file"))
    scratch.append("another", to: "own/new")
    #expect(rename(scratch("own/new"), scratch("own/file")) == 0)
    #expect(file.contents() == Array("content".utf8))
    chmod(scratch("own/file"), 0o702)
    #expect(PluginFile.contents(scratch("own/file")) == nil)
  }
}
