/// Backpressure of one operator's queue: pauses the pipeline's input while the queue is over its limit, and counts the
/// waiting events and their bytes (``KeptMemory``).
package struct Backlog {
  package init() {}

  package private(set) var isOver = false
  /// The number of waiting events at the last update, and their bytes.
  private var count = 0
  private var bytes = 0

  /// Counts the events of a restored queue, and pauses the input if the operator had paused it.
  package mutating func restore(_ wasOver: Bool, _ kept: some Sequence<OwnedEvent>, _ node: OperatorNode) {
    let found = kept.reduce(into: (count: 0, bytes: 0)) {
      $0.count += 1
      $0.bytes += $1.byteCount
    }
    set(found.count, bytes + found.bytes, node)
    if wasOver, !isOver {
      isOver = true
      pause(node)
    }
  }

  /// Reports that an event was put into the queue, which now has `count` events.
  package mutating func added(_ event: borrowing OwnedEvent, _ count: Int, _ limit: Int, _ node: OperatorNode) {
    update(count, limit, bytes: bytes + event.byteCount, node)
  }

  /// Reports that an event was taken from the queue, which now has `count` events.
  package mutating func removed(_ event: borrowing OwnedEvent, _ count: Int, _ limit: Int, _ node: OperatorNode) {
    update(count, limit, bytes: bytes - event.byteCount, node)
  }

  /// Reports that the queue is empty.
  package mutating func cleared(_ limit: Int, _ node: OperatorNode) { update(0, limit, bytes: 0, node) }

  /// Reports how many events wait, and their bytes. A queue that was over its limit resumes the input when it is down
  /// to half of the limit.
  package mutating func update(_ count: Int, _ limit: Int, bytes: Int, _ node: OperatorNode) {
    set(count, bytes, node)
    if !isOver, count > limit {
      isOver = true
      pause(node)
    } else if isOver, count <= limit / 2 {
      isOver = false
      node.executor.resumeInput(.queue)
      node.counters.endedPause(at: node.now)
    }
  }

  private mutating func set(_ count: Int, _ bytes: Int, _ node: OperatorNode) {
    node.counters.pointee.waiting &+= count - self.count
    self.count = count
    let bytes = count == 0 ? 0 : max(0, bytes)
    node.execution.keptMemory.add(bytes - self.bytes, node.counters)
    node.keptSize.add(bytes: bytes - self.bytes)
    self.bytes = bytes
  }

  private func pause(_ node: OperatorNode) {
    node.executor.pauseInput(.queue)
    node.counters.beganPause(at: node.now)
  }
}
