/// Stands below a signal whose inner signals execute commands: another of these inner signals may always come, so
/// the commands last as long as the signal does. The compiler puts it there; no file can name it.
struct CommandHold: OperatorComponent {
  /// The commands' places in `Plan.named`, in the order of the inputs behind the first.
  var commands: [Int] = []

  static let spec = ComponentSpec<CommandHold>(
    "hold", summary: "Keeps commands for inner signals to execute.", carries: .nothing)

  func makeNode(_ seat: Seat, downstream: Downstream) -> OperatorNode { Node(self, seat, downstream) }

  final class Node: MultiInletNode {
    private let commands: [Int]
    private var hubs: [Command.Hub] = []

    init(_ parameters: CommandHold, _ seat: Seat, _ downstream: Downstream) {
      commands = parameters.commands
      super.init(seat, downstream: downstream)
    }

    override func start() {
      for number in seat.inputs.indices.dropFirst() { open(seat.inputs[number], number: number) }
      attach()
      subscribe(seat.inputs[0])
    }

    override func restored() { attach() }

    private func attach() {
      guard !isClosed else { return }
      hubs = commands.compactMap { execution.commands[$0] }
      for hub in hubs { hub.hold() }
    }

    /// The commands send nothing on this way, and do not end before this does.
    override func receive(_ event: Event, from inlet: Inlet) {}

    override func stop() {
      super.stop()
      let held = hubs
      hubs = []
      for hub in held { hub.release() }
    }
  }
}
