/// Which named signals a pipeline may still run, as far as the plan tells.
struct SignalReach {
  /// For each sink, the named signals that it may run.
  private let bySink: [Set<Int>]
  /// Those that run to execute commands, and what they run.
  private let byDrivers: Set<Int>
  /// Signals that may be run again after their end, or begun later than with the pipeline.
  private let repeatable: Set<Int>

  init(_ plan: Plan) {
    var walk = Walk(plan: plan)
    bySink = plan.sinks.map { sink in
      walk.reached = []
      walk.visit(sink.input, again: false)
      return walk.reached
    }
    walk.reached = []
    for driver in plan.drivers {
      walk.visit(SignalPlan(.named(driver), step: StepID(0), type: .dyn), again: false)
    }
    byDrivers = walk.reached
    repeatable = walk.repeatable
  }

  /// Whether the signal, which is not running, may run once more. `isOpen` says of a sink whether it still takes
  /// events; `isDriven`: whether what executes commands still runs.
  func mayRun(_ signal: Int, isDriven: Bool, _ isOpen: (Int) -> Bool) -> Bool {
    guard repeatable.contains(signal) else { return false }
    if isDriven, byDrivers.contains(signal) { return true }
    return bySink.indices.contains { isOpen($0) && bySink[$0].contains(signal) }
  }

  private struct Walk {
    let plan: Plan
    var reached: Set<Int> = []
    var repeatable: Set<Int> = []

    /// `again`: somebody below may subscribe later or repeatedly.
    mutating func visit(_ signal: SignalPlan, again: Bool) {
      switch signal.kind {
      case .errors, .input: break
      case .source(let component, _):
        for inner in component.innerPlans { visit(inner, again: true) }
      case .run(_, let input): visit(input, again: again)
      case .node(let component, _, let inputs):
        let again = again || type(of: component).subscribesAgain
        for input in inputs { visit(input, again: again) }
        for inner in component.innerPlans { visit(inner, again: true) }
      case .named(let index):
        // Of a cold signal each subscription is one of its own, and none is known to be the last.
        let again = again || plan.named[index].isCold
        let isNew = reached.insert(index).inserted
        let isNewlyAgain = again && repeatable.insert(index).inserted
        if isNew || isNewlyAgain { visit(plan.named[index].body, again: again) }
      }
    }
  }
}
