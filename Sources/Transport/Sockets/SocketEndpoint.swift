import CLinux
import Glibc
import PipelineCore
import Synchronization

/// The address of a socket.
package enum SocketEndpoint: Sendable, Equatable {
  /// An IP address without brackets, or a name. Port 0: the system chooses.
  case network(host: String, port: Int, isDatagram: Bool)
  /// A path, or an abstract name that begins with `@`. `mode`: the permissions of a listening socket, which decide who
  /// may connect or send.
  case unix(path: String, isDatagram: Bool, mode: UInt32 = 0o600)
  /// A socket that the service manager has opened, by name (`FileDescriptorName=`).
  case activated(name: String, isDatagram: Bool)

  package var isDatagram: Bool {
    switch self {
    case .network(_, _, let isDatagram), .unix(_, let isDatagram, _), .activated(_, let isDatagram): isDatagram
    }
  }

  /// `127.0.0.1:80`, `[::1]:80`, a path, or `systemd:NAME`.
  package var text: String {
    switch self {
    case .network(let host, let port, _):
      host.utf8.contains(UInt8(ascii: ":")) ? "[\(host)]:\(port)" : "\(host):\(port)"
    case .unix(let path, _, _): path
    case .activated(let name, _): "systemd:\(name)"
    }
  }

  /// The key under which the socket is kept during a reload (``KeptListeners``); nil: it cannot be kept, because the
  /// system chooses the port, or need not be, because the service manager holds it.
  var address: String? {
    switch self {
    case .network(_, 0, _), .activated: nil
    case .network(let host, let port, let isDatagram): isDatagram ? "udp \(host):\(port)" : "\(host):\(port)"
    case .unix(let path, _, _): KeptListeners.unixPrefix + path
    }
  }

  /// Whether only one of the two sockets can be open.
  package func excludes(_ other: SocketEndpoint) -> Bool { exclusive == other.exclusive }

  /// The part that only one socket can have: the port, whatever the host, or the path.
  var exclusive: String {
    switch self {
    case .network(_, let port, let isDatagram): isDatagram ? "udp \(port)" : "\(port)"
    case .unix(let path, _, _): KeptListeners.unixPrefix + path
    case .activated(let name, _): "systemd:\(name)"
    }
  }
}

/// The reason why there is no socket.
package struct SocketFailure: Error, Sendable, Equatable {
  /// One sentence without a full stop.
  package var message: String
}

