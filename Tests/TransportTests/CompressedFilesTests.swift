import Foundation
import Glibc
import PipelineCore
import PipelineHost
import PipelineTestSupport
import Testing

@testable import Transport

/// Followed files that rotation has compressed before they were read to the end, by real programs.
@Suite struct CompressedFilesTests {
  let directory = ScratchDirectory()

  private func run(_ arguments: String...) throws { try run(arguments) }

  private func run(_ arguments: [String]) throws {
    let process = Process()
    process.executableURL = URL(fileURLWithPath: "/usr/bin/env")
    process.arguments = arguments
    try process.run()
    process.waitUntilExit()
    try #require(process.terminationStatus == 0)
  }

  private func gzip(_ name: String) throws { try run("gzip", directory(name)) }

  private func move(_ name: String, to other: String) { #expect(rename(directory(name), directory(other)) == 0) }

  private func bytes(_ name: String) -> [UInt8] {
    [UInt8](FileManager.default.contents(atPath: directory(name)) ?? Data())
  }

  private func write(_ bytes: ArraySlice<UInt8>, to name: String) {
    let file = open(directory(name), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0o600)
    defer { close(file) }
    #expect(bytes.withUnsafeBytes { Glibc.write(file, $0.baseAddress, $0.count) } == bytes.count)
  }

  /// Lines that compress poorly.
  private func lines(_ numbers: Range<Int>) -> String {
    var random = SplitMix(1)
    return numbers.map { "\($0) \(random.next())\n" }.joined()
  }

  /// The positions after the text was read and the follower has ended.
  private func read(_ text: String, _ pattern: String = "a.log") throws -> [FilePosition] {
    directory.append(text, to: "a.log")
    let running = try Following([directory(pattern)])
    #expect(running.seen.wait(for: text))
    return running.stop()
  }

  private static let programs: [[String]] =
    [["gzip"]] + (access("/usr/bin/zstd", X_OK) == 0 ? [["zstd", "-q", "--rm"]] : [])

  @Test(arguments: programs, ["a.log.1", "a.log-20261122"])
  func isReadToItsEndAfterwards(_ program: [String], _ name: String) throws {
    let positions = try read("1\n2\n")
    directory.append("3\n4", to: "a.log")
    move("a.log", to: name)
    try run(program + [directory(name)])
    directory.append("5\n", to: "a.log")
    let running = try Following([directory("a.log")], resuming: positions)
    let ending = program[0] == "gzip" ? ".gz" : ".zst"
    #expect(running.isFinished(name + ending))
    // The last line has no line feed.
    #expect(running.seen.wait(for: "3\n45\n"))
    let first = running.seen.state.withLock { $0.files.first }
    #expect(first?.lines.offset == 4 && first?.path == directory(name + ending))
    let position = try positions.item(0)
    #expect(running.notices.contains { if case .compressed(position, _) = $0 { true } else { false } })
    #expect(running.stop().map(\.path) == [directory("a.log")])
  }

  /// Several rotations without a reader, including older files that had been read before.
  @Test(arguments: ["a.log", "a.log*"]) func severalRotations(_ pattern: String) throws {
    directory.append("0\n", to: "a.log.4")
    try gzip("a.log.4")
    let positions = try read("1\n", pattern)
    directory.append("2\n", to: "a.log")
    for number in 3...4 {
      for old in stride(from: 4, through: 1, by: -1) where access(directory("a.log.\(old).gz"), F_OK) == 0 {
        move("a.log.\(old).gz", to: "a.log.\(old + 1).gz")
      }
      move("a.log", to: "a.log.1")
      try gzip("a.log.1")
      directory.append("\(number)\n", to: "a.log")
    }
    // The youngest is not compressed yet.
    for old in stride(from: 5, through: 1, by: -1) where access(directory("a.log.\(old).gz"), F_OK) == 0 {
      move("a.log.\(old).gz", to: "a.log.\(old + 1).gz")
    }
    move("a.log", to: "a.log.1")
    directory.append("5\n", to: "a.log")
    let running = try Following([directory(pattern)], resuming: positions)
    #expect(running.seen.wait(for: "2\n3\n4\n5\n"))
    #expect(running.isFinished("a.log.2.gz") && running.isFinished("a.log.3.gz"))
    directory.append("6\n", to: "a.log")
    #expect(running.seen.wait(for: "2\n3\n4\n5\n6\n"))
  }

  /// As before, with the youngest rotated file uncompressed; it is not read twice when it is compressed later.
  @Test func compressedOneRotationLater() throws {
    let positions = try read("1\n")
    directory.append("2\n", to: "a.log")
    move("a.log", to: "a.log.1")
    directory.append("3\n", to: "a.log")
    let running = try Following([directory("a.log")], resuming: positions)
    #expect(running.seen.wait(for: "2\n3\n"))
    #expect(running.isFinished("a.log.1"))
    move("a.log.1", to: "a.log.2")
    move("a.log", to: "a.log.1")
    directory.append("4\n", to: "a.log")
    try gzip("a.log.2")
    try gzip("a.log.1")
    directory.append("5\n", to: "a.log")
    #expect(running.seen.wait(for: "2\n3\n4\n5\n"))
    let last = running.stop()
    let next = try Following([directory("a.log")], resuming: last)
    directory.append("6\n", to: "a.log")
    #expect(next.seen.wait(for: "6\n"))
  }

  /// The compressing program has not removed the file yet.
  @Test func bothExist() throws {
    let positions = try read("1\n")
    directory.append("2\n", to: "a.log")
    move("a.log", to: "a.log.1")
    try run("gzip", "-k", directory("a.log.1"))
    directory.append("3\n", to: "a.log")
    let running = try Following([directory("a.log")], resuming: positions)
    #expect(running.seen.wait(for: "2\n3\n"))
    unlink(directory("a.log.1"))
    #expect(running.isFinished("a.log.1"))
    directory.append("4\n", to: "a.log")
    #expect(running.seen.wait(for: "2\n3\n4\n"))
  }

  /// Following ends in the middle, and continues after another rotation: nothing is missing or repeated.
  @Test(arguments: [1, 10, 200]) func endsInTheMiddle(_ blocks: Int) throws {
    let positions = try read("begin\n")
    let text = lines(0..<20_000)
    directory.append(text, to: "a.log")
    move("a.log", to: "a.log.1")
    try gzip("a.log.1")
    directory.append("end\n", to: "a.log")
    let left = Guarded(blocks)
    let isStopped = Guarded(false)
    let first = try Following(
      [directory("a.log")], resuming: positions, change: { $0.blockBytes = 1024 },
      deliver: { _ in
        if left.withLock({ rest -> Bool in
          rest -= 1
          return rest == 0
        }) {
          left.notify()
          _ = isStopped.wait(until: monotonicNow() + 60_000_000_000) { $0 ? true : nil }
        }
      }
    )
    #expect(left.wait(until: monotonicNow() + 60_000_000_000) { $0 <= 0 ? true : nil } == true)
    first.follower.stop()
    isStopped.withLock { $0 = true }
    isStopped.notify()
    let ended = first.stop()
    let read = first.seen.text
    #expect(read.utf8.count < text.utf8.count)
    #expect(ended.contains { $0.path == directory("a.log.1.gz") && $0.offset == Int64(6 + read.utf8.count) })
    move("a.log.1.gz", to: "a.log.2.gz")
    move("a.log", to: "a.log.1")
    try gzip("a.log.1")
    directory.append("new\n", to: "a.log")
    let second = try Following([directory("a.log")], resuming: ended)
    #expect(second.seen.wait(for: String(text.dropFirst(read.utf8.count)) + "end\nnew\n"))
  }

  /// An incomplete compressed file is waited for, at whatever byte it ends.
  @Test(arguments: [0, 5, 12, 300, 20_000]) func unfinished(_ count: Int) throws {
    let head = lines(0..<10)
    let positions = try read(head)
    let text = lines(10..<4000)
    directory.append(text, to: "a.log")
    try gzip("a.log")
    let compressed = bytes("a.log.gz")
    unlink(directory("a.log.gz"))
    write(compressed[..<count], to: "a.log.1.gz")
    let running = try Following([directory("a.log")], resuming: positions)
    #expect(
      running.seen.wait { $0.notices.contains { if case .waiting = $0 { true } else { false } } })
    write(compressed[count...], to: "a.log.1.gz")
    #expect(running.seen.wait(for: text))
    #expect(running.isFinished("a.log.1.gz"))
    #expect(!running.notices.contains { if case .damaged = $0 { true } else { false } })
    directory.append("new\n", to: "a.log")
    #expect(running.seen.wait(for: text + "new\n"))
  }

