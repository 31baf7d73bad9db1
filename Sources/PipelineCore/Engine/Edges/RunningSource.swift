import Synchronization

/// A running source.
///
/// Sources that live on the executor (timers, answers) emit from their turns; those with their own thread hand over
/// batches through an ``InputQueue``.
open class RunningSource: OperatorNode {
  /// The common origin of this source's events.
  package let origin: Origin
  /// The component that replaces the plan's, in tests.
  final var replacement: (any SourceComponent)?
  /// The order of subscription among sources.
  final var serial: UInt64 = 0

  /// The `meta.key` of the source's events; the scope keeps its memory.
  final let key: Value
  // Unmanaged, so that an event avoids retain and release: `origin`, and the executor, which outlives the source.
  private let own: Unmanaged<Origin>
  private let unmanagedExecutor: Unmanaged<Executor>

  public override init(_ nodeContext: NodeContext, downstream: Downstream) {
    let step = nodeContext.execution.plan.steps[nodeContext.step.number]
    origin = Origin(
      source: step.owner, receivedAt: 0, reply: nodeContext.scope.origin.reply, identity: Self.identity(nodeContext))
    own = .passUnretained(origin)
    key = nodeContext.scope.keyValue
    unmanagedExecutor = .passUnretained(nodeContext.execution.executor)
    super.init(nodeContext, downstream: downstream)
  }

  /// Names the source, after the event for which its inner signal was made. Nil: the pipeline does not use names, or
  /// the events of this source have none.
  private static func identity(_ nodeContext: NodeContext) -> EventIdentity? {
    guard nodeContext.execution.namesEvents, let component = nodeContext.plan?.source else {
      return nil
    }
    let name = nodeContext.execution.plan.steps[nodeContext.step.number].key
    if nodeContext.scope.isForSomething {
      guard case .event(let outer)? = nodeContext.scope.origin.identity else { return nil }
      return .origin("\(outer):\(name)")
    }
    return component.namesEvents ? .origin(name) : nil
  }

  /// The identity of one of several inputs of this source: a file, a request.
  package final func identity(_ input: @autoclosure () -> String) -> EventIdentity? {
    guard case .origin(let name)? = origin.identity else { return nil }
    return .origin("\(name):\(input())")
  }

  /// A unique identity, for inputs that cannot be read again.
  package final func freshIdentity() -> EventIdentity? {
    identity(String(execution.services.random(), radix: 16) + String(execution.services.random(), radix: 16))
  }

  /// Starts the source. Called once; may emit before it returns.
  open func begin() {}

  /// Continues after `restore`, in place of `begin`. Called once; may emit before it returns.
  open func resume() {}

  /// Called instead of `begin` and `resume` in a dry run, while another execution may read the same input: finish with
  /// a failure if they could not succeed. Open nothing that others notice, and keep nothing.
  open func dryRun() {}

  /// For a source whose state is a position (``Persistence/position(version:)``): whether it has one yet.
  open var hasPosition: Bool { true }

  /// The files that the source reads or will read, for statistics; called between two turns.
  open var readFiles: [PipelineStatistics.ReadFile] { [] }

  /// The source's connections, for statistics; nil: it has none. Called between two turns.
  open var connections: PipelineStatistics.Connections? { nil }

  /// Whether the source needs only time and never ends by itself: a test does not wait for its end.
  open var isEndless: Bool { false }

  /// The wall clock was set. Called in its own turn, after ``watchClock()``.
  open func clockWasSet() {}

  /// Requests ``clockWasSet()``, for a source that waits for a time of day.
  package final func watchClock() { executor.watchClock(self) }

  /// Stops reading and completes, so that downstream operators flush the events that they hold.
  open func drain() { finish() }

  /// The pipeline is about to be suspended (``Execution/suspend(keeping:)``): return the input that no turn has taken,
  /// so that the next execution gets it. Send input that cannot be given back first, and hold the execution
  /// (``Execution/hold()``) until it has been sent. From now on the source may be asked for its state at the end of any
  /// turn, and is then cancelled. The default does nothing: the next execution reads that input again.
  open func suspend() {}

