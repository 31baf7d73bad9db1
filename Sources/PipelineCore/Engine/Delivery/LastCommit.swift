import Synchronization

/// Whether the last commit of an execution is on the disk, and the callbacks that wait for it.
final class LastCommit: Sendable {
  private struct State {
    var isDone = false
    var waiting: [@Sendable () -> Void] = []
  }
  private let state = Mutex(State())

  /// Calls `body` once, on any thread, when the commit is on the disk.
  func whenDone(_ body: @escaping @Sendable () -> Void) {
    let isNow = state.withLock { state in
      if !state.isDone { state.waiting.append(body) }
      return state.isDone
    }
    if isNow { body() }
  }

  /// Records that the commit is on the disk.
  func finish() {
    let waiting = state.withLock { state in
      state.isDone = true
      defer { state.waiting = [] }
      return state.waiting
    }
    for body in waiting { body() }
  }
}
