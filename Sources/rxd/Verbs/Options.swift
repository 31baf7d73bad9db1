import ArgumentParser
import Glibc
import PipelineCore
import PipelineRuntime
import PluginHost
import Transport

extension ColorMode: ExpressibleByArgument {}

extension LogFormat: ExpressibleByArgument {}

extension Services.Level: ExpressibleByArgument {}

/// The value of an option: from the command line, else from the variable `RXD_...`, else nil.
func setting<Value: ExpressibleByArgument>(_ given: Value?, _ variable: String) throws -> Value? {
  if let given { return given }
  guard let text = ProcessEnvironment[variable], !text.isEmpty else { return nil }
  guard let value = Value(argument: text) else {
    let known = Value.allValueStrings
    throw ValidationError(
      "the variable \(variable) is '\(text)', which cannot be used"
        + (known.isEmpty ? "" : "; it can be: \(known.joined(separator: ", "))"))
  }
  return value
}

/// A number of bytes, `64MiB`.
struct ByteSize: ExpressibleByArgument {
  var bytes: Int

  init?(argument: String) {
    guard case .success(let bytes) = Units.size(LocatedText(argument)) else { return nil }
    self.bytes = bytes
  }
}

/// The value of a flag: from the command line, or `RXD_...` with true or false, 1 or 0.
func flag(_ given: Bool, _ variable: String) throws -> Bool {
  if given { return true }
  switch ProcessEnvironment[variable]?.lowercased() {
  case nil, "", "0", "false", "no": return false
  case "1", "true", "yes": return true
  case let other?:
    throw ValidationError("the variable \(variable) is '\(other)', but must be true or false")
  }
}

/// The files, and the sources of their `${...}` values.
struct InputOptions: ParsableArguments {
  @Argument(
    help: ArgumentHelp(
      "Pipeline files, directories of them, DIRECTORY/... for whole trees, or patterns.",
      valueName: "file"),
    completion: .file(extensions: ["yaml", "yml"]))
  var files: [String] = []

  @Option(
    name: [.short, .customLong("config")],
    help: ArgumentHelp("A pipeline file or pattern; may be repeated. (RXD_CONFIG)", valueName: "file"),
    completion: .file(extensions: ["yaml", "yml"]))
  var configs: [String] = []

  @Option(
    name: [.customShort("C"), .customLong("config-dir")],
    help: ArgumentHelp(
      "A directory of pipeline files; may be repeated. (RXD_CONFIG_DIR)", valueName: "dir"),
    completion: .directory)
  var directories: [String] = []

  @OptionGroup var environment: EnvironmentOptions

  var settings: InputSettings {
    InputSettings(
      files: files, configs: configs, directories: directories, environment: environment.settings)
  }

  func selection() throws -> FileSelection { try settings.selection() }
}

/// The files, from any command line.
struct InputSettings {
  var files: [String] = []
  var configs: [String] = []
  var directories: [String] = []
  var environment = EnvironmentSettings()

  /// The paths that are given literally, without patterns.
  var names: [String] {
    let given = files + configs
    let named =
      given.isEmpty && directories.isEmpty
      ? (ProcessEnvironment["RXD_CONFIG"] ?? "").split(separator: ",").map(String.init) : given
    return named.filter { name in
      name != "-" && name != "..." && !name.hasSuffix("/...")
        && !name.utf8.contains(where: { [0x2A, 0x3F, 0x5B].contains($0) })
    }
  }

  /// The selected files, or a usage error if there are none.
  func selection() throws -> FileSelection {
    var selection = FileSelection()
    for argument in files + configs { selection.add(argument) }
    for directory in directories { selection.addDirectory(directory, recursive: false) }
    if files.isEmpty, configs.isEmpty, directories.isEmpty {
      if let config = ProcessEnvironment["RXD_CONFIG"], !config.isEmpty {
        for part in config.split(separator: ",") { selection.add(String(part)) }
      }
      if let directory = ProcessEnvironment["RXD_CONFIG_DIR"], !directory.isEmpty {
        selection.addDirectory(directory, recursive: false)
      }
    }
    if selection.paths.isEmpty, selection.missing.isEmpty {
      throw ValidationError("Name a pipeline file, or a directory of them with --config-dir.")
    }
    if selection.paths.count > FileSelection.limit {
      throw ValidationError(
        "\(selection.paths.count) files are more than the \(FileSelection.limit) that one process accepts.")
    }
    return selection
  }
}

