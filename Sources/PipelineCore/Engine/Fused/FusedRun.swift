/// The decision of a fused step about one event.
public enum StepVerdict {
  /// The event passes, perhaps with another value.
  case pass
  /// The step drops the event as specified: a condition is false, a limit is reached.
  case drop
  /// The event stops here: the step keeps it, or has used it in an event that it emits.
  case keep
  /// The event ends here and is already counted: the error policy was applied, or the event was rejected.
  case gone
  /// The event passes, and the signal completes after it.
  case passAndFinish
  /// The signal completes without the event.
  case finish
}

/// A running fused step: receives one event at a time and emits at most one for it, at once.
open class FusedStep {
  /// Called by ``FusableOperator/makeStep()``.
  public init() {}
  /// The keys and bytes that this step keeps between events. A step that keeps data counts it here.
  @exclusivity(unchecked) final var keptSize = KeptSize()
  /// Whether the signal completes as soon as it is subscribed, and nothing upstream is subscribed.
  open var endsBeforeStart: Bool { false }
  /// Called for each event, in order. May change `event`, or reject it through `run` and drop it.
  open func apply(_ event: inout Event, _ frame: EventFrame, _ run: FusedRun) -> StepVerdict { .pass }
  /// The error policy where the file gives no `onError`.
  open var standardPolicy: ErrorPolicy { .route }
  /// Called when the input is complete. The result is the last event of the signal and goes to the steps downstream,
  /// which see another value than this step; so the operator sets ``FusableOperator/changesValue``.
  open func complete(_ run: FusedRun) -> Value? { nil }
  /// Called when the input has failed; the failure is passed on.
  open func fail(_ failure: SignalFailure, _ run: FusedRun) {}
  /// Writes the step's state. Override it, with `restore`, if the spec says `persistence: .state`.
  open func save(_ state: inout StateWriter) {}
  /// Reads what `save` wrote, in the same order. A step that throws is replaced by a new one.
  open func restore(_ state: inout StateReader) throws(StateFault) {}

  /// Applies the error policy to an event for which `program` gave `error`.
  @inline(never)
  final func failed(
    _ event: Event, _ error: Value, _ program: Program, _ frame: EventFrame, _ run: FusedRun
  ) -> StepVerdict {
    run.verdict(on: event, of: self) { .expression(error, program, frame, standard: standardPolicy) }
  }

  /// Applies the error policy to an event that the step does not accept.
  public final func refused(_ event: Event, _ code: Diagnostic.Code, _ message: String, _ run: FusedRun) -> StepVerdict
  {
    run.verdict(on: event, of: self) { EventProblem(code: code, message: message) }
  }
}

/// Several fused steps in one node: one projection and one pass for each event.
///
/// A run may serve many chains of the same plan, such as the groups of `groupBy`. Then each chain has its own steps and
/// passes them with each event, and the run itself is never started.
///
/// ``make(_:_:downstream:)`` makes a run that is started.
public class FusedRun: OperatorNode {
  /// The retained steps of one of many chains, as many as the run has.
  typealias OwnSteps = UnsafeMutablePointer<Unmanaged<FusedStep>>

  final let steps: FusedSteps
  /// The components of the steps.
  let components: [any FusableOperator]
  /// The indexes of the steps that also send later.
  final let late: [Int]
  /// The chain of the run's own steps; set only if some of them send later.
  private(set) var ownChain: OwnChain?
  /// What the steps are recognized by in the states of chains on the disk: their parameters, and their names in the chain. What stands before
  /// these in the names of the plan may change while chains are on the disk (`movedFrom`).
  private(set) final lazy var identities = steps.indices.map { index in
    let step = execution.plan.steps[steps[index].id.number]
    return Fingerprint.of((step.key.split(separator: "/").last ?? "").utf8) ^ step.fingerprint
  }
  /// The event time that steps share with the same steps of other chains, by step index; made on first use.
  private var clocks: [Int: EventClock] = [:]
  /// The counters of the edge over which events reach the first step.
  private let entry: UnsafeMutablePointer<EdgeCounters>
  /// The counters of the edges between the steps. Events are not counted there: their number follows from the counts of
  /// the steps.
  private let between: UnsafeMutablePointer<EdgeCounters>
  private let meters: Meters

