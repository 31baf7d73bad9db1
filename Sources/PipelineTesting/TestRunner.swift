import PipelineCore

/// Runs the tests of a pipeline in virtual time.
///
/// Sources with an input send that input. Other sources run if they need only time, HTTP and programs, which are
/// stubbed, or Docker, if the test has a stub for it. All remaining sources are silent: they neither send nor end. The
/// times of an input count from the start of its source, which is 0 unless the pipeline subscribes to it later.
///
/// A test ends at `until`. Without it, it ends when nothing more happens or, while an endless source runs (even in an
/// inner signal), at the last instant that the test mentions, once all expectations without a time are satisfied.
package struct TestRunner: Sendable {
  package let plan: Plan
  /// The maximum number of turns of a test.
  package var turnLimit = 20_000_000
  /// The maximum number of turns after the last instant that the test mentions; beyond it the pipeline counts as
  /// endless.
  package var quietLimit = 100_000
  /// Whether to save the state after each turn, drop everything, and restore it, which must make no difference. Clients
  /// that wait for an answer are lost at a restart, so their answers are not compared.
  package var restoresAfterEachTurn = false

  package init(_ plan: Plan) { self.plan = plan }

  /// If `coverage` is given, counts in it what the test reaches.
  package func run(_ test: PipelineTest, coverage: TestCoverage? = nil) -> TestResult {
    TestRun(self, test, coverage).run()
  }
}

/// The result of one test.
package struct TestResult: Sendable {
  package var name: String
  package var location: SourceLocation
  package var failures: [Failure] = []
  /// The virtual time that passed.
  package var virtualTime = TimeSpan.zero
  package var turns: UInt64 = 0

  package var passed: Bool { failures.isEmpty }

  /// A failure of a test.
  package struct Failure: Sendable {
    /// The failure and its location.
    package var diagnostic: Diagnostic
    /// Marbles, the expected ones above the actual ones, with the first difference marked; lines are not indented.
    package var picture: [String] = []
    /// The index of the failed expectation, and the actual result in `history`; nil for any other failure.
    package var expectation: Int?
    package var history = SignalHistory()
  }
}

/// One running test.
private final class TestRun {
  private let runner: TestRunner
  private let test: PipelineTest
  private let plan: Plan
  private let time: VirtualTime
  private let requests: StubCalls<HTTPRequest>
  private let programs: StubCalls<ProgramCall>
  private let databases: StubCalls<DatabaseQuery>
  private let plugins: StubCalls<PluginCall>
  private let docker: StubDocker?
  private let deadLetters = DeadLetters()
  private let coverage: TestCoverage?
  /// The recordings, one for each expectation.
  private let recordings: [ProbeSink.Recording]
  /// The answers to the events of inputs, by the index of the inputs' sources in the plan.
  private var replies: [Int: ReplyRecording] = [:]
  /// Replaced at each restart.
  private var executor: Executor
  private var execution: Execution
  private var turns: UInt64 = 0
  /// When the pipeline was last restarted: the source `docker` then connects again, which takes turns of its own.
  private var restartedAt: Instant?
  /// When the pipeline ended by itself; nil if it has not.
  private var end: TimeSpan?

  /// Rejected events and warnings, shown with a failure.
  private final class DeadLetters: @unchecked Sendable {
    static let limit = 3
    /// Warnings in the log, in order, each only once: for example, an event for which a condition failed.
    var warnings: [String] = []

    func warn(_ label: String, _ message: String) {
      let warning = Printable.cut("\(label): \(message)", limit: 500)
      if warnings.count <= Self.limit, !warnings.contains(warning) { warnings.append(warning) }
    }

    var count = 0
    var shown: [String] = []
    var random: UInt64 = 0

    func add(_ bytes: UnsafeRawBufferPointer) {
      count += 1
      if count <= Self.limit { shown.append(Printable.cut(bytes, limit: 300)) }
    }