/// The directories of plugins.
struct PluginOptions: ParsableArguments {
  @Option(
    help: ArgumentHelp(
      "A directory of plugins, whose components all files may use; may be repeated. (RXD_PLUGIN_DIR)", valueName: "dir"),
    completion: .directory)
  var pluginDir: [String] = []
}

struct EnvironmentOptions: ParsableArguments {
  @Flag(
    help: "Read nothing from the environment: variables without a default count as given. (RXD_NO_ENVIRONMENT)")
  var noEnvironment = false

  @Option(
    name: .shortAndLong,
    help: ArgumentHelp(
      "A file of NAME=value lines; the process's own variables win. (RXD_ENV_FILE)", valueName: "file"),
    completion: .file())
  var envFile: [String] = []

  @Option(
    help: ArgumentHelp(
      "A directory whose files are the values of ${secret:NAME}. (RXD_SECRETS_DIR)", valueName: "dir"),
    completion: .directory)
  var secretsDir: [String] = []

  @Option(
    help: ArgumentHelp(
      """
      Take this value in place of the one in the file; may be repeated. PATH has keys, and indexes of lists from 0, between dots: \
      sources.typed.stdin.decode=lines, signals.query.chain.0.throttle=1s. VALUE is YAML.
      """, valueName: "path=value"))
  var set: [String] = []

  @OptionGroup var plugins: PluginOptions

  var settings: EnvironmentSettings {
    EnvironmentSettings(
      noEnvironment: noEnvironment, envFile: envFile, secretsDir: secretsDir, pluginDir: plugins.pluginDir, set: set)
  }

  /// - Parameter startsPlugins: Whether unknown plugins may be started to read their specs.
  func inputs(startsPlugins: Bool = false) throws -> PipelineLoader.Inputs {
    try settings.inputs(startsPlugins: startsPlugins)
  }
}

/// The sources of `${...}` values, from any command line.
struct EnvironmentSettings {
  var noEnvironment = false
  var envFile: [String] = []
  var secretsDir: [String] = []
  var pluginDir: [String] = []
  var set: [String] = []

  /// The files of variables.
  var files: [String] {
    (envFile.isEmpty ? ProcessEnvironment["RXD_ENV_FILE"].map { [$0] } ?? [] : envFile).filter { !$0.isEmpty }
  }

  /// Like ``read(startsPlugins:)``, but prints why a file of variables cannot be read.
  /// - Parameter startsPlugins: Whether unknown plugins may be started to read their specs.
  func inputs(startsPlugins: Bool = false) throws -> PipelineLoader.Inputs {
    do { return try read(startsPlugins: startsPlugins) } catch let error as PosixError {
      Console.printError(error.message)
      throw ExitStatus.noInput
    }
  }

  /// Throws a `PosixError` if a file of variables cannot be read.
  func read(startsPlugins: Bool) throws -> PipelineLoader.Inputs {
    var inputs = PipelineLoader.Inputs()
    inputs.plugins = LocalPlugins(asks: startsPlugins, directories: PluginDirectories.directories(pluginDir))
    inputs.settings = set
    inputs.readsEnvironment = try !flag(noEnvironment, "RXD_NO_ENVIRONMENT")
    // Variables of a later file take precedence.
    for file in files { inputs.variables.merge(try PipelineLoader.readVariables(file)) { $1 } }
    inputs.secretDirectories =
      secretsDir.isEmpty ? ProcessEnvironment["RXD_SECRETS_DIR"].map { [$0] } ?? [] : secretsDir
    return inputs
  }
}

struct ColorOptions: ParsableArguments {
  @Option(
    help: ArgumentHelp("Colours: auto, always or never. (RXD_COLOR, NO_COLOR)", valueName: "when"))
  var color: ColorMode?

  func mode() throws -> ColorMode { try colorMode(color) }
}

func colorMode(_ given: ColorMode?) throws -> ColorMode { try setting(given, "RXD_COLOR") ?? .auto }
