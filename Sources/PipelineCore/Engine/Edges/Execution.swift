/// A running pipeline.
///
/// Everything here happens in turns of its executor. The graph is wired completely, sinks first, before any source
/// starts, and stops in the opposite order.
public final class Execution {
  /// How a pipeline ended.
  public enum Outcome: Sendable, Equatable {
    case completed
    case failed(SignalFailure)
  }

  /// Counters for the summary at the end and for metrics.
  package struct Counters: Sendable, Equatable {
    /// Events that sources made.
    package var received: UInt64 = 0
    /// Events that sinks delivered: the system has taken them, or the server has acknowledged them. Events of a sink
    /// that reads only errors outputs are not counted here; they were counted as rejected.
    package var sent: UInt64 = 0
    /// Events rejected with a reason.
    package var rejected: UInt64 = 0
    /// Events that a sink held and could not deliver when the pipeline ended, and that are stored nowhere.
    package var undelivered: UInt64 = 0
    /// Events dropped because a condition could not be evaluated.
    package var undecided: UInt64 = 0
    package init() {}
  }

  package let plan: Plan
  package let executor: Executor
  package let services: Services
  package let json = JSONParser()
  package let topScope = Scope.top()

  /// Replaces named sources, for tests.
  package var sourceOverride: ((String) -> (any SourceComponent)?)?
  /// Replaces sources by their signals in the plan, for tests.
  package var originOverride: ((SignalPlan) -> (any SourceComponent)?)?
  /// Replaces sources that are not replaced by name, including inner ones, for tests.
  package var sourceFilter: ((any SourceComponent) -> any SourceComponent)?
  /// How sources read. Set before the launch.
  package struct Reading: Sendable {
    package var placement = Placement.auto
    /// The largest read, in bytes; nil: the source decides. For tests.
    package var blockBytes: Int?
    /// All decoding threads of an input start at once, and run its stage. For tests.
    package var startsAllThreads = false
  }
  package var reading = Reading()
  /// The number of blocks that a ``ParallelStage`` has encoded.
  package internal(set) var encodedBlocks = 0
  /// Whether sinks acknowledge what they write to files only when it is on the disk, whatever their `sync` says: where states are kept on
  /// disk, which must not be ahead of the files. Set before the launch.
  package var acknowledgesOnDisk = false
  /// The sinks whose destinations are down.
  package let troubles = SinkTroubles()
  /// Whether events of live sources may be only so far ahead of the clock: not where the clock is an arbitrary one. Set before the launch.
  package var boundsEventTime = true
  /// The counters of edges and steps.
  let meters: Meters
  /// Commits state and outbox; nil: nothing is kept.
  private(set) var committer: Committer?
  /// Whether the store has room for events that must be stored before they are delivered.
  package let storage = StorageRoom()
  private var delivery: DeliveryOptions?
  /// The record of the event in hand, which outlives the process; nil: none is kept.
  private(set) var inHand: InHand?
  /// The outbox row that is given to its sink at the moment, and the index of the event in it: the same whenever it is repeated.
  final var deliveredEvent: DeliveryID?
  /// Whether this is a rehearsal: the replaced sinks send nothing, and no input is acknowledged. A client that waits for an
  /// answer is refused, and other senders keep their events. Set before the launch.
  package var isRehearsal: Bool {
    get { executor.withholdsAcks }
    set { executor.withholdsAcks = newValue }
  }
  /// Whether every source gives what is there once (``SourceComponent/once``). Set before the launch.
  package var runsOnce = false
  /// Ends the execution when its sinks have received this many events together; nil: it goes on. Set before the launch.
  package var outputLimit: Int?
  /// The sinks have received the last event of ``outputLimit``.
  var hasReachedLimit = false
  private var limitedInputs: [LimitedInput] = []
  /// Replaces sinks: in tests, and where they only print.
  package var sinkOverride: ((String) -> (any SinkComponent)?)?
  /// Whether every event that a sink takes is tracked until the sink has acknowledged it (``SinkAudit``). The default is true in debug builds;
  /// set before the launch.
  package var auditsSinks = _isDebugAssertConfiguration()
  /// Reports a sink that does not acknowledge its events; logs by default.
  package lazy var reportSink: (String) -> Void = { [services] in services.log(.error, "sink", $0) }

