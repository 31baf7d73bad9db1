import ArgumentParser
import PipelineCore
import PipelineRuntime

/// `rxd schema`: the schema with which editors check pipeline files.
struct SchemaVerb: ParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "schema",
    abstract: "Prints the JSON Schema of pipeline files, for editors.",
    discussion: """
      For editors with the YAML language server: 'rxd schema > rxd.schema.json', and as a file's first \
      line '# yaml-language-server: $schema=rxd.schema.json'.
      """)

  @OptionGroup var plugins: PluginOptions

  func run() { Console.print(SchemaWriter.schema(.installed(plugins.pluginDir)).text) }
}
