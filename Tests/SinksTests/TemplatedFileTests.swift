import Foundation
import PipelineHost
import PipelineTestSupport
import Synchronization
import Testing

@testable import PipelineCore

/// A `file` sink whose path has expressions: each event names its file below one directory.
@Suite struct TemplatedFileTests {
  let scratch = Scratch()

  private func yaml(_ path: String, _ more: String = "", events: String, chain: String = "[]") -> String {
    """
    sources: { events: { values: \(events) } }
    signals: { made: { from: events, chain: \(chain) } }
    sinks: { store: { from: made, file: { path: "\(path)"\(more.isEmpty ? "" : ", " + more) } } }
    """
  }

  private func run(_ path: String, _ more: String = "", events: String, chain: String = "[]") throws -> RealPipeline {
    let writing = try RealPipeline(yaml(path, more, events: events, chain: chain))
    writing.runToEnd()
    return writing
  }

  /// The open descriptors of this process below the scratch folder.
  private func openBelow() -> Int {
    let numbers = (try? FileManager.default.contentsOfDirectory(atPath: "/proc/self/fd")) ?? []
    return numbers.count { number in
      (try? FileManager.default.destinationOfSymbolicLink(atPath: "/proc/self/fd/" + number))?
        .hasPrefix(scratch.path + "/") == true
    }
  }

  // MARK: Which file

