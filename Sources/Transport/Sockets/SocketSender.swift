import CLinux
import Glibc
import PipelineCore
import Synchronization

/// Sends messages to one address, on a thread of its own. A message is confirmed when the peer's system has
/// acknowledged its bytes, a datagram when the system has accepted it.
package final class SocketSender: SharedStateSender {
  package struct Options: Sendable {
    /// Nil: not encrypted.
    package var tls: TLSOptions?
    /// The name that the server's certificate must have; by default the host.
    package var serverName: String?
    package var connectTimeout = TimeSpan.seconds(10)
    package var keepAlive = true
    package var names = NameLookup()
    /// A datagram that is too long is sent as a sealed file in memory, whose descriptor the receiver gets, as
    /// journald's protocol specifies.
    package var sendsLargeAsFiles = false
    package init() {}
  }

  package enum Notice: Sendable, Equatable {
    /// The system refuses an option of a connection, or nothing receives the datagrams.
    case fault(String)
    /// The receiver's name has other addresses now; the next message goes to one of these.
    case moved
  }

  private let endpoint: SocketEndpoint
  private let options: Options
  package let state: Guarded<SenderState>
  private let wake: WakeEvent
  /// Watches the receiver's name; nil: it has none.
  private let watch: AddressWatch?
  private let counted = Guarded(PipelineStatistics.Connections())
  private let notify: @Sendable (Notice) -> Void

  /// - Parameter notify: Called on the sending thread.
  package init(
    _ endpoint: SocketEndpoint, _ options: Options, notify: @escaping @Sendable (Notice) -> Void
  ) throws(SocketFailure) {
    self.endpoint = endpoint
    self.options = options
    self.notify = notify
    state = Guarded(SenderState())
    let wake: WakeEvent
    do throws(PosixError) { wake = try WakeEvent() } catch { throw SocketFailure(message: error.message) }
    self.wake = wake
    if case .network(let host, let port, let isDatagram) = endpoint {
      watch = options.names.watch(host, port, isDatagram: isDatagram) { wake.wake() }
    } else {
      watch = nil
    }
    let context: TLSContext? = if let tls = options.tls { try TLSContext(asking: tls) } else { nil }
    do throws(PosixError) {
      _ = try OwnThread("rxd send") { [self] in
        let work = Work(self, context)
        work.run()
        watch?.stop()
        ended()
      }
    } catch {
      throw SocketFailure(message: error.message)
    }
  }

  /// Datagrams have none.
  package var connections: PipelineStatistics.Connections? { endpoint.isDatagram ? nil : counted.withLock { $0 } }

  package func wakeUp() { wake.wake() }

  private func pass(_ count: Int) { if count > 0 { state.withLock { $0.pass(count) } } }

  // MARK: - The thread

  private final class Work {
    private let owner: SocketSender
    private let options: Options
    private let context: TLSContext?
    private let isDatagram: Bool
    private var descriptor: Int32 = -1
    private var session: TLSSession?
    /// Blocks that the system has accepted and the peer's system has not confirmed; `end`: the position after the block
    /// in the connection's bytes.
    private var unconfirmed: [(messages: Int, end: Int)] = []
    /// The number of bytes that this connection has accepted.
    private var position = 0
    /// Nothing counts as sent before this time: with TLS 1.3 a server refuses a client's certificate only after the
    /// client has completed the handshake.
    private var confirmsAt: Int64 = 0
    private static let settling: Int64 = 500_000_000
    /// The time of the last report that nothing receives the datagrams.
    private var toldAt: Int64?

    init(_ owner: SocketSender, _ context: TLSContext?) {
      self.owner = owner
      options = owner.options
      self.context = context
      isDatagram = owner.endpoint.isDatagram
    }

    deinit { disconnect() }

    private var isCancelled: Bool { owner.state.withLock(\.isCancelled) }

    private enum Job {
      case connect
      case send(SentBlock)
      case end
      case none
    }

    func run() {
      while !isCancelled {
        owner.wake.clear()
        if owner.watch?.hasMoved ?? false { moveOn() }
        let job = owner.state.withLock { state -> Job in
          if state.isNew {
            state.isNew = false
            return .connect
          }
          if !state.queue.isEmpty { return .send(state.queue.removeFirst()) }
          return state.isClosing && unconfirmed.isEmpty ? .end : .none
        }
        switch job {
        case .connect: connect()
        case .send(let block): deliver(block)
        case .end: return disconnect()
        case .none:
          confirm()
          if owner.wake.isAwake || unconfirmed.isEmpty && owner.state.withLock(\.isClosing) { continue }
          // Notices when an idle connection is closed: messages sent into it would be lost.
          let ready = rx_wait_two(descriptor, 0, owner.wake.descriptor, unconfirmed.isEmpty ? -1 : 5)
          if ready & 1 != 0, ready & 2 == 0 { listenForEnd() }
        }
      }
      disconnect()
    }

    /// Leaves a connection whose name has other addresses now. Waits a while for the confirmation of sent messages; the
    /// rest go to a new address.
    private func moveOn() {
      let end = monotonicNow() &+ Self.farewell
      while descriptor >= 0, !unconfirmed.isEmpty, !isCancelled, monotonicNow() < end {
        confirm()
        guard !unconfirmed.isEmpty else { break }
        let ready = rx_wait_two(descriptor, 0, owner.wake.descriptor, 5)
        if ready & 2 != 0 { owner.wake.clear() }
        if ready & 1 != 0 { listenForEnd() }
      }
      owner.watch?.uses(nil)
      owner.notify(.moved)
      if descriptor >= 0 { lost(nil) }
    }
    private static let farewell: Int64 = 10_000_000_000

    /// The connection is over, or could not be made. Its owner sends unreported messages again.
    private func lost(_ reason: String?) {
      if reason != nil { owner.counted.withLock { $0.broken += 1 } }
      disconnect()
      owner.state.withLock { $0.lose(.lost(reason)) }
    }

    private func deliver(_ block: SentBlock) {
      if descriptor >= 0, let reason = isDatagram ? sendDatagrams(block) : sendStream(block) { lost(reason) }
    }

    /// Returns nil if the system has all of it, otherwise the reason.
    private func sendStream(_ block: SentBlock) -> String? {
      let start = block.start(block.first)
      var at = start
      let count = block.bytes.count
      while at < count {
        let outcome = block.bytes.withUnsafeBytes { bytes -> TLSSession.Outcome in
          let rest = UnsafeRawBufferPointer(rebasing: bytes[at...])
          if let session { return session.write(rest) }
          let sent = uninterrupted { rx_send(descriptor, rest.baseAddress, rest.count) }
          if sent >= 0 { return sent > 0 ? .bytes(Int(sent)) : .nothing }
          return errno == EAGAIN ? .nothing : .ended(PosixError.text(errno))
        }
        switch outcome {
        case .bytes(let sent):
          at += sent
          position += sent
        case .nothing:
          guard !isCancelled else { return "the pipeline ends" }
          let ready = rx_wait_two(descriptor, session == nil ? 1 : 2, owner.wake.descriptor, 1000)
          // The receiver may have closed instead of reading.
          if ready & 2 != 0 { owner.wake.clear() }
          confirm()
        case .ended(let reason):
          // Whole messages that the peer's system has confirmed need not be sent again.
          if session == nil { confirm() }
          if session == nil, isNetwork, unconfirmed.isEmpty {
            let confirmed = max(0, at - start - max(0, Int(rx_unacknowledged(descriptor))))
            owner.pass(block.ends[block.first...].prefix { $0 <= start + confirmed }.count)
          }
          return reason ?? "the receiver has closed the connection"
        }
      }
      unconfirmed.append((block.count, position))
      owner.state.withLock { $0.accepted += block.count }
      confirm()
      return nil
    }

    /// Confirms messages whose bytes the peer's system has acknowledged.
    private func confirm() {
      guard !unconfirmed.isEmpty, descriptor >= 0, session == nil || monotonicNow() >= confirmsAt else { return }
      let left = Int(rx_unacknowledged(descriptor))
      // Nothing is confirmed after a hang-up: bytes that a local receiver left unread when it closed the socket would
      // count as read.
      if !isNetwork, rx_has_hung_up(descriptor) != 0 { return }
      // With TLS, unconfirmed bytes are encrypted and show no message boundaries, so all or nothing is confirmed.
      let confirmed = left <= 0 ? position : session == nil ? position - left : 0
      let done = unconfirmed.prefix { $0.end <= confirmed }
      let messages = done.reduce(0) { $0 + $1.messages }
      unconfirmed.removeFirst(done.count)
      owner.pass(messages)
    }

    private func sendDatagrams(_ block: SentBlock) -> String? {
      var passed = 0
      defer { owner.pass(passed) }
      /// Must precede all other reports.
      func report() {
        owner.pass(passed)
        passed = 0
      }
      var message = block.first
      while message < block.ends.count {
        let (start, end) = (block.start(message), block.ends[message])
        let sent = block.bytes.withUnsafeBytes { bytes -> Int in
          let content = bytes.baseAddress.map { $0 + start }
          let sent = uninterrupted { rx_send(descriptor, content, end - start) }
          guard sent < 0, options.sendsLargeAsFiles, errno == EMSGSIZE || errno == ENOBUFS else { return sent }
          return uninterrupted { Int(rx_send_as_file(descriptor, content, end - start)) }
        }
        if sent >= 0 {
          passed += 1
          message += 1
          continue
        }
        switch errno {
        case EAGAIN, ENOBUFS:
          report()
          guard !isCancelled else { return "the pipeline ends" }
          _ = rx_wait_two(descriptor, 1, owner.wake.descriptor, 100)
          owner.wake.clear()
        case EMSGSIZE:
          report()
          let reason = "a datagram of \(end - start) bytes is longer than the system sends"
          owner.state.withLock { $0.tell(.refused(reason)) }
          message += 1
        case ECONNREFUSED where isNetwork:
          // ECONNREFUSED reports that an earlier datagram was lost; this one is tried again.
          if toldAt.map({ monotonicNow() &- $0 > Self.tellingPause }) ?? true {
            toldAt = monotonicNow()
            owner.notify(.fault("there is no receiver at \(owner.endpoint.text): datagrams are lost"))
          }
        default:
          let code = errno
          report()
          return PosixError.text(code)
        }
      }
      return nil
    }
    private static let tellingPause: Int64 = 60_000_000_000

    private var isNetwork: Bool { if case .network = owner.endpoint { true } else { false } }

    /// Called when the receiver of messages has closed the connection or sent bytes, which are not expected.
    private func listenForEnd() {
      var bytes = [UInt8](repeating: 0, count: 4096)
      let outcome = bytes.withUnsafeMutableBytes { space -> TLSSession.Outcome in
        if let session { return session.read(space) }
        let count = uninterrupted { recv(descriptor, space.baseAddress, space.count, 0) }
        if count > 0 { return .bytes(count) }
        if count == 0, !isDatagram { return .ended(nil) }
        return count == 0 || errno == EAGAIN || isDatagram ? .nothing : .ended(PosixError.text(errno))
      }
      guard case .ended(let reason) = outcome else { return }
      let isRefused = session != nil && (reason != nil || monotonicNow() < confirmsAt)
      if !isRefused { confirm() }
      lost(
        isRefused
          ? "\(owner.endpoint.text) has closed the connection: \(reason ?? "it may not accept the certificate")" : nil)
    }

    // MARK: Connections

    private func disconnect() {
      session?.close()
      session = nil
      if descriptor >= 0 { Glibc.close(descriptor) }
      descriptor = -1
      position = 0
      unconfirmed = []
      owner.watch?.uses(nil)
      owner.counted.withLock { $0.open = 0 }
    }

    private func connect() {
      if descriptor >= 0 { disconnect() }
      do throws(SocketFailure) {
        try connectOnce()
        owner.counted.withLock { ($0.open, $0.opened) = (1, $0.opened + 1) }
        owner.state.withLock { $0.tell(.opened) }
      } catch {
        lost(error.message)
      }
    }

    private func connectOnce() throws(SocketFailure) {
      let addresses: [rx_address]
      switch owner.endpoint {
      case .network(let host, let port, let isDatagram):
        addresses = try options.names.addresses(host, port, isDatagram)
      case .unix(let path, _, _):
        var address = rx_address()
        guard rx_unix_address(path, &address) != 0 else { throw SocketFailure(message: "\(path) is too long") }
        addresses = [address]
      case .activated: throw SocketFailure(message: "nothing is sent to a socket that listens")
      }
      var reason = ""
      for address in addresses {
        let number = rx_socket(rx_address_family([address]), isDatagram ? 1 : 0)
        guard number >= 0 else {
          reason = PosixError.text(errno)
          continue
        }
        descriptor = number
        var code = rx_connect(number, [address]) == 0 ? 0 : errno
        if code == EINPROGRESS {
          code = waitUntilReady(1, options.connectTimeout) ? rx_socket_error(number) : ETIMEDOUT
        }
        guard code == 0 else {
          reason = PosixError.text(code)
          disconnect()
          continue
        }
        if case .network = owner.endpoint, !isDatagram {
          SocketOption.set([.noDelay] + (options.keepAlive ? SocketOption.keepAlive : []), number) {
            owner.notify(.fault($0))
          }
        }
        position = 0
        owner.watch?.uses(SocketPeer.text(address))
        guard let context else { return }
        return try shake(context)
      }
      throw SocketFailure(message: "cannot connect to \(owner.endpoint.text): \(reason)")
    }

    private func shake(_ context: TLSContext) throws(SocketFailure) {
      var name = options.serverName
      if name == nil, case .network(let host, _, _) = owner.endpoint { name = host }
      let session = try TLSSession(context, descriptor, host: options.tls?.verify == false ? nil : name)
      self.session = session
      let end = monotonicNow() &+ options.connectTimeout.nanoseconds
      while true {
        let left = TimeSpan(nanoseconds: max(0, end &- monotonicNow()))
        let isReady: Bool
        switch session.handshake() {
        case .done:
          confirmsAt = monotonicNow() &+ Self.settling
          return
        case .wantsRead: isReady = waitUntilReady(0, left)
        case .wantsWrite: isReady = waitUntilReady(1, left)
        case .closed: throw refusal("the server closed the connection during the TLS handshake")
        case .failed(let reason): throw refusal(reason)
        }
        if !isReady { throw refusal("the TLS handshake took longer than \(options.connectTimeout)") }
      }
    }

    private func refusal(_ reason: String) -> SocketFailure {
      SocketFailure(message: "cannot connect to \(owner.endpoint.text): \(reason)")
    }

    private func waitUntilReady(_ writable: Int32, _ limit: TimeSpan) -> Bool {
      let end = monotonicNow() &+ limit.nanoseconds
      while !isCancelled {
        let left = end &- monotonicNow()
        guard left > 0 else { return false }
        let ready = rx_wait_two(
          descriptor, writable, owner.wake.descriptor, Int32(clamping: min(left / 1_000_000 + 1, 1000)))
        if ready & 1 != 0 { return true }
        if ready & 2 != 0 { owner.wake.clear() }
      }
      return false
    }
  }
}
