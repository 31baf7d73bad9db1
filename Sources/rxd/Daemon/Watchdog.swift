import Logging
import PipelineCore
import PipelineRuntime
import Transport

/// Feeds the service manager's watchdog while every loop turns and no write or sync is stuck.
struct Watchdog {
  private let notify: Notify
  /// Half of the time that the service manager waits.
  private let interval: TimeSpan
  /// The time at which the watchdog is next notified.
  private(set) var next: Instant

  /// Nil: the service manager has no watchdog.
  init?(_ notify: Notify, at now: Instant) {
    guard let limit = notify.watchdogMicroseconds else { return nil }
    self.notify = notify
    interval = TimeSpan(nanoseconds: max(1, limit / 2) &* 1000)
    next = now + interval
  }

  /// Feeds the watchdog, if that is due and all loops have turned since the last time; otherwise logs why not.
  mutating func feed(at now: Instant, _ loops: [Loop], _ logger: Logger) {
    guard now >= next else { return }
    next = now + interval
    let turned = loops.map { $0.hasTurned() }
    if let call = WriterCalls.longest(), call.duration > interval {
      logger.error("not feeding the watchdog: \(call.name) has been busy for \(Supervisor.shown(call.duration))")
    } else if turned.contains(false) {
      logger.error(
        "not feeding the watchdog: an event has kept a pipeline busy for longer than \(Supervisor.shown(interval))")
    } else {
      notify.send("WATCHDOG=1")
    }
  }
}
