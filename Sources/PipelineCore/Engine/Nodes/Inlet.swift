/// One of several inputs of a node: forwards to the node with its number.
///
/// Ends by itself when it is told so, and says nothing afterwards.
public final class Inlet: Downstream {
  private let node: Unmanaged<MultiInletNode>
  public let number: Int
  fileprivate unowned(unsafe) let signal: SignalPlan
  /// What its signal was made for.
  public let scope: Scope
  /// What the node knows of it, if anything: ``MultiInletNode/owner(number:)``.
  let owner: Unmanaged<AnyObject>?
  private let keptOwner: AnyObject?
  // Nodes run on one thread at a time, and no access lasts longer than a load or a store.
  @exclusivity(unchecked) public fileprivate(set) var hasEnded = false
  fileprivate var upstream: (any Subscription)?
  /// Where its node has it; -1: nowhere.
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

  public override func receive(_ event: Event) {
    if !hasEnded { node._withUnsafeGuaranteedRef { $0.receive(event, from: self) } }
  }

  public override func complete() {
    guard !hasEnded else { return }
    end()
    node._withUnsafeGuaranteedRef { $0.completed(self) }
  }

  public override func fail(_ failure: SignalFailure) {
    guard !hasEnded else { return }
    end()
    node._withUnsafeGuaranteedRef { $0.failed(self, failure) }
  }

  /// The step that it belongs to.
  var step: StepID { node._withUnsafeGuaranteedRef { $0.nodeContext.step } }

  public func cancel() {
    guard !hasEnded else { return }
    end()
  }

  private func end() {
    hasEnded = true
    node._withUnsafeGuaranteedRef { $0.executor.releaseLater(self) }
    let above = upstream
    upstream = nil
    above?.cancel()
  }
}

/// A node with numbered inlets, or with inner signals that come and go.
open class MultiInletNode: OperatorNode {
  /// The inlets, oldest first. With gaps where one was dropped: moving the others up each time would make a thousand
  /// groups that end one after the other cost a million moves.
  private var places: [Inlet?] = []
  /// How many inlets there are.
  public private(set) final var inletCount = 0
  /// The inlets, oldest first.
  public final var inlets: [Inlet] { places.compactMap { $0 } }

  private func append(_ inlet: Inlet) {
    inlet.position = places.count
    places.append(inlet)
    inletCount += 1
  }

  private func remove(_ inlet: Inlet) {
    guard inlet.position >= 0, inlet.position < places.count, places[inlet.position] === inlet else { return }
    places[inlet.position] = nil
    inlet.position = -1
    inletCount -= 1
    guard places.count > 32, inletCount < places.count / 2 else { return }
    places.removeAll { $0 == nil }
    for (position, inlet) in places.enumerated() { inlet?.position = position }
  }

  open func receive(_ event: Event, from inlet: Inlet) { emit(event) }
  /// What the inlet with this number is to keep and hand back with each event; asked when it is opened.
  func owner(number: Int) -> AnyObject? { nil }
  open func completed(_ inlet: Inlet) {}
  open func failed(_ inlet: Inlet, _ failure: SignalFailure) { finish(failing: failure) }

  /// Subscribes `signal` into a new inlet, which is in `inlets` from before the first event on. An input's inlet
  /// bears the input's number; those of inner signals are the node's own.
  @discardableResult
  public final func open(_ signal: SignalPlan, number: Int = 0, _ scope: Scope? = nil) -> Inlet {
    guard let restoration = execution.restoration, !nodeContext.inputs.contains(where: { $0 === signal }) else {
      return attach(signal, number, scope ?? nodeContext.scope)
    }
    // What starts empty has inner signals that do.
    return restoration.within(.init()) { attach(signal, number, scope ?? nodeContext.scope) }
  }

  private func attach(_ signal: SignalPlan, _ number: Int, _ scope: Scope) -> Inlet {
    let inlet = Inlet(self, number, signal, scope)
    // Nothing begins for a node that has ended, whatever it is sent.
    guard !isClosed else {
      inlet.hasEnded = true
      return inlet
    }
    append(inlet)
    let subscription = execution.subscribe(signal, scope, to: inlet)
    if inlet.hasEnded { subscription.cancel() } else { inlet.upstream = subscription }
    return inlet
  }

  /// Takes an inlet out of `inlets`; cancels it unless it has ended.
  public final func drop(_ inlet: Inlet) {
    // It may be dropped while it hands over an event, and the list is all that keeps it.
    if !inlet.hasEnded { executor.releaseLater(inlet) }
    remove(inlet)
    inlet.cancel()
  }

  // MARK: State

  /// What the inlet of an inner signal that was saved is opened with again: the same values of `outer` and
  /// `error`, and what a subclass adds. `restore` has run. A subclass to which the number means something checks
  /// it here, for it may be damaged.
  open func scope(_ saved: Scope, number: Int) throws(StateFault) -> Scope { saved }

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
        _ = attach(signal, saved.number, saved.scope)
      }
    }
  }

  /// Subclasses that override this call `super.stop()`.
  open override func stop() {
    let open = inlets
    for inlet in open { inlet.position = -1 }
    places = []
    inletCount = 0
    for inlet in open { inlet.cancel() }
  }
}

/// An inlet of a saved state.
final class SavedInlet {
  let number: Int
  /// Nil: it had ended.
  let signal: SignalPlan?
  var scope: Scope
  /// The records of an inner signal; nil: an input, whose records stand beside the node's.
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

  /// The subject and the execution of a command are those of the scope around.
  convenience init(_ state: inout StateReader, within outer: Scope) throws(StateFault) {
    self.init(
      outer: try state.read(), error: try state.read(), origin: try state.origin(), key: try state.read(),
      subject: outer.subject, work: outer.work)
  }
}
