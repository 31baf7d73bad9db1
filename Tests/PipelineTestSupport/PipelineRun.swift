import PipelineCore
import PipelineTesting

/// A pipeline text, compiled by the real compiler and run on virtual time.
package struct PipelineRun {
  /// What each sink received.
  package var sinks: [String: SignalHistory] = [:]
  /// The events of each sink as they are written.
  package var texts: [String: [String]] = [:]
  package var outcome: Execution.Outcome?
  /// How many timers were left right after the end or the cancellation.
  package var pendingTimers = 0
  package var isInputPaused = false
  package var deadLetters: [String] = []
  package var log: [String] = []
  package var counters = Execution.Counters()
  /// What the last execution counted for each step and edge.
  package let statistics: PipelineStatistics
  package var turns: UInt64 = 0
  /// Whether the pipeline would run for ever because of the ticks of `sample` or `absence`, although all sources have
  /// ended: an executing step waits for what its command sends, and such a tick may always execute something.
  package var goesOnByTicks: Bool {
    func waits(_ keyword: String) -> Bool {
      statistics.steps.contains { $0.timers > 0 && plan.steps[$0.step.number].keyword == keyword }
    }
    return outcome == nil && (waits("sample") || waits("absence")) && !waits("scripted")
  }
  /// What the last execution counted for the first step with this keyword.
  package func step(_ keyword: String) -> PipelineStatistics.Step? {
    statistics.steps.first { plan.steps[$0.step.number].keyword == keyword }
  }
  private let plan: Plan
  /// Whether the pipeline became quiet within the limits.
  package var isQuiet = true

  /// What was saved at each cut.
  package var savedStates: [[UInt8]] = []
  /// The maximum size in bytes of the state that steps saved, by keyword.
  package var savedSizes: [String: Int] = [:]
  /// How long the last saving and the last restoring took.
  package var saving = Duration.zero
  package var restoring = Duration.zero
  /// The parts of the saved state that could not be used.
  package var refusals: [Diagnostic] = []

  /// What the sink `out` received.
  package var out: SignalHistory { sinks["out"] ?? SignalHistory() }

  package struct CompileFailure: Error, CustomStringConvertible {
    package var description: String
    package init(description: String) { self.description = description }
  }

  /// The operators, the sources of the tests and a sink `probe`.
  package static let catalogue = Catalogue.operators.adding(
    Catalogue([
      CatalogueEntry(source: ScriptedSource.self), CatalogueEntry(source: ValuesSource.self),
      CatalogueEntry(source: MarblesSource.self), CatalogueEntry(source: CountedSource.self),
      CatalogueEntry(sink: ProbeSink.self),
    ]))

  package static func compile(_ yaml: String, catalogue: Catalogue = catalogue) throws -> Plan {
    let result = FrontEnd(catalogue).compile(yaml, name: "test.yaml")
    guard let plan = result.plan else {
      throw CompileFailure(description: yaml + "\n" + DiagnosticRenderer().text(result.diagnostics))
    }
    return plan
  }

  /// What a test can vary.
  package struct Options {
    /// When to cancel everything.
    package var cancelAt: TimeSpan?
    package var until: TimeSpan?
    /// When to end the sources, so that everything held is flushed.
    package var drainAt: TimeSpan?
    package var turnLimit = 100_000
    /// Named signals that stay subscribed from the beginning, whoever else subscribes: they are hot.
    package var hot: [String] = []
    /// The turns, counted from 1, after which to save the state, drop everything and continue from the saved state.
    package var cutAfter: (Int) -> Bool = { _ in false }
    /// Whether only changed pages are saved after each turn, as for a store, and a cut continues from them.
    package var keepsPages = false
    /// Whether a cut suspends the pipeline, so that sinks finish what they hold, instead of dropping everything.
    package var suspends = false
    /// Whether sinks write events some time after taking them.
    package var writesLate = false
    /// Sinks whose reader goes away after this many events.
    package var closeAfter: [String: Int] = [:]
    /// How much time passes between saving and continuing.
    package var pause = TimeSpan.zero
    /// The plan that continues; by default the same one.
    package var laterPlan: Plan?
    /// Changes the saved bytes before they are restored.
    package var damage: ([UInt8]) -> [UInt8] = { $0 }
    /// Called with each execution before it is launched.
    package var prepare: (Execution) -> Void = { _ in }
    package init() {}
  }

  package init(
    _ yaml: String, sources: [String: any SourceComponent], options: Options = Options()
  ) throws {
    try self.init(Self.compile(yaml), sources: sources, options: options)
  }

  package init(
    _ plan: Plan, sources: [String: any SourceComponent], options: Options = Options()
  ) {
    self.plan = plan
    let stage = Stage(plan, sources, options)
    stage.launch(nil)
    let end = options.cancelAt ?? options.until
    if let drainAt = options.drainAt {
      _ = stage.advance(to: Instant(nanoseconds: drainAt.nanoseconds))
      let running = stage.execution
      stage.turn { running.drain() }
    }
    isQuiet = stage.advance(to: end.map { Instant(nanoseconds: $0.nanoseconds) } ?? .distantFuture)
    let running = stage.execution
    let executor = stage.executor
    // Cancels in a turn of its own, so that what a cancellation leaves behind can be seen.
    if options.cancelAt != nil { stage.turn { running.cancel() } }
    pendingTimers = executor.pendingTimers
    isInputPaused = executor.isInputPaused
    outcome = running.outcome
    if outcome != nil, end == nil {
      // Nothing may be sent after this, even if work is left.
      stage.time.run(executor, turnLimit: 1000)
    }
    counters = running.counters
    statistics = running.statistics
    turns = executor.turns
    deadLetters = stage.box.deadLetters
    log = stage.box.log
    sinks = stage.recordings.mapValues { SignalHistory($0) }
    texts = stage.recordings.mapValues { recording in
      recording.moments.compactMap { if case .next(let value) = $0.moment { Self.text(value) } else { nil } }
    }
    savedStates = stage.savedStates
    savedSizes = stage.savedSizes
    saving = stage.saving
    restoring = stage.restoring
    refusals = stage.refusals
    stage.turn { running.cancel() }
  }

  private static func text(_ value: OwnedValue) -> String {
    let buffer = OutputBuffer()
    JSONWriter.append(value.value, to: buffer)
    return String(decoding: buffer.bytes, as: UTF8.self)
  }

  /// The current execution, and what is kept when another one replaces it.
  private final class Stage {
    final class Box: @unchecked Sendable {
      var deadLetters: [String] = []
      var log: [String] = []
      var random: UInt64 = 0
    }

    let plan: Plan
    let sources: [String: any SourceComponent]
    let options: Options
    let box = Box()
    let time = VirtualTime()
    let recordings: [String: ProbeSink.Recording]
    private(set) var executor: Executor
    nonisolated(unsafe) private(set) var execution: Execution
    private(set) var savedStates: [[UInt8]] = []
    private(set) var savedSizes: [String: Int] = [:]
    private(set) var saving = Duration.zero
    private(set) var restoring = Duration.zero
    private(set) var refusals: [Diagnostic] = []
    private var watchers: [Downstream] = []
    private var disk = MemoryStore.Disk()
    private var lastOwner: Int64 = 0
    private var turns = 0

    init(_ plan: Plan, _ sources: [String: any SourceComponent], _ options: Options) {
      self.plan = plan
      self.sources = sources
      self.options = options
      recordings = Dictionary(uniqueKeysWithValues: plan.sinks.map { ($0.name, ProbeSink.Recording()) })
      executor = Executor(clock: time)
      execution = Self.execution(plan, executor, box)
    }

    private static func execution(_ plan: Plan, _ executor: Executor, _ box: Box) -> Execution {
      Execution(
        plan: plan, executor: executor,
        services: Services(
          http: NoHTTPClient(),
          log: { level, step, message in box.log.append("\(level) \(step): \(message)") },
          deadLetter: { box.deadLetters.append(String(decoding: $0, as: UTF8.self)) },
          random: {
            box.random &+= 0x9E37_79B9_7F4A_7C15
            return box.random
          }))
    }

    /// Runs `work` in a turn of its own.
    func turn(_ work: @escaping () -> Void) {
      nonisolated(unsafe) let work = work
      executor.post { work() }
      _ = executor.runOne()
    }

    func launch(_ state: [UInt8]?) {
      execution.replacements.sinks = { [recordings, options] name in
        options.closeAfter[name].map { ClosingSink($0) }
          ?? recordings[name].map { options.writesLate ? LateSink($0) as any SinkComponent : ProbeSink($0) }
      }
      execution.replacements.sources = { [sources] in sources[$0] }
      let hot = options.hot.compactMap { name in
        plan.index(ofNamed: name).map { ($0, ProbeSink.tap(ProbeSink.Recording(), executor)) }
      }
      watchers += hot.map(\.1)
      execution.taps = hot.map { Tap(.signal($0.0), $0.1) }
      let execution = self.execution
      options.prepare(execution)
      if state == nil {
        nonisolated(unsafe) let running = execution
        executor.post { running.launch { _ in } }
      } else {
        // A cut cannot continue from pages that belong to another state.
        let owners = options.keepsPages && state == disk.state ? Set(disk.pages.keys) : []
        turn { execution.launch(restoring: state, owners: owners) { _ in } }
        refusals += execution.refusals
      }
    }

    /// Like ``VirtualTime/run(_:until:turnLimit:isDone:)``, with cuts.
    func advance(to end: Instant) -> Bool {
      var left = options.turnLimit
      while left > 0 {
        left -= 1
        if executor.runOne() {
          if execution.outcome != nil { return true }
          turns += 1
          if options.keepsPages { keepPages() }
          if options.cutAfter(turns) { cut() }
          continue
        }
        guard let next = executor.nextDeadline, next <= end else {
          if end != .distantFuture, end > time.now { time.advance(to: end) }
          return true
        }
        time.advance(to: max(next, time.now))
      }
      return false
    }

    private func keepPages() {
      let paging = StatePaging(from: 1, after: lastOwner, most: .max)
      if let state = execution.saveParts(paging) { disk.keep(state) }
      lastOwner = paging.lastOwner
    }

    /// Saves the state, drops everything and continues from the saved state.
    private func cut() {
      let clock = ContinuousClock()
      let begin = clock.now
      if options.suspends {
        guard execution.saveState() != nil else { return }
        let old = execution
        turn { old.suspend() }
      }
      let saved = options.suspends ? execution.savedState : execution.saveState()
      guard let state = options.keepsPages && saved != nil ? disk.state : saved else { return }
      if options.suspends, execution.outcome != .completed {
        refusals.append(Diagnostic(.stateRefused, "it does not end", at: nil))
      }
      saving = clock.now - begin
      savedStates.append(state)
      for (step, size) in execution.saved.sizes {
        savedSizes[plan.steps[step.number].keyword, default: 0] = max(
          size, savedSizes[plan.steps[step.number].keyword] ?? 0)
      }
      refusals += execution.saved.faults
      let old = execution
      turn { old.cancel() }
      time.advance(to: time.now + options.pause)
      executor = Executor(clock: time)
      execution = Self.execution(options.laterPlan ?? plan, executor, box)
      let damaged = options.damage(state)
      restoring = clock.measure { launch(damaged) }
    }
  }
}

/// A client for pipelines that make no requests: a request traps.
package final class NoHTTPClient: HTTPClient {
  package init() {}

  package func send(
    _ request: HTTPRequest, _ completion: @escaping @Sendable (Result<HTTPResponse, HTTPFailure>) -> Void
  ) -> any Cancellable {
    fatalError("no request was expected")
  }
}
