import NIOCore

/// The time limit of a connection's current phase. Used on its event loop.
final class PhaseTimer {
  private let loop: any EventLoop
  private(set) var deadline = NIODeadline.distantFuture
  private var timer: Scheduled<Void>?
  private var timerDeadline = NIODeadline.distantFuture
  /// Called when the limit has passed, unless it is changed first. Must be nil once the connection is closed.
  var expired: (() -> Void)?

  init(_ loop: any EventLoop) { self.loop = loop }

  func limit(until instant: NIODeadline) {
    deadline = instant
    // A timer that fires too early is set again.
    if timer == nil || timerDeadline > deadline { schedule() }
  }

  /// Shortens the limit of the current phase, if it has one.
  func shorten(to instant: NIODeadline) {
    guard instant < deadline, deadline != .distantFuture else { return }
    deadline = instant
    if timer == nil || timerDeadline > deadline { schedule() }
  }

  func cancel() {
    timer?.cancel()
    timer = nil
    deadline = .distantFuture
  }

  private func schedule() {
    timer?.cancel()
    timerDeadline = deadline
    timer = loop.assumeIsolated().scheduleTask(deadline: deadline) { [self] in
      timer = nil
      if deadline > .now() { schedule() } else { expired?() }
    }
  }
}
