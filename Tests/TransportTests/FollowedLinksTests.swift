import Foundation
import Glibc
import PipelineCore
import Synchronization
import Testing

@testable import Transport

/// Files that symbolic links name, and files for which the kernel reports no events.
@Suite struct FollowedLinksTests {
  let directory = ScratchDirectory()

  private func makeContainers() {
    for name in ["pods", "pods/a", "containers"] { mkdir(directory(name), 0o755) }
    directory.append("", to: "pods/a/0.log")
    #expect(symlink("../pods/a/0.log", directory("containers/a.log")) == 0)
  }

  private func rotate(_ number: Int) {
    rename(directory("pods/a/0.log"), directory("pods/a/0.log.20260101-\(number)"))
    directory.append("", to: "pods/a/0.log")
  }

  /// As in /var/log/containers: the target of a link is renamed, and a new one is created, under load.
  @Test func aRotatedTargetIsReadWhole() throws {
    makeContainers()
    let running = try Following([directory("containers/*.log")])
    var next = 0
    for round in 0..<60 {
      for _ in 0..<(round % 7) * 20 + 1 {
        directory.append("\(next)\n", to: "pods/a/0.log")
        next += 1
      }
      rotate(round)
    }
    let bytes = (0..<next).reduce(0) { $0 + "\($1)\n".utf8.count }
    #expect(running.seen.wait { $0.bytes.count >= bytes })
    // Files created within one clock tick are ordered by name.
    #expect(running.seen.text.split(separator: "\n").compactMap { Int($0) }.sorted() == Array(0..<next))
  }

  /// Rotated three times without a follower, with unread lines.
  @Test func aTargetThatWasRotatedMeanwhileIsReadOn() throws {
    makeContainers()
    directory.append("1\n2\n", to: "pods/a/0.log")
    let paths = [directory("containers/*.log")]
    var running = try Following(paths)
    #expect(running.seen.wait(for: "1\n2\n"))
    var positions = running.stop()
    #expect(positions.first?.target?.hasSuffix("pods/a/0.log") ?? false)
    directory.append("3\n", to: "pods/a/0.log")
    for number in 0..<3 {
      rotate(number)
      directory.append("\(number + 4)\n", to: "pods/a/0.log")
    }
    running = try Following(paths) { $0.resume = positions }
    #expect(running.seen.wait { $0.bytes.count >= 8 })
    // The same holds for their names.
    #expect(running.seen.text.split(separator: "\n").sorted() == ["3", "4", "5", "6"])
    positions = running.stop()
    // Positions of states that did not contain the link's target.
    for index in positions.indices { positions[index].target = nil }
    directory.append("7\n", to: "pods/a/0.log")
    rotate(9)
    directory.append("8\n", to: "pods/a/0.log")
    running = try Following(paths) { $0.resume = positions }
    #expect(running.seen.wait(for: "7\n8\n"))
  }

  /// `ln -sfn v2 current`: the old file is read to its end, the new one from its start; also when the link appears later.
  @Test(arguments: [true, false]) func aLinkToADirectoryIsSwitched(_ isThere: Bool) throws {
    for name in ["v1", "v2"] { mkdir(directory(name), 0o755) }
    func link(_ target: String) {
      symlink(target, directory("new"))
      rename(directory("new"), directory("current"))
    }
    if isThere { link("v1") }
    let running = try Following([directory("current/app.log")])
    if !isThere { link("v1") }
    directory.append("one\n", to: "v1/app.log")
    #expect(running.seen.wait(for: "one\n"))
    directory.append("two\n", to: "v1/app.log")
    directory.append("three\n", to: "v2/app.log")
    link("v2")
    #expect(running.seen.wait(for: "one\ntwo\nthree\n"))
    directory.append("four\n", to: "v2/app.log")
    #expect(running.seen.wait(for: "one\ntwo\nthree\nfour\n"))
  }

  @Test func allLevelsAreFollowed() throws {
    mkdir(directory("a"), 0o755)
    directory.append("0\n", to: "x.log")
    let running = try Following([directory("**/*.log")])
    #expect(running.seen.wait(for: "0\n"))
    mkdir(directory("a/b"), 0o755)
    mkdir(directory("a/b/c"), 0o755)
    directory.append("1\n", to: "a/b/c/x.log")
    #expect(running.seen.wait(for: "0\n1\n"))
  }

  /// A user who may write to a directory cannot make rxd read other users' files through a link.
  @Test(.enabled(if: geteuid() == 0, "needs root")) func linksOfOthersAreNotFollowed() throws {
    directory.append("secret\n", to: "secret")
    chmod(directory.path, 0o755)
    mkdir(directory("open"), 0o777)
    chmod(directory("open"), 0o777)
    mkdir(directory("logs"), 0o755)
    symlink(directory("secret"), directory("logs/other.log"))
    #expect(lchown(directory("logs/other.log"), 1234, 1234) == 0)
    symlink(directory("secret"), directory("open/own.log"))
    directory.append("mine\n", to: "logs/mine.log")
    let paths = [directory("logs/*.log"), directory("open/*.log")]
    let running = try Following(paths)
    #expect(running.seen.wait { $0.notices.count { if case .failed = $0 { true } else { false } } == 2 })
    #expect(running.seen.wait(for: "mine\n"))
    let errors = running.seen.state.withLock {
      $0.notices.compactMap { if case .failed(let error) = $0 { error } else { nil } }
    }
    #expect(errors.allSatisfy { $0.isRefusedLink })
    #expect(errors.contains { $0.message.contains("logs/other.log") && $0.message.contains("user 1234") })
    let all = try Following(paths) { $0.links = .always }
    #expect(all.seen.wait { $0.bytes.count == 12 })
    // A path without a pattern is the operator's choice.
    let named = try Following([directory("logs/other.log")])
    #expect(named.seen.wait(for: "secret\n"))
    let none = try Following([directory("logs/other.log")]) { $0.links = .never }
    #expect(none.seen.wait { $0.notices.contains { if case .failed = $0 { true } else { false } } })
  }

