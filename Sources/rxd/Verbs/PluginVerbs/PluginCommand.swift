import ArgumentParser
import Glibc
import PipelineCore
import PipelineRuntime
import PluginHost

/// `rxd plugin`: the commands for plugins.
struct PluginVerb: ParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "plugin", abstract: "Lists, finds, installs, checks, tests, packs and creates plugins.",
    discussion: """
      A plugin is a shared library or a program that adds sources, operators, sinks, functions and formats. Pipeline files name it under \
      'plugins:', or it is in the plugin directory. Its spec is kept by the digest of its file, so that 'rxd check' \
      starts nothing.
      """,
    subcommands: [
      PluginList.self, PluginSearch.self, PluginInfo.self, PluginInstall.self, PluginRemove.self, PluginRollback.self,
      PluginCheck.self, PluginTest.self, PluginHostVerb.self, PluginPack.self, PluginNew.self,
    ])
}

/// A plugin on the command line.
struct PluginArgument: ParsableArguments {
  @Argument(
    help: ArgumentHelp(
      "A shared library, a program with its arguments behind '--', or a pipeline file that names plugins.",
      valueName: "file"),
    completion: .file())
  var file: String

  @Argument(help: ArgumentHelp("Arguments of the program.", valueName: "argument"))
  var arguments: [String] = []

  /// The plugin that the argument names. Relative paths start at the working directory.
  func plugin() throws -> PluginFile {
    var path = file
    if !path.contains("/"), access(path, F_OK) != 0 {
      let directories = (getenv("PATH").map { String(cString: $0) } ?? "").split(separator: ":")
      path = directories.map { "\($0)/\(file)" }.first { access($0, X_OK) == 0 } ?? path
    }
    guard access(path, F_OK) == 0 else {
      Console.printError("'\(path)' does not exist")
      throw ExitStatus.noInput
    }
    path = PluginDirectories.absolute(path)
    if path.hasSuffix(".so") { return PluginFile(path: path, directory: "") }
    return PluginFile(
      path: path, form: .program(arguments: arguments, isInterpreter: !file.contains("/")), directory: "")
  }
}

/// `rxd plugin list`
struct PluginList: ParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "list", abstract: "Lists the plugins of the plugin directory.",
    discussion: "Starts nothing. The exit status is 1 if one of them cannot be used.")

  @OptionGroup var options: PluginOptions
  @Option(help: ArgumentHelp("The format: text or json.", valueName: "form"))
  var format = List.Format.text

  func run() throws {
    let directories = PluginDirectories.directories(options.pluginDir)
    let plugins = LocalPlugins(asks: false, directories: directories)
    let found = plugins.loadInstalled()
    if format == .json {
      Console.print(
        JSONText.array(
          found.map { file, result in
            switch result {
            case .success(let plugin): plugin.report
            case .failure(let fault): .object([("path", .string(file.path)), ("problem", .string(fault.message))])
            }
          }
        ).text)
    } else if found.isEmpty {
      Console.note(
        directories.isEmpty
          ? "There is no plugin directory: name one with --plugin-dir."
          : "There is no plugin in \(directories.joined(separator: ", ")).")
    } else {
      for (file, result) in found {
        switch result {
        case .success(let plugin):
          let names = plugin.spec.components.map { "\($0.kind.rawValue) \($0.name)" }.joined(separator: ", ")
          Console.print("\(plugin.spec.name) \(plugin.spec.version)  \(names)  (\(file.path))")
        case .failure(let fault):
          Console.print("\(file.label)  cannot be used: \(fault.message)")
          if let help = fault.help { Console.print("  \(help)") }
        }
      }
    }
    for (_, result) in found { if case .failure = result { throw ExitStatus.failure } }
  }
}

