/// The receiver of a signal's events: `receive* (complete | fail)?`, one at a time, nothing after the end.
open class Downstream {
  /// A receiver of events.
  public init() {}
  /// Receives one event. It is valid until the end of the turn.
  open func receive(_ event: Event) {}
  /// Receives one event while an observer watches edges inside of this receiver, or the time of its steps is measured.
  func receiveWatched(_ event: Event) { receive(event) }
  /// Whether this receiver and everything downstream accept these events all at once.
  open func accepts(_ batch: Batch) -> Bool { false }
  /// Receives many events at once; call it only if ``accepts(_:)`` is true.
  open func receive(_ batch: Batch) {}
  /// Event time has advanced to `time`, the watermark: no earlier event is expected. See ``EventTime`` for its last two
  /// values. Called after the event that advanced it, only if the plan has event time.
  func advance(to time: Int64) {}
  /// A part of the source's input has changed.
  func note(_ change: InputPart.Change, of part: InputPart) {}
  /// The signal has completed; nothing follows.
  open func complete() {}
  /// The signal has failed; nothing follows.
  open func fail(_ failure: SignalFailure) {}
}

/// A running signal as a subscriber sees it.
package protocol Subscription: AnyObject {
  /// Whether the signal has ended or was cancelled.
  var isClosed: Bool { get }
  /// Stops delivery at once and frees timers and everything upstream. Idempotent; sends nothing.
  func cancel()
}

/// A signal that has already ended: the upstream of a node that has none.
final class NoSubscription: Subscription {
  static func make() -> any Subscription { NoSubscription() }
  var isClosed: Bool { true }
  func cancel() {}
}

/// One running operator of one subscription.
///
/// Subclasses override `receive`, `complete`, `fail` and `woke` where they differ from passing on. State lives in their
/// stored properties, so two subscriptions share nothing. A node may be entered again while it is emitting (a
/// synchronous inner signal, a feedback): state must be consistent before each `emit`, and a node reads again after an
/// `emit` what it still needs.
///
/// Ownership: a node holds its upstreams; the downstream holds the node. The link downstream is unowned, and an ended
/// node is kept to the end of the turn, so no node is freed while control is inside it.
open class OperatorNode: Downstream, Subscription, TimerTarget, OutputHolder {
  /// The node context with which the node was made.
  public let nodeContext: NodeContext
  private let edge: Edge
  /// The counters of the step, shared by all of its nodes.
  let counters: UnsafeMutablePointer<StepCounters>
  /// The keys and bytes that this node keeps between events. A node that keeps data counts it here.
  @exclusivity(unchecked) final var keptSize: KeptSize
  private var upstreams: [(input: Int, subscription: any Subscription)] = []
  // Nodes run on one thread at a time, and no access outlasts a load or a store.
  /// Whether the node has ended: it then sends nothing more and gets no timer.
  @exclusivity(unchecked) public private(set) var isClosed = false

  /// Called by ``OperatorComponent/makeNode(_:downstream:)``; sends to `downstream`.
  public init(_ nodeContext: NodeContext, downstream: Downstream) {
    self.nodeContext = nodeContext
    edge = Edge(nodeContext.edge, to: downstream)
    counters = nodeContext.execution.meters.step(nodeContext.step)
    keptSize = KeptSize(counters)
    super.init()
  }

  /// The running pipeline.
  public final var execution: Execution { nodeContext.execution }
  /// Runs the turns of the pipeline.
  public final var executor: Executor { nodeContext.execution.executor }
  /// Memory for values that live until the end of the turn.
  public final var arena: Arena { nodeContext.execution.executor.arena }
  /// The time of the turn: monotonic; in tests virtual.
  public final var now: Instant { nodeContext.execution.executor.now }

  // MARK: Input, to override

