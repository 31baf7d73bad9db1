import PipelineCore

/// A sink whose reader goes away: a closed pipe.
struct ClosingSink: SinkComponent {
  var count = 1

  init() {}
  init(_ count: Int) { self.count = count }

  static let spec = ComponentSpec<ClosingSink>("closing", summary: "Closes.")

  func makeSink(_ seat: Seat) -> RunningSink { Node(count, seat) }

  final class Node: RunningSink {
    private var left: Int
    init(_ count: Int, _ seat: Seat) {
      left = count
      super.init(seat)
    }
    override func receive(_ event: Event) {
      left -= 1
      if left == 0 { closed() }
    }
  }
}
