import PipelineCore

/// A worker with a thread of its own, which starts with the first job, sleeps while there is none, and ends when the
/// worker is released.
package final class WorkThread: Worker {
  private struct State {
    var queue: [@Sendable () -> Void] = []
    var isStarted = false
    var isClosed = false
  }

  private let name: String
  private let state = Guarded(State())

  /// `name` shows in `top -H`, its first 15 bytes.
  package init(_ name: String) { self.name = name }

  deinit {
    state.withLock {
      $0.isClosed = true
      $0.queue = []
    }
    state.notify()
  }

  package func enqueue(_ work: @escaping @Sendable () -> Void) {
    let isFirst = state.withLock { state in
      state.queue.append(work)
      defer { state.isStarted = true }
      return !state.isStarted
    }
    if !isFirst { return state.notify() }
    let state = state
    do throws(PosixError) {
      _ = try OwnThread(name) { Self.run(state) }
    } catch {
      // If no thread can be started, the caller runs the jobs.
      let left = state.withLock { state in
        state.isStarted = false
        defer { state.queue = [] }
        return state.queue
      }
      for work in left { work() }
    }
  }

  private static func run(_ state: Guarded<State>) {
    let take: (inout State) -> [@Sendable () -> Void]? = { state in
      if state.isClosed { return [] }
      guard !state.queue.isEmpty else { return nil }
      defer { state.queue = [] }
      return state.queue
    }
    while let works = state.wait(until: nil, take), !works.isEmpty {
      for work in works {
        if state.withLock({ $0.isClosed }) { return }
        work()
      }
    }
  }
}
