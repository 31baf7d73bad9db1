import Synchronization

/// Filters the inputs of a plugin's sink that has asked for a pause: inputs that the node submitted before it learnt of the pause are
/// dropped. Used on any thread.
final class RetryPause: Sendable {
  private let isSet = Atomic(false)

  /// The plugin ignores all inputs up to the first repeated one.
  func begin() { isSet.store(true, ordering: .releasing) }

  /// The inputs that the plugin must get.
  func admit(_ inputs: [PluginInput]) -> ArraySlice<PluginInput> {
    guard isSet.load(ordering: .acquiring) else { return inputs[...] }
    guard let first = inputs.firstIndex(where: \.isAgain) else { return [] }
    isSet.store(false, ordering: .releasing)
    return inputs[first...]
  }

  var isOn: Bool { isSet.load(ordering: .acquiring) }
}
