/// Whether one operator's queue is over its bound: holds back the pipeline's input while it is.
struct Backlog {
  private(set) var isOver = false

  /// Holds the input back if the operator did so when its state was saved.
  mutating func restore(_ wasOver: Bool, _ executor: Executor) {
    if wasOver, !isOver {
      isOver = true
      executor.pauseInput(.queue)
    }
  }

  /// Tells how many events wait. A queue that was over its bound must fall to half of it to let go.
  mutating func update(_ count: Int, _ limit: Int, _ executor: Executor) {
    if !isOver, count > limit {
      isOver = true
      executor.pauseInput(.queue)
    } else if isOver, count <= limit / 2 {
      isOver = false
      executor.resumeInput(.queue)
    }
  }
}
