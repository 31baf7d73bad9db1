import Foundation
import Synchronization

/// A way to a port of this machine that can be cut, go silent and be slow.
final class Relay: Sendable {
  enum Mode: Sendable {
    case open
    /// Connections are reset, and new ones too.
    case cut
    /// Nothing passes, and nobody is told.
    case silent
    /// At most this many bytes in 10 ms and direction.
    case slow(Int)
  }

  private struct State {
    var mode = Mode.open
    var isOver = false
  }

  let port: Int
  private let state = Mutex(State())
  private let listener: Int32
  private let target: Int

  init(to target: Int) throws {
    self.target = target
    let listener = socket(AF_INET, Int32(SOCK_STREAM.rawValue), 0)
    var address = Self.address(0)
    var size = socklen_t(MemoryLayout<sockaddr_in>.size)
    let result = withUnsafeMutablePointer(to: &address) {
      $0.withMemoryRebound(to: sockaddr.self, capacity: 1) {
        bind(listener, $0, size) == 0 && listen(listener, 64) == 0 && getsockname(listener, $0, &size) == 0
      }
    }
    guard result else { throw POSIXError(.EADDRNOTAVAIL) }
    self.listener = listener
    port = Int(UInt16(bigEndian: address.sin_port))
    Thread.detachNewThread { [self] in accept() }
  }

  var mode: Mode {
    get { state.withLock(\.mode) }
    set { state.withLock { $0.mode = newValue } }
  }

  func end() { state.withLock { $0.isOver = true } }

  private var isOver: Bool { state.withLock(\.isOver) }

  private func accept() {
    defer { close(listener) }
    while !isOver {
      var wait = pollfd(fd: listener, events: Int16(POLLIN), revents: 0)
      guard poll(&wait, 1, 50) == 1 else { continue }
      let client = Glibc.accept(listener, nil, nil)
      if client >= 0 { Thread.detachNewThread { [self] in pass(client) } }
    }
  }

  private func pass(_ client: Int32) {
    let server = socket(AF_INET, Int32(SOCK_STREAM.rawValue), 0)
    defer {
      // A reset, as from a way that is gone.
      var linger = linger(l_onoff: 1, l_linger: 0)
      setsockopt(client, SOL_SOCKET, SO_LINGER, &linger, socklen_t(MemoryLayout<Glibc.linger>.size))
      close(client)
      close(server)
    }
    var address = Self.address(target)
    let connected = withUnsafePointer(to: &address) {
      $0.withMemoryRebound(to: sockaddr.self, capacity: 1) {
        connect(server, $0, socklen_t(MemoryLayout<sockaddr_in>.size))
      }
    }
    guard connected == 0 else { return }
    var bytes = [UInt8](repeating: 0, count: 1 << 16)
    while !isOver {
      let limit: Int
      switch mode {
      case .cut: return
      case .silent:
        poll(nil, 0, 10)
        continue
      case .slow(let count):
        poll(nil, 0, 10)
        limit = count
      case .open: limit = bytes.count
      }
      var waits = [client, server].map { pollfd(fd: $0, events: Int16(POLLIN), revents: 0) }
      guard poll(&waits, 2, 10) > 0 else { continue }
      for (wait, to) in zip(waits, [server, client]) where wait.revents != 0 {
        let count = read(wait.fd, &bytes, limit)
        guard count > 0 else { return }
        var done = 0
        while done < count {
          let sent = bytes.withUnsafeBytes { send(to, $0.baseAddress! + done, count - done, Int32(MSG_NOSIGNAL)) }
          guard sent > 0 else { return }
          done += sent
        }
      }
    }
  }

  private static func address(_ port: Int) -> sockaddr_in {
    var address = sockaddr_in()
    address.sin_family = sa_family_t(AF_INET)
    address.sin_port = UInt16(port).bigEndian
    address.sin_addr.s_addr = UInt32(0x7F00_0001).bigEndian
    return address
  }
}
