import PipelineCore
import Synchronization

/// Requests that have come in whole and wait for the pipeline, oldest first. A request leaves the queue exactly once: the
/// pipeline takes it in, or it is withdrawn because it was answered or its client has left, and then nothing of it is
/// kept. Thread-safe.
public final class RequestQueue: Sendable {
  private struct Entry {
    var number: UInt64
    /// nil: withdrawn.
    var request: ServerRequest?
  }
  private struct State {
    /// By their numbers; those before `head` have been taken.
    var entries: [Entry] = []
    var head = 0
    /// How many of the entries from `head` on have a request.
    var count = 0
    var next: UInt64 = 0
    /// Somebody will call `take`.
    var isAwaited = false
    var isStalled = false
    var isClosed = false

    mutating func takeFirst() -> ServerRequest? {
      while head < entries.count {
        defer { head += 1 }
        guard let request = entries[head].request.take() else { continue }
        count -= 1
        return request
      }
      return nil
    }

    /// Gives up the entries without a request as soon as they are most of them.
    mutating func removeStale() {
      if count == 0 {
        // The room for many is not kept.
        entries.removeAll(keepingCapacity: entries.capacity <= 1024)
        head = 0
      } else if entries.count > 2 * count + 64 {
        entries.removeAll { $0.request == nil }
        head = 0
      }
    }

    mutating func remove(_ number: UInt64) -> ServerRequest? {
      var low = head
      var high = entries.count
      while low < high {
        let middle = (low + high) / 2
        if entries[middle].number < number { low = middle + 1 } else { high = middle }
      }
      guard low < entries.count, entries[low].number == number, let request = entries[low].request.take() else {
        return nil
      }
      count -= 1
      removeStale()
      return request
    }
  }
  private let state = Mutex(State())

  /// How many wait.
  public var count: Int { state.withLock(\.count) }

  /// How many places there is something in, or was.
  var places: Int { state.withLock(\.entries.count) }

  /// A request has waited for as long as one may, and the pipeline has taken nothing in since: it makes no sense to wait.
  var isStalled: Bool { state.withLock(\.isStalled) }

  /// Adds a request, on the network thread.
  public func add(_ request: ServerRequest) {
    let isAdded = state.withLock { state in
      guard !state.isClosed else { return false }
      request.exchange.number = state.next
      state.entries.append(Entry(number: state.next, request: request))
      state.next += 1
      state.count += 1
      return true
    }
    if !isAdded { request.reply.reply(.stopped) }
  }

  /// Whether requests wait and nobody is about to call `take`: the caller must see to it then.
  public func attend() -> Bool {
    state.withLock { state in
      guard !state.isAwaited, state.count > 0 else { return false }
      state.isAwaited = true
      return true
    }
  }

  /// Takes out everything; what is added later is answered 503.
  public func close() -> [ServerRequest] {
    state.withLock { state in
      state.isClosed = true
      defer {
        state.count = 0
        state.removeStale()
      }
      return state.entries[state.head...].compactMap(\.request)
    }
  }

  /// The oldest request, and whether `take` must be called once more. Called by the pipeline when it takes something in.
  public func take() -> (request: ServerRequest?, isMoreToCome: Bool) {
    state.withLock { state in
      state.isStalled = false
      let taken = state.takeFirst()
      state.removeStale()
      state.isAwaited = state.count > 0
      return (taken, state.isAwaited)
    }
  }

  /// Takes a request out that is not to be taken in any more; false if it does not wait.
  /// - Parameter isOverdue: It has waited for as long as one may.
  func withdraw(_ number: UInt64, isOverdue: Bool = false) -> Bool {
    let request = state.withLock { state in
      let request = state.remove(number)
      if request != nil, isOverdue { state.isStalled = true }
      return request
    }
    // Released outside of the lock.
    return withExtendedLifetime(request) { request != nil }
  }
}
