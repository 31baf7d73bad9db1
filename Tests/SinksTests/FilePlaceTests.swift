import Foundation
import PipelineHost
import PipelineTestSupport
import Synchronization
import Testing

@testable import PipelineCore

/// A `file` sink knows its position, and truncates the file to the position in the state from which it continues.
@Suite struct FilePlaceTests {
  let scratch = Scratch()

  private func yaml(_ sink: String, source: String = "", chain: String = "{ filter: event.n % 3 != 0 }") -> String {
    """
    sources: { in: { file: { path: '\(scratch("in.log"))', \(source) } } }
    sinks: { out: { from: in, chain: [ \(chain) ], file: \(sink) } }
    """
  }

  private func size(_ name: String) -> Int {
    var status = stat()
    return stat(scratch(name), &status) == 0 ? Int(status.st_size) : 0
  }

  private func cut(_ name: String, to size: Int) { #expect(truncate(scratch(name), off_t(size)) == 0) }

  /// Takes a checkpoint now and waits until it is acknowledged; nil: it never is.
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

  /// Aborts a pipeline; data already given to the writer is still written, as by a kernel.
  private func breakOff(_ pipeline: RealPipeline) {
    pipeline.inTurn { $0.execution.cancel() }
    pipeline.run { pipeline.execution.hasClosed }
  }

  /// Launches the pipeline, and runs turns until the condition holds, which another thread may cause.
  private func run(_ pipeline: RealPipeline, until condition: () -> Bool) -> Bool {
    pipeline.run { pipeline.execution.hasBegun || pipeline.outcome != nil }
    for _ in 0..<20_000 { if pipeline.run(within: .milliseconds(3), until: condition) { return true } }
    return false
  }

  private func notes(_ pipeline: RealPipeline) -> [String] { pipeline.log.filter { !$0.hasPrefix("debug") } }

  // MARK: Once, after a crash

  /// The process is lost repeatedly, with a random part of the data written after the last checkpoint: lines are cut off.
  /// In the end every row is in the file once, in order.
  @Test(arguments: [true, false], 0..<12 as Range<UInt64>)
  func everyRowStandsOnce(_ follow: Bool, _ seed: UInt64) throws {
    var random = SplitMix(seed)
    let text = yaml("{ path: '\(scratch("out"))' }", source: "follow: \(follow), decode: json")
    var written = 0
    func write(_ count: Int) {
      let lines = (written..<(written + count)).map {
        "{\"n\":\($0),\"text\":\"\(String(repeating: "x", count: $0 % 90))\"}\n"
      }
      written += count
      scratch.append(lines.joined(), to: "in.log")
    }
    let total = follow ? 0 : 20_000
    write(max(10, total))
    var state: [UInt8]?
    var least = 0
    var repeated = 0
    for _ in 0..<10 {
      let acknowledgesOnDisk = random.below(2) == 0
      let pipeline = try RealPipeline(text, onLoop: random.below(2) == 0, restoring: state) {
        $0.reading.blockBytes = 4000
        $0.executor.limits.events = 100
        $0.settings.acknowledgesOnDisk = acknowledgesOnDisk
      }
      #expect(pipeline.execution.refusals.isEmpty)
      // Without a state everything starts again.
      if state == nil { state = checkpoint(pipeline) }
      for _ in 0..<(1 + random.below(4)) {
        if follow { write(1 + random.below(300)) }
        // At any instant.
        let goal = pipeline.counters.received + 1 + UInt64(random.below(follow ? 300 : 3000))
        pipeline.run(within: .milliseconds(20)) { pipeline.counters.received >= goal || pipeline.outcome != nil }
        // The last steps come after the last checkpoint.
        guard random.below(3) > 0, let saved = checkpoint(pipeline) else { continue }
        state = saved
        least = size("out")
      }
      let isOver = pipeline.outcome != nil
      breakOff(pipeline)
      if isOver { break }
      let all = size("out")
      least = min(least, all)
      let kept = least + random.below(all - least + 1)
      if kept > least { repeated += 1 }
      cut("out", to: kept)
    }
    let last = try RealPipeline(text, restoring: state)
    let wanted = (0..<written).filter { $0 % 3 != 0 }
    _ = run(last) { last.outcome != nil || follow && scratch.read("out").count { $0 == "\n" } >= wanted.count }
    if follow { #expect(last.suspend() != nil) }
    let rows = scratch.read("out").split(separator: "\n").map { line -> Int in
      let row = (try? JSONSerialization.jsonObject(with: Data(line.utf8))) as? [String: Any]
      return row?["n"] as? Int ?? -1
    }
    #expect(rows == wanted, "seed \(seed)")
    #expect(!follow || repeated > 0, "something came after a checkpoint")
  }

  private func followed(_ sink: String, state: [UInt8]? = nil, chain: String = "{ map: event }") throws -> RealPipeline
  {
    try RealPipeline(yaml(sink, source: "follow: true", chain: chain), restoring: state)
  }

  private func waitFor(_ text: String, in name: String = "out", _ pipeline: RealPipeline) {
    #expect(run(pipeline) { scratch.read(name) == text }, "\(name) is \(scratch.read(name))")
  }

  /// A state that includes the first line, of a pipeline that was lost after writing two more.
  private func lostBehindOne(_ encode: String = "text") throws -> [UInt8] {
    scratch.append("one\n", to: "in.log")
    let pipeline = try followed("{ path: '\(scratch("out"))', encode: \(encode) }")
    waitFor("one\n", pipeline)
    let state = try #require(checkpoint(pipeline))
    scratch.append("two\nthree\n", to: "in.log")
    waitFor("one\ntwo\nthree\n", pipeline)
    breakOff(pipeline)
    return state
  }

  @Test func aTornTailIsCut() throws {
    let state = try lostBehindOne()
    cut("out", to: 6)
    let pipeline = try followed("{ path: '\(scratch("out"))', encode: text }", state: state)
    waitFor("one\ntwo\nthree\n", pipeline)
    #expect(pipeline.log.contains { $0.contains("cut 2 bytes off \(scratch("out"))") })
  }

  /// A suspended pipeline has written everything that its state covers.
  @Test func nothingOfASuspendedPipelineIsCut() throws {
    scratch.append("one\ntwo\n", to: "in.log")
    let first = try followed("{ path: '\(scratch("out"))', encode: text }")
    first.run { first.counters.received == 2 }
    let state = try #require(first.suspend())
    scratch.append("three\n", to: "in.log")
    let second = try followed("{ path: '\(scratch("out"))', encode: text }", state: state)
    waitFor("one\ntwo\nthree\n", second)
    #expect(notes(second) == [])
  }

  /// Columns and header belong to the position.
  @Test(arguments: ["csv", "{ csv: { columns: [n, a] } }"]) func theHeaderOfATableIsNotRepeated(_ encode: String) throws
  {
    let sink = "{ path: '\(scratch("out"))', encode: \(encode) }"
    let chain = "{ map: '{ \"n\": event, \"a\": 1 }' }"
    scratch.append("one\n", to: "in.log")
    let first = try followed(sink, chain: chain)
    waitFor("n,a\none,1\n", first)
    let state = try #require(checkpoint(first))
    scratch.append("two\n", to: "in.log")
    waitFor("n,a\none,1\ntwo,1\n", first)
    breakOff(first)
    let second = try followed(sink, state: state, chain: chain)
    waitFor("n,a\none,1\ntwo,1\n", second)
    breakOff(second)
    // At the start of the file there was no header either.
    unlink(scratch("out"))
    let third = try followed(sink, chain: chain)
    waitFor("n,a\none,1\ntwo,1\n", third)
  }

  // MARK: Output that does not come again

  /// A second source, which does not repeat its events.
  private func withTimer(_ sink: String, state: [UInt8]? = nil, chain: String = "{ map: event }") throws
    -> RealPipeline
  {
    try RealPipeline(
      """
      sources:
        in: { file: { path: '\(scratch("in.log"))', follow: true } }
        ticks: { interval: 1h }
      sinks: { out: { from: { merge: [in, ticks] }, chain: [ \(chain) ], file: \(sink) } }
      """, restoring: state)
  }

  @Test(arguments: ["out", "out-{{ 1 + 1 }}"]) func nothingIsCutThatDoesNotComeAgain(_ path: String) throws {
    let name = path == "out" ? "out" : "out-2"
    let sink = "{ path: '\(scratch(path))', encode: text }"
    scratch.append("one\n", to: "in.log")
    let first = try withTimer(sink)
    waitFor("one\n", in: name, first)
    let state = try #require(checkpoint(first))
    scratch.append("two\nthree\n", to: "in.log")
    waitFor("one\ntwo\nthree\n", in: name, first)
    breakOff(first)
    // The last line is cut off, and stays so: the next line is not appended to it.
    cut(name, to: 10)
    let second = try withTimer(sink, state: state)
    waitFor("one\ntwo\nth\ntwo\nthree\n", in: name, second)
    #expect(notes(second) == [])
    // The state of a normal end is the same.
    let end = try #require(second.suspend())
    scratch.append("four\n", to: "in.log")
    let third = try withTimer(sink, state: end)
    waitFor("one\ntwo\nth\ntwo\nthree\nfour\n", in: name, third)
    breakOff(third)
    let fourth = try withTimer(sink, state: end)
    waitFor("one\ntwo\nth\ntwo\nthree\nfour\nfour\n", in: name, fourth)
  }

  @Test(arguments: ["out", "out-{{ 1 + 1 }}"]) func theHeaderStandsOnceAboveOutputThatIsKept(_ path: String) throws {
    let name = path == "out" ? "out" : "out-2"
    let sink = "{ path: '\(scratch(path))', encode: csv }"
    let chain = "{ map: '{ \"n\": event, \"a\": 1 }' }"
    scratch.append("one\n", to: "in.log")
    let first = try withTimer(sink, chain: chain)
    waitFor("n,a\none,1\n", in: name, first)
    let state = try #require(checkpoint(first))
    scratch.append("two\n", to: "in.log")
    waitFor("n,a\none,1\ntwo,1\n", in: name, first)
    breakOff(first)
    let second = try withTimer(sink, state: state, chain: chain)
    waitFor("n,a\none,1\ntwo,1\ntwo,1\n", in: name, second)
  }

  // MARK: Rotation

  @Test func aFileThatWasRotatedMeanwhileIsCutUnderItsNewName() throws {
    let state = try lostBehindOne()
    #expect(rename(scratch("out"), scratch("out.1")) == 0)
    let pipeline = try followed("{ path: '\(scratch("out"))', encode: text }", state: state)
    waitFor("two\nthree\n", pipeline)
    #expect(scratch.read("out.1") == "one\n")
    #expect(pipeline.log.contains { $0.contains("off \(scratch("out.1"))") })
  }

  /// A checkpoint after a rotation refers to the new file.
  @Test func aCheckpointFollowsARotation() throws {
    scratch.append("one\n", to: "in.log")
    let sink = "{ path: '\(scratch("out"))', encode: text }"
    let first = try followed(sink)
    waitFor("one\n", first)
    #expect(rename(scratch("out"), scratch("out.1")) == 0)
    scratch.append("two\n", to: "in.log")
    waitFor("two\n", first)
    // The first checkpoint may precede the writer's report of its position.
    _ = checkpoint(first)
    let state = try #require(checkpoint(first))
    scratch.append("three\n", to: "in.log")
    waitFor("two\nthree\n", first)
    breakOff(first)
    let second = try followed(sink, state: state)
    waitFor("two\nthree\n", second)
    #expect(scratch.read("out.1") == "one\n")
    #expect(second.log.contains { $0.contains("cut 6 bytes") })
  }

  /// Truncated, as by `copytruncate`.
  @Test func aCheckpointFollowsATruncation() throws {
    scratch.append("one\n", to: "in.log")
    let sink = "{ path: '\(scratch("out"))', encode: text }"
    let first = try followed(sink)
    waitFor("one\n", first)
    cut("out", to: 0)
    scratch.append("two\n", to: "in.log")
    waitFor("two\n", first)
    _ = checkpoint(first)
    let state = try #require(checkpoint(first))
    scratch.append("three\n", to: "in.log")
    waitFor("two\nthree\n", first)
    breakOff(first)
    let second = try followed(sink, state: state)
    waitFor("two\nthree\n", second)
  }

  // MARK: Files of others

  /// Data that the sink did not append is left alone.
  @Test func anotherFileIsLeftAlone() throws {
    let state = try lostBehindOne()
    unlink(scratch("out"))
    scratch.append("one\nfrom somebody else\ntor", to: "out")
    let pipeline = try followed("{ path: '\(scratch("out"))', encode: text }", state: state)
    waitFor("one\nfrom somebody else\ntor\ntwo\nthree\n", pipeline)
    #expect(pipeline.log.contains { $0.hasPrefix("warning") && $0.contains("lines may be repeated") })
  }

  @Test func aShorterFileIsLeftAlone() throws {
    let state = try lostBehindOne()
    cut("out", to: 2)
    let pipeline = try followed("{ path: '\(scratch("out"))', encode: text }", state: state)
    waitFor("on\ntwo\nthree\n", pipeline)
    #expect(pipeline.log.contains { $0.hasPrefix("warning") && $0.contains("lines may be repeated") })
  }

  /// The same file with other content is not the sink's output.
  @Test func anOverwrittenFileIsLeftAlone() throws {
    let state = try lostBehindOne()
    cut("out", to: 0)
    scratch.append("another text\n", to: "out")
    let pipeline = try followed("{ path: '\(scratch("out"))', encode: text }", state: state)
    waitFor("another text\ntwo\nthree\n", pipeline)
    #expect(pipeline.log.contains { $0.hasPrefix("warning") && $0.contains("lines may be repeated") })
  }

  @Test func aFileThatOthersWriteToHasNoPlace() throws {
    scratch.append("one\n", to: "in.log")
    let sink = "{ path: '\(scratch("out"))', encode: text }"
    let first = try followed(sink)
    waitFor("one\n", first)
    scratch.append("other\n", to: "out")
    scratch.append("two\n", to: "in.log")
    waitFor("one\nother\ntwo\n", first)
    let state = try #require(checkpoint(first))
    #expect(first.log.contains { $0.hasPrefix("warning") && $0.contains("others write to") })
    scratch.append("other\n", to: "out")
    breakOff(first)
    let second = try followed(sink, state: state)
    scratch.append("three\n", to: "in.log")
    waitFor("one\nother\ntwo\nother\nthree\n", second)
  }

  @Test func anotherPathIsAnotherFile() throws {
    let state = try lostBehindOne()
    let pipeline = try followed("{ path: '\(scratch("other"))', encode: text }", state: state)
    waitFor("two\nthree\n", in: "other", pipeline)
    #expect(scratch.read("out") == "one\ntwo\nthree\n")
    #expect(notes(pipeline) == [])
  }

  // MARK: Whoever keeps the events itself

  /// A state in which events are kept until delivery contains the position after the events that are no longer kept.
  @Test func aMarkSaysWhichPlaceIsSaved() throws {
    scratch.append("one\n", to: "in.log")
    let sink = "{ path: '\(scratch("out"))', encode: text }"
    let first = try followed(sink)
    waitFor("one\n", first)
    let node = first.execution.sinks[0].node
    let behindOne = node.mark
    #expect(behindOne == 4)
    scratch.append("two\nthree\n", to: "in.log")
    waitFor("one\ntwo\nthree\n", first)
    node.savedMark = behindOne
    let state = try #require(checkpoint(first))
    breakOff(first)
    let second = try followed(sink, state: state)
    second.run { second.execution.hasBegun }
    #expect(scratch.read("out") == "one\n")
    breakOff(second)
  }

  // MARK: On the disk

  /// If states are saved, events are acknowledged when they are on disk, whatever `sync` says: together, and soon if a
  /// checkpoint waits.
  @Test(arguments: ["never", "batch", "interval, syncInterval: 1h"]) func acknowledgesOnTheDisk(_ sync: String) throws {
    let source = TrackedSource()
    let pipeline = try RealPipeline(
      """
      sources: { in: { never: {} } }
      sinks: { out: { from: in, file: { path: '\(scratch("out"))', sync: \(sync) } } }
      """
    ) { execution in
      execution.settings.acknowledgesOnDisk = true
      execution.replacements.sources = { $0 == "in" ? source : nil }
    }
    source.feed.ring = pipeline.ring
    pipeline.run { source.feed.node != nil }
    for number in 0..<50 { source.feed.send(number, [Int64(number)]) }
    #expect(pipeline.run { source.feed.outcomes.count == 50 }, "without a checkpoint, too")
    #expect(source.feed.outcomes.values.allSatisfy { $0 == .acknowledged })
    source.feed.send(50, [50])
    pipeline.run { pipeline.counters.received == 51 }
    #expect(checkpoint(pipeline) != nil)
    pipeline.inTurn { $0.execution.drain() }
    #expect(pipeline.runToEnd() == .completed)
    #expect(scratch.read("out") == (0...50).map { "\($0)\n" }.joined())
  }
}
