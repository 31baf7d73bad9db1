/// A plugin that comes with the sources of rxd, which may not be installed: so that who names one of its components learns where it is.
package struct KnownPlugin: Sendable {
  package struct Component: Sendable {
    /// `source`, `operator`, `sink`, `function`, `decoder` or `encoder`.
    package var kind: String
    package var name: String
    package var summary: String
    /// What other programs call it, in lower case.
    package var others: [String]
  }

  package var name: String
  /// Its folder in `Plugins`.
  package var folder: String
  package var summary: String
  package var components: [Component]

  /// How it is installed, as a clause.
  package var installation: String { "'make -C Plugins/\(folder) install' builds it from the sources of rxd" }

  /// Advice for a name that is not known: the plugin that has such a component; nil: none has.
  ///
  /// - Parameter kind: The kind of component that is meant.
  package static func help(for name: String, _ kind: String) -> String? {
    let word = name.lowercased()
    func first(_ isMeant: (KnownPlugin, Component) -> Bool) -> (plugin: KnownPlugin, components: [Component])? {
      for plugin in all {
        let found = plugin.components.filter { $0.kind == kind && isMeant(plugin, $0) }
        if !found.isEmpty { return (plugin, found) }
      }
      return nil
    }
    let found =
      first { $1.name == name } ?? first { $1.name.lowercased() == word || $1.others.contains(word) }
      ?? first { plugin, _ in plugin.name == word }
    guard let (plugin, components) = found else { return nil }
    let isSame = components.count == 1 && components[0].name == name
    let what = isSame ? "it" : Suggestion.list(components.map(\.name))
    return "The plugin '\(plugin.name)', which is not installed, has \(what): \(plugin.installation)"
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
