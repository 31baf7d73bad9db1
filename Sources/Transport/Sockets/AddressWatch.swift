import PipelineCore
import Synchronization

/// Looks up the host name of a kept connection regularly, on another thread, and reports when the name no longer has
/// the address in use.
///
/// A failed lookup changes nothing, and neither does a name that has the address among others.
package final class AddressWatch: Sendable {
  /// The same for all kept connections, those of requests included.
  package static let interval = TimeSpan.seconds(30)

  /// A lookup may block for as long as name servers take to answer.
  private static let threads = SharedThreads("rxd names", usual: 1, most: 16)

  private struct State {
    var used: String?
    /// When to look up the name next, on the monotonic clock.
    var due: Int64 = 0
    var hasMoved = false
    var isOver = false
  }
  private let state = Mutex(State())
  private let work = Mutex<SerialWork?>(nil)
  private let every: Int64

  /// - Parameters:
  ///   - every: The interval between lookups.
  ///   - lookUp: The addresses of the name, `HOST:PORT` each; empty: it cannot be looked up. May block.
  ///   - moved: Called, on a thread of its own, when the name no longer has the address in use.
  /// - Returns: Nil if the host is an address, or there is no thread.
  init?(
    _ host: String, every: TimeSpan, lookUp: @escaping @Sendable () -> [String], moved: @escaping @Sendable () -> Void
  ) {
    guard AddressPolicy.bytes(ofHost: host) == nil else { return nil }
    let every = every.nanoseconds
    self.every = every
    let work = try? SerialWork(on: Self.threads) { [weak self] in
      guard let self, let due = state.withLock({ $0.isOver ? nil : $0.due }) else { return .over }
      let now = monotonicNow()
      guard now >= due else { return .at(due) }
      guard state.withLock({ $0.used != nil && !$0.hasMoved }) else { return .whenWoken }
      let found = lookUp()
      if !found.isEmpty {
        let isNews = state.withLock { state in
          // Another connection may have been made meanwhile.
          guard let used = state.used, !state.isOver, state.due == due, !found.contains(used)
          else {
            return false
          }
          state.hasMoved = true
          return true
        }
        if isNews { moved() }
      }
      state.withLock { if $0.due == due { $0.due = now &+ every } }
      return .at(now &+ every)
    }
    guard let work else { return nil }
    self.work.withLock { $0 = work }
  }

  deinit { stop() }

  /// Whether the address in use is no longer one of the name's.
  package var hasMoved: Bool { state.withLock(\.hasMoved) }

  /// Notes that the connection uses this address, `HOST:PORT`, from now on; nil: there is no connection.
  package func uses(_ address: String?) {
    state.withLock {
      $0.used = address
      $0.due = monotonicNow() &+ every
      $0.hasMoved = false
    }
    if address != nil { work.withLock { $0 }?.wake() }
  }

  package func stop() {
    state.withLock { $0.isOver = true }
    work.withLock { $0.take() }?.wake()
  }
}
