import PipelineCore
import PipelineRuntime
import Storage

extension Supervisor {
  /// How often a pipeline that could not start is checked, if few of them wait.
  static let checkInterval = TimeSpan.milliseconds(500)
  /// A pause of this length is always in the log: a person waits for its end.
  static let longPause = TimeSpan.seconds(1)

  /// A pipeline of a daemon has failed: it starts again after a pause (``RestartPauses``).
  func startAgain(_ slot: PipelineSlot) {
    guard let failure = slot.failure else { return }
    let pause = slot.fail(at: now, random: services.random())
    var message = "failed: \(failure.reason); starting again in \(Self.shown(pause))"
    if !slot.hasLaunched, slot.mayCheck, pause > Self.longPause {
      slot.checkAt = now + Self.checkInterval
      message += ", or as soon as nothing is in its way"
    }
    log.write(.error, slot.name, message, limited: pause < Self.longPause)
    decide(slot, failed: message)
    reportStatus()
  }

  /// Checks whether what kept a pipeline from starting is gone: it was never wired, so trying it out repeats nothing. Then it starts at once.
  func checkAgain(_ slot: PipelineSlot) {
    slot.checkAt = nil
    guard slot.run == nil, slot.retryAt != nil, !isStopping else { return }
    if canStart(slot) {
      // If it fails all the same, its pauses decide.
      slot.mayCheck = false
      slot.retryAt = nil
      return launch(slot)
    }
    // Many pipelines share the time of this thread.
    let waiting = slots.count { $0.checkAt != nil }
    slot.checkAt = now + TimeSpan(nanoseconds: Self.checkInterval.nanoseconds * Int64(1 + waiting / 10))
  }

  private func canStart(_ slot: PipelineSlot) -> Bool {
    if mustAwaitStore(slot) { return false }
    do throws(StoreRefusal) { try openStore(slot, reports: false) } catch { return false }
    return Execution.dryRun(slot.plan, services: services, clock: SystemClock.shared, restoring: slot.saved).failure
      == nil
  }
}
