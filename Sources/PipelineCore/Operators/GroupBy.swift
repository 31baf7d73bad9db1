/// `groupBy`: a chain of its own for each key.
struct GroupBy: OperatorComponent {
  var key = ExpressionParameter()
  var chain = ChainParameter()
  var idle: TimeSpan?
  var maxGroups = 10_000

  static let feedsItsEvent = true

  static let spec = ComponentSpec<GroupBy>(
    "groupBy",
    summary: "Runs a chain of its own for each key and merges what they send.",
    details: """
      Inside the chain and below it, `meta.key` is the key. A group lives until the signal ends, or \
      until it has had no event for `idle`; then its chain completes, and a later event of the key \
      begins a new one. An event that would make more than `maxGroups` groups goes to the errors \
      output. At the end the groups complete in the order in which they came into being.
      """,
    parameters: [
      .init("key", \.key, primary: true, required: true, "The key: a text, number, boolean, null or a list of such."),
      .init("chain", \.chain, "The steps for each group."),
      .init("idle", \.idle, range: 1...Int64.max, "How long a group may have no events."),
      .init("maxGroups", \.maxGroups, range: 1...10_000_000, "The most groups at a time."),
    ],
    examples: [
      .marble(
        "a count for each", "groupBy: { key: event, chain: [ { scan: { start: 0, next: running + 1 } } ] }",
        in: "a-b-a|", out: "1-1-2|")
    ],
    edges: EdgeCases(
      error: "Passed on at once; the groups end with it.",
      completion: "Completes all groups, in the order in which they came into being, then itself.",
      disposal: "Leaves the input and all groups with their timers."),
    keeps: "The state of each group's chain, at most `maxGroups`; with `idle`, one timer each.",
    carries: .state(version: 2),
    rivals: ["RxJS groupBy with mergeMap", "Riemann by"],
    wants: [
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
        .time, "hear of each host that falls silent",
        "groupBy: { key: event.host, idle: 1h, chain: [ { absence: { after: 5m, only: true } } ] }"),
    ],
    seeAlso: ["scan", "distinctUntilChanged"])

  func outputType(_ inputs: [EventType]) -> EventType { chain.plan?.type ?? inputs.first ?? .dyn }

  func makeNode(_ seat: Seat, downstream: Downstream) -> OperatorNode { Node(self, seat, downstream) }

  final class Node: MultiInletNode {
    private final class Group {
      let key: OwnedValue
      /// Its own steps, where the groups share a run; nil when its chain has completed.
      var steps: RowRun.OwnSteps?
      /// Whether its chain was found in a saved state.
      var hasChain = false
      /// The number of its key's text.
      let number: Int
      let token: Int
      var timer = Wake.none
      /// What feeds its chain, where that is more than row-wise steps.
      let subject: Subject?

      init(_ number: Int, _ key: Value, _ token: Int, _ subject: Subject?) {
        self.subject = subject
        self.number = number
        self.key = OwnedValue(key)
        self.token = token
      }
    }

    /// Passes on what the groups' shared run sends.
    private final class Outlet: Downstream {
      private let node: Unmanaged<Node>
      init(_ node: Node) {
        self.node = .passUnretained(node)
        super.init()
      }
      override func receive(_ event: Event) { node._withUnsafeGuaranteedRef { $0.emit(event) } }
      override func fail(_ failure: SignalFailure) { node._withUnsafeGuaranteedRef { $0.finish(failing: failure) } }
    }

    private let idle: TimeSpan?
    private let maxGroups: Int
    private let plan: SignalPlan?
    private let program: Program
    private let frame: EventFrame
    /// Where the chains of the groups evaluate.
    private let frames = SharedFrames()
    /// By the key as ``KeyText``.
    private let known = KeyTable()
    /// By the number of the key's text; `byToken` keeps them alive.
    private var groups: [Unmanaged<Group>?] = []
    private var byToken: [Int: Group] = [:]
    private var created = 0
    private var outerEnded = false
    /// One run for all groups, if their chain has row-wise steps only: of a group nothing but its steps is made.
    private var shared: RowRun?
    /// The same, without counting references.
    @exclusivity(unchecked) private var run: Unmanaged<RowRun>?
    private var outlet: Outlet?
    /// Groups of the shared run whose chains have not completed.
    private var running = 0
    private let buffer = OutputBuffer()

    init(_ parameters: GroupBy, _ seat: Seat, _ downstream: Downstream) {
      idle = parameters.idle
      maxGroups = parameters.maxGroups
      plan = parameters.chain.plan
      program = parameters.key.required
      frame = .make(seat)
      super.init(seat, downstream: downstream)
      share(makeSharedRun())
    }

    private func share(_ run: RowRun?) {
      shared = run
      self.run = run.map { .passUnretained($0) }
    }

    private func makeSharedRun() -> RowRun? {
      // Who looks at subscriptions sees each.
      guard let plan, execution.subscriptionProbe == nil else { return nil }
      let input: SignalPlan
      switch plan.kind {
      case .run(_, let origin): input = origin
      case .node(_, _, let inputs) where inputs.count == 1: input = inputs[0]
      default: return nil
      }
      guard case .input = input.kind, let run = plan.run else { return nil }
      let outlet = Outlet(self)
      self.outlet = outlet
      return RowRun(run, execution.seat(plan, seat.scope, .empty, [input]), downstream: outlet)
    }

    override func receive(_ event: Event) {
      if let failure = frame.load(event) {
        reject(event, .eventNotReadable, EventFrame.message(of: failure))
        return
      }
      buffer.clear()
      if !KeyText.append(listOf: program, frame, to: buffer) {
        let key = program.evaluate(frame)
        if key.isError {
          if failed(event, key, program, frame) { emit(event) }
          return
        }
        buffer.clear()
        KeyText.append(key, to: buffer, Context(state: frame.evaluation))
      }
      guard let group = group(of: event) else { return }
      group._withUnsafeGuaranteedRef { group in
        if let idle {
          cancelWake(&group.timer)
          group.timer = wake(after: idle, group.token)
        }
        var event = Event(event.value, key: group.key.value, from: event.origin, position: event.position)
        if let run {
          guard let steps = group.steps else { return }
          let hasEnded = withUnsafeMutablePointer(to: &event) { event in
            run._withUnsafeGuaranteedRef { $0.pass(event, through: steps) }
          }
          if hasEnded { end(group) }
        } else if let subject = group.subject {
          subject.receive(event)
        } else {
          emit(event)
        }
      }
    }

    /// The group of the event in the frame; the text of its key is in `buffer`.
    @inline(__always)
    private func group(of event: Event) -> Unmanaged<Group>? {
      let hash = known.hash(buffer.bytes)
      if let number = known.find(buffer.bytes, hash) { return groups[number] }
      return newGroup(of: event, hash)
    }

    @inline(never)
    private func newGroup(of event: Event, _ hash: UInt64) -> Unmanaged<Group>? {
      guard known.count < maxGroups else {
        reject(event, .limitReached, "groupBy has \(known.count) groups, its bound `maxGroups`")
        return nil
      }
      created += 1
      let group = make(known.insert(buffer.bytes, hash), program.evaluate(frame), created)
      if let plan, let subject = group.subject {
        open(plan, number: group.token, seat.scope.with(subject: subject, frames: frames))
      } else if let shared, shared.endsBeforeStart {
        end(group)
      }
      return .passUnretained(group)
    }

    private func make(_ number: Int, _ key: Value, _ token: Int) -> Group {
      let needsSubject = plan != nil && shared == nil
      let group = Group(number, key, token, needsSubject ? Subject(hasEnded: outerEnded) : nil)
      if let shared {
        group.steps = shared.makeSteps()
        running += 1
      }
      while groups.count <= number { groups.append(nil) }
      groups[number] = .passUnretained(group)
      byToken[token] = group
      return group
    }

    /// The chain of a group of the shared run has completed.
    private func end(_ group: Group) {
      guard let steps = group.steps else { return }
      group.steps = nil
      running -= 1
      shared?.discard(steps)
      finishIfOver()
    }

    /// Nothing more comes for the group.
    private func complete(_ group: Group) {
      group.subject?.complete()
      guard let shared, let steps = group.steps else { return }
      shared.complete(steps, key: group.key.value)
      end(group)
    }

    override func receive(_ event: Event, from inlet: Inlet) {
      var event = event.copied
      if let owner = inlet.owner {
        event.key = owner._withUnsafeGuaranteedRef { unsafeDowncast($0, to: Group.self).key.value }
      }
      emit(event)
    }

    override func owner(number: Int) -> AnyObject? { byToken[number] }

    override func completed(_ inlet: Inlet) {
      // A chain that ends by itself (`take`) stays known, so that its key does not begin anew.
      drop(inlet)
      finishIfOver()
    }

    override func woke(_ token: Int) {
      guard let group = byToken[token] else { return }
      group.timer = .none
      groups[group.number] = nil
      known.remove(group.number)
      executor.bury(group)
      complete(group)
      byToken[token] = nil
    }

    override func complete() {
      outerEnded = true
      for token in byToken.keys.sorted() {
        if let group = byToken[token] { complete(group) }
      }
      finishIfOver()
    }

    private func finishIfOver() {
      if outerEnded, inlets.isEmpty, running == 0 { finish() }
    }

    override func stop() {
      for group in byToken.values {
        cancelWake(&group.timer)
        executor.bury(group)
        if let steps = group.steps { shared?.discard(steps) }
        group.steps = nil
      }
      running = 0
      shared?.cancel()
      groups = []
      known.removeAll()
      byToken = [:]
      super.stop()
    }

    override func save(_ state: inout StateWriter) {
      state.write(created)
      state.write(outerEnded)
      state.write(shared != nil)
      state.write(each: byToken.keys.sorted()) { state, token in
        let group = byToken[token]
        state.write(token)
        state.write(value: group?.key.value ?? .null)
        state.write(group?.timer ?? .none)
        guard let shared else { return }
        state.write(group?.steps != nil)
        if let steps = group?.steps { state.part { shared.recordSteps(steps, &$0) } }
      }
    }

    override func restore(_ state: inout StateReader) throws(StateFault) {
      created = try state.read()
      outerEnded = try state.read()
      // As the groups were when they were saved.
      if !(try state.read(Bool.self)) {
        share(nil)
      } else if shared == nil {
        throw StateFault("its groups had other chains")
      } else if outerEnded {
        throw StateFault("its input had ended, and its groups with it")
      }
      for _ in 0..<(try state.count()) {
        let token = try state.read(in: 1...max(created, 1))
        let key = try state.read(OwnedValue.self)
        buffer.clear()
        KeyText.append(key.value, to: buffer, Context(state: frame.evaluation))
        let hash = known.hash(buffer.bytes)
        guard byToken[token] == nil, known.find(buffer.bytes, hash) == nil else {
          throw StateFault("two groups have one key")
        }
        let group = make(known.insert(buffer.bytes, hash), key.value, token)
        group.timer = try state.read()
        if let shared { try restore(group, shared, &state) }
      }
    }

    private func restore(_ group: Group, _ shared: RowRun, _ state: inout StateReader) throws(StateFault) {
      guard try state.read(Bool.self), let steps = group.steps else {
        end(group)
        return
      }
      let section = try Restoration.Section(state.part())
      execution.restoration?.within(section) {
        if let restoration = execution.restoration { shared.restoreSteps(restoration, of: steps) }
      }
    }

    override func scope(_ saved: Scope, number: Int) throws(StateFault) -> Scope {
      guard let group = byToken[number] else {
        // The group was idle too long; its chain still sends what it holds, and gets nothing more.
        guard (1...max(created, 1)).contains(number) else { throw StateFault("a group is unknown") }
        return saved.with(subject: Subject(hasEnded: true))
      }
      guard !group.hasChain else { throw StateFault("a group has two chains") }
      group.hasChain = true
      return saved.with(subject: group.subject ?? Subject(hasEnded: true), frames: frames)
    }
  }
}
