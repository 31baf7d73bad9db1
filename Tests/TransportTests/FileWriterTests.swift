import Foundation
import Glibc
import PipelineCore
import Synchronization
import Testing

@testable import Transport

@Suite struct FileWriterTests {
  let directory = ScratchDirectory()

  /// The results of completions, in order.
  private final class Results: Sendable {
    let state = Guarded<[PosixError?]>([])
    var take: FileWriter.Completion {
      { [state] result in
        state.withLock {
          switch result {
          case .success: $0.append(nil)
          case .failure(let failure): $0.append(failure.error)
          }
        }
        state.notify()
      }
    }
    func wait(_ count: Int) -> [PosixError?] {
      _ = state.wait(until: monotonicNow() + 60_000_000_000) { $0.count >= count ? true : nil }
      return state.withLock { $0 }
    }
  }

  @Test func appendsInOrderAndCompletesEachBlock() throws {
    let results = Results()
    let writer = try FileWriter(.append(path: directory("out")))
    var expected = ""
    for number in 0..<1000 {
      let text = number % 100 == 7 ? String(repeating: "x", count: 100_000) + "\n" : "\(number)\n"
      expected += text
      writer.write(Array(text.utf8), results.take)
    }
    writer.close()
    #expect(results.wait(1000) == Array(repeating: nil, count: 1000))
    #expect(directory.read("out") == expected)
    #expect(writer.queuedBytes == 0)
    #expect(!writer.write([1], results.take))
    #expect(results.wait(1001).last??.code == ECANCELED)
  }

  @Test func writesBuffers() throws {
    let results = Results()
    let writer = try FileWriter(.append(path: directory("out")))
    let buffer = OutputBuffer()
    buffer.append("text\n")
    writer.write(buffer, results.take)
    #expect(results.wait(1) == [nil])
    writer.close()
    #expect(directory.read("out") == "text\n")
  }

  /// A buffer belongs to its owner again when its completion runs, which may empty it immediately.
  @Test func countsBuffersThatTheirCompletionEmpties() throws {
    let writer = try FileWriter(.append(path: directory("out")))
    let results = Results()
    for _ in 0..<100 {
      let buffer = OutputBuffer()
      buffer.append([UInt8](repeating: 10, count: 1000))
      let take = results.take
      writer.write(buffer) { result in
        buffer.clear()
        take(result)
      }
    }
    #expect(results.wait(100).count == 100)
    writer.close()
    #expect(writer.queuedBytes == 0)
  }

  @Test func theCallerWritesItsBlock() throws {
    let writer = try FileWriter(.append(path: directory("out")))
    #expect(writer.mayBeLeft)
    var atOnce = 0
    for number in 0..<100 {
      let buffer = OutputBuffer()
      buffer.append("\(number)\n")
      let results = Results()
      writer.add(.buffer(buffer), isLeft: true, results.take)
      writer.write()
      // The writer's thread may just be checking the queue, and therefore be first.
      if results.state.withLock({ $0.count }) == 1 { atOnce += 1 }
      #expect(results.wait(1) == [nil])
    }
    #expect(atOnce > 0, "written when it returns")
    let last = OutputBuffer()
    last.append("last\n")
    writer.add(.buffer(last), isLeft: true)
    writer.close()
    #expect(directory.read("out") == (0..<100).map { "\($0)\n" }.joined() + "last\n")
    writer.write()
  }

  @Test func twoThreadsWriteInOrder() throws {
    let results = Results()
    let writer = try FileWriter(.append(path: directory("out")))
    for number in 0..<2000 {
      let buffer = OutputBuffer()
      buffer.append("\(number)\n")
      if number % 3 == 0 {
        writer.add(.buffer(buffer), isLeft: true, results.take)
        writer.write()
      } else {
        writer.add(.buffer(buffer), results.take)
      }
    }
    writer.close()
    #expect(results.wait(2000).count == 2000)
    #expect(directory.read("out") == (0..<2000).map { "\($0)\n" }.joined())
    #expect(writer.queuedBytes == 0)
  }

  @Test func nothingIsLeftWhereWritingMayTakeLong() throws {
    let pipe = Pipe()
    defer { close(pipe.output) }
    let onPipe = try FileWriter(.descriptor(FileDescriptor(pipe.output, name: "a pipe", owned: false)))
    #expect(!onPipe.mayBeLeft)
    var options = FileWriter.Options()
    options.sync = .batch
    let synced = try FileWriter(.append(path: directory("out")), options: options)
    #expect(!synced.mayBeLeft)
    let results = Results()
    let buffer = OutputBuffer()
    buffer.append("x\n")
    synced.add(.buffer(buffer), isLeft: true, results.take)
    #expect(results.wait(1) == [nil], "its thread does it")
    onPipe.close()
    synced.close()
  }

