import Foundation
import PipelineCore
import PipelineHost
import PipelineTestSupport
import Testing

/// However an input is cut into blocks and blocks into turns, and however many threads decode them, the output is the same, byte for byte,
/// as if each line were read, decoded, run and encoded alone.
@Suite struct DecodingThreadsTests {
  /// The number of graphs; a failure names the seed that reproduces it. RXD_RANDOM_GRAPHS sets a larger number.
  static let count = ProcessInfo.processInfo.environment["RXD_RANDOM_GRAPHS"].flatMap(UInt64.init) ?? 96

  /// The result of a run.
  private struct Written: Equatable {
    var files: [String]
    var deadLetters: [String]
    var counters: Execution.Counters
    var outcome: String
  }

  /// - Parameters:
  ///   - blockBytes: the maximum size of a read; with 1, no block has more than one line.
  ///   - first: the first step after the source.
  ///   - events: the maximum number of events of a turn.
  private func run(
    _ graph: InputGraph, threads: Int, blockBytes: Int, first: String = "", events: Int = .max
  ) throws -> Written {
    let folder = Scratch()
    // With three threads, a decoder thread also runs turns and writes.
    let pipeline = try RealPipeline(
      graph.yaml(threads, first, graph.folder("in"), folder), onLoop: threads == 3
    ) { execution in
      execution.reading.blockBytes = blockBytes
      execution.reading.startsAllThreads = true
      execution.executor.limits.events = events
    }
    let outcome = pipeline.runToEnd(within: .seconds(60))
    return Written(
      files: ["out", "other", "bad"].map(folder.read),
      deadLetters: pipeline.deadLetters, counters: pipeline.counters, outcome: Self.shown(outcome))
  }

  private static func shown(_ outcome: Execution.Outcome?) -> String {
    switch outcome {
    case .completed: "completed"
    case .failed(let failure): "\(failure.kind): \(failure.message)"
    case nil: "no end"
    }
  }

  @Test(arguments: 0..<8) func writtenIsWhatOneLineAtATimeGives(_ part: Int) throws {
    var reached = 0
    for seed in stride(from: UInt64(part), to: Self.count, by: 8) {
      var generator = InputGenerator(seed: seed)
      let graph = generator.graph()
      let single: Written
      do {
        single = try run(graph, threads: 1, blockBytes: 1, first: "{ filter: true }")
      } catch {
        Issue.record("seed \(seed): \(error)\n\(graph.yaml(1, "", "in", graph.folder))")
        continue
      }
      reached += single.files[0].utf8.count
      for threads in [1, 2, 3, 8] {
        let blockBytes = generator.pick([2, 13, 64, 200, 1000, 256 << 10])
        let events = generator.pick([1, 2, 7, .max])
        let many = try run(graph, threads: threads, blockBytes: blockBytes, events: events)
        if many != single {
          Issue.record(
            """
            seed \(seed): \(threads) threads with blocks of \(blockBytes) bytes and turns of \(events) events give
            \(many)
            and one line at a time
            \(single)
            \(graph.yaml(threads, "", "in", graph.folder))\(graph.input)
            """)
        }
      }
    }
    #expect(reached > 0)
  }

  /// An action that a step defers for one line is done before the next line, also of the same block.
  @Test(arguments: [1, 2]) func linesOfABlockAreSettledOneByOne(_ threads: Int) throws {
    let folder = Scratch()
    folder.append("{\"n\":1}\nnonsense\n{\"n\":2}\n", to: "in")
    let pipeline = try RealPipeline(
      """
      threads: \(threads)
      sources: { input: { file: { path: \(folder("in")), decode: ndjson } } }
      signals:
        late: { from: input, chain: [ { deliverOn: x }, { map: event.n * 10 } ] }
        bad: { from: input.errors, chain: [ { deliverOn: x }, { map: event.event } ] }
        all: { merge: { late: late, bad: bad, input: input } }
      sinks: { out: { from: all, probe: {} } }
      """)
    #expect(pipeline.runToEnd() == .completed)
    #expect(pipeline.events == [#"{"n":1}"#, "10", #""nonsense""#, #"{"n":2}"#, "20"])
  }

