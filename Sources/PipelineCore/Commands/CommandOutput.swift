/// One of a command's outputs: `NAME.values`, `NAME.executing`, `NAME.enabled`.
struct CommandOutput: OperatorComponent {
  enum Kind: String, CaseIterable {
    case values, executing, enabled
  }

  var kind = Kind.values
  /// The index of the command in `Plan.named`.
  var command = 0
  var type = EventType.dyn

  static let spec = ComponentSpec<CommandOutput>(
    "output", summary: "One of a command's outputs.", persistence: .state(version: 1))

  static let onlyListens = true

  func outputType(_ inputs: [EventType]) -> EventType { kind == .values ? type : EventType(.bool) }

  func makeNode(_ nodeContext: NodeContext, downstream: Downstream) -> OperatorNode {
    Node(self, nodeContext, downstream)
  }

  final class Node: OperatorNode {
    let kind: Kind
    private let command: Int
    private var running: Command.Running?
    private var hasBegun = false
    /// The order of subscription among listeners.
    private(set) var serial: UInt64 = 0

    init(_ parameters: CommandOutput, _ nodeContext: NodeContext, _ downstream: Downstream) {
      kind = parameters.kind
      command = parameters.command
      super.init(nodeContext, downstream: downstream)
    }

    /// The input is the command, which sends no events to this node, only its end.
    override func start() {
      serial = execution.nextSubscription()
      super.start()
      attach()
    }

    override func restored() { attach() }

    private func attach() {
      guard !isClosed, let running = execution.command(command) else { return }
      self.running = running
      running.attach(self)
      if kind == .values, !running.hasValues { hasBegun = true }
      if !hasBegun { execution.whenWired { [weak self] in self?.begin() } }
    }

    /// Sends the current state first.
    private func begin() {
      guard let running, !isClosed, !hasBegun else { return }
      // `catchUp` also sends the values that arrive meanwhile.
      if kind == .values { running.catchUp(self) }
      hasBegun = true
      switch kind {
      case .values: break
      case .executing: emit(made(.bool(running.isExecuting)))
      case .enabled: emit(made(.bool(running.isEnabled)))
      }
    }

    func pass(_ event: Event) {
      if hasBegun { emit(event) }
    }

    /// Sends a value from before the subscription.
    func send(_ event: Event) { emit(event) }

    override func receive(_ event: Event) {}

    override func stop() {
      running?.detach(self)
      running = nil
    }

    override func save(_ state: inout StateWriter) {
      state.write(serial)
      state.write(hasBegun)
    }

    override func restore(_ state: inout StateReader) throws(StateFault) {
      serial = try state.read()
      hasBegun = try state.read()
    }
  }
}