  @Test func setsATornLineApart() throws {
    directory.append("whole\ntor", to: "out")
    let writer = try FileWriter(.append(path: directory("out")))
    writer.write(Array("new\n".utf8))
    writer.close()
    #expect(directory.read("out") == "whole\ntor\nnew\n")
  }

  @Test func reportsABrokenPipe() throws {
    signal(SIGPIPE, SIG_IGN)
    let pipe = Pipe()
    let results = Results()
    let writer = try FileWriter(.descriptor(FileDescriptor(pipe.output, name: "a pipe")))
    writer.write(Array("one\n".utf8), results.take)
    #expect(results.wait(1) == [nil])
    var byte: UInt8 = 0
    #expect(read(pipe.input.number, &byte, 1) == 1)
    // The reading end is replaced under its number, which the pipe's owner closes in the end.
    let other = try FileDescriptor.openForReading(directory.path, kinds: [.directory])
    #expect(dup2(other.number, pipe.input.number) >= 0)
    writer.write(Array("two\n".utf8), results.take)
    let second = results.wait(2).last ?? nil
    #expect(second?.isBrokenPipe == true)
    #expect(second?.message == "cannot write to a pipe: Broken pipe")
    #expect(!writer.write(Array("three\n".utf8), results.take))
    #expect(results.wait(3).last??.isBrokenPipe == true)
  }

  @Test(arguments: [false, true]) func waitsForASlowReader(_ nonBlocking: Bool) throws {
    let pipe = Pipe()
    if nonBlocking { _ = fcntl(pipe.output, F_SETFL, O_WRONLY | O_NONBLOCK) }
    var options = FileWriter.Options()
    options.queueBytes = 100_000
    let writer = try FileWriter(.descriptor(FileDescriptor(pipe.output, name: "a pipe")), options: options)
    let total = 2_000_000
    let block = [UInt8](repeating: 120, count: 50_000)
    #expect(writer.offer(block))
    let writing = try OwnThread("fill") {
      for _ in 1..<(total / 50_000) { writer.write(block) }
    }
    var buffer = [UInt8](repeating: 0, count: 4096)
    var count = 0
    while count < total {
      let piece = read(pipe.input.number, &buffer, buffer.count)
      if piece <= 0 { break }
      count += piece
      if writer.queuedBytes > 150_000 { Issue.record("the queue is longer than its limit") }
    }
    #expect(count == total)
    writing.join()
    writer.close()
  }

  @Test func givesUpWhenTheReaderSleeps() throws {
    let pipe = Pipe()
    let results = Results()
    var options = FileWriter.Options()
    options.queueBytes = 1 << 20
    let writer = try FileWriter(.descriptor(FileDescriptor(pipe.output, name: "a pipe")), options: options)
    writer.write([UInt8](repeating: 1, count: 1 << 20), results.take)
    #expect(!writer.offer([1]))
    let more = OutputBuffer()
    more.append([2])
    writer.add(.buffer(more))
    #expect(writer.queuedBytes > 1 << 20)
    writer.close(within: .milliseconds(100))
    #expect(results.wait(1).first??.code == ECANCELED)
  }

  @Test func followsARotation() throws {
    let results = Results()
    let writer = try FileWriter(.append(path: directory("out")))
    writer.write(Array("one\n".utf8), results.take)
    _ = results.wait(1)
    rename(directory("out"), directory("out.1"))
    writer.write(Array("two\n".utf8), results.take)
    writer.close()
    #expect(directory.read("out.1") == "one\n")
    #expect(directory.read("out") == "two\n")
  }

  @Test(arguments: [FileWriter.Sync.batch, .interval(.milliseconds(1)), .interval(.seconds(60))])
  func syncs(_ sync: FileWriter.Sync) throws {
    var options = FileWriter.Options()
    options.sync = sync
    let results = Results()
    let writer = try FileWriter(.append(path: directory("out")), options: options)
    for _ in 0..<20 { writer.write(Array("line\n".utf8), results.take) }
    writer.close()
    #expect(results.wait(20).allSatisfy { $0 == nil })
    #expect(directory.read("out").utf8.count == 100)
  }