  /// Completes because the pipeline stops, before the source has sent everything.
  package final func completeEarly() {
    nodeContext.scope.work?.isCut = true
    finish()
  }

  public final override func start() {}

  /// Whether the source's timers wait while a step's queue is full; false for the script of a test, which gives the
  /// times of its events.
  package final var waitsForSteps = true

  public final override var timerKind: TimerKind {
    guard waitsForSteps else { return .step }
    let isInner = nodeContext.scope.outer != nil || execution.plan.sourcesOfInnerSignals.contains(nodeContext.step)
    return isInner ? .step : .input
  }

  /// Called when the source has ended and `stop` has run.
  func ended() {}

  /// Releases the source's origin at once, so that a waiting HTTP request gets an error if nothing else can answer it.
  final override func closed() {
    ended()
    if origin.reply != nil { execution.forget(self) }
    if persistence.fitsOtherParameters, hasPosition, !nodeContext.scope.isForSomething, nodeContext.scope.subject == nil
    {
      execution.closed(self)
    }
  }

  // MARK: Parts

  /// Reports a new part of the input; its events have an origin with this ``Origin/part``. `isBehind`: it has events
  /// that have not been read, which event time waits for. Called in a turn or in `begin` and `resume`.
  package final func partOpened(_ part: InputPart, isBehind: Bool) { note(.opened(isBehind: isBehind), of: part) }

  /// Reports that all events of that part have been sent.
  package final func partEnded(_ part: InputPart) { note(.ended, of: part) }

  // MARK: Pieces

  /// Whether a position of this source can be used: not within an inner signal, which starts over with its event.
  package final var hasPieces: Bool { !nodeContext.scope.isForSomething && nodeContext.scope.subject == nil }

  /// Begins a piece: all later effects of this turn belong to it, and `ledger` is notified when they are acknowledged.
  /// Called in a turn before the first event; a second call in the same turn does nothing.
  ///
  /// - Parameter position: Returns, at the end of the turn, the end of the piece: the position after the last event
  ///   that the turn has sent.
  public final func beginPiece<Position: Sendable>(
    of ledger: PositionLedger<Position>, endingAt position: @escaping () -> Position
  ) {
    guard hasPieces, ledger.isNew(turn: executor.turns) else { return }
    if let ack = ledger.begin() { executor.track(ack) }
    execution.whenTurnEnds { [self] in
      ledger.end(at: position())
      if isClosed { execution.ended { ledger.outstanding == 0 } }
    }
  }

  // MARK: State

  final override var persistence: Persistence { replacement?.persistence ?? nodeContext.persistence }

  /// A source starts when all of its readers are subscribed.
  final override func begin(restoring version: Int?) {
    execution.start(self, resuming: version.map { $0 > 0 } ?? false)
  }

  final override func record(_ state: inout StateWriter) {
    let key = StateTable.Key.step(
      nodeContext.step, version: persistence.version, fitsOtherParameters: persistence.fitsOtherParameters)
    state.record(key) { state in
      state.write(serial)
      state.own(nodeContext.step, save)
    }
  }

  final override func restore(
    record: StateReader, version: Int, _ restoration: Restoration
  ) throws(StateFault) {
    var record = record.reader(
      version: version, target: self, hasOtherParameters: restoration.hasChanged(nodeContext.step))
    serial = try record.read()
    guard serial <= restoration.lastSubscription else { throw StateFault("its number is not known") }
    try restore(&record)
    guard record.isAtEnd else { throw StateFault("the state has more data than the source reads") }
  }

  /// Runs the steps that the last event deferred before the next event arrives, so that it makes no difference whether
  /// events share a turn.
  @inline(__always)
  package final func finishEvent() {
    unmanagedExecutor._withUnsafeGuaranteedRef {
      $0.finishEvent()
      $0.count()
    }
  }

