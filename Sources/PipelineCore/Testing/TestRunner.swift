/// Runs the tests of a pipeline on virtual time.
///
/// Named sources with an input send that. Of the others, those that need nothing but time and the HTTP
/// client run as they are; the rest are silent: they neither send nor end. The times of an input count
/// from the moment at which its source starts, which is 0 unless the pipeline subscribes it later.
///
/// A test ends at `until`; else when nothing more happens or, while a source goes on for ever, at the last
/// instant that the test speaks of, once everything has come that may come at any time.
public struct TestRunner: Sendable {
  public let plan: Plan
  /// Turns after which a test is given up.
  public var turnLimit = 20_000_000
  /// Turns after the last instant that the test speaks of, after which it is given up as endless.
  public var quietLimit = 100_000

  public init(_ plan: Plan) { self.plan = plan }

  public func run(_ test: PipelineTest) -> TestResult {
    let run = TestRun(self, test)
    return run.run()
  }
}

/// What became of one test.
public struct TestResult: Sendable {
  public var name: String
  public var location: SourceLocation
  public var failures: [Failure] = []
  /// How much virtual time went by.
  public var virtualTime = TimeSpan.zero
  public var turns: UInt64 = 0

  public var passed: Bool { failures.isEmpty }

  public struct Failure: Sendable {
    /// What is wrong and where.
    public var diagnostic: Diagnostic
    /// Marbles, expected above actual, the first difference marked; lines without indentation.
    public var picture: [String] = []
  }
}

/// One test while it runs.
private final class TestRun {
  private let runner: TestRunner
  private let test: PipelineTest
  private let time = VirtualTime()
  private let executor: Executor
  private let client: StubHTTPClient
  private let execution: Execution
  private let letters: Letters
  private var recordings: [ProbeSink.Recording] = []
  private var watchers: [Downstream] = []

  /// What the pipeline gave up or complained of: shown beside a failure.
  private final class Letters: @unchecked Sendable {
    static let limit = 3
    var count = 0
    var shown: [String] = []
    var random: UInt64 = 0

    func add(_ bytes: UnsafeRawBufferPointer) {
      count += 1
      if count <= Self.limit { shown.append(Printable.cut(bytes, limit: 300)) }
    }

    /// The same numbers in each run.
    func next() -> UInt64 {
      random &+= 0x9E37_79B9_7F4A_7C15
      var mixed = random
      mixed = (mixed ^ (mixed >> 30)) &* 0xBF58_476D_1CE4_E5B9
      mixed = (mixed ^ (mixed >> 27)) &* 0x94D0_49BB_1331_11EB
      return mixed ^ (mixed >> 31)
    }
  }

  init(_ runner: TestRunner, _ test: PipelineTest) {
    self.runner = runner
    self.test = test
    let executor = Executor(clock: time)
    self.executor = executor
    client = StubHTTPClient(test.stubs, executor)
    let letters = Letters()
    self.letters = letters
    execution = Execution(
      plan: runner.plan, executor: executor,
      services: Services(
        http: client, log: { _, _, _ in }, deadLetter: { letters.add($0) },
        random: { letters.next() }))
  }

  func run() -> TestResult {
    wire()
    let execution = self.execution
    nonisolated(unsafe) let launched = execution
    executor.post { launched.launch { _ in } }
    var result = TestResult(name: test.name.value, location: test.name.location)
    let isQuiet = advance()
    result.virtualTime = TimeSpan(nanoseconds: time.now.nanoseconds)
    result.turns = executor.turns
    judge(&result)
    if !isQuiet {
      result.failures.append(
        TestResult.Failure(
          diagnostic: Diagnostic(
            .testNeverQuiet, "the pipeline was still busy after \(executor.turns) turns, at \(result.virtualTime)",
            at: test.name.location,
            help: "Say with 'until: 10s' when the test ends, if the pipeline runs for ever")))
    }
    if !result.failures.isEmpty { explain(&result.failures[result.failures.count - 1].diagnostic) }
    executor.post { launched.cancel() }
    time.run(executor, until: executor.now, turnLimit: 1000)
    client.stop()
    return result
  }

