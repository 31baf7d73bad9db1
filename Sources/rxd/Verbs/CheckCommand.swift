import ArgumentParser
import Glibc
import PipelineCore
import PipelineRuntime
import Storage
import Transport

/// `rxd check`: the front end without the launch.
struct Check: ParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "check",
    abstract: "Reports every error in pipeline files.",
    discussion: """
      Reads only the files and the environment, checks whether the directories of sinks exist, and starts nothing. \
      Several files are checked as if they ran in one process, with one report. The exit status is 78 if a file has \
      errors, 66 if one is missing. With --fix, the fixes that the report proposes are written into the files, unless \
      there is a choice, and unless another error would come of it; the report has the remaining errors.
      """,
    aliases: ["validate", "lint"])

  enum Format: String, CaseIterable, ExpressibleByArgument { case text, json, sarif, github }

  @OptionGroup var input: InputOptions

  @Flag(name: .shortAndLong, help: "Warnings count as errors. (RXD_DENY_WARNINGS)")
  var denyWarnings = false

  @Option(
    help: ArgumentHelp("The format of the report: text, json, sarif or github.", valueName: "form"))
  var format = Format.text

  @Flag(name: .shortAndLong, help: "Print nothing for files without errors.")
  var quiet = false

  @Flag(name: .shortAndLong, help: "Print the delivery guarantee of each path from a source to a sink, too.")
  var verbose = false

  @Flag(help: "Make the fixes that errors and warnings propose, and show the changed lines.")
  var fix = false

  @Option(
    name: .customLong("state-dir"),
    help: ArgumentHelp(
      "Look for events in this state directory that none of the pipelines would deliver; it is only read.",
      valueName: "dir"),
    completion: .directory)
  var stateDirectory: String?

  @OptionGroup var color: ColorOptions

  func run() throws {
    try CheckSettings(
      input: input.settings, denyWarnings: denyWarnings, format: format, quiet: quiet, verbose: verbose, fix: fix,
      stateDirectory: stateDirectory, color: color.color
    ).run()
  }
}

/// The settings of `check`, from any command line.
struct CheckSettings {
  var input = InputSettings()
  var denyWarnings = false
  var format = Check.Format.text
  var quiet = false
  var verbose = false
  var fix = false
  var stateDirectory: String?
  var color: ColorMode?

  func run() throws {
    let selection = try input.selection()
    let front = PipelineLoader(try input.environment.inputs(), checksFiles: true, acceptsLibraries: true)
    if fix { try makeFixes(selection.paths, front) }
    let results = front.load(selection.paths)
    let missing = selection.missing
    let left = try leftBehind(results)
    let diagnostics = missing + results.flatMap(\.diagnostics) + left

    var renderer = DiagnosticRenderer(toolVersion: Version.number)
    renderer.colors = Console.colors(try colorMode(color), on: 1)
    switch format {
    case .text:
      Console.print(renderer.text(diagnostics), terminator: "")
      if !quiet {
        for result in results {
          if let library = result.library, !result.hasErrors {
            Console.print("\(result.path): ok (a library of \(library.contents), with nothing to run)")
          }
          guard let plan = result.plan else { continue }
          Console.print("\(result.path): ok (\(Self.contents(plan)))")
          if verbose { for line in plan.deliveryLines() { Console.print("  " + line) } }
        }
      }
    case .json: Console.print(renderer.json(diagnostics))
    case .sarif: Console.print(renderer.sarif(diagnostics))
    case .github: Console.print(renderer.github(diagnostics), terminator: "")
    }

    let deny = try flag(denyWarnings, "RXD_DENY_WARNINGS")
    if deny && !left.isEmpty
      || results.contains(where: { !$0.isUnreadable && ($0.hasErrors || deny && $0.hasWarnings) })
    {
      throw ExitStatus.configuration
    }
    if !missing.isEmpty || results.contains(where: \.isUnreadable) { throw ExitStatus.noInput }
  }

  /// Events in the state directory that none of the files delivers.
  private func leftBehind(_ results: [PipelineLoader.Loaded]) throws -> [Diagnostic] {
    guard let stateDirectory else { return [] }
    guard access(stateDirectory, R_OK | X_OK) == 0 else {
      // The directory does not exist before the first start of a service.
      if errno == ENOENT {
        Console.note("There is no \(stateDirectory) yet, so no events wait there.")
        return []
      }
      Console.printError(PosixError("read", stateDirectory).message)
      throw ExitStatus.noInput
    }
    // A file with errors may contain any pipeline, so it is unknown which events are left.
    guard !results.contains(where: \.hasErrors) else { return [] }
    let plans = results.compactMap(\.plan)
    let takers = Dictionary(plans.map { ($0.name, $0.sinksOfStore) }) { $0.union($1) }
    let folder = StateFolder(path: stateDirectory)
    return plans.flatMap { unknownNames($0, folder) }
      + LeftBehind.find(in: folder, takers).map {
        Diagnostic(.eventsLeftBehind, $0.what, at: nil, help: $0.advice.prefix(1).uppercased() + $0.advice.dropFirst())
      }
  }

  /// Names after `movedFrom` in a file that the stored state does not have.
  private func unknownNames(_ plan: Plan, _ folder: StateFolder) -> [Diagnostic] {
    guard !plan.formerNames.isEmpty, let reader = try? StoreReader(folder.store(plan.name)),
      let bytes = try? reader.state(),
      let report = try? SavedStateReport(bytes, catalogue: .builtIn, clock: SystemClock.shared)
    else { return [] }
    let backlogs = (try? reader.backlogs()) ?? [:]
    func has(_ name: String, _ isSink: Bool) -> Bool {
      report.has(name, isSink: isSink) || isSink && backlogs[name].map { $0.rows > 0 } ?? false
    }
    return plan.formerNames.filter { !has($0.former, $0.isSink) && !has($0.name, $0.isSink) }.map(\.isUnknown)
  }

  /// Rewrites the files, and shows the changed lines, on standard error if the report is for a program.
  private func makeFixes(_ paths: [String], _ front: PipelineLoader) throws {
    if !input.environment.set.isEmpty {
      throw ValidationError("--fix rewrites files, and --set replaces values in them: leave one of them out.")
    }
    if paths.contains(where: { $0 == "-" || $0.hasPrefix("/dev/") || $0.hasPrefix("/proc/") }) {
      throw ValidationError("--fix rewrites files, so it cannot be used with standard input.")
    }
    for path in paths {
      var fixes = FixedFile(front.load(path), front)
      fixes.make()
      try fixes.write()
      if fixes.count == 0 { continue }
      let text = "\(fixes.difference)\(path): made \(fixes.count) fix\(fixes.count == 1 ? "" : "es")"
      if format == .text { Console.print(text) } else { Console.note(text) }
    }
  }

  /// `2 sources, 1 signal, 1 sink`.
  static func contents(_ plan: Plan) -> String {
    func count(_ number: Int, _ noun: String) -> String? {
      number == 0 ? nil : "\(number) \(noun)\(number == 1 ? "" : "s")"
    }
    return [
      count(plan.named.count { $0.kind == .source }, "source"),
      count(plan.tables.count, "table"),
      count(plan.named.count { $0.kind == .signal }, "signal"),
      count(plan.named.count { $0.kind == .command }, "command"),
      count(plan.sinks.count, "sink"),
    ].compactMap { $0 }.joined(separator: ", ")
  }
}