  final class OwnChain: FusedChain {
    private let run: Unmanaged<FusedRun>
    init(_ run: FusedRun) { self.run = .passUnretained(run) }
    override var key: Value { run._withUnsafeGuaranteedRef { $0.nodeContext.scope.keyValue } }
    override func ended() { run._withUnsafeGuaranteedRef { $0.finish() } }
    override func becameFresh() { run._withUnsafeGuaranteedRef { $0.nodeContext.scope.chain?.becameFresh() } }
  }
  // Nodes run on one thread at a time, and no access outlasts a load or a store.
  @exclusivity(unchecked) private var current = 0
  /// The key of the chain that is completing.
  private var completingKey = Value.absent

  init(_ plan: FusedRunPlan, _ nodeContext: NodeContext, downstream: Downstream) {
    let meters = nodeContext.execution.meters
    self.meters = meters
    let steps = FusedSteps(
      plan, counting: { id, _ in meters.step(id) },
      frame: { segment, knowsEvent in
        nodeContext.scope.frames?.frame(segment, nodeContext.scope, nodeContext.execution)
          ?? EventFrame(segment, nodeContext.scope, nodeContext.execution, knowsEvent: knowsEvent)
      })
    self.steps = steps
    entry = nodeContext.inputs.first.map { meters.edge($0.edge) } ?? meters.edge(.none)
    let last = nodeContext.plan?.edge.number ?? 0
    between = meters.edge(EdgeID(max(0, last - steps.count + 1)))
    components = plan.parts.flatMap { $0.steps.map(\.component) }
    late = components.indices.filter { steps[$0].step.takeUnretainedValue() is LateStep }
    super.init(nodeContext, downstream: downstream)
    if !late.isEmpty {
      let chain = OwnChain(self)
      ownChain = chain
      nodeContext.scope.chain?.runs.append(.passUnretained(self))
      for index in late { lateStep(index, nil).attach(to: chain, of: self, at: index) }
    }
  }

  final func lateStep(_ index: Int, _ own: OwnSteps?) -> LateStep {
    unsafeDowncast((own?[index] ?? steps[index].step).takeUnretainedValue(), to: LateStep.self)
  }

  deinit { steps.deallocate() }

  /// The last step that ends the signal as soon as it is subscribed: the steps downstream of it have an empty input,
  /// and the steps upstream have none.
  private var endingStep: Int? {
    steps.lastIndex { $0.step._withUnsafeGuaranteedRef { $0.endsBeforeStart } }
  }

  /// Whether a step ends the signal as soon as it is subscribed.
  final var endsBeforeStart: Bool { endingStep != nil }

  public override func start() {
    guard let ending = endingStep else {
      begin(nil)
      super.start()
      return
    }
    execution.whenWired { [self] in
      complete(from: ending + 1, nil)
      finish()
    }
  }

  /// Starts those steps of a chain that need a start.
  private func begin(_ own: OwnSteps?) {
    for index in late {
      let step = lateStep(index, own)
      if !step.isRestored { step.started() }
    }
  }

  public override func stop() {
    for index in late { lateStep(index, nil).stop() }
    for step in steps { step.step._withUnsafeGuaranteedRef { $0.keptSize.end() } }
    if !late.isEmpty { nodeContext.scope.chain?.remove(self) }
  }

  /// Makes `value` the `outer` of the steps' expressions, in place of the scope's.
  final func setOuter(_ value: Value) {
    for step in steps { step.frame._withUnsafeGuaranteedRef { $0.setOuter(value) } }
  }

  public override func receive(_ event: Event) { process(event) }

  @inline(__always)
  final func process(_ event: Event) {
    var event = event.copied
    let ended = withUnsafeMutablePointer(to: &event) { run($0, from: 0, nil) }
    if ended >= 0 { end(with: ended) }
  }

  override func receiveWatched(_ event: Event) {
    var event = event.copied
    let ended = withUnsafeMutablePointer(to: &event) { runWatched($0, from: 0, nil) }
    if ended >= 0 { end(with: ended) }
  }

  /// Ends the signal, because a step has completed with an event.
  private func end(with step: Int) {
    complete(from: step + 1, nil)
    finish()
  }