  /// The wait is limited, and the loss is reported.
  @Test func neverFinished() throws {
    let head = lines(0..<10)
    let positions = try read(head)
    directory.append(lines(10..<4000), to: "a.log")
    let text = directory.read("a.log")
    try gzip("a.log")
    let compressed = bytes("a.log.gz")
    unlink(directory("a.log.gz"))
    write(compressed[..<30_000], to: "a.log.1.gz")
    directory.append("new\n", to: "a.log")
    let running = try Following([directory("a.log")], resuming: positions) { $0.unfinishedWait = .milliseconds(100) }
    try damagedAfterAPart(running, of: text, from: head, as: .unfinished)
  }

  /// Data before the damage is read; the rest is lost, which is reported.
  @Test func damaged() throws {
    let head = lines(0..<10)
    let positions = try read(head)
    directory.append(lines(10..<4000), to: "a.log")
    let text = directory.read("a.log")
    try gzip("a.log")
    var compressed = bytes("a.log.gz")
    unlink(directory("a.log.gz"))
    for at in 30_000..<30_100 { compressed[at] = 0xFF }
    write(compressed[...], to: "a.log.1.gz")
    directory.append("new\n", to: "a.log")
    let running = try Following([directory("a.log")], resuming: positions)
    try damagedAfterAPart(running, of: text, from: head, as: .damaged)
  }

