import Synchronization

/// Filters the inputs of a plugin's sink that has asked for a pause: inputs that the node handed over before it learnt of the pause are
/// dropped. Used on any thread.
final class RetryPause: Sendable {
  private let isSet = Atomic(false)

  /// The plugin ignores what comes, up to the first input that comes again.
  func begin() { isSet.store(true, ordering: .releasing) }

  /// The inputs that are for the plugin.
  func admit(_ inputs: [PluginInput]) -> ArraySlice<PluginInput> {
    guard isSet.load(ordering: .acquiring) else { return inputs[...] }
    guard let first = inputs.firstIndex(where: \.isAgain) else { return [] }
    isSet.store(false, ordering: .releasing)
    return inputs[first...]
  }

  var isOn: Bool { isSet.load(ordering: .acquiring) }
}
