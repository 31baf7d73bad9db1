import CLinux
import Glibc
import PipelineCore
import Synchronization

/// Sends messages to one address, on a thread of its own: connects, reconnects after growing pauses, and repeats
/// messages that a broken connection has lost.
package final class SocketSender: Sendable {
  package struct Options: Sendable {
    /// Nil: not encrypted.
    package var tls: TLSOptions?
    /// The name that the server's certificate must have; by default the host.
    package var serverName: String?
    package var connectTimeout = TimeSpan.seconds(10)
    /// The pauses between attempts to send.
    package var attempts = Attempts(.milliseconds(100), most: .seconds(10))
    package var keepAlive = true
    package var names = NameLookup()
    /// A datagram that is too long goes as a sealed file in memory, whose descriptor the receiver gets, as journald takes it.
    package var sendsLargeAsFiles = false
    package init() {}
  }

  /// Messages that are sent together.
  package struct Block: Sendable {
    package var bytes: [UInt8]
    /// The end of each message, frame included.
    package var ends: [Int]

    package init(bytes: [UInt8], ends: [Int]) {
      self.bytes = bytes
      self.ends = ends
    }
  }

  package enum Notice: Sendable, Equatable {
    /// Why nothing can be sent; sending is tried again.
    case failing(String)
    case recovered(failures: Int)
    /// A datagram was longer than the system or the route allows, and was dropped.
    case tooLong(bytes: Int)
    /// Why nothing can be sent; no further attempt would help.
    case ended(String)
    /// The system refuses an option of a connection.
    case fault(String)
    /// The receiver's name has other addresses now; the next message goes to one of these.
    case moved
  }

  private struct Entry: Sendable {
    var block: Block
    /// Called with the numbers of messages that have been sent and given up.
    var done: @Sendable (Int, Int) -> Void
  }

  private struct State {
    var queue: [Entry] = []
    var bytes = 0
    var isClosing = false
    var isCancelled = false
    var hasEnded = false
  }

  private let place: SocketPlace
  private let options: Options
  private let state: Guarded<State>
  private let wake: WakeEvent
  /// Watches the receiver's name; nil: it has none.
  private let watch: AddressWatch?
  private let counted = Guarded(PipelineStatistics.Connections())
  private let notify: @Sendable (Notice) -> Void

  /// - Parameter notify: Called on the sending thread.
  package init(
    _ place: SocketPlace, _ options: Options, notify: @escaping @Sendable (Notice) -> Void
  ) throws(SocketFailure) {
    self.place = place
    self.options = options
    self.notify = notify
    state = Guarded(State())
    let wake: WakeEvent
    do throws(PosixError) { wake = try WakeEvent() } catch { throw SocketFailure(message: error.message) }
    self.wake = wake
    if case .network(let host, let port, let isDatagram) = place {
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
        let left = state.withLock { state in
          state.hasEnded = true
          defer {
            state.queue = []
            state.bytes = 0
          }
          return state.queue
        }
        for entry in left { entry.done(0, entry.block.ends.count) }
        state.notify()
      }
    } catch {
      throw SocketFailure(message: error.message)
    }
  }

  /// The counts of its connections; nil: datagrams have none.
  package var counts: PipelineStatistics.Connections? { place.isDatagram ? nil : counted.withLock { $0 } }

  /// The number of waiting bytes.
  package var queuedBytes: Int { state.withLock(\.bytes) }

  /// Adds messages. `done` is called on the sending thread, once or several times, until all messages have been
  /// counted.
  package func send(_ block: Block, done: @escaping @Sendable (_ sent: Int, _ givenUp: Int) -> Void) {
    let isTaken = state.withLock { state in
      guard !state.hasEnded, !state.isCancelled else { return false }
      state.queue.append(Entry(block: block, done: done))
      state.bytes += block.bytes.count
      return true
    }
    guard isTaken else { return done(0, block.ends.count) }
    wake.wake()
  }

  /// Sends the waiting messages, without a time limit, then ends. Do not call on the sending thread.
  package func close() {
    state.withLock { $0.isClosing = true }
    wake.wake()
    let none: (inout State) -> Bool? = { $0.hasEnded ? true : nil }
    _ = state.wait(until: nil, none)
  }

  /// Ends soon; gives up waiting messages.
  package func cancel() {
    state.withLock { $0.isCancelled = true }
    wake.wake()
  }

  /// Waits until the thread has ended; false: it has not, within the limit.
  package func waitForEnd(within limit: TimeSpan) -> Bool {
    let none: (inout State) -> Bool? = { $0.hasEnded ? true : nil }
    return state.wait(until: monotonicNow() &+ limit.nanoseconds, none) ?? false
  }

  private func sent(_ bytes: Int) { state.withLock { $0.bytes -= bytes } }

  // MARK: - The thread

  private final class Work {
    private let owner: SocketSender
    private let options: Options
    private let context: TLSContext?
    private let isDatagram: Bool
    private var descriptor: Int32 = -1
    private var session: TLSSession?
    private var attempts: Attempts
    /// Blocks that the system has accepted and the peer's system has not confirmed; `end`: the position after the block
    /// in the connection's bytes.
    private var unconfirmed: [(entry: Entry, first: Int, end: Int)] = []
    /// The number of bytes that this connection has accepted.
    private var position = 0
    /// Nothing counts as sent before this time: with TLS 1.3 a server refuses a client's certificate only after the
    /// client has completed the handshake.
    private var confirmsAt: Int64 = 0
    private static let settling: Int64 = 500_000_000

    init(_ owner: SocketSender, _ context: TLSContext?) {
      self.owner = owner
      options = owner.options
      attempts = owner.options.attempts
      self.context = context
      isDatagram = owner.place.isDatagram
    }

    deinit { disconnect() }

    private var isCancelled: Bool { owner.state.withLock(\.isCancelled) }

    func run() {
      while !isCancelled {
        owner.wake.clear()
        if owner.watch?.hasMoved ?? false { moveOn() }
        if let entry = owner.state.withLock({ $0.queue.isEmpty ? nil : $0.queue.removeFirst() }) {
          deliver(entry)
          continue
        }
        confirm()
        if owner.state.withLock({ $0.isClosing && $0.queue.isEmpty }), unconfirmed.isEmpty { break }
        if owner.wake.isAwake { continue }
        // Notices when an idle connection is closed: messages sent into it would be lost.
        let ready = rx_wait_two(descriptor, 0, owner.wake.descriptor, unconfirmed.isEmpty ? -1 : 5)
        if ready & 1 != 0, ready & 2 == 0 { listenForEnd() }
      }
      giveUp()
      disconnect()
    }

    /// Leaves a connection whose name has other addresses now. Waits a while for messages on the way to be confirmed;
    /// the rest go to a new address.
    private func moveOn() {
      let end = monotonicNow() &+ Self.farewell
      while descriptor >= 0, !unconfirmed.isEmpty, !isCancelled, monotonicNow() < end {
        confirm()
        guard !unconfirmed.isEmpty else { break }
        let ready = rx_wait_two(descriptor, 0, owner.wake.descriptor, 5)
        if ready & 2 != 0 { owner.wake.clear() }
        if ready & 1 != 0 { listenForEnd() }
      }
      if descriptor >= 0 {
        repeatUnconfirmed()
        disconnect()
      }
      owner.watch?.uses(nil)
      owner.notify(.moved)
    }
    private static let farewell: Int64 = 10_000_000_000

    private func giveUp() {
      for (entry, first, _) in unconfirmed {
        // They count as sent: the system has them, and goes on sending after the process has ended.
        entry.done(entry.block.ends.count - first, 0)
        owner.sent(0)
      }
      unconfirmed = []
    }

    /// Sends one block, over as many connections as that takes.
    private func deliver(_ entry: Entry) {
      var first = 0
      while first < entry.block.ends.count {
        if descriptor < 0, !connect() {
          entry.done(0, entry.block.ends.count - first)
          owner.sent(entry.block.bytes.count)
          return
        }
        if let reason = isDatagram ? sendDatagrams(entry, &first) : sendStream(entry, &first) {
          fail(reason)
          if isCancelled {
            entry.done(0, entry.block.ends.count - first)
            owner.sent(entry.block.bytes.count)
            return
          }
        }
      }
      owner.sent(entry.block.bytes.count)
    }

    /// Returns nil if all is sent, otherwise the reason; `first` is then the first message that must be sent again.
    private func sendStream(_ entry: Entry, _ first: inout Int) -> String? {
      let start = first == 0 ? 0 : entry.block.ends[first - 1]
      var at = start
      let count = entry.block.bytes.count
      while at < count {
        let outcome = entry.block.bytes.withUnsafeBytes { bytes -> TLSSession.Outcome in
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
        case .ended(let reason):
          // Whole messages that the peer's system has confirmed need not be sent again.
          let confirmed =
            session == nil && isNetwork ? max(0, at - start - max(0, Int(rx_unacknowledged(descriptor)))) : 0
          let done = entry.block.ends[first...].prefix { $0 <= start + confirmed }.count
          repeatUnconfirmed(confirming: session == nil)
          if done > 0 { entry.done(done, 0) }
          first += done
          return reason ?? "the receiver has closed the connection"
        }
      }
      unconfirmed.append((entry, first, position))
      first = entry.block.ends.count
      confirm()
      return nil
    }

    /// Counts messages that the peer's system has confirmed.
    private func confirm() {
      guard !unconfirmed.isEmpty, descriptor >= 0, session == nil || monotonicNow() >= confirmsAt else { return }
      let left = Int(rx_unacknowledged(descriptor))
      // Nothing is confirmed after a hang-up: bytes that a local receiver left unread when it closed the socket would
      // count as read.
      if !isNetwork, rx_has_hung_up(descriptor) != 0 { return }
      // With TLS, unconfirmed bytes are encrypted and show no message boundaries, so all or nothing is confirmed.
      let confirmed = left <= 0 ? position : session == nil ? position - left : 0
      var count = 0
      for one in unconfirmed {
        guard one.end <= confirmed else { break }
        one.entry.done(one.entry.block.ends.count - one.first, 0)
        count += 1
      }
      unconfirmed.removeFirst(count)
      if count > 0 { recover() }
    }

    /// The connection is lost: unconfirmed messages go back to the head of the queue.
    private func repeatUnconfirmed(confirming: Bool = true) {
      if confirming { confirm() }
      guard !unconfirmed.isEmpty else { return }
      let again = unconfirmed.map { one -> Entry in
        guard one.first > 0 else { return one.entry }
        let start = one.entry.block.ends[one.first - 1]
        let block = Block(
          bytes: Array(one.entry.block.bytes[start...]), ends: one.entry.block.ends[one.first...].map { $0 - start })
        return Entry(block: block, done: one.entry.done)
      }
      unconfirmed = []
      owner.state.withLock { state in
        state.queue.insert(contentsOf: again, at: 0)
        state.bytes += again.reduce(0) { $0 + $1.block.bytes.count }
      }
    }

    private func sendDatagrams(_ entry: Entry, _ first: inout Int) -> String? {
      while first < entry.block.ends.count {
        let start = first == 0 ? 0 : entry.block.ends[first - 1]
        let end = entry.block.ends[first]
        let sent = entry.block.bytes.withUnsafeBytes { bytes -> Int in
          let message = bytes.baseAddress.map { $0 + start }
          let sent = uninterrupted { rx_send(descriptor, message, end - start) }
          guard sent < 0, options.sendsLargeAsFiles, errno == EMSGSIZE || errno == ENOBUFS else { return sent }
          return uninterrupted { Int(rx_send_as_file(descriptor, message, end - start)) }
        }
        if sent >= 0 {
          entry.done(1, 0)
          first += 1
          recover()
          continue
        }
        switch errno {
        case EAGAIN, ENOBUFS:
          guard !isCancelled else { return "the pipeline ends" }
          _ = rx_wait_two(descriptor, 1, owner.wake.descriptor, 100)
          owner.wake.clear()
        case EMSGSIZE:
          owner.notify(.tooLong(bytes: end - start))
          entry.done(0, 1)
          first += 1
        case ECONNREFUSED where isNetwork:
          // ECONNREFUSED reports that an earlier datagram was lost; this one is tried again.
          note("there is no receiver at \(owner.place.text)")
        default: return PosixError.text(errno)
        }
      }
      return nil
    }

    private var isNetwork: Bool { if case .network = owner.place { true } else { false } }

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
      repeatUnconfirmed(confirming: !isRefused)
      if isRefused {
        fail("\(owner.place.text) has closed the connection: \(reason ?? "it may not accept the certificate")")
      } else {
        disconnect()
      }
    }

    // MARK: Connections

    private func note(_ reason: String) {
      if attempts.fail() { owner.notify(.failing(reason)) }
    }

    private func recover() {
      let failures = attempts.succeed()
      if failures > 0 { owner.notify(.recovered(failures: failures)) }
    }

    /// Gives the connection up; the next one is made after a pause.
    private func fail(_ reason: String) {
      owner.counted.withLock { $0.broken += 1 }
      disconnect()
      note(reason)
      pause()
    }

    private func pause() {
      attempts.wait(for: owner.wake) { isCancelled }
    }

    private func disconnect() {
      session?.close()
      session = nil
      if descriptor >= 0 { Glibc.close(descriptor) }
      descriptor = -1
      position = 0
      owner.watch?.uses(nil)
      owner.counted.withLock { $0.open = 0 }
    }

    /// Connects, again and again; false: the sender was cancelled.
    private func connect() -> Bool {
      while !isCancelled {
        do throws(SocketFailure) {
          try connectOnce()
          owner.counted.withLock { ($0.open, $0.opened) = (1, $0.opened + 1) }
          return true
        } catch {
          fail(error.message)
        }
      }
      return false
    }

    private func connectOnce() throws(SocketFailure) {
      let addresses: [rx_address]
      switch owner.place {
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
        if case .network = owner.place, !isDatagram {
          SocketOption.set([.noDelay] + (options.keepAlive ? SocketOption.keepAlive : []), number) {
            owner.notify(.fault($0))
          }
        }
        position = 0
        owner.watch?.uses(SocketPeer.text(address))
        guard let context else { return }
        return try shake(context)
      }
      throw SocketFailure(message: "cannot connect to \(owner.place.text): \(reason)")
    }

    private func shake(_ context: TLSContext) throws(SocketFailure) {
      var name = options.serverName
      if name == nil, case .network(let host, _, _) = owner.place { name = host }
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
      SocketFailure(message: "cannot connect to \(owner.place.text): \(reason)")
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
