import ArgumentParser
import PipelineCore
import PipelineRuntime
import Transport

/// `rxd fmt`: pipeline files in one layout.
struct Format: ParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "fmt",
    abstract: "Formats pipeline files.",
    discussion: """
      Writes the formatted files to standard output; with --write into the files, and with --check it only names those that are not formatted. \
      Two spaces a level, double quotes, flow style where it fits a line of 120, and the top level in this order: name, description, \
      settings, plugins, sources, signals, commands, sinks, tests. With --upgrade, names that had others in earlier versions (RX226) \
      are written as this version calls them. Comments, anchors and aliases stay with their values, and the meaning never \
      changes: a file for which that is not certain is refused. The exit status is 1 if --check finds a file, 78 if one cannot be \
      formatted, 66 if one is missing.
      """)

  @Argument(
    help: ArgumentHelp(
      "Pipeline files, directories of them, DIRECTORY/... for whole trees, patterns, or - for standard input.",
      valueName: "file"),
    completion: .file(extensions: ["yaml", "yml"]))
  var files: [String]

  @Flag(help: "Name the files that are not formatted, and write nothing.")
  var check = false

  @Flag(name: .shortAndLong, help: "Write the files, and name those that have changed.")
  var write = false

  @Flag(
    help: "Also replace former names of keys and values, which 'rxd check' warns about (RX226), by the present ones.")
  var upgrade = false

  @OptionGroup var color: ColorOptions

  func validate() throws {
    if check, write { throw ValidationError("'--check' writes nothing: leave out one of '--check' and '--write'.") }
    if write, files.contains(where: { $0 == "-" || $0 == "/dev/stdin" }) {
      throw ValidationError("'--write' rewrites files, so it cannot be used with standard input.")
    }
  }

  func run() throws {
    var selection = FileSelection()
    for file in files { selection.add(file) }
    var diagnostics = selection.missing
    var isMissing = !diagnostics.isEmpty
    var isRefused = false
    var changed = 0
    for path in selection.paths {
      var source: SourceText
      do throws(PosixError) { source = try PipelineLoader.read(path) } catch {
        diagnostics.append(Diagnostic(.unreadableFile, error.message, at: nil))
        isMissing = true
        continue
      }
      let former = source.bytes
      if upgrade { source = Self.upgraded(path, source) }
      var found = Diagnostics()
      guard let formatted = FormattedFile(source, into: &found) else {
        diagnostics += found.all.filter { $0.severity == .error }
        isRefused = true
        continue
      }
      let isChanged = formatted.bytes != former
      if isChanged { changed += 1 }
      if check || write {
        if write, isChanged { try FixedFile.replace(path, with: formatted.bytes) }
        if isChanged { Console.print(source.name) }
      } else {
        Console.write(formatted.bytes)
      }
    }
    if !diagnostics.isEmpty {
      var renderer = DiagnosticRenderer()
      renderer.colors = Console.colors(try color.mode(), on: 2)
      Console.note(String(renderer.text(diagnostics).dropLast()))
    }
    if isRefused { throw ExitStatus.configuration }
    if isMissing { throw ExitStatus.noInput }
    if check, changed > 0 { throw ExitStatus.failure }
  }

  /// The text with the names of this version; errors of other kinds are ignored.
  private static func upgraded(_ path: String, _ source: SourceText) -> SourceText {
    let loader = PipelineLoader(acceptsLibraries: true)
    var fixes = FixedFile(loader.compile(path, source), loader, only: [.formerName])
    fixes.make()
    return fixes.loaded.source ?? source
  }
}