  /// A sink whose input has ended writes its accepted events even if the pipeline fails before it is closed.
  @Test func aFinishingSinkWritesBeforeTheFailureIsReported() throws {
    let folder = Scratch()
    folder.append("1\n", to: "in")
    for number in 0..<20 {
      let pipeline = try RealPipeline(
        """
        sources: { input: { file: { path: \(folder("in")), decode: text } } }
        sinks:
          first: { from: input, chain: [ { take: 1 } ], file: \(folder("out-\(number)")) }
          second: { from: input, chain: [ { map: "int(event) / 0", onError: fail } ], discard: {} }
        """)
      #expect(pipeline.runToEnd() != .completed)
      #expect(folder.read("out-\(number)") == "\"1\"\n")
    }
  }

  @Test func optionsKnowTheFraming() throws {
    for format in DecoderFormat.allCases {
      for unit in [InputUnit.stream, .body] {
        var options = DecoderOptions(format, unit: unit)
        options.regex.pattern = RegexDecoding.combined
        let decoder = try options.decoder()
        #expect(options.framing == decoder.framing, "\(format) \(unit)")
        // Input without line framing cannot be divided among threads.
        if options.framing != .lines { #expect(!options.readsBlocksApart) }
      }
    }
  }

  /// A source that is stopped while several threads wait for their tickets ends, and sends nothing afterwards.
  @Test(arguments: [1, 2, 8]) func stopsBehindTheEventThatEndsIt(_ threads: Int) throws {
    let folder = Scratch()
    folder.append((0..<20_000).map { "n=\($0)\n" }.joined(), to: "in")
    for number in [1, 37, 5000] {
      let pipeline = try RealPipeline(
        """
        threads: \(threads)
        sources: { input: { file: { path: \(folder("in")), decode: logfmt } } }
        sinks: { out: { from: input, chain: [ { take: \(number) } ], file: \(folder("out-\(number)")) } }
        """
      ) {
        $0.reading.blockBytes = 512
        $0.reading.startsAllThreads = true
      }
      #expect(pipeline.runToEnd() == .completed)
      #expect(folder.read("out-\(number)") == (0..<number).map { "{\"n\":\"\($0)\"}\n" }.joined())
    }
  }

  /// Events accepted before the stop are written, in order and without gaps.
  @Test(arguments: [1, 3]) func drainsInOrder(_ threads: Int) throws {
    let folder = Scratch()
    folder.append((0..<50_000).map { "n=\($0)\n" }.joined(), to: "in")
    let pipeline = try RealPipeline(
      """
      threads: \(threads)
      sources: { input: { file: { path: \(folder("in")), decode: logfmt } } }
      sinks: { out: { from: input, file: \(folder("out")) } }
      """
    ) {
      $0.reading.blockBytes = 512
      $0.reading.startsAllThreads = true
    }
    pipeline.run { pipeline.counters.received > 300 }
    pipeline.inTurn { $0.execution.drain() }
    #expect(pipeline.runToEnd() == .completed)
    let count = Int(pipeline.counters.received)
    #expect(count < 50_000)
    #expect(folder.read("out") == (0..<count).map { "{\"n\":\"\($0)\"}\n" }.joined())
  }
}

/// A pipeline that reads one file, with no step that uses the time, and its input.
private struct InputGraph {
  var decode: String
  var base: String
  var signals: [String]
  var out: String
  var other: String
  var whenTooLong: String
  var input: String
  let folder = Scratch()

  /// `first`: a step before all others, on its own line, so that it changes no location in messages.
  func yaml(_ threads: Int, _ first: String, _ input: String, _ folder: Scratch) -> String {
    """
    name: random
    threads: \(threads)
    sources:
      input:
        file:
          decode: \(decode)
          maxLine: 40B
          whenTooLong: \(whenTooLong)
          path: \(input)
    signals:
      whole:
        from: input
        chain: [ \(first) ]
      base: { chain: [ \(base) ], from: whole }
    \(signals.map { "  " + $0 }.joined(separator: "\n"))
    sinks:
      out: { from: \(out), file: \(folder("out")) }
      other: { from: \(other), file: \(folder("other")) }
      bad: { from: input.errors, chain: [ { map: '[event.error, event.?offset, event.event]' } ], file: \(folder("bad")) }

    """
  }
}

/// Makes graphs and inputs; the same for the same seed.
private struct InputGenerator {
  private var random: SplitMix
  init(seed: UInt64) { random = SplitMix(seed &* 0x2545_F491_4F6C_DD1D &+ 0x9E37_79B9_7F4A_7C15) }

