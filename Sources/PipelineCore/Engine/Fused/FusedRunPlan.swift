/// Consecutive fusable steps, compiled into one pass over each event.
struct FusedRunPlan: Sendable {
  /// Steps that see the same event value and therefore share one projection.
  struct Part: Sendable {
    var segment: Segment
    var steps: [Step]
  }
  /// One fused step.
  struct Step: Sendable {
    var id: StepID
    var component: any FusableOperator
  }
  let parts: [Part]
  /// The condition of the first step, if comparing slots decides it (``LeadingCondition``).
  let leadingCondition: Program?

  init(parts: [Part]) {
    self.parts = parts
    leadingCondition = parts.first.flatMap(LeadingCondition.of)
  }
}

extension FusedRunPlan {
  /// Whether the result of each step depends only on the event's value.
  var isPure: Bool {
    parts.allSatisfy { part in
      !part.segment.usesMeta && !part.segment.usesNow && !part.segment.usesTables
        && part.steps.allSatisfy { type(of: $0.component).isPure }
    }
  }
}

extension SignalPlan {
  /// The fused steps of this signal; nil: it is another kind of signal.
  var run: FusedRunPlan? { (work as? FusedWork)?.plan }
}

extension ParallelStage.Branch {
  /// All steps on the path to the sink.
  var run: FusedRunPlan { FusedRunPlan(parts: signals.flatMap { $0.run?.parts ?? [] }) }
}
