import ArgumentParser
import FlinkExport
import PipelineCore
import PipelineRuntime

/// `rxd export`: a pipeline in another system's language.
struct ExportVerb: ParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "export", abstract: "Prints a pipeline in another system's language.", subcommands: [Flink.self])

  struct Flink: ParsableCommand {
    static let configuration = CommandConfiguration(
      commandName: "flink", abstract: "Prints a pipeline as Flink SQL (version 2.3).",
      discussion: """
        The script has tables for sources and sinks, views for named signals, and an INSERT for each sink. Each source needs a 'schema'. \
        What has no exact equal in Flink SQL is reported with its location and with what to use in its place; nothing is approximated, \
        and then nothing is printed.
        """)

    @Argument(
      help: ArgumentHelp("A pipeline file, or - for standard input.", valueName: "file"),
      completion: .file(extensions: ["yaml", "yml"]))
    var file: String

    @Option(
      help: ArgumentHelp(
        "Let Flink write its compiled plan to this path instead of starting the job.", valueName: "path"))
    var compiledPlan: String?

    @OptionGroup var environment: EnvironmentOptions
    @OptionGroup var color: ColorOptions

    func run() throws {
      let export = FlinkExport(try PipelineLoader.plan(file, environment, color), compiledPlan: compiledPlan)
      guard let script = export.script else {
        var renderer = DiagnosticRenderer()
        renderer.colors = Console.colors(try color.mode(), on: 2)
        Console.note(String(renderer.text(export.diagnostics).dropLast()))
        throw ExitStatus.configuration
      }
      Console.print(script, terminator: "")
    }
  }
}
