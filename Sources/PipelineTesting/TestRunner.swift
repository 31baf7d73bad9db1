import PipelineCore

/// Runs the tests of a pipeline in virtual time.
///
/// Sources with an input send that input. Other sources run if they need only time and services that have stubs, or if
/// the test has the stub that they name; the rest are silent: they neither send nor end. The times of an input count
/// from the start of its source, which is 0 unless the pipeline subscribes it later.
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

  /// If `coverage` is given, adds the reached points to it.
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
  private let stubs: [any RunningStubs]
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
  /// When the pipeline was last restarted.
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
    let given = test.stubs
    stubs = stubKinds.compactMap { [executor] kind in
      (given.first { type(of: $0) == kind } ?? kind.none)?.run(executor)
    }
    execution = Self.execution(plan, executor, stubs, deadLetters, hasClock: test.wallTime != nil)
  }

  private static func execution(
    _ plan: Plan, _ executor: Executor, _ stubs: [any RunningStubs], _ deadLetters: DeadLetters, hasClock: Bool
  ) -> Execution {
    var services = Services(
      http: StubCalls<HTTPRequest>([], executor),
      log: { level, label, message in if level >= .warning { deadLetters.warn(label, message) } },
      deadLetter: { deadLetters.add($0) },
      random: { deadLetters.next() })
    for stubs in stubs { stubs.serve(&services) }
    let execution = Execution(plan: plan, executor: executor, services: services)
    execution.settings.boundsEventTime = hasClock
    execution.settings.reloadsTables = false
    return execution
  }

  /// The requests so far, in order.
  private var requests: [StubCalls<HTTPRequest>.Exchange] {
    stubs.lazy.compactMap { $0 as? StubCalls<HTTPRequest> }.first?.exchanges ?? []
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
    for stubs in stubs { stubs.stop() }
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
    execution.replacements.origins = { inputs[ObjectIdentifier($0)] }
    let keys = Set(test.stubs.map { type(of: $0).key })
    execution.replacements.others = { source in
      source.runsOnVirtualTime || source.stub.map(keys.contains) == true ? source : SilentSource()
    }
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
    execution.replacements.sinks = { name in
      var probe = ProbeSink(sinks[name] ?? ProbeSink.Recording())
      let sink = plan.sinks.first { $0.name == name }?.sink
      probe.encoding = sink?.encoding
      probe.sentValue = sink?.sentValue
      if isAnswering && sink?.answersEvents == true || sending.contains(name) { probe.running = sink }
      return probe
    }
  }

  /// The sinks whose requests the test answers.
  private var sending: Set<String> {
    Set(test.stubs.flatMap { ($0 as? CallStubs<HTTPRequest>)?.all.compactMap(\.receiver) ?? [] })
  }

  private func source(_ input: PipelineTest.Input) -> ScriptedSource {
    var source = ScriptedSource(input.history.script(of: input.type))
    source.origins = input.origins
    if let replies = replies.first(where: { plan.named[$0.key].ownSource === input.origin })?.value {
      source.clients = replies
    }
    return source
  }

  private func history(_ index: Int) -> SignalHistory {
    switch test.expectations[index].target {
    case .requests:
      SignalHistory(
        requests.map { .init(at: TimeSpan(nanoseconds: $0.at.nanoseconds), .next($0.value)) })
    case .replies(let source): replies[source]?.history ?? SignalHistory()
    case .sink, .signal, .errors: SignalHistory(recordings[index])
    }
  }

  /// Runs to the end of the test; false if the pipeline does not become quiet.
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
    // Events that a sink has taken are not part of the state.
    guard sending.isEmpty, !stubs.contains(where: \.isAnswering),
      restartedAt != executor.now || !stubs.contains(where: \.isConnected),
      let state = execution.saveState()
    else {
      return
    }
    restartedAt = executor.now
    for recording in recordings { recording.ignoresMarks = true }
    nonisolated(unsafe) let old = execution
    for stubs in stubs { stubs.detach() }
    executor.post { old.cancel() }
    _ = executor.runOne()
    turns += executor.turns
    coverage?.add(old)
    executor = Executor(clock: time)
    for stubs in stubs { stubs.attach(executor) }
    execution = Self.execution(plan, executor, stubs, deadLetters, hasClock: test.wallTime != nil)
    launch(state)
    _ = executor.runOne()
    // Tables are reloaded in separate turns; with a restart after each turn, virtual time would never advance.
    if plan.tables.contains(where: \.isLoaded) { while executor.runOne() {} }
    for stubs in stubs { stubs.forgetOrphans() }
    for recording in recordings { recording.ignoresMarks = false }
  }

  /// Whether every expectation has received as many events as it expects.
  private var hasAll: Bool {
    for (index, expectation) in test.expectations.enumerated() {
      let count =
        switch expectation.target {
        case .requests: requests.count
        case .replies(let source):
          runner.restoresAfterEachTurn ? Int.max : replies[source]?.count ?? 0
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
    for stubs in stubs {
      for diagnostic in stubs.unanswered(at: test.stubsLocation ?? test.name.location) {
        result.failures.append(TestResult.Failure(diagnostic: diagnostic))
      }
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

  /// Adds further facts to a failure.
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
