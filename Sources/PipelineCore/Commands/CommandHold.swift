/// Keeps commands running for a signal whose inner signals execute them: another inner signal may always start, so the
/// commands last as long as the signal. The compiler adds it; no file can name it.
struct CommandHold: OperatorComponent {
  /// The indexes of the commands in `Plan.named`, in the order of the inputs after the first.
  var commands: [Int] = []

  static let spec = ComponentSpec<CommandHold>(
    "hold", summary: "Keeps commands for inner signals to execute.", persistence: .nothing)

  static let isHidden = true

  func makeNode(_ nodeContext: NodeContext, downstream: Downstream) -> OperatorNode {
    Node(self, nodeContext, downstream)
  }

  final class Node: MultiInletNode {
    private let commands: [Int]
    private var running: [Command.Running] = []

    init(_ parameters: CommandHold, _ nodeContext: NodeContext, _ downstream: Downstream) {
      commands = parameters.commands
      super.init(nodeContext, downstream: downstream)
    }

    override func start() {
      for number in nodeContext.inputs.indices.dropFirst() { open(nodeContext.inputs[number], number: number) }
      attach()
      subscribe(nodeContext.inputs[0])
    }

    override func restored() { attach() }

    /// The hold ends with the command; a later run of the command is not held.
    private func attach() {
      guard !isClosed else { return }
      running = commands.enumerated().compactMap { isOpen($0 + 1) ? execution.command($1) : nil }
      for command in running { command.hold() }
    }

    /// The commands send nothing to this node, and do not end before it.
    override func receive(_ event: Event, from inlet: Inlet) {}

    override func stop() {
      super.stop()
      let held = running
      running = []
      for command in held { command.release() }
    }
  }
}