  public override func accepts(_ batch: Batch) -> Bool {
    guard steps.allSatisfy({ batch.hasPassed($0.id) }) else { return false }
    if batch.rows == nil || steps.allSatisfy({ meters.keepsEvents($0.id) }) { return isAccepted(batch) }
    var changed = batch
    changed.rows = nil
    return isAccepted(changed)
  }

  public override func receive(_ batch: Batch) {
    var batch = batch
    for (index, step) in steps.enumerated() {
      if index > 0 {
        if entry.pointee.watchers > 0 { (between + (index - 1)).missed(batch.events) }
        (between + (index - 1)).measure(batch)
      }
      batch.pass(step.id, step.counters)
      batch.offer(step.id, meters)
    }
    emit(batch)
  }

  /// Passes the event through the steps from index `first` on and emits it. Returns the index of the last step that
  /// completes with the event, or -1.
  ///
  /// The changed event stays in memory, where the next step reads it.
  @inline(__always)
  private func run(_ event: UnsafeMutablePointer<Event>, from first: Int, _ own: OwnSteps?) -> Int {
    var index = first
    var ended = -1
    while true {
      let verdict: StepVerdict
      switch steps.passPure(event, from: &index, own) {
      case .passed:
        emit(event.pointee.copied)
        return ended
      case .dropped:
        countDropped(event, at: index)
        return ended
      case .notPure:
        current = index
        verdict = steps.apply(event, at: index, own, self)
      case .failed: verdict = failed(event.pointee, at: index, own)
      case .unreadable:
        current = index
        rejectUnreadable(event.pointee)
        return ended
      }
      switch verdict {
      case .pass: index &+= 1
      case .drop:
        countDropped(event, at: index)
        return ended
      case .keep:
        steps[index].counters.pointee.kept &+= 1
        return ended
      case .gone: return ended
      case .passAndFinish:
        ended = index
        index &+= 1
      case .finish:
        countDropped(event, at: index)
        return index
      }
    }
  }

  /// Counts an event that the step drops.
  @inline(__always)
  private func countDropped(_ event: UnsafeMutablePointer<Event>, at index: Int) {
    let counters = steps[index].counters
    counters.pointee.dropped &+= 1
    if counters.pointee.dropped >= counters.pointee.ofDropped.next { offer(UnsafePointer(event), at: index) }
  }

  @inline(never)
  final func offer(_ event: UnsafePointer<Event>, at index: Int) {
    meters.offer(event.pointee, .dropped, at: steps[index].id, outer: frame(at: index).outerEvent)
  }

  /// Like `run`, but step by step: the observers of the edges between the steps see the events, and each step is timed
  /// separately.
  @inline(never)
  private func runWatched(_ event: UnsafeMutablePointer<Event>, from first: Int, _ own: OwnSteps?) -> Int {
    var index = first
    var ended = -1
    while index < steps.count {
      let at = index
      if at > 0 { (between + (at - 1)).show(event.pointee) }
      var shown = Verdict.passed
      var verdict = StepVerdict.pass
      let before = steps[at].counters.pointee
      // The edge over which the event arrived times the first step.
      meters.timed(at > 0 ? steps[at].id.number : -1) {
        switch steps.passOne(event, at: at, own) {
        case .passed: verdict = .pass
        case .dropped: verdict = .drop
        case .notPure:
          current = at
          verdict = steps.apply(event, at: at, own, self)
        case .failed: verdict = failed(event.pointee, at: at, own)
        case .unreadable:
          current = at
          rejectUnreadable(event.pointee)
          verdict = .gone
        }
      }
      switch verdict {
      case .pass, .passAndFinish: break
      case .drop, .finish:
        countDropped(event, at: at)
        shown = .dropped
      case .keep:
        steps[at].counters.pointee.kept &+= 1
        shown = .kept
      case .gone:
        let after = steps[at].counters.pointee
        shown = after.failed != before.failed ? .failed : after.rejected != before.rejected ? .rejected : .undecided
      }
      if at > 0 { (between + (at - 1)).show(shown) }
      switch verdict {
      case .pass: index = at + 1
      case .passAndFinish:
        ended = at
        index = at + 1
      case .drop, .keep, .gone: return ended
      case .finish: return at
      }
    }
    emit(event.pointee.copied)
    return ended
  }

