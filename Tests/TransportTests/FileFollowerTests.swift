import Foundation
import Glibc
import PipelineCore
import PipelineHost
import PipelineTestSupport
import Synchronization
import Testing

@testable import Transport

@Suite struct FileFollowerTests {
  let directory = ScratchDirectory()

  @Test func deliversLinesAsTheyAreCompleted() throws {
    directory.append("one\ntw", to: "a.log")
    let running = try Following([directory("a.log")])
    #expect(running.seen.wait(for: "one\n"))
    for byte in "o\nthree\n" { directory.append(String(byte), to: "a.log") }
    #expect(running.seen.wait(for: "one\ntwo\nthree\n"))
    let offsets = running.seen.state.withLock { $0.files.map(\.lines.offset) }
    #expect(offsets.first == 0 && offsets.contains(4))
  }

  @Test func startsAtTheEndWithWholeLines() throws {
    directory.append("old\nhal", to: "a.log")
    let running = try Following([directory("*.log")]) { $0.start = .end }
    #expect(running.seen.wait { !$0.notices.isEmpty })
    directory.append("f\nnew\n", to: "a.log")
    directory.append("other\n", to: "b.log")
    #expect(running.seen.wait { $0.bytes.count == 10 })
    #expect(Set(running.seen.text.split(separator: "\n")) == ["new", "other"])
  }

  /// Lines are delivered immediately until many have arrived quickly; then they wait for the next check. Stopping
  /// does not.
  @Test func readsAtAPaceWhileLinesComeFast() throws {
    let running = try Following([directory("a.log")]) { $0.pace = .seconds(3600) }
    let fast = String(repeating: "line\n", count: ReadingPace.finds)
    for count in 1...ReadingPace.finds {
      directory.append("line\n", to: "a.log")
      #expect(running.seen.wait { $0.bytes.count == 5 * count })
    }
    directory.append("line\n", to: "a.log")
    #expect(running.stop().map(\.offset) == [Int64(fast.utf8.count)])
    #expect(running.seen.text == fast)
  }

  @Test func sixteenFindsWithinFourIntervalsBeginThePace() {
    var pace = ReadingPace(nanoseconds: 100)
    // One less than the limit: spread evenly for a while, then all at once.
    for time in stride(from: Int64(1000), to: 4000, by: 27) { pace.found(at: time) }
    #expect(!pace.isBusy)
    for _ in 1..<ReadingPace.finds { pace.found(at: 5000) }
    #expect(!pace.isBusy)
    pace.found(at: 5400)
    #expect(!pace.isBusy)
    for time in stride(from: Int64(6000), to: 6390, by: 26) { pace.found(at: time) }
    #expect(!pace.isBusy)
    pace.found(at: 6399)
    #expect(pace.isBusy && pace.nextPoll == 6499)
    pace.found(at: 6600)
    #expect(pace.isBusy && pace.nextPoll == 6700)
    pace.foundNothing()
    #expect(!pace.isBusy)
    for _ in 1..<ReadingPace.finds { pace.found(at: 6710) }
    #expect(!pace.isBusy)
    pace.found(at: 6711)
    #expect(pace.isBusy)
  }

  /// Whether lines still arrive fast can only be measured while each is waited for.
  @Test func thePaceIsGivenUpNowAndThen() {
    var pace = ReadingPace(nanoseconds: 100)
    for _ in 0..<ReadingPace.finds { pace.found(at: 1000) }
    for _ in 0..<ReadingPace.pollsByClock {
      #expect(pace.isBusy)
      pace.found(at: pace.nextPoll)
    }
    #expect(!pace.isBusy)
    for _ in 1..<ReadingPace.finds { pace.found(at: pace.nextPoll - 100) }
    #expect(!pace.isBusy)
    pace.found(at: pace.nextPoll)
    #expect(pace.isBusy)
  }

  @Test func reportsThatAFileHasBeenReadToItsEnd() throws {
    let running = try Following([directory("a.log")]) { $0.blockBytes = 8 }
    directory.append("one\ntwo\nthree\n", to: "a.log")
    #expect(running.seen.wait(for: "one\ntwo\nthree\n"))
    let newest = running.seen.state.withLock { $0.files.map(\.isNewest) }
    #expect(newest.last == true && newest.dropLast().allSatisfy { !$0 } && newest.count > 1)
  }

  @Test func blocksAreSmallWhereManyRead() throws {
    let text = (0..<5000).map { "line \($0)\n" }.joined()
    directory.append(text, to: "a.log")
    let others = (0..<8).map { _ in ActiveReader() }
    let running = try Following([directory("a.log")]) { $0.allBlocks = 64 << 10 }
    #expect(running.seen.wait(for: text))
    withExtendedLifetime(others) {}
    let sizes = running.seen.state.withLock { $0.files.map(\.lines.slab.count) }
    // Plus the start of a line before.
    #expect(sizes.allSatisfy { $0 <= 9 << 10 }, "\(sizes)")
  }

