import PipelineCore

/// A component that a plugin offers, with its parameters and the maker of its instances.
struct BoundPlugin: Sendable {
  let offered: PluginComponentSpec
  var arguments: PluginArguments
  /// Nil in a placeholder, from which the properties common to all plugin components of a kind are read.
  let maker: (any PluginMaker)?

  init(_ offered: PluginComponentSpec, _ maker: (any PluginMaker)?) {
    self.offered = offered
    self.maker = maker
    arguments = PluginArguments(of: offered)
  }
}

/// A component of a plugin that has instances.
protocol BoundComponent: PluginComponent {
  var plugin: BoundPlugin { get set }
  init(_ plugin: BoundPlugin)
}

extension BoundComponent {
  init() { self.init(BoundPlugin(PluginComponentSpec(kind: .operator, name: "plugin", summary: ""), nil)) }

  var offered: PluginComponentSpec { plugin.offered }
  var arguments: PluginArguments {
    get { plugin.arguments }
    set { plugin.arguments = newValue }
  }
}

extension BoundComponent {
  /// Checked for a dry run only; a real start reports its own failure.
  func startFailure(isDryRun: Bool) -> SignalFailure? {
    guard isDryRun, let maker = plugin.maker else { return nil }
    do throws(PluginFault) {
      try maker.check(offered)
      return nil
    } catch { return SignalFailure(.plugin, "the plugin cannot be used: \(error.message)", at: nil) }
  }
}

extension NodeContext {
  /// The label of the step, for messages: `out/shorten`.
  var label: String { execution.plan.steps[step.number].label }
}
