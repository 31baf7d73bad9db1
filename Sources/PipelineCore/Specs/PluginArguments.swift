/// The decoded parameters of a plugin's component.
package struct PluginArguments: Sendable {
  /// The values in the order of the spec; nil: not given, and without a default.
  package internal(set) var values: [PluginValue?]
  /// Their locations in the file.
  package internal(set) var locations: [SourceLocation?]

  package init(of spec: PluginComponentSpec) {
    values = spec.parameters.map(\.fallback)
    locations = spec.parameters.map { _ in nil }
  }

  /// Values that no file gives, in the order of the spec.
  package init(values: [PluginValue?]) {
    self.values = values
    locations = values.map { _ in nil }
  }
}
