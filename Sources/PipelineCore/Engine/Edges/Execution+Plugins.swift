extension Execution {
  /// Why a component of a plugin cannot start, of the first one in the file; nil: all can, as far as that is known before they do.
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
