extension Compilation {
  /// The rate of a signal's events; nil if it is unknown or a step may drop or multiply events.
  func pace(of signal: SignalPlan) -> EventPace? {
    switch signal.kind {
    case .source(let component, _): return component.pace
    case .named(let at):
      guard case .done(let plan?) = entries[at].state else { return nil }
      return pace(of: plan)
    case .run(let run, let input):
      let answersEach = run.parts.allSatisfy { part in
        part.steps.allSatisfy { step in
          switch step.component {
          case is Map, is MapReplace, is SetFields, is UnsetFields: true
          default: false
          }
        }
      }
      return answersEach ? pace(of: input) : nil
    case .node, .errors, .input: return nil
    }
  }
}
