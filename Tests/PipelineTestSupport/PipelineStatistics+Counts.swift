import PipelineCore

extension PipelineStatistics {
  /// The counts, without times: one line for each step and each edge.
  package var counts: [String] {
    steps.map { step in
      "\(step.step.number): \(step.received)+\(step.receivedInner)+\(step.made) in, \(step.sent) out, \(step.kept) kept, "
        + "\(step.dropped)+\(step.superseded)+\(step.undecided) dropped, \(step.rejected)+\(step.failed) rejected, "
        + "\(step.held) held, \(step.bytes ?? 0) bytes"
    }
      + edges.map { "\($0.plan.from) to \($0.plan.to): \($0.events)" }
  }

  /// The counts that do not add up.
  package func faults(_ plan: Plan, received: UInt64) -> [String] {
    var faults: [String] = []
    var made: UInt64 = 0
    for step in steps {
      let label = plan.steps[step.step.number].label
      let went =
        step.sent &+ step.kept &+ step.dropped &+ step.superseded &+ step.undecided &+ step.rejected &+ step.failed
        &+ step.held &+ step.holding
      if step.isExact, plan.isInFile(step.step), step.received &+ step.restored &+ step.made != went {
        faults.append("\(label): \(step.received) and \(step.made) made are not \(went): \(step)")
      }
      let out = edges.filter { $0.plan.from == .step(step.step) }.reduce(0) { $0 &+ $1.events }
      if !plan.sinks.contains(where: { $0.step == step.step }), out != step.sent {
        faults.append("\(label): \(step.sent) sent, but \(out) pass its edges")
      }
      if edges.contains(where: { $0.plan.from == .step(step.step) && $0.events > UInt64.max / 2 }) {
        faults.append("\(label): fewer than none pass")
      }
      if plan.isSource(step.step) { made &+= step.received }
    }
    // A named signal sends what it receives to each of its readers while the reader is subscribed.
    for (number, named) in plan.named.enumerated() where !named.isCold && named.sharing == Sharing() {
      let came = edges.filter { $0.plan.to == .named(number) }.reduce(0) { $0 &+ $1.events }
      for edge in edges where edge.plan.from == .named(number) && edge.events > came &* edge.subscriptions {
        faults.append("\(named.name): \(came) came, \(edge.events) went to \(plan.id(of: edge.plan.to))")
      }
    }
    if made != received { faults.append("sources made \(made), but \(received) were received") }
    return faults
  }
}
