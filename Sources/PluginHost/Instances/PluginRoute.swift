internal import DequeModule
import PipelineCore
import Synchronization

/// Delivers an instance's answers in the turns of its pipeline.
///
/// In a reload the instance of a sink goes to the next version of the pipeline. Answers that the version before has not processed go with it, in
/// order, because an execution that has ended processes nothing.
final class PluginRoute: Sendable {
  private struct State {
    /// Nil: the version before has ended, and the next one has not begun.
    var executor: Executor?
    /// Posted calls that have not been run, if they are kept.
    var waiting = Deque<Executor.Work>()
    /// The number of pipelines that the instance has belonged to.
    var number = 0
    var isOver = false
  }
  private let state: Mutex<State>
  /// Whether calls that have not been run are kept for the next version.
  private let isKept: Bool

  /// - Parameter isKept: The instance may go to the next version: then ``end()`` must be called.
  init(to executor: Executor, isKept: Bool = false) {
    state = Mutex(State(executor: executor))
    self.isKept = isKept
  }

  /// Calls `work` in a turn of its own, in the order of the calls. Nothing is called after ``end()``. From any thread.
  func post(_ work: @escaping Executor.Work) {
    let (executor, number) = state.withLock { state -> (Executor?, Int) in
      if state.isOver { return (nil, 0) }
      if isKept { state.waiting.append(work) }
      return (state.executor, state.number)
    }
    if isKept { executor?.post { [self] in hear(number) } } else { executor?.post(work) }
  }

  /// Calls `work` after this turn, or releases it without a call if no turn follows. In turns.
  func postAfterTurn(_ work: @escaping Executor.Work) { state.withLock(\.executor)?.post(work) }

  /// Queues input, which waits while the input is paused. From any thread.
  func postBatch(_ work: @escaping Executor.Work) { state.withLock(\.executor)?.postBatch(work) }

  /// The instant of the turn. In turns.
  var now: Instant { state.withLock(\.executor)?.now ?? Instant(nanoseconds: 0) }

  private func hear(_ number: Int) {
    let work = state.withLock { $0.number == number ? $0.waiting.popFirst() : nil }
    work?()
  }

  /// The pipeline is over: later calls wait for the next version. In a turn.
  func leave() {
    state.withLock { state in
      state.executor = nil
      state.number += 1
    }
  }

  /// Redirects all calls that have not been run, and later ones, to another pipeline. In a turn of that pipeline.
  func lead(to executor: Executor) {
    let (waiting, number) = state.withLock { state -> (Int, Int) in
      state.executor = executor
      state.number += 1
      return (state.waiting.count, state.number)
    }
    for _ in 0..<waiting { executor.post { [self] in hear(number) } }
  }

  /// Drops all calls from now on.
  func end() {
    let left = state.withLock { state in
      defer { (state.waiting, state.isOver) = ([], true) }
      return state.waiting
    }
    // Released outside the lock.
    withExtendedLifetime(left) {}
  }
}
