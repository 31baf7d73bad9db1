/// `if`: one of two signals, chosen by a third.
struct If: CombiningOperator, BranchingOperator {
  private(set) var branches = Branches()

  init() {}

  static let spec = ComponentSpec<If>(
    "if",
    summary: "Sends the events of one of two signals, chosen by the newest event of a condition.",
    details: """
      Each event of `condition`, true or false, ends the running branch and subscribes the chosen one (perhaps the \
      same again). Events and errors of the other branch are lost. It completes when the condition and the running \
      branch have; an error of either ends it. An event of the condition that is neither a boolean nor a number goes \
      to the errors output.
      """,
    examples: [
      .marbles(
        "true and false", "{ if: { condition: a, then: b, else: c } }",
        in: ["a": "-t--f-|", "b": "--1--2", "c": "---8--9|"], out: "--1---9|",
        values: ["t": "true", "f": "false"])
    ],
    edges: EdgeCases(
      empty: "Completes if the condition ends without an event.",
      error: "Passed on at once, from the condition and the running branch.",
      completion: "Completes when the condition and the running branch have.",
      disposal: "Unsubscribes from the condition and the running branch."),
    memory: "The running branch.", persistence: .state(version: 1),
    knownAs: ["RxJS iif (which chooses once)"],
    useCases: [
      .init(.combining, "use one signal or another by a third", "if: { condition: a, then: b, else: other }")
    ],
    seeAlso: ["switch", "switchToLatest", "gate"])

  mutating func take(_ inputs: [InputNode]) { branches = Branches(inputs) }

  static let subscribesAgain = true

  func outputType(_ inputs: [EventType]) -> EventType { .dyn }

  func makeNode(_ nodeContext: NodeContext, downstream: Downstream) -> OperatorNode {
    BranchingNode(branches, nodeContext, downstream) { [branches] event, node in
      guard let truth = event.value.truth else {
        node.reject(
          event, .unexpectedValue, "the condition of 'if' must be true or false, not \(event.value.kindName)")
        return nil
      }
      return truth ? branches.index(of: .then) : branches.index(of: .else)
    }
  }
}

/// An operator that subscribes to one of its inputs, chosen by another input.
protocol BranchingOperator {
  var branches: Branches { get }
}

/// The roles of the inputs of a branching signal.
struct Branches: Sendable {
  private var roles: [InputNode.Role] = []
  private var names: [[UInt8]] = []

  init() {}

  init(_ inputs: [InputNode]) {
    roles = inputs.map(\.role)
    names = inputs.map { Array(($0.name?.value ?? "").utf8) }
  }

  /// The inputs to choose from, with their names.
  var choices: [(input: Int, name: String)] {
    roles.indices.compactMap { index in
      switch roles[index] {
      case .selector, .input: nil
      case .then: (index, "then")
      case .else: (index, "else")
      case .default: (index, "default")
      case .case: (index, "case '\(Printable.cut(names[index]))'")
      }
    }
  }

  func index(of role: InputNode.Role) -> Int? { roles.firstIndex(of: role) }

  /// The index of the case with this name.
  func index(ofCase name: UnsafeRawBufferPointer) -> Int? {
    roles.indices.first { roles[$0] == .case && name.elementsEqual(names[$0]) }
  }
}

/// Runs one of several inputs, chosen by the newest event of the selector.
final class BranchingNode: MultiInletNode {
  private let branches: Branches
  /// Returns the branch for an event. Nil if there is none; the event has then been handled.
  private let choose: (Event, OperatorNode) -> Int?
  private var selectorEnded = false
  private let selector: Int

  init(
    _ branches: Branches, _ nodeContext: NodeContext, _ downstream: Downstream,
    choose: @escaping (Event, OperatorNode) -> Int?
  ) {
    self.branches = branches
    self.choose = choose
    selector = branches.index(of: .selector) ?? 0
    super.init(nodeContext, downstream: downstream)
  }

  override func start() { open(nodeContext.inputs[selector], number: selector) }

  override func receive(_ event: Event, from inlet: Inlet) {
    guard inlet.number == selector else {
      emit(event)
      return
    }
    guard let branch = choose(event, self), !isClosed else { return }
    // The resources of the old branch are freed before the new one needs them.
    for old in inlets where old.number != selector { drop(old) }
    open(nodeContext.inputs[branch], number: branch)
  }

  override func completed(_ inlet: Inlet) {
    drop(inlet)
    if inlet.number == selector { selectorEnded = true }
    if selectorEnded, inletCount == 0 { finish() }
  }

  override func save(_ state: inout StateWriter) {
    state.write(selectorEnded)
  }

  override func restore(_ state: inout StateReader) throws(StateFault) {
    selectorEnded = try state.read()
  }
}
