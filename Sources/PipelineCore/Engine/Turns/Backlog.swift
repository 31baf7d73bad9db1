/// Backpressure of one operator's queue: pauses the pipeline's input while the queue is over its bound, and counts what waits.
public struct Backlog {
  public init() {}

  public private(set) var isOver = false
  /// How many events waited at the last ``update(_:_:_:)``.
  private var count = 0

  /// Pauses the input if the operator paused it when its state was saved.
  public mutating func restore(_ wasOver: Bool, _ node: OperatorNode) {
    if wasOver, !isOver {
      isOver = true
      pause(node)
    }
  }

  /// Reports how many events wait. A queue that was over its bound resumes the input when it is down to half of the
  /// bound.
  public mutating func update(_ count: Int, _ limit: Int, _ node: OperatorNode) {
    node.counters.pointee.waiting &+= count - self.count
    self.count = count
    if !isOver, count > limit {
      isOver = true
      pause(node)
    } else if isOver, count <= limit / 2 {
      isOver = false
      node.executor.resumeInput(.queue)
      node.counters.endedPause(at: node.now)
    }
  }

  private func pause(_ node: OperatorNode) {
    node.executor.pauseInput(.queue)
    node.counters.beganPause(at: node.now)
  }
}
