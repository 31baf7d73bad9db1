import PipelineCore

/// A pipeline text, compiled by the real compiler and run on virtual time.
public struct PipelineRun {
  /// What each sink got.
  public var sinks: [String: SignalHistory] = [:]
  public var outcome: Execution.Outcome?
  /// How many timers were left right after the end or the cancellation.
  public var pendingTimers = 0
  public var isCongested = false
  public var deadLetters: [String] = []
  public var log: [String] = []
  public var counters = Execution.Counters()
  public var turns: UInt64 = 0
  /// Whether it stopped by itself within the limits.
  public var isQuiet = true

  /// What the sink `out` got.
  public var out: SignalHistory { sinks["out"] ?? SignalHistory() }

  public struct CompileFailure: Error, CustomStringConvertible {
    public var description: String
    public init(description: String) { self.description = description }
  }

  /// The operators, the sources of the tests and a sink `probe`.
  public static let catalogue = Catalogue.operators.adding(
    Catalogue([
      CatalogueEntry(source: ScriptedSource.self), CatalogueEntry(source: ValuesSource.self),
      CatalogueEntry(source: MarblesSource.self), CatalogueEntry(source: CountedSource.self),
      CatalogueEntry(sink: ProbeSink.self),
    ]))

  public static func compile(_ yaml: String, catalogue: Catalogue = catalogue) throws -> Plan {
    var diagnostics = Diagnostics()
    let text = SourceText(name: "test.yaml", text: yaml)
    if let node = YAMLReader.read(text, into: &diagnostics), !diagnostics.hasErrors {
      let file = PipelineFileParser.parse(node, into: &diagnostics)
      if !diagnostics.hasErrors,
        let plan = PipelineCompiler(catalogue).compile(file, into: &diagnostics)
      {
        return plan
      }
    }
    throw CompileFailure(
      description: yaml + "\n" + DiagnosticRenderer().text(diagnostics.all))
  }

  /// What may be varied.
  public struct Options {
    /// When to cancel everything.
    public var cancelAt: TimeSpan?
    public var until: TimeSpan?
    /// When to end the sources, so that everything held is flushed.
    public var drainAt: TimeSpan?
    public var turnLimit = 100_000
    /// Named signals that stay subscribed from the beginning, whoever else subscribes: they are hot.
    public var hot: [String] = []
    public init() {}
  }

  public init(
    _ yaml: String, sources: [String: any SourceComponent], options: Options = Options()
  ) throws {
    try self.init(Self.compile(yaml), sources: sources, options: options)
  }

  public init(
    _ plan: Plan, sources: [String: any SourceComponent], options: Options = Options()
  ) {
    final class Box: @unchecked Sendable {
      var deadLetters: [String] = []
      var log: [String] = []
      var random: UInt64 = 0
    }
    let box = Box()
    let time = VirtualTime()
    let executor = Executor(clock: time)
    let services = Services(
      http: NoHTTPClient(), log: { level, step, message in box.log.append("\(level) \(step): \(message)") },
      deadLetter: { box.deadLetters.append(String(decoding: $0, as: UTF8.self)) },
      random: {
        box.random &+= 0x9E37_79B9_7F4A_7C15
        return box.random
      })
    let execution = Execution(plan: plan, executor: executor, services: services)
    var recordings: [String: ProbeSink.Recording] = [:]
    for sink in plan.sinks { recordings[sink.name] = ProbeSink.Recording() }
    let recorded = recordings
    execution.sinkOverride = { name in recorded[name].map { ProbeSink($0) } }
    execution.sourceOverride = { sources[$0] }
    let watchers = options.hot.compactMap { name in
      plan.index(ofNamed: name).map { ($0, ProbeSink.tap(ProbeSink.Recording(), executor)) }
    }
    execution.taps = watchers.map { Tap(.signal($0.0), $0.1) }
    nonisolated(unsafe) let running = execution
    executor.post { running.launch { _ in } }
    let end = options.cancelAt ?? options.until
    if let drainAt = options.drainAt {
      time.run(
        executor, until: Instant(nanoseconds: drainAt.nanoseconds), turnLimit: options.turnLimit,
        isDone: { running.outcome != nil })
      executor.post { running.drain() }
    }
    isQuiet = time.run(
      executor, until: end.map { Instant(nanoseconds: $0.nanoseconds) } ?? .distantFuture,
      turnLimit: options.turnLimit, isDone: { running.outcome != nil })
    if options.cancelAt != nil {
      // Ending the turn would be too late to see what a cancellation leaves behind.
      executor.post { running.cancel() }
      _ = executor.runOne()
    }
    pendingTimers = executor.pendingTimers
    isCongested = executor.isCongested
    outcome = execution.outcome
    if outcome != nil, end == nil {
      // Nothing may come any more, whatever still wants to happen.
      time.run(executor, turnLimit: 1000)
    }
    counters = execution.counters
    turns = executor.turns
    deadLetters = box.deadLetters
    log = box.log
    sinks = recorded.mapValues { SignalHistory($0) }
    executor.post { running.cancel() }
    _ = executor.runOne()
    withExtendedLifetime(watchers) {}
  }
}

/// An HTTP client that nobody may use.
final class NoHTTPClient: HTTPClient {
  func send(
    _ request: HTTPRequest, _ completion: @escaping @Sendable (Result<HTTPResponse, HTTPFailure>) -> Void
  ) -> any Cancellable {
    fatalError("no request was expected")
  }
}