  /// Does the same as `finishEvent()` and returns whether the next event needs another turn
  /// (``Executor/resume(inner:_:)``).
  @inline(__always)
  final func finishEventAndSpend() -> Bool {
    unmanagedExecutor._withUnsafeGuaranteedRef {
      $0.finishEvent(yielding: true)
      return $0.spend()
    }
  }

  /// Counts bytes of the input, which end at `position`. Called in turns.
  final func countBytes(_ bytes: Int, to position: Int64) {
    counters.pointee.bytes &+= UInt64(bytes)
    counters.pointee.position = position
  }

  /// Sends nothing after the event with which the limit was reached.
  private func endAtLimit() {
    // If the next run continues from a state, the source must not have ended in that state.
    if !nodeContext.scope.isForSomething, !execution.keepsState { completeEarly() }
  }

  /// Emits one event that this source made.
  public final func produce(_ value: Value, position: Int64 = -1) {
    execution.tally.received &+= 1
    emit(Event(value, key: key, from: own, position: position))
    finishEvent()
    if execution.outputLimit.isReached { endAtLimit() }
  }

  /// Emits one event with another origin.
  package final func produce(_ value: Value, origin: Origin, position: Int64 = -1) {
    execution.tally.received &+= 1
    emit(Event(value, key: key, origin: origin, position: position))
    finishEvent()
    if execution.outputLimit.isReached { endAtLimit() }
  }

  /// Rejects input that is not an event.
  package final func rejectInput(
    _ bytes: UnsafeRawBufferPointer, _ message: String, origin: Origin? = nil, position: Int64 = -1
  ) {
    let failure = SignalFailure(.source, message, at: nodeContext.location)
    rejectInput(bytes, .inputNotDecodable, because: failure, origin: origin, position: position)
  }

  /// The maximum number of bytes kept of rejected input.
  static let shownInputBytes = 4096

  /// Rejects input for another reason than a decoding failure. The signal fails with `failure` under `onError: fail`.
  package final func rejectInput(
    _ bytes: UnsafeRawBufferPointer, _ code: Diagnostic.Code, because failure: SignalFailure, origin: Origin? = nil,
    position: Int64 = -1
  ) {
    execution.tally.received &+= 1
    refuse(
      Event(arena.string(Self.shown(bytes)), key: key, origin: origin ?? self.origin, position: position), code,
      because: failure, "input")
  }

  /// Counts input that is excluded by the parameters of the source.
  package final func dropInput(
    _ bytes: UnsafeRawBufferPointer, _ message: String, origin: Origin? = nil, position: Int64 = -1
  ) {
    execution.tally.received &+= 1
    countDropped(
      Event(arena.string(Self.shown(bytes)), key: key, origin: origin ?? self.origin, position: position),
      .init(code: Diagnostic.Code.inputNotDecodable.name, message: message, location: nodeContext.location))
  }

  private static func shown(_ bytes: UnsafeRawBufferPointer) -> String {
    String(decoding: UnsafeRawBufferPointer(rebasing: bytes.prefix(shownInputBytes)), as: UTF8.self)
  }

  /// Applies the error policy of the source to the event for which this inner signal was created; `keep` sends that
  /// event. Returns false if the signal was not created for an event.
  package final func rejectOuter(_ code: Diagnostic.Code, because failure: SignalFailure) -> Bool {
    guard let outer = nodeContext.scope.outerEvent else { return false }
    refuse(outer, code, because: failure, "an event")
    return true
  }

  /// Rejects an event that ends the process: whatever the error policy says, it is not sent.
  final func rejectPoison(_ event: Event) {
    let failure = SignalFailure(
      .source, "the process ended three times while it handled this event", at: nodeContext.location)
    let problem = EventProblem(
      code: .eventEndsProcess, message: failure.message, location: failure.location, kind: failure.kind,
      dropped: "an event")
    if case .fail = execution.outcome(of: event, at: nodeContext.step, because: { problem }) {
      finish(failing: failure)
    }
  }

