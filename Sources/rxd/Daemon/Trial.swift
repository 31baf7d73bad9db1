import Glibc
import PipelineCore

/// The differences between a trial run and a service: `--dry-run`, `--print`, `--limit`, `--once`.
struct Trial: Sendable {
  /// Sinks print their events instead of sending them; nothing is acknowledged and nothing is stored.
  var isDry = false
  /// Every source reads its current content once.
  var isOnce = false
  /// Each pipeline ends when its sinks have received this many events.
  var limit: Int?
  /// The number of printed signals, and the form.
  var printed = 0
  var format = EncoderFormat.ndjson
  /// The output for everything printed; nil: nothing is printed.
  var output: PrintedOutput?

  /// Sets up an execution before its launch.
  func prepare(_ execution: Execution) {
    execution.isRehearsal = isDry
    execution.settings.runsOnce = isOnce
    execution.outputLimit.left = limit
    guard let output else { return }
    let plan = execution.plan
    let trial = self
    execution.replacements.sinks = { name in
      guard let sink = plan.sinks.first(where: { $0.name == name }) else { return nil }
      if sink.printedSignal == nil, !trial.isDry { return nil }
      return PrintingSink(trial.style(of: sink), sink.component, output)
    }
  }

  /// How the printed events of one sink are distinguished from those of others.
  private func style(of sink: SinkPlan) -> PrintingSink.Style {
    guard let signal = sink.printedSignal else { return .prefixed(sink.name) }
    if isDry { return .prefixed(signal) }
    if printed == 1 { return .bare }
    return [.json, .ndjson].contains(format) ? .wrapped(signal) : .prefixed(signal)
  }
}
