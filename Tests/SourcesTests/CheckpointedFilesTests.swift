import Foundation
import Glibc
import PipelineCore
import PipelineHost
import PipelineTestSupport
import Synchronization
import Testing

/// A pipeline is lost after a checkpoint, and its files may change meanwhile: the next pipeline sends exactly the events after
/// the checkpoint.
@Suite struct CheckpointedFilesTests {
  let scratch = Scratch()

  private func yaml(_ file: String) -> String {
    """
    sources: { input: { file: \(file) } }
    sinks: { out: { from: input, chain: [ { map: event } ], probe: {} } }
    """
  }

  /// Reads the available input, `seen` events, and is lost.
  private func lose(_ file: String, behind seen: [String]) throws -> [UInt8] {
    let first = try RealPipeline(yaml(file))
    first.run { first.events.count >= seen.count }
    #expect(first.events == seen)
    return try first.lose()
  }

  /// Continues; another event, from the last file, shows that no further events follow.
  private func goOn(_ file: String, _ state: [UInt8], until count: Int) throws -> RealPipeline {
    let second = try RealPipeline(yaml(file), restoring: state)
    #expect(second.execution.refusals.map(\.message) == [])
    second.run { second.events.count >= count }
    scratch.append("end\n", to: "zz.log")
    second.run { second.events.count >= count + 1 }
    #expect(second.events.last == "\"end\"")
    return second
  }

  private func expect(_ lines: [String], _ file: String, _ state: [UInt8]) throws {
    let second = try goOn(file, state, until: lines.count)
    #expect(second.events.dropLast() == lines.map { "\"\($0)\"" }[...])
  }

  private var logs: String { "{ path: ['\(scratch("a.log"))', '\(scratch("zz.log"))'], follow: true }" }

