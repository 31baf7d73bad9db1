/// The origin of a signal's events.
private enum Beginning: Hashable {
  case source(StepID)
  case sink(Int)
  /// The input that a step feeds into a chain; its events may have any origin.
  case fed
}

extension Plan {
  /// Whether one event of a source may come over several of the signals.
  func meet(_ signals: [SignalPlan]) -> Bool {
    var seen: Set<Beginning> = []
    for signal in signals {
      let beginnings = Self.beginnings(of: [signal], named)
      if !seen.isDisjoint(with: beginnings) { return true }
      if !seen.isEmpty, beginnings.contains(.fed) || seen.contains(.fed) { return true }
      seen.formUnion(beginnings)
    }
    return false
  }

  /// The sources, also named ones, of inner signals: a step whose queue is full may wait for what they send.
  static func sourcesOfInnerSignals(_ components: [Int: any Component], _ named: [NamedPlan]) -> Set<StepID> {
    let inner = components.values.flatMap(\.innerPlans)
    if inner.isEmpty { return [] }
    return Set(
      beginnings(of: inner, named).compactMap { beginning in
        if case .source(let step) = beginning { step } else { nil }
      })
  }

  private static func beginnings(of signals: [SignalPlan], _ named: [NamedPlan]) -> Set<Beginning> {
    var beginnings: Set<Beginning> = []
    var visited: Set<Int> = []
    var waiting = signals
    while let next = waiting.popLast() {
      switch next.kind {
      case .named(let index), .errors(.named(let index)):
        if visited.insert(index).inserted { waiting.append(named[index].body) }
      case .errors(.sink(let index)): beginnings.insert(.sink(index))
      case .source(let component, _):
        beginnings.insert(.source(next.step))
        waiting += component.innerPlans
      case .input: beginnings.insert(.fed)
      case .run(_, let input): waiting.append(input)
      case .node(let component, _, let inputs): waiting += inputs + component.innerPlans.filter { !$0.isFed }
      }
    }
    return beginnings
  }
}
