import PipelineCore
import PipelineRuntime

extension Supervisor {
  /// How long a stop may wait before the log reports the reasons, and the interval at which it repeats them.
  static let stopSilence = TimeSpan.seconds(1)
  static let stopReminder = TimeSpan.seconds(15)

  /// Requests the reasons from the pipelines that have not ended.
  func askForLeft() {
    stopping.saysLeftAt = now + Self.stopReminder
    let post = poster()
    for (id, entry) in runs { entry.run.inspect { post(.left(id, $0.left)) } }
  }

  /// Logs why the stop of a pipeline waits, the maximum wait, and the effect of a second signal.
  func report(_ left: [Execution.Left], of slot: PipelineSlot) {
    guard let deadline = stopping.deadline, !stopping.isCancelling else { return }
    let names = left.prefix(5).map { sink in
      var text = "'\(sink.sink)'"
      let details =
        (sink.events > 0 ? [Printable.count(sink.events, "event")] : [])
        + (sink.trouble.map { [Printable.cut($0.reason, limit: 200)] } ?? [])
      if !details.isEmpty { text += " (\(details.joined(separator: "; ")))" }
      return text
    }
    let more = left.count > names.count ? " and \(left.count - names.count) more" : ""
    var rest = slot.store == nil ? "answers that are under way" : "its last commit and answers that are under way"
    if let copy = slot.store?.standing, copy.isAwaited, let trouble = copy.trouble {
      rest = "its last commit, which the standby does not accept (\(Printable.cut(trouble, limit: 200)))"
    }
    let what = names.isEmpty ? rest : "\(names.joined(separator: ", "))\(more)"
    let fate = slot.store == nil ? "is lost" : "stays in the state directory"
    let seconds = max(1, (deadline - now).nanoseconds / 1_000_000_000)
    log.write(
      .warning, slot.name,
      "stopping: waits at most \(TimeSpan.seconds(seconds)) for \(what); a second SIGINT or SIGTERM ends at once, and what is not delivered then \(fate)",
      limited: false)
  }
}
