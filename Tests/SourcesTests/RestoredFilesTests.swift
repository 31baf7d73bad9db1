import Foundation
import Glibc
import PipelineCore
import PipelineHost
import PipelineTestSupport
import Synchronization
import Testing

extension RealPipeline {
  private struct Lost: Error { var log: [String] }

  /// The current state, once it is acknowledged. Then the pipeline is lost.
  func lose() throws -> [UInt8] {
    let found = Mutex<Execution.Checkpoint?>(nil)
    let ring = ring
    let isTaken = Mutex(true)
    inTurn { pipeline in
      let begun = pipeline.execution.checkpoint { outcome in
        found.withLock { $0 = outcome }
        ring()
      }
      isTaken.withLock { $0 = begun }
    }
    run(within: .seconds(60)) { found.withLock { $0 } != nil || !isTaken.withLock { $0 } }
    inTurn { $0.execution.cancel() }
    run(within: .seconds(60)) { execution.hasClosed }
    guard case .acknowledged(let state) = found.withLock({ $0 }) else { throw Lost(log: log) }
    return state
  }
}

/// A pipeline is lost, and its input is meanwhile restored with another inode: the next one continues where the first one ended
/// if the content is the same, and otherwise reads it from its start.
@Suite struct RestoredFilesTests {
  let scratch = Scratch()

  private func yaml(_ file: String) -> String {
    """
    sources: { input: { file: \(file) } }
    sinks: { out: { from: input, chain: [ { map: event } ], probe: {} } }
    """
  }

  private func lines(_ range: Range<Int>, of name: String = "a") -> [String] {
    range.map { "2026-11-27T18:00:\($0) a line of \(name)" }
  }

  private func text(_ lines: [String]) -> String { lines.map { $0 + "\n" }.joined() }
  private func events(_ lines: [String]) -> [String] { lines.map { "\"\($0)\"" } }

  enum Way: CaseIterable { case editor, archive, truncated }

  /// Writes the file again as an editor, or as tar and `cp -a` do, which keep its times.
  private func restore(_ name: String, _ way: Way = .editor, _ content: String? = nil) throws {
    var status = stat()
    try #require(stat(scratch(name), &status) == 0)
    let content = content.map { Array($0.utf8) } ?? Array(FileManager.default.contents(atPath: scratch(name)) ?? Data())
    if way == .truncated {
      truncate(scratch(name), 0)
      return scratch.append(content, to: name)
    }
    scratch.append(content, to: "." + name)
    if way == .archive {
      #expect(utimensat(AT_FDCWD, scratch("." + name), [status.st_atim, status.st_mtim], 0) == 0)
    }
    try #require(rename(scratch("." + name), scratch(name)) == 0)
  }

  private func followed(_ names: String..., decode: String = "text") -> String {
    "{ path: [\(names.map { "'\(scratch($0))'" }.joined(separator: ", "))], follow: true, decode: \(decode) }"
  }

  /// Reads the available input, and is lost.
  private func lose(_ file: String, behind seen: [String], change: (Execution) -> Void = { _ in }) throws -> [UInt8] {
    let first = try RealPipeline(yaml(file), before: change)
    first.run(within: .seconds(60)) { first.events.count >= seen.count }
    #expect(first.events == seen)
    return try first.lose()
  }

  /// Continues, and reads a last line from another file.
  private func goOn(_ file: String, _ state: [UInt8], expecting wanted: [String]) throws -> RealPipeline {
    let second = try RealPipeline(yaml(file), restoring: state)
    second.run(within: .seconds(60)) { second.events.count >= wanted.count }
    scratch.append("end\n", to: "zz.log")
    second.run(within: .seconds(60)) { second.events.last == "\"end\"" }
    #expect(second.events.dropLast() == wanted[...])
    #expect(!second.log.contains { $0.contains("lost") })
    return second
  }

