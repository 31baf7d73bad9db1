/// How fast events of a source come, as far as its parameters tell.
public enum EventPace: Sendable, Equatable {
  /// One each time that this span has gone by.
  case every(TimeSpan)
  /// As fast as they can be read: a whole file.
  case unbounded

  /// What a slow machine reads at least, in events a second.
  static let leastReading = 100_000.0
}

extension Compilation {
  /// The pace of a signal's events; nil where a step may drop events, make more of them, or nothing is known.
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
