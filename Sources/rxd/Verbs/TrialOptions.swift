import ArgumentParser
import PipelineCore
import Transport

extension EncoderFormat: ExpressibleByArgument {}

/// Options of `rxd run` for trying a pipeline out.
struct TrialOptions: ParsableArguments {
  @Flag(
    help: """
      Send nothing: sinks print their events. Nothing is acknowledged to senders, and nothing is stored; sources are read, and \
      requests within chains are made. (RXD_DRY_RUN)
      """)
  var dryRun = false

  @Flag(
    help: """
      Read the current content, and end: files up to their current end, one request, one run or one tick instead of a periodic one. \
      (RXD_ONCE)
      """)
  var once = false

  @Option(
    help: ArgumentHelp(
      "End each pipeline when its sinks and printed signals have received this many events together. (RXD_LIMIT)",
      valueName: "count"))
  var limit: Int?

  @Option(
    name: .customLong("print"),
    help: ArgumentHelp(
      "Print the events of a source or signal, or of NAME.errors; may be repeated. The file then needs no sink.",
      valueName: "name"))
  var printed: [String] = []

  @Option(
    help: ArgumentHelp(
      "The format of --print: ndjson, text, lines, json, csv, logfmt or bytes; default is ndjson.", valueName: "form"))
  var format: EncoderFormat?

  var settings: TrialSettings {
    TrialSettings(isDry: dryRun, isOnce: once, limit: limit, printed: printed, format: format)
  }
}

/// The settings for trying a pipeline out, from any command line.
struct TrialSettings {
  var isDry = false
  var isOnce = false
  var limit: Int?
  var printed: [String] = []
  var format: EncoderFormat?

  func trial(isDaemon: Bool, keepsState: Bool) throws -> Trial {
    var trial = Trial()
    trial.isDry = try flag(isDry, "RXD_DRY_RUN")
    trial.isOnce = try flag(isOnce, "RXD_ONCE")
    trial.limit = try setting(limit, "RXD_LIMIT")
    if let limit = trial.limit, limit < 1 { throw ValidationError("--limit is a number from 1, not \(limit).") }
    if isDaemon, trial.isOnce || trial.limit != nil {
      throw ValidationError("--\(trial.isOnce ? "once" : "limit") ends the process, and a daemon runs forever.")
    }
    if trial.isOnce, keepsState {
      throw ValidationError(
        "--once reads everything from the beginning, and a state directory continues where the last run ended: leave one of them out."
      )
    }
    if format != nil, printed.isEmpty {
      throw ValidationError("--format requires --print SIGNAL.")
    }
    trial.format = format ?? .ndjson
    trial.printed = Set(printed).count
    guard trial.isDry || !printed.isEmpty else { return trial }
    do throws(PosixError) { trial.output = try PrintedOutput() } catch {
      Console.printError(error.message)
      throw ExitStatus.system
    }
    return trial
  }
}