  /// If other machines change files, there are no events.
  @Test(arguments: [WatchMethod.auto, .poll]) func filesWithoutEventsArePolled(_ method: WatchMethod) throws {
    directory.append("one\n", to: "a.log")
    let running = try Following([directory("*.log")]) {
      $0.watch = method
      $0.networkFileSystem = { _ in "nfs" }
      $0.pollInterval = .milliseconds(20)
    }
    #expect(running.seen.wait(for: "one\n"))
    directory.append("two\n", to: "a.log")
    #expect(running.seen.wait(for: "one\ntwo\n"))
    rename(directory("a.log"), directory("a.log.1"))
    directory.append("three\n", to: "a.log")
    #expect(running.seen.wait(for: "one\ntwo\nthree\n"))
    let remote = running.seen.state.withLock { $0.notices.count { if case .remote = $0 { true } else { false } } }
    #expect(remote == (method == .auto ? 1 : 0))
  }

  // MARK: Last lines

  /// Like a file that was copied into the directory: it is no longer written to.
  @Test(arguments: [true, false]) func aClosedFileHasALastLine(_ isThere: Bool) throws {
    if isThere { directory.append("id\n1\n2", to: "a.csv") }
    let running = try Following([directory("*.csv")]) { $0.closedWait = .milliseconds(50) }
    if !isThere { directory.append("id\n1\n2", to: "a.csv") }
    #expect(running.seen.wait(for: "id\n1\n2"))
    // Its line feed is not a separate line.
    directory.append("\n3\n", to: "a.csv")
    #expect(running.seen.wait(for: "id\n1\n23\n"))
    #expect(running.stop().map(\.offset) == [9])
  }

  /// A program that writes in blocks may stop in the middle of a line for hours.
  @Test func aLineIsNotEndedWhileItsWriterIsThere() throws {
    let file = open(directory("a.log"), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0o600)
    func add(_ text: String) { #expect(write(file, text, text.utf8.count) == text.utf8.count) }
    add("one\ntw")
    let running = try Following([directory("a.log")]) {
      $0.closedWait = .milliseconds(1)
      $0.unendedNotice = .milliseconds(50)
    }
    #expect(
      running.seen.wait {
        $0.notices.contains { $0 == .unended(path: directory("a.log"), bytes: 2, isWritten: true) }
      })
    #expect(running.seen.text == "one\n")
    add("o\nthr")
    #expect(running.seen.wait(for: "one\ntwo\n"))
    close(file)
    #expect(running.seen.wait(for: "one\ntwo\nthr"))
  }

  @Test func aLineIsEndedAfterItsTime() throws {
    let file = open(directory("a.log"), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0o600)
    defer { close(file) }
    #expect(write(file, "one\ntw", 6) == 6)
    let running = try Following([directory("a.log")]) { $0.lastLine = .after(.milliseconds(50)) }
    #expect(running.seen.wait(for: "one\ntw"))
  }
}

@Suite struct SharedInotifyTests {
  let directory = ScratchDirectory()

  /// Two readers watch one directory for different events; the end of one does not affect the other's events.
  @Test func readersHaveEventsOfTheirOwn() throws {
    let stop = try WakeEvent()
    let first = try Inotify()
    var second: Inotify? = try Inotify(onlyWakes: true)
    let watch = try first.watch(directory.path, Inotify.directoryEvents)
    #expect(try second?.watch(directory.path, Inotify.contentEvents) == watch)
    directory.append("x", to: "a")
    var masks: UInt32 = 0
    while masks & UInt32(IN_CREATE) == 0 {
      let events = try #require(first.wait(stop: stop, milliseconds: 60_000))
      try #require(!events.isEmpty)
      masks |= events.reduce(0) { $0 | $1.mask }
    }
    #expect(masks & UInt32(IN_MODIFY) == 0, "asked for by the other one only")
    var entry = pollfd(fd: second?.descriptor ?? -1, events: Int16(POLLIN), revents: 0)
    #expect(poll(&entry, 1, 60_000) == 1)
    #expect(second?.read().contains { $0.name == "a" } ?? false)
    second = nil
    unlink(directory("a"))
    let events = try #require(first.wait(stop: stop, milliseconds: 60_000))
    #expect(events.contains { $0.name == "a" && $0.has(Int(IN_DELETE)) })
    stop.wake()
    #expect(first.wait(stop: stop, milliseconds: -1) == nil)
  }
}