/// `rxd plugin search WORD`
struct PluginSearch: ParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "search",
    abstract: "Finds components of the plugins in the source tree of rxd, and of the packages in an index.",
    discussion: "All words must occur in what is known of a component. The exit status is 1 if there is none.")

  @Argument(
    help: ArgumentHelp("What to find: a name, another program's name, a word of the summary.", valueName: "word"))
  var words: [String] = []
  @Option(
    help: ArgumentHelp("The index: a file or a URL. (RXD_PLUGIN_INDEX)", valueName: "index"), completion: .file())
  var index: String?
  @Option(help: ArgumentHelp("The format: text or json.", valueName: "form"))
  var format = List.Format.text

  /// A component that has all words.
  private struct Found {
    var plugin: String
    var summary: String
    /// How the plugin is installed, a sentence part.
    var installation: String
    var kind: String
    var name: String
    var about: String
    /// What only the one or the other kind of plugin has.
    var place: (String, JSONText)
  }

  func run() throws {
    var found = KnownPlugin.search(words).map { plugin, component in
      Found(
        plugin: plugin.name, summary: plugin.summary, installation: plugin.installation, kind: component.kind,
        name: component.name, about: component.summary, place: ("folder", .string("Plugins/\(plugin.folder)")))
    }
    if index != nil || ProcessEnvironment["RXD_PLUGIN_INDEX"] != nil {
      let (place, list) = try Packages.reporting { () throws(PackageFault) in try Packages.index(index) }
      found += list.search(words).map { entry, component in
        let manifest = entry.manifest
        return Found(
          plugin: manifest.name, summary: "\(manifest.summary) (\(manifest.version))",
          installation: "'rxd plugin install \(manifest.name)' installs it", kind: component.kind, name: component.name,
          about: component.summary, place: ("package", .string(Packages.beside(place, entry.file))))
      }
    }
    if format == .json {
      Console.print(
        JSONText.array(
          found.map {
            .object([
              ("plugin", .string($0.plugin)), ("kind", .string($0.kind)), ("name", .string($0.name)),
              ("summary", .string($0.about)), $0.place,
            ])
          }
        ).text)
    } else if found.isEmpty {
      Console.note(
        "No plugin that comes with rxd\(index == nil ? "" : ", or is in the index,") has \(Printable.quote(words.joined(separator: " ")))."
      )
    } else {
      let width = found.map { $0.kind.utf8.count + $0.name.utf8.count + 1 }.max() ?? 0
      for (at, one) in found.enumerated() {
        if at == 0 || found[at - 1].plugin != one.plugin || found[at - 1].installation != one.installation {
          if at > 0 { Console.print("") }
          Console.print("\(one.plugin): \(one.summary)")
          Console.print("  \(one.installation)")
        }
        let name = "\(one.kind) \(one.name)"
        Console.print("  \(name)\(String(repeating: " ", count: width - name.utf8.count))  \(one.about)")
      }
    }
    if found.isEmpty { throw ExitStatus.failure }
  }
}

/// `rxd plugin info FILE`
struct PluginInfo: ParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "info", abstract: "Describes the components of a plugin.",
    discussion: "Starts the plugin if its spec is not known yet. 'rxd describe NAME' describes its components in full.")

  @OptionGroup var argument: PluginArgument
  @Option(help: ArgumentHelp("The format: text or json.", valueName: "form"))
  var format = List.Format.text

  func run() throws {
    let plugin = try LoadedPlugin.asked(argument.plugin())
    if format == .json { return Console.print(plugin.report.text) }
    let spec = plugin.spec
    Console.print("\(spec.name) \(spec.version): \(spec.summary)")
    Console.print("file    \(plugin.file.ownFile)")
    Console.print("digest  \(plugin.digest)")
    let offers = plugin.offers(at: nil)
    for offered in offers.components {
      let entry = offered.entry
      Console.print("\n\(entry.kind.rawValue) \(entry.name): \(entry.summary)")
      for parameter in entry.parameters {
        let fallback = parameter.isRequired ? "required" : parameter.defaultText.map { "default \($0)" } ?? "optional"
        Console.print("  \(parameter.name)  \(parameter.shape.description), \(fallback). \(parameter.help)")
      }
    }
    for function in offers.called {
      let spec = function.offered
      Console.print("\n\(spec.kind.rawValue) \(spec.name): \(spec.summary)")
      for signature in function.callable.map(FunctionSpec.init)?.signatures ?? [] { Console.print("  \(signature)") }
      for parameter in function.parameters where spec.kind != .function {
        let fallback = parameter.isRequired ? "required" : parameter.defaultText.map { "default \($0)" } ?? "optional"
        Console.print("  \(parameter.name)  \(parameter.shape.description), \(fallback). \(parameter.help)")
      }
    }
  }
}

