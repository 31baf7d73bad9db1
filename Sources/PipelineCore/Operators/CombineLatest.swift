/// `combineLatest`: the newest events of all inputs.
struct CombineLatest: CombiningOperator, TimedOperator {
  var settle = false
  var settles: Bool { settle }

  static let spec = ComponentSpec<CombineLatest>(
    "combineLatest",
    summary: "Sends the newest events of all inputs each time one of them sends.",
    details: """
      It sends nothing before every input has sent once; values of `startWith` come before the events of all \
      sources, whichever input they are in. The event is a list in the order of the inputs. Only a `reduce` that \
      follows directly sees the parts by name: `reduce: { user: user, tick: tick }` makes an object of them; other \
      steps write `event[0]`. It completes when all inputs have, even if one never sent; an error of any input ends \
      it. Each input makes it send: a signal combined with itself sends twice for each of its events, first with one \
      old part. With `settle: true` it waits until everything that an event of a source (or a timer) changes has \
      changed, and sends once.
      """,
    parameters: [
      .init("settle", \.settle, "Send once, after all inputs that an event changes have changed.")
    ],
    examples: [
      .marbles(
        "two inputs", "combineLatest: [a, b]", in: ["a": "-1|", "b": "---2-3-|"], out: "---p-q-|",
        values: ["p": "[1, 2]", "q": "[1, 3]"]),
      .marbles(
        "one signal twice", "combineLatest: { x: a, y: a }", in: ["a": "-1-2-|"], out: "-p-(qr)-|",
        values: ["p": "[1, 1]", "q": "[2, 1]", "r": "[2, 2]"]),
      .marbles(
        "reduced by name", "{ combineLatest: [a, b], chain: [ { reduce: a + b } ] }",
        in: ["a": "-1|", "b": "---2-3-|"], out: "---3-4-|"),
      .marbles(
        "one signal twice, settled", "{ combineLatest: { x: a, y: a, settle: true } }", in: ["a": "-1-2-|"],
        out: "-p-r-|", values: ["p": "[1, 1]", "r": "[2, 2]"]),
      .marbles(
        "a diamond",
        """
        { combineLatest: { left: { from: a, chain: [ { map: event + 1 } ] }, \
        right: { from: a, chain: [ { map: event * 2 } ] } } }
        """,
        in: ["a": "-1---2-|"], out: "-p---(qr)-|", values: ["p": "[2, 2]", "q": "[3, 2]", "r": "[3, 4]"]),
      .marbles(
        "a diamond, settled",
        """
        { combineLatest: { left: { from: a, chain: [ { map: event + 1 } ] }, \
        right: { from: a, chain: [ { map: event * 2 } ] }, settle: true } }
        """,
        in: ["a": "-1---2-|"], out: "-p---r-|", values: ["p": "[2, 2]", "r": "[3, 4]"]),
    ],
    edges: EdgeCases(
      empty: "If an input ends without an event, no list is ever sent; completes when all inputs have.",
      error: "The first error of any input ends it at once; the other inputs are cancelled.",
      completion: "Completes when all inputs have; with `settle: true` a pending list is sent first.",
      disposal: "Unsubscribes from all inputs."),
    memory: "The newest event of each input.", persistence: .state(version: 2),
    knownAs: ["RxJS combineLatest", "Combine combineLatest"],
    useCases: [
      .init(.combining, "act on the newest of several signals", "combineLatest: [a, b]"),
      .init(
        .combining, "give the newest of several signals names in one object",
        "{ combineLatest: { user: a, tick: b }, chain: [ { reduce: { user: user, tick: tick } } ] }"),
      .init(
        .combining, "enable something when two conditions hold",
        "{ combineLatest: { account: a, password: b }, chain: [ { reduce: \"account && password\" } ] }"),
      .init(
        .combining, "avoid half-new pairs where two branches of one signal meet",
        "{ combineLatest: { x: a, y: b, settle: true } }"),
    ],
    seeAlso: ["zip", "merge", "reduce"])

  static let makesTuple = true

  func outputType(_ inputs: [EventType]) -> EventType { .list(inputs) }

  var timing: Timing { settles ? .ends : .all }

