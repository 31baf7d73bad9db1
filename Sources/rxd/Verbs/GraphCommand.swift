import ArgumentParser
import PipelineCore
import PipelineRuntime

/// `rxd graph`: a pipeline as a drawing.
struct Graph: ParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "graph",
    abstract: "Draws a pipeline: mermaid, dot, svg or json.",
    discussion: """
      svg is a picture for a browser or a page: each signal is a group of its steps with their settings, columns go from the sources to the sinks, \
      and five or more groups of the same shape become one. mermaid is text for Markdown, dot is for graphviz, json is for programs.
      """)

  enum Format: String, CaseIterable, ExpressibleByArgument { case mermaid, dot, svg, json }

  @Argument(
    help: ArgumentHelp("A pipeline file, or - for standard input.", valueName: "file"),
    completion: .file(extensions: ["yaml", "yml"]))
  var file: String

  @Option(help: ArgumentHelp("The format: mermaid, dot, svg or json.", valueName: "form"))
  var format = Format.mermaid

  @OptionGroup var environment: EnvironmentOptions
  @OptionGroup var color: ColorOptions

  @Flag(help: "In svg, draw every signal and sink, also where many have the same shape.")
  var unfolded = false

  func validate() throws {
    if unfolded, format != .svg {
      throw ValidationError("'--unfolded' goes with --format svg: the other formats draw everything.")
    }
  }

  func run() throws {
    let plan = try PipelineLoader.plan(file, environment, color)
    switch format {
    case .mermaid: Console.print(PlanDrawing(plan).mermaid, terminator: "")
    case .dot: Console.print(PlanDrawing(plan).dot, terminator: "")
    case .json: Console.print(PlanDrawing(plan).json.text)
    case .svg: Console.print(GraphPicture(plan, folding: !unfolded).svg(), terminator: "")
    }
  }
}

extension PipelineLoader {
  /// The plan of one file; on errors prints the report and exits.
  static func plan(
    _ path: String, _ environment: EnvironmentOptions, _ color: ColorOptions
  ) throws -> Plan {
    let result = PipelineLoader(try environment.inputs()).load(path)
    guard let plan = result.plan else {
      var renderer = DiagnosticRenderer()
      renderer.colors = Console.colors(try color.mode(), on: 2)
      Console.note(String(renderer.text(result.diagnostics).dropLast()))
      throw result.isUnreadable ? ExitStatus.noInput : ExitStatus.configuration
    }
    return plan
  }
}
