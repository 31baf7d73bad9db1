extension Execution {
  /// The reason why a plugin's component cannot start, for the first such component in the file; nil: no reason is
  /// known before the start.
  var pluginFailure: SignalFailure? {
    for (number, component) in plan.components.sorted(by: { $0.key < $1.key }) {
      guard let plugin = component as? any PluginComponent,
        services.plugins?.stands(for: plugin.offered.name) != true,
        var failure = plugin.startFailure(isDryRun: isDryRun)
      else {
        continue
      }
      failure.location = failure.location ?? plan.steps[number].location
      return failure
    }
    return nil
  }
}