  private func damagedAfterAPart(
    _ running: Following, of text: String, from head: String, as damage: FileFollower.Damage
  ) throws {
    #expect(running.isFinished("a.log.1.gz"))
    #expect(running.seen.wait { $0.bytes.suffix(4) == Array("new\n".utf8) })
    let notice = try #require(
      running.notices.first { if case .damaged(_, damage) = $0 { true } else { false } })
    guard case .damaged(let position, _) = notice else { return }
    #expect(position.path == directory("a.log.1.gz"))
    var read = running.seen.text.replacingOccurrences(of: "new\n", with: "")
    #expect(Int(position.offset) == head.utf8.count + read.utf8.count && read.hasSuffix("\n"))
    #expect(read.utf8.count > 30_000)
    // Damaged bytes that can be decompressed are detected at the end of their block.
    if damage == .damaged { read = String(read.prefix(30_000)) }
    #expect(text.utf8.dropFirst(head.utf8.count).starts(with: read.utf8))
  }

  /// Damage that only the checksum at the end reveals.
  @Test func damagedAtItsEnd() throws {
    let positions = try read("1\n")
    directory.append("2\n", to: "a.log")
    try gzip("a.log")
    var compressed = bytes("a.log.gz")
    unlink(directory("a.log.gz"))
    compressed[compressed.count - 8] ^= 1
    write(compressed[...], to: "a.log.1.gz")
    directory.append("new\n", to: "a.log")
    let running = try Following([directory("a.log")], resuming: positions)
    #expect(running.seen.wait(for: "2\nnew\n"))
    #expect(running.isFinished("a.log.1.gz"))
    #expect(running.notices.contains { if case .damaged(let at, .damaged) = $0 { at.offset == 4 } else { false } })
  }

  /// None of it can be decompressed, so it is not recognized as the file.
  @Test func damagedAtItsStart() throws {
    let positions = try read("1\n")
    unlink(directory("a.log"))
    write([0x1F, 0x8B, 8, 0, 0, 0, 0, 0, 0, 3, 0xFF, 0xFF, 0xFF, 0xFF], to: "a.log.1.gz")
    directory.append("new\n", to: "a.log")
    let running = try Following([directory("a.log")], resuming: positions)
    #expect(running.seen.wait(for: "new\n"))
    let failure = PosixError("decompress", directory("a.log.1.gz"), code: EINVAL, detail: "it is damaged")
    #expect(
      try running.notices.contains(.failed(failure)) && running.notices.contains(.gone(positions.item(0), .replaced)))
  }

  /// Of two files with the same beginning, the older one ended before the followed file was created.
  @Test func otherFilesThatStartTheSame() throws {
    let head = String(repeating: "head ", count: 100) + "\n"
    directory.append(head + "old\n", to: "a.log.1")
    try gzip("a.log.1")
    // Creation times and changes are distinguished by a file system clock that ticks every few milliseconds.
    while true {
      directory.append("", to: "tick")
      let file = try FileDescriptor.openForReading(directory("tick"))
      if isLater(file, than: directory("a.log.1.gz")) { break }
      unlink(directory("tick"))
    }
    let positions = try read(head + "1\n")
    directory.append("2\n", to: "a.log")
    move("a.log.1.gz", to: "a.log.2.gz")
    move("a.log", to: "a.log.1")
    try gzip("a.log.1")
    directory.append(head + "3\n", to: "a.log")
    let running = try Following([directory("a.log")], resuming: positions)
    #expect(running.seen.wait(for: "2\n" + head + "3\n"))
    #expect(running.isFinished("a.log.1.gz"))
  }

  private func isLater(_ file: FileDescriptor, than path: String) -> Bool {
    guard let status = FileDescriptor.Status(path: path), let own = try? file.status() else { return true }
    return own.modified > status.modified
  }

  /// A compressed copy of a truncated file.
  @Test(arguments: ["9\n", "9\n10\n11\n12\n"]) func copiedTruncatedAndCompressed(_ new: String) throws {
    let before = Int64(time(nil)) * 1_000_000_000
    directory.append("1\n2\n3\n", to: "a.log.1")
    try gzip("a.log.1")
    utimes(directory("a.log.1.gz"), [timeval(), timeval()])
    let positions = try read("1\n2\n3\n")
    directory.append("4\n", to: "a.log")
    move("a.log.1.gz", to: "a.log.2.gz")
    directory.append(directory.read("a.log"), to: "a.log.1")
    truncate(directory("a.log"), 0)
    directory.append(new, to: "a.log")
    try gzip("a.log.1")
    let running = try Following([directory("a.log")], resuming: positions) { $0.savedAt = before }
    #expect(running.seen.wait(for: "4\n" + new))
  }

  /// A file that is renamed and compressed before it could be opened, because an earlier block had not been taken.
  @Test(arguments: ["a.log", "a.log*"]) func neverOpened(_ pattern: String) throws {
    let isHeld = Guarded(true)
    let hasBegun = Guarded(false)
    let running = try Following(
      [directory(pattern)],
      deliver: { _ in
        hasBegun.withLock { $0 = true }
        hasBegun.notify()
        _ = isHeld.wait(until: monotonicNow() + 60_000_000_000) { $0 ? nil : true }
      })
    directory.append("1\n", to: "a.log")
    #expect(hasBegun.wait(until: monotonicNow() + 60_000_000_000) { $0 ? true : nil } == true)
    for number in 2...4 {
      for old in stride(from: 4, through: 1, by: -1) where access(directory("a.log.\(old).gz"), F_OK) == 0 {
        move("a.log.\(old).gz", to: "a.log.\(old + 1).gz")
      }
      move("a.log", to: "a.log.1")
      try gzip("a.log.1")
      directory.append("\(number)\n", to: "a.log")
    }
    isHeld.withLock { $0 = false }
    isHeld.notify()
    #expect(running.seen.wait(for: "1\n2\n3\n4\n"))
    directory.append("5\n", to: "a.log")
    #expect(running.seen.wait(for: "1\n2\n3\n4\n5\n"))
  }

  /// Compressed files that are not rotations of a followed one are left alone.
  @Test func otherCompressedFiles() throws {
    let positions = try read("1\n")
    move("a.log", to: "a.log.1")
    directory.append("2\n", to: "a.log.1")
    directory.append("not of the log\n", to: "a.log.backup")
    try gzip("a.log.backup")
    directory.append("3\n", to: "a.log")
    let running = try Following([directory("a.log")], resuming: positions)
    #expect(running.seen.wait(for: "2\n3\n"))
    #expect(running.isFinished("a.log.1"))
    directory.append("4\n", to: "a.log")
    #expect(running.seen.wait(for: "2\n3\n4\n"))
  }

  /// Concatenated compressed parts are one file, and memory is bounded by the block.
  @Test func severalParts() throws {
    let positions = try read("1\n")
    let text = lines(0..<1000)
    directory.append(text, to: "b")
    try gzip("b")
    directory.append("", to: "a.log")
    let first = bytes("a.log")
    directory.append(String(decoding: first, as: UTF8.self), to: "c")
    try gzip("c")
    unlink(directory("a.log"))
    write(bytes("c.gz")[...] + bytes("b.gz")[...], to: "a.log.1.gz")
    let running = try Following([directory("a.log")], resuming: positions) { $0.blockBytes = 64 }
    #expect(running.seen.wait(for: text))
  }

  /// So many events while a block is not taken that the kernel drops some.
  @Test func overflowOfEvents() throws {
    let isHeld = Guarded(true)
    let hasBegun = Guarded(false)
    directory.append("1\n", to: "a.log")
    let running = try Following(
      [directory("*.log")],
      deliver: { _ in
        hasBegun.withLock { $0 = true }
        hasBegun.notify()
        _ = isHeld.wait(until: monotonicNow() + 60_000_000_000) { $0 ? nil : true }
      })
    #expect(hasBegun.wait(until: monotonicNow() + 60_000_000_000) { $0 ? true : nil } == true)
    let limit = Int(
      (try? String(contentsOfFile: "/proc/sys/fs/inotify/max_queued_events", encoding: .utf8))?.dropLast() ?? "")
    directory.append("", to: "x")
    directory.append("", to: "y")
    for _ in 0...(limit ?? 16384) / 2 {
      chmod(directory("x"), 0o600)
      chmod(directory("y"), 0o600)
    }
    directory.append("2\n", to: "a.log")
    directory.append("3\n", to: "b.log")
    isHeld.withLock { $0 = false }
    isHeld.notify()
    #expect(running.seen.wait { $0.bytes.count == 6 && $0.notices.contains(.overflow) })
    #expect(running.seen.text == "1\n2\n3\n")
    directory.append("4\n", to: "b.log")
    #expect(running.seen.wait(for: "1\n2\n3\n4\n"))
  }
}