  /// The memory of the events in the queues of steps.
  private(set) lazy var keptMemory = KeptMemory(executor, services.memory)

  // Touched in turns only, which never overlap. Lacks what sinks have delivered since ``counters`` was last read.
  @exclusivity(unchecked) var tally = Counters()
  private(set) var named: [SharedSignal] = []
  /// The errors outputs of the named signals; a sink owns its own.
  private(set) var errors: [ErrorsSignal] = []
  /// All errors outputs by the names of their owners; made at the first rejection.
  lazy var errorsByName = errorsOutputs()
  /// Checks the JSON text of rejected events.
  private(set) lazy var rejectionChecker = JSONParser()
  var sinks: [OpenSink] = []
  var openSinks = 0
  /// The subscribers of signals that execute commands and have no reader.
  var rootSubscribers: [RootSubscriber] = []
  /// The running commands, by their index in the plan.
  var commands: [Int: OperatorNode] = [:]
  var runningSources: [RunningSource] = []
  /// When `runningSources` has more elements, the ended sources are removed.
  private var sourcesToSweep = 64
  /// The named signals that may still run.
  lazy var reach = SignalReach(plan)
  /// The last number given to a subscription of a shared signal or to a source.
  private(set) var lastSubscription: UInt64 = 0
  /// Set while the graph is rebuilt from a saved state.
  private(set) var restoration: Restoration?
  /// How many bytes of its own each step wrote when the state was last saved.
  package internal(set) var stateSizes: [StepID: Int] = [:]
  /// The parts that could not be saved then, with the reasons.
  package internal(set) var stateFaults: [Diagnostic] = []
  /// The parts of the restored state that could not be used, with the reasons.
  package private(set) var refusals: [Diagnostic] = []
  /// The names of the steps that go on from the restored state; nil: there was none.
  package private(set) var restoredSteps: [String]?
  /// Nothing opens and nothing starts: see ``dryRun(restoring:)``.
  package internal(set) var isDryRun = false
  /// Why a dry run could use nothing of its state.
  private(set) var unreadable: Diagnostic?
  /// The graph is being wired for the first time: sinks and errors outputs are incomplete.
  private(set) var isLaunching = false
  /// The subscription that is being wired; nil while events flow.
  var wiring: Wiring?
  /// The innermost wiring whose nodes are starting; its sources have not started.
  var beginning: Wiring?
  /// Reused wirings, by nesting depth.
  var wirings: [Wiring] = []
  var wiringDepth = 0
  /// The sources have been stopped; a new source ends at once.
  package internal(set) var isStopping = false { didSet { executor.holdsBack = !isStopping } }
  /// The sources are being stopped right now.
  var isDraining = false
  /// Nodes that wait before they subscribe again, numbered in the order in which the waits began.
  var pauses: [ObjectIdentifier: (number: UInt64, node: any Pausing)] = [:]
  var lastPause: UInt64 = 0
  package internal(set) var outcome: Outcome?
  /// The results of ``NodeContext/meeting(_:)``, which are the same for all instances of a step.
  var meetings: [StepID: (meets: Bool, precedence: Int)] = [:]
  /// Work that nodes have deferred to later in the turn.
  @exclusivity(unchecked) var priorities = PriorityQueue()
  var onEnd: (Outcome) -> Void = { _ in }
  /// How many activities outside the graph must end before `onEnd` is called.
  var holds = 0
  /// How many sinks wait for their writers (``RunningSink/closeBeside(_:then:)``). What they have written and lost is known after that: neither the
  /// last commit nor the end comes before.
  var closings = 0
  /// Called when an execution that was cancelled has no such sinks any more.
  var onCancelled: (() -> Void)?
  /// Called when nothing can answer any more, by the numbers of their holds.
  private var finalCallbacks: [Int: () -> Void] = [:]
  private var lastHold = 0
  private var awaitsLastCommit = false
  private var hasCommittedLast = false
  private let lastCommit = LastCommit()
  /// The state from which another execution can continue: set when this one was suspended, or failed with
  /// ``keepsStateOnFailure`` set.
  package var savedState: [UInt8]? { savedParts?.bytes }
  var savedParts: SavedState?
  /// The size of the state that was taken last, in bytes.
  var lastStateSize = 0
  /// Whether a failure leaves a ``savedState``: the failed signal starts anew there, everything else continues, and sources continue
  /// after the events that they sent.
  package var keepsStateOnFailure = false
  /// Set while the pipeline is being suspended.
  var suspension: Suspension?
  /// The pipeline has been suspended; only sinks still finish.
  package internal(set) var isSuspended = false
  /// The sinks that finish because no state has the events that they hold.
  var finishingSinks: FinishingSinks?
  /// The graph has ended or is suspended; only sinks may still finish.
  var isOver: Bool { outcome != nil || isSuspended }
  /// Everything that was wired at the launch has started.
  package private(set) var hasBegun = false
  /// Called when everything that was wired at the launch has begun, see ``whenBegun(_:)``.
  var takeovers: [() -> Void] = []
  /// Sources with a position that were closed in this turn. A failure in this turn still saves their positions.
  private(set) var justClosed: [RunningSource] = []
  /// Record the ends of the pieces of this turn.
  private var endingPieces: [() -> Void] = []
  /// Sources that have ended and whose last pieces may not be acknowledged.
  private var endedSources: [() -> Bool] = []
  /// When `endedSources` has as many elements, the acknowledged ones are removed.
  private var endedToSweep = 16
  /// The state at the moment of failure, until the end of that turn.
  var draft: StateDraft?
  /// Reasons that were logged once: by step and code and, for conditions, by path.
  var logged: Set<String> = []
  /// The last warning of each step that may repeat, and how many were suppressed since.
  var warnings: [StepID: (at: Instant, hidden: Int)] = [:]

