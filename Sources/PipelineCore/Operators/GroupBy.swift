/// `groupBy`: a separate chain for each key.
struct GroupBy: OperatorComponent, TimedOperator, ChangingOperator, SpillingOperator {
  var key = ExpressionParameter()
  var chain = ChainParameter()
  var idle: TimeSpan?
  var maxGroups = 10_000

  static let feedsItsEvent = true

  /// Whether its groups may be on the disk: their steps have no timers and send nothing by themselves.
  var movesKeys: Bool {
    guard let plan = chain.plan, let run = plan.run, plan.inputs[0].origin == .input else { return false }
    return run.parts.allSatisfy { $0.steps.allSatisfy { !$0.component.sendsLater } }
  }
  var hasGroups: Bool { true }

  static let spec = ComponentSpec<GroupBy>(
    "groupBy",
    summary: "Runs a separate chain for each key and merges their events.",
    details: """
      In the chain and downstream of it, `meta.key` is the key, also of what the steps of the chain make of several \
      events and of what inner signals send. A group lives until the signal ends, or until it has \
      had no event for `idle`; then its chain completes, and a later event with the key starts a new group. A group \
      without state is discarded: see `window`. An event that would need more than `maxGroups` groups goes to the \
      errors output. At the end the groups complete in the order of their creation; what steps at the start of the \
      chains still hold because its time has not come (windows, buffers) is sent in the order of its time, the \
      earliest first, as it would have been later.

      With `state: { memory: SIZE }` at the top of the file, groups whose keys have not come for the longest time are kept on the disk, if \
      all steps of the chain answer each event at once and have no timers, such as `scan`, `distinct`, or `aggregate` without `emit`.
      """,
    parameters: [
      .init("key", \.key, primary: true, required: true, "The key: a text, number, boolean, null or a list of these."),
      .init("chain", \.chain, required: true, "The steps for each group; `[]` has none."),
      .init("idle", \.idle, range: 1...Int64.max, "How long a group may have no events."),
      .init("maxGroups", \.maxGroups, range: 1...10_000_000, "The largest number of groups."),
    ],
    examples: [
      .marble(
        "a count for each", "groupBy: { key: event, chain: [ { scan: { start: 0, next: running + 1 } } ] }",
        in: "a-b-a|", out: "1-1-2|")
    ],
    edges: EdgeCases(
      error: "Passed on at once; the groups end with it.",
      completion: "Sends what windows of all groups hold, the earliest first; completes the groups, then itself.",
      disposal: "Unsubscribes from the input and cancels all groups with their timers."),
    memory: "The state of each group's chain, at most `maxGroups`; with `idle`, one timer each.",
    persistence: .state(version: 5),
    lateness: .always("a group that was idle for too long is closed") { group, _ in
      group.idle == nil ? "it keeps no time without 'idle'" : nil
    },
    knownAs: ["RxJS groupBy with mergeMap", "Riemann by"],
    useCases: [
      .init(
        .gathering, "treat each customer, host or device by itself",
        "groupBy: { key: event.host, chain: [ distinctUntilChanged ] }"),
      .init(
        .gathering, "count by key in windows",
        "groupBy: { key: string(event.status), chain: [ { window: { every: 1m, to: \"{'n': size(events)}\" } } ] }"),
      .init(
        .time, "limit the rate of each client",
        "groupBy: { key: event.client, chain: [ { rateLimit: { count: 10, per: 1s } } ] }"),
      .init(
        .time, "notice each host that falls silent",
        "groupBy: { key: event.host, idle: 1h, chain: [ { absence: { after: 5m, only: true } } ] }"),
    ],
    seeAlso: ["scan", "distinctUntilChanged"])

  func outputType(_ inputs: [EventType]) -> EventType { chain.plan?.type ?? inputs.first ?? .dyn }

  func changes(_ input: Changes) -> Changes { chain.plan.map(\.type.changes) ?? input }
  /// The steps of the chain decide.
  func understands(_ input: Changes) -> Bool { true }

  /// The chains keep event time where they are fused, so that their steps can share one clock.
  var timing: Timing {
    guard let plan = chain.plan else { return .passes }
    return plan.type.isTimed && (plan.run != nil || plan.origin == .input) ? .passes : .ends
  }

  func makeNode(_ nodeContext: NodeContext, downstream: Downstream) -> OperatorNode {
    Node(self, nodeContext, downstream)
  }

