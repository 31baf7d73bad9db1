import Glibc
import Synchronization

/// Listening sockets during a reload. Those of the old version stay open, so that clients wait and are not refused; those that the new version
/// needs are bound before the old one ends (``HTTPServer/reserve(_:)``).
package enum KeptListeners {
  private struct State {
    var isKeeping = false
    /// Descriptors by address.
    var sockets: [String: Int32] = [:]
    /// Discard the remaining items of the stores (``KeptItems``) when the reload is over.
    var discards: [ObjectIdentifier: @Sendable () -> Void] = [:]
    /// The number of servers of this process on each port or path, whatever the host.
    var servers: [String: Int] = [:]
    /// Called at the end of each reload.
    var ends: [@Sendable () -> Void] = []
  }

  private static let state = Mutex(State())

  /// The prefix of the address of a Unix socket; the path follows.
  static let unixPrefix = "unix "

  /// Begins a reload: listeners are kept until ``end()``.
  package static func begin() { state.withLock { $0.isKeeping = true } }

  package static var isKeeping: Bool { state.withLock(\.isKeeping) }

  /// Runs `keep` if a reload is under way, and calls `discard` when the reload is over, once for each store. Returns
  /// whether it ran `keep`.
  static func duringReload(
    of store: ObjectIdentifier, discard: @escaping @Sendable () -> Void, keep: () -> Void
  ) -> Bool {
    state.withLock { state in
      guard state.isKeeping else { return false }
      state.discards[store] = discard
      keep()
      return true
    }
  }

  /// Calls `body` at the end of each reload from now on, before the sockets that are left are closed.
  static func atEnds(_ body: @escaping @Sendable () -> Void) { state.withLock { $0.ends.append(body) } }

  /// Ends the reload: closes the listeners and discards the items that no version has taken.
  package static func end() {
    let (left, discards, ends) = state.withLock { state in
      defer {
        state.isKeeping = false
        state.sockets = [:]
        state.discards = [:]
      }
      return (state.sockets, state.discards, state.ends)
    }
    for discard in discards.values { discard() }
    for end in ends { end() }
    for (address, socket) in left {
      close(socket)
      if address.hasPrefix(unixPrefix) { unlink(String(address.dropFirst(unixPrefix.count))) }
    }
  }

  /// Keeps a duplicate of a listening socket, if a reload is under way. Returns whether it was kept.
  @discardableResult
  static func keep(_ address: String, _ socket: Int32) -> Bool {
    let own = fcntl(socket, F_DUPFD_CLOEXEC, 0)
    guard own >= 0 else { return false }
    let surplus = state.withLock { state in state.isKeeping ? state.sockets.updateValue(own, forKey: address) : own }
    if let surplus { close(surplus) }
    return surplus != own
  }

  /// Takes the socket that was kept for an address, which listens unless it receives datagrams. The caller owns it.
  static func take(_ address: String, listens: Bool = true) -> Int32? {
    guard let socket = state.withLock({ $0.sockets.removeValue(forKey: address) }) else { return nil }
    guard !listens || listen(socket, 256) == 0 else {
      close(socket)
      return nil
    }
    return socket
  }

  /// Notes that a server of this process has a port or path.
  static func begins(_ exclusive: String) { state.withLock { $0.servers[exclusive, default: 0] += 1 } }

  /// Notes that a server of this process has released a port or path.
  static func ends(_ exclusive: String) {
    state.withLock { state in
      state.servers[exclusive, default: 0] -= 1
      if state.servers[exclusive] == 0 { state.servers[exclusive] = nil }
    }
  }

  /// Whether a server of this process has the port or path, or a socket is kept for the address.
  static func hasOwn(_ exclusive: String, _ address: String) -> Bool {
    state.withLock { $0.servers[exclusive] != nil || $0.sockets[address] != nil }
  }
}
