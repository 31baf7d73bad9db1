import PipelineCore
import PipelineRuntime

extension Supervisor {
  /// The interval at which pipelines that could not start are checked, if few of them wait.
  static let checkInterval = TimeSpan.milliseconds(500)
  /// A pause from this length on is always logged, because a person waits for its end.
  static let longPause = TimeSpan.seconds(1)

  /// Restarts a failed pipeline of a daemon after a pause (``RestartPauses``).
  func startAgain(_ slot: PipelineSlot) {
    guard let failure = slot.failure else { return }
    let pause = slot.fail(at: now, random: services.random())
    var message = "failed: \(failure.reason); starting again in \(Self.shown(pause))"
    if !slot.hasLaunched, slot.restarts.mayCheck, pause > Self.longPause {
      slot.restarts.checkAt = now + Self.checkInterval
      message += ", or as soon as nothing blocks it"
    }
    log.write(.error, slot.name, message, limited: pause < Self.longPause)
    decide(slot, failed: message)
    reportStatus()
  }
}
