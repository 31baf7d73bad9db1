/// The hand-over from one execution to the next in this process.
extension Execution {
  /// The state from which another execution in this process can continue; nil: there is none, or only that of an older
  /// commit.
  package var leftState: LeftState? {
    if isSuspended, tables.areLoading, committer != nil { return LeftState([], saved.estates, isInStore: true) }
    return saved.parts.map { LeftState($0.bytes, saved.estates, isInStore: !$0.owners.isEmpty) }
  }

  /// Passes the events that a sink holds and has not saved to the next execution. Called when the sink is suspended.
  package func leave(_ estate: any SinkEstate, of step: StepID) { saved.estates[plan.steps[step.number].key] = estate }

  /// Whether the previous execution has left events of this sink.
  package func hasEstate(of step: StepID) -> Bool { names(of: step).contains { restored.inherited[$0] != nil } }

  /// The estate of this sink, without taking it; nil: the previous execution has left none.
  package func estate(of step: StepID) -> (any SinkEstate)? {
    names(of: step).lazy.compactMap { self.restored.inherited[$0] }.first
  }

  /// Takes the estate that the previous execution has left of this sink; nil: it left none, or the estate has been
  /// taken already.
  package func takeEstate(of step: StepID) -> (any SinkEstate)? {
    for name in names(of: step) { if let estate = restored.inherited.removeValue(forKey: name) { return estate } }
    return nil
  }

  /// The key of a step, then its former keys.
  private func names(of step: StepID) -> [String] {
    [plan.steps[step.number].key] + plan.steps[step.number].formerKeys
  }

  /// The identity of a step's settings.
  package func settings(of step: StepID) -> StepSettingsID {
    StepSettingsID(plan.steps[step.number].fingerprint, settings.insertedValues)
  }

  /// Whether the saved state lacks events that no sender sends again: only the next version in this process has them.
  var leavesUnsaved: Bool { saved.estates.values.contains { $0.unsaved > 0 } }
}
