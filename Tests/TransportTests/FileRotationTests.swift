import Foundation
import PipelineCore
import PipelineHost
import Synchronization
import Testing

@testable import Transport

@Suite struct FileRotationTests {
  let directory = ScratchDirectory()

  /// A process that dies before one of the steps that change files, and does nothing more.
  private final class Life: Sendable {
    private let state: Mutex<(left: Int, isDead: Bool)>
    let steps = Mutex<[String]>([])

    init(_ steps: Int) { state = Mutex((steps, false)) }

    var isDead: Bool { state.withLock(\.isDead) }

    func takes(_ step: String) -> Bool {
      steps.withLock { $0.append(step) }
      return state.withLock { state in
        if state.left == 0 { state.isDead = true }
        state.left -= 1
        return !state.isDead
      }
    }
  }

  private func row(_ number: Int64) -> String { String(String(1_000_000 + number).dropFirst()) + "\n" }

  private func rows(in tree: FileTree) throws -> [Int64] {
    func read(_ name: String) -> [UInt8] { Array(FileManager.default.contents(atPath: tree.name(name)) ?? Data()) }
    var text: [UInt8] = []
    for (name, isCompressed) in try tree.rotated("log") {
      let file = try FileDescriptor.openForReading(tree.name(name))
      guard isCompressed else {
        text += read(name)
        continue
      }
      let content = try #require(CompressedContent(file, .gzip))
      var room = [UInt8](repeating: 0, count: 1 << 16)
      while content.state == .more {
        let count = try room.withUnsafeMutableBytes { try content.read(into: $0) }
        text += room[..<count]
      }
      #expect(content.state == .whole)
    }
    text += read("log")
    return text.split(separator: 10).map { Int64(String(decoding: $0, as: UTF8.self)) ?? -1 }
  }

  /// The last state of a dead process.
  private struct Saved {
    /// Nil: nothing had been written.
    var file: SavedFile?
    var last: UInt64
    var marks: WriterMarks
    var rows: Int64
  }

  /// Runs a process from a state to its death or its end.
  private func run(_ tree: FileTree, _ saved: Saved?, total: Int64, clock: UInt64, _ life: Life) throws -> (
    isDone: Bool, saved: Saved
  ) {
    var marks = saved?.marks ?? WriterMarks(writer: 7, lost: [])
    let first = max(clock, (saved?.last ?? 0) + 1)
    if let saved { marks.goOn(after: saved.last, at: first) }
    var file = FilesWriter.File("log", number: first)
    var count: Int64 = 0
    if let known = saved?.file {
      tree.cutRotated(known.path, marks, known)
      let found = tree.resume(known, marks, cutsBack: true)
      if found.position != nil {
        file = FilesWriter.File("log", number: known.number)
        count = known.count
      }
    }
    var saved = saved ?? Saved(file: nil, last: first - 1, marks: marks, rows: 0)
    var options = FilesWriter.Options()
    options.sync = .acknowledged(within: .milliseconds(1))
    options.marks = marks
    options.rotation = FileRotation(size: 100, compression: .gzip)
    options.step = { life.takes($0) }
    let writer = try FilesWriter(tree, options: options) { _ in }
    let results = Guarded<[Bool]>([])
    var next = saved.rows
    var blocks = 0
    while next < total, !life.isDead {
      let rows = (next..<min(total, next + 3)).map(row).joined()
      writer.add(
        FilesWriter.Block(
          .bytes(Array(rows.utf8)), start: count, opening: 1, time: 1_700_000_000_000_000_000 + next * 100_000_000,
          completion: { result in
            results.withLock { $0.append((try? result.get()) != nil) }
            results.notify()
          }, acknowledgement: { _ in }, refusal: { _ in }), to: file)
      blocks += 1
      let isDone = results.wait(until: monotonicNow() + 60_000_000_000) { $0.count >= blocks ? $0[blocks - 1] : nil }
      guard isDone == true else { break }
      count += Int64(rows.utf8.count)
      next = min(total, next + 3)
      // Saves a state now and then; the first may not know its file yet.
      guard blocks % 4 == 1 else { continue }
      let full = file.saves(count)
      if !full.isEmpty { writer.compress(full, of: file) }
      let position = file.position(after: count)
      saved = Saved(
        file: SavedFile(path: "log", number: file.number, count: count, position: blocks % 8 == 1 ? position : nil),
        last: file.number, marks: marks, rows: next)
    }
    writer.close()
    return (next >= total && !life.isDead, saved)
  }

  /// The end of a period alone suffices, without a later row or close.
  @Test func anOldFileIsRenamedWithoutARow() throws {
    try "old\n".write(toFile: directory.path + "/log", atomically: false, encoding: .utf8)
    let tree = FileTree(directory.path)
    var options = FilesWriter.Options()
    options.rotation = FileRotation(every: 3_600_000_000_000)
    let writer = try FilesWriter(tree, options: options, trouble: { _ in })
    writer.rotate(FilesWriter.File("log", number: 1), after: 0, at: 4_000_000_000_000_000_000)
    #expect(try Polling.until { try tree.rotated("log").count == 1 })
    #expect(access(directory.path + "/log", F_OK) != 0)
    writer.close()
  }

