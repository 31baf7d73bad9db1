import PipelineCore
import PipelineTestSupport
import PipelineTesting
import Synchronization
import Testing

/// A run may continue from a checkpoint once all results of the earlier turns have been written.
@Suite struct CheckpointTests {
  /// One execution on virtual time whose sinks write late, and lose unwritten events when it is aborted.
  private final class Run {
    let time = VirtualTime()
    let executor: Executor
    let execution: Execution
    let recordings: [String: (recording: ProbeSink.Recording, turns: LateSink.Turns)]

    init(_ plan: Plan, _ scripts: [String: SignalHistory], restoring state: [UInt8]? = nil) {
      executor = Executor(clock: time)
      execution = Execution(
        plan: plan, executor: executor,
        services: Services(http: NoHTTPClient(), log: { _, _, _ in }, deadLetter: { _ in }, random: { 1 }))
      recordings = Dictionary(
        uniqueKeysWithValues: plan.sinks.map { ($0.name, (ProbeSink.Recording(), LateSink.Turns())) })
      let recordings = recordings
      execution.replacements.sinks = { name in
        recordings[name].map { LateSink($0.recording, turns: $0.turns, losesRest: true) }
      }
      execution.replacements.sources = { name in scripts[name].map { ScriptedSource($0.script) } }
      turn { $0.execution.launch(restoring: state) { _ in } }
    }

    func turn(_ work: @escaping (Run) -> Void) {
      nonisolated(unsafe) let work = work
      nonisolated(unsafe) unowned let run = self
      executor.post { work(run) }
      _ = executor.runOne()
    }

    func advance(turns: Int, _ afterEach: () -> Void = {}) {
      var left = turns
      while left > 0, execution.outcome == nil {
        left -= 1
        if executor.runOne() {
          afterEach()
          continue
        }
        guard let next = executor.nextDeadline else { return }
        time.advance(to: max(next, time.now))
      }
    }

    /// The events that each sink took in turns that satisfy `isWanted` and has written.
    func written(_ isWanted: (UInt64) -> Bool = { _ in true }) -> [String: [String]] {
      recordings.mapValues { recording, turns in
        let values = recording.moments.compactMap { entry -> String? in
          guard case .next(let value) = entry.moment else { return nil }
          let text = OutputBuffer()
          JSONWriter.append(value.value, to: text)
          return String(decoding: text.bytes, as: UTF8.self)
        }
        return zip(values, turns.all).filter { isWanted($0.1) }.map(\.0)
      }
    }
  }

  /// The outcomes of checkpoints.
  private final class Seen: Sendable {
    let acknowledged = Mutex<[(turn: UInt64, state: [UInt8])]>([])
    let failures = Mutex<[String]>([])
  }

  /// The process is lost at a random instant, with all unwritten events. The events written in turns up to the last
  /// acknowledged checkpoint, followed by those of an execution that continues from it, equal the output of an undisturbed
  /// execution.
  @Test(arguments: 0..<300 as Range<UInt64>)
  func nothingIsLostAndNothingComesTwice(_ seed: UInt64) throws {
    var generator = GraphGenerator(seed: seed)
    generator.hasCommands = seed % 2 == 0
    let graph = generator.graph()
    let plan = try PipelineRun.compile(graph.yaml)
    let whole = Run(plan, graph.scripts)
    whole.advance(turns: 5000)
    // Events that a failure leaves unwritten are lost, whatever was saved.
    guard whole.execution.outcome == .completed else { return }

    let first = Run(plan, graph.scripts)
    let seen = Seen()
    let every = 1 + generator.below(4)
    let crash = 2 + generator.below(40)
    var count = 0
    var last: UInt64 = 0
    first.advance(turns: crash) {
      count += 1
      guard count % every == 0 else { return }
      let turn = first.executor.turns
      _ = first.execution.checkpoint { outcome in
        switch outcome {
        case .acknowledged(let state): seen.acknowledged.withLock { $0.append((turn, state)) }
        case .failed(let reason): seen.failures.withLock { $0.append(reason) }
        }
      }
    }
    #expect(seen.failures.withLock { $0 } == [])
    let acknowledged = seen.acknowledged.withLock { $0 }
    #expect(acknowledged.map(\.turn) == acknowledged.map(\.turn).sorted())
    guard let checkpoint = acknowledged.last else { return }
    last = checkpoint.turn
    let before = first.written { $0 <= last }
    first.turn { $0.execution.cancel() }
    let second = Run(plan, graph.scripts, restoring: checkpoint.state)
    #expect(second.execution.refusals.map(\.message) == [])
    second.advance(turns: 5000)
    let after = second.written()
    for (sink, wanted) in whole.written() {
      #expect(
        (before[sink] ?? []) + (after[sink] ?? []) == wanted, "seed \(seed), \(sink), turn \(last)\n\(graph.yaml)")
    }
  }

  /// A checkpoint waits for earlier ones, and fails with the first that was not written.
  @Test func whatIsLostFailsAllThatFollow() throws {
    let plan = try PipelineRun.compile(
      "sources: { a: { scripted: {} } }\nsinks: { out: { from: a, probe: {} } }")
    let script = SignalHistory((0..<9).map { .init(at: .milliseconds(10 * $0), .next(.int($0))) })
    let run = Run(plan, ["a": script])
    let seen = Seen()
    func set() {
      let turn = run.executor.turns
      #expect(
        run.execution.checkpoint { outcome in
          switch outcome {
          case .acknowledged(let state): seen.acknowledged.withLock { $0.append((turn, state)) }
          case .failed(let reason): seen.failures.withLock { $0.append(reason) }
          }
        })
    }
    set()
    #expect(seen.acknowledged.withLock { $0 }.isEmpty, "the first event is not written yet")
    run.time.advance(to: Instant(nanoseconds: 5_000_000))
    while run.executor.runOne() {}
    #expect(seen.acknowledged.withLock { $0 }.count == 1)
    run.time.advance(to: Instant(nanoseconds: 11_000_000))
    while run.executor.runOne() {}
    set()
    set()
    run.turn { $0.execution.cancel() }
    #expect(seen.acknowledged.withLock { $0 }.count == 1)
    #expect(seen.failures.withLock { $0 }.count == 2)
    #expect(!run.execution.checkpoint { _ in })
  }
}