  final class Node: MultiInletNode {
    final class Group: FusedChain, TimerTarget {
      private let node: Unmanaged<Node>
      private var ownKey: HeldValue
      /// The number of its key's text; -1 once the text is forgotten.
      var number: Int
      /// One more than the number of groups created before it.
      var token: Int
      var timer = Wake.none
      /// Feeds the group's chain if that contains more than fused steps.
      let subject: Subject?
      /// Whether its chain was restored from a saved state.
      var hasChain = false

      init(_ node: Node, _ number: Int, _ key: Value, _ token: Int, _ subject: Subject?) {
        self.node = .passUnretained(node)
        self.subject = subject
        self.number = number
        self.token = token
        ownKey = HeldValue(key)
      }

      deinit { ownKey.free() }

      /// Reuses the object for another group. Emitted values with the old key stay valid until the end of the turn.
      func become(_ number: Int, _ key: Value, _ token: Int, _ arena: Arena) {
        self.number = number
        self.token = token
        ownKey.free(after: arena)
        ownKey = HeldValue(key)
      }

      override var key: Value { ownKey.value }
      override func ended() { node._withUnsafeGuaranteedRef { $0.end(self) } }
      override func acts() { node._withUnsafeGuaranteedRef { $0.mark(self) } }
      override func becameFresh() { node._withUnsafeGuaranteedRef { $0.forgetIfFresh(self) } }
      func woke(_ token: Int) { node._withUnsafeGuaranteedRef { $0.wasIdle(self) } }
    }

    /// Emits the events of the groups' shared run.
    private final class Outlet: Downstream {
      private let node: Unmanaged<Node>
      init(_ node: Node) {
        self.node = .passUnretained(node)
        super.init()
      }
      override func receive(_ event: Event) { node._withUnsafeGuaranteedRef { $0.emit(event) } }
      override func fail(_ failure: SignalFailure) { node._withUnsafeGuaranteedRef { $0.finish(failing: failure) } }
    }

    let parameters: GroupBy
    private let plan: SignalPlan?
    private let program: Program
    private let frame: EventFrame
    /// The frames in which the groups' chains evaluate.
    private let frames = SharedFrames()
    /// The groups are parts of one stream; inside another `groupBy`, they belong to the stream of that one.
    private let time: StreamTime
    /// The keys as ``KeyText``.
    let known = KeyTable()
    /// The groups by the number of the key's text, retained.
    @exclusivity(unchecked) var groups: [Unmanaged<Group>?] = []
    /// The groups whose chains are being created or restored, by token.
    private var opening: [Int: Group] = [:]
    let pages = StatePages()
    private(set) var created = 0
    private(set) var outerEnded = false
    /// One run for all groups, if their chain consists only of fused steps; each group then has its own state of the
    /// steps.
    private(set) var shared: FusedRun?
    /// The same run, unmanaged, to avoid retain and release.
    @exclusivity(unchecked) private var run: Unmanaged<FusedRun>?
    /// Whether groups whose state equals that of a new group are discarded.
    private let forgets: Bool
    /// Discarded groups with their steps, to be reused for the next keys; retained.
    @exclusivity(unchecked) private var spare: [Unmanaged<Group>] = []
    private static let spareLimit = 1000
    private var outlet: Outlet?
    /// The number of groups of the shared run whose chains have not completed.
    var running = 0 { didSet { counters.pointee.groups &+= running &- oldValue } }
    let buffer = OutputBuffer()
    /// The groups on the disk; nil: all stay in memory.
    var spilled: SpilledValues?
    var disk = Disk()
    /// The steps that use the event time of the stream, if the groups share no run.
    private lazy var followers =
      plan?.endingSteps.filter { execution.plan.components[$0.number].map(Self.follows) ?? false } ?? []

    init(_ parameters: GroupBy, _ nodeContext: NodeContext, _ downstream: Downstream) {
      self.parameters = parameters
      plan = parameters.chain.plan
      forgets = parameters.chain.plan?.isForgettable ?? false
      program = parameters.key.required
      frame = .make(nodeContext)
      time = nodeContext.scope.time ?? StreamTime(origin: nodeContext.execution.executor.now)
      super.init(nodeContext, downstream: downstream)
      share(makeSharedRun())
    }

