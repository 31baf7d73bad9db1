/// Finds the components of the plugins installed on this machine and of those that a pipeline file names.
package protocol PluginProvider: Sendable {
  /// The components that the file may use besides the built-in ones. Reports those that cannot be found or used.
  func components(of file: PipelineFile, into diagnostics: inout Diagnostics) -> [OfferedComponent]
  /// The files of the plugins that the file may use. If one of them changes, the meaning of the file changes.
  func files(of file: PipelineFile) -> [String]
}

extension PluginProvider {
  package func files(of file: PipelineFile) -> [String] { [] }
}

/// A component of a plugin, and the location at which the file names the plugin.
package struct OfferedComponent: Sendable {
  package var entry: CatalogueEntry
  /// The plugin's name, for messages.
  package var plugin: String
  /// Nil if the plugin is in the plugin directory.
  package var location: SourceLocation?
  /// Changes whenever the plugin does.
  package var digest: String

  package init(_ entry: CatalogueEntry, plugin: String, location: SourceLocation?, digest: String = "") {
    self.entry = entry
    self.plugin = plugin
    self.location = location
    self.digest = digest
  }
}

/// For programs and tests without plugins: a file that names a plugin is an error.
package struct NoPlugins: PluginProvider {
  package init() {}

  package func components(of file: PipelineFile, into diagnostics: inout Diagnostics) -> [OfferedComponent] {
    for plugin in file.plugins {
      diagnostics.report(
        Diagnostic(
          .pluginFailed, "the plugin '\(Printable.cut(plugin.name.value))' cannot be loaded: this program loads none",
          at: plugin.name.location, help: "Run the file with 'rxd'"))
    }
    return []
  }
}

extension PipelineCompiler {
  /// Adds components of plugins to the catalogue. Reports names that are already taken.
  mutating func add(_ offered: [OfferedComponent], into diagnostics: inout Diagnostics) {
    var added: [OfferedComponent] = []
    for one in offered {
      let kind = one.entry.kind
      let isBuiltIn =
        catalogue.component(kind, one.entry.name) != nil
        || kind == .operator && catalogue.component(.combination, one.entry.name) != nil
      let other = added.first { $0.entry.kind == kind && $0.entry.name == one.entry.name }
      guard isBuiltIn || other != nil else {
        added.append(one)
        continue
      }
      diagnostics.report(
        Diagnostic(
          .pluginFailed,
          """
          the plugin '\(one.plugin)' offers the \(kind.rawValue) '\(one.entry.name)', which \
          \(other.map { "the plugin '\($0.plugin)' offers, too" } ?? "is built in")
          """, at: one.location ?? other?.location, help: "Use only one of them"))
    }
    catalogue = catalogue.adding(Catalogue(added.map(\.entry)))
  }
}