/// A socket that listens for connections or receives datagrams. Closed by ``close(handsOver:)`` or when it is released.
package final class BoundSocket: Sendable {
  package let endpoint: SocketEndpoint
  let descriptor: Int32
  /// The actual address, with the port if the system has chosen it.
  package let text: String
  /// One sentence for each option that the system has refused.
  let faults: [String]
  private let local: LocalSocket?
  private let isOpen = Mutex(true)

  /// Opens the socket, or takes the one that was kept during a reload.
  package init(_ endpoint: SocketEndpoint) throws(SocketFailure) {
    var faults: [String] = []
    let (descriptor, local) = try Self.open(endpoint, &faults)
    self.faults = faults
    self.endpoint = endpoint
    self.descriptor = descriptor
    self.local = local
    var address = rx_address()
    if case .network = endpoint, rx_local_address(descriptor, &address) != 0 {
      text = SocketPeer.text(address)
    } else {
      text = endpoint.text
    }
    KeptListeners.begins(endpoint.exclusive)
  }

  deinit { close() }

  private static func open(
    _ endpoint: SocketEndpoint, _ faults: inout [String]
  ) throws(SocketFailure) -> (Int32, LocalSocket?) {
    let kept = endpoint.address.flatMap { KeptListeners.take($0, listens: !endpoint.isDatagram) }
    switch endpoint {
    case .network(let host, let port, let isDatagram):
      if let kept { return (kept, nil) }
      let descriptor = try bind(host, port, isDatagram, endpoint.text, &faults)
      guard isDatagram || listen(descriptor, 256) == 0 else {
        let code = errno
        Glibc.close(descriptor)
        throw failure(code, endpoint.text, host)
      }
      return (descriptor, nil)
    case .unix(let path, let isDatagram, let mode):
      let local: LocalSocket
      if let kept {
        local = LocalSocket(adopting: kept, path)
      } else if path.hasPrefix("@") {
        return (try abstract(path, isDatagram), nil)
      } else {
        do throws(LocalSocket.Refusal) {
          local = try LocalSocket(path, isDatagram: isDatagram, mode: mode_t(mode), backlog: 256)
        } catch {
          throw SocketFailure(message: error.message)
        }
      }
      return (local.descriptor, local)
    case .activated(let name, let isDatagram):
      return (try ActivatedSockets.take(name, isDatagram: isDatagram), nil)
    }
  }

  private static func abstract(_ name: String, _ isDatagram: Bool) throws(SocketFailure) -> Int32 {
    var address = rx_address()
    guard rx_unix_address(name, &address) != 0 else {
      throw SocketFailure(message: "cannot listen on \(name): the name has more than 107 bytes")
    }
    let descriptor = rx_socket(AF_UNIX, isDatagram ? 1 : 0)
    guard descriptor >= 0, rx_bind(descriptor, &address) == 0, isDatagram || listen(descriptor, 256) == 0 else {
      let code = errno
      if descriptor >= 0 { Glibc.close(descriptor) }
      throw failure(code, name, name)
    }
    return descriptor
  }

  private static func bind(
    _ host: String, _ port: Int, _ isDatagram: Bool, _ text: String, _ faults: inout [String]
  ) throws(SocketFailure) -> Int32 {
    let address = try SocketPeer.resolve(host, port, isDatagram: isDatagram, isPassive: true)[0]
    let descriptor = rx_socket(rx_address_family([address]), isDatagram ? 1 : 0)
    guard descriptor >= 0 else { throw failure(errno, text, host) }
    if !isDatagram { SocketOption.set([.reuseAddress], descriptor) { faults.append($0) } }
    guard rx_bind(descriptor, [address]) == 0 else {
      let code = errno
      Glibc.close(descriptor)
      throw failure(code, text, host)
    }
    return descriptor
  }

  private static func failure(_ code: Int32, _ endpoint: String, _ host: String) -> SocketFailure {
    let reason =
      switch code {
      case EADDRINUSE: "another program listens there; choose another one"
      case EACCES, EPERM: "ports below 1024 are not for this user; let systemd open it, or choose another one"
      case EADDRNOTAVAIL: "\(host) is not an address of this machine"
      default: PosixError.text(code)
      }
    return SocketFailure(message: "cannot listen on \(endpoint): \(reason)")
  }

  /// Binds the address for a socket that is opened soon, while listeners are kept, so that no other process can take it
  /// until then. Does nothing if this process has the address, because its present socket may be about to close.
  package static func reserve(_ endpoint: SocketEndpoint) throws(SocketFailure) {
    if case .activated(let name, let isDatagram) = endpoint {
      Glibc.close(try ActivatedSockets.take(name, isDatagram: isDatagram))
      return
    }
    guard let address = endpoint.address, !KeptListeners.hasOwn(endpoint.exclusive, address) else { return }
    // Refused options are not reported: the next receiver works without them, too.
    var faults: [String] = []
    switch endpoint {
    case .network(let host, let port, let isDatagram):
      let descriptor = try bind(host, port, isDatagram, endpoint.text, &faults)
      KeptListeners.keep(address, descriptor)
      Glibc.close(descriptor)
    default:
      let (descriptor, local) = try open(endpoint, &faults)
      KeptListeners.keep(address, descriptor)
      if local == nil { Glibc.close(descriptor) }
    }
  }

  /// Runs `body`, which must not block, with the descriptor; nil: the socket is closed, and the number may belong to
  /// another file.
  func use<Result: Sendable>(_ body: (Int32) -> Result) -> Result? {
    isOpen.withLock { $0 ? body(descriptor) : nil }
  }

  /// Closes the socket; the second call does nothing.
  /// - Parameter handsOver: In a reload, the next socket at this address takes it over, so waiting connections and
  ///   datagrams are not lost.
  package func close(handsOver: Bool = false) {
    let wasOpen = isOpen.withLock { isOpen in
      guard isOpen else { return false }
      isOpen = false
      let isKept = handsOver && (endpoint.address.map { KeptListeners.keep($0, descriptor) } ?? false)
      if let local {
        if !isKept { local.remove() }
      } else {
        Glibc.close(descriptor)
      }
      return true
    }
    if wasOpen { KeptListeners.ends(endpoint.exclusive) }
  }
}

extension LocalSocket.Refusal {
  /// One sentence without a full stop.
  var message: String {
    switch self {
    case .inUse(let path): "cannot listen on \(path): another program listens there"
    case .failed(let error): error.message
    }
  }
}