  @inline(never)
  private func rejectUnreadable(_ event: Event) {
    reject(event, .eventNotReadable, EventFrame.message(of: frame(at: current).unreadable))
  }

  /// Applies the error policy, because the pure step at `index` cannot process the event.
  @inline(never)
  private func failed(_ event: Event, at index: Int, _ own: OwnSteps?) -> StepVerdict {
    current = index
    let step = unsafeDowncast((own?[index] ?? steps[index].step).takeUnretainedValue(), to: PureStep.self)
    return verdict(on: event, of: step) { step.problem(frame(at: index)) }
  }

  /// Applies the error policy of the running step to an event.
  final func verdict(on event: Event, of step: FusedStep, because problem: () -> EventProblem) -> StepVerdict {
    switch execution.outcome(of: event, at: currentStep, standard: step.standardPolicy, because: problem) {
    case .pass: return .pass
    case .gone: return .gone
    case .fail(let failure):
      finish(failing: failure)
      return .gone
    }
  }

  public override func complete() {
    complete(from: 0, nil)
    finish()
  }

  /// Completes the steps from `first` on, of a chain or of the run itself.
  private func complete(from first: Int, _ chain: FusedChain?) {
    var index = first
    while index < steps.count, !isClosed, chain?.hasEnded != true {
      current = index
      let own = chain?.steps
      let step = own?[index] ?? steps[index].step
      let key = chain?.key ?? nodeContext.scope.keyValue
      completingKey = key
      var ended = index
      let counters = steps[index].counters
      let given = counters.pointee.given
      let last = step._withUnsafeGuaranteedRef { $0.complete(self) }
      // The step made an event that it could not send and gave up.
      if !(step.takeUnretainedValue() is LateStep) { counters.pointee.made &+= counters.pointee.given &- given }
      if let last {
        counters.pointee.made &+= 1
        var event = Event(last, key: key)
        ended = max(ended, withUnsafeMutablePointer(to: &event) { go(on: $0, from: index + 1, own) })
      }
      index = ended + 1
    }
  }

  override func advance(to time: Int64) {
    for index in late { lateStep(index, nil).advance(to: time) }
    super.advance(to: time)
  }

  public override func fail(_ failure: SignalFailure) {
    for index in steps.indices {
      current = index
      steps[index].step._withUnsafeGuaranteedRef { $0.fail(failure, self) }
    }
    finish(failing: failure)
  }

  /// The frame of the running step, loaded without an event, for values sent at the end.
  final func frameOfNothing() -> EventFrame {
    let frame = frame(at: current)
    _ = frame.load(nothing)
    return frame
  }

  /// The event of a step that completes: null, with the key of the group.
  final var nothing: Event { Event(.null, key: completingKey) }

  // MARK: Steps that send later

  /// Passes a value of a step through the steps downstream of it.
  final func send(
    _ value: Value, as origin: Unmanaged<Origin> = Event.none, from step: LateStep, at index: Int, _ chain: FusedChain
  ) {
    var event = Event(value, key: chain.key, from: origin, position: -1)
    steps[index].counters.pointee.made &+= 1
    let outer = current
    let ended = withUnsafeMutablePointer(to: &event) { go(on: $0, from: index + 1, chain.steps) }
    current = outer
    guard ended >= 0, !chain.hasEnded else { return }
    complete(from: ended + 1, chain === ownChain ? nil : chain)
    chain.ended()
  }

  /// Passes an event that a step has made through the steps from `index` on.
  private func go(on event: UnsafeMutablePointer<Event>, from index: Int, _ own: OwnSteps?) -> Int {
    entry.pointee.isWatched || meters.isTiming ? runWatched(event, from: index, own) : run(event, from: index, own)
  }

  /// Counts an event that a step has made and given up.
  final func countMade(at index: Int) { steps[index].counters.pointee.made &+= 1 }

  final func countSkipped(at index: Int) {
    steps[index].counters.pointee.made &+= 1
    steps[index].counters.pointee.dropped &+= 1
  }

  final func id(at index: Int) -> StepID { steps[index].id }
  final func frame(at index: Int) -> EventFrame { steps[index].frame._withUnsafeGuaranteedRef { $0 } }

