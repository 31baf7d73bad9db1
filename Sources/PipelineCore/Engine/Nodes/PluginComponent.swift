/// A component that a plugin offers. Its name and parameters are known only with the plugin, so its spec belongs to the value and not to the
/// type.
package protocol PluginComponent: PluginParameters {
  /// The component's own counters, shared by all executions of its plan; nil: each execution has its own.
  var sharedMeter: PluginMeter? { get }
  /// The reason why the component cannot start, if known before the start; nil: none is known.
  ///
  /// - Parameter isDryRun: Whether this is a dry run: another execution may be running, so nothing may be opened that
  ///   others would notice.
  func startFailure(isDryRun: Bool) -> SignalFailure?
}

extension PluginComponent {
  package var sharedMeter: PluginMeter? { nil }
}
