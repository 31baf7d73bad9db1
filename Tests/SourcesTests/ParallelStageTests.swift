import Foundation
import PipelineCore
import PipelineHost
import PipelineTestSupport
import Testing

/// Work that decoder threads do in addition to decoding (``ParallelStage``) changes only the timing: outputs, rejections, dead
/// letters, counters and the outcome are those of one line at a time.
@Suite struct ParallelStageTests {
  private struct Written: Equatable {
    var files: [String]
    var deadLetters: [String]
    var counters: Execution.Counters
    /// The counts of each step and each edge.
    var steps: [String]
    var outcome: Execution.Outcome?
  }

  private struct Run {
    var written: Written
    var encodedBlocks: Int
    var edges: [PipelineStatistics.Edge]
  }

  /// A pipeline file, given the path of its input and its output folder.
  private typealias Text = (_ input: String, _ folder: Scratch) -> String

  /// The input: messages contain its path, so all runs read the same file.
  private struct Input {
    let folder = Scratch()
    init(_ lines: [String]) { folder.append(lines.map { $0 + "\n" }.joined(), to: "in") }
    var path: String { folder("in") }
  }

  private func run(_ text: Text, _ input: Input, threads: Int, blockBytes: Int) throws -> Run {
    let folder = Scratch()
    // With three threads, a decoder thread also runs turns and writes.
    let pipeline = try RealPipeline("threads: \(threads)\n" + text(input.path, folder), onLoop: threads == 3) {
      $0.reading.blockBytes = blockBytes
      $0.reading.startsAllThreads = true
    }
    let outcome = pipeline.runToEnd(within: .seconds(60))
    return Run(
      written: Written(
        files: ["out", "bad", "third"].map(folder.read), deadLetters: pipeline.deadLetters, counters: pipeline.counters,
        steps: pipeline.execution.statistics.counts, outcome: outcome),
      encodedBlocks: pipeline.execution.reading.encodedBlocks, edges: pipeline.execution.statistics.edges)
  }

  private static func pipeline(
    _ decode: String, _ steps: [String], _ encode: String, errors: Bool = false
  ) -> Text {
    { input, folder in
      """
      sources: { input: { file: { path: \(input), decode: \(decode) } } }
      sinks:
        out: { from: input, chain: [ \(steps.joined(separator: ", ")) ], file: { path: \(folder("out")), encode: \(encode) } }
      \(errors ? "  bad: { from: input.errors, file: \(folder("bad")) }" : "")
      """
    }
  }

  /// Several sinks: each with its own steps after the source, or after a signal with several readers.
  private static func several(_ decode: String, _ chains: [[String]], _ encoders: [String]) -> Text {
    { input, folder in
      var text = """
        sources: { input: { file: { path: \(input), decode: \(decode) } } }
        signals: { some: { from: input, chain: [ \(chains[0].joined(separator: ", ")) ] } }
        sinks:
        """
      for (index, chain) in chains.dropFirst().enumerated() {
        let name = ["out", "bad", "third"][index]
        let from = index == 1 ? "input" : "some"
        text +=
          "\n  \(name): { from: \(from), chain: [ \(chain.joined(separator: ", ")) ], "
          + "file: { path: \(folder(name)), encode: \(encoders[index]) } }"
      }
      return text
    }
  }

