import Synchronization

/// One running source.
///
/// Sources that live on the executor (timers, answers) emit from their turns; those with a thread of
/// their own hand over batches through an ``InputQueue``.
open class RunningSource: OperatorNode {
  /// What the events of this source have in common.
  public let origin: Origin
  /// Stands for the component of the plan, in tests.
  final var replacement: (any SourceComponent)?
  /// When it was subscribed, compared with others.
  final var serial: UInt64 = 0

  // So that an event counts no references: `origin`, and the executor, which outlives the source.
  private let own: Unmanaged<Origin>
  private let unmanagedExecutor: Unmanaged<Executor>

  public override init(_ nodeContext: NodeContext, downstream: Downstream) {
    let step = nodeContext.execution.plan.steps[nodeContext.step.number]
    origin = Origin(source: step.owner, receivedAt: 0, reply: nodeContext.scope.origin.reply)
    own = .passUnretained(origin)
    unmanagedExecutor = .passUnretained(nodeContext.execution.executor)
    super.init(nodeContext, downstream: downstream)
  }

  /// Starts. Called once; events may be emitted before it returns.
  open func begin() {}

  /// Goes on after `restore`, in place of `begin`. Called once; events may be emitted before it returns.
  open func resume() {}

  /// Where its state is a position (``Persistence/position(version:)``): whether it has one, because it has begun.
  open var hasPosition: Bool { true }

  /// Whether it goes on for ever unless it is stopped, with nothing but time: a test does not wait for its end.
  open var isEndless: Bool { false }

  /// The wall clock was set. Called in a turn of its own, after ``watchClock()``.
  open func clockWasSet() {}

  /// Asks for ``clockWasSet()``, for a source that waits for a time of day.
  public final func watchClock() { executor.watchClock(self) }

  /// Stops reading and completes, so that what is held below is flushed.
  open func drain() { finish() }

  /// The pipeline is about to be suspended (``Execution/suspend(keeping:)``): take nothing more in that another execution
  /// could not take in, and hold the execution until what has been taken in is answered. It may be asked for its state
  /// at the end of any turn from now on. The default goes on: what no turn has taken is read again by the next execution.
  open func pause() {}

  /// Completes because the pipeline stops, without having said what it still had to say.
  public final func completeEarly() {
    nodeContext.scope.work?.isCut = true
    finish()
  }

  public final override func start() {}

  /// It has ended, and `stop` has run.
  func ended() {}

  /// A request that waits for an answer to the event it was made for is told at once that none will come.
  final override func closed() {
    ended()
    if origin.reply != nil { execution.forget(self) }
    if persistence.fitsOtherParameters, hasPosition, !nodeContext.scope.isForSomething, nodeContext.scope.subject == nil
    {
      execution.closed(self)
    }
  }

  // MARK: State

  final var persistence: Persistence { replacement?.persistence ?? nodeContext.persistence }

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
    guard record.isAtEnd else { throw StateFault("there is more than the source reads") }
  }

  /// Has what the last event put off run before the next one comes, so that it makes no difference whether they share a turn.
  @inline(__always)
  public final func finishEvent() {
    unmanagedExecutor._withUnsafeGuaranteedRef {
      $0.finishEvent()
      $0.count()
    }
  }

  /// The same; whether the next one must have another turn (``Executor/resume(inner:_:)``).
  @inline(__always)
  final func finishEventAndSpend() -> Bool {
    unmanagedExecutor._withUnsafeGuaranteedRef {
      $0.finishEvent(yielding: true)
      return $0.spend()
    }
  }

  /// Emits one event that this source made.
  public final func produce(_ value: Value, position: Int64 = -1) {
    execution.tally.received &+= 1
    emit(Event(value, from: own, position: position))
    finishEvent()
  }

  /// The same, of another origin.
  public final func produce(_ value: Value, origin: Origin, position: Int64 = -1) {
    execution.tally.received &+= 1
    emit(Event(value, origin: origin, position: position))
    finishEvent()
  }

  /// Rejects input that is no event.
  public final func rejectInput(
    _ bytes: UnsafeRawBufferPointer, _ message: String, origin: Origin? = nil, position: Int64 = -1
  ) {
    let failure = SignalFailure(.source, message, at: nodeContext.location)
    rejectInput(bytes, .inputNotDecodable, because: failure, origin: origin, position: position)
  }

  /// The same for another reason than that it cannot be decoded. The signal fails with `failure` under `onError: fail`.
  public final func rejectInput(
    _ bytes: UnsafeRawBufferPointer, _ code: Diagnostic.Code, because failure: SignalFailure, origin: Origin? = nil,
    position: Int64 = -1
  ) {
    execution.tally.received &+= 1
    let shown = UnsafeRawBufferPointer(rebasing: bytes.prefix(4096))
    let text = String(decoding: shown, as: UTF8.self)
    refuse(
      Event(arena.string(text), origin: origin ?? self.origin, position: position), code, because: failure, "input")
  }

  /// Applies the error policy of the source to the event that this inner signal was made for: `keep` sends the event
  /// itself. False: the signal was not made for an event.
  public final func rejectOuter(_ code: Diagnostic.Code, because failure: SignalFailure) -> Bool {
    guard let outer = nodeContext.scope.outer else { return false }
    var event = Event(outer.value, origin: nodeContext.scope.origin)
    if let key = nodeContext.scope.key { event.key = key.value }
    refuse(event, code, because: failure, "an event")
    return true
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

  /// Ends the whole pipeline: what has happened is no failure that `retry` or `catch` could answer, such as a library that
  /// is not installed.
  public final func endPipeline(because failure: SignalFailure) { execution.unhandled(failure) }
}

/// The bounded way from a source's own thread into the pipeline.
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

  /// Lets a thread wait; each signal lets one go on, also one that comes to wait later.
  public protocol Gate: Sendable {
    func wait()
    func signal()
  }

  /// `limit`: how many batches may wait to be taken.
  public init(_ nodeContext: NodeContext, limit: Int = 2, gate: any Gate) {
    executor = nodeContext.execution.executor
    isInner = nodeContext.scope.outer != nil
    self.limit = limit
    room = gate
  }

  /// Hands over one batch; `body` runs in a turn. Blocks while `limit` batches wait.
  ///
  /// Returns false when the source was stopped: the batch is not taken, and no further one will be.
  ///
  /// `here`: the thread has nothing else to do, so it may run the turn itself.
  public func deliver(here: Bool = false, _ body: @escaping @Sendable () -> Void) -> Bool {
    // What has been handed over before comes first.
    if here, state.withLock({ !$0.isStopped && $0.waiting == 0 }), executor.runInline(body, isInner) { return true }
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
      room.wait()
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
    }
    return true
  }

  /// Ends every wait. From any thread.
  public func stop() {
    let waiters = state.withLock { state in
      state.isStopped = true
      defer { state.waiters = 0 }
      return state.waiters
    }
    for _ in 0..<waiters { room.signal() }
  }
}
