/// The origin of a signal's events.
private enum Beginning: Hashable {
  case source(StepID)
  case sink(Int)
  /// The input that a step feeds into a chain; its events may have any origin.
  case fed
}

extension Plan {
  /// Whether one event of a source may arrive over several of the signals.
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

  /// The sources, also named ones, of inner signals: a step whose queue is full may wait for their events.
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
    walk(from: signals, named) { signal in
      switch signal.origin {
      case .errors(.sink(let index)): beginnings.insert(.sink(index))
      case .input: beginnings.insert(.fed)
      case .named, .errors(.named): break
      case nil: if signal.source != nil { beginnings.insert(.source(signal.step)) }
      }
      return signal.inputs + signal.inner.filter { !$0.isFed }
    }
    return beginnings
  }
}
