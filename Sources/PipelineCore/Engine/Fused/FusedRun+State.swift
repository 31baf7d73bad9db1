/// The state of the steps. Each step has its own record, which it finds again even if other steps surround it.
extension FusedRun {
  func recordSteps(_ own: OwnSteps?, _ state: inout StateWriter) {
    for (index, component) in components.enumerated() {
      let version = component.persistence.version
      guard version > 0 else { continue }
      let step = own?[index] ?? steps[index].step
      state.record(.step(steps[index].id, version: version)) { state in
        step._withUnsafeGuaranteedRef { state.own(steps[index].id, $0.save) }
      }
    }
  }

  func restoreSteps(_ restoration: Restoration) {
    for (index, component) in components.enumerated() {
      let version = component.persistence.version
      guard var record = restoration.record(steps[index].id, version: version) else { continue }
      restoreStep(index, &record.reader, version: record.version, restoration, of: nil)
    }
  }

  /// Restores the steps of one of many chains from its record by ``recordSteps(_:_:)``.
  func restoreSteps(
    _ records: inout StateReader, _ restoration: Restoration, of chain: FusedChain
  ) throws(StateFault) {
    // The steps may be in another order than when they were saved.
    var seen: UInt64 = 0
    while !records.isAtEnd {
      let entry = Int(truncatingIfNeeded: try records.read(UInt64.self))
      var reader = try records.part()
      restoration.isPartOfPage(entry)
      guard let id = restoration.step(of: entry), let index = steps.firstIndex(where: { $0.id == id }) else { continue }
      let bit: UInt64 = 1 << UInt64(index & 63)
      guard index > 63 || seen & bit == 0 else { throw StateFault("a step is repeated") }
      seen |= bit
      if let version = restoration.prepare(&reader, entry, of: id, version: components[index].persistence.version) {
        restoreStep(index, &reader, version: version, restoration, of: chain)
      }
    }
  }

  /// - Parameter restoration: Nil: the state was on the disk.
  private func restoreStep(
    _ index: Int, _ reader: inout StateReader, version: Int, _ restoration: Restoration?, of chain: FusedChain?
  ) {
    let own = chain?.steps
    let step = own?[index] ?? steps[index].step
    let waking = late.contains(index) ? lateStep(index, own) : nil
    reader.begin(version: version, target: waking ?? self)
    var fault: StateFault?
    step._withUnsafeGuaranteedRef { step in
      do throws(StateFault) {
        try step.restore(&reader)
        if !reader.isAtEnd { fault = StateFault("the state has more data than the step reads") }
      } catch { fault = error }
    }
    guard let fault else {
      waking?.isRestored = true
      return
    }
    if let restoration {
      restoration.refuse(steps[index].id, fault)
    } else {
      let step = execution.plan.steps[steps[index].id.number]
      execution.services.log(
        .error, step.label, "what the disk has of a group cannot be used, so it starts empty: \(fault.message)")
    }
    let fresh = Unmanaged.passRetained(components[index].makeStep())
    fresh._withUnsafeGuaranteedRef { $0.keptSize.attach(steps[index].counters) }
    if let own { own[index] = fresh } else { steps[index].step = fresh }
    if late.contains(index), let chain = chain ?? ownChain {
      unsafeDowncast(step.takeUnretainedValue(), to: LateStep.self).stop()
      lateStep(index, own).attach(to: chain, of: self, at: index)
    }
    step._withUnsafeGuaranteedRef { $0.keptSize.end() }
    step.release()
  }

  // MARK: Chains on the disk

  /// The state of one step of a chain that was on the disk.
  struct MovedStep {
    fileprivate var index: Int
    fileprivate var version: Int
    fileprivate var reader: StateReader
  }

  /// Writes the states of a chain's steps, so that they can be read while the run goes on, or in a later one.
  func writeMoved(_ own: OwnSteps, _ state: inout StateWriter) {
    state.write(each: steps.indices.filter { components[$0].persistence.version > 0 }) { state, index in
      state.append(fixed: identities[index])
      state.write(components[index].persistence.version)
      state.part { state in own[index]._withUnsafeGuaranteedRef { $0.save(&state) } }
    }
  }

  /// Reads what ``writeMoved(_:_:)`` has written, but for steps that the chain no longer has.
  func readMoved(_ state: inout StateReader) throws(StateFault) -> [MovedStep] {
    var found: [MovedStep] = []
    for _ in 0..<(try state.count()) {
      let identity = try state.fixed64()
      let version: Int = try state.read()
      let reader = try state.part()
      guard let index = identities.firstIndex(of: identity) else { continue }
      guard (1...components[index].persistence.version).contains(version) else {
        throw StateFault("a step of a group has the version \(version)")
      }
      found.append(MovedStep(index: index, version: version, reader: reader))
    }
    return found
  }

  func restoreMoved(_ moved: [MovedStep], of chain: FusedChain) {
    for var step in moved { restoreStep(step.index, &step.reader, version: step.version, nil, of: chain) }
  }
}