  private func move(_ name: String, to other: String) { #expect(rename(scratch(name), scratch(other)) == 0) }

  // MARK: Decoding

  @Test func theHeaderOfATable() throws {
    scratch.append("name,n\nann,1\nbo", to: "a.csv")
    let file = "{ path: '\(scratch("a.csv"))', follow: true, decode: csv }"
    let state = try lose(file, behind: [#"{"name":"ann","n":"1"}"#])
    scratch.append("b,2\n", to: "a.csv")
    let second = try RealPipeline(yaml(file), restoring: state)
    second.run { second.events.count >= 1 }
    #expect(second.events == [#"{"name":"bob","n":"2"}"#])
  }

  /// The header has been read, but no row.
  @Test func aHeaderWithoutRows() throws {
    scratch.append("name,n\n", to: "a.csv")
    let file = "{ path: '\(scratch("a.csv"))', follow: true, decode: csv }"
    let first = try RealPipeline(yaml(file))
    first.run { first.execution.hasBegun }
    let state = try first.lose()
    scratch.append("ann,1\n", to: "a.csv")
    let second = try RealPipeline(yaml(file), restoring: state)
    second.run { second.events.count >= 1 }
    #expect(second.events == [#"{"name":"ann","n":"1"}"#])
  }

  @Test func aPartOfALine() throws {
    scratch.append("1\n2", to: "a.log")
    let state = try lose(logs, behind: ["\"1\""])
    scratch.append("2\n3\n", to: "a.log")
    try expect(["22", "3"], logs, state)
  }

  /// A line that is longer than allowed and still incomplete.
  @Test(arguments: ["cut", "drop", "reject"]) func aPartOfALongLine(_ policy: String) throws {
    let file = """
      { path: ['\(scratch("a.log"))', '\(scratch("zz.log"))'], follow: true, maxLine: 16B, whenTooLong: \(policy) }
      """
    scratch.append("1\nabcdefghijklmnopqrstuvwxyz", to: "a.log")
    let state = try lose(file, behind: ["\"1\""])
    scratch.append("0123456789\n2\n", to: "a.log")
    let wanted = policy == "cut" ? ["abcdefghijklmnop", "2"] : ["2"]
    let second = try goOn(file, state, until: wanted.count)
    #expect(second.events.dropLast() == wanted.map { "\"\($0)\"" }[...])
    #expect(second.deadLetters.count == (policy == "reject" ? 1 : 0))
  }

  /// Files that are read once, lost repeatedly at random instants, with overlong lines among them.
  @Test(arguments: ["cut", "drop", "reject"], 0..<6 as Range<UInt64>)
  func filesThatAreReadOnce(_ policy: String, _ seed: UInt64) throws {
    var random = SplitMix(seed)
    var wanted: [String] = []
    for name in ["a", "b", "c"] {
      for number in 0..<200 {
        let isLong = random.below(8) == 0
        let line = "\(name)\(number)" + (isLong ? String(repeating: "x", count: 20 + random.below(300)) : "")
        scratch.append(line + "\n", to: name)
        if !isLong { wanted.append("\"\(line)\"") } else if policy == "cut" { wanted.append("\"\(line.prefix(16))\"") }
      }
    }
    let text = yaml("{ path: '\(scratch("?"))', maxLine: 16B, whenTooLong: \(policy) }")
    var state: [UInt8]?
    var seen: [String] = []
    for _ in 0..<5 {
      let pipeline = try RealPipeline(text, restoring: state) {
        $0.reading.blockBytes = 64
        $0.reading.startsAllThreads = true
        $0.executor.limits.events = 1 + random.below(5)
      }
      let count = 1 + random.below(100)
      pipeline.run { pipeline.events.count >= count || pipeline.outcome != nil }
      if pipeline.outcome != nil { break }
      // Turns continue between the checkpoint and the loss; their events are repeated.
      let at = Mutex(0)
      nonisolated(unsafe) let running = pipeline
      pipeline.inTurn { _ in at.withLock { $0 = running.events.count } }
      state = try pipeline.lose()
      let sure = at.withLock { $0 }
      seen += pipeline.events.prefix(sure)
      #expect(seen == Array(wanted.prefix(seen.count)))
    }
    let last = try RealPipeline(text, restoring: state)
    last.runToEnd()
    #expect(seen + last.events == wanted, "seed \(seed)")
  }

  // MARK: Rotation

  @Test func rotatedMeanwhile() throws {
    scratch.append("1\n", to: "a.log")
    let state = try lose(logs, behind: ["\"1\""])
    scratch.append("2\n", to: "a.log")
    move("a.log", to: "a.log.1")
    scratch.append("3\n", to: "a.log")
    try expect(["2", "3"], logs, state)
  }

  @Test func rotatedSeveralTimesMeanwhile() throws {
    scratch.append("1\n", to: "a.log")
    let state = try lose(logs, behind: ["\"1\""])
    scratch.append("2\n", to: "a.log")
    move("a.log", to: "a.log.1")
    scratch.append("3\n", to: "a.log")
    // Creation times are distinguished by a file system clock that ticks every few milliseconds.
    move("a.log.1", to: "a.log.2")
    move("a.log", to: "a.log.1")
    scratch.append("4\n", to: "a.log")
    try expect(["2", "3", "4"], logs, state)
  }

  /// The old file was being read to its end when the pipeline was lost.
  @Test func rotatedBefore() throws {
    scratch.append("1\n", to: "a.log")
    let first = try RealPipeline(yaml(logs))
    first.run { first.events.count == 1 }
    move("a.log", to: "a.log.1")
    scratch.append("2\n", to: "a.log")
    first.run { first.events.count == 2 }
    let state = try first.lose()
    // The writing program has not reopened the file yet.
    scratch.append("3\n", to: "a.log.1")
    try expect(["3"], logs, state)
  }

  /// The only file in the state had already been renamed when it was saved, and is renamed again with a younger one before it.
  @Test func rotatedBeforeAndMeanwhile() throws {
    scratch.append("1\n", to: "a.log")
    let state = try lose(logs, behind: ["\"1\""])
    move("a.log", to: "a.log.1")
    scratch.append("2\n", to: "a.log.1")
    let second = try RealPipeline(yaml(logs), restoring: state)
    second.run { !second.events.isEmpty }
    #expect(second.events == ["\"2\""])
    let renamed = try second.lose()
    move("a.log.1", to: "a.log.3")
    scratch.append("3\n", to: "a.log.2")
    scratch.append("4\n", to: "a.log.1")
    scratch.append("5\n", to: "a.log")
    try expect(["3", "4", "5"], logs, renamed)
  }

  private func gzip(_ name: String) throws {
    let process = Process()
    process.executableURL = URL(fileURLWithPath: "/usr/bin/env")
    process.arguments = ["gzip", scratch(name)]
    try process.run()
    process.waitUntilExit()
    try #require(process.terminationStatus == 0)
  }

  @Test func compressedMeanwhile() throws {
    scratch.append("1\n", to: "a.log")
    let state = try lose(logs, behind: ["\"1\""])
    scratch.append("2\n", to: "a.log")
    move("a.log", to: "a.log.2")
    try gzip("a.log.2")
    scratch.append("3\n", to: "a.log.1")
    scratch.append("4\n", to: "a.log")
    let second = try goOn(logs, state, until: 3)
    #expect(second.events.dropLast() == ["\"2\"", "\"3\"", "\"4\""])
    #expect(second.log.contains { $0.hasPrefix("info") && $0.contains("was compressed") })
  }

  /// Lost repeatedly while a compressed file is read.
  @Test(arguments: 0..<4 as Range<UInt64>) func compressedMeanwhileAndLostAgain(_ seed: UInt64) throws {
    var random = SplitMix(seed)
    scratch.append("0\n", to: "a.log")
    var state = try lose(logs, behind: ["\"0\""])
    let lines = (1..<40_000).map { "\($0) \(random.next())" }
    scratch.append(lines.map { $0 + "\n" }.joined(), to: "a.log")
    move("a.log", to: "a.log.1")
    try gzip("a.log.1")
    scratch.append("end\n", to: "a.log")
    var seen: [String] = []
    let wanted = (lines + ["end"]).map { "\"\($0)\"" }
    for _ in 0..<5 {
      let pipeline = try RealPipeline(yaml(logs), restoring: state) { $0.executor.limits.events = 1 + random.below(50) }
      let count = 1 + random.below(3000)
      pipeline.run { pipeline.events.count >= count || seen.count + pipeline.events.count >= wanted.count }
      let at = Mutex(0)
      nonisolated(unsafe) let running = pipeline
      pipeline.inTurn { _ in at.withLock { $0 = running.events.count } }
      state = try pipeline.lose()
      seen += pipeline.events.prefix(at.withLock { $0 })
      #expect(seen == Array(wanted.prefix(seen.count)))
    }
    let last = try RealPipeline(yaml(logs), restoring: state)
    last.run { seen.count + last.events.count >= wanted.count }
    #expect(seen + last.events == wanted, "seed \(seed)")
  }

  /// Data that cannot be decompressed is lost, and the log says from which offset on.
  @Test func compressedAndDamagedMeanwhile() throws {
    scratch.append("1\n", to: "a.log")
    let state = try lose(logs, behind: ["\"1\""])
    scratch.append("2\n", to: "a.log")
    move("a.log", to: "a.log.1")
    try gzip("a.log.1")
    var bytes = [UInt8](FileManager.default.contents(atPath: scratch("a.log.1.gz")) ?? Data())
    bytes[bytes.count - 8] ^= 1
    unlink(scratch("a.log.1.gz"))
    scratch.append(bytes, to: "a.log.1.gz")
    scratch.append("3\n", to: "a.log")
    let second = try goOn(logs, state, until: 2)
    #expect(second.events.dropLast() == ["\"2\"", "\"3\""])
    #expect(
      second.log.contains {
        $0.hasPrefix("warning")
          && $0.contains("a.log.1.gz is damaged; its decompressed content after byte 4 is lost")
      })
  }

  /// The copy has the part that was unread before the truncation; the file is now shorter, or longer.
  @Test(arguments: [["9"], ["9", "10", "11", "12", "13"]]) func copiedAndTruncatedMeanwhile(_ new: [String]) throws {
    scratch.append("1\n2\n3\n", to: "a.log")
    let state = try lose(logs, behind: ["\"1\"", "\"2\"", "\"3\""])
    scratch.append("4\n", to: "a.log")
    scratch.append(scratch.read("a.log"), to: "a.log.1")
    truncate(scratch("a.log"), 0)
    scratch.append(new.map { $0 + "\n" }.joined(), to: "a.log")
    try expect(["4"] + new, logs, state)
  }

  /// Truncated without a copy, the unread part is lost, and new data is read.
  @Test(arguments: [["9"], ["9", "10", "11", "12", "13"]]) func truncatedMeanwhile(_ new: [String]) throws {
    scratch.append("1\n2\n3\n", to: "a.log")
    let state = try lose(logs, behind: ["\"1\"", "\"2\"", "\"3\""])
    truncate(scratch("a.log"), 0)
    scratch.append(new.map { $0 + "\n" }.joined(), to: "a.log")
    try expect(new, logs, state)
  }

  /// The copy has the header of the old file; the file has a new one.
  @Test func aTableThatWasCopiedAndTruncated() throws {
    let file = "{ path: '\(scratch("a.csv"))', follow: true, decode: csv }"
    scratch.append("name\nann\n", to: "a.csv")
    let state = try lose(file, behind: [#"{"name":"ann"}"#])
    scratch.append("bob\n", to: "a.csv")
    scratch.append(scratch.read("a.csv"), to: "a.csv.1")
    truncate(scratch("a.csv"), 0)
    scratch.append("n\n1\n", to: "a.csv")
    let second = try RealPipeline(yaml(file), restoring: state)
    second.run { second.events.count >= 2 }
    #expect(second.events == [#"{"name":"bob"}"#, #"{"n":"1"}"#])
  }

  // MARK: Other files under the same name

  @Test func removedMeanwhile() throws {
    scratch.append("1\n", to: "a.log")
    let state = try lose(logs, behind: ["\"1\""])
    unlink(scratch("a.log"))
    try expect([], logs, state)
  }

  /// The new file begins with the same bytes, and may have the inode of the old one.
  @Test func madeAnewMeanwhile() throws {
    for round in 0..<20 {
      scratch.append("1\n", to: "a.log")
      let state = try lose(logs, behind: ["\"1\""])
      unlink(scratch("a.log"))
      scratch.append("1\n\(round)\n", to: "a.log")
      try expect(["1", "\(round)"], logs, state)
      unlink(scratch("a.log"))
      unlink(scratch("zz.log"))
    }
  }

  /// A file that is read once and was replaced is read from its start; a renamed one, from where reading ended.
  @Test(arguments: [true, false]) func aFileReadOnceThatIsAnotherOne(_ isRenamed: Bool) throws {
    scratch.append((0..<200).map { "\($0)\n" }.joined(), to: "a")
    let text = yaml("'\(scratch("a"))'")
    let first = try RealPipeline(text) { $0.reading.blockBytes = 64 }
    first.run { first.events.count >= 20 }
    let state = try first.lose()
    if isRenamed { move("a", to: "b") } else { unlink(scratch("a")) }
    // The new file often has the same inode.
    scratch.append((0..<300).map { "\($0 + 300)\n" }.joined(), to: "a")
    let second = try RealPipeline(text, restoring: state)
    second.runToEnd()
    let begin = try #require(second.events.first.flatMap { Int($0.dropFirst().dropLast()) })
    #expect(second.events.count == (isRenamed ? 200 - begin : 300))
    #expect(begin == 300 || isRenamed)
  }

  // MARK: Many files

  /// Half of ten thousand files are rotated while no pipeline runs.
  @Test(.timeLimit(.minutes(5))) func tenThousandFiles() throws {
    var limit = rlimit()
    getrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit)
    let count = min(10_000, (Int(clamping: limit.rlim_cur) - 500) / 2)
    for number in 0..<count { scratch.append("\(number)\n", to: "\(number).log") }
    let file = "{ path: '\(scratch("*.log"))', follow: true }"
    let first = try RealPipeline(yaml(file))
    first.run { first.counters.received == UInt64(count) }
    let state = try first.lose()
    for number in stride(from: 0, to: count, by: 2) {
      scratch.append("\(number)\n", to: "\(number).log")
      move("\(number).log", to: "\(number).log.1")
      scratch.append("\(number + count)\n", to: "\(number).log")
    }
    let second = try RealPipeline(yaml(file), restoring: state)
    second.run { second.counters.received == UInt64(count) }
    let wanted = stride(from: 0, to: count, by: 2).flatMap { ["\"\($0)\"", "\"\($0 + count)\""] }
    #expect(second.events.sorted() == wanted.sorted())
  }
}
