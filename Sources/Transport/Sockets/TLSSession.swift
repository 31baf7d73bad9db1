internal import CTLS
import Glibc
import PipelineCore
import Synchronization

/// The TLS settings of a listening socket. Its certificate is read again when the files change.
package final class TLSServing: Sendable {
  package struct Files: Sendable, Equatable {
    /// PEM files; the key may be in the file of the certificate.
    package var certificate: String
    package var key: String?
    /// The authorities that sign client certificates; nil: clients need no certificate.
    package var clientCA: String?

    package init(certificate: String, key: String? = nil, clientCA: String? = nil) {
      self.certificate = certificate
      self.key = key
      self.clientCA = clientCA
    }

    /// The paths of the files: equal for servers that can share an address.
    package var all: [String?] { [certificate, key, clientCA] }
  }

  let files: Files
  private let state: Mutex<(context: TLSContext, seen: [FileMark?], looked: Int64)>
  private let notify: @Sendable (String) -> Void

  /// Reads the files.
  /// - Parameter notify: Called when changed files are used, or cannot be: new connections then have the old
  ///   certificate.
  package init(_ files: Files, notify: @escaping @Sendable (String) -> Void) throws(SocketFailure) {
    self.files = files
    self.notify = notify
    let marks = Self.marks(files)
    let context = try TLSContext(serving: files)
    state = Mutex((context, marks, monotonicNow()))
  }

  private static func marks(_ files: Files) -> [FileMark?] {
    [files.certificate, files.key, files.clientCA].map { $0.flatMap { FileMark($0) } }
  }

  /// A session for an accepted connection. The files are checked at most once a second.
  func session(_ descriptor: Int32) throws(SocketFailure) -> TLSSession {
    try TLSSession(current(), descriptor, isServer: true)
  }

  /// A session for an accepted connection whose owner moves its bytes.
  func sessionApart() throws(SocketFailure) -> TLSSession { try TLSSession(apart: current(), isServer: true) }

  /// The settings that new connections share, from the current files.
  private func current() -> TLSContext {
    let now = monotonicNow()
    let (context, message) = state.withLock { state -> (TLSContext, String?) in
      guard now &- state.looked >= 1_000_000_000 else { return (state.context, nil) }
      state.looked = now
      let marks = Self.marks(files)
      guard marks != state.seen else { return (state.context, nil) }
      state.seen = marks
      do throws(SocketFailure) {
        state.context = try TLSContext(serving: files)
        return (state.context, "the certificate was read again, because its files have changed")
      } catch {
        return (
          state.context, "the old certificate stays in use, because the changed files cannot be used: \(error.message)"
        )
      }
    }
    if let message { notify(message) }
    return context
  }
}

/// The properties that show whether a file has changed.
private struct FileMark: Equatable {
  var device: UInt64
  var inode: UInt64
  var size: Int64
  var modified: Int64

  init?(_ path: String) {
    guard let status = FileDescriptor.Status(path: path) else { return nil }
    (device, inode, size, modified) = (status.device, status.inode, status.size, status.modified)
  }
}

/// The settings that the connections of one server or client share.
package final class TLSContext: @unchecked Sendable {
  fileprivate let pointer: UnsafeMutableRawPointer

  private init(_ make: (UnsafeMutablePointer<CChar>, Int32) -> UnsafeMutableRawPointer?) throws(SocketFailure) {
    guard rx_tls_is_available() != 0 else {
      throw SocketFailure(message: "TLS needs libssl3, which is not installed: apt-get install libssl3")
    }
    var made: UnsafeMutableRawPointer?
    let reason = TLSSession.text { made = make($0, $1) }
    guard let made else { throw SocketFailure(message: "TLS cannot be used: \(reason)") }
    pointer = made
  }

  fileprivate convenience init(serving files: TLSServing.Files) throws(SocketFailure) {
    try self.init { rx_tls_server(files.certificate, files.key ?? "", files.clientCA ?? "", $0, $1) }
  }

  /// Settings for connections to servers.
  package convenience init(asking options: TLSOptions) throws(SocketFailure) {
    try self.init {
      rx_tls_client(
        options.certificateFile ?? "", options.keyFile ?? "", options.caFile ?? "", options.verify ? 1 : 0, $0, $1)
    }
  }

  deinit { rx_tls_free(pointer) }
}

