import PipelineCore
import PipelineRuntime
import PluginHost

extension Catalogue {
  /// The built-in components and those of the plugin directory, as far as their specs are known; starts nothing.
  static func installed(_ directories: [String] = []) -> Catalogue {
    let plugins = LocalPlugins(asks: false, directories: PluginDirectories.directories(directories))
    var entries: [CatalogueEntry] = []
    for file in plugins.installed() {
      guard case .success(let plugin) = plugins.load(file) else { continue }
      for offered in plugin.components(at: nil)
      where Catalogue.builtIn.component(offered.entry.kind, offered.entry.name) == nil { entries.append(offered.entry) }
    }
    return Catalogue.builtIn.adding(Catalogue(entries))
  }
}
