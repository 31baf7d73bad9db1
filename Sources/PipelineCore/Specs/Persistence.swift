/// The state of a running component that outlives the process.
public enum Persistence: Sendable, Equatable {
  /// The component has no state.
  case nothing
  /// The component saves and restores its state with `save` and `restore`. The version increases when the format
  /// changes; a version that the component does not read is refused, and the component starts empty.
  case state(version: Int)
  /// Like `state`, but valid for any parameters: the positions of a source, the queue of a sink. It is restored even if
  /// the parameters have changed, which ``StateReader/hasOtherParameters`` reports.
  case position(version: Int)

  /// A sentence for the reference; nil: none is needed.
  package var meaning: String? {
    switch self {
    case .nothing: nil
    case .state(let version): "State format: \(version)."
    case .position(let version):
      "State format: \(version); valid for other parameters too."
    }
  }

  /// The version of the state, or 0.
  var version: Int {
    switch self {
    case .state(let version), .position(let version): version
    case .nothing: 0
    }
  }

  /// Whether the state stays valid if the parameters change.
  var fitsOtherParameters: Bool { if case .position = self { true } else { false } }
}