  /// A compression that is abandoned at the end is not a failure: everything is written.
  @Test func aCompressionThatIsGivenUpIsNotAFailure() throws {
    try "old\n".write(toFile: directory.path + "/log", atomically: false, encoding: .utf8)
    let tree = FileTree(directory.path)
    let compression = Guarded((hasBegun: false, goesOn: false))
    var options = FilesWriter.Options()
    options.rotation = FileRotation(every: 3_600_000_000_000, compression: .gzip)
    options.step = { step in
      guard step == "create" else { return true }
      compression.withLock { $0.hasBegun = true }
      compression.notify()
      return compression.wait(until: monotonicNow() + 60_000_000_000) { $0.goesOn ? true : nil } ?? false
    }
    let writer = try FilesWriter(tree, options: options, trouble: { _ in })
    writer.rotate(FilesWriter.File("log", number: 1), after: 0, at: 4_000_000_000_000_000_000)
    #expect(compression.wait(until: monotonicNow() + 60_000_000_000) { $0.hasBegun ? true : nil } == true)
    writer.close(within: .zero)
    compression.withLock { $0.goesOn = true }
    compression.notify()
    writer.close()
    #expect(writer.failure == nil)
    #expect(try tree.rotated("log").map { $0.isCompressed } == [false])
  }

  /// A death before each step of a rotation and of a compression, followed by the next start: nothing is lost or duplicated.
  @Test func everyStepMayBeTheLast() throws {
    var seen: Set<String> = []
    var steps = 0
    while true {
      let name = "run\(steps)"
      mkdir(directory(name), 0o700)
      let life = Life(steps)
      let isOver = try survives(life, FileTree(directory(name)))
      life.steps.withLock { seen.formUnion($0) }
      if isOver { break }
      steps += 1
    }
    #expect(steps > 20)
    #expect(seen == ["rename", "sync", "open", "create", "remove"])
  }

  /// Whether the process lived to its end.
  private func survives(_ life: Life, _ tree: FileTree) throws -> Bool {
    let total: Int64 = 120
    let isOver = try outlives(nil, [life, Life(3), Life(.max)], tree, total)
    let found = try rows(in: tree)
    #expect(
      found == Array(0..<total), "after \(life.steps.withLock(\.count)) steps: \(life.steps.withLock { $0.suffix(3) })")
    return isOver
  }

  /// Whether the first of several processes reaches the end. Each later one continues from the state of the previous one.
  private func outlives(_ saved: Saved?, _ lives: [Life], _ tree: FileTree, _ total: Int64) throws -> Bool {
    var saved = saved
    for (index, life) in lives.enumerated() {
      let result = try run(tree, saved, total: total, clock: UInt64(index + 1) * 1000, life)
      if result.isDone { return index == 0 }
      saved = result.saved
    }
    Issue.record("the last process did not come to its end")
    return true
  }

  @Test(arguments: [
    ("log-20260102-030405", true), ("log-20260102-030405.12", true), ("log-20260102-030405.1.gz", true),
    ("log-20260102-030405.zst", true), ("log-2026-01-02", false), ("log-20260102-030405.x", false), ("log", false),
    ("log-20260102-030405.", false), ("log2-20260102-030405", false), ("log-20260102-030405.gz.gz", false),
    ("log-2026010２-030405", false), ("log-20260102-030405.999999", true), ("log-20260102-030405.1000000", false),
    ("log-20260102-030405.99999999999999999999", false),
  ])
  func whichFilesAreFull(_ name: String, _ isFull: Bool) {
    #expect((FileRotation.parse(name, of: "log") != nil) == isFull)
  }

  @Test func names() {
    let time: Int64 = 1_767_225_599_000_000_000
    #expect(FileRotation.suffix(at: time, after: nil) == "20251231-235959")
    #expect(FileRotation.suffix(at: time, after: [20_251_231, 235_958, 7]) == "20251231-235959")
    #expect(FileRotation.suffix(at: time, after: [20_251_231, 235_959, 7]) == "20251231-235959.8")
    // The clock was set back.
    #expect(FileRotation.suffix(at: time, after: [20_260_101, 5, 0]) == "20260101-000005.1")
    let hourly = FileRotation(every: 3_600_000_000_000)
    #expect(!hourly.isFull(0, adding: 1, last: 0, now: 1 << 60))
    #expect(!hourly.isFull(1, adding: 1, last: 3_600_000_000_000, now: 7_199_999_999_999))
    #expect(hourly.isFull(1, adding: 1, last: 3_599_999_999_999, now: 3_600_000_000_000))
    #expect(!hourly.isFull(1, adding: 1, last: 1 << 60, now: 5))
  }
}