  /// Receives an event of the first input; a node with several inputs has inlets.
  open override func receive(_ event: Event) { emit(event) }
  /// Called when the input has completed. The default completes.
  open override func complete() { finish() }
  /// Called when the input has failed. The default fails at once; the failure overtakes held events.
  open override func fail(_ failure: SignalFailure) { finish(failing: failure) }
  /// Called when a timer that this node scheduled is due.
  open func woke(_ token: Int) {}
  /// Called instead of `woke`, in the order of the times, for a restored timer whose time came while the pipeline was
  /// down, if its output must be left out. For a component whose spec declares the effect of `whenLate: skip`.
  open func skipped(_ token: Int, _ late: Lateness) { woke(token) }
  /// Whether the node's timers or its end may emit events. A node whose timers repeat overrides this to report when
  /// they emit nothing, so that they need not delay a stop.
  open var mayGoOn: Bool { true }
  /// The condition, besides its time, that a timer of this node waits for.
  open var timerKind: TimerKind { .step }
  /// Subscribes the inputs; called once, when the node itself is subscribed.
  open func start() { if let input = nodeContext.inputs.first { subscribe(input) } }
  /// Starts the node as part of its subscription. `version`: the format version of the restored state; nil: the node is
  /// new.
  func begin(restoring version: Int?) {
    if let chain = nodeContext.scope.chain, outputTimers != nil { chain.holders.append(self) }
    if version == nil { start() }
  }
  /// Frees the resources of this class: inner subscriptions, queues. Called once.
  open func stop() {}
  /// Continues the work deferred by `later`.
  open func resumed(_ token: Int) {}

  /// The number of received events that the node holds, and has neither sent, combined nor given up. Called when the
  /// node ends, before `stop`: after an error or a cancellation these events are lost. A completion has sent or counted
  /// them.
  open var heldCount: Int { 0 }
  /// The timers of outputs that the node sends at once when it completes; nil: its completion sends no output that
  /// waits for a time. When the groups of `groupBy` end together, they complete in the order of these times.
  open var outputTimers: [Wake]? { nil }
  /// The time of the first of these timers; nil: the node holds nothing.
  final var nextOutput: Due? { outputTimers?.compactMap { executor.pending($0).map(Due.init) }.min() }

  // MARK: State, to override where the spec says `persistence: .state`

  /// Writes the state of this class, timers included. The graph writes inputs, inlets and everything upstream.
  open func save(_ state: inout StateWriter) {}
  /// Reads what `save` wrote, in the same order; called in place of `start`, before the inputs are subscribed again.
  /// Must send nothing. A node that throws is replaced by a new one.
  open func restore(_ state: inout StateReader) throws(StateFault) {}

  // MARK: Output

  /// Whether everything downstream accepts these events at once.
  final func isAccepted(_ batch: Batch) -> Bool {
    !isClosed && edge.accepts(batch)
  }

  /// Emits many events at once; call it only if ``isAccepted(_:)`` is true.
  final func emit(_ batch: Batch) {
    if !isClosed { edge.pass(batch) }
  }

  /// An event that the step derives from several events, at a time or at an end: it has the key of the group and no
  /// other metadata. An event that the step sends for one received event keeps the metadata of that event
  /// (``Event/with(_:)``).
  package final func made(_ value: Value) -> Event { Event(value, key: nodeContext.scope.keyValue) }

  /// Sends one event, unless the node has ended.
  @inline(__always)
  public final func emit(_ event: Event) {
    if !isClosed { edge.pass(event) }
  }

  // MARK: Event time

  /// Whether the node's output has event time.
  final var isTimed: Bool { nodeContext.plan?.isTimed ?? false }

  /// The default passes the watermark on, if the step preserves event time.
  override func advance(to time: Int64) { sendAdvance(to: time) }

  /// The default passes the change on.
  override func note(_ change: InputPart.Change, of part: InputPart) {
    if !isClosed { edge.note(change, of: part) }
  }

  /// Sends the watermark of the node's output.
  final func sendAdvance(to time: Int64) {
    guard isTimed, !isClosed else { return }
    counters.pointee.watermark = time
    edge.advance(to: time)
  }

  /// Completes: first everything upstream is released, then the downstream is notified.
  public final func finish() {
    guard !isClosed else { return }
    close()
    if isTimed {
      counters.pointee.watermark = EventTime.end
      edge.advance(to: EventTime.end)
    }
    edge.complete()
  }

  /// Fails: first everything upstream is released, then the downstream is notified.
  public final func finish(failing failure: SignalFailure) {
    guard !isClosed else { return }
    close()
    edge.fail(failure)
  }

  package final func cancel() {
    guard !isClosed else { return }
    edge.counters.cancelled()
    close()
  }

  /// Ends a node that is replaced by another one; its subscription continues.
  final func giveUp() { if !isClosed { close() } }

  private func close() {
    isClosed = true
    executor.releaseLater(self)
    counters.pointee.held &+= UInt64(heldCount)
    if let chain = nodeContext.scope.chain, outputTimers != nil { chain.remove(self) }
    stop()
    keptSize.end()
    closed()
    let current = upstreams
    upstreams = []
    for upstream in current { upstream.subscription.cancel() }
  }