  /// The counts so far. Read it in turns, or after the pipeline has ended.
  package var counters: Counters {
    for sink in sinks { sink.node.countDelivered() }
    return tally
  }

  struct OpenSink {
    var node: RunningSink
    var upstream: any Subscription
    let errors: ErrorsSignal
    var isOpen = true
    /// Tracks the events of the sink; nil: they are not tracked.
    var audit: SinkAudit?
    /// The state of its component that outlives the process.
    var persistence = Persistence.nothing
    /// The undelivered events are part of a saved state.
    var isPersistent: Bool { persistence.version > 0 }
  }

  package init(plan: Plan, executor: Executor, services: Services) {
    self.plan = plan
    self.executor = executor
    self.services = services
    meters = Meters(plan, executor)
    // Posted work may make another turn after this object is freed.
    executor.lookedAtClock = { [weak meters] in meters?.clockWasRead(at: $0) }
    executor.turnEnded = { [weak self] in self?.turnEnded() }
    executor.becameQuiet = { [weak self] in self?.becameQuiet() ?? false }
  }

  // MARK: Life

  /// Commits state, positions and outbox from the launch on. Call it before the launch.
  package func commit(with options: DeliveryOptions) {
    delivery = options
    inHand = options.inHand
    committer = Committer(self, options)
    committer?.begin()
    keepsStateOnFailure = true
    acknowledgesOnDisk = true
  }

  /// Calls `done`, once, on any thread, when the last state of an execution that has ended, or was cancelled, is on the disk (``savedState``); at
  /// once where nothing is kept. Called in a turn.
  package func finishCommits(_ done: @escaping @Sendable () -> Void) {
    lastCommit.whenDone(done)
    commitLast()
  }

  /// Commits the last state, once. It waits for nothing outside the graph: a client may wait for this commit. Without a state, or where sinks
  /// could not write earlier events, a completed pipeline begins anew next time, and any other goes on from its last commit.
  private func commitLast() {
    guard !hasCommittedLast else { return }
    hasCommittedLast = true
    guard let committer else { return lastCommit.finish() }
    let done: @Sendable () -> Void = { [lastCommit] in lastCommit.finish() }
    if let savedParts, !hasLostEvents {
      committer.finish(.replace(savedParts), done)
    } else {
      committer.finish(outcome == .completed && !isSuspended ? .clear : .keep, done)
    }
  }

  /// Holds the execution (``hold()``) for clients that wait for answers. `callback` is called in a turn, once, when the graph has ended and its
  /// last commit is on the disk: nothing can answer any more. ``endHold(_:)`` ends the hold.
  package func hold(whenFinal callback: @escaping () -> Void) -> Int {
    hold()
    lastHold += 1
    finalCallbacks[lastHold] = callback
    return lastHold
  }

