import CRxdPlugin

/// One running operator. It has its own thread, and its calls do not overlap.
///
/// Subclasses override `receive`, `complete` and `woke` unless they only pass events on. Stored properties hold the state.
open class OperatorNode: Downstream {
  public let nodeContext: NodeContext
  public private(set) var isClosed = false
  /// The keys and bytes that this node keeps between events.
  public final var keptSize = KeptSize()
  let frame = EventFrame()
  let timers = Timers()
  /// Collects the results for the input with ``index``; nil: no input is being processed.
  var output: OpaquePointer?
  var index = 0
  /// Why the signal ends.
  private(set) var failure: SignalFailure?
  private var counts: [String: Int64] = [:]

  public init(_ nodeContext: NodeContext, downstream: Downstream) { self.nodeContext = nodeContext }

  public final var execution: Execution { nodeContext.execution }
  public final var executor: Executor { Executor(execution: nodeContext.execution) }
  /// The results for this input.
  public final var arena: Arena { Arena.current }
  public final var now: Instant { executor.now }

  // MARK: Input, to override

  /// Receives an event.
  open override func receive(_ event: Event) { emit(event) }
  /// The input has completed; only `stop` is called afterwards. The default completes.
  open override func complete() { finish() }
  /// A timer that this node set is due.
  open func woke(_ token: Int) {}
  /// A timer that was due while the pipeline was down and that `whenLate` may skip. Never called here: rxd delivers every timer to a
  /// plugin.
  open func skipped(_ token: Int, _ late: Lateness) { woke(token) }
  /// Called once, before the first input, unless the node is restored. Must not send anything.
  open func start() {}
  /// Frees resources of the subclass. Called once.
  open func stop() {}
  /// The number of received events that the node holds.
  open var heldCount: Int { 0 }
  /// The timers at which the node sends held events, if its completion would send the same events immediately. rxd treats every timer of a
  /// plugin as such a timer.
  open var outputTimers: [Wake]? { nil }

  // MARK: State, to override where the spec says `persistence: .state`

  /// Writes the state of this class, timers included.
  open func save(_ state: inout StateWriter) {}
  /// Reads the output of `save`, in the same order; called in place of `start`. Must not send anything.
  open func restore(_ state: inout StateReader) throws(StateFault) {}

  // MARK: Output

  /// An event that the operator creates from several events, at a timer or at the end.
  public final func made(_ value: Value) -> Event { Event(value) }

  public final func emit(_ event: Event) {
    guard !isClosed, let output else { return }
    withUnsafePointer(to: event.value.raw) { host.send(output, index, $0) }
  }

  /// Completes: no further event is sent, and rxd cancels the input. Called in `start`, it completes before the first
  /// input.
  public final func finish() {
    guard !isClosed else { return }
    if let output { host.finish(output, index) }
    close()
  }

  /// Ends the signal with an error. Called in `start` or `restore`, it refuses the instance; the path names the
  /// parameter.
  public final func finish(failing failure: SignalFailure) {
    guard !isClosed else { return }
    self.failure = failure
    close()
  }

  final func close() {
    guard !isClosed else { return }
    isClosed = true
    stop()
  }

  /// Sends the event that is being received to the errors output.
  public final func reject(
    _ event: Event, _ code: Diagnostic.Code, _ message: String, at location: SourceLocation? = nil
  ) {
    guard let output else { return }
    message.withText { host.reject(output, index, $0) }
  }

  /// Sends an event that the step does not accept to the errors output.
  public final func refuse(_ event: Event, _ code: Diagnostic.Code, _ message: String) { reject(event, code, message) }

  /// Counts an event that the step drops as specified.
  public final func countDropped(_ event: @autoclosure () -> Event?) { counts["dropped", default: 0] += 1 }
  public final func countDropped(_ count: Int) { counts["dropped", default: 0] += Int64(count) }
  /// Counts an event that the step held and that a newer one replaces.
  public final func countSuperseded(_ event: @autoclosure () -> Event?) { counts["superseded", default: 0] += 1 }
  public final func countSuperseded(_ count: Int) { counts["superseded", default: 0] += Int64(count) }

  /// Counts an event that the operator created and then discarded.
  public final func countMade() { counts["made", default: 0] += 1 }

  final func flushCounts() {
    guard !counts.isEmpty else { return }
    for (name, number) in counts { nodeContext.count(name, by: number) }
    counts.removeAll(keepingCapacity: true)
  }

  // MARK: Expressions

  /// The frame with the expression results for the event that is being received.
  public final func makeFrame() -> EventFrame { frame }
  public final func sharedFrame() -> EventFrame { frame }
  /// Always true: rxd has parsed the event.
  public final func isReadable(_ event: Event, seeing seen: Value? = nil, _ frame: EventFrame) -> Bool { true }
  /// Handles an event for which an expression has failed; returns whether the event passes nevertheless.
  public final func failed(_ event: Event, _ error: Value, _ program: Program, _ frame: EventFrame) -> Bool {
    reject(event, .expressionFailed, "the expression has failed")
    return false
  }
  /// Whether a condition holds.
  public final func decide(_ event: Event, _ program: Program, _ frame: EventFrame, kept: Bool? = nil) -> Bool? {
    program.evaluate(frame).isTrue
  }

  // MARK: Timers

