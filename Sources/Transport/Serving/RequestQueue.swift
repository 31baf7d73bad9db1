import PipelineCore
import Synchronization

/// Complete requests that wait for the pipeline, oldest first. A request leaves the queue exactly once: the pipeline
/// takes it, or it is withdrawn because it was answered or its client has disconnected; its memory is then freed.
/// Thread-safe.
package final class RequestQueue: Sendable {
  private struct Entry {
    var number: UInt64
    /// Nil: withdrawn.
    var request: ServerRequest?
  }
  private struct State {
    /// The entries by number; those before `head` have been taken.
    var entries: [Entry] = []
    var head = 0
    /// How many entries from `head` on have a request.
    var count = 0
    var next: UInt64 = 0
    /// Whether a call of `take` is due.
    var isAwaited = false
    var isStalled = false
    var isClosed = false

    mutating func takeFirst() -> ServerRequest? {
      while head < entries.count {
        defer { head += 1 }
        guard let request = entries[head].request.take() else { continue }
        request.exchange.take()
        count -= 1
        return request
      }
      return nil
    }

    /// Removes entries without a request once they are the majority.
    mutating func removeStale() {
      if count == 0 {
        // The memory of a queue that was long is freed.
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

  /// The number of waiting requests.
  package var count: Int { state.withLock(\.count) }

  /// The number of stored entries, including withdrawn ones.
  var entryCount: Int { state.withLock(\.entries.count) }

  /// Whether a request has waited for the whole limit and the pipeline has taken none since: further requests would
  /// wait in vain.
  var isStalled: Bool { state.withLock(\.isStalled) }

  /// Adds a request, on the network thread.
  package func add(_ request: ServerRequest) {
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

  /// Whether requests wait and no call of `take` is due: the caller must arrange one.
  package func attend() -> Bool {
    state.withLock { state in
      guard !state.isAwaited, state.count > 0 else { return false }
      state.isAwaited = true
      return true
    }
  }

  /// Removes and returns all requests; later ones are answered 503.
  package func close() -> [ServerRequest] {
    state.withLock { state in
      state.isClosed = true
      defer {
        state.count = 0
        state.removeStale()
      }
      return state.entries[state.head...].compactMap(\.request)
    }
  }

  /// The oldest request, and whether `take` must be called once more. Called by the pipeline when it takes input.
  package func take() -> (request: ServerRequest?, isMoreToCome: Bool) {
    state.withLock { state in
      state.isStalled = false
      let taken = state.takeFirst()
      state.removeStale()
      state.isAwaited = state.count > 0
      return (taken, state.isAwaited)
    }
  }

  /// Withdraws a request; false if it is not waiting.
  /// - Parameter isOverdue: The request has waited for the whole limit.
  func withdraw(_ number: UInt64, isOverdue: Bool = false) -> Bool {
    let request = state.withLock { state in
      let request = state.remove(number)
      if request != nil, isOverdue { state.isStalled = true }
      return request
    }
    // Released outside the lock.
    return withExtendedLifetime(request) { request != nil }
  }
}