  @Test func everyEventGoesToItsFile() throws {
    let path = scratch.path + "/{{ event.day }}/{{ event.service }}.ndjson"
    let writing = try run(
      path,
      events: """
        [ { day: a, service: x, n: 1 }, { day: b, service: x, n: 2 }, { day: a, service: x, n: 3 }, \
        { day: a, service: y z, n: 4 } ]
        """, chain: "[ { map: event } ]")
    #expect(writing.outcome == .completed)
    #expect(
      scratch.read("a/x.ndjson")
        == "{\"day\":\"a\",\"service\":\"x\",\"n\":1}\n{\"day\":\"a\",\"service\":\"x\",\"n\":3}\n")
    #expect(scratch.read("b/x.ndjson") == "{\"day\":\"b\",\"service\":\"x\",\"n\":2}\n")
    #expect(scratch.read("a/y z.ndjson") == "{\"day\":\"a\",\"service\":\"y z\",\"n\":4}\n")
    #expect(writing.counters.sent == 4)
    #expect(openBelow() == 0)
  }

  @Test func aFileIsContinued() throws {
    scratch.append("torn", to: "1.log")
    _ = try run(scratch.path + "/{{ event }}.log", events: "[1, 2, 1]")
    #expect(scratch.read("1.log") == "torn\n1\n1\n")
    #expect(scratch.read("2.log") == "2\n")
  }

  @Test(arguments: [1, 2, 5]) func onlySoManyFilesAreOpen(_ most: Int) throws {
    let events = (0..<400).map { "\(($0 * 7) % 20)" }.joined(separator: ", ")
    let writing = try RealPipeline(
      yaml(
        scratch.path + "/{{ event }}.csv", "maxOpenFiles: \(most), encode: csv", events: "[\(events)]",
        chain: "[ { map: '{ \"n\": event }' } ]"
      ).replacingOccurrences(of: "{{ event }}", with: "{{ event.n }}"))
    var highest = 0
    writing.run {
      highest = max(highest, openBelow())
      return writing.outcome != nil
    }
    #expect(writing.outcome == .completed)
    // A directory is opened in the course of opening a file.
    #expect(highest <= most + 1)
    for number in 0..<20 {
      // A header once for each file, not each time it is opened.
      #expect(scratch.read("\(number).csv") == "n\n" + String(repeating: "\(number)\n", count: 20))
    }
  }

  @Test func aFileWithoutEventsIsClosed() throws {
    let pipeline = try VirtualPipeline(
      """
      sources: { events: { values: { list: [a, b, a, a, a, a], every: 10s } } }
      sinks: { store: { from: events, file: { path: '\(scratch.path)/{{ event }}.log', idleTimeout: 25s, encode: text } } }
      """)
    func wait(for open: Int) {
      let end = Date(timeIntervalSinceNow: 60)
      while openBelow() != open, Date() < end { sched_yield() }
      #expect(openBelow() == open)
    }
    pipeline.run(until: .seconds(22))
    wait(for: 2)
    pipeline.run(until: .seconds(46))
    wait(for: 1)
    pipeline.run(until: .seconds(61))
    let end = Date(timeIntervalSinceNow: 60)
    while pipeline.outcome == nil, Date() < end { pipeline.settle() }
    #expect(pipeline.outcome == .completed)
    #expect(scratch.read("a.log") == "a\na\na\na\na\n")
    #expect(scratch.read("b.log") == "b\n")
  }

  // MARK: What is refused

  @Test(arguments: [
    ("..", "the path of its file would have the name '..'"), (".", "the path of its file would have the name '.'"),
    ("", "a value in the path of its file is empty"), ("/etc", "a value in the path of its file has a slash: '/etc'"),
    ("../up", "a value in the path of its file has a slash: '../up'"), ("a/b", "has a slash: 'a/b'"),
    ("a\\0b", "has a NUL character"), ("a\\nb", "has a control character"), ("link", "it is a symbolic link"),
    ("file", "cannot open the directory \\S*/out/file: Not a directory"),
    (String(repeating: "x", count: 300), "name too long"),
  ])
  func noEventLeavesTheDirectory(_ value: String, _ reason: String) throws {
    mkdir(scratch("out"), 0o700)
    mkdir(scratch("elsewhere"), 0o700)
    #expect(symlink(scratch("elsewhere"), scratch("out/link")) == 0)
    scratch.append("x", to: "out/file")
    let writing = try run(
      scratch("out") + "/{{ event.name }}/x.log",
      events: "[ { name: good, n: 1 }, { name: \"\(value)\", n: 2 }, { name: good, n: 3 } ]")
    #expect(writing.outcome == .completed)
    #expect(writing.counters.sent == 2 && writing.counters.rejected == 1)
    #expect(scratch.read("out/good/x.log").split(separator: "\n").count == 2)
    let letter = try #require(writing.deadLetters.first)
    #expect(writing.deadLetters.count == 1)
    #expect(letter.range(of: reason, options: [.regularExpression, .caseInsensitive]) != nil, "\(letter)")
    #expect(letter.contains("\"n\":2"))
    #expect(try FileManager.default.contentsOfDirectory(atPath: scratch("elsewhere")) == [])
    #expect(Set(try FileManager.default.contentsOfDirectory(atPath: scratch.path)) == ["out", "elsewhere"])
  }

  /// A value that is only a part of a name may contain dots, and the path must not name a link, FIFO or directory.
  @Test func aNameIsWhatCounts() throws {
    #expect(symlink(scratch("target"), scratch("a..log")) == 0)
    #expect(mkfifo(scratch("b..log"), 0o600) == 0)
    mkdir(scratch("c..log"), 0o700)
    let writing = try run(scratch.path + "/{{ event }}.log", events: "['..', 'a.', 'b.', 'c.']")
    #expect(writing.outcome == .completed)
    #expect(scratch.read("...log") == "\"..\"\n")
    #expect(writing.counters.rejected == 3)
    #expect(writing.deadLetters.filter { $0.contains("symbolic link") }.count == 1)
    #expect(writing.deadLetters.filter { $0.contains("it is a FIFO") }.count == 1)
    #expect(writing.deadLetters.filter { $0.contains("Is a directory") }.count == 1)
    #expect(!FileManager.default.fileExists(atPath: scratch("target")))
  }

  @Test func aRefusedEventGoesToTheErrorsOutput() throws {
    let writing = try RealPipeline(
      """
      sources: { events: { values: [a, '..', b] } }
      sinks:
        store: { from: events, file: "\(scratch.path)/{{ event }}/{{ event }}" }
        refused: { from: store.errors, probe: {} }
      """)
    #expect(writing.runToEnd() == .completed)
    #expect(writing.probe("refused").events.count == 1)
    #expect(writing.probe("refused").events.first?.contains("the path of its file would have the name '..'") == true)
    #expect(writing.deadLetters == [])
  }

  /// An event without the field, and one that is not JSON.
  @Test func anEventWithoutAPathIsRefused() throws {
    scratch.append("{\"n\":\"a\"}\n{\"m\":1}\n{\"n\":\n{\"n\":\"a\"}\n", to: "in.ndjson")
    let writing = try RealPipeline(
      """
      sources: { events: { file: { path: '\(scratch("in.ndjson"))', decode: json } } }
      sinks: { store: { from: events, file: "\(scratch.path)/{{ event.n }}.log" } }
      """)
    #expect(writing.runToEnd() == .completed)
    #expect(scratch.read("a.log") == "{\"n\":\"a\"}\n{\"n\":\"a\"}\n")
    #expect(writing.deadLetters.count == 2)
    #expect(writing.deadLetters.contains { $0.contains("no such key: 'n'") }, "\(writing.deadLetters)")
  }

  @Test func withoutItsDirectoryTheSinkDoesNotStart() throws {
    let writing = try run(scratch("missing") + "/{{ event }}.log", events: "[1]")
    guard case .failed(let failure) = writing.outcome else { throw Missing() }
    #expect(failure.message == "cannot open the directory \(scratch("missing")): No such file or directory")
  }
  private struct Missing: Error {}

  /// A file that rotation moved away is created again; if that fails, the moved file receives the rest.
  @Test(arguments: [false, true]) func aMovedFile(_ isBlocked: Bool) throws {
    scratch.append("", to: "in.log")
    let pipeline = try RealPipeline(
      """
      sources: { in: { file: { path: '\(scratch("in.log"))', follow: true } } }
      sinks: { out: { from: in, file: { path: "\(scratch.path)/{{ event[0:1] }}.out", encode: text } } }
      """.replacingOccurrences(of: "event[0:1]", with: "event.substring(0, 1)"))
    scratch.append("a1\n", to: "in.log")
    #expect(pipeline.run { scratch.read("a.out") == "a1\n" })
    #expect(rename(scratch("a.out"), scratch("a.out.1")) == 0)
    if isBlocked { #expect(symlink(scratch("target"), scratch("a.out")) == 0) }
    scratch.append("a2\n", to: "in.log")
    #expect(pipeline.run { scratch.read(isBlocked ? "a.out.1" : "a.out").hasSuffix("a2\n") })
    pipeline.inTurn { $0.execution.drain() }
    #expect(pipeline.runToEnd() == .completed)
    #expect(scratch.read("a.out.1") == (isBlocked ? "a1\na2\n" : "a1\n"))
    #expect(!FileManager.default.fileExists(atPath: scratch("target")))
    #expect(pipeline.log.contains { $0.contains("events go to the file that had this path") } == isBlocked)
  }

  // MARK: After a crash

  private func checkpoint(_ pipeline: RealPipeline) -> [UInt8]? {
    let found = Mutex<Execution.Checkpoint?>(nil)
    let ring = pipeline.ring
    pipeline.inTurn { pipeline in
      let isTaken = pipeline.execution.checkpoint { outcome in
        found.withLock { $0 = outcome }
        ring()
      }
      if !isTaken { found.withLock { $0 = .failed("it has ended") } }
    }
    pipeline.run { found.withLock { $0 } != nil }
    if case .acknowledged(let state) = found.withLock({ $0 }) { return state }
    return nil
  }

  private func breakOff(_ pipeline: RealPipeline) {
    pipeline.inTurn { $0.execution.cancel() }
    pipeline.run { pipeline.execution.hasClosed }
  }

  private func sizes() -> [String: Int] {
    let names = (try? FileManager.default.contentsOfDirectory(atPath: scratch("out"))) ?? []
    return Dictionary(uniqueKeysWithValues: names.map { ($0, scratch.read("out/" + $0).utf8.count) })
  }

  /// The process is lost repeatedly, with a random part of the data written to each file after the last checkpoint, including
  /// files created after it. In the end every row is in its file once, in order.
  @Test(arguments: [2, 64], 0..<10 as Range<UInt64>)
  func everyRowStandsOnce(_ maxOpenFiles: Int, _ seed: UInt64) throws {
    mkdir(scratch("out"), 0o700)
    var random = SplitMix(seed)
    let text = """
      sources: { in: { file: { path: '\(scratch("in.log"))', decode: json } } }
      sinks:
        out:
          from: in
          file: { path: "\(scratch("out"))/{{ event.f }}.log", maxOpenFiles: \(maxOpenFiles) }
      """
    var wanted: [String: [Int]] = [:]
    for number in 0..<3000 {
      // A growing number of files.
      let name = "\(random.below(2 + number / 200))"
      wanted[name + ".log", default: []].append(number)
      scratch.append(
        "{\"n\":\(number),\"f\":\"\(name)\",\"text\":\"\(String(repeating: "x", count: number % 90))\"}\n", to: "in.log"
      )
    }
    var state: [UInt8]?
    var least: [String: Int] = [:]
    for _ in 0..<8 {
      let pipeline = try RealPipeline(text, onLoop: random.below(2) == 0, restoring: state) {
        $0.reading.blockBytes = 4000
        $0.executor.limits.events = 50
        $0.settings.acknowledgesOnDisk = true
      }
      #expect(pipeline.execution.refusals.isEmpty)
      if state == nil { state = checkpoint(pipeline) }
      for round in 0..<3 {
        let goal = pipeline.counters.received + 1 + UInt64(random.below(400))
        pipeline.run(within: .milliseconds(20)) { pipeline.counters.received >= goal || pipeline.outcome != nil }
        guard round < 2, random.below(3) > 0, let saved = checkpoint(pipeline) else { continue }
        state = saved
        least = sizes()
      }
      let isOver = pipeline.outcome != nil
      breakOff(pipeline)
      if isOver { break }
      for (name, size) in sizes() {
        let known = min(least[name] ?? 0, size)
        let kept = known + random.below(size - known + 1)
        #expect(truncate(scratch("out/" + name), off_t(kept)) == 0)
      }
    }
    let last = try RealPipeline(text, restoring: state) { $0.settings.acknowledgesOnDisk = true }
    #expect(last.runToEnd() == .completed)
    #expect(Set(sizes().keys) == Set(wanted.keys))
    for (name, numbers) in wanted {
      let rows = scratch.read("out/" + name).split(separator: "\n").map { line -> Int in
        let row = (try? JSONSerialization.jsonObject(with: Data(line.utf8))) as? [String: Any]
        return row?["n"] as? Int ?? -1
      }
      let isOnce = rows == numbers
      #expect(isOnce, "seed \(seed), \(name): \(rows.count) rows of \(numbers.count), \(rows.count { $0 < 0 }) torn")
    }
  }

  private func followed(_ more: String = "", state: [UInt8]? = nil) throws -> RealPipeline {
    mkdir(scratch("out"), 0o700)
    return try RealPipeline(
      """
      sources: { in: { file: { path: '\(scratch("in.log"))', follow: true, decode: json } } }
      sinks: { out: { from: in, file: { path: "\(scratch("out"))/{{ event.f }}"\(more) } } }
      """, restoring: state
    ) { $0.settings.acknowledgesOnDisk = true }
  }

  private func send(_ file: String, _ number: Int) -> String {
    let line = "{\"f\":\"\(file)\",\"n\":\(number)}\n"
    scratch.append(line, to: "in.log")
    return line
  }

  private func wait(_ text: String, in name: String, _ pipeline: RealPipeline) {
    pipeline.run { pipeline.execution.hasBegun || pipeline.outcome != nil }
    var isMet = false
    for _ in 0..<20_000 where !isMet {
      isMet = pipeline.run(within: .milliseconds(3)) { scratch.read("out/" + name) == text }
    }
    #expect(isMet, "\(name) is \(scratch.read("out/" + name))")
  }

  /// A file that existed and was first written to after the checkpoint keeps its old content; one that was created then
  /// starts empty.
  @Test func filesOpenedAfterTheCheckpoint() throws {
    mkdir(scratch("out"), 0o700)
    scratch.append("before\n", to: "out/old")
    let a = send("a", 1)
    let first = try followed()
    wait(a, in: "a", first)
    let state = try #require(checkpoint(first))
    let (old, new) = (send("old", 2), send("new", 3))
    wait("before\n" + old, in: "old", first)
    wait(new, in: "new", first)
    breakOff(first)
    // A cut-off tail.
    #expect(truncate(scratch("out/new"), 5) == 0)
    let second = try followed(state: state)
    wait("before\n" + old, in: "old", second)
    wait(new, in: "new", second)
    #expect(scratch.read("out/a") == a)
    #expect(second.log.contains { $0.contains("cut 5 bytes off \(scratch("out/new"))") })
    // Data written by this execution is not truncated when the file is reopened.
    breakOff(second)
  }

  /// A file in the state is truncated when the pipeline starts, whether or not another event follows for it.
  @Test func filesOfTheStateAreCutAtOnce() throws {
    let a = send("a", 1)
    let first = try followed()
    wait(a, in: "a", first)
    let state = try #require(checkpoint(first))
    let more = send("a", 2)
    wait(a + more, in: "a", first)
    #expect(rename(scratch("out/a"), scratch("out/a.1")) == 0)
    breakOff(first)
    unlink(scratch("in.log"))
    scratch.append("", to: "in.log")
    let second = try followed(state: state)
    second.run { second.execution.hasBegun }
    #expect(scratch.read("out/a.1") == a, "also under another name")
    breakOff(second)
  }

  /// A foreign file that has replaced it is left alone.
  @Test func anotherFileIsLeftAlone() throws {
    let a = send("a", 1)
    let first = try followed()
    wait(a, in: "a", first)
    let state = try #require(checkpoint(first))
    breakOff(first)
    unlink(scratch("out/a"))
    scratch.append("of somebody else\n", to: "out/a")
    let second = try followed(state: state)
    let more = send("a", 2)
    wait("of somebody else\n" + more, in: "a", second)
    #expect(second.log.contains { $0.hasPrefix("warning") && $0.contains("lines may be repeated") })
  }

  /// A suspended pipeline has written everything that its state covers, and a header is not repeated.
  @Test func aSuspendedPipelineContinues() throws {
    _ = send("a", 1)
    let first = try followed(", encode: csv")
    first.run { first.counters.received == 1 }
    let state = try #require(first.suspend())
    _ = send("a", 2)
    let second = try followed(", encode: csv", state: state)
    wait("f,n\na,1\na,2\n", in: "a", second)
    #expect(second.log.filter { !$0.hasPrefix("debug") } == [])
  }

  // MARK: Checking

  @Test(arguments: [
    ("\"/{{ event }}.log\"", "'path' of 'file' would let events name a file anywhere"),
    ("\"/tmp/{{ event }}/../x\"", "'path' of 'file' has '.' or '..' after the first {{ }}"),
    ("\"/tmp/{{ event }}//x\"", "'path' of 'file' has '//' after the first {{ }}"),
    ("\"/tmp/{{ event }}/\"", "'path' of 'file' ends with '/', and names no file"),
    ("\"/tmp/{{ event +  }}/x\"", "expected"),
    ("{ path: \"/tmp/{{ event }}\", mode: replace }", "'mode: replace' of 'file' takes one path, without {{ }}"),
    ("{ path: /tmp/x, maxOpenFiles: 3 }", "'maxOpenFiles' of 'file' has no effect without {{ }} in 'path'"),
    ("{ path: /tmp/x, idleTimeout: 3s }", "'idleTimeout' of 'file' has no effect without {{ }} in 'path'"),
    ("{ path: \"/tmp/{{ event }}\", maxOpenFiles: 0 }", "maxOpenFiles"),
  ])
  func refusesAtCheckTime(_ parameters: String, _ reason: String) {
    let complaints = PipelineText.complaints(
      """
      sources:
        events: { values: [1] }
      sinks:
        store:
          from: events
          file: \(parameters)
      """)
    #expect(complaints.count == 1, "\(complaints)")
    #expect(complaints.first?.contains(reason) == true, "\(complaints)")
    #expect(complaints.first?.hasPrefix("6:") == true, "\(complaints)")
  }
}
