/// A source of the plan.
struct PlannedSource {
  var step: StepID
  var component: any SourceComponent
  /// Whether it starts an inner signal, made anew for each event.
  var isInner: Bool
}

extension Plan {
  /// The mode that the pipeline runs in.
  ///
  /// Without a state directory there is nowhere to keep anything. With one it is the mode that the file asks for, by
  /// default the lightest that gives what the file requires and loses no event: checkpoints where every source can repeat
  /// what came after one, and no sink limits what waits for it on disk.
  public func delivery(hasStateDirectory: Bool) -> Delivery {
    guard hasStateDirectory else { return .bestEffort }
    if let requestedDelivery { return requestedDelivery.value }
    if requirement?.value == .durable { return .durable }
    if sinks.contains(where: { $0.outboxLimit.location != nil }) { return .durable }
    let canRepeat = sources.allSatisfy { isBestEffort($0.step) || $0.component.recovery.canRepeat }
    return canRepeat ? .light : .durable
  }

  /// Whether the file takes this source or sink out of the promise: what a sink takes counts as delivered, and the events
  /// of a source are acknowledged, at once.
  public func isBestEffort(_ step: StepID) -> Bool { steps[step.number].delivery != nil }
}

extension Plan {
  /// An error for each source that has nothing to give once, because it waits for what others send.
  public var sourcesWithoutEnd: [Diagnostic] {
    sources.filter { !$0.isInner && $0.component.once == nil }.map { source in
      let step = steps[source.step.number]
      return Diagnostic(
        .endlessSource,
        "'\(step.keyword)' waits for what others send, so nothing says when it has given all that is there",
        at: step.location,
        help: "Leave --once out, and end the run with --limit; or put 'values' or 'file' in its place")
    }
  }
}
