/// One pipeline while it runs.
///
/// Everything here happens in turns of its executor. The graph is wired whole, sinks first, before any
/// source starts; it stops in the other order.
public final class Execution {
  /// How a pipeline ended.
  public enum Outcome: Sendable, Equatable {
    case completed
    case failed(SignalFailure)
  }

  /// What went through, for the summary at the end and for metrics.
  public struct Counters: Sendable, Equatable {
    /// Events that sources made.
    public var received: UInt64 = 0
    /// Events that sinks delivered: the system has taken them, the server has acknowledged them. What a sink writes that
    /// reads nothing but errors outputs is not among them: that was counted as rejected.
    public var sent: UInt64 = 0
    /// Events given up with a reason.
    public var rejected: UInt64 = 0
    /// Events that a sink had taken and could not deliver any more when the pipeline ended, and that are kept nowhere.
    public var undelivered: UInt64 = 0
    /// Events dropped because a condition could not be evaluated.
    public var undecided: UInt64 = 0
    public init() {}
  }

  public let plan: Plan
  public let executor: Executor
  public let services: Services
  public let json = JSONParser()
  public let topScope = Scope.top()

  /// Replaces named sources, for tests.
  public var sourceOverride: ((String) -> (any SourceComponent)?)?
  /// Replaces sources by their places in the plan, for tests.
  var originOverride: ((SignalPlan) -> (any SourceComponent)?)?
  /// Replaces sources that are not replaced by name, inner ones too, for tests.
  public var sourceFilter: ((any SourceComponent) -> any SourceComponent)?
  /// How sources read, for tests.
  public struct Reading: Sendable {
    /// The most that one read asks for, in bytes; nil: what the source takes for best.
    public var blockBytes: Int?
    /// As many threads as may decode an input do so from the start.
    public var startsAllThreads = false
  }
  public var reading = Reading()
  /// Blocks that came encoded (``ParallelStage``).
  public internal(set) var encodedBlocks = 0
  /// Sees all subscriptions, for tests.
  var subscriptionProbe: (any SubscriptionProbe)?
  /// Replaces sinks, for tests.
  public var sinkOverride: ((String) -> (any SinkComponent)?)?

  // Touched in turns only, which never overlap.
  /// All but what sinks have delivered since they were asked last.
  @exclusivity(unchecked) var tally = Counters()
  private(set) var named: [SharedSignal] = []
  /// The errors outputs of the named signals; those of sinks are theirs.
  private(set) var errors: [ErrorsSignal] = []
  /// All of them by the names of their owners, once something has been rejected.
  lazy var errorsByName = errorsOutputs()
  private(set) var sinks: [OpenSink] = []
  private var openSinks = 0
  /// Who keeps running what executes commands and is read by nobody.
  private(set) var rootSubscribers: [RootSubscriber] = []
  /// The running commands, by their places in the plan.
  var commands: [Int: Command.Running] = [:]
  private var runningSources: [RunningSource] = []
  /// How many `runningSources` may be before those that have ended are taken out.
  private var sourcesToSweep = 64
  /// Which named signals may still run.
  lazy var reach = SignalReach(plan)
  /// Numbers subscriptions of what is shared, and sources.
  private(set) var lastSubscription: UInt64 = 0
  /// While the graph is made again from a saved state.
  private(set) var restoration: Restoration?
  /// How many bytes each step wrote of its own when the state was saved last.
  public internal(set) var stateSizes: [StepID: Int] = [:]
  /// What could not be saved then, and why.
  public internal(set) var stateFaults: [Diagnostic] = []
  /// What of the saved state could not be used, and why.
  public private(set) var refusals: [Diagnostic] = []
  /// The graph is being wired for the first time: sinks and errors outputs are not complete yet.
  private(set) var isLaunching = false
  /// What is being wired; nil while events flow.
  private var wiring: Wiring?
  /// The innermost wiring whose nodes are beginning: its sources have not started.
  private var beginning: Wiring?
  /// Wirings by how deep they are inside of each other, to be used again.
  private var wirings: [Wiring] = []
  private var wiringDepth = 0
  /// The sources have been told to end; new ones end at once.
  public private(set) var isStopping = false
  /// They are just being told.
  private(set) var isDraining = false
  /// Nodes that wait before they subscribe again, with numbers in the order in which they began to wait.
  private var pauses: [ObjectIdentifier: (number: UInt64, node: any Pausing)] = [:]
  private var lastPause: UInt64 = 0
  public private(set) var outcome: Outcome?
  /// What nodes have put off to later in the turn.
  @exclusivity(unchecked) var priorities = PriorityQueue()
  private var onEnd: (Outcome) -> Void = { _ in }
  /// What still goes on outside of the graph and must be over before the end is told.
  private var holds = 0
  /// The state that another execution can go on from, once this one has been suspended, or has failed and
  /// ``keepsStateOnFailure`` is set.
  public private(set) var savedState: [UInt8]?
  /// A failure leaves ``savedState``: what has failed starts anew there, all else goes on, and sources continue behind
  /// what they have sent.
  public var keepsStateOnFailure = false
  /// What happens to a sink when the pipeline is suspended; nil: it is not being suspended.
  private var suspension: ((SinkPlan) -> Bool)?
  /// It has been suspended: only sinks still finish.
  private var isSuspended = false
  /// Everything that was there at the launch has begun.
  public private(set) var hasBegun = false
  /// Sources with a position that have been closed in this turn: what fails in its course saves it all the same.
  private(set) var justClosed: [RunningSource] = []
  /// The state when the pipeline failed, until the end of that turn.
  private var draft: StateDraft?
  /// Reasons that were already logged once: by step and code and, for conditions, by path.
  var logged: Set<String> = []
  /// The last warning of each step that may repeat itself, and how many were not logged since.
  var warnings: [StepID: (at: Instant, hidden: Int)] = [:]