    deinit {
      for group in groups { group?.release() }
      for group in spare { group.release() }
    }

    private func share(_ run: FusedRun?) {
      shared = run
      self.run = run.map { .passUnretained($0) }
    }

    private func makeSharedRun() -> FusedRun? {
      guard let plan, let run = plan.run, plan.inputs[0].origin == .input else { return nil }
      let outlet = Outlet(self)
      self.outlet = outlet
      return FusedRun(
        run, execution.nodeContext(plan, nodeContext.scope.with(time: time)), downstream: outlet)
    }

    override func receive(_ event: Event) {
      guard isReadable(event, frame) else { return }
      if let failure = KeyText.failureToWrite(program, frame, to: buffer) {
        if failed(event, failure, program, frame) { emit(event) }
        return
      }
      guard let group = group(of: event) else { return }
      group._withUnsafeGuaranteedRef { group in
        mark(group)
        if let idle = parameters.idle {
          cancelWake(&group.timer)
          group.timer = executor.wake(at: now + idle, group)
        }
        var event = Event(event.value, key: group.key, from: event.origin, position: event.position)
        if let run {
          guard let steps = group.steps else { return countDropped(event) }
          let hasEnded = withUnsafeMutablePointer(to: &event) { event in
            run._withUnsafeGuaranteedRef { $0.pass(event, through: group, steps) }
          }
          if hasEnded { end(group) } else if forgets { forgetIfFresh(group) }
        } else if let subject = group.subject {
          if !subject.isRead { countDropped(event) }
          subject.receive(event)
          if forgets { forgetIfFresh(group) }
        } else {
          emit(event)
        }
      }
      if spilled != nil { moveGroups() }
    }

    /// The group of the loaded event; `buffer` must contain the text of its key.
    @inline(__always)
    private func group(of event: Event) -> Unmanaged<Group>? {
      let hash = known.hash(buffer.bytes)
      if let number = known.find(buffer.bytes, hash) { return groups[number] }
      if let spilled, spilled.count > 0 {
        guard bringBackGroup(of: event, spilled) else { return nil }
        if let number = known.find(buffer.bytes, hash) { return groups[number] }
      }
      return newGroup(of: event, hash)
    }

    @inline(never)
    private func newGroup(of event: Event, _ hash: UInt64) -> Unmanaged<Group>? {
      guard count < parameters.maxGroups else {
        reject(event, .limitReached, "groupBy has \(count) groups, its limit `maxGroups`")
        return nil
      }
      created += 1
      let held = make(known.insert(buffer.bytes, hash), program.evaluate(frame), created)
      held._withUnsafeGuaranteedRef { group in
        if let plan, let subject = group.subject {
          opening[group.token] = group
          open(plan, number: group.token, scope(of: group, subject, nodeContext.scope))
          opening[group.token] = nil
        } else if let run {
          run._withUnsafeGuaranteedRef { run in
            if run.endsBeforeStart {
              run.completeBeforeStart(group)
              end(group)
            } else {
              run.start(group)
            }
          }
        }
      }
      return held
    }

    private func scope(of group: Group, _ subject: Subject, _ outer: Scope) -> Scope {
      outer.with(
        subject: subject, key: OwnedValue(group.key), frames: frames, time: time, chain: group)
    }

    /// The group is retained by ``groups``.
    func make(_ number: Int, _ key: Value, _ token: Int, mayBeOnDisk: Bool = false) -> Unmanaged<Group> {
      let held: Unmanaged<Group>
      if let run, let again = spare.popLast() {
        held = again
        again._withUnsafeGuaranteedRef { group in
          group.become(number, key, token, arena)
          run._withUnsafeGuaranteedRef { $0.attach(group) }
        }
        running += 1
      } else {
        let needsSubject = plan != nil && shared == nil
        let group = Group(self, number, key, token, needsSubject ? Subject(hasEnded: outerEnded) : nil)
        if let shared {
          shared.makeSteps(for: group)
          running += 1
        }
        held = .passRetained(group)
      }
      while groups.count <= number { groups.append(nil) }
      groups[number] = held
      pages.mark(number)
      spilled?.add(number, mayBeOnDisk: mayBeOnDisk)
      countKept()
      return held
    }

    private var count: Int { known.count + (spilled?.count ?? 0) }

    func countKept() { keptSize.set(keys: count, bytes: known.textBytes) }

