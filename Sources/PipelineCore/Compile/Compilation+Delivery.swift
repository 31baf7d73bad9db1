/// `delivery` beside a source or a sink.
extension Compilation {
  /// The value, which can only be `bestEffort`: all events of a pipeline are kept in one way.
  func delivery(_ option: YAMLNode, of node: ComponentNode, _ context: SignalContext) -> Located<Delivery>? {
    if option.isPlaceholder { return nil }
    let choices = Delivery.allCases.map(\.rawValue)
    switch option.decodeChoice("'delivery'", choices) {
    case .failure(let diagnostic): diagnostics.report(diagnostic)
    case .success(let text) where text != Delivery.bestEffort.rawValue:
      diagnostics.report(
        Diagnostic(
          .raisedDelivery,
          "'\(node.keyword.value)' cannot be '\(text)' by itself: all events of a pipeline are kept alike",
          at: option.location,
          help: "Write 'delivery: \(text)' at the top of the file; here it can only be bestEffort"))
    case .success where context.depth > 0:
      diagnostics.report(
        Diagnostic(
          .raisedDelivery,
          "'\(node.keyword.value)' starts an inner signal, whose events belong to the event it is made for",
          at: option.location, help: "Remove 'delivery', or write it at the source of that event"))
    case .success: return Located(.bestEffort, at: option.location)
    }
    return nil
  }
}
