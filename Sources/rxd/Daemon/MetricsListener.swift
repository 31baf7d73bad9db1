import Glibc
import PipelineCore
import PipelineRuntime
import Transport

/// Serves metrics, health and readiness over TCP, and nothing else.
struct MetricsListener {
  let address: TCPAddress
  /// The token that clients must send as `Authorization: Bearer TOKEN`.
  let token: String?
  /// The names that the listener answers to, in addition to this machine's own.
  var hosts: [String] = []

  /// Reads the token file: its first line, which must not be empty.
  static func token(from path: String) throws(PosixError) -> String? {
    let file = try FileDescriptor.openForReading(path)
    let buffer = UnsafeMutableRawBufferPointer.allocate(byteCount: 4096, alignment: 16)
    defer { buffer.deallocate() }
    let line = buffer[..<(try file.read(into: buffer, at: 0))].prefix { $0 != 0x0A && $0 != 0x0D }
    return line.isEmpty ? nil : String(decoding: line, as: UTF8.self)
  }

  /// Starts listening; returns the port.
  func start(
    notify: @escaping @Sendable (HTTPServer.Notice) -> Void, _ take: @escaping @Sendable (ControlRequest) -> Void
  ) throws(HTTPServerFailure) -> Int {
    var options = HTTPServer.Options()
    options.host = address.host
    options.port = address.port
    options.maxHeaderBytes = 16 << 10
    options.rules.maxConnections = 32
    options.rules.maxBodyBytes = 1 << 10
    options.rules.maxBufferedBytes = 1 << 20
    options.rules.replyTimeout = .seconds(10)
    if let token { options.rules.auth = .bearer(Secret(token)) }
    options.rules.access.hosts = hosts
    options.makesRoom = true
    return try HTTPServer(options: options).start(notify: notify) { take(ControlRequest($0, from: .metrics)) }
  }
}
