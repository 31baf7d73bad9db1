/// The sinks of a suspended pipeline that finish the events that they hold, because these are not part of the saved
/// state.
///
/// A sink may take as long as it makes progress. A sink that delivers nothing for a while is given up: its receiver is
/// down or stalled. Its events are rejected if rejections are read or stored, and otherwise count as undelivered; in
/// `light` the next execution then continues from the last commit, which still has them.
final class FinishingSinks: TimerTarget {
  var timerKind: TimerKind { .output }

  private struct Open {
    var index: Int
    /// The sink is given up at this time unless it has delivered more by then.
    var deadline: Instant
    let patience: TimeSpan
    var delivered: UInt64
  }

  /// How long a sink that is absent from the next execution may deliver nothing.
  static let patienceOfRemoved = TimeSpan.seconds(2)
  /// How long a sink that the next execution also has may deliver nothing: its receiver may be restarting.
  static let patience = TimeSpan.seconds(5)

  private unowned let execution: Execution
  private var open: [Open]
  private var wake = Wake.none

  /// - Parameter sinks: The indexes of sinks that have been completed, and whether the next execution has them.
  init(_ execution: Execution, _ sinks: [(index: Int, isKept: Bool)]) {
    self.execution = execution
    open = []
    let now = execution.executor.now
    open = sinks.map { index, isKept in
      let patience = isKept ? Self.patience : Self.patienceOfRemoved
      return Open(index: index, deadline: now + patience, patience: patience, delivered: delivered(index))
    }
    wait()
  }

  /// A measure of the sink's progress, which grows with each delivered or rejected event and each written byte.
  private func delivered(_ index: Int) -> UInt64 {
    let sink = execution.sinks[index].node
    sink.countDelivered()
    let counters = execution.meters.step(sink.nodeContext.step).pointee
    return counters.delivered &+ counters.rejected &+ counters.bytes
  }

  private func wait() {
    guard let next = open.map(\.deadline).min() else { return }
    wake = execution.executor.wake(at: next, self)
  }

  func woke(_ token: Int) {
    wake = .none
    let now = execution.executor.now
    open.removeAll { !execution.sinks[$0.index].isOpen }
    for entry in open.indices where open[entry].deadline <= now {
      let delivered = delivered(open[entry].index)
      if delivered != open[entry].delivered {
        open[entry].delivered = delivered
        open[entry].deadline = now + open[entry].patience
      }
    }
    let dead = open.filter { $0.deadline <= now }
    open.removeAll { $0.deadline <= now }
    for sink in dead where execution.outcome == nil { giveUp(sink.index, after: sink.patience) }
    if execution.outcome == nil { wait() }
  }

  private func giveUp(_ index: Int, after patience: TimeSpan) {
    let sink = execution.sinks[index]
    guard sink.isOpen else { return }
    execution.services.log(
      .warning, execution.plan.steps[sink.node.nodeContext.step.number].label,
      "given up: it delivered nothing for \(patience) after the pipeline was suspended")
    if sink.errors.isClaimed || execution.services.keepsDeadLetters { _ = sink.node.rejectRemaining() }
    sink.node.cancel()
    let running = Weak(execution)
    sink.node.whenClosed { running.object?.sinkDrained(index) }
  }

  func cancel() {
    if wake.isSet { execution.executor.cancel(wake) }
    wake = .none
    open = []
  }
}