  /// What has gone through. In turns, or when the pipeline has ended.
  public var counters: Counters {
    for sink in sinks { sink.node.countDelivered() }
    return tally
  }

  struct OpenSink {
    var node: RunningSink
    var upstream: any Subscription
    let errors: ErrorsSignal
    var isOpen = true
    /// What of its component outlives the process.
    var persistence = Persistence.nothing
    /// What it has still to deliver is part of a saved state.
    var isPersistent: Bool { persistence.version > 0 }
  }

  public init(plan: Plan, executor: Executor, services: Services) {
    self.plan = plan
    self.executor = executor
    self.services = services
    executor.turnEnded = { [unowned self] in self.turnEnded() }
    executor.becameQuiet = { [unowned self] in self.becameQuiet() }
  }

  // MARK: Life

  /// Wires the graph and starts the sources. Call it in a turn; `onEnd` is called once, in a turn.
  ///
  /// `state`: what ``saveState()`` of the same pipeline gave; everything goes on from there. What of it does
  /// not fit any more starts empty and is told in ``refusals``.
  public func launch(restoring state: [UInt8]? = nil, onEnd: @escaping (Outcome) -> Void) {
    self.onEnd = onEnd
    if let state { restoration = Restoration(state, plan, executor) }
    lastSubscription = restoration?.lastSubscription ?? 0
    executor.lastTimer = restoration?.lastTimer ?? 0
    named = plan.named.indices.map { SharedSignal(self, $0) }
    errors = plan.named.indices.map { _ in ErrorsSignal(self) }
    if let restoration { for shared in named { shared.restore(restoration) } }
    isLaunching = true
    let whole = enterWiring(topScope)
    openSinks = plan.sinks.count
    for (index, sink) in plan.sinks.enumerated() {
      let nodeContext = NodeContext(
        execution: self, step: sink.step, location: sink.location, scope: topScope, plan: nil,
        segment: sink.segment, inputs: [])
      let component = sinkOverride?(sink.name) ?? sink.component
      let node = component.makeSink(nodeContext)
      node.index = index
      if let restoration { restore(node, sink, component, restoration) }
      node.takesEvents = !plan.readsOnlyErrors(sink.input)
      let isDrained = restoration?.status(sink) == .drained
      sinks.append(
        OpenSink(
          node: node, upstream: NoSubscription.make(), errors: ErrorsSignal(self), isOpen: !isDrained,
          persistence: component.persistence))
      if isDrained { openSinks -= 1 } else { node.open() }
      if outcome != nil {
        leaveWiring(whole)
        isLaunching = false
        return
      }
    }
    for (index, sink) in plan.sinks.enumerated() {
      if let status = restoration?.status(sink), status != .open {
        // It is told so when everything is wired.
        let node = sinks[index].node
        if status == .ended { whenWired { node.complete() } }
        continue
      }
      let upstream = subscribe(sink.input, topScope, to: sinks[index].node)
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
    hasBegun = true
    completeErrors()
    endIfOver()
  }

  // MARK: Wiring

  /// One subscription with everything upstream of it: the whole graph at the launch, later an inner signal or the next
  /// round of a `repeat`. It is wired whole. Then its nodes begin that have something of their own to say, then its
  /// sources, both in the order in which they were subscribed.
  private final class Wiring {
    /// What its subscription was made for.
    var scope: Scope
    var nodes: [() -> Void] = []
    var sources: [(node: RunningSource, resuming: Bool)] = []

    init(_ scope: Scope) { self.scope = scope }
  }

  private func enterWiring(_ scope: Scope) -> Wiring {
    if wiringDepth == wirings.count { wirings.append(Wiring(scope)) }
    let entered = wirings[wiringDepth]
    entered.scope = scope
    wiringDepth += 1
    wiring = entered
    return entered
  }

  private func leaveWiring(_ left: Wiring) {
    left.nodes.removeAll(keepingCapacity: true)
    left.sources.removeAll(keepingCapacity: true)
    left.scope = topScope
    wiringDepth -= 1
    wiring = nil
  }

  /// Lets the nodes of what has been wired begin, and then its sources: a source's first event meets everybody who
  /// listens, behind whatever they had to say of their own, such as the value of `startWith`.
  private func begin(_ wired: Wiring) {
    wiring = nil
    if !wired.nodes.isEmpty {
      let outer = beginning
      beginning = wired
      var next = 0
      while next < wired.nodes.count {
        wired.nodes[next]()
        next += 1
      }
      beginning = outer
    }
    var next = 0
    while next < wired.sources.count {
      let source = wired.sources[next]
      start(source.node, resuming: source.resuming)
      next += 1
    }
    leaveWiring(wired)
  }

  /// A source with a position that belongs to no event is being closed.
  func closed(_ source: RunningSource) {
    if keepsStateOnFailure { justClosed.append(source) }
  }

  /// More subscribers of named signals, for tests.
  public var taps: [Tap] = []

  /// Has `downstream` told of all that happens in a shared signal that somebody else refers to; false if
  /// nobody does, or if it is made anew for each reference.
  func watch(_ index: Int, _ downstream: Downstream) -> Bool {
    guard !plan.named[index].isCold, plan.named[index].references > 0, let watcher = downstream as? SignalWatcher
    else { return false }
    named[index].watcher = watcher
    return true
  }

  /// Ends the sources as if they had completed, so that everything held is flushed; what is under way
  /// goes on until it is done.
  public func drain() {
    isStopping = true
    isDraining = true
    for source in runningSources where !source.isClosed { end(source) }
    isDraining = false
    for pause in pauses.values.sorted(by: { $0.number < $1.number }) where !pause.node.isClosed {
      pause.node.endPause()
    }
  }

  /// A stop ends the pause of this node, which says when the pause is over.
  func pauseBegins(_ node: any Pausing) {
    lastPause &+= 1
    pauses[ObjectIdentifier(node)] = (lastPause, node)
  }

  func pauseEnds(_ node: any Pausing) { pauses[ObjectIdentifier(node)] = nil }

  /// Cancels everything at once. `onEnd` is not called.
  public func cancel() {
    let isRunning = outcome == nil
    if isRunning { outcome = .failed(SignalFailure(.user, "cancelled")) }
    executor.ack?.fail("cancelled")
    executor.dropRemainders("cancelled")
    onEnd = { _ in }
    if isRunning { rejectRemaining() }
    teardown()
  }

  private func end(_ outcome: Outcome) {
    guard self.outcome == nil else { return }
    if case .failed = outcome, keepsStateOnFailure, hasBegun, let draft = draftState() {
      // How far sources have come is known when they are through with the event that has failed.
      self.draft = draft
      holds += 1
    }
    self.outcome = outcome
    if case .failed(let failure) = outcome {
      executor.ack?.fail(failure.message)
      if draft != nil { for sink in sinks where sink.isOpen && sink.isPersistent { sink.node.relinquish() } }
      executor.dropRemainders(failure.message)
      rejectRemaining()
    } else {
      executor.dropRemainders()
    }
    teardown()
    reportEnd()
  }

  /// Something outside of the graph, such as an answer on its way to a client, must be over before the
  /// pipeline counts as ended. Called in a turn; `release` once for each `hold`, in a turn, too.
  public func hold() { holds += 1 }

  public func release() {
    holds -= 1
    if holds == 0, suspension != nil { freeze() }
    reportEnd()
  }

  // MARK: Suspending

  /// Ends the pipeline so that another execution goes on from ``savedState``: operators keep what they hold and flush
  /// nothing, what sources have not sent is sent by the other one. Sinks finish what they hold, and then `onEnd` of
  /// ``launch(restoring:onEnd:)`` is called.
  ///
  /// First the sources pause: clients of a server that wait for an answer get it. ``freeze()`` cuts that short.
  ///
  /// - Parameter keeping: whether the other execution has that sink, too; what it still has to deliver is then part of
  ///   the state, if its component carries that.
  public func suspend(keeping: @escaping (SinkPlan) -> Bool = { _ in true }) {
    guard outcome == nil, !isStopping, suspension == nil else { return }
    suspension = keeping
    for source in runningSources where !source.isClosed { source.pause() }
    if holds == 0 { freeze() }
  }

  /// Takes the state of a pipeline that is being suspended, without waiting any longer for answers under way.
  public func freeze() {
    guard let keeping = suspension, !isSuspended, !isStopping, outcome == nil else { return }
    savedState = saveState(keeping: keeping)
    isSuspended = true
    isStopping = true
    executor.dropRemainders("the pipeline was suspended")
    for sink in sinks { sink.upstream.cancel() }
    for rootSubscriber in rootSubscribers { rootSubscriber.upstream?.cancel() }
    for tap in taps { tap.disconnect() }
    for shared in named { shared.disconnect() }
    for source in runningSources { source.cancel() }
    runningSources = []
    for (index, sink) in sinks.enumerated() where outcome == nil && sink.isOpen {
      if sink.isPersistent, keeping(plan.sinks[index]) {
        sink.node.relinquish()
        sink.node.drained()
      } else {
        sink.node.complete()
      }
    }
    endIfOver()
  }

  private func reportEnd() {
    guard holds == 0, let outcome else { return }
    let report = onEnd
    onEnd = { _ in }
    report(outcome)
  }

  private func teardown() {
    for sink in sinks { sink.upstream.cancel() }
    for rootSubscriber in rootSubscribers { rootSubscriber.upstream?.cancel() }
    for tap in taps { tap.disconnect() }
    for sink in sinks where sink.isOpen { sink.node.cancel() }
    for shared in named { shared.disconnect() }
    for source in runningSources { source.cancel() }
    runningSources = []
  }

  func rootEnded() {
    endIfOver()
    if !isLaunching, outcome == nil { completeErrors() }
  }

  /// It ends with its last sink and with what executes commands for what sinks could not deliver; one without sinks,
  /// with what executes its commands.
  private func endIfOver() {
    guard openSinks == 0,
      isSuspended || rootSubscribers.allSatisfy({ $0.hasEnded || !plan.sinks.isEmpty && !$0.isAwaited })
    else { return }
    end(.completed)
  }

  /// The slots of projections that several frames share.
  private var banks: [ObjectIdentifier: SlotBank] = [:]

  /// The slots that all frames of a shared projection fill and read.
  func slotBank(_ projection: Projection) -> SlotBank? {
    guard projection.isShared else { return nil }
    if let known = banks[ObjectIdentifier(projection)] { return known }
    let new = SlotBank(projection.slotCount)
    banks[ObjectIdentifier(projection)] = new
    return new
  }

  private func turnEnded() {
    if let draft {
      self.draft = nil
      savedState = finishState(draft)
      release()
    }
    if !justClosed.isEmpty { justClosed = [] }
    for bank in banks.values { bank.forget() }
    let wasFree = !executor.isInputPaused
    for sink in sinks where sink.isOpen { sink.node.turnEnded() }
    // What a sink has kept for the next batch does not wait for another sink that holds that batch back.
    if wasFree, executor.isInputPaused {
      for sink in sinks where sink.isOpen { sink.node.turnEnded() }
    }
  }

  /// Whether nothing can happen any more: no source runs, no timer is set, nothing is put off, no sink may still have
  /// something to say on its errors output.
  private var isExhausted: Bool {
    !runningSources.contains { !$0.isClosed } && executor.nextDeadline == nil
      && !sinks.contains { $0.isOpen && $0.errors.isClaimed && $0.node.awaitsAnswers } && !executor.hasBatches
  }

  /// Where nothing can happen any more, who still waits for an errors output, or for a command to end, waits for
  /// nothing; it may be the output's own signal that does, or one that executes the command for what that sends.
  private func becameQuiet() {
    guard outcome == nil, isExhausted else { return }
    if errors.contains(where: \.isClaimed) { for signal in errors { signal.complete() } }
    for (_, command) in commands.sorted(by: { $0.key < $1.key }) where outcome == nil && isExhausted {
      command.finish()
    }
  }

  // MARK: Subscribing

  /// Runs `signal` for `downstream`. Unless this is part of a larger wiring, events may come before it returns.
  public func subscribe(_ signal: SignalPlan, _ scope: Scope, to downstream: Downstream) -> any Subscription {
    if let restoration { return restore(signal, scope, to: downstream, restoration) }
    guard wiring == nil else { return wire(signal, scope, to: downstream) }
    let wired = enterWiring(scope)
    let subscription = wire(signal, scope, to: downstream)
    executor.nested { begin(wired) }
    return subscription
  }

  private func wire(_ signal: SignalPlan, _ scope: Scope, to downstream: Downstream) -> any Subscription {
    if let subscriptionProbe { return subscriptionProbe.subscribe(signal, scope, to: downstream, in: self) }
    return make(signal, scope, to: downstream)
  }

  func make(_ signal: SignalPlan, _ scope: Scope, to downstream: Downstream) -> any Subscription {
    switch signal.kind {
    case .named(let index):
      if plan.named[index].isCold {
        return subscribe(plan.named[index].body, scope.forColdSignal(topScope), to: downstream)
      }
      return named[index].subscribe(downstream)
    case .errors(let owner):
      return errorsOutput(owner).subscribe(downstream)
    case .source(let component, let segment):
      let node = makeSource(component, nodeContext(signal, scope, segment), downstream)
      start(node)
      return node
    case .node(let component, let segment, let inputs):
      let node = component.makeNode(nodeContext(signal, scope, segment, inputs), downstream: downstream)
      node.start()
      return node
    case .input:
      guard let subject = scope.subject else {
        preconditionFailure("a chain's input outside of the node that feeds it")
      }
      return subject.subscribe(downstream)
    case .run(let run, let input):
      let node = FusedRun(run, nodeContext(signal, scope, .empty, [input]), downstream: downstream)
      node.start()
      return node
    }
  }

  func nodeContext(_ signal: SignalPlan, _ scope: Scope, _ segment: Segment, _ inputs: [SignalPlan] = []) -> NodeContext
  {
    NodeContext(
      execution: self, step: signal.step, location: plan.steps[signal.step.number].location, scope: scope,
      plan: signal, segment: segment, inputs: inputs)
  }

  func makeSource(_ component: any SourceComponent, _ nodeContext: NodeContext, _ downstream: Downstream)
    -> RunningSource
  {
    var replacement: (any SourceComponent)?
    if let sourceOverride {
      let owner = plan.steps[nodeContext.step.number].owner
      if let index = plan.index(ofNamed: owner), plan.named[index].body === nodeContext.plan {
        replacement = sourceOverride(owner)
      }
    }
    if let originOverride, let plan = nodeContext.plan { replacement = originOverride(plan) }
    if replacement == nil, let sourceFilter { replacement = sourceFilter(component) }
    let node = (replacement ?? component).makeSource(nodeContext, downstream: downstream)
    node.replacement = replacement
    node.serial = nextSubscription()
    runningSources.append(node)
    // Twice as many as were open the last time: so many open ones cost each of them no more than few do.
    if runningSources.count > sourcesToSweep {
      runningSources.removeAll { $0.isClosed }
      sourcesToSweep = max(64, 2 * runningSources.count)
    }
    return node
  }

  /// It has ended; the others that have are taken out from time to time.
  func forget(_ source: RunningSource) {
    if let index = runningSources.lastIndex(where: { $0 === source }) { runningSources.remove(at: index) }
  }

  /// Starts a source, or puts it off until what it is part of is wired and the nodes of that have begun.
  /// `resuming`: its state was restored.
  func start(_ node: RunningSource, resuming: Bool = false) {
    if node.isClosed { return }
    // A source of an inner signal that one of the beginning nodes has caused starts with that inner signal.
    let scope = node.nodeContext.scope
    if let later = wiring ?? beginning, wiring != nil || scope === topScope || scope.isBeside(later.scope) {
      later.sources.append((node, resuming))
      return
    }
    guard isStopping else {
      if resuming { node.resume() } else { node.begin() }
      return
    }
    // What an event or an end that was held causes still happens, once; nothing new is read for it.
    if scope.isForSomething { node.begin() }
    if !node.isClosed { end(node) }
  }

  /// Ends a source as if it had completed, because the pipeline stops.
  private func end(_ source: RunningSource) {
    guard let work = source.nodeContext.scope.work else {
      source.drain()
      return
    }
    // A source that has not said all it had to say leaves work undone that others take for done.
    let wasCut = work.isCut
    work.isCut = true
    source.drain()
    if !source.isClosed { work.isCut = wasCut }
  }

  func nextSubscription() -> UInt64 {
    lastSubscription &+= 1
    return lastSubscription
  }

  /// Ends the restoring: everything is there again.
  private func goOn(_ restoration: Restoration) {
    self.restoration = nil
    refusals = restoration.refusals
    runningSources.sort { $0.serial < $1.serial }
    for step in restoration.deferred.sorted(by: { $0.position < $1.position }) {
      step.node.later(step.token)
    }
  }

  /// Runs `start` of a node at once or, while its subscription is being wired, when all of that is, and before any of
  /// its sources starts: nothing is sent before everybody who will listen does.
  func whenWired(_ start: @escaping () -> Void) {
    if let wiring { wiring.nodes.append(start) } else { executor.nested(start) }
  }

  /// Whether a source goes on that never ends by itself.
  var hasEndlessSource: Bool { runningSources.contains { !$0.isClosed && $0.isEndless } }

  // MARK: What sinks report

  func sinkDrained(_ index: Int) {
    guard sinks[index].isOpen else { return }
    sinks[index].isOpen = false
    sinks[index].upstream.cancel()
    openSinks -= 1
    if !isLaunching, outcome == nil { sinks[index].errors.complete() }
    endIfOver()
    if !isLaunching, outcome == nil { completeErrors() }
  }

  func sinkFailed(_ index: Int, _ failure: SignalFailure) {
    guard sinks[index].isOpen else { return }
    end(.failed(failure))
  }

  /// A failure that reached a sink: nobody has handled it, so the pipeline ends.
  func unhandled(_ failure: SignalFailure) { end(.failed(failure)) }
}