  /// Blocks count as written immediately; their acknowledgements wait for a shared sync.
  @Test func acknowledgesManyBlocksWithOneSync() throws {
    var options = FileWriter.Options()
    options.sync = .acknowledged(within: .seconds(3600))
    let writer = try FileWriter(.append(path: directory("out")), options: options)
    #expect(writer.mayBeLeft, "other threads may write during a sync")
    let written = Results()
    let acknowledged = Results()
    func add(_ text: String) {
      let buffer = OutputBuffer()
      buffer.append(text)
      writer.add(.buffer(buffer), written.take, acknowledging: acknowledged.take)
    }
    for number in 0..<20 { add("\(number)\n") }
    #expect(written.wait(20) == Array(repeating: nil, count: 20))
    #expect(acknowledged.state.withLock { $0.isEmpty })
    writer.acknowledgeSoon()
    #expect(acknowledged.wait(20) == Array(repeating: nil, count: 20))
    // Blocks that are still queued when a wait starts are included in it.
    for number in 20..<30 { add("\(number)\n") }
    writer.acknowledgeSoon()
    #expect(acknowledged.wait(30) == Array(repeating: nil, count: 30))
    rename(directory("out"), directory("out.1"))
    add("30\n")
    add("31\n")
    writer.close()
    #expect(acknowledged.wait(32) == Array(repeating: nil, count: 32))
    #expect(directory.read("out.1") + directory.read("out") == (0..<32).map { "\($0)\n" }.joined())
    add("late")
    #expect(acknowledged.wait(33).last??.code == ECANCELED)
  }