  package func endHold(_ number: Int) {
    finalCallbacks[number] = nil
    release()
  }

  /// Commits the last state as soon as the graph has ended, if clients wait for answers: the commit must not wait for them.
  private func commitForClients() {
    guard outcome != nil, draft == nil, closings == 0, !finalCallbacks.isEmpty, !awaitsLastCommit else { return }
    awaitsLastCommit = true
    let executor = executor
    let execution = Weak(self)
    finishCommits { executor.post { execution.object?.callFinalCallbacks() } }
  }

  private func callFinalCallbacks() {
    let callbacks = finalCallbacks
    finalCallbacks = [:]
    awaitsLastCommit = false
    for callback in callbacks.values { callback() }
  }

  /// Whether a sink had taken events of this execution that it could not write when it ended: an older commit holds them.
  package var hasLostEvents: Bool { committer != nil && tally.undelivered > 0 }

  /// Whether a later execution goes on from the state of this one.
  var keepsState: Bool { committer != nil }

  /// Whether senders are answered when the effects of their events are on the disk.
  package var answersAfterCommits: Bool { committer?.isDurable == true }

  /// Whether sources name their events: an expression reads the names, or a sink without an outbox may repeat what it has sent after a crash.
  package private(set) lazy var namesEvents =
    plan.readsNames
    || committer?.isDurable == false
      && plan.sinks.contains { $0.component.namesDeliveries && plan.distinguishesEvents(at: $0) }

  /// A number that no other store has; nil: nothing is kept on disk.
  var storeIdentity: UInt64? { committer?.identity }

  /// Calls `body` in this turn or, in durable delivery, in a later one, when the effects of this turn are on the disk.
  package func whenCommitted(_ body: @escaping () -> Void) {
    if let committer, committer.isDurable { committer.whenCommitted(body) } else { body() }
  }

  /// Wires the graph and starts the sources. Call it in a turn; `onEnd` is called once, in a turn.
  ///
  /// `state`: the result of ``saveState()`` of the same pipeline; everything continues from there. A step whose state
  /// no longer fits starts empty, and ``refusals`` says why. `isMoved`: it comes from another version of the pipeline, which this one
  /// replaces: the pipeline was not down, so ``Plan/whenLate`` does not apply.
  package func launch(
    restoring state: [UInt8]? = nil, isMoved: Bool = false, onEnd: @escaping (Outcome) -> Void
  ) {
    self.onEnd = onEnd
    if let state {
      restoration = Restoration(state, plan, executor, isMoved: isMoved)
      executor.restoredAt = executor.now
    }
    lastSubscription = restoration?.lastSubscription ?? 0
    executor.lastTimer = restoration?.lastTimer ?? 0
    named = plan.named.indices.map { SharedSignal(self, $0) }
    errors = plan.named.indices.map { _ in ErrorsSignal(self) }
    if let restoration { for shared in named { shared.restore(restoration) } }
    if let failure = pluginFailure { return unhandled(failure) }
    isLaunching = true
    let whole = enterWiring(topScope)
    openSinks = plan.sinks.count
    let comesAgain = restoration == nil ? [] : plan.sinksWhoseInputComesAgain
    for (index, sink) in plan.sinks.enumerated() {
      let nodeContext = NodeContext(
        execution: self, step: sink.step, location: sink.location, scope: topScope, plan: nil,
        edge: meters.edge(.none), segment: sink.segment, inputs: [])
      let component = sinkOverride?(sink.name) ?? sink.component
      let made = component.makeSink(nodeContext)
      made.index = index
      if let restoration {
        made.outputComesAgain = hasOutbox(made, component) || comesAgain[index]
        restore(made, sink, component, restoration)
      }
      let node = outbox(of: made, sink, component) ?? made
      node.index = index
      node.takesEvents = !plan.readsOnlyErrors(sink.input)
      let isDrained = restoration?.status(sink) == .drained
      let audit = auditsSinks ? SinkAudit(node) : nil
      sinks.append(
        OpenSink(
          node: node, upstream: NoSubscription.make(), errors: ErrorsSignal(self), isOpen: !isDrained,
          audit: audit, persistence: component.persistence))
      if isDrained { openSinks -= 1 } else if isDryRun { node.dryRun() } else { node.open() }
      if outcome != nil {
        leaveWiring(whole)
        isLaunching = false
        return
      }
    }
    for (index, sink) in plan.sinks.enumerated() {
      if let status = restoration?.status(sink), status != .open {
        // The sink is completed when everything is wired.
        let node = sinks[index].node
        if status == .ended { whenWired { node.complete() } }
        continue
      }
      var target: Downstream = sinks[index].audit ?? sinks[index].node
      if outputLimit != nil {
        let limited = LimitedInput(self, target, isExact: sinkOverride?(sink.name) != nil)
        limitedInputs.append(limited)
        target = limited
      }
      let upstream = subscribe(sink.input, topScope, to: target)
      if sinks[index].node.hasEnded { upstream.cancel() } else { sinks[index].upstream = upstream }
    }
    for index in plan.rootSubscribers {
      let reference = RootSubscriber.reference(plan.named[index].name)
      let rootSubscriber = RootSubscriber(
        self, hasEnded: restoration?.hasEnded(reference) ?? false,
        isAwaited: plan.readsErrorsOfSinks(plan.named[index].body))
      rootSubscribers.append(rootSubscriber)
      if rootSubscriber.hasEnded { continue }
      let signal = SignalPlan(.named(index), step: StepID(0), type: .dyn, reference: "\(reference).signal")
      rootSubscriber.signal = signal
      rootSubscriber.upstream = subscribe(signal, topScope, to: rootSubscriber)
    }
    for (number, tap) in taps.enumerated() { tap.connect(self, number) }
    for shared in named { shared.launched() }
    if let restoration { goOn(restoration) }
    isLaunching = false
    begin(whole)
    takeOver()
    hasBegun = true
    completeErrors()
    endIfOver()
  }

