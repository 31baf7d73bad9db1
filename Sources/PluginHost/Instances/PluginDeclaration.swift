import Glibc
import PipelineCore

/// A plugin that a pipeline file names.
struct PluginDeclaration {
  /// Nil: the plugin of this name in a plugin directory.
  var file: PluginFile?
  var name: String
  /// The versions that the file accepts, and where it says so.
  var version: (range: VersionRange, location: SourceLocation)?
  var location: SourceLocation

  private static let keys = ["path", "run", "version", "uses", "env", "timeout", "memory", "cpu", "files", "processes"]

  /// Reads one entry of `plugins:`; nil after an error, which is reported.
  ///
  /// - Parameter directory: Of the pipeline file; ends with `/`, or is empty.
  static func read(
    _ entry: NamedNode<YAMLNode>, in directory: String, into diagnostics: inout Diagnostics
  ) -> PluginDeclaration? {
    let node = entry.node
    var context = DecodingContext(at: node.location)
    context.component = entry.name.value
    defer { diagnostics.report(contentsOf: context.diagnostics.all) }
    if node.scalar != nil {
      context.parameter = "path"
      guard let path = String.decode(node, &context) else { return nil }
      return PluginDeclaration(
        file: PluginFile(path: resolve(path, directory), directory: directory), name: entry.name.value,
        location: node.location)
    }
    guard let entries = node.entries else {
      diagnostics.report(
        Diagnostic(
          .wrongType,
          "the plugin '\(Printable.cut(entry.name.value))' must be a path or a mapping, not \(node.kindName)",
          at: node.location,
          help: "Write a path, { run: [PROGRAM, ARGUMENT, ...] }, or { version: RANGE } for an installed plugin"))
      return nil
    }
    var settings = ProcessSettings()
    var path: String?
    var run: [String] = []
    var uses: [String] = []
    var version: (range: VersionRange, location: SourceLocation)?
    let name = entry.name.value
    for entry in entries {
      context.parameter = entry.name
      let value = entry.value
      switch entry.name {
      case "path": path = String.decode(value, &context)
      case "run": run = [String].decode(value, &context) ?? []
      case "version":
        guard let text = String.decode(value, &context) else { break }
        if let range = VersionRange(text) {
          version = (range, value.location)
        } else {
          context.badValue(
            value, "'\(Printable.cut(text))' is not a range of versions",
            help: "Write one such as '>=1.2' or '>=1.2 <2'")
        }
      case "uses": uses = ([String].decode(value, &context) ?? []).map { resolve($0, directory) }
      case "env":
        for one in Table<String>.decode(value, &context)?.entries ?? [] { settings.environment[one.name] = one.value }
      case "timeout": if let span = TimeSpan.decode(value, &context) { settings.timeout = span }
      case "memory": if let size = ByteSize.decode(value, &context) { settings.memory = size.bytes }
      case "cpu":
        if let span = TimeSpan.decode(value, &context) { settings.cpu = max(1, Int(span.nanoseconds / 1_000_000_000)) }
      case "files": if let count = limit(value, &context) { settings.files = count }
      case "processes": if let count = limit(value, &context) { settings.processes = count }
      default: context.unknownParameter(entry, "a plugin", among: keys)
      }
    }
    guard !context.diagnostics.hasErrors else { return nil }
    switch (path, run.isEmpty) {
    case (let path?, true):
      var file = PluginFile(path: resolve(path, directory), directory: directory)
      file.settings = settings
      file.uses = uses
      return PluginDeclaration(file: file, name: name, version: version, location: node.location)
    case (nil, true) where version != nil:
      guard entries.count == 1 else {
        diagnostics.report(
          Diagnostic(
            .conflictingParameters, "the plugin '\(Printable.cut(name))' has neither 'path' nor 'run'",
            at: node.location,
            help: "An installed plugin has 'version' alone; to set more, name its file with 'path'"))
        return nil
      }
      return PluginDeclaration(file: nil, name: name, version: version, location: node.location)
    case (nil, false):
      guard let program = find(run[0], directory) else {
        diagnostics.report(
          Diagnostic(
            .pluginFailed, "the program '\(Printable.cut(run[0]))' is not found",
            at: node["run"]?.location ?? node.location,
            help: run[0].contains("/")
              ? "A relative path is resolved against the directory of the pipeline file"
              : "The directories of PATH are searched"))
        return nil
      }
      var file = PluginFile(
        path: program,
        form: .program(arguments: Array(run.dropFirst()), isInterpreter: !run[0].utf8.contains(UInt8(ascii: "/"))),
        directory: directory, settings: settings)
      file.uses = uses
      return PluginDeclaration(file: file, name: name, version: version, location: node.location)
    default:
      diagnostics.report(
        Diagnostic(
          .conflictingParameters, "a plugin has either 'path' or 'run'", at: node.location,
          help:
            "'path' is a shared library or an executable; 'run' is a program with arguments; 'version' alone stands for an installed plugin"
        ))
      return nil
    }
  }

  /// A number that setrlimit accepts.
  private static func limit(_ node: YAMLNode, _ context: inout DecodingContext) -> Int? {
    guard let count = Int.decode(node, &context) else { return nil }
    guard (0...Int(Int32.max)).contains(count) else {
      context.badValue(node, "'\(context.parameter)' must be from 0 to \(Int32.max)")
      return nil
    }
    return count
  }

  private static func resolve(_ path: String, _ directory: String) -> String {
    path.hasPrefix("/") ? path : directory + path
  }

  /// The path of a program, searched in PATH as a shell does.
  private static func find(_ name: String, _ directory: String) -> String? {
    if name.utf8.contains(UInt8(ascii: "/")) {
      let path = resolve(name, directory)
      return access(path, F_OK) == 0 ? path : nil
    }
    let directories = getenv("PATH").map { String(cString: $0) } ?? "/usr/local/bin:/usr/bin:/bin"
    return directories.split(separator: ":").lazy.map { "\($0)/\(name)" }.first { access($0, X_OK) == 0 }
  }
}