  /// The starting thread may be the one that has to handle the reports.
  @Test func reportsNothingOnTheThreadThatStartsIt() throws {
    for name in ["a.log", "b.log", "c.log"] { directory.append("line\n", to: name) }
    var options = FileFollower.Options(paths: [directory("*.log")])
    options.start = .beginning
    let follower = try FileFollower(options)
    let seen = Collector()
    let starter = pthread_self()
    let isStarter = Mutex(false)
    try follower.start(
      deliver: { seen.take($0) },
      notice: { notice in
        if pthread_self() == starter { isStarter.withLock { $0 = true } }
        seen.note(notice)
      })
    #expect(seen.wait { $0.notices.count == 3 && $0.bytes.count == 15 })
    #expect(!isStarter.withLock { $0 })
    follower.stop()
    follower.join()
  }

  /// A writer that rotates by renaming, 100 times, with three generations of old files.
  @Test(arguments: ["app.log", "app.log*"]) func losesNothingToRotation(_ pattern: String) throws {
    let running = try Following([directory(pattern)])
    var next = 0
    for round in 0..<100 {
      for _ in 0..<(round % 7) * 20 + 1 {
        directory.append("\(next)\n", to: "app.log")
        next += 1
      }
      unlink(directory("app.log.3"))
      rename(directory("app.log.2"), directory("app.log.3"))
      rename(directory("app.log.1"), directory("app.log.2"))
      rename(directory("app.log"), directory("app.log.1"))
      if round % 3 == 0 { directory.append("", to: "app.log") }
      // A file that is removed before it was seen is lost, so the writer waits now and then.
      if round % 3 == 2 {
        let expected = next
        try #require(running.seen.wait { $0.bytes.count { $0 == 10 } >= expected })
      }
    }
    let all = (0..<next).map { "\($0)\n" }.joined()
    #expect(running.seen.wait { $0.bytes.count >= all.utf8.count })
    let got = running.seen.text.split(separator: "\n").compactMap { Int($0) }
    #expect(got.sorted() == Array(0..<next), "lost or repeated")
    let jumps = zip(got, got.dropFirst()).filter { $1 != $0 + 1 }.map { "\($0) \($1)" }
    #expect(jumps == [], "out of order")
  }

  @Test func noticesTruncation() throws {
    directory.append("first\nsecond\n", to: "a.log")
    let running = try Following([directory("a.log")])
    #expect(running.seen.wait(for: "first\nsecond\n"))
    truncate(directory("a.log"), 0)
    directory.append("third\n", to: "a.log")
    #expect(running.seen.wait(for: "first\nsecond\nthird\n"))
    // Rewritten and longer than before, between two checks or not.
    truncate(directory("a.log"), 0)
    directory.append("fourth is a longer line\n", to: "a.log")
    #expect(running.seen.wait(for: "first\nsecond\nthird\nfourth is a longer line\n"))
    let truncations = running.seen.state.withLock {
      $0.notices.count { if case .truncated = $0 { true } else { false } }
    }
    #expect(truncations == 2)
  }