  /// The outbox of the sink of that name.
  func outbox(of sink: String) -> OutboxSink? {
    plan.sinks.firstIndex { $0.name == sink }.flatMap { sinks[$0].node as? OutboxSink }
  }

  /// The outbox of a sink; nil: the sink gets events in the turns.
  private func outbox(of sink: RunningSink, _ plan: SinkPlan, _ component: any SinkComponent) -> OutboxSink? {
    guard hasOutbox(sink, component), let committer, let delivery else { return nil }
    return OutboxSink(sink, plan, component, committer, delivery)
  }

  private func hasOutbox(_ sink: RunningSink, _ component: any SinkComponent) -> Bool {
    committer != nil && delivery?.isDurable == true && !component.answersEvents
      && !plan.isBestEffort(sink.nodeContext.step)
  }

  /// A source with a position that belongs to no event is being closed.
  func closed(_ source: RunningSource) {
    if keepsStateOnFailure { justClosed.append(source) }
  }

  /// Further subscribers of named signals, for tests.
  package var taps: [Tap] = []

  /// The slots of projections that several frames share.
  private var banks: [ObjectIdentifier: SlotBank] = [:]

  /// The slots that all frames of a shared projection fill and read.
  func slotBank(_ projection: Projection, evenAlone: Bool) -> SlotBank? {
    guard projection.isShared || evenAlone else { return nil }
    if let known = banks[ObjectIdentifier(projection)] { return known }
    let new = SlotBank(projection.slotCount)
    banks[ObjectIdentifier(projection)] = new
    return new
  }

  private func turnEnded() {
    if let draft {
      self.draft = nil
      savedParts = finishState(draft)
      release()
    }
    if !justClosed.isEmpty { justClosed = [] }
    if !endingPieces.isEmpty {
      for end in endingPieces { end() }
      endingPieces.removeAll(keepingCapacity: true)
    }
    if meters.isTiming { meters.stopTiming(executor.now) }
    for bank in banks.values { bank.forget() }
    let wasFree = !executor.isInputPaused
    for sink in sinks where sink.isOpen { sink.node.turnEnded() }
    // Events that a sink keeps for its next batch do not wait while another sink pauses the input.
    if wasFree, executor.isInputPaused {
      for sink in sinks where sink.isOpen { sink.node.turnEnded() }
    }
    commitForClients()
    committer?.turnEnded()
    inHand?.turnEnded()
    if auditsSinks, outcome == nil {
      for sink in sinks where sink.isOpen { if let fault = sink.audit?.fault() { reportSink(fault) } }
    }
  }

