import Foundation
import PipelineCore
import PipelineRuntime
import PipelineTesting
import Synchronization
import Transport

/// A pipeline with real clocks and I/O, whose turns the thread of the test runs.
package final class RealPipeline {
  package let executor: Executor
  package let execution: Execution
  package private(set) var outcome: Execution.Outcome?
  private let bell = Bell()
  private let loop: Loop?
  private let notes = Mutex(Notes())
  /// How many batches had their turn on the thread that delivered them.
  package var inlineRuns: Int { loop?.inlineRuns ?? 0 }
  private var probes: [String: ProbeSink.Recording] = [:]
  private var isLaunched = false

  struct Notes {
    var log: [String] = []
    var deadLetters: [String] = []
  }

  package var log: [String] { notes.withLock { $0.log } }
  package var deadLetters: [String] { notes.withLock { $0.deadLetters } }
  package var counters: Execution.Counters { execution.counters }

  /// The launch is the first turn: it comes with the first `run`, or with ``launch()``.
  ///
  /// `state`: the state of an earlier run, to continue from.
  ///
  /// `before`: called on this thread, before the launch. `onLoop`: the program's own loop runs the turns, so that threads of
  /// sources run them while it waits; otherwise this runs one turn at a time.
  package init(
    _ yaml: String, name: String = "test.yaml", onLoop: Bool = false, http: (any HTTPClient)? = nil,
    environment: [String: String] = [:], restoring state: [UInt8]? = nil, memory: MemoryBudget = MemoryBudget(),
    before: (Execution) -> Void = { _ in },
    worker: @escaping @Sendable (String) -> any Worker = { WorkThread($0) }, plugins: any PluginProvider = NoPlugins()
  ) throws {
    signal(SIGPIPE, SIG_IGN)
    let plan = try PipelineText.compile(yaml, name: name, environment: environment, plugins: plugins)
    executor = Executor(clock: SystemClock.shared)
    loop = onLoop ? Loop() : nil
    let bell = bell
    executor.setNeedsTurn = { bell.ring() }
    nonisolated(unsafe) weak var weakSelf: RealPipeline?
    if let loop { loop.add(executor, owner: bell) }
    var services = Services(
      http: http ?? ScriptedHTTP(),
      log: { level, step, message in
        weakSelf?.notes.withLock { $0.log.append("\(level.rawValue) \(step): \(message)") }
        // Threads of sources and sinks log, too, and a test may wait for such a line.
        weakSelf?.ring()
      },
      deadLetter: { bytes in
        let text = String(decoding: bytes, as: UTF8.self)
        weakSelf?.notes.withLock { $0.deadLetters.append(text) }
      },
      random: { UInt64.random(in: 0 ... .max) }, worker: worker)
    services.programs = LocalPrograms(memory: memory)
    services.databases = LocalDatabases()
    services.memory = memory
    execution = Execution(plan: plan, executor: executor, services: services)
    for sink in plan.sinks where sink.component is ProbeSink {
      probes[sink.name] = ProbeSink.Recording()
    }
    let recorded = probes
    execution.replacements.sinks = { name in recorded[name].map { ProbeSink($0) } }
    execution.settings.reportSink = { fault in _ = "sink fault: \(fault)\n".withCString { write(2, $0, strlen($0)) } }
    weakSelf = self
    before(execution)
    inTurn { pipeline in
      pipeline.execution.launch(restoring: state) { [weak pipeline] in pipeline?.outcome = $0 }
      pipeline.isLaunched = true
    }
  }

  /// Runs turns until the sources have started: what comes into a file from here on comes after its end.
  package func launch() { run { isLaunched } }

  /// Suspends the pipeline; returns the state from which another one can continue.
  package func suspend() -> [UInt8]? {
    inTurn { $0.execution.suspend() }
    runToEnd()
    return execution.savedState
  }

  deinit {
    if execution.outcome == nil {
      nonisolated(unsafe) let execution = execution
      executor.post { execution.cancel() }
      run(within: .seconds(60)) { execution.hasClosed }
    }
  }

  /// Does something in a turn.
  package func inTurn(_ body: @escaping (RealPipeline) -> Void) {
    nonisolated(unsafe) let body = body
    nonisolated(unsafe) weak let pipeline = self
    executor.post { if let pipeline { body(pipeline) } }
  }

  /// How often conditions are checked that nothing announces, such as writes to a file.
  private static let look = TimeSpan.milliseconds(50)

  /// Runs turns until the condition holds; false if it does not within the limit. The condition is checked between
  /// turns, and whenever `ring` was called.
  @discardableResult
  package func run(within limit: TimeSpan = .seconds(300), until condition: () -> Bool) -> Bool {
    let end = SystemClock.shared.now + limit
    if let loop {
      while true {
        var isMet = false
        loop.run(until: min(end, SystemClock.shared.now + Self.look)) {
          isMet = condition()
          return isMet
        }
        if isMet || SystemClock.shared.now >= end { return isMet }
      }
    }
    while true {
      let seen = bell.count
      if condition() { return true }
      if executor.run(limit: 1) { continue }
      if condition() { return true }
      if SystemClock.shared.now >= end { return false }
      bell.wait(since: seen, until: min(end, SystemClock.shared.now + Self.look, executor.nextDeadline ?? end))
    }
  }

  /// Runs until the pipeline has ended.
  @discardableResult
  package func runToEnd(within limit: TimeSpan = .seconds(300)) -> Execution.Outcome? {
    run(within: limit) { outcome != nil }
    return outcome
  }

  /// Makes `run` check its condition again. Callable from any thread.
  package var ring: @Sendable () -> Void {
    let bell = bell
    return { [loop] in
      bell.ring()
      loop?.wake()
    }
  }

  /// The port that its server has logged; nil if it has not.
  package func port() -> Int? {
    func found() -> Int? {
      log.lazy.compactMap { line in
        line.range(of: "listening on ").flatMap { Int(line[$0.upperBound...].split(separator: ":").last ?? "") }
      }.first
    }
    run { found() != nil || outcome != nil }
    return found()
  }

  package func probe(_ name: String = "out") -> ProbeSink.Recording {
    probes[name] ?? ProbeSink.Recording()
  }

  package var events: [String] { probe().events }

  package var failure: SignalFailure? {
    if case .failed(let failure) = outcome { failure } else { nil }
  }
}

