import NIOCore
import PipelineCore

/// Sends messages to a WebSocket server: connects when the first message comes, reconnects after growing pauses, and
/// repeats messages that the system had not accepted when a connection ended.
package final class WebSocketSender: MessageSender {
  package struct Options: Sendable {
    package var client = WebSocketClient.Options()
    package var session = WebSocketSession.Options()
    package var isText = true
    /// The pauses between attempts to connect.
    package var attempts = Attempts(.milliseconds(100), most: .seconds(10))
    package init() {}
  }

  private struct Message: Sendable {
    var bytes: [UInt8]
    var done: @Sendable (Int, Int) -> Void
    /// The position in the connection's bytes at which the message ends; nil: it has not been handed to a connection.
    var end: Int?
  }

  private struct State {
    /// Messages that the system has not accepted, oldest first; those handed to the connection come first.
    var messages: [Message] = []
    var handed = 0
    var bytes = 0
    var session: WebSocketSession?
    var attempt: (any Cancellable)?
    var isConnecting = false
    var isReady = false
    var attempts: Attempts
    var isClosing = false
    var isCancelled = false
    var hasEnded = false
    var retry: Scheduled<Void>?
    var counts = PipelineStatistics.Connections()
  }

  private let target: WebSocketClient.Target
  private let http: any HTTPClient
  private let options: Options
  private let state: Guarded<State>
  private let notify: @Sendable (SocketSender.Notice) -> Void
  private let loop: any EventLoop

  /// - Parameters:
  ///   - http: Fetches access tokens.
  ///   - notify: Called on the network thread.
  /// - Throws: The network thread cannot be started.
  package init(
    _ target: WebSocketClient.Target, _ options: Options, by http: any HTTPClient,
    notify: @escaping @Sendable (SocketSender.Notice) -> Void
  ) throws(PosixError) {
    loop = try NetworkLoop.loop()
    self.target = target
    self.http = http
    self.options = options
    self.notify = notify
    state = Guarded(State(attempts: options.attempts))
  }

  package var counts: PipelineStatistics.Connections { state.withLock(\.counts) }
  package var queuedBytes: Int { state.withLock(\.bytes) }

  package func send(_ block: SocketSender.Block, done: @escaping @Sendable (Int, Int) -> Void) {
    let isTaken = state.withLock { state in
      guard !state.hasEnded, !state.isCancelled else { return false }
      var start = 0
      for end in block.ends {
        state.messages.append(Message(bytes: Array(block.bytes[start..<end]), done: done))
        start = end
      }
      state.bytes += block.bytes.count
      return true
    }
    guard isTaken else { return done(0, block.ends.count) }
    loop.execute { [self] in work() }
  }

  package func close() {
    state.withLock { $0.isClosing = true }
    loop.execute { [self] in work() }
    let none: (inout State) -> Bool? = { $0.hasEnded ? true : nil }
    _ = state.wait(until: nil, none)
  }

  package func cancel() {
    state.withLock { $0.isCancelled = true }
    loop.execute { [self] in work() }
  }

  package func waitForEnd(within limit: TimeSpan) -> Bool {
    let none: (inout State) -> Bool? = { $0.hasEnded ? true : nil }
    return state.wait(until: monotonicNow() &+ limit.nanoseconds, none) ?? false
  }

  // MARK: - On the network thread

  private enum Step {
    case nothing
    case connect
    case giveUp([Message], WebSocketSession?, (any Cancellable)?)
    case close(WebSocketSession)
    case end
  }

  private func work() {
    let step = state.withLock { state -> Step in
      guard !state.hasEnded else { return .nothing }
      if state.isCancelled {
        defer {
          state.messages = []
          state.bytes = 0
          state.retry?.cancel()
          state.hasEnded = true
        }
        return .giveUp(state.messages, state.session.take(), state.attempt.take())
      }
      pump(&state)
      if state.isClosing, state.messages.isEmpty {
        if let session = state.session, state.isReady { return .close(session) }
        if !state.isConnecting {
          state.hasEnded = true
          return .end
        }
      }
      guard !state.messages.isEmpty, !state.isConnecting, !state.isReady, state.retry == nil else { return .nothing }
      state.isConnecting = true
      return .connect
    }
    switch step {
    case .nothing: break
    case .connect: connect()
    case .close(let session): session.close()
    case .giveUp(let messages, let session, let attempt):
      attempt?.cancel()
      session?.abort("it is given up")
      for message in messages { message.done(0, 1) }
      state.notify()
    case .end: state.notify()
    }
  }

  /// Hands the connection as many messages as it takes.
  private func pump(_ state: inout State) {
    guard state.isReady, let session = state.session else { return }
    while state.handed < state.messages.count {
      guard let end = session.sendCounted(isText: options.isText, state.messages[state.handed].bytes) else { return }
      state.messages[state.handed].end = end
      state.handed += 1
    }
  }

  private func connect() {
    let listener = WebSocketSession.Listener { [self] session in
      opened(session)
    } message: { session, message in
      // No messages are expected; one that comes is dropped.
      session.handled(message.bytes.count)
    } ended: { [self] session, end in
      ended(session, end)
    }
    let session = WebSocketSession(isServer: false, options.session, listener)
    // The attempt may fail before `connect` returns.
    state.withLock { $0.session = session }
    let attempt = WebSocketClient.connect(target, options.client, session, by: http) { [self] taken in
      progress(session, taken)
    } warned: { [notify] in
      notify(.fault($0))
    } failed: { [self] failure in
      let isOurs = state.withLock { state in
        guard state.session === session else { return false }
        state.session = nil
        state.counts.broken &+= 1
        return true
      }
      guard isOurs else { return }
      failed(failure.message, pause: failure.pause, isFinal: failure.isFinal)
    }
    state.withLock { state in
      if state.session === session, !state.isReady { state.attempt = attempt }
    }
  }

  private func opened(_ session: WebSocketSession) {
    let isOurs = state.withLock { state in
      guard state.session === session else { return false }
      state.attempt = nil
      state.isConnecting = false
      state.isReady = true
      state.handed = 0
      state.counts.opened &+= 1
      state.counts.open = 1
      return true
    }
    guard isOurs else { return session.close() }
    work()
  }

  /// Notes how many bytes of the connection the system has accepted, and reports the messages among them as sent.
  private func progress(_ session: WebSocketSession, _ taken: Int) {
    let (done, failures) = state.withLock { state -> ([Message], Int) in
      guard state.session === session, state.isReady else { return ([], 0) }
      let count = state.messages.prefix(state.handed).prefix { ($0.end ?? .max) <= taken }.count
      let done = Array(state.messages.prefix(count))
      state.messages.removeFirst(count)
      state.handed -= count
      state.bytes -= done.reduce(0) { $0 + $1.bytes.count }
      // Only a sent message counts as recovery: otherwise pauses would not grow for a server that accepts each
      // connection and ends it.
      guard !done.isEmpty else { return ([], 0) }
      return (done, state.attempts.succeed())
    }
    if failures > 0 { notify(.recovered(failures: failures)) }
    for message in done { message.done(1, 0) }
    work()
  }

  private func ended(_ session: WebSocketSession, _ end: WebSocketSession.End) {
    let (isOurs, isDone) = state.withLock { state in
      guard state.session === session else { return (false, false) }
      state.session = nil
      state.counts.open = 0
      if !end.isClean { state.counts.broken &+= 1 }
      // Waiting messages go to the next connection after a pause, even after a clean close: a server may close every
      // connection at once.
      return (true, state.messages.isEmpty && (state.isClosing || end.isClean))
    }
    guard isOurs else { return }
    if end.hasMoved { notify(.moved) }
    if isDone || end.hasMoved {
      state.withLock { $0.isReady = false }
      return work()
    }
    failed("\(target.text): \(end.message)")
  }

  private func failed(_ reason: String, pause asked: TimeSpan? = nil, isFinal: Bool = false) {
    let isFirst = state.withLock { state in
      state.isReady = false
      state.isConnecting = false
      state.attempt = nil
      let isFirst = state.attempts.fail()
      let pause = state.attempts.pause(.random(in: 0 ... .max), asked: asked)
      state.retry = loop.scheduleTask(in: .nanoseconds(pause.nanoseconds)) { [weak self] in
        guard let self else { return }
        self.state.withLock { $0.retry = nil }
        work()
      }
      return isFirst
    }
    if isFinal {
      notify(.ended(reason))
    } else if isFirst {
      notify(.failing(reason))
    }
  }
}