  /// A source has ended with a piece: `isAcknowledged` tells whether everything that it sent is acknowledged.
  func ended(_ isAcknowledged: @escaping () -> Bool) {
    guard outcome == nil else { return }
    // A sweep at each end would be quadratic: of many sources that end in one turn, none is acknowledged before the turn ends.
    if endedSources.count >= endedToSweep {
      endedSources.removeAll { $0() }
      endedToSweep = max(16, endedSources.count * 2)
    }
    endedSources.append(isAcknowledged)
  }

  /// Whether a source has ended and not everything that it sent is acknowledged.
  var hasUnacknowledgedEnd: Bool { endedSources.contains { !$0() } }

  /// Calls `body` at the end of this turn, after all of its events.
  package func whenTurnEnds(_ body: @escaping () -> Void) { endingPieces.append(body) }

  // MARK: Subscribing

  /// Runs `signal` for `downstream`. Unless it is part of a larger wiring, events may come before the call returns.
  package func subscribe(_ signal: SignalPlan, _ scope: Scope, to downstream: Downstream) -> any Subscription {
    subscribe(signal, scope, to: Edge(meters.edge(signal.edge), to: downstream))
  }

  func subscribe(_ signal: SignalPlan, _ scope: Scope, to edge: Edge) -> any Subscription {
    edge.counters.began()
    guard let key = scope.key, signal.isShared else { return run(signal, scope, to: edge) }
    let input = KeyedInput(key, edge.downstream, executor)
    input.upstream = run(signal, scope, to: Edge(edge.counters, to: input))
    return input
  }

  /// Runs the signal without counting a subscription: the body of a cold signal is part of that of its reference.
  private func run(_ signal: SignalPlan, _ scope: Scope, to edge: Edge) -> any Subscription {
    if let restoration { return restore(signal, scope, to: edge, restoration) }
    guard wiring == nil else { return make(signal, scope, to: edge) }
    let wired = enterWiring(scope)
    let subscription = make(signal, scope, to: edge)
    executor.nested { begin(wired) }
    return subscription
  }

  /// Runs an instance of a cold signal. Its events pass the edge of the reference.
  func runCold(_ index: Int, _ scope: Scope, to edge: Edge) -> any Subscription {
    run(plan.named[index].body, scope.forColdSignal(topScope), to: edge)
  }

  private func make(_ signal: SignalPlan, _ scope: Scope, to edge: Edge) -> any Subscription {
    switch signal.origin {
    case .named(let index):
      return plan.named[index].isCold ? runCold(index, scope, to: edge) : named[index].subscribe(edge)
    case .errors(let owner): return errorsOutput(owner).subscribe(edge)
    case .input: return subscribeInput(scope, edge)
    case nil:
      let node = makeNode(signal, scope, edge)
      node.begin(restoring: nil)
      return node
    }
  }

  func subscribeInput(_ scope: Scope, _ edge: Edge) -> any Subscription {
    guard let subject = scope.subject else {
      preconditionFailure("a chain's input outside of the node that feeds it")
    }
    return subject.subscribe(edge)
  }

  /// Makes the node of a signal with steps.
  func makeNode(_ signal: SignalPlan, _ scope: Scope, _ edge: Edge) -> OperatorNode {
    guard let work = signal.work else { preconditionFailure("a reference has no node of its own") }
    return work.makeNode(nodeContext(signal, scope, over: edge), edge)
  }

  /// `edge`: over which the node sends; nil: that of the plan.
  func nodeContext(_ signal: SignalPlan, _ scope: Scope, over edge: Edge? = nil) -> NodeContext {
    NodeContext(
      execution: self, step: signal.step, location: plan.steps[signal.step.number].location, scope: scope,
      plan: signal, edge: edge?.counters ?? meters.edge(signal.edge), segment: signal.work?.segment ?? .empty,
      inputs: signal.inputs)
  }