  func makeNode(_ nodeContext: NodeContext, downstream: Downstream) -> OperatorNode {
    Node(settle, nodeContext, downstream)
  }

  final class Node: MultiInletNode {
    private let settles: Bool
    private let precedence: Int
    /// With `settle`: the input that changed last since the node last sent; nil if there is nothing to send.
    private var changed: Int?
    /// The newest event of each input.
    private let newest: UnsafeMutableBufferPointer<OwnedEvent?>
    /// The values of `newest`, absent where there is none: building a list from them avoids retain and release.
    private let values: UnsafeMutableBufferPointer<Value>
    private let memory: Unmanaged<Arena>
    private var missing = 0
    private var open = 0

    init(_ settles: Bool, _ nodeContext: NodeContext, _ downstream: Downstream) {
      self.settles = settles
      precedence = PriorityQueue.settling(upstream: (nodeContext.inputs.map(\.settling).max() ?? 0))
      newest = .allocate(capacity: nodeContext.inputs.count)
      newest.initialize(repeating: nil)
      values = .allocate(capacity: nodeContext.inputs.count)
      values.initialize(repeating: .absent)
      memory = .passUnretained(nodeContext.execution.executor.arena)
      super.init(nodeContext, downstream: downstream)
    }

    deinit {
      newest.deinitialize()
      newest.deallocate()
      values.deallocate()
    }

    override func start() {
      missing = nodeContext.inputs.count
      open = nodeContext.inputs.count
      for (number, input) in nodeContext.inputs.enumerated() {
        if isClosed { return }
        open(input, number: number)
      }
    }

    override func receive(_ event: Event, from inlet: Inlet) {
      let number = inlet.number
      let before = newest[number]?.byteCount ?? 0
      if values[number].isAbsent {
        newest[number] = OwnedEvent(event)
        missing -= 1
      } else {
        memory._withUnsafeGuaranteedRef { newest[number]?.assign(event, retiring: $0) }
      }
      values[number] = newest[number]?.heldValue ?? .null
      keptSize.add(bytes: (newest[number]?.byteCount ?? 0) &- before)
      guard missing == 0 else { return }
      if settles { unsettle(number) } else { send(event) }
    }

    private func unsettle(_ number: Int) {
      if changed == nil {
        execution.priorities.add(precedence)
        later()
      }
      changed = number
    }

    override func resumed(_ token: Int) {
      guard changed != nil else { return }
      // A node upstream may still change another input for the same event.
      if execution.priorities.has(before: precedence) { waitLonger() } else { settle() }
    }

    private func settle() {
      guard let number = changed else { return }
      changed = nil
      execution.priorities.remove(precedence)
      guard let event = newest[number] else { return }
      event.keep(in: arena)
      send(event.event)
    }

    private func send(_ event: Event) {
      let list = memory._withUnsafeGuaranteedRef { $0.elements(values.count) }
      _ = list.update(fromContentsOf: values)
      emit(event.with(Value(kind: .list, pointer: list.baseAddress, length: list.count)))
    }

    override func completed(_ inlet: Inlet) {
      drop(inlet)
      open -= 1
      guard open == 0 else { return }
      settle()
      finish()
    }

    override func stop() {
      if changed != nil { execution.priorities.remove(precedence) }
      changed = nil
      super.stop()
    }

    override func save(_ state: inout StateWriter) {
      state.write(Array(newest))
      state.write(open)
      state.write(changed)
    }

    override func restore(_ state: inout StateReader) throws(StateFault) {
      let saved: [OwnedEvent?] = try state.read()
      open = try state.read(in: 0...nodeContext.inputs.count)
      let unsettled = state.version > 1 ? try state.read(Int?.self) : nil
      guard saved.count == newest.count, unsettled.map({ newest.indices.contains($0) }) ?? true else {
        throw StateFault("it has other inputs")
      }
      changed = unsettled
      if unsettled != nil { execution.priorities.add(precedence) }
      for (number, event) in saved.enumerated() {
        newest[number] = event
        values[number] = event?.heldValue ?? .absent
        keptSize.add(bytes: event?.byteCount ?? 0)
      }
      missing = saved.count { $0 == nil }
    }
  }
}
