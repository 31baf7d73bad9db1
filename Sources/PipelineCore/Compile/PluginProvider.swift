/// Finds the components of the plugins installed on this machine and of those that a pipeline file names.
package protocol PluginProvider: Sendable {
  /// The components that the file may use in addition to the built-in ones. Reports plugins that cannot be found or used.
  func offers(for file: PipelineFile, into diagnostics: inout Diagnostics) -> PluginOffers
  /// The files of the plugins that the file may use. If one of them changes, the meaning of the file changes.
  func files(of file: PipelineFile) -> [String]
}

extension PluginProvider {
  package func files(of file: PipelineFile) -> [String] { [] }
}

/// The components that plugins offer to a file.
package struct PluginOffers: Sendable {
  package var components: [OfferedComponent] = []
  /// Functions of expressions, decoders and encoders.
  package var called: [PluginFunction] = []
  package init() {}

  package var isEmpty: Bool { components.isEmpty && called.isEmpty }

  package mutating func add(_ other: PluginOffers) {
    components += other.components
    called += other.called
  }
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

  package func offers(for file: PipelineFile, into diagnostics: inout Diagnostics) -> PluginOffers {
    for plugin in file.plugins {
      diagnostics.report(
        Diagnostic(
          .pluginFailed, "the plugin '\(Printable.cut(plugin.name.value))' cannot be loaded: this program loads none",
          at: plugin.name.location, help: "Run the file with 'rxd'"))
    }
    return PluginOffers()
  }
}

extension PipelineCompiler {
  /// Adds the plugins' components to the catalogue. Reports names that are already taken.
  mutating func add(_ offers: PluginOffers, into diagnostics: inout Diagnostics) {
    var added: [OfferedComponent] = []
    for one in offers.components {
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
    catalogue = catalogue.adding(Catalogue(added.map(\.entry), admitted(offers.called, into: &diagnostics)))
  }

  /// The functions and formats whose names are free. Reports the others.
  private func admitted(_ called: [PluginFunction], into diagnostics: inout Diagnostics) -> [PluginFunction] {
    var admitted: [PluginFunction] = []
    for one in called {
      let isBuiltIn =
        switch one.offered.kind {
        case .function: FunctionRegistry.described(one.callName) != nil
        case .decoder: DecoderFormat(rawValue: one.offered.name) != nil
        default: EncoderFormat(rawValue: one.offered.name) != nil
        }
      let name = one.offered.kind == .function ? one.callName : one.offered.name
      let other = admitted.first {
        $0.offered.kind == one.offered.kind && $0.offered.name == one.offered.name
          && (one.offered.kind != .function || $0.plugin == one.plugin)
      }
      guard isBuiltIn || other != nil else {
        admitted.append(one)
        continue
      }
      diagnostics.report(
        Diagnostic(
          .pluginFailed,
          """
          the plugin '\(one.plugin)' offers the \(one.offered.kind.rawValue) '\(name)', which \
          \(other.map { "the plugin '\($0.plugin)' offers, too" } ?? "is built in")
          """, at: one.location ?? other?.location, help: "Use only one of them"))
    }
    return admitted
  }
}
