extension Execution {
  /// The reason why a component or function of a plugin cannot start, for the first in the file; nil: none is known before the start.
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
    for function in plan.pluginFunctions { if let failure = function.startFailure { return failure } }
    return nil
  }
}

extension PluginFunction {
  /// Why the pipeline cannot start with the function; nil if it can.
  fileprivate var startFailure: SignalFailure? {
    guard case .failure(let refusal) = open() else { return nil }
    let name = refusal.path.prefix { $0 != "." && $0 != "[" }
    let index = offered.parameters.firstIndex { $0.name == name }
    return SignalFailure(
      .plugin,
      "the \(offered.kind.rawValue) '\(offered.name)' of the plugin '\(plugin)' cannot be used: \(refusal.message)",
      at: index.flatMap { arguments.locations[$0] } ?? location)
  }
}
