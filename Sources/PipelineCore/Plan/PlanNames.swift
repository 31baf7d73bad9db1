/// The uses of event names, and where the names are unique.
extension Plan {
  /// Whether an expression reads `meta.id`, or the whole of `meta`.
  var readsNames: Bool {
    expressions.contains { report in
      report.checked.reads.contains { $0.variable == "meta" && ($0.fields.first ?? "id") == "id" }
    }
  }

  /// Whether each event that a sink takes has a name that no other event of the sink has, however often the pipeline
  /// starts: every source names its events and reaches the sink by one path, and every step between sends each event at
  /// most once, or several events whose names derive from its name. Events without a name, such as lists of several,
  /// may be among them.
  func distinguishesEvents(at sink: SinkPlan) -> Bool {
    var seen: Set<Int> = []
    return distinguishes(sink.input, &seen)
  }

  private func distinguishes(_ signal: SignalPlan, _ seen: inout Set<Int>) -> Bool {
    switch signal.origin {
    case .named(let index):
      let named = named[index]
      return !named.isCold && named.sharing.replay == 0 && distinguishes(named.body, &seen)
    case .errors, .input: return false
    case nil:
      if let source = signal.source { return source.namesEvents && seen.insert(signal.step.number).inserted }
      return signal.steps.allSatisfy(\.component.keepsNames) && signal.inputs.allSatisfy { distinguishes($0, &seen) }
    }
  }
}

extension Component {
  /// Whether the operator sends each event of its inputs at most once, under its name, or events whose names derive
  /// from that event.
  fileprivate var keepsNames: Bool {
    switch self {
    case is any FusableDeclaration: true
    case is any NamingOperator: innerPlans.isEmpty
    case let step as any OperatorDeclaration:
      type(of: step).relaysEvents && !type(of: step).subscribesAgain && innerPlans.isEmpty
    default: false
    }
  }
}

/// A combination that relays the events of its inputs, or a step that names the events it derives from one.
protocol NamingOperator: OperatorDeclaration {}

extension Plan {
  /// A location as text: the line, and the file if it is not the pipeline's.
  func fileAndLine(_ location: SourceLocation) -> String {
    location.text.name == source.name
      ? "line \(location.line)" : "line \(location.line) of \(Printable.cut(location.text.name))"
  }
}