  private func refuse(_ event: Event, _ code: Diagnostic.Code, because failure: SignalFailure, _ what: String) {
    let problem = EventProblem(
      code: code, message: failure.message, location: failure.location, kind: failure.kind, dropped: what)
    switch execution.outcome(of: event, at: nodeContext.step, because: { problem }) {
    case .pass: emit(event)
    case .gone: break
    case .fail: finish(failing: failure)
    }
  }

  /// Whether tables are being loaded, and everything else waits.
  package final var isAwaitedByTable: Bool { execution.tables.areLoading }

  /// Reports that the source has sent its initial data, and that its table has stored it.
  package final func hasLoaded() { execution.sourceHasLoaded(nodeContext.step) }

  /// Ends the whole pipeline, for failures that `retry` and `catch` must not handle, such as a missing library.
  package final func endPipeline(because failure: SignalFailure) { execution.unhandled(failure) }
}

/// The bounded queue from a source's own thread into the pipeline.
public final class InputQueue: @unchecked Sendable {
  private struct State {
    var waiting = 0
    /// Threads that wait for room and have not been signalled yet.
    var waiters = 0
    var isStopped = false
  }
  private let state = Mutex(State())
  private let room: any Gate
  private let executor: Executor
  private let limit: Int
  private let isInner: Bool
  private let placement: Placement
  private let waits: SourceWaits?
  private let memory: MemoryBudget

  /// Blocks a thread. Each signal releases one thread, including one that waits later.
  public protocol Gate: Sendable {
    func wait()
    func signal()
  }

  /// `limit`: how many batches may wait in the queue.
  public init(_ nodeContext: NodeContext, limit: Int = 2, gate: any Gate) {
    executor = nodeContext.execution.executor
    isInner = nodeContext.scope.outer != nil
    placement = nodeContext.execution.reading.placement
    waits = nodeContext.execution.meters.waits[nodeContext.step.number]
    memory = nodeContext.execution.services.memory
    self.limit = limit
    room = gate
  }

  /// Hands over one batch; `body` runs in a turn. Blocks while `limit` batches wait.
  ///
  /// Returns false if the source was stopped: neither this batch nor a later one is taken.
  ///
  /// `here`: whether the thread has nothing else to do and runs the turn itself if it can, unless the placement is
  /// pinned; nil: the thread must not run turns.
  ///
  /// `bytes`: the memory of the batch. Until its turn has run, it counts towards the queue memory of the process.
  public func deliver(here: Bool? = nil, bytes: Int = 0, _ body: @escaping @Sendable () -> Void) -> Bool {
    // Queued batches run first.
    if let here, placement.runsInline ?? here, state.withLock({ !$0.isStopped && $0.waiting == 0 }),
      executor.runInline(body, isInner)
    {
      return true
    }
    let charge = bytes > 0 ? MemoryCharge(bytes, of: memory) : nil
    while true {
      let verdict: Bool? = state.withLock {
        if $0.isStopped { return false }
        if $0.waiting < limit {
          $0.waiting += 1
          return true
        }
        $0.waiters += 1
        return nil
      }
      if verdict == false { return false }
      if verdict == true { break }
      waits?.began(at: executor.instant)
      room.wait()
      waits?.ended(at: executor.instant)
    }
    executor.postBatch(inner: isInner) { [self] in
      let isAwaited = state.withLock {
        $0.waiting -= 1
        guard $0.waiters > 0 else { return false }
        $0.waiters -= 1
        return true
      }
      if isAwaited { room.signal() }
      body()
      // The charge must last even if no turn takes the batch and its closure.
      withExtendedLifetime(charge) {}
    }
    return true
  }

  /// Ends every wait. Callable from any thread.
  public func stop() {
    let waiters = state.withLock { state in
      state.isStopped = true
      defer { state.waiters = 0 }
      return state.waiters
    }
    for _ in 0..<waiters { room.signal() }
  }
}
