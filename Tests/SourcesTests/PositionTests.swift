import Foundation
import PipelineCore
import PipelineHost
import PipelineTestSupport
import Synchronization
import Testing

/// A source knows how much of its input is acknowledged, as well as how much turns have taken.
@Suite struct PositionTests {
  let scratch = Scratch()

  private func pipeline(
    _ yaml: String, _ sink: GatedSink, events: Int = .max, blockBytes: Int = 64, restoring state: [UInt8]? = nil
  ) throws -> RealPipeline {
    try RealPipeline(yaml, restoring: state) { execution in
      execution.reading.blockBytes = blockBytes
      execution.reading.startsAllThreads = true
      execution.executor.limits.events = events
      execution.replacements.sinks = { _ in sink }
    }
  }

  /// The acknowledged state of a pipeline in the middle of its work, which is then aborted.
  private func acknowledgedState(_ pipeline: RealPipeline) -> [UInt8]? {
    let state = Mutex<[UInt8]?>(nil)
    pipeline.inTurn { pipeline in
      let saved = pipeline.execution.saveState(positions: .acknowledged)
      state.withLock { $0 = saved }
      pipeline.execution.cancel()
    }
    pipeline.run { pipeline.execution.hasClosed }
    return state.withLock { $0 }
  }

  /// The next execution starts with the first event of the first unacknowledged turn: nothing is missing, and nothing is
  /// repeated unnecessarily.
  @Test(arguments: ["text", "json", "csv"], 0..<12 as Range<UInt64>)
  func filesContinueInFrontOfWhatIsNotAcknowledged(_ decode: String, _ seed: UInt64) throws {
    var random = SplitMix(seed)
    var wanted: [String] = []
    for name in ["a", "b", "c"] {
      if decode == "csv" { scratch.append("n\n", to: name) }
      for number in 0..<150 {
        scratch.append("\(number)\n", to: name)
        wanted.append(decode == "json" ? "\(number)" : decode == "csv" ? #"{"n":"\#(number)"}"# : #""\#(number)""#)
      }
    }
    // Batches are divided too; with `scan` in between there is no parallel stage.
    let chain = random.below(2) == 0 ? "" : "chain: [ { filter: 'true' } ], "
    let yaml = """
      sources: { in: { file: { path: '\(scratch("?"))', decode: \(decode) } } }
      sinks: { out: { from: in, \(chain)discard: {} } }
      """
    let events = random.pick([1, 3, .max])
    var seen: [String] = []
    var state: [UInt8]?
    for _ in 0..<3 {
      let sink = GatedSink()
      let running = try pipeline(
        yaml, sink, events: events, blockBytes: random.pick([64, 200]), restoring: state)
      #expect(running.execution.refusals.isEmpty)
      let count = 1 + random.below(140)
      running.run { sink.held.count >= count || running.outcome != nil }
      for _ in 0..<random.below(2 * sink.held.turns.count + 1) {
        sink.held.acknowledge(random.below(sink.held.turns.count))
      }
      state = acknowledgedState(running)
      if state == nil { return }
      let acknowledged = sink.held.turns.prefix { $0.isAcknowledged }
      seen += acknowledged.flatMap(\.texts)
      #expect(seen == Array(wanted.prefix(seen.count)))
    }
    let sink = GatedSink()
    let last = try pipeline(yaml, sink, events: events, restoring: state)
    #expect(last.runToEnd() == .completed)
    #expect(seen + sink.held.all == wanted, "seed \(seed)")
  }

  /// The same for the journal, whose positions are cursors.
  @Test(
    .enabled(if: JournalFiles.canBeMade, "needs systemd-journal-remote of Debian"), arguments: 0..<8 as Range<UInt64>)
  func journalsContinueInFrontOfWhatIsNotAcknowledged(_ seed: UInt64) throws {
    var random = SplitMix(seed)
    let journal = JournalFiles()
    let wanted = (0..<450).map { "\"\($0)\"" }
    for part in 0..<3 {
      try journal.write(messages: (0..<150).map { "\(part * 150 + $0)" })
      if part < 2 { try journal.rotate() }
    }
    journal.close()
    let yaml = """
      sources: { in: { journald: { directory: '\(journal.path)', follow: false } } }
      sinks: { out: { from: in, chain: [ { map: event.MESSAGE } ], discard: {} } }
      """
    let events = random.pick([1, 3, .max])
    var seen: [String] = []
    var state: [UInt8]?
    for _ in 0..<3 {
      let sink = GatedSink()
      let running = try pipeline(yaml, sink, events: events, restoring: state)
      #expect(running.execution.refusals.isEmpty)
      let count = 1 + random.below(140)
      running.run { sink.held.count >= count || running.outcome != nil }
      for _ in 0..<random.below(2 * sink.held.turns.count + 1) {
        sink.held.acknowledge(random.below(sink.held.turns.count))
      }
      state = acknowledgedState(running)
      if state == nil { return }
      let acknowledged = sink.held.turns.prefix { $0.isAcknowledged }
      seen += acknowledged.flatMap(\.texts)
      #expect(seen == Array(wanted.prefix(seen.count)))
    }
    let sink = GatedSink()
    let last = try pipeline(yaml, sink, events: events, restoring: state)
    #expect(last.runToEnd() == .completed)
    #expect(seen + sink.held.all == wanted, "seed \(seed)")
  }

  /// Each followed file separately, also one that was renamed and read to its end.
  @Test(arguments: 0..<8 as Range<UInt64>)
  func followedFilesContinueInFrontOfWhatIsNotAcknowledged(_ seed: UInt64) throws {
    var random = SplitMix(seed)
    let yaml = """
      sources: { in: { file: { path: '\(scratch("*.log"))', follow: true, rotateWait: \(random.pick(["1h", "1ms"])) } } }
      sinks: { out: { from: in, discard: {} } }
      """
    var wanted: [String: [String]] = [:]
    var seen: [String: [String]] = [:]
    func file(_ text: String) -> String { String(text.dropFirst().prefix(1)) }
    // Lines written to `a.log` after it was renamed belong to another file.
    func write(_ name: String, _ count: Int, to path: String? = nil) {
      for _ in 0..<count {
        let text = "\(name)\(wanted[name]?.count ?? 0)"
        scratch.append(text + "\n", to: "\(path ?? name).log")
        wanted[name, default: []].append("\"\(text)\"")
      }
    }
    var state: [UInt8]?
    var left = 0
    for round in 0..<4 {
      let sink = GatedSink()
      let running = try pipeline(yaml, sink, events: random.pick([1, 3, .max]), restoring: state)
      write(round < 2 ? "a" : "e", 1 + random.below(9), to: "a")
      write("b", 1 + random.below(9))
      let all = wanted.values.reduce(0) { $0 + $1.count }
      left = all - seen.values.reduce(0) { $0 + $1.count }
      #expect(running.run { sink.held.count >= left })
      if round == 1 {
        #expect(rename(scratch("a.log"), scratch("c.old")) == 0)
        write("d", 1)
        #expect(running.run { sink.held.count >= left + 1 })
      }
      for _ in 0..<random.below(2 * sink.held.turns.count + 1) {
        sink.held.acknowledge(random.below(sink.held.turns.count))
      }
      state = try #require(acknowledgedState(running)) as [UInt8]
      for name in ["a", "b", "d", "e"] {
        let turns = sink.held.turns.filter { $0.texts.first.map(file) == name }
        seen[name, default: []] += turns.prefix { $0.isAcknowledged }.flatMap(\.texts)
      }
    }
    let sink = GatedSink()
    let last = try pipeline(yaml, sink, restoring: state)
    left = wanted.values.reduce(0) { $0 + $1.count } - seen.values.reduce(0) { $0 + $1.count }
    #expect(last.run { sink.held.count >= left })
    for (name, lines) in wanted {
      #expect((seen[name] ?? []) + sink.held.all.filter { file($0) == name } == lines, "seed \(seed), \(name)")
    }
  }

  /// Values that no sink has written are sent again, written ones are not.
  @Test func valuesContinueInFrontOfWhatIsNotAcknowledged() throws {
    let yaml = """
      sources: { in: { values: { list: [1, 2, 3, 4, 5], every: 1ms } } }
      sinks: { out: { from: in, discard: {} } }
      """
    let first = GatedSink()
    let running = try pipeline(yaml, first)
    running.run { first.held.count >= 3 }
    first.held.acknowledge(0)
    first.held.acknowledge(2)
    let state = try #require(acknowledgedState(running))
    let second = GatedSink()
    let last = try pipeline(yaml, second, restoring: state)
    #expect(last.runToEnd() == .completed)
    #expect(second.held.all == ["2", "3", "4", "5"])
  }

  /// The answer of an unacknowledged poll is requested again.
  @Test(arguments: [true, false]) func pollsAskAgainForWhatIsNotAcknowledged(_ isAcknowledged: Bool) throws {
    let yaml = """
      sources: { in: { http: { url: 'http://h.example/', every: 1h, immediate: true, decode: ndjson } } }
      sinks: { out: { from: in, discard: {} } }
      """
    let sink = GatedSink()
    let first = try VirtualPipeline(yaml)
    first.execution.replacements.sinks = { _ in sink }
    first.http.script = { _, _ in ScriptedHTTP.status(200, "1\n2\n") }
    first.settle()
    #expect(sink.held.all == ["1", "2"])
    if isAcknowledged { for index in sink.held.turns.indices { sink.held.acknowledge(index) } }
    first.inTurn { _ in }
    first.settle()
    let state = try #require(first.execution.saveState(positions: .acknowledged))
    let second = try VirtualPipeline(yaml, restoring: state)
    second.settle()
    #expect(second.http.exchanges.count == (isAcknowledged ? 0 : 1))
  }

  /// Events dropped by a filter are acknowledged with their turn; so is a turn of which no event is left.
  @Test func whatIsDroppedIsAcknowledged() throws {
    for number in 0..<100 { scratch.append("\(number)\n", to: "in") }
    let yaml = """
      sources: { in: { file: { path: '\(scratch("in"))', follow: true, decode: json } } }
      sinks: { out: { from: in, chain: [ { filter: event == 99 } ], discard: {} } }
      """
    let sink = GatedSink()
    let first = try pipeline(yaml, sink, events: 10)
    first.run { sink.held.count == 1 }
    let state = try #require(acknowledgedState(first))
    let second = GatedSink()
    let last = try pipeline(yaml, second, restoring: state)
    last.run { second.held.count == 1 }
    #expect(last.counters.received <= 10)
    #expect(second.held.all == ["99"])
  }

  // MARK: Checkpoints in the real world

  /// When a checkpoint is acknowledged, the sink's file has everything that turns had taken by then; continuing from any checkpoint
  /// gives every later line once.
  @Test(arguments: ["{ scan: { start: 0, next: running + 1 } }", "{ map: event.n + 1 }"])
  func acknowledgedCheckpointsAreInTheFile(_ chain: String) throws {
    for number in 0..<20_000 { scratch.append("{\"n\":\(number)}\n", to: "in") }
    let yaml = """
      sources: { in: { file: { path: '\(scratch("in"))', decode: ndjson } } }
      signals: { counted: { from: in, chain: [ \(chain) ] } }
      sinks: { out: { from: counted, file: '\(scratch("out"))' } }
      """
    let first = try RealPipeline(yaml) {
      $0.reading.blockBytes = 1000
      $0.reading.startsAllThreads = true
      $0.executor.limits.events = 200
    }
    let found = Mutex<[(lines: Int, state: [UInt8])]>([])
    let path = scratch("out")
    var number = 0
    while first.outcome == nil, number < 50 {
      number += 1
      first.inTurn { pipeline in
        _ = pipeline.execution.checkpoint { outcome in
          guard case .acknowledged(let state) = outcome else { return }
          let text = (try? String(contentsOfFile: path, encoding: .utf8)) ?? ""
          found.withLock { $0.append((text.count { $0 == "\n" }, state)) }
        }
      }
      let want = number
      first.run { found.withLock { $0.count } >= want || first.outcome != nil }
    }
    let checkpoints = found.withLock { $0 }
    #expect(checkpoints.count > 1)
    let middle = try #require(checkpoints.dropFirst(checkpoints.count / 2).first)
    first.runToEnd()
    let second = try RealPipeline(
      yaml.replacingOccurrences(of: scratch("out"), with: scratch("rest")), restoring: middle.state)
    #expect(second.execution.refusals.map(\.message).filter { !$0.contains("changed") } == [])
    second.runToEnd()
    let rest = scratch.read("rest").split(separator: "\n").compactMap { Int($0) }
    let begin = try #require(rest.first)
    #expect(rest == Array(begin...20_000))
    #expect(middle.lines >= begin - 1, "all before it is in the file")
  }
}