    /// The next number of a deterministic sequence.
    func next() -> UInt64 {
      random &+= 0x9E37_79B9_7F4A_7C15
      var mixed = random
      mixed = (mixed ^ (mixed >> 30)) &* 0xBF58_476D_1CE4_E5B9
      mixed = (mixed ^ (mixed >> 27)) &* 0x94D0_49BB_1331_11EB
      return mixed ^ (mixed >> 31)
    }
  }

  init(_ runner: TestRunner, _ test: PipelineTest, _ coverage: TestCoverage?) {
    self.runner = runner
    self.test = test
    self.coverage = coverage
    plan = test.plan ?? runner.plan
    time = test.wallTime.map { VirtualTime(origin: $0) } ?? VirtualTime()
    recordings = test.expectations.map { _ in ProbeSink.Recording() }
    for case .replies(let index) in test.expectations.map(\.target) {
      guard let rules = plan.named[index].ownSource?.source?.serving else {
        continue
      }
      replies[index] = ReplyRecording(time, rules)
    }
    executor = Executor(clock: time)
    requests = StubCalls(test.stubs.map { ($0.matches, $0.answers) }, executor)
    programs = StubCalls(test.programs.map { ($0.matches, $0.answers) }, executor)
    databases = StubCalls(test.databases.map { ($0.matches, $0.answers) }, executor)
    plugins = StubCalls(test.plugins.map { ($0.matches, $0.answers) }, executor)
    docker = test.docker.map { [executor] in StubDocker($0, executor) }
    execution = Self.execution(
      plan, executor, requests, programs, databases, docker, StubPlugins(plugins, test.plugins), deadLetters)
  }

  private static func execution(
    _ plan: Plan, _ executor: Executor, _ requests: StubCalls<HTTPRequest>, _ programs: StubCalls<ProgramCall>,
    _ databases: StubCalls<DatabaseQuery>, _ docker: StubDocker?, _ plugins: StubPlugins, _ deadLetters: DeadLetters
  ) -> Execution {
    let client = StubHTTPClient(requests)
    var services = Services(
      http: docker.map { StubClients(client, $0) } ?? client,
      log: { level, label, message in if level >= .warning { deadLetters.warn(label, message) } },
      deadLetter: { deadLetters.add($0) },
      random: { deadLetters.next() })
    services.programs = StubPrograms(programs)
    services.databases = StubDatabases(databases)
    services.plugins = plugins
    return Execution(plan: plan, executor: executor, services: services)
  }

  func run() -> TestResult {
    launch(nil)
    var result = TestResult(name: test.name.value, location: test.name.location)
    let isQuiet = advance()
    result.virtualTime = TimeSpan(nanoseconds: time.now.nanoseconds)
    result.turns = turns + executor.turns
    judge(&result)
    if !isQuiet {
      result.failures.append(
        TestResult.Failure(
          diagnostic: Diagnostic(
            .testNeverQuiet, "the pipeline was still busy after \(result.turns) turns, at \(result.virtualTime)",
            at: test.name.location,
            help: """
              Say with 'until: 10s' when the test ends, if the pipeline runs for ever; give a 'repeat' or 'retry' by \
              which no time ever goes by a 'delay'
              """)))
    }
    if !result.failures.isEmpty { explain(&result.failures[result.failures.count - 1].diagnostic) }
    nonisolated(unsafe) let launched = execution
    executor.post { launched.cancel() }
    time.run(executor, until: executor.now, turnLimit: 1000)
    coverage?.add(execution)
    requests.stop()
    programs.stop()
    databases.stop()
    plugins.stop()
    return result
  }

  private func launch(_ state: [UInt8]?) {
    wire()
    nonisolated(unsafe) let launched = execution
    nonisolated(unsafe) weak let run = self
    executor.post {
      launched.launch(restoring: state) { _ in run?.ended() }
    }
  }

  private func ended() { end = TimeSpan(nanoseconds: executor.now.nanoseconds) }

