/// A plugin that comes with the sources of rxd. It may not be installed; errors about its components then name it.
package struct KnownPlugin: Sendable {
  package struct Component: Sendable {
    /// `source`, `operator`, `sink`, `function`, `decoder` or `encoder`.
    package var kind: String
    package var name: String
    package var summary: String
    /// Its names in other programs, in lower case.
    package var others: [String]
  }

  package var name: String
  /// Its folder in `Plugins`.
  package var folder: String
  package var summary: String
  package var components: [Component]

  /// How files name a component: a function by its plugin, `msgpack.decode`.
  package func nameInFiles(_ component: Component) -> String {
    component.kind == "function" ? "\(name).\(component.name)" : component.name
  }

  /// How it is installed, as a clause.
  package var installation: String { "'make -C Plugins/\(folder) install' builds it from the sources of rxd" }

  /// Advice for a name that is not known: the plugin that has such a component; nil: none has.
  ///
  /// - Parameters:
  ///   - kind: The kind of component that is meant.
  ///   - known: The names of this kind that the file can use: a plugin that offers one of them is installed.
  package static func help(for name: String, _ kind: String, besides known: some Collection<String>) -> String? {
    let word = name.lowercased()
    func first(_ isMeant: (KnownPlugin, Component) -> Bool) -> (plugin: KnownPlugin, components: [Component])? {
      for plugin in all {
        let found = plugin.components.filter { $0.kind == kind && isMeant(plugin, $0) }
        if !found.isEmpty, !found.contains(where: { known.contains(plugin.nameInFiles($0)) }) { return (plugin, found) }
      }
      return nil
    }
    let found =
      first { $0.nameInFiles($1) == name }
      ?? first { $0.nameInFiles($1).lowercased() == word || $1.others.contains(word) }
      ?? first { plugin, _ in plugin.name == word }
    guard let (plugin, components) = found else { return nil }
    let names = components.map(plugin.nameInFiles)
    let what = names == [name] ? "it" : Suggestion.list(names)
    return "The plugin '\(plugin.name)' has \(what); if it is not installed, \(plugin.installation)"
  }

  /// The same for a name of any kind.
  package static func help(for name: String, besides known: some Collection<String>) -> String? {
    let kinds = ["source", "sink", "operator", "decoder", "encoder", "function"]
    return kinds.lazy.compactMap { help(for: name, $0, besides: known) }.first
  }

  /// The components of plugins in whose names or summaries all words occur, with their plugins.
  package static func search(_ words: [String]) -> [(plugin: KnownPlugin, component: Component)] {
    let words = words.map { $0.lowercased() }
    return all.flatMap { plugin in
      plugin.components.compactMap { component in
        let text =
          ([plugin.name, plugin.summary, component.kind, component.name, component.summary] + component.others)
          .joined(separator: " ").lowercased()
        return words.allSatisfy(text.contains) ? (plugin, component) : nil
      }
    }
  }
}
