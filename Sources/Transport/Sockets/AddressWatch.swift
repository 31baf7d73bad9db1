import CLinux
import PipelineCore
import Synchronization

/// Looks the name of a kept connection up again and again, beside its work, and says when it has other addresses than the one that is used.
///
/// A name that cannot be looked up, or that has the address among others, changes nothing.
package final class AddressWatch: Sendable {
  package struct Options: Sendable, Equatable {
    /// How long a connection may be used without a look at the name.
    package var every = AddressWatch.interval
    /// The addresses of a host; replaced in tests.
    var lookUp: @Sendable (_ host: String, _ port: Int, _ isDatagram: Bool) throws(SocketFailure) -> [rx_address] = {
      host, port, isDatagram throws(SocketFailure) in try SocketPeer.resolve(host, port, isDatagram: isDatagram)
    }
    package init() {}

    /// Always true: what a connection is does not depend on how its name is looked up.
    package static func == (a: Options, b: Options) -> Bool { true }
  }

  /// The same for all kept connections, those of requests included.
  package static let interval = TimeSpan.seconds(30)

  /// A look may block for as long as the servers of names please.
  private static let threads = SharedThreads("rxd names", usual: 1, most: 16)

  private struct State {
    var used: String?
    /// When the name is looked at, on the monotonic clock.
    var due: Int64 = 0
    var hasMoved = false
    var isOver = false
  }
  private let state = Mutex(State())
  private let work = Mutex<SerialWork?>(nil)
  private let every: Int64

  /// - Parameter moved: The address in use is no longer one of the name; called on a thread of its own.
  /// - Returns: Nil if the host is an address, or there is no thread.
  package init?(
    _ host: String, _ port: Int, isDatagram: Bool, _ options: Options, moved: @escaping @Sendable () -> Void
  ) {
    guard AddressPolicy.bytes(ofHost: host) == nil else { return nil }
    every = options.every.nanoseconds
    let every = every
    let work = try? SerialWork(on: Self.threads) { [weak self] in
      guard let self, let due = state.withLock({ $0.isOver ? nil : $0.due }) else { return .over }
      let now = monotonicNow()
      guard now >= due else { return .at(due) }
      guard state.withLock({ $0.used != nil && !$0.hasMoved }) else { return .whenWoken }
      if let found = try? options.lookUp(host, port, isDatagram), !found.isEmpty {
        let isNews = state.withLock { state in
          // Another connection may have been made meanwhile.
          guard let used = state.used, !state.isOver, state.due == due, !found.map(SocketPeer.text).contains(used)
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

  /// Whether the address in use is no longer one of the name.
  package var hasMoved: Bool { state.withLock(\.hasMoved) }

  /// The connection has this address, `HOST:PORT`, from now on; nil: there is none.
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
