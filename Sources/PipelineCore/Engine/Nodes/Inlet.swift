/// One of several inputs of a node: forwards events to the node with its number.
///
/// It ends when its signal ends or when it is cancelled, and forwards nothing afterwards.
final class Inlet: Downstream {
  private let node: Unmanaged<MultiInletNode>
  let number: Int
  fileprivate unowned(unsafe) let signal: SignalPlan
  /// The scope of its signal.
  let scope: Scope
  /// The node's object for this inlet, if any: ``MultiInletNode/owner(number:)``.
  let owner: Unmanaged<AnyObject>?
  private let keptOwner: AnyObject?
  // Nodes run on one thread at a time, and no access outlasts a load or a store.
  @exclusivity(unchecked) fileprivate(set) var hasEnded = false
  fileprivate var upstream: (any Subscription)?
  /// The time of the event for which the inner signal runs, which is also the time of the signal's events; unknown:
  /// they have no time, or their own.
  fileprivate(set) var time = EventTime.unknown
  /// Holds the watermark of the node at `time`, or at the watermark of the inner signal.
  fileprivate var hold = Wake.none
  /// The index in the node's list; -1: not in the list.
  fileprivate var position = -1

  init(_ node: MultiInletNode, _ number: Int, _ signal: SignalPlan, _ scope: Scope) {
    self.node = .passUnretained(node)
    self.number = number
    self.signal = signal
    self.scope = scope
    keptOwner = node.owner(number: number)
    owner = keptOwner.map { .passUnretained($0) }
    super.init()
  }

  override func receive(_ event: Event) {
    if hasEnded { return }
    node._withUnsafeGuaranteedRef { node in
      if time == EventTime.unknown { return node.receive(event, from: self) }
      node.executor.withEventTime(time) { node.receive(event, from: self) }
    }
  }

  override func advance(to time: Int64) {
    if !hasEnded { node._withUnsafeGuaranteedRef { $0.advance(to: time, from: self) } }
  }

  override func complete() {
    guard !hasEnded else { return }
    end()
    node._withUnsafeGuaranteedRef {
      $0.completed(self)
      $0.endHold(self)
    }
  }

  override func fail(_ failure: SignalFailure) {
    guard !hasEnded else { return }
    end()
    node._withUnsafeGuaranteedRef { $0.failed(self, failure) }
  }

  /// The ID of the node's step.
  var step: StepID { node._withUnsafeGuaranteedRef { $0.nodeContext.step } }

  func cancel() {
    guard !hasEnded else { return }
    end()
  }

  private func end() {
    hasEnded = true
    node._withUnsafeGuaranteedRef { $0.executor.releaseLater(self) }
    let current = upstream
    upstream = nil
    current?.cancel()
  }

  fileprivate func isOpenInput(_ input: Int) -> Bool { number == input && !hasEnded && isInput }

  /// Whether this is the inlet of the node's input with the same number.
  fileprivate var isInput: Bool {
    node._withUnsafeGuaranteedRef { node in
      node.nodeContext.inputs.indices.contains(number) && node.nodeContext.inputs[number] === signal
    }
  }
}

/// A node with numbered inlets, or with inner signals that come and go.
class MultiInletNode: OperatorNode {
  /// The inlets, oldest first. A dropped inlet leaves a gap: moving the others each time would cost a million moves for
  /// a thousand groups that end one after the other.
  private var slots: [Inlet?] = []
  /// The number of inlets.
  private(set) final var inletCount = 0
  /// The inlets, oldest first.
  final var inlets: [Inlet] { slots.compactMap { $0 } }

  /// Whether the inlet with this number exists and has not ended.
  final func isOpen(_ number: Int) -> Bool {
    slots.contains { inlet in inlet.map { $0.number == number && !$0.hasEnded } ?? false }
  }

  private func append(_ inlet: Inlet) {
    inlet.position = slots.count
    slots.append(inlet)
    inletCount += 1
  }

  private func remove(_ inlet: Inlet) {
    guard inlet.position >= 0, inlet.position < slots.count, slots[inlet.position] === inlet else { return }
    slots[inlet.position] = nil
    inlet.position = -1
    inletCount -= 1
    guard slots.count > 32, inletCount < slots.count / 2 else { return }
    slots.removeAll { $0 == nil }
    for (position, inlet) in slots.enumerated() { inlet?.position = position }
  }

  // MARK: Event time

  /// The watermarks of the inputs; nil: the node's events have no event time.
  private(set) final lazy var marks: InputMarks? =
    isTimed ? InputMarks(inputs: nodeContext.inputs.count, counting: timedInputs) : nil

  /// Whether an inner signal runs for one event: then its events have the time of that event, and the watermark waits
  /// for it.
  var holdsForInner: Bool { true }

