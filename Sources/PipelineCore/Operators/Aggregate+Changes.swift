extension Aggregate {
  /// Figures that are sent as they change.
  final class ChangingStep: LateStep {
    let figures: Figures
    private let emission: Emission
    private let takesBack: Bool
    /// The last result that was sent and not retracted; stored only where it may have to be retracted.
    private var sent: OwnedValue?
    /// Whether the figures differ from the last result that was sent.
    private var hasChanged = false
    private var sentAt: Instant?
    /// Set while a change waits for its time.
    private var timer = Wake.none

    init(_ figures: Figures, _ emission: Emission, takesBack: Bool) {
      self.figures = figures
      self.emission = emission
      self.takesBack = takesBack
      super.init()
    }

    private var keepsRow: Bool { emission.pairs || takesBack }

    override func apply(_ event: inout Event, _ frame: EventFrame, _ run: FusedRun) -> StepVerdict {
      if let refusal = figures.form.evaluate(frame)
        ?? (takesBack && event.retracts ? figures.takeBack(frame) : figures.add(frame, at: 0))
      {
        return refused(event, refusal, frame, run)
      }
      hasChanged = true
      countKept()
      if !timer.isSet {
        let due = emission.due(now, sentAt: sentAt, isLate: false)
        if due <= now { send(.early) } else if due != .distantFuture { timer = wake(at: due) }
      }
      return .keep
    }

    private func countKept() {
      keptSize.set(keys: figures.keys, bytes: figures.bytes &+ (sent?.byteCount ?? 0))
    }

    override func timeCame(_ token: Int) {
      timer = .none
      if hasChanged { send(.early) }
    }

    /// Sends the figures as a replacement of the previous ones.
    private func send(_ pane: Pane) {
      hasChanged = false
      sentAt = now
      let frame = frame
      let nothing = Event(.null, key: chain.key)
      _ = frame.load(nothing)
      var row: OwnedValue?
      let isEmpty = takesBack && figures.events == 0 && sent != nil
      if !isEmpty {
        var failing: Unmanaged<Program>?
        var value = figures.form.build(figures, frame, &failing)
        if value.isError, let failing {
          guard failed(nothing, value, failing.takeUnretainedValue(), frame, run) == .pass else {
            countMade()
            return
          }
          value = .null
        }
        row = OwnedValue(value)
      }
      let before = sent
      sent = row.map { keepsRow ? $0 : OwnedValue() }
      countKept()
      if let before, keepsRow, emission.pairs || row == nil {
        before.keep(in: run.arena)
        send(before.value, pane, .retracts)
      }
      if let row {
        row.keep(in: run.arena)
        send(row.value, pane, before != nil && !emission.pairs ? .replaces : .adds)
      }
    }

    override var nextOutput: Due? { due(timer) }

    override func sendNextOutput() {
      cancelWake(&timer)
      if hasChanged { send(.early) }
    }

    override func complete(_ run: FusedRun) -> Value? {
      cancelWake(&timer)
      let isGone = takesBack && figures.events == 0 && sent == nil && sentAt != nil
      if !isGone, emission.update == nil || hasChanged || sent == nil { send(.onTime) }
      return nil
    }

    override func stopped() { cancelWake(&timer) }

    override func save(_ state: inout StateWriter) {
      figures.save(&state)
      state.write(sent)
      state.write(hasChanged)
      state.write(sentAt)
      state.write(timer)
    }

    override func restore(_ state: inout StateReader) throws(StateFault) {
      try figures.restore(&state)
      sent = try state.read()
      hasChanged = try state.read()
      sentAt = try state.read()
      timer = try state.read()
      countKept()
    }
  }
}
