import ArgumentParser
import Glibc
import PipelineCore
import PipelineRuntime

/// `rxd describe`: the manual page of one component or function.
struct Describe: ParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "describe",
    abstract: "Describes a component, a function, a format or a word of the pipeline file.",
    discussion: """
      Finds components by the names of other tools: 'rxd describe debounce'. Components of plugins in the plugin \
      directory are described as far as their specs are known; no plugin is started. With --format markdown a page for \
      documentation is printed, as those of the reference.
      """)

  enum Format: String, CaseIterable, ExpressibleByArgument { case text, markdown }

  @Argument(
    help: "Its name, or the kind of a component, or 'preset'.",
    completion: .shellCommand("rxd list --names"))
  var name: String

  @Argument(help: "The name, after 'preset' or a kind: 'sink http'.")
  var second: String?

  @Option(help: ArgumentHelp("The format: text, or markdown for a component.", valueName: "form"))
  var format = Format.text

  @OptionGroup var plugins: PluginOptions

  /// All names that have a page.
  static func known(_ catalogue: Catalogue) -> [String] {
    var seen: Set<String> = []
    let all =
      catalogue.components.map(\.name) + catalogue.called.map(\.nameInFiles) + FunctionRegistry.callable.map(\.name)
      + DescribedWord.all.map(\.name)
    return all.filter { seen.insert($0).inserted }
  }

  func run() throws {
    if name == "preset", let second { return try describe(preset: second) }
    let catalogue = Catalogue.installed(plugins.pluginDir)
    if let second { return try describe(second, of: name, catalogue) }
    let entries = catalogue.components.filter { $0.name == name }
    if format == .markdown, !entries.isEmpty {
      return Console.print(entries.map { ComponentPage($0).text }.joined(separator: "\n"), terminator: "")
    }
    let function = FunctionRegistry.described(name)
    let words = DescribedWord.named(name)
    let called = catalogue.called.filter { $0.nameInFiles == name }
    if entries.isEmpty, function == nil, words.isEmpty, called.isEmpty {
      let known = Self.known(catalogue)
      // A plugin or a foreign name is a better hint than a similar spelling.
      let help =
        KnownPlugin.help(for: name, besides: known)
        ?? Suggestion.otherName(name).map { "\($0.help); see 'rxd describe \($0.name)'" } ?? Suggestion.nothing(
          for: name)
        ?? Suggestion.correction(for: name, among: known)?.help ?? "'rxd list' lists them"
      Console.printError("there is nothing called \(Printable.quote(name)). \(help)")
      throw ExitStatus.usage
    }
    if format == .markdown {
      Console.printError("\(Printable.quote(name)) is not a component: --format markdown is for components")
      throw ExitStatus.usage
    }
    var pages = entries.map(Self.page) + words.map(Self.page) + called.map(Self.page)
    if let function { pages.append(Self.page(function)) }
    Console.print(pages.joined(separator: "\n"), terminator: "")
  }

  /// Describes the component of one kind, if components of several kinds share the name.
  private func describe(_ name: String, of word: String, _ catalogue: Catalogue) throws {
    let kinds = ComponentKind.allCases.filter { !$0.isCalled }
    guard let kind = kinds.first(where: { $0.rawValue == word }) else {
      Console.printError(
        "before a name, 'rxd describe' takes 'preset' or a kind (\(kinds.map(\.rawValue).joined(separator: ", "))), not "
          + Printable.quote(word))
      throw ExitStatus.usage
    }
    guard let entry = catalogue.component(kind, name) else {
      let help =
        KnownPlugin.help(for: name, word, besides: catalogue.names(kind))
        ?? Suggestion.correction(for: name, among: catalogue.names(kind))?.help ?? "'rxd list' lists them"
      Console.printError("there is no \(word) called \(Printable.quote(name)). \(help)")
      throw ExitStatus.usage
    }
    Console.print(format == .markdown ? ComponentPage(entry).text : Self.page(entry), terminator: "")
  }

  /// Prints the text of a preset, which can be copied to a file and changed.
  private func describe(preset: String) throws {
    guard let found = Preset.named(preset) else {
      Console.printError("there is no preset called \(Printable.quote(preset)). 'rxd list --presets' lists them")
      throw ExitStatus.usage
    }
    Console.print("# \(found.summary)\n\(found.text)")
  }

  private static func page(_ entry: CatalogueEntry) -> String {
    var page = "\(entry.name) (\(entry.kind.rawValue))\n\n"
    page += Layout.wrap(entry.summary, indent: 2)
    if !entry.details.isEmpty {
      for paragraph in entry.details.split(separator: "\n\n", omittingEmptySubsequences: true) {
        page += "\n" + Layout.wrap(String(paragraph), indent: 2)
      }
    }
    if !entry.parameters.isEmpty {
      page += "\nParameters:\n" + Layout.table(rows(entry.parameters))
      if let primary = entry.parameters.first(where: \.isPrimary) {
        page +=
          "\n"
          + Layout.wrap(
            "Short form: '\(entry.name): ...' gives '\(primary.name)'.", indent: 2)
      }
    }
    if !entry.examples.isEmpty {
      page += "\nExamples:\n"
      for example in entry.examples {
        page += Layout.wrap("# " + example.title, indent: 2)
        for line in SpecText.text(example) { page += "  \(line)\n" }
      }
    }
    let edges = entry.edges.rows
    if !edges.isEmpty { page += "\nAt the edges:\n" + Layout.table(edges.map { [$0.title, $0.text] }) }
    page += "\nKeeps:\n" + Layout.wrap(SpecText.kept(entry), indent: 2)
    if let crash = entry.afterCrash { page += "\nAfter a crash:\n" + Layout.wrap(crash, indent: 2) }
    if !entry.useCases.isEmpty {
      page += "\nUse it to ...\n"
      for useCase in entry.useCases {
        page += Layout.wrap("- " + useCase.text + (useCase.yaml.isEmpty ? "" : ": \(useCase.yaml)"), indent: 2)
      }
    }
    if !entry.knownAs.isEmpty {
      page += "\nElsewhere:\n" + Layout.wrap(entry.knownAs.joined(separator: "; "), indent: 2)
    }
    if !entry.seeAlso.isEmpty {
      page += "\nSee also:\n" + Layout.wrap(entry.seeAlso.joined(separator: ", "), indent: 2)
    }
    return page
  }

  private static func page(_ word: DescribedWord) -> String {
    var page = "\(word.name) (\(word.kind))\n\n" + Layout.wrap(word.summary, indent: 2)
    if !word.details.isEmpty { page += "\n" + Layout.wrap(word.details, indent: 2) }
    if !word.parameters.isEmpty { page += "\nParameters:\n" + Layout.table(rows(word.parameters)) }
    if !word.example.isEmpty {
      page += "\nExample:\n"
      for line in word.example.split(separator: "\n") { page += "  \(line)\n" }
    }
    if !word.seeAlso.isEmpty { page += "\nSee also:\n" + Layout.wrap(word.seeAlso.joined(separator: ", "), indent: 2) }
    return page
  }

  /// A function or a format of a plugin.
  private static func page(_ called: PluginFunction) -> String {
    if let callable = called.callable { return page(FunctionSpec(callable)) }
    let spec = called.offered
    var page = "\(spec.name) (\(spec.kind.rawValue))\n\n" + Layout.wrap(spec.summary, indent: 2)
    page += "\n" + Layout.wrap("A format of the plugin \(spec.plugin).", indent: 2)
    for paragraph in spec.details.split(separator: "\n\n", omittingEmptySubsequences: true) {
      page += "\n" + Layout.wrap(String(paragraph), indent: 2)
    }
    if !spec.parameters.isEmpty { page += "\nParameters:\n" + Layout.table(rows(called.parameters)) }
    if !spec.examples.isEmpty { page += "\nExamples:\n" }
    for example in spec.examples {
      page += Layout.wrap("# " + example.title, indent: 2)
      page += "  \(spec.kind == .decoder ? "decode" : "encode"): \(example.yaml)\n"
    }
    return page
  }

  static func page(_ function: FunctionSpec) -> String {
    var page = "\(function.name) (\(function.isMacro ? "macro" : "function"))\n\n"
    page += Layout.wrap(function.summary, indent: 2) + "\n"
    for signature in function.signatures { page += "  \(signature)\n" }
    for paragraph in function.details.split(separator: "\n\n", omittingEmptySubsequences: true) {
      page += "\n" + Layout.wrap(String(paragraph), indent: 2)
    }
    if !function.examples.isEmpty { page += "\nExamples:\n" }
    for example in function.examples { page += "  \(example.call)  ->  \(example.result)\n" }
    return page
  }

  /// Name, type, default and help; the fields of records follow, indented.
  static func rows(_ parameters: [ParameterInfo], depth: Int = 0) -> [[String]] {
    parameters.flatMap { info -> [[String]] in
      let fallback = info.isRequired ? "required" : info.defaultText.map { "default \($0)" } ?? ""
      var help = info.help
      for sentence in [SpecText.range(info), SpecText.condition(info)] { if let sentence { help += " \(sentence)" } }
      if SpecText.typeName(info.shape).contains("choice") {
        help += " One of: \(SpecText.choices(info.shape).map(\.name).joined(separator: ", "))."
      }
      let margin = String(repeating: "  ", count: depth)
      var rows = [[margin + info.name, SpecText.typeName(info.shape), fallback, help]]
      if depth < 3 {
        for fields in SpecText.records(info.shape) { rows += Self.rows(fields, depth: depth + 1) }
      }
      return rows
    }
  }

}