/// `rxd plugin check FILE`
struct PluginCheck: ParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "check", abstract: "Starts a plugin, checks its spec, and keeps it for 'rxd check'.",
    discussion: """
      Checks who may write the file, the spec, the functions of a shared library, and each example of the spec as a \
      pipeline file. The exit status is 1 if something is wrong.
      """)

  @OptionGroup var argument: PluginArgument
  @Flag(help: "Write the spec next to the plugin, FILE.spec, for packages.")
  var write = false

  func run() throws {
    guard ![".yaml", ".yml"].contains(where: argument.file.hasSuffix) else { return try checkAll() }
    try check(argument.plugin())
  }

  /// Checks the plugins that a pipeline file names.
  private func checkAll() throws {
    let loaded = PipelineLoader().load(argument.file)
    var diagnostics = Diagnostics()
    let files = loaded.file.map { LocalPlugins(asks: true, directories: []).named(by: $0, into: &diagnostics) } ?? []
    guard loaded.file != nil, !diagnostics.hasErrors else {
      Console.note(
        DiagnosticRenderer(toolVersion: Version.number).text(loaded.file == nil ? loaded.diagnostics : diagnostics.all))
      throw loaded.isUnreadable ? ExitStatus.noInput : ExitStatus.configuration
    }
    if files.isEmpty { Console.print("\(argument.file) names no plugin") }
    for file in files { try check(file) }
  }

  private func check(_ file: PluginFile) throws {
    let plugin = try LoadedPlugin.asked(file, anew: true)
    var problems = plugin.problems()
    for component in plugin.spec.components {
      if Catalogue.builtIn.component(component.kind, component.name) != nil || component.isBuiltInFormat {
        problems.append("the \(component.kind.rawValue) '\(component.name)' is built in: it needs another name")
      }
    }
    if problems.isEmpty { problems = plugin.exampleProblems(.builtIn) }
    guard problems.isEmpty else {
      for problem in problems { Console.printError("\(plugin.file.label): \(problem)") }
      throw ExitStatus.failure
    }
    if write { try plugin.writeSpec() }
    let count = plugin.spec.components.count
    Console.print(
      "\(plugin.file.label): \(plugin.spec.name) \(plugin.spec.version) is fine, with \(Printable.count(count, "component"))"
        + (write ? "; its spec is in \(plugin.file.label).spec" : ""))
  }
}

extension LoadedPlugin {
  /// Loads or starts a plugin that is named on the command line; reports why it cannot be used.
  static func asked(_ file: PluginFile, anew: Bool = false) throws -> LoadedPlugin {
    let plugins = LocalPlugins(asks: true, directories: []) { level, message in
      Console.printError("\(file.label): \(message)")
    }
    let result: Result<LoadedPlugin, LocalPlugins.Fault>
    if anew, file.refusal() == nil, let digest = file.digest() {
      result = plugins.ask(file, digest)
    } else {
      result = plugins.load(file)
    }
    switch result {
    case .success(let plugin): return plugin
    case .failure(let fault):
      Console.printError("\(file.label): \(fault.message)" + (fault.help.map { "\n  \($0)" } ?? ""))
      if !fault.diagnostics.isEmpty {
        Console.note(DiagnosticRenderer(toolVersion: Version.number).text(fault.diagnostics))
      }
      throw ExitStatus.failure
    }
  }

  /// The plugin as JSON, for programs.
  var report: JSONText {
    .object([
      ("plugin", .string(spec.name)), ("version", .string(spec.version)), ("summary", .string(spec.summary)),
      ("path", .string(file.path)), ("digest", .string(digest)),
      (
        "components",
        .array(
          spec.components.map {
            .object([
              ("kind", .string($0.kind.rawValue)), ("name", .string($0.name)), ("summary", .string($0.summary)),
            ])
          })
      ),
    ])
  }
}