  @Test func deliversTheLastLineOfARotatedFile() throws {
    directory.append("one\nrest", to: "a.log")
    let running = try Following([directory("a.log")])
    #expect(running.seen.wait(for: "one\n"))
    rename(directory("a.log"), directory("a.old"))
    #expect(running.seen.wait(for: "one\nrest"))
    #expect(
      running.seen.wait {
        $0.notices.contains {
          if case .finished(directory("a.log"), _) = $0 { true } else { false }
        }
      })
  }

  @Test func readsADeletedFileToItsEnd() throws {
    let writer = open(directory("a.log"), O_WRONLY | O_CREAT, 0o600)
    defer { close(writer) }
    let running = try Following([directory("a.log")])
    #expect(running.seen.wait { !$0.notices.isEmpty })
    unlink(directory("a.log"))
    write(writer, "late\n", 5)
    #expect(running.seen.wait(for: "late\n"))
  }

  @Test func readsAFileUnderTwoNamesOnce() throws {
    directory.append("one\n", to: "a.log")
    link(directory("a.log"), directory("b.log"))
    symlink("a.log", directory("c.log"))
    let running = try Following([directory("*.log"), directory("a.*")])
    directory.append("two\n", to: "b.log")
    #expect(running.seen.wait(for: "one\ntwo\n"))
    directory.append("three\n", to: "end.log")
    #expect(running.seen.wait(for: "one\ntwo\nthree\n"))
  }

  @Test func findsDirectoriesThatAppear() throws {
    let running = try Following([directory("logs/*/app.log")])
    for name in ["logs", "logs/x", "logs/y"] { mkdir(directory(name), 0o700) }
    directory.append("x\n", to: "logs/x/app.log")
    #expect(running.seen.wait(for: "x\n"))
    directory.append("y\n", to: "logs/y/app.log")
    #expect(running.seen.wait(for: "x\ny\n"))
    rename(directory("logs"), directory("gone"))
    mkdir(directory("logs"), 0o700)
    mkdir(directory("logs/x"), 0o700)
    directory.append("z\n", to: "logs/x/app.log")
    #expect(running.seen.wait(for: "x\ny\nz\n"))
  }

  /// Only a successful check shows that a file has lost its name.
  @Test(arguments: [EMFILE, EACCES, EINTR, EIO, ENOENT]) func aLookThatFailsTakesNoNameAway(_ code: Int32) throws {
    let isFailing = Guarded(false)
    let looks = Guarded(0)
    directory.append("one\n", to: "a.log")
    let running = try Following([directory("*.log")]) {
      $0.list = { path throws(PosixError) in
        guard isFailing.withLock({ $0 }) else { return try Glob.system(path) }
        looks.withLock { $0 += 1 }
        looks.notify()
        throw PosixError("list", path, code: code)
      }
    }
    #expect(running.seen.wait(for: "one\n"))
    isFailing.withLock { $0 = true }
    directory.append("new\n", to: "b.log")
    // Each check is later than the previous one, so by now a file without a name would have been released.
    #expect(looks.wait(until: monotonicNow() + 60_000_000_000) { $0 >= 5 ? true : nil } == true)
    directory.append("two\n", to: "a.log")
    #expect(running.seen.wait(for: "one\ntwo\n"))
    isFailing.withLock { $0 = false }
    #expect(running.seen.wait(for: "one\ntwo\nnew\n"))
    let notices = running.seen.state.withLock { $0.notices }
    #expect(notices.count { if case .finished = $0 { true } else { false } } == 0)
    #expect(
      notices.filter { if case .opened = $0 { false } else { true } } == [
        .retrying(PosixError("list", directory.path, code: code)), .recovered(path: directory.path),
      ])
  }

  /// A deleted file is released even if its directory cannot be listed.
  @Test func aRemovedFileIsClosed() throws {
    let isFailing = Guarded(false)
    directory.append("one\n", to: "a.log")
    directory.append("x\n", to: "b.log")
    let running = try Following([directory("*.log")]) {
      $0.list = { path throws(PosixError) in
        if isFailing.withLock({ $0 }) { throw PosixError("list", path, code: EMFILE) }
        return try Glob.system(path)
      }
    }
    #expect(running.seen.wait { $0.bytes.count == 6 })
    isFailing.withLock { $0 = true }
    unlink(directory("a.log"))
    #expect(
      running.seen.wait {
        $0.notices.contains { if case .finished(directory("a.log"), _) = $0 { true } else { false } }
      })
    directory.append("y\n", to: "b.log")
    #expect(running.seen.wait { $0.bytes.count == 8 })
  }

  @Test func leavesOutWhatIsCompressed() throws {
    let zipped: [UInt8] = [0x1F, 0x8B, 0x08, 0, 10, 10, 10]
    #expect(FileManager.default.createFile(atPath: directory("a.log.1"), contents: Data(zipped)))
    directory.append("", to: "a.log.2")
    directory.append("one\n", to: "a.log")
    let running = try Following([directory("a.log*")])
    #expect(running.seen.wait(for: "one\n"))
    // As in a rotation that compresses renamed files.
    let file = open(directory("a.log.2"), O_WRONLY | O_CLOEXEC)
    defer { close(file) }
    for _ in 0..<3 { #expect(zipped.withUnsafeBytes { write(file, $0.baseAddress, $0.count) } == zipped.count) }
    directory.append("two\n", to: "a.log")
    #expect(running.seen.wait(for: "one\ntwo\n"))
    #expect(running.seen.wait { $0.notices.count { if case .failed = $0 { true } else { false } } == 2 })
    let messages = running.seen.state.withLock {
      $0.notices.compactMap { if case .failed(let error) = $0 { error.message } else { nil } }
    }
    #expect(messages.allSatisfy { $0.contains("it is compressed with gzip") })
  }

  @Test func refusesWhatIsNoFile() throws {
    mkfifo(directory("a.log"), 0o600)
    let running = try Following([directory("a.log")])
    #expect(running.seen.wait { !$0.notices.isEmpty })
    let notice = try running.seen.state.withLock { $0.notices }.item(0)
    guard case .failed(let error) = notice else { throw PosixError("expect", "a failure") }
    #expect(error.message == "cannot read \(directory("a.log")): it is a FIFO")
    unlink(directory("a.log"))
    directory.append("line\n", to: "a.log")
    #expect(running.seen.wait(for: "line\n"))
  }

  @Test func resumesThroughRotationsThatItDidNotSee() throws {
    directory.append("1\n2\n", to: "a.log")
    let first = try Following([directory("a.log")])
    #expect(first.seen.wait(for: "1\n2\n"))
    let positions = first.stop()
    #expect(positions.map(\.offset) == [4])
    directory.append("3\n", to: "a.log")
    for (from, to) in [("a.log", "a.log.1")] { rename(directory(from), directory(to)) }
    directory.append("4\n", to: "a.log")
    rename(directory("a.log.1"), directory("a.log.2"))
    rename(directory("a.log"), directory("a.log.1"))
    directory.append("5\n", to: "a.log")
    let second = try Following([directory("a.log")]) {
      $0.resume = positions
      $0.start = .end
    }
    #expect(second.seen.wait(for: "3\n4\n5\n"))
  }

  /// The positions were saved when a file had been found and an older one, which had lost its name meanwhile, had not.
  @Test(arguments: [false, true]) func resumesBetweenTwoFilesThatItKnew(_ isCompressed: Bool) throws {
    directory.append("1\n", to: "a.log")
    let first = try Following([directory("a.log")])
    #expect(first.seen.wait(for: "1\n"))
    let oldest = first.stop()
    rename(directory("a.log"), directory("a.log.2"))
    directory.append("2\n", to: "a.log.2")
    directory.append("3\n", to: "a.log.1")
    directory.append("4\n", to: "a.log")
    let second = try Following([directory("a.log")])
    #expect(second.seen.wait(for: "4\n"))
    var youngest = second.stop()
    youngest[0].offset = 0
    if isCompressed {
      // Compression keeps the modification time.
      let modified = [timespec](repeating: timespec(tv_sec: time(nil) - 10, tv_nsec: 0), count: 2)
      #expect(utimensat(AT_FDCWD, directory("a.log.2"), modified, 0) == 0)
      let later = [timespec](repeating: timespec(tv_sec: time(nil) - 5, tv_nsec: 0), count: 2)
      #expect(utimensat(AT_FDCWD, directory("a.log.1"), later, 0) == 0)
      try run(["gzip", directory("a.log.1")])
    }
    let ending = isCompressed ? ".gz" : ""
    for (name, next) in [("a.log.2", "a.log.3"), ("a.log.1" + ending, "a.log.2" + ending), ("a.log", "a.log.1")] {
      #expect(rename(directory(name), directory(next)) == 0)
    }
    directory.append("5\n", to: "a.log")
    let last = try Following([directory("a.log")]) { $0.resume = oldest + youngest }
    #expect(last.seen.wait { $0.bytes.count >= 8 })
    #expect(last.seen.text == "2\n3\n4\n5\n")
  }

  private func run(_ command: [String]) throws {
    let process = Process()
    process.executableURL = URL(fileURLWithPath: "/usr/bin/env")
    process.arguments = command
    try process.run()
    process.waitUntilExit()
    try #require(process.terminationStatus == 0)
  }

  @Test func startsAnewWhenThePositionIsOfAnotherFile() throws {
    directory.append("old old old\n", to: "a.log")
    let first = try Following([directory("a.log")])
    #expect(first.seen.wait(for: "old old old\n"))
    let positions = first.stop()
    truncate(directory("a.log"), 0)
    directory.append("new\n", to: "a.log")
    let second = try Following([directory("a.log")]) { $0.resume = positions }
    #expect(second.seen.wait(for: "new\n"))
    let position = try positions.item(0)
    #expect(second.seen.wait { $0.notices.contains(.gone(position, .truncated(size: 4))) })
  }

  @Test func cutsLinesThatAreTooLong() throws {
    let running = try Following([directory("a.log")]) {
      $0.maxLine = 10
      $0.blockBytes = 64
    }
    directory.append("short\n" + String(repeating: "x", count: 1000), to: "a.log")
    #expect(running.seen.wait(for: "short\n"))
    directory.append("\nafter\n", to: "a.log")
    #expect(running.seen.wait { $0.bytes.count == 22 })
    #expect(running.seen.text == "short\nxxxxxxxxxxafter\n")
    let last = running.seen.state.withLock { $0.files.last?.position.offset }
    #expect(last == 1013)
  }
}