  func makeSource(_ component: any SourceComponent, _ nodeContext: NodeContext, _ edge: Edge) -> RunningSource {
    var replacement: (any SourceComponent)?
    if let sourceOverride {
      let owner = plan.steps[nodeContext.step.number].owner
      if let index = plan.index(ofNamed: owner),
        plan.named[index].kind == .source
          ? plan.named[index].ownSource === nodeContext.plan
          : plan.named[index].body === nodeContext.plan
      {
        replacement = sourceOverride(owner)
      }
    }
    if let originOverride, let plan = nodeContext.plan { replacement = originOverride(plan) }
    if replacement == nil, let sourceFilter { replacement = sourceFilter(component) }
    if replacement == nil, runsOnce, !nodeContext.scope.isForSomething, nodeContext.scope.subject == nil {
      replacement = component.once
    }
    let node = edge.downstream._withUnsafeGuaranteedRef {
      (replacement ?? component).makeSource(nodeContext, downstream: $0)
    }
    node.replacement = replacement
    node.serial = nextSubscription()
    runningSources.append(node)
    // Doubles the limit, so that many open sources cost each no more than few do.
    if runningSources.count > sourcesToSweep {
      runningSources.removeAll { $0.isClosed }
      sourcesToSweep = max(64, 2 * runningSources.count)
    }
    return node
  }

  /// Removes an ended source; the others are removed from time to time.
  func forget(_ source: RunningSource) {
    if let index = runningSources.lastIndex(where: { $0 === source }) { runningSources.remove(at: index) }
  }

  /// Starts a source, or defers the start until its subscription is wired and the nodes of that have started.
  /// `resuming`: the source has restored state.
  func start(_ node: RunningSource, resuming: Bool = false) {
    if node.isClosed { return }
    if isDryRun, wiring == nil, beginning == nil { return node.dryRun() }
    // A source of an inner signal that a starting node subscribed starts with that inner signal.
    let scope = node.nodeContext.scope
    if let later = wiring ?? beginning, wiring != nil || scope === topScope || scope.isBeside(later.scope) {
      later.sources.append((node, resuming))
      return
    }
    guard isStopping else {
      if resuming { node.resume() } else { node.begin() }
      if suspension != nil, !node.isClosed { node.suspend() }
      return
    }
    // The effects of a held event or end still happen, once; no new input is read for them.
    if scope.isForSomething { node.begin() }
    if !node.isClosed { end(node) }
  }

  /// Ends a source as if it had completed, because the pipeline stops.
  func end(_ source: RunningSource) {
    guard let work = source.nodeContext.scope.work else {
      source.drain()
      return
    }
    // A source that ends early leaves work undone, so the command execution must not count as done.
    let wasCut = work.isCut
    work.isCut = true
    source.drain()
    if !source.isClosed { work.isCut = wasCut }
  }

  func nextSubscription() -> UInt64 {
    lastSubscription &+= 1
    return lastSubscription
  }

  /// Ends the restoration: everything runs again.
  private func goOn(_ restoration: Restoration) {
    self.restoration = nil
    refusals = restoration.refusals
    restoredSteps = restoration.kept
    if isDryRun {
      unreadable = restoration.unreadable
      return
    }
    runningSources.sort { $0.serial < $1.serial }
    for step in restoration.deferred.sorted(by: { $0.position < $1.position }) {
      step.node.later(step.token)
    }
  }

  /// Runs `start` of a node at once or, during the wiring of its subscription, after the wiring and before any of its
  /// sources starts: nothing is sent before every subscriber is there.
  func whenWired(_ start: @escaping () -> Void) {
    if let wiring { wiring.nodes.append(start) } else { executor.nested(start) }
  }

  /// Whether a source runs that never ends by itself.
  package var hasEndlessSource: Bool { runningSources.contains { !$0.isClosed && $0.isEndless } }

  // MARK: Reports of sinks

  func sinkDrained(_ index: Int) {
    guard sinks[index].isOpen else { return }
    if let fault = sinks[index].audit?.finalFault() { reportSink(fault) }
    sinks[index].isOpen = false
    sinks[index].upstream.cancel()
    openSinks -= 1
    if !isLaunching, !isOver { sinks[index].errors.complete() }
    endIfOver()
    if !isLaunching, !isOver { completeErrors() }
  }

  func sinkFailed(_ index: Int, _ failure: SignalFailure) {
    guard sinks[index].isOpen else { return }
    end(.failed(failure))
  }

  /// A failure reached a sink: nothing has handled it, so the pipeline ends.
  package func unhandled(_ failure: SignalFailure) { end(.failed(failure)) }
}
