import Glibc
import PipelineCore
import Synchronization
import Transport

/// An HTTP server on loopback that follows a test's script byte by byte, with one thread per connection.
package final class ScriptedServer: Sendable {
  package let port: UInt16
  private let listener: Int32
  private let count = Atomic<Int>(0)

  /// Connections accepted so far.
  package var connections: Int { count.load(ordering: .acquiring) }
  package var url: String { "http://127.0.0.1:\(port)" }

  package init(_ script: @escaping @Sendable (Connection) -> Void) throws {
    let listener = socket(AF_INET, Int32(SOCK_STREAM.rawValue), 0)
    self.listener = listener
    var address = sockaddr_in()
    address.sin_family = sa_family_t(AF_INET)
    address.sin_addr.s_addr = UInt32(0x7f00_0001).bigEndian
    var length = socklen_t(MemoryLayout<sockaddr_in>.size)
    let bound = withUnsafeMutablePointer(to: &address) {
      $0.withMemoryRebound(to: sockaddr.self, capacity: 1) { pointer in
        bind(listener, pointer, length) == 0 && listen(listener, 512) == 0
          && getsockname(listener, pointer, &length) == 0
      }
    }
    if !bound { throw PosixError("listen on", "loopback") }
    port = UInt16(bigEndian: address.sin_port)
    try serve(script)
  }

  /// A server on a Unix socket, whose path must not exist.
  package init(path: String, _ script: @escaping @Sendable (Connection) -> Void) throws {
    let listener = socket(AF_UNIX, Int32(SOCK_STREAM.rawValue), 0)
    self.listener = listener
    var address = sockaddr_un()
    address.sun_family = sa_family_t(AF_UNIX)
    let isShort = withUnsafeMutableBytes(of: &address.sun_path) { space in
      guard path.utf8.count < space.count else { return false }
      space.copyBytes(from: path.utf8)
      return true
    }
    let bound = withUnsafePointer(to: &address) {
      $0.withMemoryRebound(to: sockaddr.self, capacity: 1) { pointer in
        bind(listener, pointer, socklen_t(MemoryLayout<sockaddr_un>.size)) == 0 && listen(listener, 512) == 0
      }
    }
    if !isShort || !bound { throw PosixError("listen on", path) }
    port = 0
    try serve(script)
  }

  private func serve(_ script: @escaping @Sendable (Connection) -> Void) throws {
    _ = try OwnThread("test accept") { [self] in
      while true {
        let socket = accept(listener, nil, nil)
        if socket < 0 { return }
        count.add(1, ordering: .acquiringAndReleasing)
        let connection = Connection(socket)
        _ = try? OwnThread("test serve") {
          script(connection)
          connection.close()
        }
      }
    }
  }

  /// Stops accepting; existing connections continue.
  package func stop() { shutdown(listener, Int32(SHUT_RDWR)) }
}

/// One end of a TCP connection, used by one thread.
package final class Connection: @unchecked Sendable {
  private let socket: Int32
  private var pending: [UInt8] = []
  private var isClosed = false
  package var descriptor: Int32 { socket }

  init(_ socket: Int32) { self.socket = socket }

  deinit { close() }

  /// Connects to a port on loopback.
  package convenience init(port: Int) throws {
    let socket = Glibc.socket(AF_INET, Int32(SOCK_STREAM.rawValue), 0)
    var address = sockaddr_in()
    address.sin_family = sa_family_t(AF_INET)
    address.sin_addr.s_addr = UInt32(0x7f00_0001).bigEndian
    address.sin_port = UInt16(port).bigEndian
    let connected = withUnsafePointer(to: &address) {
      $0.withMemoryRebound(to: sockaddr.self, capacity: 1) {
        connect(socket, $0, socklen_t(MemoryLayout<sockaddr_in>.size)) == 0
      }
    }
    self.init(socket)
    if !connected { throw PosixError("connect to", "port \(port)") }
  }

  @discardableResult
  package func send(_ bytes: [UInt8]) -> Bool {
    var sent = 0
    while sent < bytes.count {
      let count = bytes.withUnsafeBytes {
        Glibc.send(socket, $0.baseAddress! + sent, bytes.count - sent, Int32(MSG_NOSIGNAL))
      }
      if count <= 0 { return false }
      sent += count
    }
    return true
  }

  @discardableResult
  package func send(_ text: String) -> Bool { send(Array(text.utf8)) }

  private func fill() -> Bool {
    var buffer = [UInt8](repeating: 0, count: 65536)
    let count = recv(socket, &buffer, buffer.count, 0)
    if count <= 0 { return false }
    pending += buffer[..<count]
    return true
  }

  /// One more byte, or nil at the end of the stream.
  package func byte() -> UInt8? {
    while pending.isEmpty { if !fill() { return nil } }
    return pending.removeFirst()
  }

  /// The next line without its end, or nil at the end of the stream.
  package func line() -> String? {
    var bytes: [UInt8] = []
    while let byte = byte() {
      if byte == 0x0A { return String(decoding: bytes.last == 0x0D ? bytes.dropLast() : bytes[...], as: UTF8.self) }
      bytes.append(byte)
    }
    return nil
  }

  /// Reads up to the end of the stream.
  package func readAll() -> String {
    while fill() {}
    defer { pending = [] }
    return String(decoding: pending, as: UTF8.self)
  }

  /// A head up to its empty line, and a body of the length that the head gives; nil at the end.
  package func message(hasBody: Bool = true) -> (head: String, body: [UInt8])? {
    let end: [UInt8] = [13, 10, 13, 10]
    var from = 0
    while true {
      if pending.count >= 4 {
        for at in from...(pending.count - 4) where Array(pending[at..<(at + 4)]) == end {
          let head = String(decoding: pending[..<at], as: UTF8.self)
          pending.removeFirst(at + 4)
          var length = 0
          for line in head.split(separator: "\r\n") {
            let pair = line.split(separator: ":", maxSplits: 1)
            if pair.count == 2, pair[0].lowercased() == "content-length" {
              length = Int(pair[1].drop { $0 == " " }) ?? 0
            }
          }
          if !hasBody { length = 0 }
          while pending.count < length { if !fill() { return nil } }
          defer { pending.removeFirst(length) }
          return (head, Array(pending[..<length]))
        }
        from = pending.count - 3
      }
      if !fill() { return nil }
    }
  }

  /// Ends the connection with a reset.
  package func reset() {
    var linger = linger(l_onoff: 1, l_linger: 0)
    setsockopt(socket, SOL_SOCKET, SO_LINGER, &linger, socklen_t(MemoryLayout<linger>.size))
    close()
  }

  package func finishSending() { shutdown(socket, Int32(SHUT_WR)) }

  package func close() {
    if !isClosed { Glibc.close(socket) }
    isClosed = true
  }
}

extension HTTPClient {
  package func answer(_ request: HTTPRequest) async -> Result<HTTPResponse, HTTPFailure> {
    await withCheckedContinuation { continuation in
      _ = send(request) { continuation.resume(returning: $0) }
    }
  }
}

extension Connection {
  /// Waits until the peer closes or sends; false: it did neither in the time.
  package func waits(milliseconds: Int32) -> Bool {
    var entry = pollfd(fd: descriptor, events: Int16(POLLIN), revents: 0)
    return poll(&entry, 1, milliseconds) > 0
  }
}
