import Foundation
import Glibc
import PipelineCore
import PipelineHost
import Testing

@testable import Transport

/// More writers than threads for them, all on a full disk.
@Suite struct FullDiskWritersTests {
  private let folder = Scratch()
  /// More than ``FileWriter/threads`` allows.
  private let count = 70

  /// The reports: how many files began to wait, and how many no longer wait; the outcomes of blocks.
  private struct Seen {
    var waiting = 0
    var over = 0
    var written = 0
    var failures: [PosixError] = []
  }
  private let seen = Guarded(Seen())

  private var trouble: @Sendable (PosixError?) -> Void {
    { [seen] error in
      seen.withLock { if error == nil { $0.over += 1 } else { $0.waiting += 1 } }
      seen.notify()
    }
  }

  private var completion: FileWriter.Completion {
    { [seen] result in
      seen.withLock {
        switch result {
        case .success: $0.written += 1
        case .failure(let failure): $0.failures.append(failure.error)
        }
      }
      seen.notify()
    }
  }

  private func wait(_ condition: (Seen) -> Bool) -> Bool {
    seen.wait(until: monotonicNow() + 60_000_000_000) { condition($0) ? true : nil } ?? false
  }

  private func makeFull(_ name: String) throws { try #require(folder.makeFull(name)) }

  /// Writes to a file with room, while the others wait.
  private func writeBeside() throws {
    let written = Guarded(false)
    let beside = try FileWriter(.append(path: folder("healthy")))
    beside.write(Array("x\n".utf8)) { result in
      written.withLock { if case .success = result { $0 = true } }
      written.notify()
    }
    #expect(
      written.wait(until: monotonicNow() + 30_000_000_000) { $0 ? true : nil } == true,
      "a full disk holds the others up")
    beside.close()
    #expect(folder.read("healthy") == "x\n")
  }

  @Test(arguments: [FileWriter.Sync.never, .batch, .acknowledged(within: .milliseconds(10))])
  func filesOnOtherDisksGoOn(_ sync: FileWriter.Sync) throws {
    var options = FileWriter.Options()
    options.sync = sync
    let writers = try (0..<count).map { number in
      try makeFull("full-\(number)")
      return try FileWriter(.append(path: folder("full-\(number)")), options: options, trouble: trouble)
    }
    for writer in writers { writer.write(Array("line\n".utf8), completion) }
    #expect(wait { $0.waiting == count })
    // The writer reports the problem before it sets `isDiskFull`.
    #expect(Polling.until { writers.allSatisfy { $0.isDiskFull } })
    try writeBeside()
    // There is room again for half of them; the others are given up.
    for number in 0..<count / 2 { #expect(truncate(folder("full-\(number)"), 0) == 0) }
    #expect(wait { $0.written == count / 2 })
    for number in 0..<count / 2 { #expect(folder.read("full-\(number)") == "line\n") }
    for writer in writers { writer.close(within: .milliseconds(1)) }
    #expect(wait { $0.failures.count == count - count / 2 })
    let result = seen.withLock { $0 }
    #expect(result.waiting == count && result.over == count / 2)
    #expect(result.failures.allSatisfy { $0.isFull })
  }

  @Test func writersOfManyFilesLetOthersGoOn() throws {
    var writers: [FilesWriter] = []
    for number in 0..<count {
      mkdir(folder("\(number)"), 0o700)
      try makeFull("\(number)/log")
      let writer = try FilesWriter(FileTree(folder("\(number)")), options: .init(), trouble: trouble)
      for (name, start) in [("other", Int64(0)), ("log", 0), ("log", 5)] {
        let file = FilesWriter.File(name, number: name == "log" ? 1 : 2)
        writer.add(
          .init(
            .bytes(Array("line\n".utf8)), start: start, opening: 1, completion: completion, acknowledgement: { _ in },
            refusal: { _ in }), to: file)
      }
      writers.append(writer)
    }
    #expect(wait { $0.waiting >= count })
    try writeBeside()
    for number in 0..<count / 2 { #expect(truncate(folder("\(number)/log"), 0) == 0) }
    // For each, the file with room, and both blocks of those that have room now.
    #expect(wait { $0.written == count + count / 2 * 2 })
    for number in 0..<count / 2 { #expect(folder.read("\(number)/log") == "line\nline\n") }
    for writer in writers { writer.close(within: .milliseconds(1)) }
    #expect(wait { $0.written + $0.failures.count == count * 3 })
    #expect(writers.allSatisfy { $0.queuedBytes == 0 })
    let failures = seen.withLock { $0.failures }
    #expect(failures.allSatisfy { $0.isFull })
  }

  /// A partly written block continues where it was interrupted.
  @Test(.enabled(if: SmallSystem.canBeMade(isDisk: false), "needs to mount a tmpfs")) func fullDiskTakesTheRestLater()
    throws
  {
    let system = try #require(SmallSystem(folder, megabytes: 16, isDisk: false))
    defer { system.unmount() }
    // The file of another program leaves 5 MB; the writers need about 10.
    let rest = system.fill()
    try #require(truncate(rest, 11 << 20) == 0)
    var lines: [UInt8] = []
    for number in 0..<3000 { lines += Array("\(number) \(String(repeating: "x", count: number % 90))\n".utf8) }
    let writers = try (0..<count).map { number in
      try FileWriter(.append(path: system.path + "/\(number)"), trouble: trouble)
    }
    // A single block, small blocks that are written together, and a large one after them.
    for writer in writers {
      for piece in [lines[..<30_000], lines[30_000..<30_100], lines[30_100..<40_000], lines[40_000...]] {
        writer.write(Array(piece), completion)
      }
    }
    #expect(wait { $0.waiting >= count / 4 })
    try writeBeside()
    // Room becomes available in steps.
    for size in [9 << 20, 8 << 20] {
      let taken = seen.withLock(\.written)
      #expect(truncate(rest, off_t(size)) == 0)
      #expect(wait { $0.written > taken })
    }
    unlink(rest)
    for (number, writer) in writers.enumerated() {
      writer.close(within: .seconds(60))
      #expect(writer.failure == nil)
      let file = FileManager.default.contents(atPath: system.path + "/\(number)") ?? Data()
      #expect(file.elementsEqual(lines), "\(number) has \(file.count) bytes")
    }
    #expect(seen.withLock { $0.written == count * 4 && $0.failures.isEmpty })
  }
}
