import NIOCore
import PipelineCore

/// Sends messages to a WebSocket server. A message has passed when the system has taken it.
package final class WebSocketSender: SharedStateSender {
  package struct Options: Sendable {
    package var client = WebSocketClient.Options()
    package var session = WebSocketSession.Options()
    package var isText = true
    package init() {}
  }

  package struct State: HoldsSenderState {
    package var shared = SenderState()
    /// Messages that the connection has and the system has not accepted, by the position in the connection's bytes at which each ends; the
    /// others are in the queue of `shared`.
    var handed: [Int] = []
    var session: WebSocketSession?
    var attempt: (any Cancellable)?
    var isConnecting = false
    var isReady = false
    var counts = PipelineStatistics.Connections()
  }

  private let target: WebSocketClient.Target
  private let http: any HTTPClient
  private let options: Options
  package let state: Guarded<State>
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
    state = Guarded(State())
  }

  package var connections: PipelineStatistics.Connections? { state.withLock(\.counts) }

  package func wakeUp() { loop.execute { [self] in work() } }

  // MARK: - On the network thread

  private enum Step {
    case nothing
    case connect
    case giveUp(WebSocketSession?, (any Cancellable)?)
    case close(WebSocketSession)
    case end((@Sendable () -> Void)?)
  }

  private func work() {
    let step = state.withLock { state -> Step in
      guard !state.shared.hasEnded else { return .nothing }
      if state.shared.isCancelled {
        _ = state.shared.end()
        return .giveUp(state.session.take(), state.attempt.take())
      }
      pump(&state)
      if state.shared.isClosing, state.handed.isEmpty, state.shared.queue.isEmpty {
        if let session = state.session, state.isReady { return .close(session) }
        if !state.isConnecting { return .end(state.shared.end()) }
      }
      guard state.shared.isNew, !state.isConnecting, !state.isReady else { return .nothing }
      state.shared.isNew = false
      state.isConnecting = true
      return .connect
    }
    switch step {
    case .nothing: break
    case .connect: connect()
    case .close(let session): session.close()
    case .giveUp(let session, let attempt):
      attempt?.cancel()
      session?.abort("it is given up")
      state.notify()
    case .end(let done):
      state.notify()
      done?()
    }
  }

  /// Passes as many messages to the connection as it accepts.
  private func pump(_ state: inout State) {
    guard state.isReady, let session = state.session else { return }
    while let block = state.shared.queue.first {
      let message = Array(block.bytes[block.start(block.first)..<block.ends[block.first]])
      guard let end = session.sendCounted(isText: options.isText, message) else { return }
      state.handed.append(end)
      if block.count == 1 { state.shared.queue.removeFirst() } else { state.shared.queue[0].first += 1 }
    }
  }

  private func connect() {
    let listener = WebSocketSession.Listener { [self] session in
      opened(session)
    } message: { session, message in
      // No messages are expected; a received one is dropped.
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
      lost(failure.isFinal ? .ended(failure.message) : .lost(failure.message, pause: failure.pause))
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
      state.handed = []
      state.counts.opened &+= 1
      state.counts.open = 1
      state.shared.tell(.opened)
      return true
    }
    guard isOurs else { return session.close() }
    work()
  }

  /// Notes how many bytes of the connection the system has accepted, and reports the messages among them.
  private func progress(_ session: WebSocketSession, _ taken: Int) {
    state.withLock { state in
      guard state.session === session, state.isReady else { return }
      let count = state.handed.prefix { $0 <= taken }.count
      state.handed.removeFirst(count)
      state.shared.pass(count)
    }
    work()
  }

  private func ended(_ session: WebSocketSession, _ end: WebSocketSession.End) {
    let (isOurs, isDone) = state.withLock { state in
      guard state.session === session else { return (false, false) }
      state.session = nil
      state.counts.open = 0
      if !end.isClean { state.counts.broken &+= 1 }
      // A server may close every connection at once: where messages wait, that is a failure.
      return (true, end.isClean && state.handed.isEmpty && state.shared.queue.isEmpty)
    }
    guard isOurs else { return }
    if end.hasMoved { notify(.moved) }
    lost(.lost(isDone || end.hasMoved ? nil : "\(target.text): \(end.message)"))
  }

  private func lost(_ report: SenderReport) {
    state.withLock { state in
      state.isReady = false
      state.isConnecting = false
      state.attempt = nil
      state.handed = []
      state.shared.lose(report)
    }
    work()
  }
}