  /// Called when the node has ended and `stop` has run.
  func closed() {}

  /// Rejects the event: it goes to the errors output of the named signal that contains this node.
  public final func reject(
    _ event: Event, _ code: Diagnostic.Code, _ message: String, at location: SourceLocation? = nil
  ) {
    execution.reject(
      Rejection(event, code, message, at: location ?? nodeContext.location), at: nodeContext)
  }

  /// Counts events that the step drops as specified.
  package final func countDropped(_ count: Int) { counters.pointee.dropped &+= UInt64(count) }

  /// Counts an event that the step drops as specified. `event` is evaluated for few events.
  @inline(__always)
  public final func countDropped(_ event: @autoclosure () -> Event?) {
    counters.pointee.dropped &+= 1
    if counters.pointee.dropped >= counters.pointee.ofDropped.next { offer(event(), .dropped) }
  }

  /// Counts a dropped event, with a reason that the step's parameters do not show.
  final func countDropped(_ event: Event, _ reason: StoppedEvent.Problem) {
    counters.pointee.dropped &+= 1
    execution.meters.offer(event, .dropped, at: nodeContext.step, reason)
  }

  /// Counts an event that the step held and that a newer one replaces.
  @inline(__always)
  package final func countSuperseded(_ event: @autoclosure () -> Event?) {
    counters.pointee.superseded &+= 1
    if counters.pointee.superseded >= counters.pointee.ofSuperseded.next { offer(event(), .superseded) }
    if counters.pointee.watchers > 0 { tellSuperseded(event()) }
  }

  @inline(never)
  private func tellSuperseded(_ event: Event?) {
    if let event { execution.meters.superseded(event, at: nodeContext.step) }
  }

  @inline(never)
  private func offer(_ event: Event?, _ verdict: Verdict) {
    guard let event else { return }
    execution.meters.offer(event, verdict, at: nodeContext.step, outer: nodeContext.scope.outer?.value ?? .absent)
  }

  /// Counts an event that the node has made and given up.
  package final func countMade() { counters.pointee.made &+= 1 }
  /// Counts held events that newer ones replace.
  package final func countSuperseded(_ count: Int) { counters.pointee.superseded &+= UInt64(count) }

  /// Counts a retry.
  package final func countRetry() { counters.pointee.retries &+= 1 }

  // MARK: Services for nodes

  /// Calls ``woke(_:)`` with `token` after this time, in its own turn.
  public final func wake(after span: TimeSpan, _ token: Int = 0) -> Wake {
    wake(at: now + span, token)
  }

  /// Sets a timer, unless the node has ended.
  public final func wake(at deadline: Instant, _ token: Int = 0) -> Wake {
    isClosed ? .none : executor.wake(at: deadline, self, token)
  }

  /// Cancels a timer and resets `wake`.
  public final func cancelWake(_ wake: inout Wake) {
    if wake.isSet {
      executor.cancel(wake)
      wake = .none
    }
  }

  /// Calls `resumed` with an empty stack, later in this turn or in the next one.
  package final func later(_ token: Int = 0) { executor.defer(self, token) }
  /// Calls ``resumed(_:)`` again later, for a node that is in it, because a step upstream must run first.
  final func waitLonger() { executor.waitLonger(self) }

  /// Subscribes one of `nodeContext.inputs` for this node itself and cancels it when the node ends. Inner signals need
  /// inlets.
  ///
  /// A signal may end while it is being subscribed.
  package final func subscribe(_ signal: SignalPlan) {
    guard !isClosed else { return }
    guard let input = nodeContext.inputs.firstIndex(where: { $0 === signal }) else {
      preconditionFailure("a node subscribes its inputs; inner signals come through inlets")
    }
    let subscription = execution.subscribe(signal, nodeContext.scope, to: self)
    if isClosed { subscription.cancel() } else { upstreams.append((input, subscription)) }
  }

  /// Whether the node itself gets the events of one of `nodeContext.inputs`, without an inlet.
  final func isSubscribed(_ input: Int) -> Bool {
    upstreams.contains { $0.input == input && !$0.subscription.isClosed }
  }

  // MARK: Acknowledgement

  /// Delays the acknowledgement of this turn's events until ``goOn(with:)``, because a call for them is under way or
  /// one of them waits for a call. Nil: no sender waits for an acknowledgement.
  package final func holdAck() -> Ack? {
    let ack = ackToHold
    ack?.hold()
    return ack
  }

