import Glibc
import Synchronization

/// Listening sockets between two versions of a pipeline: connections wait meanwhile and are not refused. And those that a new version will
/// need: they are bound before the old one ends (``HTTPServer/reserve(_:)``).
public enum KeptListeners {
  private struct State {
    var isKeeping = false
    /// Descriptors by address.
    var sockets: [String: Int32] = [:]
    /// What else ends with keeping.
    var endings: [@Sendable () -> Void] = []
    /// How many servers of this process have each port or path, whatever the host.
    var places: [String: Int] = [:]
  }

  private static let state = Mutex(State())

  /// What the address of a Unix socket begins with, before its path.
  static let unixPrefix = "unix "

  /// From now on listeners are kept, until ``end()``.
  public static func begin() { state.withLock { $0.isKeeping = true } }

  public static var isKeeping: Bool { state.withLock(\.isKeeping) }

  /// Has `body` called at the end of keeping; false: nothing is kept now.
  public static func whenOver(_ body: @escaping @Sendable () -> Void) -> Bool {
    state.withLock { state in
      if state.isKeeping { state.endings.append(body) }
      return state.isKeeping
    }
  }

  /// Closes the listeners and connections that nobody has taken over, and keeps none any more.
  public static func end() {
    KeptConnections.end()
    let (left, endings) = state.withLock { state in
      defer {
        state.isKeeping = false
        state.sockets = [:]
        state.endings = []
      }
      return (state.sockets, state.endings)
    }
    KeptWebSockets.end()
    for end in endings { end() }
    HTTPListener.endHolding()
    for (address, socket) in left {
      close(socket)
      if address.hasPrefix(unixPrefix) { unlink(String(address.dropFirst(unixPrefix.count))) }
    }
  }

  /// Keeps a duplicate of a listening socket, if listeners are kept now; whether it does.
  @discardableResult
  static func keep(_ address: String, _ socket: Int32) -> Bool {
    let own = fcntl(socket, F_DUPFD_CLOEXEC, 0)
    guard own >= 0 else { return false }
    let surplus = state.withLock { state in state.isKeeping ? state.sockets.updateValue(own, forKey: address) : own }
    if let surplus { close(surplus) }
    return surplus != own
  }

  /// The socket that was kept for an address, listening unless it receives datagrams; it is the caller's from now on.
  static func take(_ address: String, listens: Bool = true) -> Int32? {
    guard let socket = state.withLock({ $0.sockets.removeValue(forKey: address) }) else { return nil }
    guard !listens || listen(socket, 256) == 0 else {
      close(socket)
      return nil
    }
    return socket
  }

  /// A server of this process has a port or path from now on.
  static func begins(_ place: String) { state.withLock { $0.places[place, default: 0] += 1 } }

  /// It has it no more.
  static func ends(_ place: String) {
    state.withLock { state in
      state.places[place, default: 0] -= 1
      if state.places[place] == 0 { state.places[place] = nil }
    }
  }

  /// Whether a server of this process has the port or path, or a socket is kept for the address.
  static func hasOwn(_ place: String, _ address: String) -> Bool {
    state.withLock { $0.places[place] != nil || $0.sockets[address] != nil }
  }
}
