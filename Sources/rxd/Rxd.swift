import ArgumentParser

/// The command line. Without a verb its arguments are those of `run`.
struct Rxd: ParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "rxd",
    abstract: "Runs event pipelines that are written in YAML.",
    usage: """
      rxd FILE ...
      rxd VERB ...
      """,
    discussion: """
      'rxd FILE' runs a pipeline; 'rxd check FILE' reports its errors; 'rxd list' shows the sources, operators and \
      sinks, and 'rxd describe NAME' describes one of them.
      """,
    version: Version.line,
    subcommands: [
      Run.self, Reload.self, TapVerb.self, WhyVerb.self, TopVerb.self, UIVerb.self, Check.self, Format.self, Test.self,
      Initialize.self, List.self,
      Describe.self,
      Explain.self,
      Graph.self, ExportVerb.self, Eval.self, PluginVerb.self, StateVerb.self, DeadLettersVerb.self, SchemaVerb.self,
      Completion.self,
      StandbyVerb.self, PromoteStandby.self, DocsVerb.self, VersionVerb.self,
    ],
    defaultSubcommand: Run.self)
}
