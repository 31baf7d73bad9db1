extension SinkPlan {
  /// The key of the sink's position in a saved state.
  var positionReference: String { "\(reference).place" }
}

extension RootSubscriber {
  /// The key of the root subscriber in a saved state.
  static func reference(_ signal: String) -> String { "drivers.\(signal)" }
}

extension Execution {
  /// The state of the pipeline: operators, timers, inner signals, positions of sources. Call it between two turns.
  ///
  /// An execution of the same pipeline that is launched with this state continues where this one is. Requests under way
  /// are sent again. Unread input is not part of the state; of the events that a sink holds, the state has those that
  /// the sink saves (``RunningSink/save(_:)``). Nil if the pipeline has ended or is about to: nothing is left to
  /// continue.
  ///
  /// - Parameters:
  ///   - keeping: Whether the events that a sink holds are part of the state.
  ///   - positions: With `.acknowledged`, sources continue before the first event that is not acknowledged. Steps have
  ///     seen the events after it and see them again, so this fits pipelines whose steps keep nothing;
  ///     ``checkpoint(_:)`` fits all. The result is also nil while events of an ended source are not acknowledged: an
  ///     older state stays valid.
  package func saveState(
    keeping: (SinkPlan) -> Bool = { _ in true }, positions: SavedPositions = .taken
  ) -> [UInt8]? {
    if positions == .acknowledged, hasUnacknowledgedEnd { return nil }
    return draftState(keeping: keeping, positions: positions).map { finishState($0).bytes }
  }

  /// The state as ``saveState(keeping:positions:)`` returns it, without the events that sinks hold, in parts.
  ///
  /// - Parameter paging: Takes the pages that have changed since the last state with pages; they must reach the store
  ///   before this state. Nil: no state is in pages. If it has no room for some pages (``StatePaging/left``), the
  ///   result is nil, and the pages written so far wait for the next call, after another turn.
  package func saveParts(_ paging: StatePaging? = nil) -> SavedState? {
    let draft = draftState(keeping: { _ in false }, paging: paging)
    guard let draft else { return nil }
    saved.size = draft.records.bytes.count
    return paging?.left ?? 0 > 0 ? nil : finishState(draft)
  }

  /// The outcome of a checkpoint.
  package enum Checkpoint: Sendable, Equatable {
    /// Every effect of the turns up to the checkpoint is acknowledged: an execution that is launched with this state
    /// loses nothing, and repeats only the effects of later turns.
    case acknowledged([UInt8])
    /// An earlier event was not delivered, with the reason. An older checkpoint stays valid.
    case failed(String)
  }

  /// Captures the present state, with the positions up to which turns have taken the input, and passes it on once every
  /// effect of the turns so far is acknowledged: sinks have written what they held, and inner signals have their
  /// answers. The state of steps is included.
  ///
  /// Called between two turns, or at the start of one. `done` is called once, on any thread, in the order of the
  /// checkpoints.
  /// - Returns: False if the pipeline has ended or is about to; `done` is not called.
  package func checkpoint(_ done: @escaping @Sendable (Checkpoint) -> Void) -> Bool {
    guard let state = saveState(keeping: { _ in false }) else { return false }
    whenAcknowledged { outcome in
      switch outcome {
      case .acknowledged: done(.acknowledged(state))
      case .failed(let reason): done(.failed(reason))
      }
    }
    return true
  }

  /// Calls `done` once, on any thread, when every effect of the turns so far is acknowledged or has failed. Sinks write
  /// and acknowledge the events that they have taken without waiting for more.
  func whenAcknowledged(_ done: @escaping @Sendable (Ack.Outcome) -> Void) {
    executor.setCheckpoint(done)
    for sink in sinks where sink.isOpen { sink.node.acknowledgeSoon() }
  }

  /// Whether there is a state to save: the pipeline has begun and has not ended.
  var hasState: Bool {
    outcome == nil && !isStopping && !tables.areLoading && (!sinks.isEmpty || !rootSubscribers.isEmpty)
  }

  /// A state to which the positions of sources can still be added.
  struct StateDraft {
    fileprivate let table: StateTable.Builder
    fileprivate let context: StateWriter.Context
    fileprivate var records: StateWriter
    /// The ends of records that change independently of each other.
    fileprivate var ends: [Int] = []

