/// The steps of a plan with keys, by whether they move keys to the disk; without those in groups.
struct KeyWalk {
  private(set) var moving: [StepID] = []
  private(set) var staying: [StepID] = []
  private var seen: Set<ObjectIdentifier> = []

  init(_ plan: Plan) {
    for named in plan.named { visit(named.body) }
    for sink in plan.sinks { visit(sink.input) }
  }

  private mutating func visit(_ signal: SignalPlan) {
    guard seen.insert(ObjectIdentifier(signal)).inserted else { return }
    for input in signal.inputs { visit(input) }
    for step in signal.steps {
      let keyed = step.component as? any SpillingOperator
      if let keyed { if keyed.movesKeys { moving.append(step.id) } else { staying.append(step.id) } }
      if keyed?.hasGroups != true { for inner in step.inner { visit(inner) } }
    }
  }
}
