import PipelineCore

/// The connection of a source to a server, reopened when it is lost.
///
/// The source opens and closes connections, and reports their events. The session numbers the connections, so that late
/// reports of an earlier one are recognized; it pauses between attempts, ends a connection that is silent, and logs the
/// first of consecutive failures and their end. Everything happens in turns of the source, which calls ``end()`` before
/// it ends.
final class SourceSession: TimerTarget {
  /// The limit on a server's silence.
  struct Silence {
    var limit: TimeSpan
    /// The log message for a connection that ends for it: "the feed was silent for 20s".
    var reason: String
    /// Whether the limit ends with ``SourceSession/opened()``.
    var isForOpening = false
  }

  private unowned let source: RunningSource
  private let silence: Silence?
  private let open: (_ number: Int) -> Void
  private let close: () -> Void
  private var attempts: Attempts
  private var timer = Wake.none
  private enum Token { static let reconnects = 0, silent = 1 }

  /// The number of the connection. It changes when a connection is begun, and when one is over.
  private(set) var number = 0
  private(set) var isOpen = false
  /// When the server last sent something, or its time was restarted. `deadline`: the time for which the timer was set.
  private var heardAt = Instant(nanoseconds: 0)
  private var deadline = Instant(nanoseconds: 0)

  /// - Parameters:
  ///   - open: Begins a connection. It may end within the call, by ``lost(_:isFailure:after:)`` or with the source.
  ///   - close: Breaks the connection off, or the attempt; there may be none.
  init(
    of source: RunningSource, _ attempts: Attempts, silence: Silence? = nil, open: @escaping (_ number: Int) -> Void,
    close: @escaping () -> Void
  ) {
    self.source = source
    self.attempts = attempts
    self.silence = silence
    self.open = open
    self.close = close
  }

  // MARK: What the source says

  /// Whether reports of the connection with this number are still accepted.
  func isCurrent(_ number: Int) -> Bool { number == self.number && !source.isClosed }

  /// Begins a connection at once.
  func connect() {
    cancel()
    guard !source.isClosed else { return }
    number += 1
    isOpen = false
    listen()
    open(number)
  }

  /// The server has accepted the connection, or an earlier version of the pipeline had it.
  func opened() {
    isOpen = true
    if silence?.isForOpening == true { cancel() } else { heard() }
    if attempts.succeed() > 0 { log(.info, "connected again") }
  }

  /// Notes that the server has sent something.
  func heard() { heardAt = source.executor.now }

  /// The connection or the attempt is over: another one begins after a pause.
  ///
  /// - Parameters:
  ///   - isFailure: Whether it counts as a failure. The pauses grow with consecutive failures.
  ///   - asked: The pause that the server asked for.
  func lost(_ reason: String, isFailure: Bool = true, after asked: TimeSpan? = nil) {
    end()
    guard !source.isClosed else { return }
    if isFailure, attempts.fail() { log(.warning, "\(reason); connecting again") }
    let pause =
      attempts.failures > 0 ? attempts.pause(source.execution.services.random(), asked: asked) : attempts.delay
    timer = source.executor.wake(at: source.executor.now + pause, self, Token.reconnects)
  }

  /// Changes the pauses: servers may ask for that.
  func pause(_ delay: TimeSpan, most: TimeSpan) { attempts = attempts.with(delay: delay, most: most) }

  /// Breaks the connection off, and makes no other.
  func end() {
    cancel()
    number += 1
    isOpen = false
    close()
  }

  private func log(_ level: Services.Level, _ text: String) { source.nodeContext.log(level, text) }

  // MARK: Time

  /// The session reads input, so its timer waits while the input is paused.
  var timerKind: TimerKind { source.timerKind }

  private func cancel() {
    if timer.isSet { source.executor.cancel(timer) }
    timer = .none
  }

  private func listen() {
    guard let silence else { return }
    heard()
    deadline = heardAt + silence.limit
    timer = source.executor.wake(at: deadline, self, Token.silent)
  }

  func woke(_ token: Int) {
    timer = .none
    guard token == Token.silent, let silence else { return connect() }
    let now = source.executor.now
    let due = heardAt + silence.limit
    if due > now {
      // The server has sent something meanwhile.
      deadline = due
      timer = source.executor.wake(at: due, self, Token.silent)
    } else if (now - deadline).nanoseconds > silence.limit.nanoseconds / 10 {
      // The input was paused, or the process stopped: nothing could be received.
      listen()
    } else {
      lost(silence.reason)
    }
  }
}