/// Wakes the thread of a test. Waits are measured by the monotonic clock.
final class Bell: @unchecked Sendable {
  private let lock = UnsafeMutablePointer<pthread_mutex_t>.allocate(capacity: 1)
  private let changed = UnsafeMutablePointer<pthread_cond_t>.allocate(capacity: 1)
  private var rings = 0

  init() {
    pthread_mutex_init(lock, nil)
    var attributes = pthread_condattr_t()
    pthread_condattr_init(&attributes)
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC)
    pthread_cond_init(changed, &attributes)
    pthread_condattr_destroy(&attributes)
  }

  deinit {
    pthread_cond_destroy(changed)
    pthread_mutex_destroy(lock)
    changed.deallocate()
    lock.deallocate()
  }

  var count: Int {
    pthread_mutex_lock(lock)
    defer { pthread_mutex_unlock(lock) }
    return rings
  }

  func ring() {
    pthread_mutex_lock(lock)
    rings += 1
    pthread_cond_broadcast(changed)
    pthread_mutex_unlock(lock)
  }

  func wait(since seen: Int, until deadline: Instant) {
    pthread_mutex_lock(lock)
    defer { pthread_mutex_unlock(lock) }
    var time = timespec(
      tv_sec: Int(deadline.nanoseconds / 1_000_000_000),
      tv_nsec: Int(deadline.nanoseconds % 1_000_000_000))
    while rings == seen {
      if pthread_cond_timedwait(changed, lock, &time) == ETIMEDOUT { return }
    }
  }
}
