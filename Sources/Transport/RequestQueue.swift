import PipelineCore
import Synchronization

/// Requests that have come in whole and wait for the pipeline, oldest first. A request leaves it exactly once: it is
/// taken in, or withdrawn because it was answered or its client has left, and then nothing of it is kept. Thread-safe.
public final class RequestQueue: Sendable {
  private struct State {
    var waiting: [UInt64: ServerRequest] = [:]
    /// No request with a lower number waits.
    var first: UInt64 = 0
    var next: UInt64 = 0
    /// Somebody will call `take`.
    var isAwaited = false
    var isStalled = false
    var isClosed = false
  }
  private let state = Mutex(State())

  /// How many wait.
  public var count: Int { state.withLock(\.waiting.count) }

  /// A request has waited for as long as one may, and the pipeline has taken nothing in since: it makes no sense to wait.
  var isStalled: Bool { state.withLock(\.isStalled) }

  /// Adds a request, on the network thread; whether `take` must be called for it, because nobody is about to.
  public func add(_ request: ServerRequest) -> Bool {
    let mustTake: Bool? = state.withLock { state in
      if state.isClosed { return nil }
      request.exchange.number = state.next
      state.waiting[state.next] = request
      state.next += 1
      defer { state.isAwaited = true }
      return !state.isAwaited
    }
    if mustTake == nil { request.reply.reply(.stopped) }
    return mustTake ?? false
  }

  /// Takes out everything; what is added later is answered 503.
  public func close() -> [ServerRequest] {
    state.withLock { state in
      state.isClosed = true
      defer { state.waiting = [:] }
      return state.waiting.sorted { $0.key < $1.key }.map(\.value)
    }
  }

  /// The oldest request, and whether `take` must be called once more. Called by the pipeline when it takes something in.
  public func take() -> (request: ServerRequest?, isMoreToCome: Bool) {
    state.withLock { state in
      state.isStalled = false
      var taken: ServerRequest?
      while taken == nil, state.first < state.next {
        taken = state.waiting.removeValue(forKey: state.first)
        state.first += 1
      }
      if state.waiting.isEmpty { state.first = state.next }
      state.isAwaited = !state.waiting.isEmpty
      return (taken, state.isAwaited)
    }
  }

  /// Takes a request out that is not to be taken in any more; false if it does not wait.
  /// - Parameter isOverdue: It has waited for as long as one may.
  func withdraw(_ number: UInt64, isOverdue: Bool = false) -> Bool {
    let request = state.withLock { state in
      let request = state.waiting.removeValue(forKey: number)
      if request != nil, isOverdue { state.isStalled = true }
      return request
    }
    // Released outside of the lock.
    return withExtendedLifetime(request) { request != nil }
  }
}
