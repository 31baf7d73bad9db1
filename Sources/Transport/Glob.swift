import Glibc

/// Path patterns with `*`, `?` and `[...]`, as a shell has them: none of them matches a `/`, and a
/// leading dot must be written out.
public enum Glob {
  public static func isPattern(_ path: String) -> Bool {
    path.utf8.contains { $0 == UInt8(ascii: "*") || $0 == UInt8(ascii: "?") || $0 == UInt8(ascii: "[") }
  }

  /// The existing paths that match, sorted; a path without pattern matches itself.
  public static func expand(_ pattern: String, directoriesOnly: Bool = false) -> [String] {
    var found = glob_t()
    defer { globfree(&found) }
    // The flag GLOB_ONLYDIR is a hint only, and a GNU extension: a trailing slash does the same.
    let asked = directoriesOnly && pattern != "/" ? pattern + "/" : pattern
    guard glob(asked, 0, nil, &found) == 0, let paths = found.gl_pathv else { return [] }
    return (0..<Int(found.gl_pathc)).compactMap { index in
      guard let path = paths[index] else { return nil }
      let text = String(cString: path)
      return directoriesOnly && text != "/" ? String(text.dropLast()) : text
    }
  }

  public static func matches(_ pattern: String, _ path: String) -> Bool {
    fnmatch(pattern, path, FNM_PATHNAME | FNM_PERIOD) == 0
  }

  /// The directories, as patterns, in which a new entry can change what the pattern matches: from the
  /// last one without pattern to the one that holds the files.
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