  private func wire() {
    let inputs = Dictionary(
      test.inputs.map { (ObjectIdentifier($0.origin), source($0)) }
    ) { first, _ in first }
    execution.originOverride = { inputs[ObjectIdentifier($0)] }
    let hasDocker = docker != nil
    execution.sourceFilter = { $0.runsOnVirtualTime || $0.asksDocker && hasDocker ? $0 : SilentSource() }
    var sinks: [String: ProbeSink.Recording] = [:]
    for (expectation, recording) in zip(test.expectations, recordings) {
      let target: Tap.Target
      switch expectation.target {
      case .requests, .replies: continue
      case .sink(let name):
        sinks[name] = recording
        continue
      case .signal(let index): target = .signal(index)
      case .errors(let owner): target = .errors(owner)
      }
      let watcher = ProbeSink.tap(recording, executor)
      execution.taps.append(Tap(target, watcher, isPassive: true))
    }
    let plan = plan
    let isAnswering = !replies.isEmpty
    let sending = sending
    execution.sinkOverride = { name in
      var probe = ProbeSink(sinks[name] ?? ProbeSink.Recording())
      let sink = plan.sinks.first { $0.name == name }?.component
      probe.encoding = sink?.encoding
      probe.sentValue = sink?.sentValue
      if isAnswering && sink?.answersEvents == true || sending.contains(name) { probe.running = sink }
      return probe
    }
  }

  /// The sinks whose requests the test answers.
  private var sending: Set<String> { Set(test.stubs.compactMap(\.sink)) }

  private func source(_ input: PipelineTest.Input) -> ScriptedSource {
    var source = ScriptedSource(input.history.script(of: input.type))
    if let replies = replies.first(where: { plan.named[$0.key].ownSource === input.origin })?.value {
      source.clients = replies
    }
    return source
  }

  private func history(_ index: Int) -> SignalHistory {
    switch test.expectations[index].target {
    case .requests:
      SignalHistory(
        requests.exchanges.map { .init(at: TimeSpan(nanoseconds: $0.at.nanoseconds), .next($0.value)) })
    case .replies(let source): replies[source]?.history ?? SignalHistory()
    case .sink, .signal, .errors: SignalHistory(recordings[index])
    }
  }

  /// Runs to the end of the test; false if the pipeline does not come to rest.
  private func advance() -> Bool {
    let limit = runner.turnLimit
    if let until = test.until { return go(to: until, limit) }
    guard go(to: test.horizon, limit) else { return false }
    guard execution.outcome == nil else {
      // Work in progress, such as a request, has been cancelled, so only what is due now can still happen.
      return go(to: test.horizon, limit) && waitForAnswers(limit)
    }
    if isComplete { return true }
    let isDone = go(
      to: .distantFuture, execution.hasEndlessSource ? limit : runner.quietLimit, until: { self.isComplete })
    guard isDone, go(to: TimeSpan(nanoseconds: time.now.nanoseconds), limit) else { return false }
    return isComplete || waitForAnswers(limit)
  }

  /// Lets the time pass in which the server itself answers the waiting requests: those deadlines are not timers of the
  /// pipeline.
  private func waitForAnswers(_ limit: Int) -> Bool {
    guard !runner.restoresAfterEachTurn else { return true }
    while let deadline = replies.values.compactMap(\.nextDeadline).min() {
      guard go(to: deadline, limit, until: { false }) else { return false }
    }
    return true
  }

  /// Whether an endless source runs and all expectations without a time are satisfied.
  private var isComplete: Bool { hasAll && execution.hasEndlessSource }

  private func go(to span: TimeSpan, _ limit: Int) -> Bool {
    go(to: Instant(nanoseconds: span.nanoseconds), limit, until: { false })
  }

  private func go(to end: Instant, _ limit: Int, until isDone: () -> Bool) -> Bool {
    guard runner.restoresAfterEachTurn else {
      return time.run(executor, until: end, turnLimit: limit, isDone: isDone)
    }
    // The same, with restarts.
    var done: UInt64 = 0
    for _ in 0..<limit {
      let before = executor.deferrals
      if executor.runOne() {
        done += 1 + executor.deferrals - before
        restart()
        if isDone() { return true }
        if done > VirtualTime.instantLimit { return false }
        continue
      }
      guard let next = executor.nextDeadline, next <= end else {
        if end != .distantFuture, end > time.now { time.advance(to: end) }
        return true
      }
      if next > time.now { done = 0 }
      time.advance(to: max(next, time.now))
    }
    return false
  }

