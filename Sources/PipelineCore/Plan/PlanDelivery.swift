/// A source of the plan.
package struct PlannedSource {
  package var step: StepID
  package var component: any SourceDeclaration
  /// Whether the source starts a new inner signal for each event.
  package var isInner: Bool
}

extension Plan {
  /// The mode in which the pipeline runs.
  ///
  /// Without a state directory nothing can be stored. With one, the mode is that of the file, by default the lightest
  /// mode that meets the file's requirements and loses no event: checkpoints if every source can repeat its input after
  /// one, and no sink limits the events that wait for it on disk.
  package func delivery(hasStateDirectory: Bool) -> Delivery {
    guard hasStateDirectory else { return .bestEffort }
    if let requestedDelivery { return requestedDelivery.value }
    if requirement?.value == .durable { return .durable }
    if sinks.contains(where: { $0.outboxLimit.location != nil }) { return .durable }
    let canRepeat = sources.allSatisfy { isBestEffort($0.step) || $0.component.recovery.canRepeat }
    return canRepeat ? .light : .durable
  }

  /// Whether the file excludes this source or sink from the guarantee: events that the sink takes count as delivered at
  /// once, and events of the source are acknowledged at once.
  package func isBestEffort(_ step: StepID) -> Bool { steps[step.number].delivery != nil }
}