    /// All ends, in order.
    fileprivate var allEnds: [Int] { (ends + records.cuts.filter { $0 <= records.bytes.count }).sorted() }
  }

  /// Writes the state of everything that runs.
  func draftState(
    keeping: (SinkPlan) -> Bool = { _ in true }, positions: SavedPositions = .taken, paging: StatePaging? = nil
  ) -> StateDraft? {
    guard hasState else { return nil }
    let table = paging.flatMap { _ in saved.table } ?? StateTable.Builder(plan)
    if paging != nil {
      table.beginAgain()
      saved.table = table
    }
    let context = StateWriter.Context(executor, table, positions, paging: paging, startOfPages: saved.startOfPages)
    var state = StateWriter(context, capacity: saved.size + saved.size / 8)
    var ends: [Int] = []
    for (index, sink) in plan.sinks.enumerated() {
      defer { ends.append(state.bytes.count) }
      let open = sinks[index]
      let status: SinkStatus = !open.isOpen ? .drained : open.node.hasCompleted ? .ended : .open
      state.record(.reference(sink.reference)) { $0.write(status.rawValue) }
      if open.isPersistent, status != .drained, keeping(sink), !open.node.keepsNothing {
        let key = StateTable.Key.step(
          sink.step, version: open.persistence.version, fitsOtherParameters: open.persistence.fitsOtherParameters)
        state.record(key) { state in state.own(sink.step, open.node.save) }
      }
      if open.node.positionVersion > 0, status != .drained {
        state.record(.reference(sink.positionReference)) { state in
          state.write(open.node.positionVersion)
          open.node.savePosition(&state)
        }
      }
      if status == .open { record(open.upstream, of: sink.input, &state) }
    }
    for (index, rootSubscriber) in zip(plan.rootSubscribers, rootSubscribers) {
      state.record(.reference(RootSubscriber.reference(plan.named[index].name))) { $0.write(rootSubscriber.hasEnded) }
      if let upstream = rootSubscriber.upstream, let signal = rootSubscriber.signal {
        record(upstream, of: signal, &state)
      }
      ends.append(state.bytes.count)
    }
    for tap in taps { tap.record(self, &state) }
    for signal in named {
      signal.record(&state)
      ends.append(state.bytes.count)
    }
    return StateDraft(table: table, context: context, records: state, ends: ends)
  }

  /// Adds the positions of sources that were closed in this turn, and encodes the state.
  func finishState(_ draft: StateDraft) -> SavedState {
    let table = draft.table
    let context = draft.context
    var records = draft.records
    for source in sources.justClosed where !table.hasRecord(of: source.nodeContext.step) { source.record(&records) }
    var origins = StateWriter(context)
    origins.writeOrigins(haveIdentities: context.paging?.owners.isEmpty == false)
    saved.sizes = table.sizes.enumerated().reduce(into: [:]) {
      if $1.element > 0 { $0[StepID($1.offset)] = $1.element }
    }
    saved.faults = table.faults.map { key, fault in
      let step: StepPlan? = if case .step(let id, _, _) = key { plan.steps[id.number] } else { nil }
      return Diagnostic(
        .stateRefused, "the state of '\(step?.label ?? "a reference")' cannot be saved: \(fault.message)",
        at: step?.location, help: "It starts empty when the pipeline starts again")
    }
    var state = StateWriter(context, capacity: records.bytes.count + origins.bytes.count + 4096)
    for byte in StateTable.magic { state.append(byte) }
    let owners = context.paging?.owners ?? []
    let format = StateTable.Format(
      hasIdentities: origins.hasIdentities || !owners.isEmpty, hasPages: !owners.isEmpty)
    state.append(format.byte)
    let length = state.bytes.count
    if format.hasPages {
      state.append(fixed: 0)
      state.write((executor.now - saved.startOfPages).nanoseconds)
    }
    state.write(executor.wallTime)
    state.write(executor.lastTimer)
    state.write(wirings.lastSubscription)
    state.write(each: table.entries)
    state.write(each: zip(plan.named, SignalDefinitions.all(plan)).map { ($0.name, $1) }) {
      $0.write($1.0)
      $0.append(fixed: $1.1)
    }
    if format.hasPages {
      state.write(each: owners) {
        $0.write($1.entry)
        $0.write($1.pages.bytes)
      }
    }
    state.append(origins)
    let head = state.bytes.count + StateWriter.partHead
    state.part { $0.append(records) }
    if format.hasPages { state.set(fixed: UInt64(state.bytes.count + 8), at: length) }
    state.append(fixed: format.checksum(state.bytes[...]))
    saved.size = state.bytes.count
    var result = SavedState(state.bytes, ends: [head] + draft.allEnds.map { head + $0 })
    result.pages = context.paging?.takePages() ?? []
    result.owners = Set(owners.map(\.pages.owner))
    result.spilled = context.spilled
    return result
  }