  private var timing: Timing {
    nodeContext.plan?.steps.first.map { Timing.of($0.component) } ?? .ends
  }

  /// The number of inputs that determine the node's watermark from the start: all of them if the node combines their
  /// events, else the first.
  private var timedInputs: Int { timing == .all ? nodeContext.inputs.count : min(1, nodeContext.inputs.count) }

  override func advance(to time: Int64) { passOn(time) }

  /// Passes on the new watermark of the first input.
  final func passOn(_ time: Int64) { move(marks?.set(time, of: 0)) }

  /// Called when the watermark of an input with an inlet, or of an inner signal, has moved.
  func advance(to time: Int64, from inlet: Inlet) {
    guard let marks else { return }
    if inlet.isInput {
      // The next input has not begun yet.
      if time == EventTime.end, timing == .inTurn, inlet.number + 1 < nodeContext.inputs.count { return }
      move(marks.set(time, of: inlet.number))
    } else if inlet.signal.isTimed {
      marks.release(&inlet.hold)
      inlet.hold = marks.hold(at: time)
      move(marks.next())
    }
  }

  /// Sends the watermark, if it has advanced. A node whose watermark must stay behind waiting events overrides this.
  func move(_ time: Int64?) { if let time { sendAdvance(to: time) } }

  /// Ends the hold of the inlet: its signal has ended, and the effects of the end have been sent.
  fileprivate final func endHold(_ inlet: Inlet) {
    guard isTimed, let marks else { return }
    marks.release(&inlet.hold)
    move(inlet.isInput ? marks.set(EventTime.end, of: inlet.number) : marks.next())
  }

  func receive(_ event: Event, from inlet: Inlet) { emit(event) }
  /// The object that the inlet with this number stores and passes back with each event; called when the inlet opens.
  func owner(number: Int) -> AnyObject? { nil }
  func completed(_ inlet: Inlet) {}
  func failed(_ inlet: Inlet, _ failure: SignalFailure) { finish(failing: failure) }

  /// Subscribes `signal` into a new inlet, which is in `inlets` before the first event. The inlet of an input has the
  /// number of the input; the node numbers the inlets of inner signals.
  @discardableResult
  final func open(_ signal: SignalPlan, number: Int = 0, _ scope: Scope? = nil) -> Inlet {
    guard let restoration = execution.restoration, !nodeContext.inputs.contains(where: { $0 === signal }) else {
      return attach(signal, number, scope ?? nodeContext.scope)
    }
    // A node without saved state starts its inner signals empty, too.
    return restoration.within(.init()) { attach(signal, number, scope ?? nodeContext.scope) }
  }

  private func attach(_ signal: SignalPlan, _ number: Int, _ scope: Scope) -> Inlet {
    let inlet = Inlet(self, number, signal, scope)
    if executor.eventTime != EventTime.unknown, holdsForInner, !inlet.isInput, let marks {
      inlet.hold = marks.hold(at: executor.eventTime)
      if !signal.isTimed { inlet.time = executor.eventTime }
    }
    if isTimed, timing == .inTurn, inlet.isInput { _ = marks?.set(EventTime.unknown, of: number) }
    // Start nothing for a node that has ended.
    guard !isClosed else {
      inlet.hasEnded = true
      return inlet
    }
    append(inlet)
    let subscription = execution.subscribe(signal, scope, to: inlet)
    if inlet.hasEnded { subscription.cancel() } else { inlet.upstream = subscription }
    return inlet
  }

  /// Removes an inlet from `inlets` and cancels it unless it has ended.
  final func drop(_ inlet: Inlet) {
    // The inlet may be dropped while it hands over an event, and only the list retains it.
    if !inlet.hasEnded { executor.releaseLater(inlet) }
    remove(inlet)
    let isOpen = !inlet.hasEnded
    inlet.cancel()
    if isOpen { endHold(inlet) }
  }

  // MARK: State

  /// The scope with which a saved inner signal is reopened: the saved values of `outer` and `error`, and the additions
  /// of a subclass. Called after `restore`. A subclass that interprets the number validates it here, because saved
  /// bytes may be damaged.
  func scope(_ saved: Scope, number: Int) throws(StateFault) -> Scope { saved }

  final override func recordInlets(_ state: inout StateWriter) {
    let inlets = inlets
    let inner = inlets.isEmpty ? [] : nodeContext.innerPlans
    state.write(each: inlets) { state, inlet in
      state.write(inlet.number)
      let isOpen = !inlet.hasEnded
      state.write(isOpen)
      guard isOpen else { return }
      let input = nodeContext.inputs.firstIndex { $0 === inlet.signal }
      state.write(input)
      if input != nil { return }
      state.write(inner.firstIndex { $0 === inlet.signal } ?? -1)
      inlet.scope.save(&state)
      state.part { state in
        if let upstream = inlet.upstream { execution.record(upstream, of: inlet.signal, &state) }
      }
    }
  }