  /// The acknowledgement that ``holdAck()`` holds, for a node that holds it once for many events.
  package final var ackToHold: Ack? { if let own = executor.acks.ofCall { own } else { executor.ack } }

  /// Ends a hold: the source now waits for the effects that this turn has because of the answer, or because the call
  /// was given up. If the pipeline is over, the hold fails.
  ///
  /// - Parameter isGivenUp: The acknowledgement does not wait for a call that this turn begins for another event:
  ///   otherwise a series of calls, each of which replaces the previous one, would never be acknowledged.
  package final func goOn(with held: inout Ack?, isGivenUp: Bool = false) {
    guard let ack = held.take() else { return }
    if execution.isOver {
      ack.release(.failed("the pipeline ended before"))
      return
    }
    if isGivenUp, executor.acks.ofCall == nil, let own = executor.ack { executor.acks.ofCall = .some(own) }
    executor.track(ack)
  }

  // MARK: Records

  /// The persistence of the node's state.
  var persistence: Persistence { nodeContext.persistence }

  /// Writes the records of this node and of everything upstream.
  func record(_ state: inout StateWriter) {
    state.record(.step(nodeContext.step, version: persistence.version)) { state in
      state.write(each: upstreams.filter { !$0.subscription.isClosed }) { $0.write($1.input) }
      state.write(each: executor.deferrals(of: self)) {
        $0.write($1.position)
        $0.write($1.token)
      }
      recordInlets(&state)
      state.own(nodeContext.step, save)
      recordTimes(&state)
    }
    recordInputs(&state)
  }

  final func recordInputs(_ state: inout StateWriter) {
    for upstream in upstreams where !upstream.subscription.isClosed {
      execution.record(upstream.subscription, of: nodeContext.inputs[upstream.input], &state)
    }
  }

  func recordInlets(_ state: inout StateWriter) { state.write(UInt64(0)) }

  /// Reads the output of `record`; subscribes the inputs after all of it has been validated.
  func restore(
    record: StateReader, version: Int, _ restoration: Restoration
  ) throws(StateFault) {
    var record = record.reader(version: version, target: self)
    var inputs: [Int] = []
    for _ in 0..<(try record.count()) {
      inputs.append(try record.read(in: 0...max(0, nodeContext.inputs.count - 1)))
    }
    guard Set(inputs).count == inputs.count, nodeContext.inputs.count > 0 || inputs.isEmpty else {
      throw StateFault("it has other inputs")
    }
    for (index, input) in nodeContext.inputs.enumerated() where !inputs.contains(index) && restoration.isRenewed(input)
    {
      throw StateFault("a signal that it gets no events from any more has changed since")
    }
    var deferred: [(position: Int, token: Int)] = []
    for _ in 0..<(try record.count()) { deferred.append((try record.read(), try record.read())) }
    let inlets = try savedInlets(&record)
    try restore(&record)
    if !record.isAtEnd { try restoreTimes(&record, inlets) }
    guard record.isAtEnd else { throw StateFault("the state has more data than the step reads") }
    try prepare(inlets)
    for step in deferred { restoration.deferred.append((step.position, self, step.token)) }
    for input in inputs { subscribe(nodeContext.inputs[input]) }
    reopen(inlets, restoration)
    counters.pointee.restored &+= UInt64(heldCount)
    restored()
  }

  func savedInlets(_ state: inout StateReader) throws(StateFault) -> [SavedInlet] {
    guard try state.count() == 0 else { throw StateFault("it has no inner signals") }
    return []
  }
  /// Writes the times that hold the watermark back, if there are any. They come last, because older states have none.
  func recordTimes(_ state: inout StateWriter) {}
  func restoreTimes(_ state: inout StateReader, _ inlets: [SavedInlet]) throws(StateFault) {}
  func prepare(_ inlets: [SavedInlet]) throws(StateFault) {}
  func reopen(_ inlets: [SavedInlet], _ restoration: Restoration) {}

  /// Called when the inputs and inlets exist again. Must send nothing.
  open func restored() {}
}

/// The context of a running node: its step of the plan, the execution, the scope.
public struct NodeContext {
  package unowned(unsafe) let execution: Execution
  /// The ID of the step in the plan, for counters and messages.
  package let step: StepID
  package let location: SourceLocation?
  /// The values that the expressions of this subscription see besides the event.
  package let scope: Scope
  /// The plan of the node; nil: a sink.
  unowned(unsafe) let plan: SignalPlan?
  /// The counters of the edge over which the node sends; a sink counts nothing there.
  let edge: UnsafeMutablePointer<EdgeCounters>
  /// The environment shared by the step's expressions.
  package let segment: Segment
  /// The inputs of the step; the first is the chain's.
  package let inputs: [SignalPlan]
}