  /// Restores the position of a sink, and its undelivered events.
  func restore(
    _ node: RunningSink, _ sink: SinkPlan, _ component: any SinkComponent, _ restoration: Restoration
  ) {
    if node.positionVersion > 0, let record = restoration.record(reference: sink.positionReference) {
      do throws(StateFault) {
        try restorePosition(node, record)
      } catch {
        restoration.refuse(sink.step, error)
      }
    }
    let version = component.persistence.version
    guard version > 0, let record = restoration.record(sink.step, version: version) else { return }
    // A sink with an outbox saves nothing; rxd also accepts an empty record, which older versions wrote.
    if record.reader.remaining == 0 { return }
    var reader = record.reader.reader(
      version: record.version, target: nil, hasOtherParameters: restoration.hasChanged(sink.step))
    do throws(StateFault) {
      try node.restore(&reader)
      guard reader.isAtEnd else { throw StateFault("the state has more data than the sink reads") }
    } catch {
      restoration.refuse(sink.step, error)
    }
  }

  private func restorePosition(_ node: RunningSink, _ record: StateReader) throws(StateFault) {
    var record = record
    let version = try record.read(Int.self)
    guard version > 0, version <= node.positionVersion else {
      throw StateFault(
        "its saved position has version \(version), but this version of rxd reads \(node.positionVersion)")
    }
    var reader = record.reader(version: version, target: nil)
    try node.restorePosition(&reader)
    guard reader.isAtEnd else { throw StateFault("the state has more data than the sink reads") }
  }

  /// Writes the records of everything that runs for `subscription`.
  func record(_ subscription: any Subscription, of signal: SignalPlan, _ state: inout StateWriter) {
    guard !subscription.isClosed else { return }
    let subscription = (subscription as? KeyedInput)?.upstream ?? subscription
    switch signal.origin {
    case .named(let index) where plan.named[index].isCold:
      // Each reference to a cold signal has its own instance.
      state.record(.reference(signal.reference)) { state in
        record(subscription, of: plan.named[index].body, &state)
      }
    case .named, .errors:
      guard let numbered = subscription as? any NumberedSubscription else { return }
      state.record(.reference(signal.reference)) { $0.write(numbered.serial) }
    case .input: break
    case nil: (subscription as? OperatorNode)?.record(&state)
    }
  }

  /// Runs `signal` with the state that it had when it was saved.
  func restore(
    _ signal: SignalPlan, _ scope: Scope, to edge: Edge, _ restoration: Restoration
  ) -> any Subscription {
    switch signal.origin {
    case .named(let index):
      let record = restoration.record(reference: signal.reference)
      guard plan.named[index].isCold else {
        let serial = record.flatMap { restoration.serial($0) }
        return restoration.within(restoration.root) { named[index].subscribe(edge, serial: serial) }
      }
      let section = record.flatMap { try? Restoration.Section($0) } ?? .init()
      return restoration.within(section) { runCold(index, scope, to: edge) }
    case .errors(let owner):
      let record = restoration.record(reference: signal.reference)
      return errorsOutput(owner).subscribe(edge, serial: record.flatMap { restoration.serial($0) })
    case .input: return subscribeInput(scope, edge)
    case nil:
      let node = makeNode(signal, scope, edge)
      if let run = node as? FusedRun {
        run.restoreSteps(restoration)
        run.start()
        return run
      }
      let version = node.persistence.version
      guard let record = restoration.record(signal.step, version: version) else {
        node.begin(restoring: nil)
        return node
      }
      do throws(StateFault) {
        try node.restore(record: record.reader, version: record.version, restoration)
        node.begin(restoring: version)
        return node
      } catch {
        restoration.refuse(signal.step, error)
        node.giveUp()
        let fresh = makeNode(signal, scope, edge)
        fresh.begin(restoring: nil)
        return fresh
      }
    }
  }
}