  mutating func below(_ bound: Int) -> Int { random.below(bound) }

  mutating func pick<T>(_ choices: [T]) -> T { choices[below(choices.count)] }

  mutating func graph() -> InputGraph {
    let (decode, bases, lines) = pick(Self.formats)
    var names = ["base", "base", "whole"]
    var signals: [String] = []
    for index in 0...below(4) {
      let name = "n\(index)"
      var origin = "from: \(pick(names))"
      if below(3) == 0 {
        // A repeated name makes a diamond.
        let inputs = (0...(1 + below(2))).map { "i\($0): \(pick(names))" }.joined(separator: ", ")
        let keyword = pick(["merge", "combineLatest", "settled", "zip", "concat", "race"])
        origin =
          keyword == "settled" ? "combineLatest: { \(inputs), settle: true }" : "\(keyword): { \(inputs) }"
      }
      let steps = (0..<below(4)).map { _ in step(names) }.joined(separator: ", ")
      signals.append("\(name): { \(origin), chain: [ \(steps) ]\(below(5) == 0 ? ", cold: true" : "") }")
      names.append(name)
    }
    var input = below(8) == 0 ? "\u{FEFF}" : ""
    if decode == "csv" { input += "n,s\n" }
    for _ in 0..<pick([0, 1, 5, 40, 120]) { input += pick(lines) + pick(["\n", "\n", "\n", "\r\n"]) }
    if below(2) == 0, !input.isEmpty { input.removeLast() }
    let graph = InputGraph(
      decode: decode, base: pick(bases), signals: signals, out: names[names.count - 1], other: pick(names),
      whenTooLong: pick(["cut", "drop", "reject"]), input: input)
    graph.folder.append(input, to: "in")
    return graph
  }