    /// Forgets the group's key. The caller must release the group.
    private func forget(_ group: Group) -> Unmanaged<Group>? {
      guard let held = groups[group.number] else { return nil }
      groups[group.number] = nil
      pages.mark(group.number)
      spilled?.forget(group.number, known.text(group.number))
      known.remove(group.number)
      countKept()
      group.number = -1
      cancelWake(&group.timer)
      return held
    }

    /// Releases a forgotten group at the end of the turn, because its code may still be on the stack.
    func release(_ held: Unmanaged<Group>) { executor.releaseLater(held.takeRetainedValue()) }

    /// Discards a group if its state equals that of a new group.
    private func forgetIfFresh(_ group: Group) {
      guard forgets, !outerEnded, group.number >= 0 else { return }
      if let run {
        guard let steps = group.steps, run._withUnsafeGuaranteedRef({ $0.areFresh(steps) }), let held = forget(group)
        else { return }
        running -= 1
        if spare.count < Self.spareLimit {
          spare.append(held)
        } else {
          run._withUnsafeGuaranteedRef { $0.discard(group) }
          release(held)
        }
      } else {
        guard group.runs.allSatisfy({ $0._withUnsafeGuaranteedRef { $0.areFresh(nil) } }), let held = forget(group)
        else { return }
        if let inlet = inlets.first(where: { $0.number == group.token }) { drop(inlet) }
        release(held)
      }
    }

    /// Marks the group's saved state as changed. Nothing is saved for a group whose key has been removed.
    private func mark(_ group: Group) {
      guard group.number >= 0 else { return }
      pages.mark(group.number)
      spilled?.change(group.number)
    }

    /// Handles the completion of a chain in the shared run.
    func end(_ group: Group) {
      guard group.steps != nil else { return }
      mark(group)
      running -= 1
      shared?.discard(group)
      finishIfOver()
    }

    private static func follows(_ component: any Component) -> Bool {
      (component as? any TimedOperator)?.followsStream ?? false
    }

    /// Completes all groups. Timed outputs are sent in the order of their times, whichever group holds them.
    private func completeAll() {
      if let spilled, spilled.count > 0 { return completeInOrder(spilled) }
      let groups = inOrder.filter { $0.number >= 0 }
      for step in plan?.endingSteps ?? [] {
        FusedRun.sendOutputs(
          of: groups.flatMap { group -> [LateStep] in
            if let shared { return [shared.lateStep(step, of: group)].compactMap { $0 } }
            return group.runs.compactMap { $0._withUnsafeGuaranteedRef { $0.lateStep(step) } }
          })
      }
      // Groups without a timed output come first.
      let waiting = groups.map { ($0, $0.nextOutput ?? Due(Instant(nanoseconds: .min), 0)) }
      for (group, _) in waiting.sorted(by: { ($0.1, $0.0.token) < ($1.1, $1.0.token) }) { complete(group) }
    }

    /// Completes the group.
    func complete(_ group: Group) {
      group.subject?.complete()
      guard let shared, group.steps != nil else { return }
      mark(group)
      shared.complete(group)
      end(group)
    }

    override func receive(_ event: Event, from inlet: Inlet) {
      var event = event.copied
      if let owner = inlet.owner {
        event.key = owner._withUnsafeGuaranteedRef { unsafeDowncast($0, to: Group.self).key }
      }
      emit(event)
    }

    override func owner(number: Int) -> AnyObject? { opening[number] }

    override var holdsForInner: Bool { false }

    override func completed(_ inlet: Inlet) {
      // The group of a chain that completes early (`take`) stays known, so that its key does not start a new one.
      drop(inlet)
      finishIfOver()
    }

    /// Called when the group has had no event for `idle`.
    private func wasIdle(_ group: Group) {
      guard !isClosed, group.number >= 0 else { return }
      group.timer = .none
      let held = forget(group)
      complete(group)
      if let held { release(held) }
    }

    /// The groups in the order of their creation.
    var inOrder: [Group] {
      groups.compactMap { $0?.takeUnretainedValue() }.sorted { $0.token < $1.token }
    }

    /// The steps of all groups share the clocks, which advance step by step: what one step sends comes before the next one advances.
    override func advance(to time: Int64) {
      if let shared {
        shared.advance(to: time)
      } else {
        for step in followers { self.time.clock(of: step).advance(to: time) }
      }
      passOn(time)
    }