/// One TLS connection on a non-blocking descriptor, which the caller keeps. Used by one thread at a time.
package final class TLSSession: @unchecked Sendable {
  package enum Outcome {
    /// The number of bytes read or written, at least one.
    case bytes(Int)
    /// The call would block.
    case nothing
    /// The connection has ended; the reason, unless it was closed properly.
    case ended(String?)
  }

  enum Handshake {
    case done, wantsRead, wantsWrite, closed
    case failed(String)
  }

  private var pointer: UnsafeMutableRawPointer?

  fileprivate init(_ context: TLSContext, _ descriptor: Int32, isServer: Bool) throws(SocketFailure) {
    pointer = rx_tls_begin(context.pointer, descriptor, isServer ? 1 : 0, nil, 0)
    if pointer == nil { throw SocketFailure(message: "there is no memory for a TLS connection") }
  }

  /// A session without a descriptor: ``feed(_:)`` takes received bytes, ``drain(into:)`` gives bytes to send.
  /// - Parameter host: For a client: the name that the server's certificate must have; nil: any name.
  init(apart context: TLSContext, isServer: Bool, host: String? = nil) throws(SocketFailure) {
    let isAddress = host.flatMap { HostSyntax.kind($0) }.map { $0 != .name } ?? false
    pointer = rx_tls_begin_apart(context.pointer, isServer ? 1 : 0, host, isAddress ? 1 : 0)
    if pointer == nil { throw SocketFailure(message: "there is no memory for a TLS connection") }
  }

  /// A client's session. `host`: the name that the server's certificate must have; nil: any name.
  package init(_ context: TLSContext, _ descriptor: Int32, host: String?) throws(SocketFailure) {
    let isAddress = host.flatMap { HostSyntax.kind($0) }.map { $0 != .name } ?? false
    pointer = rx_tls_begin(context.pointer, descriptor, 0, host, isAddress ? 1 : 0)
    if pointer == nil { throw SocketFailure(message: "there is no memory for a TLS connection") }
  }

  deinit { close() }

  func close() {
    rx_tls_end(pointer)
    pointer = nil
  }

  fileprivate static func text(_ body: (UnsafeMutablePointer<CChar>, Int32) -> Void) -> String {
    withUnsafeTemporaryAllocation(of: CChar.self, capacity: 512) { space in
      guard let start = space.baseAddress else { return "" }
      start.pointee = 0
      body(start, 512)
      return String(cString: start)
    }
  }

  func handshake() -> Handshake {
    guard let pointer else { return .closed }
    var result: Int32 = 0
    let reason = Self.text { result = rx_tls_handshake(pointer, $0, $1) }
    return switch Int(result) {
    case RX_TLS_DONE: .done
    case RX_TLS_WANTS_READ: .wantsRead
    case RX_TLS_WANTS_WRITE: .wantsWrite
    case RX_TLS_CLOSED: .closed
    default: .failed("the TLS handshake failed: \(reason)")
    }
  }

  func read(_ space: UnsafeMutableRawBufferPointer) -> Outcome {
    outcome { rx_tls_read($0, space.baseAddress, space.count, $1, $2) }
  }

  func write(_ bytes: UnsafeRawBufferPointer) -> Outcome {
    outcome { rx_tls_write($0, bytes.baseAddress, bytes.count, $1, $2) }
  }

  /// Takes received bytes; false: there is no memory. Only for sessions without a descriptor.
  func feed(_ bytes: UnsafeRawBufferPointer) -> Bool {
    guard let pointer else { return false }
    return rx_tls_feed(pointer, bytes.baseAddress, Int32(bytes.count)) == 1
  }

  /// Gives bytes to send; 0: none are left. Call after each handshake, read and write.
  func drain(into space: UnsafeMutableRawBufferPointer) -> Int {
    pointer.map { Int(rx_tls_drain($0, space.baseAddress, Int32(space.count))) } ?? 0
  }

  /// Sends the closing alert.
  func sayGoodbye() {
    if let pointer { rx_tls_goodbye(pointer) }
  }

  private func outcome(
    _ call: (UnsafeMutableRawPointer, UnsafeMutablePointer<CChar>, Int32) -> Int
  ) -> Outcome {
    guard let pointer else { return .ended(nil) }
    var result = 0
    let reason = Self.text { result = call(pointer, $0, $1) }
    if result > 0 { return .bytes(result) }
    switch result {
    case RX_TLS_WANTS_READ, RX_TLS_WANTS_WRITE: return .nothing
    case RX_TLS_CLOSED: return .ended(nil)
    default: return .ended("TLS: \(reason)")
    }
  }

  /// The subject of the peer's certificate; nil: the peer has sent none.
  var peerSubject: String? {
    guard let pointer else { return nil }
    let text = withUnsafeTemporaryAllocation(of: CChar.self, capacity: 1024) { space in
      let count = rx_tls_subject(pointer, space.baseAddress, 1024)
      return String(decoding: UnsafeRawBufferPointer(space).prefix(Int(count)), as: UTF8.self)
    }
    return text.isEmpty ? nil : HTTPSyntax.printable(text)
  }
}