extension NodeContext {
  /// The persistence of the component's state.
  var persistence: Persistence {
    plan?.work?.persistence ?? .nothing
  }

  /// The signals in the component's parameters.
  var innerPlans: [SignalPlan] { plan?.inner ?? [] }
}

/// The context for which an inner signal was made: the values of `outer` and `error`.
package final class Scope {
  /// The event for which the innermost enclosing inner signal was made; absent at the top.
  package let outer: OwnedValue?
  /// The failure that `catch` handles, as a value.
  package let error: OwnedValue?
  /// The reply target and origin of the outer event, so that a `reply` sink can answer from inside.
  package let origin: Origin
  /// The `meta.key` of all events of the signals in this scope: that of the group, or of the event for which the inner
  /// signal was made.
  package let key: OwnedValue?
  /// The input of a chain parameter, which the surrounding node feeds.
  let subject: Subject?
  /// The command execution that contains the signal.
  let work: Work?
  /// The frames that equal chains share.
  let frames: SharedFrames?
  /// The time that chains of the same stream share.
  let time: StreamTime?
  /// The chain of the group with this scope, if it may be discarded.
  let chain: FusedChain?
  /// The scope around the reference to a cold signal; of nested references, the outermost.
  private let reference: Scope?

  /// One execution of a command, as its sources see it.
  final class Work {
    /// Whether a source of the execution was ended from outside, so that its completion does not mean that the work is
    /// done.
    var isCut = false
  }

  init(
    outer: OwnedValue? = nil, error: OwnedValue? = nil, origin: Origin = .none, key: OwnedValue? = nil,
    subject: Subject? = nil, work: Work? = nil, frames: SharedFrames? = nil, time: StreamTime? = nil,
    chain: FusedChain? = nil, reference: Scope? = nil
  ) {
    self.reference = reference
    self.chain = chain
    self.frames = frames
    self.time = time
    self.outer = outer
    self.error = error
    self.origin = origin
    self.key = key
    self.subject = subject
    self.work = work
  }

  package static func top() -> Scope { Scope() }

  /// The scope of a cold signal, which sees nothing of the context of a reference to it.
  func forColdSignal(_ top: Scope) -> Scope { self === top ? top : Scope(reference: reference ?? self) }

  /// Whether signals of the two scopes belong to the same inner signal, or to none.
  func isBeside(_ other: Scope) -> Bool { (reference ?? self) === (other.reference ?? other) }

  /// ``key``, or absent; valid as long as the scope.
  var keyValue: Value { key?.value ?? .absent }

  /// The event for which the inner signal was made; nil: it was not made for an event. Valid as long as the scope.
  var outerEvent: Event? { outer.map { Event($0.value, key: keyValue, origin: origin) } }

  /// Whether the signal was made for an event, or for the end of a signal.
  var isForSomething: Bool { outer != nil || error != nil }

  package func with(outer event: Event) -> Scope {
    var origin = event.origin.takeUnretainedValue()
    // The sources of the inner signal derive the names of their events from it.
    if case .origin? = origin.identity, let id = event.id { origin = origin.with(.event(id)) }
    return Scope(
      outer: OwnedValue(event.value), error: error, origin: origin,
      key: event.key.isAbsent ? key : OwnedValue(event.key), subject: subject, work: work)
  }

  package func with(error value: Value) -> Scope {
    Scope(outer: outer, error: OwnedValue(value), origin: origin, key: key, subject: subject, work: work)
  }

  /// The scope of a group's chain. `key`: nil: the key of this scope.
  func with(
    subject: Subject, key: OwnedValue? = nil, frames: SharedFrames? = nil, time: StreamTime? = nil,
    chain: FusedChain? = nil
  ) -> Scope {
    Scope(
      outer: outer, error: error, origin: origin, key: key ?? self.key, subject: subject, work: work, frames: frames,
      time: time,
      chain: chain)
  }

  func with(time: StreamTime) -> Scope {
    Scope(outer: outer, error: error, origin: origin, key: key, subject: subject, work: work, time: time)
  }

  func with(work: Work) -> Scope {
    Scope(outer: outer, error: error, origin: origin, key: key, subject: subject, work: work)
  }
}