  @Test func acknowledgesWithinItsLimit() throws {
    var options = FileWriter.Options()
    options.sync = .acknowledged(within: .milliseconds(1))
    let writer = try FileWriter(.append(path: directory("out")), options: options)
    let results = Results()
    for number in 0..<100 {
      let buffer = OutputBuffer()
      buffer.append("\(number)\n")
      if number % 2 == 0 {
        writer.add(.buffer(buffer), acknowledging: results.take)
      } else {
        writer.add(.buffer(buffer), isLeft: true, acknowledging: results.take)
        writer.write()
      }
      if number % 10 == 9 { #expect(results.wait(number + 1).allSatisfy { $0 == nil }) }
    }
    #expect(results.wait(100).count == 100)
    writer.close()
    #expect(directory.read("out") == (0..<100).map { "\($0)\n" }.joined())
  }

  // MARK: Places

  private func add(_ text: String, to writer: FileWriter) {
    let results = Results()
    writer.write(Array(text.utf8), results.take)
    #expect(results.wait(1) == [nil])
  }

  private func reopened(_ position: FilePosition?) throws -> FileWriter {
    var options = FileWriter.Options()
    options.resume = position
    return try FileWriter(.append(path: directory("out")), options: options)
  }

  /// Positions are those at the time of the request, also after rotations and truncations.
  @Test func knowsWhereItsBytesEnded() throws {
    directory.append("torn", to: "out")
    let writer = try FileWriter(.append(path: directory("out")))
    #expect(writer.position(after: 0)?.offset == 4)
    add("one\n", to: writer)
    #expect(writer.position(after: 4)?.offset == 9, "the line feed behind the torn line counts")
    let first = writer.position(after: 4)
    rename(directory("out"), directory("out.1"))
    add("two\n", to: writer)
    add("three\n", to: writer)
    #expect(writer.added == 14)
    #expect(writer.position(after: 4) != first, "what comes next is in the new file")
    #expect(writer.position(after: 8)?.offset == 4)
    #expect(writer.position(after: 14)?.offset == 10)
    truncate(directory("out"), 0)
    add("four\n", to: writer)
    #expect(writer.position(after: 14)?.offset == 0)
    #expect(writer.position(after: 19)?.offset == 5)
    #expect(!writer.isShared)
    directory.append("other\n", to: "out")
    add("five\n", to: writer)
    #expect(writer.position(after: 24) == nil)
    #expect(writer.isShared)
    writer.close()
    #expect(directory.read("out") == "four\nother\nfive\n")
  }

  @Test func cutsBackToAPlace() throws {
    let first = try FileWriter(.append(path: directory("out")))
    add("one\n", to: first)
    let position = first.position(after: 4)
    add("two\n", to: first)
    first.close()
    let second = try reopened(position)
    #expect(second.resumption == .cut(path: directory("out"), bytes: 4))
    add("2\n", to: second)
    second.close()
    #expect(directory.read("out") == "one\n2\n")
    #expect(try reopened(second.position(after: 2)).resumption == .exact)
    // Renamed, it is still the same file, and its successor is left alone.
    rename(directory("out"), directory("out.1"))
    #expect(try reopened(position).resumption == .cut(path: directory("out.1"), bytes: 2))
    #expect(directory.read("out.1") == "one\n")
    directory.append("x", to: "out.1")
    directory.append("y\n", to: "out")
    guard case .lost = try reopened(position).resumption else {
      Issue.record("a file that stands there already may have been written to")
      return
    }
    #expect(directory.read("out") == "y\n")
  }

  @Test func replacesInOneStep() throws {
    let results = Results()
    directory.append("old", to: "out")
    let writer = try FileWriter(.replace(path: directory("out")))
    for number in 0..<50 { writer.write(Array("content \(number)".utf8), results.take) }
    writer.close()
    #expect(results.wait(50).allSatisfy { $0 == nil })
    #expect(directory.read("out") == "content 49")
    #expect(try FileManager.default.contentsOfDirectory(atPath: directory.path) == ["out"])
  }

  @Test func waitsForRoomOnAFullDisk() throws {
    // A file size limit of the process would affect other tests, so /dev/full simulates a full disk.
    let full = FileDescriptor(open("/dev/full", O_WRONLY), name: "/dev/full")
    let results = Results()
    let reported = Results()
    let writer = try FileWriter(.descriptor(full)) {
      if let error = $0 { reported.take(.failure(.init(error, written: 0))) }
    }
    writer.write(Array("x\n".utf8), results.take)
    #expect(reported.wait(1).first??.isFull == true)
    writer.close(within: .milliseconds(50))
    #expect(results.wait(1).first??.code == ENOSPC)
  }

  /// A pipe accepts as much as it has room for, whatever the size of blocks.
  @Test(arguments: [1000, 20_000, 300_000]) func reportsHowMuchHasArrived(_ size: Int) throws {
    let pipe = Pipe()
    let written = Guarded<[Int]>([])
    let writer = try FileWriter(.descriptor(FileDescriptor(pipe.output, name: "a pipe")))
    for _ in 0..<(600_000 / size) {
      writer.write([UInt8](repeating: 120, count: size)) { result in
        written.withLock {
          switch result {
          case .success: $0.append(size)
          case .failure(let failure): $0.append(failure.written)
          }
        }
      }
    }
    writer.close(within: .milliseconds(50))
    _ = fcntl(pipe.input.number, F_SETFL, O_NONBLOCK)
    var buffer = [UInt8](repeating: 0, count: 1 << 20)
    var count = 0
    while case let piece = read(pipe.input.number, &buffer, buffer.count), piece > 0 { count += piece }
    let reported = written.withLock { $0 }
    #expect(reported.count == 600_000 / size)
    #expect(count > 0 && count < 600_000)
    #expect(reported.reduce(0, +) == count)
    #expect(writer.failure?.code == ECANCELED)
  }

  /// If it is closed twice, the shorter wait decides.
  @Test func isGivenUpByWhoeverWaitsLeast() throws {
    let pipe = Pipe()
    let results = Results()
    let writer = try FileWriter(.descriptor(FileDescriptor(pipe.output, name: "a pipe")))
    writer.write([UInt8](repeating: 1, count: 1 << 20), results.take)
    let patient = try OwnThread("close") { writer.close(within: .seconds(3600)) }
    writer.close(within: .milliseconds(50))
    #expect(results.wait(1).first??.code == ECANCELED)
    patient.join()
  }

  /// A process that holds the lock of such a file is still writing it; files with other names are not touched.
  @Test func removesWhatAKilledProcessHasLeft() throws {
    for name in [
      ".out.4242.tmp", ".out.17-3.tmp", ".out.5-1.tmp", ".out.tmp", ".out.x.tmp", ".other.1.tmp", "out.1.tmp",
    ] {
      directory.append("half", to: name)
    }
    let held = open(directory(".out.5-1.tmp"), O_WRONLY | O_CLOEXEC)
    #expect(flock(held, LOCK_EX) == 0)
    defer { close(held) }
    let writer = try FileWriter(.replace(path: directory("out")))
    writer.write(Array("whole".utf8))
    writer.close()
    #expect(directory.read("out") == "whole")
    #expect(
      try FileManager.default.contentsOfDirectory(atPath: directory.path).sorted()
        == [".other.1.tmp", ".out.5-1.tmp", ".out.tmp", ".out.x.tmp", "out", "out.1.tmp"])
  }

  @Test func aReplacementThatFailsLeavesNothing() throws {
    mkdir(directory("out"), 0o700)
    directory.append("x", to: "out/file")
    let results = Results()
    let writer = try FileWriter(.replace(path: directory("out")))
    writer.write(Array("whole".utf8), results.take)
    #expect([EISDIR, ENOTEMPTY, EEXIST].contains(try #require(results.wait(1).first ?? nil).code))
    writer.close()
    #expect(try FileManager.default.contentsOfDirectory(atPath: directory.path) == ["out"])
  }

  @Test func reportsWhenThereIsRoom() throws {
    let pipe = Pipe()
    var options = FileWriter.Options()
    options.queueBytes = 200_000
    let writer = try FileWriter(.descriptor(FileDescriptor(pipe.output, name: "a pipe")), options: options)
    writer.write([UInt8](repeating: 1, count: 200_000))
    let room = Results()
    writer.whenRoom { room.take(.success(())) }
    #expect(room.state.withLock { $0.isEmpty })
    var buffer = [UInt8](repeating: 0, count: 200_000)
    var count = 0
    while count < 200_000 { count += max(1, read(pipe.input.number, &buffer, buffer.count)) }
    #expect(room.wait(1).count == 1)
    writer.close()
  }
}
