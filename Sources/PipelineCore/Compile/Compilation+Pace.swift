extension Compilation {
  /// The rate of a signal's events; nil if it is unknown or a step may drop or multiply events.
  func pace(of signal: SignalPlan) -> EventPace? {
    if let source = signal.source { return source.pace }
    if case .named(let at)? = signal.origin {
      guard case .done(let plan?) = entries[at].state else { return nil }
      return pace(of: plan)
    }
    let answersEach = signal.steps.allSatisfy { step in
      switch step.component {
      case is Map, is MapReplace, is SetFields, is UnsetFields: true
      default: false
      }
    }
    return answersEach ? signal.inputs.first.flatMap { pace(of: $0) } : nil
  }
}
