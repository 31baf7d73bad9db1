/// Gives revoked parts back in a bounded time, however slow the sinks are.
///
/// A part is given back when the input that turns have taken from it is acknowledged, when that has failed, or at the
/// latest after `limit`. Its next owner begins at the position acknowledged by then; later acknowledgements are
/// ignored.
///
/// Blocked sinks pause the input: batches wait, and so do the timers of a source. Neither may delay a revocation, so
/// the source reports it with ``Executor/post(_:)`` and not as a batch, and the limit is a timer that never waits. Used
/// in turns of the source, which calls ``stop()`` when the source ends and when its session is over.
package final class PartRevocations<Position: Sendable>: TimerTarget {
  package typealias Epoch = PartLedgers<Position>.Epoch

  private let executor: Executor
  private let parts: PartLedgers<Position>
  private let limit: TimeSpan
  private let giveBack: (_ name: String, _ position: Position) -> Void
  /// The timers of the parts that have not been given back.
  private var timers: [Epoch: Wake] = [:]

  /// - Parameters:
  ///   - limit: How long a part may be kept; must be shorter than the time after which the part is taken away by force.
  ///   - giveBack: Commits the position and gives the part back. Called once for each revoked part, unless the part is
  ///     lost or assigned again before.
  package init(
    of source: RunningSource, _ parts: PartLedgers<Position>, limit: TimeSpan,
    giveBack: @escaping (_ name: String, _ position: Position) -> Void
  ) {
    executor = source.executor
    self.parts = parts
    self.limit = limit
    self.giveBack = giveBack
  }

  /// Stops taking input from the part and gives it back soon, possibly within this call. Does nothing for a part that
  /// is not assigned.
  package func revoke(_ name: String) {
    guard let epoch = parts.epoch(of: name) else { return }
    parts.revoke(epoch)
    guard let ledger = parts.revoked(epoch)?.ledger else { return }
    guard !parts.settled(epoch) else { return giveBack(epoch) }
    timers[epoch] = executor.wake(at: executor.now + limit, self, epoch.number)
    let executor = executor
    let revocations = Weak(self)
    // The last acknowledgement may arrive on any thread.
    ledger.whenSettled { executor.post { revocations.object?.end(epoch) } }
  }

  /// Whether a part has not been given back yet.
  package var isWaiting: Bool { !timers.isEmpty }

  /// Cancels all pending revocations.
  package func stop() {
    for timer in timers.values { executor.cancel(timer) }
    timers = [:]
  }

  package var timerKind: TimerKind { .output }
  package var mayGoOn: Bool { false }

  package func woke(_ token: Int) {
    guard let epoch = timers.keys.first(where: { $0.number == token }) else { return }
    end(epoch)
  }

  private func end(_ epoch: Epoch) {
    guard let timer = timers.removeValue(forKey: epoch) else { return }
    executor.cancel(timer)
    giveBack(epoch)
  }

  private func giveBack(_ epoch: Epoch) {
    guard let (name, ledger) = parts.revoked(epoch) else { return }
    let position = ledger.acknowledged
    parts.lose(epoch)
    // A part that was assigned again belongs to this source.
    guard parts.epoch(of: name) == nil else { return }
    giveBack(name, position)
  }
}
