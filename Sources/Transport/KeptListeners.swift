import Glibc
import Synchronization

/// Listening sockets between two versions of a pipeline: connections wait meanwhile and are not refused. And those that a new version will
/// need: they are bound before the old one ends (``HTTPServer/reserve(_:)``).
public enum KeptListeners {
  private struct State {
    var isKeeping = false
    /// Descriptors by address.
    var sockets: [String: Int32] = [:]
    /// How many servers of this process listen on each port.
    var ports: [Int: Int] = [:]
  }

  private static let state = Mutex(State())

  /// From now on listeners are kept, until ``end()``.
  public static func begin() { state.withLock { $0.isKeeping = true } }

  /// Closes the listeners that nobody has taken over, and keeps none any more.
  public static func end() {
    let left = state.withLock { state in
      defer {
        state.isKeeping = false
        state.sockets = [:]
      }
      return state.sockets.values
    }
    for socket in left { close(socket) }
  }

  /// Keeps a duplicate of a listening socket, if listeners are kept now.
  static func keep(_ address: String, _ socket: Int32) {
    let own = fcntl(socket, F_DUPFD_CLOEXEC, 0)
    guard own >= 0 else { return }
    let surplus = state.withLock { state in state.isKeeping ? state.sockets.updateValue(own, forKey: address) : own }
    if let surplus { close(surplus) }
  }

  /// The socket that was kept for an address, listening; it is the caller's from now on.
  static func take(_ address: String) -> Int32? {
    guard let socket = state.withLock({ $0.sockets.removeValue(forKey: address) }) else { return nil }
    guard listen(socket, 256) == 0 else {
      close(socket)
      return nil
    }
    return socket
  }

  /// A server of this process listens on a port from now on.
  static func begins(_ port: Int) { state.withLock { $0.ports[port, default: 0] += 1 } }

  /// It listens no more.
  static func ends(_ port: Int) {
    state.withLock { state in
      state.ports[port, default: 0] -= 1
      if state.ports[port] == 0 { state.ports[port] = nil }
    }
  }

  /// Whether a server of this process has the port, or a socket is kept for the address.
  static func hasOwn(_ port: Int, _ address: String) -> Bool {
    state.withLock { $0.ports[port] != nil || $0.sockets[address] != nil }
  }
}