  private static let map = [
    "{ map: event.n }", "{ filter: dyn(event.n) != 2 }", "", "{ map: { s: event.s, n: event.n } }",
  ]
  private static let formats: [(String, [String], [String])] = [
    (
      "ndjson", map + ["{ map: 'event.n + 1', onError: drop }", "{ set: { t: event.n } }"],
      [
        #"{"n":1,"s":"a"}"#, #"{"n":2,"s":"b\n"}"#, #"{"n":3,"s":"ü"}"#, #" { "n": 1.50 , "s": [1, 2] } "#,
        #"{"n":1e0,"s":-0}"#, #"{"n":2.000,"s":[1.50]}"#, #"{"n":30e-1}"#, "1e400",
        #"{"n":"x"}"#, "", "7", #"{"n":1"#, "nonsense", #"{"n":1,"s":"longer than a line may be here"}"#,
        #"[1,{"n":2}]"#,
      ]
    ),
    (
      "logfmt", map,
      [
        "n=1 s=a", "n=2 s=\"b c\"", "n=3", "s=\"\\u00fc\\n\" n=1", "n", "", "=x", "n=\"1",
        "n=2 s=abc t=longer-than-a-line-may-be",
      ]
    ),
    (
      "lines", ["{ map: size(event) }", "{ filter: event != 'b' }", ""],
      ["a", "b", "", "ü", " c ", "longer than a line may be, which is forty bytes"]
    ),
    (
      "{ regex: { pattern: '^(?P<n>[0-9]+)(?: (?P<s>.*))?$', types: { n: int } } }", map,
      ["1 a", "2 b", "3", "1 ü", "x", "", "99999999999999999999 x", "4 longer than a line may be, forty bytes"]
    ),
    (
      "csv", map,
      [
        "1,a", "2,b", "3,\"c,d\"", "1,\"two\nlines\"", "1,\"a \"\"b\"\"\"", "", "1", "1,2,3", "2,\"x\"y",
        "1,\"three\n\nlines\"",
        "5,longer than a line may be, forty bytes long",
      ]
    ),
    (
      "{ csv: { header: [n, s], types: infer } }", map,
      ["1,a", "2,b", "3,\"c\"", "", "1", "1,2,3", "1,\"a\nb\"", "1.50,-0", "2e0,\"x\"", "30000000000000000000000,1"]
    ),
    (
      "{ logfmt: { types: { n: double } } }", map, ["n=1.50 s=a", "n=1", "n=2e0 s=\"b c\"", "n=x", "n=-0", "s=1"]
    ),
    ("{ json: { validate: true } }", map, [#"{"n":1,"s":"a"}"#, #"{"n":2,"s":nul}"#, #"{"n":3}"#, #"{"n":1,}"#, "[]"]),
    ("{ text: { invalidUTF8: replace } }", ["{ map: size(event) }", ""], ["a", "b", "ü", "\u{0}", "c\rd"]),
  ]

  private mutating func step(_ names: [String]) -> String {
    let name = pick(names)
    switch below(42) {
    case 0: return "{ map: '[event]' }"
    case 1: return "{ filter: dyn(event) != \(below(4)) }"
    case 2: return "distinctUntilChanged"
    case 3: return "{ skip: \(below(3)) }"
    case 4: return "{ take: \(below(20)) }"
    case 5: return "{ scan: { start: 0, next: running + 1 } }"
    case 6:
      return pick([
        "{ scan: { start: '[]', next: '[event]' } }", "{ scan: { start: 0, next: event } }",
        "{ scan: { start: {}, next: \"{'l': event, 'n': index}\" } }",
      ])
    case 7: return "collect"
    case 8: return "{ startWith: \(below(5)) }"
    case 9: return "{ combinePrevious: '[previous, event]' }"
    case 10: return "{ flattenMap: '[event, 7]' }"
    case 11:
      return "{ flattenMap: { policy: concat, signal: { values: [8, 9], chain: [ { map: '[outer, event]' } ] } } }"
    case 12: return "{ groupBy: { key: event, chain: [ { take: 2 } ] } }"
    case 13: return "{ groupBy: { key: event, chain: [ { scan: { start: 0, next: running + 1 } } ] } }"
    case 14: return "{ groupBy: { key: event, chain: [ count ] } }"
    case 15: return "{ aggregate: { start: 0, next: running + 1 } }"
    case 16: return "{ takeWhile: dyn(event) != \(below(5)) }"
    case 17: return "{ skipWhile: dyn(event) != \(below(5)) }"
    case 18: return "{ takeLast: \(below(4)) }"
    case 19: return "{ distinct: { memory: \(1 + below(4)) } }"
    case 20: return "{ withLatestFrom: \(name) }"
    case 21: return "{ gate: { signal: \(name), whileClosed: \(pick(["drop", "latest", "hold"])) } }"
    case 22: return "{ sample: { at: \(name), onlyNew: \(pick(["true", "false"])) } }"
    case 23: return "{ takeUntil: \(name) }"
    case 24: return "{ skipUntil: { signal: \(name) } }"
    case 25: return "materialize"
    case 26: return pick(["{ any: dyn(event) == 1 }", "{ all: dyn(event) == 1 }", "count"])
    case 27: return "{ bufferWithCount: \(1 + below(3)) }"
    case 28: return "{ window: { count: \(1 + below(3)), step: \(1 + below(4)) } }"
    case 29: return "{ map: dyn(event).n }"
    case 30: return "{ map: '6 / dyn(event)' }"
    case 31: return "{ tryMap: '6 / dyn(event)' }"
    case 32: return "{ catch: { value: error.message } }"
    case 33: return "{ then: \(name) }"
    case 34: return "{ deliverOn: x }"
    case 35: return "{ map: meta.offset }"
    case 36: return "{ map: '6 / dyn(event)', onError: \(pick(["fail", "drop", "keep"])) }"
    case 37: return "{ switchToLatest: { values: [8, 9], chain: [ { map: outer } ] } }"
    case 38: return "{ filter: dyn(event).n > 1 }"
    case 39: return "{ subscribeOn: \(pick(["x", "y"])) }"
    case 40: return "{ deliverOn: y }"
    default: return "{ try: dyn(event) != 3 }"
    }
  }
}
