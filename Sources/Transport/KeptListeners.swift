import Glibc
import Synchronization

/// Listening sockets between two versions of a pipeline: connections wait meanwhile and are not refused.
public enum KeptListeners {
  private struct State {
    var isKeeping = false
    /// Descriptors by address.
    var sockets: [String: Int32] = [:]
  }

  private static let state = Mutex(State())

  /// From now on listeners are kept, until ``end()``.
  public static func begin() { state.withLock { $0.isKeeping = true } }

  /// Closes the listeners that nobody has taken over, and keeps none any more.
  public static func end() {
    let left = state.withLock { state in
      defer { state = State() }
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

  /// The socket that was kept for an address; it is the caller's from now on.
  static func take(_ address: String) -> Int32? { state.withLock { $0.sockets.removeValue(forKey: address) } }
}
