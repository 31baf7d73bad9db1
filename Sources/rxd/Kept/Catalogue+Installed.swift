import PipelineCore
import PipelineRuntime
import PluginHost

extension Catalogue {
  /// The built-in components and those of the plugin directory, as far as their specs are known; starts nothing.
  static func installed(_ directories: [String] = []) -> Catalogue {
    let plugins = LocalPlugins(asks: false, directories: PluginDirectories.directories(directories))
    var entries: [CatalogueEntry] = []
    var called: [PluginFunction] = []
    for file in plugins.installed() {
      guard case .success(let plugin) = plugins.load(file) else { continue }
      let offers = plugin.offers(at: nil)
      for offered in offers.components
      where Catalogue.builtIn.component(offered.entry.kind, offered.entry.name) == nil { entries.append(offered.entry) }
      called += offers.called
    }
    return Catalogue.builtIn.adding(Catalogue(entries, called))
  }
}
