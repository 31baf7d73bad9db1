import Glibc
import PipelineCore

/// Finds the files that the command line means: files, directories, `DIRECTORY/...` and patterns.
struct FileSelection {
  /// How many files one process takes.
  static let limit = 1_000

  private(set) var paths: [String] = []
  /// What does not exist or cannot be listed, a sentence each.
  private(set) var missing: [String] = []

  /// Adds what `argument` stands for. A path that exists is itself, whatever characters it has.
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
    } else {
      missing.append("there is no file \(Printable.quote(argument))")
    }
  }

  /// Adds the pipeline files of a directory, which need not hold any.
  mutating func addDirectory(_ path: String, recursive: Bool, mayBeEmpty: Bool = false) {
    let before = paths.count
    var names: [String] = []
    guard let directory = opendir(path) else {
      missing.append(
        "the directory \(Printable.quote(path)) cannot be read: \(String(cString: strerror(errno)))")
      return
    }
    while let entry = readdir(directory) {
      let name = withUnsafePointer(to: &entry.pointee.d_name) {
        $0.withMemoryRebound(to: CChar.self, capacity: 256) { String(cString: $0) }
      }
      if !name.hasPrefix(".") { names.append(name) }
    }
    closedir(directory)
    names.sort { $0.utf8.lexicographicallyPrecedes($1.utf8) }
    for name in names {
      let full = path == "." ? name : path.hasSuffix("/") ? path + name : "\(path)/\(name)"
      if Self.isPipelineFile(name) {
        if Self.kind(full) == .file { append(full) }
      } else if recursive, Self.isOwnDirectory(full) {
        addDirectory(full, recursive: true, mayBeEmpty: true)
      }
    }
    if paths.count == before, !mayBeEmpty {
      missing.append("there are no pipeline files (*.yaml, *.yml) in \(Printable.quote(path))")
    }
  }

  private mutating func addPattern(_ pattern: String) {
    var found = glob_t()
    defer { globfree(&found) }
    guard glob(pattern, 0, nil, &found) == 0 else {
      missing.append("no file matches \(Printable.quote(pattern))")
      return
    }
    for index in 0..<Int(found.gl_pathc) {
      guard let path = found.gl_pathv[index] else { continue }
      let text = String(cString: path)
      if Self.kind(text) == .file { append(text) }
    }
  }

  private mutating func append(_ path: String) {
    if !paths.contains(path) { paths.append(path) }
  }

  /// Tests that stand beside a pipeline are no pipelines.
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

  /// A directory that is no symbolic link, so that walking a tree ends.
  private static func isOwnDirectory(_ path: String) -> Bool {
    var status = stat()
    return lstat(path, &status) == 0 && status.st_mode & S_IFMT == S_IFDIR
  }
}
