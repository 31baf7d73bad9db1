/// One of a command's outputs: `NAME.values`, `NAME.executing`, `NAME.enabled`.
struct CommandOutput: OperatorComponent {
  enum Kind: String, CaseIterable {
    case values, executing, enabled
  }

  var kind = Kind.values
  /// The command's place in `Plan.named`.
  var command = 0
  var type = EventType.dyn

  static let spec = ComponentSpec<CommandOutput>(
    "output", summary: "One of a command's outputs.", carries: .state(version: 1))

  func outputType(_ inputs: [EventType]) -> EventType { kind == .values ? type : EventType(.bool) }

  func makeNode(_ nodeContext: NodeContext, downstream: Downstream) -> OperatorNode {
    Node(self, nodeContext, downstream)
  }

  final class Node: OperatorNode {
    let kind: Kind
    private let command: Int
    private var hub: Command.Hub?
    private var hasBegun = false
    /// When it was subscribed, compared with others.
    private(set) var serial: UInt64 = 0

    init(_ parameters: CommandOutput, _ nodeContext: NodeContext, _ downstream: Downstream) {
      kind = parameters.kind
      command = parameters.command
      super.init(nodeContext, downstream: downstream)
    }

    /// Its input is the command itself, which sends nothing there, but ends.
    override func start() {
      serial = execution.nextSubscription()
      super.start()
      attach()
    }

    override func restored() { attach() }

    private func attach() {
      guard !isClosed, let hub = execution.commands[command] else { return }
      self.hub = hub
      hub.attach(self)
      if kind == .values, !hub.hasValues { hasBegun = true }
      if !hasBegun { execution.whenWired { [weak self] in self?.begin() } }
    }

    /// What holds now comes first.
    private func begin() {
      guard let hub, !isClosed, !hasBegun else { return }
      // Values that come meanwhile are among those that the command tells it of.
      if kind == .values { hub.catchUp(self) }
      hasBegun = true
      switch kind {
      case .values: break
      case .executing: emit(Event(.bool(hub.isExecuting)))
      case .enabled: emit(Event(.bool(hub.isEnabled)))
      }
    }

    func pass(_ event: Event) {
      if hasBegun { emit(event) }
    }

    /// Something of before it listened.
    func tell(_ event: Event) { emit(event) }

    override func receive(_ event: Event) {}

    override func stop() {
      hub?.detach(self)
      hub = nil
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