  /// Saves the state, drops everything, and restores it.
  private func restart() {
    // Events that a sink has taken are not part of the state, so no restart is possible then.
    guard sending.isEmpty, !requests.isAnswering, !programs.isAnswering, !databases.isAnswering, !plugins.isAnswering,
      docker == nil || docker?.isAnswering == false && restartedAt != executor.now,
      let state = execution.saveState()
    else {
      return
    }
    restartedAt = executor.now
    for recording in recordings { recording.ignoresMarks = true }
    nonisolated(unsafe) let old = execution
    requests.detach()
    programs.detach()
    databases.detach()
    plugins.detach()
    executor.post { old.cancel() }
    _ = executor.runOne()
    turns += executor.turns
    coverage?.add(old)
    executor = Executor(clock: time)
    requests.attach(executor)
    programs.attach(executor)
    databases.attach(executor)
    plugins.attach(executor)
    docker?.attach(executor)
    execution = Self.execution(
      plan, executor, requests, programs, databases, docker, StubPlugins(plugins, test.plugins), deadLetters)
    launch(state)
    _ = executor.runOne()
    requests.forgetOrphans()
    programs.forgetOrphans()
    databases.forgetOrphans()
    plugins.forgetOrphans()
    for recording in recordings { recording.ignoresMarks = false }
  }

  /// Whether every expectation has received as many events as it expects.
  private var hasAll: Bool {
    for (index, expectation) in test.expectations.enumerated() {
      let count =
        switch expectation.target {
        case .requests: requests.exchanges.count
        case .replies(let source): runner.restoresAfterEachTurn ? Int.max : replies[source]?.count ?? 0
        case .sink, .signal, .errors:
          recordings[index].moments.count - (expectation.hasMarks ? 0 : recordings[index].marks)
        }
      if count < expectation.items.count { return false }
    }
    return true
  }

  // MARK: The verdict

