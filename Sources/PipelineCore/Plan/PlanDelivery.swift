/// A source of the plan.
package struct PlannedSource {
  package var step: StepID
  package var component: any SourceComponent
  /// Whether it starts a new inner signal for each event.
  package var isInner: Bool
}

extension Plan {
  /// The mode that the pipeline runs in.
  ///
  /// Without a state directory there is nowhere to keep anything. With one it is the mode that the file asks for, by
  /// default the lightest that gives what the file requires and loses no event: checkpoints where every source can repeat
  /// what came after one, and no sink limits what waits for it on disk.
  package func delivery(hasStateDirectory: Bool) -> Delivery {
    guard hasStateDirectory else { return .bestEffort }
    if let requestedDelivery { return requestedDelivery.value }
    if requirement?.value == .durable { return .durable }
    if sinks.contains(where: { $0.outboxLimit.location != nil }) { return .durable }
    let canRepeat = sources.allSatisfy { isBestEffort($0.step) || $0.component.recovery.canRepeat }
    return canRepeat ? .light : .durable
  }

  /// Whether the file excludes this source or sink from the guarantee: events that the sink takes count as delivered at once, and events of
  /// the source are acknowledged at once.
  package func isBestEffort(_ step: StepID) -> Bool { steps[step.number].delivery != nil }
}

extension Plan {
  /// An error for each source that `--once` cannot run, because it waits for events that others send.
  package var sourcesWithoutEnd: [Diagnostic] {
    sources.filter { !$0.isInner && $0.component.once == nil }.map { source in
      let step = steps[source.step.number]
      return Diagnostic(
        .endlessSource,
        "'\(step.keyword)' waits for others to send, so reading it once never ends",
        at: step.location,
        help: "Leave --once out, and end the run with --limit; or put 'values' or 'file' in its place")
    }
  }
}
