/// Backpressure of one operator's queue: pauses the pipeline's input while the queue is over its bound.
struct Backlog {
  private(set) var isOver = false

  /// Pauses the input if the operator paused it when its state was saved.
  mutating func restore(_ wasOver: Bool, _ executor: Executor) {
    if wasOver, !isOver {
      isOver = true
      executor.pauseInput(.queue)
    }
  }

  /// Reports how many events wait. A queue that was over its bound resumes the input when it is down to half of the
  /// bound.
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
