import NIOCore
import PipelineCore
import Synchronization

/// One WebSocket, of a client or of a server: delivers messages, answers pings, notices a silent peer, and closes
/// cleanly. Sending and closing work from any thread.
package final class WebSocketSession: UpgradedSpeaker, @unchecked Sendable {
  package struct Options: Sendable, Equatable {
    /// The memory budget of the process, against which a client's incoming messages are counted; a server's are counted
    /// against its own budget.
    package var memory: MemoryBudget?
    package var maxMessage = 1 << 20
    package var maxFrame = 1 << 20
    /// The bytes of messages that may wait for the receiver; then nothing more is read.
    package var room = 256 << 10
    /// The maximum number of bytes that may wait for the peer.
    package var sendingRoom = ResponseStream.room
    /// How long the peer may be silent before it gets a ping; nil: it gets none.
    package var ping: TimeSpan?
    /// How long the peer may take to answer the ping.
    package var pingTimeout = TimeSpan.seconds(20)
    /// The longest time without a message from the peer; nil: no limit.
    package var idle: TimeSpan?
    /// How long the peer may take to close the connection after it was asked to.
    package var closeTimeout = TimeSpan.seconds(5)
    package init() {}
  }

  /// How a session ended.
  package struct End: Sendable, Equatable {
    /// The code that the peer sent, or with which this side closed; nil: neither has sent one.
    package var code: Int?
    /// One sentence without a full stop.
    package var message: String
    /// The peer closed cleanly (1000, 1001 or no code), or this side did.
    package var isClean: Bool
    /// This side closed, and the peer did not answer in time: bytes on the way are lost.
    package var isCut = false
    /// Whether this side closed because the server's name has other addresses now: the next connection may follow at
    /// once.
    package var hasMoved = false

    package init(code: Int?, message: String, isClean: Bool) {
      self.code = code
      self.message = message
      self.isClean = isClean
    }
  }

  /// The receiver of a session's messages. Called on the network thread.
  package struct Listener: Sendable {
    /// The connection is ready.
    package var opened: @Sendable (WebSocketSession) -> Void
    package var message: @Sendable (WebSocketSession, WebSocketMessage) -> Void
    /// Called once, even if the session never became ready.
    package var ended: @Sendable (WebSocketSession, End) -> Void

    package init(
      opened: @escaping @Sendable (WebSocketSession) -> Void,
      message: @escaping @Sendable (WebSocketSession, WebSocketMessage) -> Void,
      ended: @escaping @Sendable (WebSocketSession, End) -> Void
    ) {
      self.opened = opened
      self.message = message
      self.ended = ended
    }
  }

  private let isServer: Bool
  package let options: Options

  // Used on the network thread.
  private var listener: Listener
  private var reader: WebSocketReader
  /// Not nil between two listeners: nothing is read, and bytes that were already read are stored here.
  private var parked: [UInt8]?
  private var hasSentClose = false
  private var hasReceivedClose = false
  private var isOver = false
  private var end: End?
  private var timer: Scheduled<Void>?
  private var lastSign = NIODeadline.now()
  private var lastMessage = NIODeadline.now()
  private var pinged: NIODeadline?
  private var closeDeadline: NIODeadline?

  private let link = Mutex<UpgradedLink?>(nil)
  /// Bytes of messages that were delivered and not handled.
  private let underWay = Atomic<Int>(0)
  /// Charges `underWay` and the bytes of the incoming message to the budget of the server.
  private let charge = MessageCharge()
  /// The bytes of the incoming message, and the server to which they are charged; used on the network thread.
  private var unfinished = 0
  private weak var unfinishedAt: HTTPServer?
  private let isPaused = Atomic<Bool>(false)
  /// Watches the name of a client's server; used on the network thread.
  private var watch: AddressWatch?

  package init(isServer: Bool, _ options: Options, _ listener: Listener) {
    self.isServer = isServer
    self.options = options
    self.listener = listener
    reader = WebSocketReader(isServer: isServer, maxMessage: options.maxMessage, maxFrame: options.maxFrame)
  }

  private var mask: UInt32? { isServer ? nil : UInt32.random(in: 0 ... .max) }

  // MARK: - From any thread

  /// Sends a message, whole or not at all; false: too many bytes wait for the peer, or the connection is ending.
  package func send(isText: Bool, _ bytes: some Collection<UInt8>) -> Bool {
    send(frame: WebSocketFrame.bytes(isText ? .text : .binary, bytes, mask: mask))
  }

  /// Sends a frame made by ``WebSocketFrame``; otherwise like ``send(isText:_:)``.
  package func send(frame: [UInt8]) -> Bool { link.withLock { $0 }?.stream.send(frame) ?? false }

  /// Sends a client's message. Returns the total number of bytes that this side will have sent when the message ends;
  /// nil: it was refused.
  func sendCounted(isText: Bool, _ bytes: some Collection<UInt8>) -> Int? {
    // Nothing may follow the close frame.
    if hasSentClose { return nil }
    return link.withLock { $0 }?.stream.sendCounted(WebSocketFrame.bytes(isText ? .text : .binary, bytes, mask: mask))
  }

  /// Reports how many bytes of messages have been handled.
  package func handled(_ bytes: Int) {
    charge.add(-bytes)
    let left = underWay.subtract(bytes, ordering: .sequentiallyConsistent).newValue
    if left <= options.room / 2, isPaused.exchange(false, ordering: .sequentiallyConsistent) {
      link.withLock { $0 }?.resume()
    }
  }

  /// Closes the connection cleanly, after the bytes sent so far. Messages that the peer sends before it sees the close
  /// are received.
  package func close(_ code: Int = 1000, _ reason: String = "") {
    link.withLock { $0 }?.inLoop { [self] in
      end = end ?? End(code: code, message: reason.isEmpty ? "it was ended here" : reason, isClean: true)
      sayClose(code, reason)
    }
  }

  /// The same. If the connection never was ready and no other follows, `nothing` is called, on the network thread.
  package func close(_ code: Int, _ reason: String, nothing: @escaping @Sendable () -> Void) {
    NetworkLoop.execute { [self] in
      guard link.withLock({ $0 }) != nil else { return isOver ? () : nothing() }
      close(code, reason)
    }
  }

  /// Ends the connection in good order when the name of the server has other addresses than the one in use. On the network thread.
  func watches(_ watch: AddressWatch?, _ address: String) {
    self.watch = watch
    watch?.uses(address)
  }

  /// Closes the connection cleanly, because the server's name has other addresses now.
  func leave() {
    link.withLock { $0 }?.inLoop { [self] in
      var moved = End(code: 1001, message: "the name of the server has another address now", isClean: true)
      moved.hasMoved = true
      end = end ?? moved
      sayClose(1001, "")
    }
  }

  /// Stops reading until ``goOn(_:at:)``: the listener receives nothing any more. Then calls `done`, on the network thread.
  package func park(_ done: @escaping @Sendable (Parking) -> Void) {
    NetworkLoop.execute { [self] in
      guard !isOver, !hasSentClose else { return done(.ends) }
      guard let link = link.withLock({ $0 }) else { return done(.neverBegan) }
      parked = parked ?? []
      timer?.cancel()
      timer = nil
      noteUnfinished(0)
      charge.move(to: nil)
      link.move(nil)
      done(.parked)
    }
  }

  /// The result of parking a connection.
  package enum Parking: Sendable {
    case parked
    /// The connection is ending or has ended; its listener is notified of the end.
    case ends
    /// The connection was not ready and will not be.
    case neverBegan
  }

  /// Resumes after ``park(_:)``, with another listener, which first receives the messages that arrived meanwhile.
  /// - Parameter server: The server of the path, if this is the server's side.
  package func goOn(_ listener: Listener, at server: HTTPServer? = nil) {
    NetworkLoop.execute { [self] in
      guard let bytes = parked.take() else { return listener.ended(self, howItEnded) }
      self.listener = listener
      if let server {
        link.withLock({ $0 })?.move(server)
        charge.move(to: server.budget)
      } else {
        charge.move(to: ownBudget)
      }
      noteUnfinished(reader.unfinished)
      lastSign = .now()
      lastMessage = lastSign
      pinged = nil
      if !bytes.isEmpty { bytes.withUnsafeBytes { received($0) } }
      if isOver { return listener.ended(self, howItEnded) }
      schedule()
      link.withLock { $0 }?.resume()
    }
  }

  /// Closes the connection without a close frame.
  package func abort(_ reason: String) {
    link.withLock { $0 }?.inLoop { [self] in
      end = end ?? End(code: nil, message: reason, isClean: false)
      breakOff()
    }
  }

  // MARK: - On the network thread

  /// A client's own budget for incoming messages.
  private var ownBudget: ByteBudget? {
    options.memory.map { ByteBudget(limit: options.room + 2 * options.maxMessage, of: $0) }
  }

  func begins(_ link: UpgradedLink) {
    self.link.withLock { $0 = link }
    charge.move(to: link.server()?.budget ?? ownBudget)
    lastSign = .now()
    lastMessage = lastSign
    schedule()
    listener.opened(self)
  }

  var wantsMore: Bool {
    if parked != nil { return false }
    if hasRoom { return true }
    isPaused.store(true, ordering: .sequentiallyConsistent)
    // Checks again, because a call of `handled` in between did not see the flag.
    if !hasRoom { return false }
    isPaused.store(false, ordering: .sequentiallyConsistent)
    return true
  }

  /// While the server's memory is used up, a connection is read only if none of its messages is being handled.
  private var hasRoom: Bool {
    let bytes = underWay.load(ordering: .sequentiallyConsistent)
    return bytes < options.room && (bytes == 0 || !charge.isFull)
  }

  func received(_ bytes: UnsafeRawBufferPointer) {
    if parked != nil {
      parked?.append(contentsOf: bytes)
      return
    }
    lastSign = .now()
    pinged = nil
    reader.take(bytes) { item in
      switch item {
      case .message(let whole):
        lastMessage = lastSign
        underWay.add(whole.bytes.count, ordering: .sequentiallyConsistent)
        charge.add(whole.bytes.count)
        listener.message(self, whole)
      case .ping(let content): if !hasSentClose { _ = send(frame: WebSocketFrame.bytes(.pong, content, mask: mask)) }
      case .pong: break
      case .close(let code, let reason): receivedClose(code, reason)
      case .failed(let code, let reason):
        end = end ?? End(code: code, message: reason, isClean: false)
        sayClose(code, reason)
        // Does not wait for the peer, which may continue to send invalid bytes.
        endOutput()
      }
    }
    noteUnfinished(reader.unfinished)
  }

  /// - Parameter bytes: The size of the incoming message so far.
  private func noteUnfinished(_ bytes: Int) {
    guard bytes != unfinished else { return }
    let isMore = bytes > unfinished
    charge.add(bytes - unfinished)
    unfinished = bytes
    // `unfinishedAt` has precedence, because the connection may have left that server since.
    guard let server = unfinishedAt ?? link.withLock({ $0 })?.server() else { return }
    unfinishedAt = bytes == 0 ? nil : server
    server.unfinished.set(bytes, of: ObjectIdentifier(self))
    if bytes == 0 {
      server.holders[ObjectIdentifier(self)] = nil
    } else {
      server.holders[ObjectIdentifier(self)] = self
    }
    // There is always room for at least one message.
    let limit = max(server.budget.limit, 2 * options.maxMessage)
    while isMore, server.unfinished.total > 0, server.budget.held > limit, let largest = server.unfinished.largest,
      let holder = server.holders[largest]
    {
      holder.giveUpUnfinished()
    }
  }

  /// Ends the connection because its unfinished message occupies memory that others need.
  func giveUpUnfinished() {
    let reason = "its message of \(unfinished) bytes or more leaves no room for the others"
    reader.stop()
    noteUnfinished(0)
    end = end ?? End(code: WebSocketCode.tryAgainLater, message: reason, isClean: false)
    sayClose(WebSocketCode.tryAgainLater, "too many unfinished messages")
    endOutput()
  }

  private func receivedClose(_ code: Int, _ reason: String) {
    hasReceivedClose = true
    let said = reason.isEmpty ? "" : ": \(HTTPSyntax.printable(reason))"
    end =
      end
      ?? End(
        code: code == WebSocketCode.none ? nil : code,
        message: "the other side has closed it" + (code == WebSocketCode.none ? "" : " with \(code)") + said,
        isClean: [WebSocketCode.normal, WebSocketCode.goingAway, WebSocketCode.none].contains(code))
    if !hasSentClose { sayClose(code, "") }
    endOutput()
  }

  private func sayClose(_ code: Int, _ reason: String) {
    guard !hasSentClose, !isOver else { return }
    hasSentClose = true
    // There is no room for the frame: the peer does not read.
    guard send(frame: WebSocketFrame.close(code, reason, mask: mask)) else { return breakOff() }
    closeDeadline = .now() + .nanoseconds(max(options.closeTimeout.nanoseconds, 1_000_000))
    schedule()
  }

  /// A server ends the connection itself; a client lets the server do so, until the deadline.
  private func endOutput() {
    closeDeadline = closeDeadline ?? .now() + .nanoseconds(max(options.closeTimeout.nanoseconds, 1_000_000))
    if isServer || !hasReceivedClose { link.withLock { $0 }?.stream.end() }
    schedule()
  }

  private func breakOff() {
    guard !isOver else { return }
    link.withLock { $0 }?.close()
  }

  func disconnected() {
    guard !isOver else { return }
    isOver = true
    timer?.cancel()
    timer = nil
    noteUnfinished(0)
    link.withLock { $0 = nil }
    // While parked, the end is reported to the next listener.
    if parked == nil { listener.ended(self, howItEnded) }
  }

  private var howItEnded: End { end ?? End(code: nil, message: "the connection broke", isClean: false) }

  // MARK: - Time

  private func schedule() {
    timer?.cancel()
    timer = nil
    guard !isOver, parked == nil, let link = link.withLock({ $0 }) else { return }
    var next = closeDeadline ?? .distantFuture
    if closeDeadline == nil {
      if let pinged {
        next = pinged + .nanoseconds(max(options.pingTimeout.nanoseconds, 1_000_000))
      } else if let ping = options.ping {
        next = lastSign + .nanoseconds(max(ping.nanoseconds, 1_000_000))
      }
      if let idle = options.idle { next = min(next, lastMessage + .nanoseconds(max(idle.nanoseconds, 1_000_000))) }
    }
    guard next != .distantFuture else { return }
    timer = link.loop.scheduleTask(deadline: next) { [weak self] in self?.woke() }
  }

  private func woke() {
    timer = nil
    guard !isOver else { return }
    let now = NIODeadline.now()
    if let closeDeadline {
      guard now >= closeDeadline else { return schedule() }
      end?.isCut = !hasReceivedClose
      return breakOff()
    }
    if let idle = options.idle, now >= lastMessage + .nanoseconds(idle.nanoseconds) {
      end = End(code: WebSocketCode.goingAway, message: "no message has arrived for \(idle)", isClean: false)
      return sayClose(WebSocketCode.goingAway, "no message has arrived for \(idle)")
    }
    if let pinged {
      if now >= pinged + .nanoseconds(options.pingTimeout.nanoseconds) {
        end = End(code: nil, message: "a ping was not answered within \(options.pingTimeout)", isClean: false)
        return breakOff()
      }
    } else if let ping = options.ping, now >= lastSign + .nanoseconds(ping.nanoseconds) {
      pinged = now
      // If waiting bytes leave no room for the ping, they serve the same purpose.
      _ = send(frame: WebSocketFrame.bytes(.ping, [], mask: mask))
    }
    schedule()
  }
}
