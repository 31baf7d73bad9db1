import NIOCore

/// The time limit of a connection's current phase. Used on its event loop.
final class PhaseTimer {
  private let loop: any EventLoop
  private(set) var deadline = NIODeadline.distantFuture
  private var timer: Scheduled<Void>?
  private var timerDeadline = NIODeadline.distantFuture
  private var expired: (() -> Void)?

  init(_ loop: any EventLoop) { self.loop = loop }

  /// - Parameter expired: Called when the limit has passed, unless it is changed first. Must be the same for all
  ///   limits.
  func limit(until instant: NIODeadline, _ expired: @escaping () -> Void) {
    deadline = instant
    self.expired = expired
    // A timer that fires too early is set again.
    if timer == nil || timerDeadline > deadline { schedule() }
  }

  /// Shortens the limit of the current phase.
  func shorten(to instant: NIODeadline) {
    guard instant < deadline, expired != nil else { return }
    deadline = instant
    if timer == nil || timerDeadline > deadline { schedule() }
  }

  func cancel() {
    timer?.cancel()
    timer = nil
    expired = nil
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
