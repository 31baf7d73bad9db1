extension Join {
  /// The common part of all forms of a join: keys, and the output for a pair.
  class PairNode: TriggeredNode {
    final let parameters: Join
    private let builder: ValueBuilder?
    private let frame: EventFrame
    /// The keys of the kept events, as ``KeyText``.
    final let keys = KeyTable()
    final let buffer = OutputBuffer()
    /// When unmatched events are sent.
    final let emission: Emission

    init(_ parameters: Join, _ nodeContext: NodeContext, _ downstream: Downstream) {
      self.parameters = parameters
      builder = parameters.reduce.makeBuilder()
      frame = .make(nodeContext)
      emission = Emission(parameters.emit)
      super.init(trigger: parameters.signal.plan, nodeContext, downstream)
    }

    /// The other signal runs for no event.
    override final var holdsForInner: Bool { false }

    /// Writes the key of the event into `buffer`; false if it has none, and the event has then been handled.
    @inline(__always)
    final func readKey(_ event: Event, _ seen: Value?, isOther: Bool) -> Bool {
      buffer.clear()
      guard let program = isOther ? parameters.otherKey.program : parameters.key.program else { return true }
      if isOther {
        frame.set(0, seen ?? event.value)
        _ = frame.load(made(.null))
      } else if !isReadable(event, seeing: seen, frame) {
        return false
      }
      guard let failure = KeyText.failureToWrite(program, frame, to: buffer) else { return true }
      if failed(event, failure, program, frame), !isOther { emit(event) }
      return false
    }

    /// Reads the number of a saved key.
    final func key(_ state: inout StateReader) throws(StateFault) -> Int {
      try state.counted().withUnsafeBytes { bytes in
        let hash = keys.hash(bytes)
        return keys.find(bytes, hash) ?? keys.insert(bytes, hash)
      }
    }

    /// Sends a pair. `seen` and `otherSeen`: the fields of the two events that `reduce` reads, if known.
    final func send(_ event: Event, _ seen: Value?, _ other: Value, _ otherSeen: Value?) {
      guard let builder else { return emit(row(event, arena.list([event.value, other]), .onTime, .adds)) }
      frame.set(0, otherSeen ?? other)
      if let value = build(builder, event, seeing: seen ?? event.value, frame) {
        emit(row(event, value, .onTime, .adds))
      }
    }

    /// Sends an event that has no partner.
    final func sendAlone(_ event: Event, _ seen: Value?, isOther: Bool) {
      if let value = valueAlone(event, seen, isOther: isOther) { emit(row(event, value, .onTime, .adds)) }
    }

    /// The row of an event that has no partner yet, and what ``retract(_:_:isOther:)`` needs; nil: `reduce` has failed.
    final func makeEarly(_ event: Event, _ seen: Value?, isOther: Bool) -> (event: Event, kept: OwnedValue)? {
      guard let value = valueAlone(event, seen, isOther: isOther) else { return nil }
      // A list can be rebuilt identically; an expression may give another result the next time.
      return (row(event, value, .early, .adds), builder == nil ? OwnedValue() : OwnedValue(value))
    }

    /// Retracts a row of ``makeEarly(_:_:isOther:)`` that was sent.
    final func retract(_ event: Event, _ sent: OwnedValue, isOther: Bool) {
      sent.keep(in: arena)
      let value = builder == nil ? valueAlone(event, nil, isOther: isOther) : sent.value
      if let value { emit(row(event, value, .early, .retracts)) }
    }

    private func valueAlone(_ event: Event, _ seen: Value?, isOther: Bool) -> Value? {
      guard let builder else { return arena.list(isOther ? [.null, event.value] : [event.value, .null]) }
      let read = seen ?? event.value
      frame.set(0, isOther ? read : .null)
      return build(builder, event, seeing: isOther ? .null : read, frame)
    }

    @inline(__always)
    private func row(_ event: Event, _ value: Value, _ pane: Pane, _ change: RowChange) -> Event {
      guard parameters.emit != nil else { return event.with(value) }
      return Event(value, key: event.key, from: Origin.row(pane, change), position: event.position)
    }

    /// Events of a side that were dropped and are in no count of the step; the log has their numbers.
    struct Losses {
      /// The number of events dropped at the limit.
      var lost = 0
      /// The number of unmatched events not sent because the pipeline was stopping.
      var undecided = 0
    }

    /// Rejects an event that exceeds `limit`. If nothing reads rejected events or stores dead letters, the log has one
    /// line for the first such event, and at the end their number.
    final func lose(_ event: Event, of name: StaticString, _ losses: inout Losses) {
      let text = "join keeps \(Printable.count(parameters.limit, "event")) of the \(name) signal, its limit `limit`"
      if execution.keepsRejections(of: nodeContext.step) {
        reject(event, .limitReached, text)
        return
      }
      execution.tally.rejected &+= 1
      counters.pointee.rejected &+= 1
      losses.lost += 1
      if losses.lost == 1 { say(text + ": older ones were dropped before their time had passed; their number follows") }
    }

    /// Logs the number of events that a side has lost so far.
    final func report(_ losses: Losses, of name: StaticString) {
      if losses.lost > 0 {
        say(
          "join has dropped \(Printable.count(losses.lost, "event")) of the \(name) signal before their time was over")
      }
      if losses.undecided > 0 {
        say(
          "the pipeline was stopped before \(Printable.count(losses.undecided, "event")) of the \(name) signal had found a partner: dropped"
        )
      }
    }

    private func say(_ text: String) {
      let step = execution.plan.steps[nodeContext.step.number]
      execution.services.log(.warning, step.label, "\(nodeContext.location ?? step.location): \(text)")
    }
  }
}
