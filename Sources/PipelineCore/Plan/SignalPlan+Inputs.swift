extension SignalPlan {
  /// Whether the signal begins with the input that the node around a chain feeds.
  var isFed: Bool {
    switch kind {
    case .input: true
    case .run(_, let input): input.isFed
    case .node(_, _, let inputs): inputs.count == 1 && inputs[0].isFed
    case .named, .errors, .source: false
    }
  }

  /// Whether its events are made outside of the scope in which it is read.
  var isShared: Bool {
    switch kind {
    case .named, .errors: true
    case .source, .input, .node, .run: false
    }
  }
}