  @Test(arguments: Way.allCases) func isReadOn(_ way: Way) throws {
    scratch.append(text(lines(0..<100)), to: "a.log")
    let file = followed("a.log", "zz.log")
    let state = try lose(file, behind: events(lines(0..<100)))
    scratch.append(text(lines(100..<120)), to: "a.log")
    try restore("a.log", way)
    let second = try goOn(file, state, expecting: events(lines(100..<120)))
    #expect(!second.log.contains { $0.hasPrefix("warning") })
    let end = text(lines(0..<100)).utf8.count
    if way != .truncated {
      #expect(
        second.log.contains {
          $0.hasSuffix("is another file than before, with the same content up to byte \(end): reading continues there")
        })
    }
  }

  /// Repeatedly, each time with one more line.
  @Test func isReadOnAgainAndAgain() throws {
    let file = followed("a.log", "zz.log")
    scratch.append(text(lines(0..<10)), to: "a.log")
    var state = try lose(file, behind: events(lines(0..<10)))
    for number in 10..<16 {
      scratch.append(text(lines(number..<(number + 1))), to: "a.log")
      try restore("a.log", number % 2 == 0 ? .editor : .archive)
      let next = try RealPipeline(yaml(file), restoring: state)
      next.run(within: .seconds(60)) { !next.events.isEmpty }
      #expect(next.events == events(lines(number..<(number + 1))))
      state = try next.lose()
    }
  }

  /// Many files begin with the same few bytes: only the time shows that it is not a new file.
  @Test func aShortFile() throws {
    let file = followed("a.log", "zz.log")
    scratch.append("1\n", to: "a.log")
    let times = [timespec](repeating: timespec(tv_sec: time(nil) - 60, tv_nsec: 0), count: 2)
    #expect(utimensat(AT_FDCWD, scratch("a.log"), times, 0) == 0)
    let state = try lose(file, behind: ["\"1\""])
    try restore("a.log", .archive)
    _ = try goOn(file, state, expecting: [])
    unlink(scratch("zz.log"))
    try restore("a.log", .editor)
    _ = try goOn(file, state, expecting: ["\"1\""])
  }

  /// A turn ends in the middle of a block, and the later rows are repeated.
  @Test func aPositionWithinABlock() throws {
    let file = followed("a.log", "zz.log")
    scratch.append(text(lines(0..<100)), to: "a.log")
    let first = try RealPipeline(yaml(file)) { $0.executor.limits.events = 7 }
    first.run(within: .seconds(60)) { first.events.count >= 21 }
    let state = try first.lose()
    let seen = first.events.count
    try restore("a.log")
    let second = try RealPipeline(yaml(file), restoring: state)
    second.run(within: .seconds(60)) { second.events.last == events(lines(99..<100))[0] }
    #expect(second.events.count >= 100 - seen && second.events.count < 100)
    #expect(second.events[...] == events(lines(0..<100)).suffix(second.events.count))
  }

  @Test func filesOfAPattern() throws {
    let file = followed("*.log")
    for name in ["a", "b", "c"] { scratch.append(text(lines(0..<20, of: name)), to: name + ".log") }
    let first = try RealPipeline(yaml(file))
    first.run(within: .seconds(60)) { first.events.count >= 60 }
    // Rotated and not at its end: reading continues under its new name.
    #expect(rename(scratch("c.log"), scratch("c.log.1")) == 0)
    let state = try first.lose()
    for name in ["a.log", "b.log", "c.log.1"] {
      scratch.append(text(lines(20..<30, of: String(name.prefix(1)))), to: name)
    }
    for name in ["b.log", "a.log"] { try restore(name) }
    let second = try RealPipeline(yaml(file), restoring: state)
    second.run(within: .seconds(60)) { second.events.count >= 30 }
    scratch.append("end\n", to: "zz.log")
    second.run(within: .seconds(60)) { second.events.last == "\"end\"" }
    #expect(second.events.dropLast().sorted() == events(["a", "b", "c"].flatMap { lines(20..<30, of: $0) }).sorted())
  }

  /// The header of a table belongs to the content before the position.
  @Test func aTable() throws {
    let file = followed("a.csv", decode: "csv")
    scratch.append("name,what\n" + (0..<20).map { "n\($0),an entry\n" }.joined(), to: "a.csv")
    let first = try RealPipeline(yaml(file))
    first.run(within: .seconds(60)) { first.events.count >= 20 }
    let state = try first.lose()
    scratch.append("last,one\n", to: "a.csv")
    try restore("a.csv")
    let second = try RealPipeline(yaml(file), restoring: state)
    second.run(within: .seconds(60)) { !second.events.isEmpty }
    #expect(second.events == [#"{"name":"last","what":"one"}"#])
  }

  // MARK: Other files

  @Test func anotherFileIsReadFromItsStart() throws {
    let file = followed("a.log", "zz.log")
    scratch.append(text(lines(0..<20)), to: "a.log")
    let state = try lose(file, behind: events(lines(0..<20)))
    try restore("a.log", .editor, text(lines(50..<80)))
    let second = try goOn(file, state, expecting: events(lines(50..<80)))
    let end = text(lines(0..<20)).utf8.count
    #expect(
      second.log.contains {
        $0.contains(
          "was replaced by a file with other content, and is read from its start; what was added after byte \(end)")
      })
  }

  /// Only the bytes before the position differ: each of the files has the same long header.
  @Test(arguments: [Way.editor, .truncated]) func theSameHeader(_ way: Way) throws {
    let file = followed("a.log", "zz.log")
    let header = "#Fields: " + String(repeating: "field ", count: 60)
    scratch.append(text([header] + lines(0..<20)), to: "a.log")
    let state = try lose(file, behind: events([header] + lines(0..<20)))
    try restore("a.log", way, text([header] + lines(20..<60)))
    let second = try goOn(file, state, expecting: events([header] + lines(20..<60)))
    #expect(second.log.contains { $0.contains(way == .editor ? "was replaced by" : "was rewritten") })
  }

  @Test func aFileThatIsGone() throws {
    let file = followed("a.log", "zz.log")
    scratch.append(text(lines(0..<20)), to: "a.log")
    let state = try lose(file, behind: events(lines(0..<20)))
    unlink(scratch("a.log"))
    let second = try goOn(file, state, expecting: [])
    #expect(second.log.contains { $0.contains("a.log was removed; what was added after byte") })
  }

  // MARK: Files that are read once

  @Test(arguments: ["none", "gzip"], [Way.editor, .archive]) func readOnce(_ compression: String, _ way: Way) throws {
    scratch.append(text(lines(0..<200)), to: "a")
    if compression == "gzip" {
      let process = Process()
      process.executableURL = URL(fileURLWithPath: "/usr/bin/env")
      process.arguments = ["gzip", scratch("a")]
      try process.run()
      process.waitUntilExit()
      try #require(rename(scratch("a.gz"), scratch("a")) == 0)
    }
    let text = yaml("'\(scratch("a"))'")
    let first = try RealPipeline(text) { $0.reading.blockBytes = 256 }
    first.run(within: .seconds(60)) { first.events.count >= 20 }
    let state = try first.lose()
    let seen = first.events.count
    try restore("a", way)
    let second = try RealPipeline(text, restoring: state)
    second.runToEnd()
    let all = events(lines(0..<200))
    #expect(second.events.count >= 200 - seen && second.events.count <= 180)
    #expect(second.events[...] == all.suffix(second.events.count))
    #expect(second.log.contains { $0.contains("with the same content up to byte") })
  }
}
