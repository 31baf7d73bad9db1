import Glibc
import PipelineCore

/// Path patterns with `*`, `?` and `[...]`, as in a shell: none of them matches a `/`, and a leading dot must be
/// written out. A part `**` stands for any number of directories, including none, but not for links to directories.
package enum Glob {
  package static func isPattern(_ path: String) -> Bool {
    path.utf8.contains { $0 == UInt8(ascii: "*") || $0 == UInt8(ascii: "?") || $0 == UInt8(ascii: "[") }
  }

  /// The directory that relative paths start from; nil if it cannot be determined.
  package static var currentDirectory: String? {
    guard let path = getcwd(nil, 0) else { return nil }
    defer { free(path) }
    return String(cString: path)
  }

  /// The result of an expansion.
  package struct Found {
    /// The existing paths that match, sorted by their bytes.
    package var paths: [String] = []
    /// Directories that could not be listed, so that paths may be missing.
    package var failures: [PosixError] = []
  }

  /// Lists a directory: the names of its entries, in any order.
  typealias Lister = @Sendable (String) throws(PosixError) -> [String]

  static let system: Lister = { path throws(PosixError) in try directoryEntries(path).map(\.name) }

  /// The existing paths that match; a path without wildcards matches itself, whether or not it exists. A directory in
  /// which a wildcard is matched must exist, unless a wildcard stands for it too.
  package static func expand(_ pattern: String, directoriesOnly: Bool = false) -> Found {
    expand(pattern, directoriesOnly: directoriesOnly, by: system)
  }

  static func expand(_ pattern: String, directoriesOnly: Bool = false, by list: Lister) -> Found {
    var found = Found()
    guard isPattern(pattern) else {
      if !directoriesOnly || FileDescriptor.Status(path: pattern)?.kind == .directory { found.paths = [pattern] }
      return found
    }
    // The prefixes of paths, each with its slash, and whether a wildcard has matched.
    var candidates: [(path: String, isFound: Bool)] = [(pattern.utf8.first == UInt8(ascii: "/") ? "/" : "", false)]
    let parts = PathPattern.parts(pattern, directoriesOnly: directoriesOnly)
    for (index, part) in parts.enumerated() {
      let isLast = index == parts.count - 1
      if part == "**" {
        candidates = below(candidates, by: list, &found.failures)
        if isLast {
          found.paths = candidates.map { $0.path.isEmpty ? "." : $0.path == "/" ? "/" : String($0.path.dropLast()) }
        }
        continue
      }
      var next: [(path: String, isFound: Bool)] = []
      for candidate in candidates {
        if part.utf8.contains(where: { [0x2A, 0x3F, 0x5B, 0x5C].contains($0) }) {
          do throws(PosixError) {
            let slash = candidate.path.utf8.count > 1 ? 1 : 0
            let directory = candidate.path.isEmpty ? "." : String(candidate.path.dropLast(slash))
            for name in try list(directory) where name != "." && name != ".." {
              if fnmatch(part, name, FNM_PERIOD) == 0 { next.append((candidate.path + name, true)) }
            }
          } catch {
            // A path that a wildcard matched may not be a directory, or may be gone again.
            if !(candidate.isFound && [ENOENT, ENOTDIR].contains(error.code)) { found.failures.append(error) }
          }
        } else if !isLast || !candidate.isFound {
          next.append((candidate.path + part, candidate.isFound))
        } else {
          switch FileDescriptor.Status.read(candidate.path + part, followsLinks: false) {
          case .success: next.append((candidate.path + part, true))
          case .failure(let error):
            if ![ENOENT, ENOTDIR].contains(error.code) { found.failures.append(error) }
          }
        }
      }
      candidates = isLast ? next : next.map { ($0.path + "/", $0.isFound) }
    }
    if parts.last != "**" { found.paths = candidates.map(\.path) }
    if directoriesOnly { found.paths.removeAll { FileDescriptor.Status(path: $0)?.kind != .directory } }
    found.paths.sort(by: ByteOrder.precedes)
    if PathPattern.hasLevels(pattern) {
      // Several `**` can find the same path more than once.
      var last: String?
      found.paths.removeAll { path in
        defer { last = path }
        return last.map { path.utf8.elementsEqual($0.utf8) } ?? false
      }
    }
    return found
  }

  /// The directories at these paths and all below them, except those with a leading dot.
  private static func below(
    _ candidates: [(path: String, isFound: Bool)], by list: Lister, _ failures: inout [PosixError]
  ) -> [(path: String, isFound: Bool)] {
    var all: [(path: String, isFound: Bool)] = []
    var waiting = Array(candidates.reversed())
    while let candidate = waiting.popLast() {
      let directory = candidate.path.isEmpty ? "." : candidate.path == "/" ? "/" : String(candidate.path.dropLast())
      do throws(PosixError) {
        let names = try list(directory)
        all.append(candidate)
        for name in names where name.utf8.first != UInt8(ascii: ".") {
          guard case .success(let status) = FileDescriptor.Status.read(candidate.path + name, followsLinks: false),
            status.kind == .directory
          else { continue }
          waiting.append((candidate.path + name + "/", true))
        }
      } catch {
        if !(candidate.isFound && [ENOENT, ENOTDIR].contains(error.code)) { failures.append(error) }
      }
    }
    return all
  }

  package static func matches(_ pattern: String, _ path: String) -> Bool { PathPattern.matches(pattern, path) }

  /// The directory before the first wildcard of a pattern; for a path without wildcards, its directory.
  static func constantDirectory(_ pattern: String) -> String { directories(pattern).last ?? "." }

  /// All directories, as patterns, on the way to the files.
  static func ancestors(_ pattern: String) -> [String] {
    var result: [String] = []
    var rest = splitPath(pattern).directory
    while rest != ".", rest != "/" {
      result.append(rest)
      rest = splitPath(rest).directory
    }
    return result
  }

  /// The directories, as patterns, in which a new entry can change the matches: from the last one without a wildcard to
  /// the parent of the files.
  static func directories(_ pattern: String) -> [String] {
    var result: [String] = []
    var rest = pattern == "**" || pattern.hasSuffix("/**") ? pattern + "/*" : pattern
    while true {
      rest = splitPath(rest).directory
      result.append(rest)
      if !isPattern(rest) { return result }
    }
  }

  static func join(_ directory: String, _ name: String) -> String {
    switch directory {
    case ".": name
    case "/": "/" + name
    default: directory + "/" + name
    }
  }
}
