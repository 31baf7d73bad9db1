import Foundation
import Glibc
import PipelineCore
import PipelineTesting

/// A pipeline with its real sources and sinks on virtual time, driven by the test.
package final class VirtualPipeline {
  package let time: VirtualTime
  package let executor: Executor
  package let execution: Execution
  package let http = ScriptedHTTP()
  package private(set) var outcome: Execution.Outcome?
  private let notes = Notes()
  private var probes: [String: ProbeSink.Recording] = [:]

  /// What the pipeline logs and reports; written on the test's thread.
  final class Notes: @unchecked Sendable {
    var log: [String] = []
    var deadLetters: [String] = []
    var random: UInt64 = 0
  }

  package var log: [String] { notes.log }
  package var deadLetters: [String] { notes.deadLetters }
  package var counters: Execution.Counters { execution.counters }

  /// - Parameters:
  ///   - wallTime: the wall-clock time at the start, in seconds since 1970.
  ///   - random: the random number used for jitter.
  ///   - worker: does the work off the pipeline thread; if left out, everything is done in turns.
  ///   - workers: makes a worker for each component that requests one, instead of `worker`.
  ///   - state: the state of an earlier run, to continue from, with its `estates`; `isMoved`: this run replaces that one at once.
  ///   - values: names the values that are inserted into the text.
  ///   - delivery: how its state is kept; nil: no state is kept. `keepsDeadLetters`: whether dead letters are kept.
  package init(
    _ yaml: String, wallTime: Int64 = 1_767_225_600, random: UInt64 = 0, worker: any Worker = ImmediateWorker(),
    workers: (@Sendable (String) -> any Worker)? = nil, restoring state: [UInt8]? = nil,
    estates: [String: any SinkEstate] = [:], isMoved: Bool = false, values: Int = 0,
    delivery: DeliveryOptions? = nil, keepsDeadLetters: Bool = false, memory: MemoryBudget = MemoryBudget(),
    secrets: [String: String] = [:], plugins: any PluginProvider = NoPlugins()
  ) throws {
    let plan = try PipelineText.compile(yaml, secrets: secrets, plugins: plugins)
    time = VirtualTime(origin: wallTime * 1_000_000_000)
    executor = Executor(clock: time)
    notes.random = random
    let notes = notes
    var services = Services(
      http: http, log: { notes.log.append("\($0.rawValue) \($1): \($2)") },
      deadLetter: { notes.deadLetters.append(String(decoding: $0, as: UTF8.self)) },
      random: { notes.random }, worker: workers ?? { _ in worker })
    services.keepsDeadLetters = keepsDeadLetters
    services.memory = memory
    execution = Execution(plan: plan, executor: executor, services: services)
    for sink in plan.sinks where sink.component is ProbeSink {
      probes[sink.name] = ProbeSink.Recording()
    }
    let recorded = probes
    execution.replacements.sinks = { name in recorded[name].map { ProbeSink($0) } }
    execution.settings.reportSink = { fault in _ = "sink fault: \(fault)\n".withCString { write(2, $0, strlen($0)) } }
    if let delivery { execution.commit(with: delivery) }
    execution.settings.insertedValues = values
    http.now = { [executor] in executor.now }
    http.later = { [executor] in executor.post($0) }
    inTurn { pipeline in
      pipeline.execution.launch(restoring: state, estates: estates, isMoved: isMoved) { [unowned pipeline] in
        pipeline.outcome = $0
      }
    }
  }

  deinit {
    if execution.outcome == nil {
      nonisolated(unsafe) let execution = execution
      executor.post { execution.cancel() }
      time.run(executor, turnLimit: 10)
    }
  }

  /// Does something in a turn; it runs with the next `run`.
  package func inTurn(_ body: @escaping (VirtualPipeline) -> Void) {
    nonisolated(unsafe) let body = body
    nonisolated(unsafe) weak let pipeline = self
    executor.post { if let pipeline { body(pipeline) } }
  }

  /// Runs everything that happens until that time after the start, or until nothing is left.
  @discardableResult
  package func run(until end: TimeSpan? = nil) -> Bool {
    time.run(
      executor, until: end.map { Instant(nanoseconds: $0.nanoseconds) } ?? .distantFuture,
      turnLimit: 1_000_000)
  }

  /// Runs what is due now, without advancing the time.
  package func settle() { run(until: TimeSpan(nanoseconds: time.now.nanoseconds)) }

  /// Runs what is due now until the condition holds, for at most a minute; time stands still. For input that threads read.
  package func settle(until condition: () -> Bool) -> Bool {
    let bell = DispatchSemaphore(value: 0)
    executor.setNeedsTurn = { bell.signal() }
    let end = Date().addingTimeInterval(60)
    while Date() < end {
      settle()
      if condition() { return true }
      _ = bell.wait(timeout: .now() + 0.05)
    }
    return false
  }

  package func drain() {
    inTurn { $0.execution.drain() }
    settle()
  }

  /// Suspends the pipeline without waiting for outstanding answers; returns the state from which another one can
  /// continue.
  package func suspend() -> [UInt8]? {
    inTurn { $0.execution.suspend() }
    settle()
    inTurn { $0.execution.freeze() }
    settle()
    return execution.savedState
  }

  /// What the probe of that name recorded.
  package func probe(_ name: String = "out") -> ProbeSink.Recording {
    probes[name] ?? ProbeSink.Recording()
  }

  package var out: [String] { probe().timeline }

  package var failure: SignalFailure? {
    if case .failed(let failure) = outcome { failure } else { nil }
  }
}

extension VirtualPipeline {
  /// A pipeline whose `http` sink, `shop`, sends a list of events.
  ///
  /// - Parameters:
  ///   - parameters: of the sink, besides its URL, as YAML on one line.
  ///   - events: a list in YAML, one event every `pace` (all at once if nil).
  package static func sending(
    _ parameters: String, to url: String = "http://h.example/in", events: String, pace: String? = nil,
    random: UInt64 = .max, worker: any Worker = ImmediateWorker()
  ) throws -> VirtualPipeline {
    let values = pace.map { "{ list: \(events), every: \($0) }" } ?? events
    return try VirtualPipeline(
      """
      sources:
        events:
          values: \(values)
      sinks:
        shop:
          from: events
          http: { url: '\(url)', \(parameters) }
      """, random: random, worker: worker)
  }
}
