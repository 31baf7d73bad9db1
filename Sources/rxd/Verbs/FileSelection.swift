import Glibc
import PipelineCore

/// Finds the files of the command line: files, directories, `DIRECTORY/...` and patterns.
struct FileSelection {
  /// The limit of files in one process.
  static let limit = 1_000

  private(set) var paths: [String] = []
  /// Paths that do not exist or cannot be listed.
  private(set) var missing: [Diagnostic] = []
  /// The directories that were searched: new files there may belong to the selection.
  private(set) var directories: Set<String> = []

  /// Adds the files of `argument`. An existing path matches only itself, whatever its characters.
  mutating func add(_ argument: String) {
    if argument == "-" {
      append("-")
    } else if argument == "..." || argument.hasSuffix("/...") {
      let root = argument == "..." ? "." : String(argument.dropLast(4))
      addDirectory(root.isEmpty ? "/" : root, recursive: true)
    } else if let kind = Self.kind(argument) {
      if kind == .directory {
        addDirectory(argument, recursive: false)
      } else {
        append(argument)
      }
    } else if argument.utf8.contains(where: { [0x2A, 0x3F, 0x5B].contains($0) }) {
      addPattern(argument)
    } else if argument == CommandLine.arguments.dropFirst().first, !Self.isPath(argument) {
      // The first argument was most likely meant as a verb.
      miss(
        "there is neither a verb nor a file \(Printable.quote(argument))",
        help: Self.meant(by: argument) ?? "'rxd help' lists the verbs")
    } else {
      miss("there is no file \(Printable.quote(argument))", help: Self.meant(by: argument))
    }
  }

  /// Whether the word has a dot or a slash, which no verb has.
  private static func isPath(_ word: String) -> Bool { word.utf8.contains { $0 == 0x2E || $0 == 0x2F } }

  private mutating func miss(_ message: String, help: String? = nil) {
    missing.append(Diagnostic(.unreadableFile, message, at: nil, help: help))
  }

  /// Advice on the verb or file that was probably meant by the name of a missing file.
  private static func meant(by name: String) -> String? {
    let verbs = Rxd.configuration.subcommands.filter { $0.configuration.shouldDisplay }.map { $0._commandName }
    if verbs.contains(name) { return "A verb comes before its options and files: 'rxd \(name) ...'" }
    let slash = name.utf8.lastIndex(of: UInt8(ascii: "/"))
    let parent = slash.map { String(name[...$0]) } ?? ""
    let last = slash.map { String(name[name.index(after: $0)...]) } ?? name
    let neighbours = (entries(of: parent.isEmpty ? "." : parent) ?? []).filter {
      $0.hasSuffix(".yaml") || $0.hasSuffix(".yml")
    }
    if let near = Suggestion.nearest(to: last, among: neighbours) {
      return "Did you mean \(Printable.quote(parent + near))?"
    }
    guard !isPath(name) else { return nil }
    return Suggestion.nearest(to: name, among: verbs).map { "Did you mean the verb '\($0)'?" }
  }

  /// The visible entries of a directory in byte order; nil: it cannot be read, and `errno` has the reason.
  private static func entries(of path: String) -> [String]? {
    guard let directory = opendir(path) else { return nil }
    defer { closedir(directory) }
    var names: [String] = []
    while let entry = readdir(directory) {
      let name = withUnsafePointer(to: &entry.pointee.d_name) {
        $0.withMemoryRebound(to: CChar.self, capacity: 256) { String(cString: $0) }
      }
      if !name.hasPrefix(".") { names.append(name) }
    }
    return names.sorted { $0.utf8.lexicographicallyPrecedes($1.utf8) }
  }

  /// Adds the pipeline files of a directory. `mayBeEmpty`: a directory without any is no error.
  mutating func addDirectory(_ path: String, recursive: Bool, mayBeEmpty: Bool = false) {
    let before = paths.count
    directories.insert(path)
    guard let names = Self.entries(of: path) else {
      miss("the directory \(Printable.quote(path)) cannot be read: \(String(cString: strerror(errno)))")
      return
    }
    for name in names {
      let full = path == "." ? name : path.hasSuffix("/") ? path + name : "\(path)/\(name)"
      if Self.isPipelineFile(name) {
        if Self.kind(full) == .file { append(full) }
      } else if recursive, Self.isOwnDirectory(full) {
        addDirectory(full, recursive: true, mayBeEmpty: true)
      }
    }
    if paths.count == before, !mayBeEmpty {
      miss("there are no pipeline files (*.yaml, *.yml) in \(Printable.quote(path))")
    }
  }

  private mutating func addPattern(_ pattern: String) {
    // Each prefix of the pattern that ends at a slash matches directories.
    var end = pattern.utf8.lastIndex(of: UInt8(ascii: "/"))
    if end == nil { directories.insert(".") }
    while let slash = end {
      let part = String(pattern[..<slash])
      directories.formUnion(part.isEmpty ? ["/"] : Self.matches(part).filter { Self.kind($0) == .directory })
      end = pattern.utf8[..<slash].lastIndex(of: UInt8(ascii: "/"))
    }
    let found = Self.matches(pattern)
    if found.isEmpty { return miss("no file matches \(Printable.quote(pattern))") }
    for path in found where Self.kind(path) == .file { append(path) }
  }

  private static func matches(_ pattern: String) -> [String] {
    var found = glob_t()
    defer { globfree(&found) }
    guard glob(pattern, 0, nil, &found) == 0 else { return [] }
    return (0..<Int(found.gl_pathc)).compactMap { found.gl_pathv[$0].map { String(cString: $0) } }
  }

  private mutating func append(_ path: String) {
    if !paths.contains(path) { paths.append(path) }
  }

  /// Whether a file of a directory is a pipeline: test files next to a pipeline are not.
  private static func isPipelineFile(_ name: String) -> Bool {
    (name.hasSuffix(".yaml") || name.hasSuffix(".yml")) && !name.hasSuffix("_test.yaml")
      && !name.hasSuffix("_test.yml")
  }

  private enum Kind { case file, directory }

  private static func kind(_ path: String) -> Kind? {
    var status = stat()
    guard stat(path, &status) == 0 else { return nil }
    return status.st_mode & S_IFMT == S_IFDIR ? .directory : .file
  }

  /// Whether the entry is a directory and not a symbolic link, so that walking a tree ends.
  private static func isOwnDirectory(_ path: String) -> Bool {
    var status = stat()
    return lstat(path, &status) == 0 && status.st_mode & S_IFMT == S_IFDIR
  }
}