    override func complete() {
      outerEnded = true
      cancelWake(&disk.idleTimer)
      completeAll()
      finishIfOver()
    }

    func finishIfOver() {
      if outerEnded, inletCount == 0, running == 0 { finish() }
    }

    override func woke(_ token: Int) { timerCame(token) }

    override func stop() {
      cancelWake(&disk.idleTimer)
      cancelWake(&disk.completionTimer)
      spilled = nil
      for group in inOrder {
        group.number = -1
        cancelWake(&group.timer)
        executor.releaseLater(group)
        shared?.discard(group)
      }
      for group in groups { group?.release() }
      groups = []
      for held in spare {
        held._withUnsafeGuaranteedRef { shared?.discard($0) }
        release(held)
      }
      spare = []
      running = 0
      shared?.cancel()
      known.removeAll()
      super.stop()
    }

    override func save(_ state: inout StateWriter) {
      state.write(created)
      state.write(outerEnded)
      let ownsTime = nodeContext.scope.time == nil
      state.write(ownsTime)
      if ownsTime { time.save(&state, execution.plan) }
      state.write(shared != nil)
      state.write(pages, keys: groups.count) { state, numbers in
        for case let group? in groups[numbers] { group._withUnsafeGuaranteedRef { save($0, &state) } }
      }
      saveGroupsOnDisk(&state)
    }

    private func save(_ group: Group, _ state: inout StateWriter) {
      state.write(group.token)
      state.write(value: group.key)
      state.write(group.timer)
      guard let shared else { return }
      state.write(group.steps != nil)
      if let steps = group.steps { state.part { shared.recordSteps(steps, &$0) } }
    }

    override func restore(_ state: inout StateReader) throws(StateFault) {
      guard state.version >= 3 else { throw StateFault("an older version of rxd wrote it in another format") }
      created = try state.read()
      outerEnded = try state.read()
      if try state.read(Bool.self) { try time.restore(&state, execution.plan) }
      // Whether the groups shared a run when they were saved.
      if !(try state.read(Bool.self)) {
        share(nil)
      } else if shared == nil {
        throw StateFault("its groups had other chains")
      }
      if state.version > 3 {
        try state.readPages(pages, restoreGroup)
        if state.version > 4, try state.read(Bool.self) { try restoreGroupsOnDisk(&state) }
      } else {
        for _ in 0..<(try state.count()) { try restoreGroup(&state, nil) }
      }
      if shared != nil, outerEnded, spilled == nil {
        throw StateFault("its input had ended, and its groups with it")
      }
    }

    private func restoreGroup(_ state: inout StateReader, _ number: Int?) throws(StateFault) {
      let token = try state.read(in: 1...max(created, 1))
      let key = try state.read(OwnedValue.self)
      buffer.clear()
      KeyText.append(key.value, to: buffer, Context(state: frame.evaluation))
      guard opening[token] == nil, let number = known.insertNew(buffer.bytes, at: number) else {
        throw StateFault("two groups have one key")
      }
      let group = make(number, key.value, token).takeUnretainedValue()
      // Chains of their own are restored after all groups.
      if shared == nil { opening[token] = group }
      group.timer = try state.readTimer(of: group)
      if let shared { try restore(group, shared, &state) }
    }

    private func restore(_ group: Group, _ shared: FusedRun, _ state: inout StateReader) throws(StateFault) {
      guard try state.read(Bool.self), group.steps != nil else {
        end(group)
        return
      }
      var records = try state.part()
      if let restoration = execution.restoration { try shared.restoreSteps(&records, restoration, of: group) }
      shared.start(group)
    }

    override func restored() {
      opening = [:]
      completeRest()
    }

    override func scope(_ saved: Scope, number: Int) throws(StateFault) -> Scope {
      guard let group = opening[number] else {
        // The group was idle for too long: its chain still sends what it holds, but receives nothing more.
        guard (1...max(created, 1)).contains(number) else { throw StateFault("a group is unknown") }
        return saved.with(subject: Subject(hasEnded: true), time: time)
      }
      guard !group.hasChain else { throw StateFault("a group has two chains") }
      group.hasChain = true
      return scope(of: group, group.subject ?? Subject(hasEnded: true), saved)
    }
  }
}
