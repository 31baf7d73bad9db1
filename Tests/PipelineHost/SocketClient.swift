import CLinux
import Glibc

/// A socket of a test: a client that connects, or a receiver of datagrams or connections.
package final class SocketClient {
  package private(set) var descriptor: Int32

  private init(_ descriptor: Int32) { self.descriptor = descriptor }
  deinit { end() }

  /// Connects to a port of the loopback address.
  package convenience init?(port: Int, isDatagram: Bool = false) {
    var address = [rx_address()]
    guard rx_resolve("127.0.0.1", Int32(port), isDatagram ? 1 : 0, 0, &address, 1) == 1 else { return nil }
    self.init(connecting: &address, isDatagram)
  }

  /// Connects to a path.
  package convenience init?(path: String, isDatagram: Bool = false) {
    var address = [rx_address()]
    guard rx_unix_address(path, &address) == 1 else { return nil }
    self.init(connecting: &address, isDatagram)
  }

  private convenience init?(connecting address: inout [rx_address], _ isDatagram: Bool) {
    let descriptor = socket(
      rx_address_family(address), Int32((isDatagram ? SOCK_DGRAM : SOCK_STREAM).rawValue), 0)
    guard descriptor >= 0 else { return nil }
    self.init(descriptor)
    guard rx_connect(descriptor, address) == 0 else { return nil }
  }

  /// Sends all bytes; false: the peer does not accept them any more.
  @discardableResult
  package func send(_ bytes: [UInt8]) -> Bool {
    var at = 0
    while at < bytes.count {
      let count = bytes.withUnsafeBytes { rx_send(descriptor, $0.baseAddress.map { $0 + at }, $0.count - at) }
      guard count > 0 else { return false }
      at += Int(count)
    }
    return true
  }

  @discardableResult
  package func send(_ text: String) -> Bool { send(Array(text.utf8)) }

  /// Everything up to the end, or what came within the limit.
  package func receiveAll(within milliseconds: Int32 = 20_000) -> String {
    var all: [UInt8] = []
    while let more = receive(within: milliseconds), !more.isEmpty { all += more }
    return String(decoding: all, as: UTF8.self)
  }

  /// The bytes that have come; empty at the end, nil after the limit.
  package func receive(within milliseconds: Int32 = 20_000) -> [UInt8]? {
    guard rx_wait_two(descriptor, 0, -1, milliseconds) > 0 else { return nil }
    var bytes = [UInt8](repeating: 0, count: 1 << 16)
    let count = bytes.withUnsafeMutableBytes { recv(descriptor, $0.baseAddress, $0.count, 0) }
    return count < 0 ? [] : Array(bytes.prefix(count))
  }

  /// Closes the sending side; what was sent still arrives.
  package func endSending() { shutdown(descriptor, Int32(SHUT_WR)) }

  /// Closes it with a reset.
  package func abort() {
    var option = linger(l_onoff: 1, l_linger: 0)
    setsockopt(descriptor, SOL_SOCKET, SO_LINGER, &option, socklen_t(MemoryLayout<linger>.size))
    end()
  }

  package func end() {
    if descriptor >= 0 { close(descriptor) }
    descriptor = -1
  }

  /// Listens on a port of the loopback address that the system chooses, or on the given one.
  package static func listening(port: Int = 0, isDatagram: Bool = false) -> (SocketClient, port: Int)? {
    var address = [rx_address()]
    guard rx_resolve("127.0.0.1", Int32(port), isDatagram ? 1 : 0, 1, &address, 1) == 1 else { return nil }
    let descriptor = socket(AF_INET, Int32((isDatagram ? SOCK_DGRAM : SOCK_STREAM).rawValue), 0)
    guard descriptor >= 0 else { return nil }
    let client = SocketClient(descriptor)
    _ = rx_set_option(descriptor, SOL_SOCKET, SO_REUSEADDR, 1)
    guard rx_bind(descriptor, address) == 0, isDatagram || listen(descriptor, 16) == 0,
      rx_local_address(descriptor, &address) == 1
    else { return nil }
    return (client, Int(rx_address_port(address)))
  }

  /// Listens on a path.
  package static func listening(path: String) -> SocketClient? {
    var address = [rx_address()]
    guard rx_unix_address(path, &address) == 1 else { return nil }
    let descriptor = socket(AF_UNIX, Int32(SOCK_STREAM.rawValue), 0)
    guard descriptor >= 0 else { return nil }
    let client = SocketClient(descriptor)
    return rx_bind(descriptor, address) == 0 && listen(descriptor, 16) == 0 ? client : nil
  }

  /// The next connection; nil after the limit.
  package func accept(within milliseconds: Int32 = 20_000) -> SocketClient? {
    guard rx_wait_two(descriptor, 0, -1, milliseconds) > 0 else { return nil }
    let found = Glibc.accept(descriptor, nil, nil)
    return found < 0 ? nil : SocketClient(found)
  }
}
