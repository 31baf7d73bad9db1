import PipelineCore

/// A sink whose reader goes away: a closed pipe.
struct ClosingSink: SinkComponent {
  var count = 1

  init() {}
  init(_ count: Int) { self.count = count }

  static let spec = ComponentSpec<ClosingSink>("closing", summary: "Closes.")

  func makeSink(_ nodeContext: NodeContext) -> RunningSink { Node(count, nodeContext) }

  final class Node: RunningSink {
    private var left: Int
    init(_ count: Int, _ nodeContext: NodeContext) {
      left = count
      super.init(nodeContext)
    }
    override func receive(_ event: Event) {
      delivered()
      left -= 1
      if left == 0 { closed() }
    }
  }
}
