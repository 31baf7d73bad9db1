import Synchronization

/// A sink of a plugin has asked for a pause: what was handed over before the node learnt of it is not for the plugin. Used on any thread.
final class RetryPause: Sendable {
  private let isSet = Atomic(false)

  /// The plugin ignores what comes, up to the first input that comes again.
  func begin() { isSet.store(true, ordering: .releasing) }

  /// What of the inputs is for the plugin.
  func admit(_ inputs: [PluginInput]) -> ArraySlice<PluginInput> {
    guard isSet.load(ordering: .acquiring) else { return inputs[...] }
    guard let first = inputs.firstIndex(where: \.isAgain) else { return [] }
    isSet.store(false, ordering: .releasing)
    return inputs[first...]
  }

  var isOn: Bool { isSet.load(ordering: .acquiring) }
}
