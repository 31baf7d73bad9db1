import Glibc

/// Patterns of paths with `*`, `?` and `[...]`, as in a shell: none of them matches a `/`, and a leading dot must be
/// written out. A part `**` matches any number of directories, also none.
package enum PathPattern {
  /// Whether a part of the pattern is `**`.
  package static func hasLevels(_ pattern: String) -> Bool {
    var stars = 0
    var others = 0
    for byte in pattern.utf8 {
      if byte == UInt8(ascii: "/") {
        if stars == 2, others == 0 { return true }
        (stars, others) = (0, 0)
      } else if byte == UInt8(ascii: "*") {
        stars += 1
      } else {
        others += 1
      }
    }
    return stars == 2 && others == 0
  }

  /// The parts of a pattern, each `**` once.
  /// - Parameter directoriesOnly: If false, a final `**` matches files at all levels.
  package static func parts(_ pattern: String, directoriesOnly: Bool) -> [String] {
    var parts: [String] = []
    for part in names(pattern) {
      if part != "**" || parts.last != "**" { parts.append(part) }
    }
    if !directoriesOnly, parts.last == "**" { parts.append("*") }
    return parts
  }

  /// The names between the slashes. Bytes are compared: as a `Character`, a slash before a combining mark is not a
  /// slash.
  private static func names(_ path: String) -> [String] {
    path.utf8.split(separator: UInt8(ascii: "/")).map { String(decoding: $0, as: UTF8.self) }
  }

  package static func matches(_ pattern: String, _ path: String) -> Bool {
    guard hasLevels(pattern) else { return fnmatch(pattern, path, FNM_PATHNAME | FNM_PERIOD) == 0 }
    guard (pattern.utf8.first == UInt8(ascii: "/")) == (path.utf8.first == UInt8(ascii: "/")) else { return false }
    let names = Self.names(path)
    // All possible numbers of names that the parts so far can match.
    var ends: Set<Int> = [0]
    for part in parts(pattern, directoriesOnly: false) {
      var next: Set<Int> = []
      for end in ends {
        if part == "**" {
          next.insert(end)
          var reach = end
          while reach < names.count, names[reach].utf8.first != UInt8(ascii: ".") {
            reach += 1
            next.insert(reach)
          }
        } else if end < names.count, fnmatch(part, names[end], FNM_PERIOD) == 0 {
          next.insert(end + 1)
        }
      }
      ends = next
    }
    return ends.contains(names.count)
  }
}
