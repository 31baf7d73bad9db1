import Glibc
import PipelineHost
import Testing

@testable import PipelineCore
@testable import Transport

/// A followed file that is rewritten, checked between the writes.
@Suite struct EarlierContentTests {
  private let folder = ScratchDirectory()
  private static let lines = (0..<40).map { "2026-11-27T18:00:\($0) a line of a log\n" }.joined()

  private func follow() throws -> FollowedFile {
    folder.append(Self.lines, to: "a")
    let file = try FoundFiles(by: [folder("a")], .trusted).open(folder("a"))
    let followed = FollowedFile(file, try file.status(), FileFollower.Options(paths: [folder("a")]))
    #expect(try read(followed) == .init(text: Self.lines))
    return followed
  }

  private struct Look: Equatable {
    var text = ""
    var waits = false
    var isSame = false
    var truncatedAt: Int64?
  }

  /// Reads until no more data is available.
  private func read(_ file: FollowedFile) throws -> Look {
    let small = UnsafeMutableRawBufferPointer.allocate(byteCount: 4096, alignment: 16)
    defer { small.deallocate() }
    var look = Look()
    while true {
      let progress = try file.read(64 << 10, small: small) { block, _ in
        look.text += String(decoding: block.slab.bytes, as: UTF8.self)
        _ = file.position(behind: block)
      }
      switch progress {
      case .waits: look.waits = true
      case .same: look.isSame = true
      case .truncated(let offset): look.truncatedAt = offset
      case .read, .caughtUp, .other: break
      case .end: return look
      }
      if look.waits { return look }
    }
  }

  @Test func aFileIsWrittenAnewInParts() throws {
    let file = try follow()
    truncate(folder("a"), 0)
    #expect(try read(file) == .init(waits: true))
    let cut = Self.lines.index(Self.lines.startIndex, offsetBy: 700)
    folder.append(String(Self.lines[..<cut]), to: "a")
    #expect(try read(file) == .init(waits: true))
    folder.append(Self.lines[cut...] + "one more\n", to: "a")
    #expect(try read(file) == .init(text: "one more\n", isSame: true))
    folder.append("and one\n", to: "a")
    #expect(try read(file) == .init(text: "and one\n"))
  }

  /// The partial line that was read is either continued or replaced.
  @Test func aLineThatHasBegun() throws {
    let file = try follow()
    folder.append("begun", to: "a")
    #expect(try read(file) == .init())
    truncate(folder("a"), 0)
    #expect(try read(file) == .init(waits: true))
    folder.append(Self.lines + "begins\n", to: "a")
    #expect(try read(file) == .init(text: "begins\n", isSame: true))
  }

  @Test func otherContentIsReadAtOnce() throws {
    let file = try follow()
    truncate(folder("a"), 0)
    #expect(try read(file) == .init(waits: true))
    folder.append("another line\n", to: "a")
    #expect(try read(file) == .init(text: "another line\n", truncatedAt: Int64(Self.lines.utf8.count)))
  }

  /// The same length, the same beginning, and another end.
  @Test func anotherEnd() throws {
    let file = try follow()
    truncate(folder("a"), 0)
    #expect(try read(file) == .init(waits: true))
    let other = Self.lines.dropLast(10) + "ends thus\n"
    folder.append(String(other), to: "a")
    #expect(try read(file) == .init(text: String(other), truncatedAt: Int64(Self.lines.utf8.count)))
  }

  /// A file that stays shorter counts as another one after a while, although it begins as before.
  @Test func aFileThatStaysShorter() throws {
    let file = try follow()
    let start = String(Self.lines.prefix(Self.lines.utf8.count / 2))
    truncate(folder("a"), off_t(start.utf8.count))
    #expect(try read(file) == .init(waits: true))
    let look = try Polling.first(within: 60) { () throws -> Look? in
      let look = try read(file)
      return look.waits ? nil : look
    }
    let end = start.lastIndex(of: "\n").map { start[...$0] } ?? ""
    #expect(look == .init(text: String(end), truncatedAt: Int64(Self.lines.utf8.count)))
  }
}
