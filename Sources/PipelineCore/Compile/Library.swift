/// A file that runs nothing: it only has definitions for other files to include.
package struct Library: Sendable {
  package var functions = 0
  /// The number of examples of the functions.
  package var examples = 0
  package var templates = 0
  package var patterns = 0

  /// Nil if the file is a pipeline or meant to be one.
  ///
  /// - Parameters:
  ///   - file: The file as written.
  ///   - expanded: The file, including the definitions of the files that it includes.
  init?(of file: YAMLNode, expanded: YAMLNode) {
    let keys = ["functions", "templates", "patterns", "include", "description"]
    guard let entries = file.entries, let all = expanded.entries,
      entries.contains(where: { keys.prefix(4).contains($0.name) }),
      entries.allSatisfy({ keys.contains($0.name) || $0.name.hasPrefix("x-") }),
      !all.contains(where: { Reuse.sections.contains($0.name) })
    else { return nil }
    func members(_ name: String, of entries: [YAMLEntry]) -> [YAMLEntry] {
      entries.first { $0.name == name }?.value.entries ?? []
    }
    let functions = members("functions", of: all)
    self.functions = functions.count
    examples = functions.reduce(0) { $0 + ($1.value["examples"]?.items?.count ?? 0) }
    templates = members("templates", of: entries).count
    patterns = members("patterns", of: all).count
  }

  /// `2 functions and 1 template`.
  package var contents: String {
    func count(_ number: Int, _ noun: String) -> String? {
      number == 0 ? nil : "\(number) \(noun)\(number == 1 ? "" : "s")"
    }
    let parts = [count(functions, "function"), count(templates, "template"), count(patterns, "pattern")].compactMap {
      $0
    }
    guard let last = parts.last else { return "its includes" }
    return parts.count == 1 ? last : parts.dropLast().joined(separator: ", ") + " and " + last
  }
}