  /// Runs `body` so that its rejections count as rejections of the step at `index`.
  final func acting(at index: Int, _ body: () -> Void) {
    let outer = current
    current = index
    body()
    current = outer
  }

  /// The event time of a step. Chains of the same stream share it.
  final func clock(at index: Int) -> EventClock {
    guard let time = nodeContext.scope.time else { return EventClock() }
    if let known = clocks[index] { return known }
    let clock = time.clock(of: steps[index].id)
    clocks[index] = clock
    return clock
  }

  // MARK: Many chains

  /// Makes the steps of a chain.
  final func makeSteps(for chain: FusedChain) {
    let own = OwnSteps.allocate(capacity: max(1, steps.count))
    for index in steps.indices {
      let step = steps[index].step._withUnsafeGuaranteedRef { components[index].makeStep(beside: $0) }
      step.keptSize.attach(steps[index].counters)
      (own + index).initialize(to: .passRetained(step))
    }
    chain.steps = own
    chain.hasEnded = false
    attach(chain)
  }

  /// Attaches the steps of a chain to it, with their indexes. Steps without state may be attached again and then count
  /// as new.
  final func attach(_ chain: FusedChain) {
    for index in late { lateStep(index, chain.steps).attach(to: chain, of: self, at: index) }
  }

  /// Starts a chain with new steps.
  final func start(_ chain: FusedChain) { if !late.isEmpty { begin(chain.steps) } }

  /// Whether every ``LateStep`` of a chain, or of the run, is fresh.
  @inline(__always)
  final func areFresh(_ own: OwnSteps?) -> Bool {
    for index in late {
      let step = own?[index] ?? steps[index].step
      if !step._withUnsafeGuaranteedRef({ unsafeDowncast($0, to: LateStep.self).isFresh }) { return false }
    }
    return true
  }

  /// Frees a chain's steps; control may still be inside them.
  final func discard(_ chain: FusedChain) {
    guard let own = chain.steps else { return }
    chain.steps = nil
    chain.hasEnded = true
    for index in late { lateStep(index, own).stop() }
    for index in steps.indices {
      let step = own[index].takeRetainedValue()
      step.keptSize.end()
      executor.releaseLater(step)
    }
    own.deallocate()
  }

  /// Passes an event through a chain's steps, which may change it; returns whether the chain has completed.
  @inline(never)
  final func pass(_ event: UnsafeMutablePointer<Event>, through chain: FusedChain, _ own: OwnSteps) -> Bool {
    entry.pointee.credit &-= 1
    var ended = -1
    if entry.pointee.credit == 0, !entry.pausesObservation() {
      entry.watch(event.pointee) { ended = runWatched(event, from: 0, own) }
    } else {
      ended = run(event, from: 0, own)
    }
    if ended >= 0 { complete(from: ended + 1, chain) }
    return ended >= 0
  }

  /// Completes a chain, because its input is complete.
  final func complete(_ chain: FusedChain) { complete(from: 0, chain) }

  /// Completes a chain that ends before it starts.
  final func completeBeforeStart(_ chain: FusedChain) {
    if let ending = endingStep { complete(from: ending + 1, chain) }
  }

  // MARK: State

  /// Writes one record for each step, so that a step finds its record again when other steps surround it.
  override func record(_ state: inout StateWriter) {
    recordSteps(nil, &state)
    recordInputs(&state)
  }

  /// The ID of the step whose `apply` is running.
  final var currentStep: StepID { steps[current].id }

  /// The plan of the running step.
  final var step: StepPlan { execution.plan.steps[currentStep.number] }

  /// Rejects an event on behalf of the running step.
  package final func rejectRow(
    _ event: Event, _ code: Diagnostic.Code, _ message: String, at location: SourceLocation? = nil
  ) {
    execution.reject(Rejection(event, code, message, at: location), step: currentStep)
  }
}

extension FusedRun {
  /// Makes the node of a standalone fused run.
  static func make(_ plan: FusedRunPlan, _ nodeContext: NodeContext, downstream: Downstream) -> FusedRun {
    plan.leadingCondition == nil
      ? FusedRun(plan, nodeContext, downstream: downstream)
      : LeadingConditionRun(plan, nodeContext, downstream: downstream)
  }
}

extension Segment {
  var needsLoading: Bool { hasPrograms }
}
