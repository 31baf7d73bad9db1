import PipelineCore

/// Framed messages that are sent together.
package struct SentBlock: Sendable {
  package var bytes: [UInt8]
  /// The end of each message, frame included.
  package var ends: [Int]
  /// The number of messages at the start that are not sent, because they have an outcome.
  package var first: Int

  package init(bytes: [UInt8], ends: [Int], first: Int = 0) {
    self.bytes = bytes
    self.ends = ends
    self.first = first
  }

  /// The number of messages to be sent.
  var count: Int { ends.count - first }
  /// The offset at which the message begins.
  func start(_ message: Int) -> Int { message == 0 ? 0 : ends[message - 1] }
}

/// A sender's report about the requested connection; nothing follows `lost` and `ended`.
package enum SenderReport: Sendable, Equatable {
  case opened
  /// This number of further messages, in order, has reached the receiver.
  case passed(Int)
  /// The next message can never be sent, and why.
  case refused(String)
  /// The connection has ended, or could not be made; the messages that were not reported are dropped. `reason`: nil
  /// where no fault is known. `pause`: requested by the receiver.
  case lost(_ reason: String?, pause: TimeSpan? = nil)
  /// Nothing can be sent, and further attempts would fail, too.
  case ended(String)
}

/// Sends messages over one connection at a time, on a thread of its own. It holds only the messages for that
/// connection, and never opens another by itself.
package protocol MessageSender: AnyObject, Sendable {
  typealias Report = @Sendable (SenderReport) -> Void
  /// Begins to connect. `report` is called on the sender's thread, never twice at once.
  func open(_ report: @escaping Report)
  /// Sends messages after those that it holds. Without a connection they are dropped.
  func send(_ block: SentBlock)
  /// Ends in good order, when all messages are sent; then calls `done`, on any thread.
  func finish(_ done: @escaping @Sendable () -> Void)
  /// Ends soon and reports nothing more. Returns how many further messages are on their way, because the system has them.
  @discardableResult func cancel() -> Int
  /// Waits until it has ended; false: the limit passed first.
  @discardableResult func waitForEnd(within limit: TimeSpan) -> Bool
  /// The counts of the sender's connections; nil: it has none.
  var connections: PipelineStatistics.Connections? { get }
}

/// A sender whose calls change a state that it shares with its thread, and wake that thread.
package protocol SharedStateSender: MessageSender {
  associatedtype State: HoldsSenderState
  var state: Guarded<State> { get }
  /// Makes the thread look at the state. From any thread.
  func wakeUp()
}

extension SharedStateSender {
  package func open(_ report: @escaping Report) {
    state.withLock { $0.shared.open(report) }
    wakeUp()
  }

  package func send(_ block: SentBlock) {
    state.withLock { $0.shared.send(block) }
    wakeUp()
  }

  package func finish(_ done: @escaping @Sendable () -> Void) {
    let now = state.withLock { $0.shared.finish(done) }
    wakeUp()
    now?()
  }

  @discardableResult
  package func cancel() -> Int {
    defer { wakeUp() }
    return state.withLock { $0.shared.cancel() }
  }

  @discardableResult
  package func waitForEnd(within limit: TimeSpan) -> Bool {
    let ended: (inout State) -> Bool? = { $0.shared.hasEnded ? true : nil }
    return state.wait(until: monotonicNow() &+ limit.nanoseconds, ended) ?? false
  }

  /// The last act of the thread.
  func ended() {
    let done = state.withLock { $0.shared.end() }
    state.notify()
    done?()
  }
}

/// The state of a sender that has members in addition to ``SenderState``.
package protocol HoldsSenderState {
  var shared: SenderState { get set }
}

/// The state shared by the owner of a sender and the sender's thread.
package struct SenderState: HoldsSenderState {
  /// Itself, in place: a copy would copy the queue.
  package var shared: SenderState {
    get { self }
    _modify { yield &self }
  }
  var queue: [SentBlock] = []
  /// The report callback of the requested connection; nil: none is requested.
  private(set) var report: MessageSender.Report?
  /// Whether the connection must be made.
  var isNew = false
  /// The number of unreported messages that the system has accepted.
  var accepted = 0
  private(set) var isClosing = false
  private(set) var isCancelled = false
  private(set) var hasEnded = false
  private var done: (@Sendable () -> Void)?

  mutating func open(_ report: @escaping MessageSender.Report) {
    guard !isCancelled, !hasEnded else { return }
    (queue, accepted) = ([], 0)
    self.report = report
    isNew = true
  }

  mutating func send(_ block: SentBlock) { if report != nil { queue.append(block) } }

  /// Returns the callback to be called now.
  mutating func finish(_ done: @escaping @Sendable () -> Void) -> (@Sendable () -> Void)? {
    isClosing = true
    if hasEnded { return done }
    self.done = done
    return nil
  }

  mutating func cancel() -> Int {
    isCancelled = true
    report = nil
    queue = []
    return accepted
  }

  /// Reports within the lock, so that nothing is reported after ``cancel()``.
  mutating func pass(_ count: Int) {
    guard count > 0 else { return }
    accepted = max(0, accepted - count)
    report?(.passed(count))
  }

  mutating func tell(_ what: SenderReport) { report?(what) }

  /// The connection is over.
  mutating func lose(_ what: SenderReport) {
    let report = report
    (self.report, queue, accepted, isNew) = (nil, [], 0, false)
    report?(what)
  }

  /// Notes the end of the thread. Returns the callback to be called.
  mutating func end() -> (@Sendable () -> Void)? {
    hasEnded = true
    (report, queue) = (nil, [])
    return done.take()
  }
}