/// Sockets that the service manager has opened for this process (sd_listen_fds(3)).
package enum ActivatedSockets {
  private static let sockets = Mutex<[(name: String, descriptor: Int32)]>([])
  private static let first: Int32 = 3

  /// Records the sockets that the environment names. Called before any other thread is started, and before the
  /// variables are removed.
  package static func adopt(pid: String?, count: String?, names: String?) {
    guard let pid, Int32(pid) == getpid(), let count = count.flatMap({ Int32($0) }), count > 0, count < 1 << 16 else {
      return
    }
    let names = (names ?? "").split(separator: ":", omittingEmptySubsequences: false)
    for index in 0..<count {
      let descriptor = first + index
      let flags = fcntl(descriptor, F_GETFD)
      guard flags >= 0 else { continue }
      _ = fcntl(descriptor, F_SETFD, flags | FD_CLOEXEC)
      _ = fcntl(descriptor, F_SETFL, fcntl(descriptor, F_GETFL) | O_NONBLOCK)
      let name = Int(index) < names.count && !names[Int(index)].isEmpty ? String(names[Int(index)]) : "unknown"
      sockets.withLock { $0.append((name, descriptor)) }
    }
  }

  /// Duplicates the socket with that name; the socket itself stays open for the next version of the pipeline.
  static func take(_ name: String, isDatagram: Bool) throws(SocketFailure) -> Int32 {
    let all = sockets.withLock { $0 }
    guard let found = all.first(where: { $0.name == name }) else {
      let known = Set(all.map(\.name)).sorted()
      throw SocketFailure(
        message: "systemd has opened no socket '\(name)' for this process"
          + (known.isEmpty
            ? ": there is none; its .socket unit needs FileDescriptorName=\(name)"
            : ": there is \(known.map { "'\($0)'" }.joined(separator: ", "))"))
    }
    let kind = rx_socket_kind(found.descriptor)
    guard kind == (isDatagram ? 1 : 0), isDatagram || rx_is_listening(found.descriptor) != 0 else {
      throw SocketFailure(
        message: "the socket 'systemd:\(name)' "
          + (kind < 0
            ? "is not a socket" : isDatagram ? "is a stream, not for datagrams" : "does not listen for connections"))
    }
    let own = fcntl(found.descriptor, F_DUPFD_CLOEXEC, 0)
    guard own >= 0 else { throw SocketFailure(message: "cannot use 'systemd:\(name)': \(PosixError.text(errno))") }
    return own
  }
}

/// The peer of a socket.
package struct SocketPeer: Sendable, Equatable {
  /// `127.0.0.1:4711`, or the path of a Unix socket; empty: it has no address.
  package var text = ""
  /// The peer's process and user, for Unix sockets; nil: unknown.
  package var process: Int?
  package var user: Int?

  init(_ address: rx_address) { text = Self.text(address) }

  static func text(_ address: rx_address) -> String {
    let text = withUnsafeTemporaryAllocation(of: CChar.self, capacity: 160) { space in
      let count = rx_address_text([address], space.baseAddress, 160)
      return String(decoding: UnsafeRawBufferPointer(space).prefix(max(Int(count), 0)), as: UTF8.self)
    }
    return HTTPSyntax.printable(text)
  }

  static func resolve(
    _ host: String, _ port: Int, isDatagram: Bool, isPassive: Bool = false
  ) throws(SocketFailure) -> [rx_address] {
    var found = [rx_address](repeating: rx_address(), count: 16)
    let count = rx_resolve(host, Int32(port), isDatagram ? 1 : 0, isPassive ? 1 : 0, &found, 16)
    guard count > 0 else {
      let reason = count < 0 ? String(cString: rx_resolving_text(count)) : "it has no address"
      throw SocketFailure(message: "\(HTTPSyntax.printable(host)) cannot be resolved: \(reason)")
    }
    return Array(found.prefix(Int(count)))
  }
}

/// How the names of receivers are looked up.
package struct NameLookup: Sendable, Equatable {
  /// How long a connection may be used before its name is looked up again.
  package var every = AddressWatch.interval
  /// The addresses of a host; replaced in tests.
  var addresses: @Sendable (_ host: String, _ port: Int, _ isDatagram: Bool) throws(SocketFailure) -> [rx_address] = {
    host, port, isDatagram throws(SocketFailure) in try SocketPeer.resolve(host, port, isDatagram: isDatagram)
  }

  package init() {}

  /// Always true: how names are looked up does not matter for the equality of connections.
  package static func == (a: NameLookup, b: NameLookup) -> Bool { true }

  /// - Parameter moved: The address in use is no longer one of the name.
  /// - Returns: Nil: the host is an address.
  func watch(_ host: String, _ port: Int, isDatagram: Bool, moved: @escaping @Sendable () -> Void) -> AddressWatch? {
    let addresses = addresses
    return AddressWatch(host, every: every) {
      ((try? addresses(host, port, isDatagram)) ?? []).map(SocketPeer.text)
    } moved: {
      moved()
    }
  }
}