  /// Calls `woke` with the token after `span`, on the pipeline's clock. rxd saves the timer with the state.
  public final func wake(after span: TimeSpan, _ token: Int = 0) -> Wake {
    if isClosed { return .none }
    let wake = timers.make(token)
    tell(wake, max(0, span.nanoseconds))
    return wake
  }

  public final func wake(at deadline: Instant, _ token: Int = 0) -> Wake { wake(after: deadline - now, token) }

  /// Cancels a timer and resets `wake`.
  public final func cancelWake(_ wake: inout Wake) {
    if timers.remove(wake) { tell(wake, -1) }
    wake = .none
  }

  /// Sets or cancels a timer in rxd.
  func tell(_ wake: Wake, _ after: Int64) {
    guard let output else {
      timers.untold.append((wake, after))
      return
    }
    wake.name.withText { host.timer(output, $0, after) }
  }

  final func tellUntold() {
    let untold = timers.untold
    timers.untold = []
    for (wake, after) in untold { tell(wake, after) }
  }

  // MARK: Records

  final func record() -> [UInt8] {
    var state = StateWriter()
    state.write(timers.last)
    state.write(isClosed)
    save(&state)
    return state.bytes
  }

  final func restore(record: [UInt8], version: Int) throws(StateFault) {
    var state = StateReader(record, version: version, timers)
    timers.last = try state.read()
    let isOver = try state.read(Bool.self)
    try restore(&state)
    guard state.isAtEnd else { throw StateFault("the state has more data than the step reads") }
    if isOver { close() }
  }
}

/// The decision of a fused step about one event.
public enum StepVerdict: Sendable {
  /// The event goes on, perhaps with another value.
  case pass
  /// The step drops the event as specified.
  case drop
  /// The event stops here: the step holds it, or has used it for its results.
  case keep
  /// The event stops here: it was rejected.
  case gone
  /// The event goes on, and the signal completes after it.
  case passAndFinish
  /// The signal completes without the event.
  case finish
}

/// A running fused step: receives one event at a time and emits at most one for it, immediately.
open class FusedStep {
  public init() {}
  /// The size of what this step holds between events.
  public final var keptSize = KeptSize()
  /// Whether the signal completes as soon as it is subscribed to.
  open var endsBeforeStart: Bool { false }
  /// Called for each event, in order. May change `event`, or reject it through `run` and drop it.
  open func apply(_ event: inout Event, _ frame: EventFrame, _ run: FusedRun) -> StepVerdict { .pass }
  open var standardPolicy: ErrorPolicy { .route }
  /// The input has completed. The result, if any, is the last event of the signal.
  open func complete(_ run: FusedRun) -> Value? { nil }
  open func fail(_ failure: SignalFailure, _ run: FusedRun) {}
  open func save(_ state: inout StateWriter) {}
  open func restore(_ state: inout StateReader) throws(StateFault) {}

  /// Rejects an event for which an expression has failed.
  public final func failed(
    _ event: Event, _ error: Value, _ program: Program, _ frame: EventFrame, _ run: FusedRun
  ) -> StepVerdict { refused(event, .expressionFailed, "the expression has failed", run) }

  /// Rejects an event that the step does not accept.
  public final func refused(_ event: Event, _ code: Diagnostic.Code, _ message: String, _ run: FusedRun) -> StepVerdict
  {
    run.reject(event, code, message)
    return .gone
  }
}

/// The node of a fused step that keeps state.
public final class FusedRun: OperatorNode {
  private let running: FusedStep

  /// A step of a pipeline file.
  public struct Step {
    /// Its location in the pipeline file.
    public let label: String
  }
  public var step: Step { Step(label: nodeContext.label) }

  init(_ step: FusedStep, _ nodeContext: NodeContext, downstream: Downstream) {
    running = step
    super.init(nodeContext, downstream: downstream)
  }

  public override func start() { if running.endsBeforeStart { finish() } }

  public override func receive(_ event: Event) {
    var event = event
    switch running.apply(&event, frame, self) {
    case .pass: emit(event)
    case .drop: countDropped(event)
    case .keep, .gone: break
    case .passAndFinish:
      emit(event)
      finish()
    case .finish: finish()
    }
  }

  public override func complete() {
    if let last = running.complete(self) { emit(Event(last)) }
    finish()
  }

  public override func save(_ state: inout StateWriter) { running.save(&state) }

  public override func restore(_ state: inout StateReader) throws(StateFault) { try running.restore(&state) }
}

/// A fused step whose result depends only on the value and on its frame, and that changes nothing else. Each thread of rxd has its own.
open class PureStep: FusedStep {
  /// Processes one value, which it may change unless it returns `.failed`. On failure it first calls ``refuse(_:_:_:)``.
  open func transform(_ value: inout Value, _ frame: EventFrame) -> PureVerdict { .pass }

  /// Fails because the step does not accept the value.
  @inline(never)
  public final func refuse(_ code: Diagnostic.Code, _ message: String, _ frame: EventFrame) -> PureVerdict {
    frame.problem = message
    return .failed
  }

  /// Fails because the result of `program` is `error`.
  @inline(never)
  public final func fail(_ error: Value, _ program: Program, _ frame: EventFrame) -> PureVerdict {
    frame.problem = "the expression has failed"
    return .failed
  }
}

/// The decision of a pure step about one value.
public enum PureVerdict: Sendable {
  /// The value goes on, perhaps changed.
  case pass
  /// The event ends here.
  case drop
  /// The step cannot process the event, which goes to the errors output.
  case failed
}
