extension Compilation {
  /// How the rows that a step sends may change, given that rows of its input may change. Warns of a step that would
  /// treat each change as another event.
  func changes(behind component: any OperatorComponent, _ inputs: [EventType], _ node: ComponentNode) -> Changes {
    let input = inputs.map(\.changes).max() ?? .none
    let changing = component as? any ChangingOperator
    if input != .none, changing.map({ !$0.understands(input) }) ?? Self.mistakes(component, input) {
      let keyword = node.keyword.value
      diagnostics.report(
        Diagnostic(
          .changesMistaken,
          input == .pairs
            ? "'\(keyword)' treats retracted rows as further events"
            : component is Filter || component is Ignore
              ? "'\(keyword)' may drop a row that replaces one which it has passed, so the earlier one stays"
              : "'\(keyword)' treats rows that replace earlier ones as further events",
          at: node.keyword.location,
          help: input == .pairs
            ? "Send results at the end only, or put '\(keyword)' upstream of the step whose results change"
            : "Let the step whose results change send pairs: 'emit: { ..., pairs: true }'"))
    }
    if let changing { return changing.changes(input) }
    return Self.passes(component, input) ? input : .none
  }

  /// Whether a step's result is wrong if rows change.
  private static func mistakes(_ component: any OperatorComponent, _ input: Changes) -> Bool {
    component is Scan || component is CountEvents || component is Collect
      || input == .rows && (component is Filter || component is Ignore)
  }

  /// Whether a step sends each row that it receives as one row, and drops a row together with its removal.
  private static func passes(_ component: any OperatorComponent, _ input: Changes) -> Bool {
    if let fusable = component as? any FusableDeclaration { return type(of: fusable).isPure || component is Log }
    return component is Do || component is Delay || component is DeliverOn || component is Merge || component is Concat
      || component is SubscribeOn || component is Timeout || component is Finally
  }
}