  private func judge(_ result: inout TestResult) {
    for (index, expectation) in test.expectations.enumerated() {
      if case .replies = expectation.target, runner.restoresAfterEachTurn { continue }
      let history = history(index)
      guard var failure = expectation.verdict(on: history) else { continue }
      failure.expectation = index
      failure.history = history
      if let note = endNote(history) { failure.diagnostic.notes.append(note) }
      result.failures.append(failure)
    }
    var reported: Set<String> = []
    for exchange in requests.exchanges where exchange.stub == nil {
      let request = "\(exchange.call.method) \(Printable.cut(exchange.call.shownURL, limit: 200))"
      guard reported.insert(request).inserted else { continue }
      result.failures.append(TestResult.Failure(diagnostic: unanswered(exchange, request)))
    }
    for exchange in programs.exchanges where exchange.stub == nil {
      let line = Printable.cut(exchange.call.shownLine, limit: 200)
      guard reported.insert(line).inserted else { continue }
      result.failures.append(TestResult.Failure(diagnostic: unanswered(exchange, line)))
    }
    for exchange in databases.exchanges where exchange.stub == nil {
      let line = Printable.cut(exchange.call.line, limit: 200)
      guard reported.insert(line).inserted else { continue }
      result.failures.append(TestResult.Failure(diagnostic: unanswered(exchange, line)))
    }
    for exchange in plugins.exchanges where exchange.stub == nil {
      let line = "\(exchange.call.component): \(Printable.cut(exchange.call.line, limit: 200))"
      guard reported.insert(line).inserted else { continue }
      result.failures.append(TestResult.Failure(diagnostic: unanswered(exchange)))
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

  /// A note that the pipeline failed, if events are missing because of that.
  private func endNote(_ history: SignalHistory) -> Diagnostic.Note? {
    guard case .failed(let failure) = execution.outcome else { return nil }
    // The picture already shows the error.
    if case .error? = history.entries.last?.moment { return nil }
    let when = end.map { " at \($0)" } ?? ""
    return .init(
      "the pipeline ended\(when) with an error: \(Printable.cut(failure.message, limit: 300))", at: failure.location)
  }

  private func unanswered(_ exchange: StubCalls<HTTPRequest>.Exchange, _ request: String) -> Diagnostic {
    let at = TimeSpan(nanoseconds: exchange.at.nanoseconds)
    let nearest = test.stubs.filter { $0.sink == exchange.call.options.sink }.min {
      Glob.distance($0.url, exchange.call.url) < Glob.distance($1.url, exchange.call.url)
    }
    let method = nearest?.method.map { $0 + " " } ?? ""
    return Diagnostic(
      .requestWithoutStub, "no stub answers the request \(request), made at \(at)",
      at: nearest?.location ?? test.stubsLocation ?? test.name.location,
      help: nearest.map { "The nearest stub is for \(method)\($0.url)" }
        ?? "Add 'stubs: { http: [ { url: \"...\", reply: { ... } } ] }' to the test")
  }

  private func unanswered(_ exchange: StubCalls<ProgramCall>.Exchange, _ line: String) -> Diagnostic {
    let at = TimeSpan(nanoseconds: exchange.at.nanoseconds)
    let nearest = test.programs.min {
      Glob.distance($0.command, exchange.call.line) < Glob.distance($1.command, exchange.call.line)
    }
    return Diagnostic(
      .requestWithoutStub, "there is no stub for the program '\(line)', run at \(at)",
      at: nearest?.location ?? test.stubsLocation ?? test.name.location,
      help: nearest.map { "The nearest stub is for '\($0.command)'" }
        ?? "Add 'stubs: { exec: [ { command: \"...\", reply: { text: ... } } ] }' to the test")
  }

  private func unanswered(_ exchange: StubCalls<DatabaseQuery>.Exchange, _ line: String) -> Diagnostic {
    let at = TimeSpan(nanoseconds: exchange.at.nanoseconds)
    let nearest = test.databases.min {
      Glob.distance($0.query, exchange.call.line) < Glob.distance($1.query, exchange.call.line)
    }
    return Diagnostic(
      .requestWithoutStub, "no stub answers the query '\(line)', made at \(at)",
      at: nearest?.location ?? test.stubsLocation ?? test.name.location,
      help: nearest.map { "The nearest stub is for '\($0.query)'" }
        ?? "Add 'stubs: { sqlite: [ { query: \"...\", reply: { rows: [ ... ] } } ] }' to the test")
  }

  private func unanswered(_ exchange: StubCalls<PluginCall>.Exchange) -> Diagnostic {
    let nearest = test.plugins.filter { $0.component == exchange.call.component }.min {
      Glob.distance($0.event, exchange.call.line) < Glob.distance($1.event, exchange.call.line)
    }
    return Diagnostic(
      .requestWithoutStub,
      "no stub answers the event \(Printable.cut(exchange.call.line, limit: 200)) of '\(exchange.call.component)', given at \(TimeSpan(nanoseconds: exchange.at.nanoseconds))",
      at: nearest?.location ?? test.stubsLocation ?? test.name.location,
      help: nearest.map { "The nearest stub is for '\($0.event)'" })
  }

  /// Adds further facts to the diagnostic of a failure.
  private func explain(_ diagnostic: inout Diagnostic) {
    for warning in deadLetters.warnings.prefix(DeadLetters.limit) { diagnostic.notes.append(.init(warning)) }
    guard deadLetters.count > 0 else { return }
    diagnostic.notes.append(
      .init(
        "\(deadLetters.count) event\(deadLetters.count == 1 ? " was" : "s were") given up: "
          + deadLetters.shown.joined(separator: ", ") + (deadLetters.count > DeadLetters.limit ? ", …" : "")))
  }
}

/// Replaces a source that reads from outside: it neither sends nor ends.
struct SilentSource: SourceComponent {
  static let spec = ComponentSpec<SilentSource>("silent", summary: "Sends nothing.")
  func makeSource(_ nodeContext: NodeContext, downstream: Downstream) -> RunningSource {
    Node(nodeContext, downstream: downstream)
  }
  final class Node: RunningSource {}
}
