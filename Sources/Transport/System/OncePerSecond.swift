import Synchronization

/// Passes on messages that may be very frequent: the first of each second, with the number of those left out before it.
package final class OncePerSecond: Sendable {
  private let state = Mutex((due: Int64.min, left: 0))
  private let log: @Sendable (String) -> Void

  package init(_ log: @escaping @Sendable (String) -> Void) { self.log = log }

  package func write(_ message: @autoclosure () -> String) {
    let now = monotonicNow()
    let left: Int? = state.withLock { state in
      guard now >= state.due else {
        state.left += 1
        return nil
      }
      defer { state = (now &+ 1_000_000_000, 0) }
      return state.left
    }
    guard let left else { return }
    log(message() + (left > 0 ? " (and \(left) more messages like this one)" : ""))
  }
}