  private func wire() {
    let inputs = Dictionary(
      test.inputs.map { ($0.source.value, ScriptedSource($0.history.script)) }
    ) { first, _ in first }
    execution.sourceOverride = { inputs[$0] }
    execution.sourceFilter = { $0.runsOnVirtualTime ? $0 : SilentSource() }
    var sinks: [String: ProbeSink.Recording] = [:]
    for expectation in test.expectations {
      let recording = ProbeSink.Recording()
      recordings.append(recording)
      let target: Tap.Target
      switch expectation.target {
      case .requests: continue
      case .sink(let name):
        sinks[name] = recording
        continue
      case .signal(let index): target = .signal(index)
      case .errors(let index): target = .errors(index)
      }
      let watcher = ProbeSink.tap(recording, executor)
      watchers.append(watcher)
      execution.taps.append(Tap(target, watcher, isPassive: true))
    }
    execution.sinkOverride = { ProbeSink(sinks[$0] ?? ProbeSink.Recording()) }
  }

  /// Runs to the end of the test; false if the pipeline does not become quiet.
  private func advance() -> Bool {
    let limit = runner.turnLimit
    if let until = test.until { return go(to: until, limit) }
    guard go(to: test.horizon, limit) else { return false }
    guard execution.outcome == nil else {
      // What is under way, a request for instance, was cancelled; only what is due now may still come.
      return go(to: test.horizon, limit)
    }
    if execution.hasEndlessSource {
      if hasAll { return true }
      let done = time.run(executor, turnLimit: limit) { self.hasAll }
      return done && go(to: TimeSpan(nanoseconds: time.now.nanoseconds), limit)
    }
    return time.run(executor, turnLimit: runner.quietLimit)
  }

  private func go(to span: TimeSpan, _ limit: Int) -> Bool {
    time.run(executor, until: Instant(nanoseconds: span.nanoseconds), turnLimit: limit)
  }

  /// Whether as much has come everywhere as is expected.
  private var hasAll: Bool {
    for (index, expectation) in test.expectations.enumerated() {
      let count =
        expectation.target == .requests ? client.exchanges.count : recordings[index].moments.count
      if count < expectation.items.count { return false }
    }
    return true
  }

  // MARK: The verdict

  private func judge(_ result: inout TestResult) {
    for (index, expectation) in test.expectations.enumerated() {
      let history =
        expectation.target == .requests
        ? SignalHistory(
          client.exchanges.map {
            .init(at: TimeSpan(nanoseconds: $0.at.nanoseconds), .next($0.value))
          }) : SignalHistory(recordings[index])
      if let failure = expectation.verdict(on: history) { result.failures.append(failure) }
    }
    var told: Set<String> = []
    for exchange in client.exchanges where exchange.stub == nil {
      let request = "\(exchange.request.method) \(Printable.cut(exchange.request.url, limit: 200))"
      guard told.insert(request).inserted else { continue }
      result.failures.append(TestResult.Failure(diagnostic: unanswered(exchange, request)))
    }
    if case .failed(let failure) = execution.outcome, !test.expectsError {
      result.failures.append(
        TestResult.Failure(
          diagnostic: Diagnostic(
            .expectationFailed, "the pipeline ended with an error: \(failure.message)",
            at: test.name.location,
            notes: failure.location.map { [.init("the error comes from here", at: $0)] } ?? [],
            help: "Expect it with { error: TEXT }, or handle it with 'catch' or 'retry'")))
    }
  }

  private func unanswered(_ exchange: StubHTTPClient.Exchange, _ request: String) -> Diagnostic {
    let at = TimeSpan(nanoseconds: exchange.at.nanoseconds)
    let nearest = test.stubs.min {
      Glob.distance($0.url, exchange.request.url) < Glob.distance($1.url, exchange.request.url)
    }
    let method = nearest?.method.map { $0 + " " } ?? ""
    return Diagnostic(
      .requestWithoutStub, "no stub answers the request \(request), made at \(at)",
      at: nearest?.location ?? test.stubsLocation ?? test.name.location,
      help: nearest.map { "The nearest stub is for \(method)\($0.url)" }
        ?? "Add 'stubs: { http: [ { url: \"...\", reply: { ... } } ] }' to the test")
  }

  /// Adds what else is known of a test that failed.
  private func explain(_ diagnostic: inout Diagnostic) {
    guard letters.count > 0 else { return }
    diagnostic.notes.append(
      .init(
        "\(letters.count) event\(letters.count == 1 ? " was" : "s were") given up: "
          + letters.shown.joined(separator: ", ") + (letters.count > Letters.limit ? ", …" : "")))
  }
}

/// In place of a source that would read from the world: neither sends nor ends.
struct SilentSource: SourceComponent {
  static let spec = ComponentSpec<SilentSource>("silent", summary: "Sends nothing.")
  func makeSource(_ seat: Seat, downstream: Downstream) -> RunningSource {
    Node(seat, downstream: downstream)
  }
  final class Node: RunningSource {}
}