  final override func recordTimes(_ state: inout StateWriter) {
    let held = inlets.map(\.time)
    guard isTimed, held.contains(where: { $0 != EventTime.unknown }) || hasFurtherTimes else { return }
    state.write(each: held)
    saveTimes(&state)
  }

  final override func restoreTimes(_ state: inout StateReader, _ inlets: [SavedInlet]) throws(StateFault) {
    let times = try state.read([Int64].self)
    guard times.count == inlets.count else { throw StateFault("it has other inner signals") }
    for (inlet, time) in zip(inlets, times) { inlet.time = time }
    try restoreTimes(&state)
  }

  /// Whether ``saveTimes(_:)`` has something to write.
  var hasFurtherTimes: Bool { false }
  /// Writes the times of the events that a subclass holds.
  func saveTimes(_ state: inout StateWriter) {}
  func restoreTimes(_ state: inout StateReader) throws(StateFault) {}

  final override func record(_ state: inout StateWriter) {
    super.record(&state)
    for inlet in inlets where !inlet.hasEnded {
      if let upstream = inlet.upstream, nodeContext.inputs.contains(where: { $0 === inlet.signal }) {
        execution.record(upstream, of: inlet.signal, &state)
      }
    }
  }

  final override func savedInlets(_ state: inout StateReader) throws(StateFault) -> [SavedInlet] {
    let inner = nodeContext.innerPlans
    var inlets: [SavedInlet] = []
    var inputs: Set<Int> = []
    for _ in 0..<(try state.count()) {
      let number = try state.read(Int.self)
      guard try state.read(Bool.self) else {
        inlets.append(SavedInlet(number: number, signal: nil, scope: nodeContext.scope, section: nil))
        continue
      }
      if let input = try state.read(Int?.self) {
        guard nodeContext.inputs.indices.contains(input), number == input, inputs.insert(input).inserted else {
          throw StateFault("it has other inputs")
        }
        inlets.append(
          SavedInlet(number: number, signal: nodeContext.inputs[input], scope: nodeContext.scope, section: nil))
      } else {
        let index = try state.read(Int.self)
        guard inner.indices.contains(index) else { throw StateFault("it has other inner signals") }
        let scope = try Scope(&state, within: nodeContext.scope)
        inlets.append(
          SavedInlet(
            number: number, signal: inner[index], scope: scope, section: try .init(try state.part())))
      }
    }
    return inlets
  }

  final override func prepare(_ inlets: [SavedInlet]) throws(StateFault) {
    for inlet in inlets where inlet.section != nil {
      inlet.scope = try scope(inlet.scope, number: inlet.number)
    }
  }

  final override func reopen(_ inlets: [SavedInlet], _ restoration: Restoration) {
    for saved in inlets {
      guard let signal = saved.signal else {
        let inlet = Inlet(self, saved.number, .nothing, nodeContext.scope)
        inlet.hasEnded = true
        append(inlet)
        continue
      }
      restoration.within(saved.section ?? restoration.section) {
        executor.withEventTime(saved.time) { _ = attach(signal, saved.number, saved.scope) }
      }
    }
    guard let marks else { return }
    let open = self.inlets
    for input in nodeContext.inputs.indices
    where !isSubscribed(input) && !open.contains(where: { $0.isOpenInput(input) }) {
      marks.close(input)
    }
    // Inputs that have ended do not send a watermark again.
    execution.whenWired { [self] in move(marks.next()) }
  }

  /// An override must call `super.stop()`.
  override func stop() {
    let open = inlets
    for inlet in open { inlet.position = -1 }
    slots = []
    inletCount = 0
    for inlet in open { inlet.cancel() }
  }
}

/// An inlet of a saved state.
final class SavedInlet {
  let number: Int
  /// The signal of the inlet; nil: the inlet had ended.
  let signal: SignalPlan?
  var scope: Scope
  /// The time of the event for which the inner signal runs.
  var time = EventTime.unknown
  /// The records of an inner signal; nil: this is an input, whose records are next to the node's.
  let section: Restoration.Section?

  init(number: Int, signal: SignalPlan?, scope: Scope, section: Restoration.Section?) {
    self.number = number
    self.signal = signal
    self.scope = scope
    self.section = section
  }
}

extension Scope {
  func save(_ state: inout StateWriter) {
    state.write(outer)
    state.write(error)
    state.write(origin)
    state.write(key)
  }

  /// The subject and the command execution are those of the surrounding scope.
  convenience init(_ state: inout StateReader, within outer: Scope) throws(StateFault) {
    self.init(
      outer: try state.read(), error: try state.read(), origin: try state.origin(), key: try state.read(),
      subject: outer.subject, work: outer.work)
  }
}
