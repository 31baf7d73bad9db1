import ArgumentParser
import PipelineCore
import PipelineRuntime

/// `rxd list`: the components that pipeline files can name.
struct List: ParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "list",
    abstract: "Lists the sources, operators, combinations, commands, sinks, decoders, encoders and functions.",
    discussion: "'rxd describe NAME' describes one of them.")

  enum Subject: String, CaseIterable, ExpressibleByArgument {
    case sources, operators, combinations, commands, sinks, decoders, encoders, functions
  }
  enum Format: String, CaseIterable, ExpressibleByArgument { case text, json }

  @Argument(help: "What to list; everything by default.")
  var subjects: [Subject] = []

  @Option(help: ArgumentHelp("The format: text or json.", valueName: "form"))
  var format = Format.text

  @Flag(
    help: ArgumentHelp("Print all names that 'rxd describe' knows, for the completion of shells.", visibility: .hidden))
  var names = false

  @Flag(help: "List the templates that come with rxd; 'rxd describe preset NAME' shows one.")
  var presets = false

  @OptionGroup var plugins: PluginOptions

  func run() {
    let installed = Catalogue.installed(plugins.pluginDir)
    if names { return Console.print(Describe.known(installed).joined(separator: "\n")) }
    if presets { return printPresets() }
    let subjects = subjects.isEmpty ? Subject.allCases : subjects
    switch format {
    case .text:
      for (index, subject) in subjects.enumerated() {
        let entries = Self.entries(subject, installed)
        let width = entries.map(\.name.utf8.count).max() ?? 0
        if index > 0 { Console.print("") }
        if subjects.count > 1 { Console.print("\(subject.rawValue):") }
        for entry in entries {
          let pad = String(repeating: " ", count: width - entry.name.utf8.count)
          Console.print("\(subjects.count > 1 ? "  " : "")\(entry.name)\(pad)  \(entry.summary)")
        }
      }
    case .json:
      Console.print(
        JSONText.array(
          subjects.flatMap { subject in
            Self.entries(subject, installed).map { entry in
              .object([
                ("kind", .string(String(subject.rawValue.dropLast()))),
                ("name", .string(entry.name)), ("summary", .string(entry.summary)),
              ])
            }
          }
        ).text)
    }
  }

  private func printPresets() {
    switch format {
    case .text:
      let width = Preset.all.map(\.name.utf8.count).max() ?? 0
      for preset in Preset.all {
        Console.print(
          preset.name + String(repeating: " ", count: width - preset.name.utf8.count) + "  " + preset.summary)
      }
    case .json:
      Console.print(
        JSONText.array(
          Preset.all.map {
            .object([("kind", .string("preset")), ("name", .string($0.name)), ("summary", .string($0.summary))])
          }
        ).text)
    }
  }

  static func entries(_ subject: Subject, _ installed: Catalogue) -> [(name: String, summary: String)] {
    func components(_ kind: ComponentKind) -> [(name: String, summary: String)] {
      installed.components.filter { $0.kind == kind }.map { ($0.name, $0.summary) }
    }
    func called(_ kind: ComponentKind) -> [(name: String, summary: String)] {
      installed.called.filter { $0.offered.kind == kind }.map { ($0.nameInFiles, $0.offered.summary) }
    }
    let unsorted: [(name: String, summary: String)] =
      switch subject {
      case .sources: components(.source)
      case .operators: components(.operator)
      case .combinations: components(.combination)
      case .commands: components(.command)
      case .sinks: components(.sink)
      case .decoders: DecoderFormat.allCases.map { ($0.rawValue, $0.summary) } + called(.decoder)
      case .encoders: EncoderFormat.allCases.map { ($0.rawValue, $0.summary) } + called(.encoder)
      case .functions: FunctionRegistry.callable.map { ($0.name, $0.summary) } + called(.function)
      }
    return unsorted.sorted { $0.name.utf8.lexicographicallyPrecedes($1.name.utf8) }
  }
}
