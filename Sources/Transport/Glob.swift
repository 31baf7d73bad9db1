import Glibc

/// Path patterns with `*`, `?` and `[...]`, as in a shell: none of them matches a `/`, and a leading dot must be
/// written out.
package enum Glob {
  package static func isPattern(_ path: String) -> Bool {
    path.utf8.contains { $0 == UInt8(ascii: "*") || $0 == UInt8(ascii: "?") || $0 == UInt8(ascii: "[") }
  }

  /// The result of an expansion.
  package struct Found {
    /// The existing paths that match, in the order of their bytes.
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
    var places: [(path: String, isFound: Bool)] = [(pattern.utf8.first == UInt8(ascii: "/") ? "/" : "", false)]
    let parts = pattern.split(separator: "/", omittingEmptySubsequences: true).map(String.init)
    for (index, part) in parts.enumerated() {
      let isLast = index == parts.count - 1
      var next: [(path: String, isFound: Bool)] = []
      for place in places {
        if part.utf8.contains(where: { [0x2A, 0x3F, 0x5B, 0x5C].contains($0) }) {
          do throws(PosixError) {
            let slash = place.path.utf8.count > 1 ? 1 : 0
            let directory = place.path.isEmpty ? "." : String(place.path.dropLast(slash))
            for name in try list(directory) where name != "." && name != ".." {
              if fnmatch(part, name, FNM_PERIOD) == 0 { next.append((place.path + name, true)) }
            }
          } catch {
            // A match may be no directory, or gone again.
            if !(place.isFound && [ENOENT, ENOTDIR].contains(error.code)) { found.failures.append(error) }
          }
        } else if !isLast || !place.isFound {
          next.append((place.path + part, place.isFound))
        } else {
          switch FileDescriptor.Status.read(place.path + part, followsLinks: false) {
          case .success: next.append((place.path + part, true))
          case .failure(let error):
            if ![ENOENT, ENOTDIR].contains(error.code) { found.failures.append(error) }
          }
        }
      }
      places = isLast ? next : next.map { ($0.path + "/", $0.isFound) }
    }
    found.paths = places.map(\.path).filter {
      !directoriesOnly || FileDescriptor.Status(path: $0)?.kind == .directory
    }
    found.paths.sort { $0.utf8.lexicographicallyPrecedes($1.utf8) }
    return found
  }

  package static func matches(_ pattern: String, _ path: String) -> Bool {
    fnmatch(pattern, path, FNM_PATHNAME | FNM_PERIOD) == 0
  }

  /// The directories, as patterns, in which a new entry can change the matches: from the last one without a wildcard to
  /// the parent of the files.
  static func directories(_ pattern: String) -> [String] {
    var result: [String] = []
    var rest = pattern
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