  private static let steps = [
    "{ filter: event.n > 1 }", "{ filter: has(event.s) }", "{ map: { s: event.s, twice: event.n * 2 } }",
    "{ map: event.s }", "{ map: '[event, size(event.s)]' }", "{ set: { at: { n: event.n, t: event.s + '!' } } }",
    "{ unset: [s] }", "{ ignore: 2 }", "{ mapReplace: { a: [1, 2] } }", "{ map: event }",
    "{ map: \"event.s.matches('^[a-z]+$') ? event.s : optional.none()\" }",
    "{ map: 'event.l.map(x, x + 1)' }", "{ filter: event.n > 1, onError: route }",
    "{ map: { x: event.deep.a.b, y: event.?deep.a.orValue(0) }, onError: drop }", "{ map: env.HOME }",
  ]
  private static let formats = ["ndjson", "json", "{ json: { validate: true } }", "logfmt"]
  private static let encoders = ["ndjson", "json", "{ json: { indent: 2 } }", "text", "lines", "logfmt", "bytes"]
  private static let lines: [String: [String]] = [
    "json": [
      #"{"n":1,"s":"a"}"#, #"{"n":2,"s":"b\n\u00fc"}"#, #"{ "n" : 3.50, "s" : "ü", "l":[1,2] }"#,
      #"{"s":"x","n":4,"deep":{"a":{"b":[{"c":1}]}}}"#, #"{"n":12345678901234567890,"s":""}"#,
    ],
    "logfmt": ["n=1 s=a", "n=2 s=\"b c\"", "s=\"ü\" n=3", "n=4 s=x l=y"],
  ]
  private static let faulty: [String: [String]] = [
    "json": [#"{"n":"x"}"#, #"{"n":1"#, "nonsense", "7", "", "[]", #"{"n":5}"#],
    "logfmt": ["n", "=x", "n=\"1", ""],
  ]

  @Test(arguments: 0..<8) func showsInNothingButTime(_ part: Int) throws {
    var generator = SplitMix(UInt64(part))
    var encodedBlocks = 0
    var rounds = 0
    // Not every chain has the types that its expressions need.
    for round in 0..<60 where rounds < 20 {
      let decode = generator.pick(Self.formats)
      let kind = decode == "logfmt" ? "logfmt" : "json"
      let steps = (0..<generator.below(4)).map { _ in generator.pick(Self.steps) }
      let faults = generator.pick([0, 0, 3, 30])
      let input = Input(
        (0..<generator.pick([1, 30, 400])).map { _ in
          generator.below(100) < faults ? generator.pick(Self.faulty[kind]!) : generator.pick(Self.lines[kind]!)
        })
      let text = Self.pipeline(decode, steps, generator.pick(Self.encoders), errors: generator.below(2) == 0)
      guard let single = try? run(text, input, threads: 1, blockBytes: 1) else { continue }
      rounds += 1
      #expect(single.encodedBlocks == 0)
      for threads in [2, 3, 8] {
        let blockBytes = generator.pick([40, 64, 200, 1000])
        let many = try run(text, input, threads: threads, blockBytes: blockBytes)
        encodedBlocks += many.encodedBlocks
        if many.written != single.written {
          Issue.record(
            """
            part \(part), round \(round): \(threads) threads with blocks of \(blockBytes) bytes give
            \(many.written)
            and one line at a time
            \(single.written)
            \(text(input.path, Scratch()))
            """)
        }
      }
    }
    #expect(rounds == 20)
    #expect(encodedBlocks > 40)
  }

  @Test(arguments: 0..<6) func severalSinksShowNothingElse(_ part: Int) throws {
    var generator = SplitMix(UInt64(100 + part))
    var encodedBlocks = 0
    var rounds = 0
    for round in 0..<60 where rounds < 12 {
      let decode = generator.pick(["ndjson", "logfmt"])
      let kind = decode == "logfmt" ? "logfmt" : "json"
      let count = 2 + generator.below(2)
      let chains = (0...count).map { _ in (0..<generator.below(3)).map { _ in generator.pick(Self.steps) } }
      let encoders = (0..<count).map { _ in generator.pick(Self.encoders) }
      let faults = generator.pick([0, 0, 3])
      let input = Input(
        (0..<generator.pick([1, 30, 400])).map { _ in
          generator.below(100) < faults ? generator.pick(Self.faulty[kind]!) : generator.pick(Self.lines[kind]!)
        })
      let text = Self.several(decode, chains, encoders)
      guard let single = try? run(text, input, threads: 1, blockBytes: 1) else { continue }
      rounds += 1
      for threads in [2, 3] {
        let many = try run(text, input, threads: threads, blockBytes: generator.pick([40, 200, 1000]))
        encodedBlocks += many.encodedBlocks
        #expect(many.written == single.written, "part \(part), round \(round): \(text(input.path, Scratch()))")
      }
    }
    #expect(rounds == 12)
    #expect(encodedBlocks > 10)
  }

  /// In 2,000 valid lines only the first blocks are run in turns.
  /// An observer that is attached to an edge in the middle of a run sees each event in order; blocks become ready before
  /// and after.
  @Test(arguments: [0, 1, 2]) func edgesAreWatchedForAWhile(_ place: Int) throws {
    let input = Input((0..<20_000).map { #"{"n":\#($0)}"# })
    let text = Self.pipeline("ndjson", ["{ filter: event.n % 2 == 0 }", "{ map: { n: event.n + 1 } }"], "ndjson")
    let unwatched = try run(text, input, threads: 2, blockBytes: 1000)
    let folder = Scratch()
    let observer = FirstEvents(100)
    let pipeline = try RealPipeline("threads: 2\n" + text(input.path, folder)) { execution in
      execution.reading.blockBytes = 1000
      execution.reading.startsAllThreads = true
      nonisolated(unsafe) let running = execution
      observer.attachLater(to: running, after: 3) { plan in
        // The edges to the source's signal, to the filter, from the filter to the map, and from the map to the sink.
        let all = plan.edges.indices.dropFirst().filter { plan.id(of: plan.edges[$0].to).contains("out") }
        return EdgeID(all[place])
      }
    }
    #expect(pipeline.runToEnd(within: .seconds(60)) == .completed)
    #expect(folder.read("out") == unwatched.written.files[0])
    #expect(pipeline.execution.statistics.counts == unwatched.written.steps)
    #expect(observer.before >= 3, "blocks came ready before")
    #expect(pipeline.execution.reading.encodedBlocks > observer.encodedAtEnd, "blocks came ready afterwards")
    #expect(observer.seen.count == 100)
    // Each event follows the previous one; on an edge after the filter, every second one.
    let first = try #require(observer.seen.first)
    #expect(observer.seen == (0..<100).map { first + Int64($0 * (place == 0 ? 1 : 2)) })
    if place == 0 {
      #expect(observer.verdicts == observer.seen.map { $0 % 2 == 0 ? .passed : .dropped })
    } else {
      #expect(observer.verdicts == observer.seen.map { _ in .passed })
    }
  }

  /// An observer that has seen enough lets whole blocks pass, and is told their event counts.
  @Test(arguments: [0, 1, 2]) func satedObserversLetBlocksPass(_ place: Int) throws {
    let input = Input((0..<3000).map { #"{"n":\#($0),"s":"a"}"# })
    let text = Self.pipeline("ndjson", ["{ filter: event.n % 2 == 0 }", "{ map: { n: event.n + 1 } }"], "ndjson")
    let unwatched = try run(text, input, threads: 2, blockBytes: 1000)
    let folder = Scratch()
    let observer = SatedObserver(100)
    let pipeline = try RealPipeline("threads: 2\n" + text(input.path, folder)) { execution in
      execution.reading.blockBytes = 1000
      execution.reading.startsAllThreads = true
      let all = execution.plan.edges.indices.dropFirst().filter {
        execution.plan.id(of: execution.plan.edges[$0].to).contains("out")
      }
      execution.attach(observer, to: EdgeID(all[place]))
    }
    #expect(pipeline.runToEnd(within: .seconds(60)) == .completed)
    #expect(folder.read("out") == unwatched.written.files[0])
    #expect(pipeline.execution.statistics.counts == unwatched.written.steps)
    #expect(pipeline.execution.reading.encodedBlocks > 10)
    #expect(observer.seen >= 100 && observer.unseen > 0)
    #expect(observer.seen + observer.unseen == (place == 0 ? 3000 : 1500))
  }

  @Test func mostBlocksComeReady() throws {
    let lines = (0..<2000).map { #"{"n":\#($0),"s":"a"}"# }
    let made = try run(
      Self.pipeline("ndjson", ["{ filter: event.n % 3 == 0 }", "{ map: { m: event.n + 1 } }"], "ndjson"), Input(lines),
      threads: 3,
      blockBytes: 500)
    #expect(made.encodedBlocks > 40)
    #expect(made.written.files[0] == (0..<2000).filter { $0 % 3 == 0 }.map { "{\"m\":\($0 + 1)}\n" }.joined())
    #expect(made.written.counters.received == 2000)
    #expect(made.written.counters.sent == 667)
  }

  /// The bytes between the steps equal those of one line at a time: exactly if all events have the same size.
  @Test(arguments: [1, 3]) func bytesAreEstimatedOnAllThreads(_ threads: Int) throws {
    let lines = (0..<2000).map { #"{"n":\#(1000 + $0),"s":"a"}"# }
    let text: Text = { input, folder in
      """
      sources: { input: { file: { path: \(input), decode: ndjson } } }
      signals: { some: { from: input, chain: [ { filter: event.n % 3 == 0 }, { map: { m: event.n } } ] } }
      sinks: { out: { from: some, chain: [ { filter: event.m > 0 } ], file: { path: \(folder("out")), encode: ndjson } } }
      """
    }
    let made = try run(text, Input(lines), threads: threads, blockBytes: 500)
    #expect(threads == 1 || made.encodedBlocks > 40)
    let estimated = made.edges.dropFirst().filter { $0.bytesAreEstimated && $0.events > 0 }
    // Documents of 18 bytes enter the mapping, and of 10 leave it.
    for edge in estimated {
      let bytes = try #require(edge.bytes)
      #expect(bytes == 18 * edge.events || bytes == 10 * edge.events, "\(edge)")
    }
    #expect(estimated.count >= 3)
    #expect(estimated.contains { $0.bytes == 18 * $0.events } && estimated.contains { $0.bytes == 10 * $0.events })
    // The first and last edges count exactly, including line feeds.
    let exact = made.edges.dropFirst().filter { !$0.bytesAreEstimated && $0.bytes != nil }
    #expect(exact.contains { $0.bytes == 19 * 2000 } && exact.contains { $0.bytes == 11 * $0.events })
  }

  /// Each sink of a stage gets the fields that its own steps read, whatever the steps of the others read.
  @Test func sinksOfOneStageReadDifferentFields() throws {
    let lines = (0..<2000).map { #"{"n":\#($0),"s":"a","t":\#($0 % 2)}"# }
    let chains = [[], ["{ filter: event.n % 3 == 0 }"], ["{ filter: event.t == 1 }"], ["{ filter: has(event.s) }"]]
    let made = try run(
      Self.several("ndjson", chains, ["ndjson", "ndjson", "ndjson"]), Input(lines), threads: 3, blockBytes: 500)
    #expect(made.encodedBlocks > 40)
    #expect(made.written.files.map { $0.split(separator: "\n").count } == [667, 1000, 2000])
  }

  /// If anything but the event matters, or anything else sees it, all steps run in turns.
  @Test(arguments: [
    "{ map: now }", "{ map: meta.offset }", "{ take: 1000 }", "{ scan: { start: 0, next: running + 1 } }",
    "{ distinctUntilChanged: event.s }", "{ delay: 1ms }", "{ log: {} }",
  ]) func turnsDoWhatNeedsThem(_ step: String) throws {
    let lines = (0..<300).map { #"{"n":\#($0),"s":"a"}"# }
    let made = try run(Self.pipeline("ndjson", [step], "ndjson"), Input(lines), threads: 3, blockBytes: 200)
    #expect(made.encodedBlocks == 0)
    #expect(made.written.outcome == .completed)
  }

  @Test(arguments: [
    "{ from: input, file: { path: OUT, encode: csv } }", "{ from: input, file: { path: OUT, mode: replace } }",
    "{ from: input, discard: {} }", "{ from: input, file: OUT }\n  other: { from: input, discard: {} }",
    "{ from: late, file: OUT }",
  ]) func sinksSayWhatTheyNeed(_ sink: String) throws {
    let lines = (0..<300).map { #"{"n":\#($0),"s":"a"}"# }
    let made = try run(
      { input, folder in
        """
        sources: { input: { file: { path: \(input), decode: ndjson } } }
        signals: { late: { from: input, chain: [ { map: event.n } ], share: { replay: 1 } } }
        sinks:
          out: \(sink.replacingOccurrences(of: "OUT", with: folder("out")))
        """
      }, Input(lines), threads: 3, blockBytes: 200)
    #expect(made.encodedBlocks == 0)
    #expect(made.written.outcome == .completed)
  }

  /// A stage that cannot handle most blocks does not try each one.
  @Test func faultyBlocksCostLittle() throws {
    let input = Input((0..<4000).map { #"{"n":\#($0 % 7 == 0 ? "\"x\"" : "1")}"# })
    let text = Self.pipeline("ndjson", ["{ map: event.n + 1 }"], "ndjson", errors: true)
    let single = try run(text, input, threads: 1, blockBytes: 1 << 16)
    let many = try run(text, input, threads: 3, blockBytes: 200)
    let isSame = many.written == single.written
    #expect(isSame)
    #expect(many.encodedBlocks == 0)
    #expect(many.written.counters.rejected == 572)
  }
}

/// Sees some events of an edge, and detaches itself.
private final class FirstEvents: EdgeObserver {
  private let limit: Int
  private var edge: EdgeID?
  private unowned(unsafe) var execution: Execution?
  /// Blocks that became ready before it was attached, and until it was detached.
  private(set) var before = 0
  private(set) var encodedAtEnd = 0
  private(set) var seen: [Int64] = []
  private(set) var verdicts: [Verdict] = []

  init(_ limit: Int) { self.limit = limit }

  /// Waits, turn by turn, until so many blocks have become ready.
  func attachLater(to execution: Execution, after blocks: Int, _ edge: @escaping (Plan) -> EdgeID) {
    self.execution = execution
    nonisolated(unsafe) let (observer, running, find) = (self, execution, edge)
    execution.executor.post {
      if running.outcome != nil { return }
      guard running.reading.encodedBlocks >= blocks else {
        observer.attachLater(to: running, after: blocks, find)
        return
      }
      observer.before = running.reading.encodedBlocks
      let edge = find(running.plan)
      observer.edge = edge
      running.attach(observer, to: edge)
    }
  }

  override func receive(_ event: Event) {
    let members = OwnedValue(event.value).json
    seen.append(Int64(members.filter(\.isNumber)) ?? -1)
  }

  override func decided(_ verdict: Verdict) {
    verdicts.append(verdict)
    guard seen.count == limit, let execution, let edge else { return }
    encodedAtEnd = execution.reading.encodedBlocks
    execution.detach(self, from: edge)
  }
}

/// Lets blocks pass once it has seen so many events.
private final class SatedObserver: EdgeObserver {
  private let limit: Int
  private(set) var seen = 0
  private(set) var unseen = 0

  init(_ limit: Int) { self.limit = limit }

  override func receive(_ event: Event) { seen += 1 }
  override var isSated: Bool { seen >= limit }
  override func missed(_ events: Int) { unseen += events }
}
