import Foundation
import PipelineCore
import PipelineHost
import Testing

@testable import Transport

@Suite struct FilesWriterTests {
  /// Data that waits after a file without progress is counted until it is written.
  @Test func whatWaitsIsCounted() throws {
    let directory = ScratchDirectory()
    let isHeld = Guarded(true)
    var options = FilesWriter.Options()
    options.rotation = FileRotation(size: 100)
    options.step = { _ in isHeld.wait(until: monotonicNow() + 60_000_000_000) { $0 ? nil : true } ?? false }
    let writer = try FilesWriter(FileTree(directory.path), options: options) { _ in }
    let file = FilesWriter.File("log", number: 1)
    let written = Guarded(0)
    var count: Int64 = 0
    func add(_ bytes: Int) {
      let block = FilesWriter.Block(
        .bytes([UInt8](repeating: 0x0A, count: bytes)), start: count, opening: 1,
        completion: { result in
          written.withLock { if case .success = result { $0 += bytes } }
          written.notify()
        }, acknowledgement: { _ in }, refusal: { _ in })
      count += Int64(bytes)
      writer.add(block, to: file)
    }
    add(150)
    #expect(written.wait(until: monotonicNow() + 60_000_000_000) { $0 == 150 ? true : nil } == true)
    // A block counts until its completion has returned.
    #expect(Polling.until { writer.queuedBytes == 0 })
    // The file is full: the next block would rename it, which is delayed.
    for _ in 0..<5 { add(300_000) }
    // The first block counts until its turn is over.
    #expect(Polling.until { writer.queuedBytes == 1_500_000 })
    isHeld.withLock { $0 = false }
    isHeld.notify()
    #expect(written.wait(until: monotonicNow() + 60_000_000_000) { $0 == 1_500_150 ? true : nil } == true)
    writer.close()
    #expect(writer.queuedBytes == 0)
  }

  /// A slash before a combining mark is a separator too: a link there is not followed.
  @Test func aLinkBeforeACombiningMarkIsNotFollowed() throws {
    let directory = ScratchDirectory()
    for name in ["other", "root", "root/own"] { mkdir(directory(name), 0o755) }
    #expect(symlink(directory("other"), directory("root/link")) == 0)
    let tree = FileTree(directory("root"))
    #expect(throws: PosixError.self) { _ = try tree.openForAppending("link/\u{301}x") }
    #expect(try FileManager.default.contentsOfDirectory(atPath: directory("other")).isEmpty)
    _ = try tree.openForAppending("own/\u{301}x")
    #expect(try FileManager.default.contentsOfDirectory(atPath: directory("root/own")).count == 1)
  }
}
