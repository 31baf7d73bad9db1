/// `latest`: the newest event of each key, as it changes.
struct Latest: FusableOperator, ChangingOperator, SpillingOperator {
  var by = ExpressionParameter()
  var pairs = false
  var maxKeys = 10_000
  var idle: TimeSpan?
  /// Whether rows of its input are taken back; set when it is bound.
  private(set) var takesBack = false

  static let changesValue = true
  var sendsLater: Bool { true }

  static let spec = ComponentSpec<Latest>(
    "latest",
    summary: "Sends the newest event of each key, each time it changes.",
    details: """
      An event takes the place of the one before with the same key, unless it is older by its event time, or equal to it: then it is dropped. `meta.replaces` says whether \
      there was one. With `pairs`, that one is sent again first, with `meta.retracts`, for what cannot replace rows by a key. A sink with a key, such as \
      `sqlite` with `mode: upsert`, then has one row for each key. Where rows of the input are retracted, the newest one of a key is retracted, too. \
      See [results that change](../../event-time.md#results-that-change).

      A key that has had no event for `idle` is forgotten, and its row stays where it was sent to. An event that would need more than `maxKeys` keys goes to the errors output. \
      With `state: { memory: SIZE }` at the top of the file, the keys that have not come for the longest time are kept on the disk instead of in memory.
      """,
    parameters: [
      .init("by", \.by, primary: true, required: true, "The key: a text, number, boolean, null or a list of these."),
      .init("pairs", \.pairs, "Retract an event before another replaces it."),
      .init("maxKeys", \.maxKeys, range: 1...1_000_000_000, "The largest number of keys."),
      .init("idle", \.idle, range: 1...(1 << 60), "How long a key may have no events."),
    ],
    examples: [
      .marble(
        "by a field", "latest: event.id", in: "a-b-c-a-|", out: "a-b-c-a-|",
        values: ["a": "{id: 1, n: 1}", "b": "{id: 2, n: 1}", "c": "{id: 1, n: 2}"]),
      .marble("the same again", "latest: event % 10", in: "1-1-2-1-|", out: "1---2---|"),
      .marble(
        "in pairs", "latest: { by: event % 10, pairs: true }", in: "a-b-|", out: "a-(ab)-|",
        values: ["a": "1", "b": "11"]),
    ],
    memory: "The newest event of each key, at most `maxKeys`; with `idle`, one timer each.",
    persistence: .state(version: 3),
    lateness: .always("a key that was idle for too long is forgotten") { latest, _ in
      latest.idle == nil ? "it keeps no time without 'idle'" : nil
    },
    knownAs: ["SQL ROW_NUMBER() ... = 1", "Flink deduplication (keep last row)", "ksqlDB LATEST_BY_OFFSET"],
    useCases: [
      .init(.gathering, "keep the last state of each device", "latest: event.device"),
      .init(.gathering, "keep the last bid of each bidder in each auction", "latest: '[event.bidder, event.auction]'"),
    ],
    seeAlso: ["topN", "groupBy", "aggregate"])

  mutating func bind(_ binder: inout Binder) { takesBack = binder.inputs.first?.changes == .pairs }

  func changes(_ input: Changes) -> Changes { pairs || input == .pairs ? .pairs : .rows }
  func understands(_ input: Changes) -> Bool { true }

  func makeStep() -> FusedStep { Step(self) }

  final class Step: LateStep {
    private struct Kept {
      var event: OwnedValue
      /// The event time of the event.
      var time: Int64
      /// The arrival time of the last event with this key.
      var last: Instant
      /// Set only with `idle`.
      var timer = Wake.none
    }

    private let parameters: Latest
    private let program: Program
    private let pairs: Bool
    private let known = KeyTable()
    /// The entries, by the number of their key.
    private var kept: [Kept?] = []
    private var bytes = 0
    private let pages = StatePages()
    /// The keys on the disk; nil: all stay in memory.
    private var spilled: SpilledValues?
    /// With `idle`, set for the first time at which a key on the disk has been idle for too long.
    private var idleOnDisk = IdleOnDisk()
    private let buffer = OutputBuffer()

    init(_ parameters: Latest) {
      self.parameters = parameters
      program = parameters.by.required
      pairs = parameters.changes(parameters.takesBack ? .pairs : .none) == .pairs
      super.init()
    }

    override var isFresh: Bool { count == 0 }

    private var count: Int { known.count + (spilled?.count ?? 0) }

    override func apply(_ event: inout Event, _ frame: EventFrame, _ run: FusedRun) -> StepVerdict {
      if let failure = KeyText.failureToWrite(program, frame, to: buffer) {
        return failed(event, failure, program, frame, run)
      }
      let hash = known.hash(buffer.bytes)
      var found = known.find(buffer.bytes, hash)
      if found == nil, let spilled, spilled.count > 0 {
        do throws(SpillFault) { found = try comeBack(buffer.bytes, hash, spilled) } catch {
          return refused(event, .keysUnreadable, "the keys on the disk cannot be read: \(error.message)", run)
        }
      }
      defer { makeRoom() }
      let time = run.executor.eventTime
      if parameters.takesBack, event.retracts {
        guard let number = found, let old = kept[number], frame.areEqual(old.event.value, event.value) else {
          return .drop
        }
        forget(number)
        old.event.keep(in: run.arena)
        send(old.event.value, .early, .retracts)
        return .keep
      }
      guard let number = found else {
        guard count < parameters.maxKeys else {
          return refused(
            event, .limitReached, "latest has \(Printable.count(count, "key")), its limit `maxKeys`", run)
        }
        insert(Kept(event: OwnedValue(event.value), time: time, last: now), at: known.insert(buffer.bytes, hash))
        send(event.value, .early, .adds)
        return .keep
      }
      guard let old = kept[number] else { return .drop }
      pages.mark(number)
      kept[number]?.last = now
      spilled?.change(number)
      if time < old.time || frame.areEqual(old.event.value, event.value) {
        if time > old.time { kept[number]?.time = time }
        return .drop
      }
      let new = OwnedValue(event.value)
      kept[number]?.event = new
      kept[number]?.time = time
      bytes += new.byteCount - old.event.byteCount
      countKept()
      if pairs {
        old.event.keep(in: run.arena)
        send(old.event.value, .early, .retracts)
      }
      send(event.value, .early, pairs ? .adds : .replaces)
      return .keep
    }

    private func insert(_ new: Kept, at number: Int, mayBeOnDisk: Bool = false) {
      while kept.count <= number { kept.append(nil) }
      kept[number] = new
      pages.mark(number)
      if let idle = parameters.idle { kept[number]?.timer = wake(at: new.last + idle, number) }
      spilled?.add(number, mayBeOnDisk: mayBeOnDisk)
      bytes += new.event.byteCount
      countKept()
    }

    private func forget(_ number: Int) {
      spilled?.forget(number, known.text(number))
      remove(number)
    }

    private func remove(_ number: Int) {
      guard var old = kept[number] else { return }
      cancelWake(&old.timer)
      bytes -= old.event.byteCount
      kept[number] = nil
      pages.mark(number)
      known.remove(number)
      countKept()
    }

    private func countKept() {
      keptSize.set(keys: count, bytes: known.textBytes + bytes)
      spilled?.setBytes(
        known.textBytes + bytes + known.count * (KeyTable.bytes(of: 0) + MemoryLayout<Kept?>.stride), keys: known.count)
    }

    // MARK: Keys on the disk

    /// Takes a key back from the disk, if it is there; returns its number.
    private func comeBack(
      _ text: UnsafeRawBufferPointer, _ hash: UInt64, _ spilled: SpilledValues
    ) throws(SpillFault) -> Int? {
      let hasTime = parameters.idle != nil
      let now = now
      let found = try spilled.comeBack(text, run.executor) { (state) throws(StateFault) in
        Kept(
          event: try state.read(), time: try state.read(),
          last: hasTime ? spilled.epoch + TimeSpan(nanoseconds: try state.read()) : now)
      }
      guard let found else { return nil }
      let number = known.insert(text, hash)
      insert(found, at: number, mayBeOnDisk: true)
      return number
    }

    /// Moves keys that have not come for long to the disk, while there is no room for all.
    private func makeRoom() {
      guard let spilled, spilled.needsRoom(known.count) else { return }
      let context = StateWriter.Context(run.executor, StateTable.Builder(), .taken)
      spilled.makeRoom(
        text: known.text,
        record: { number in
          guard let entry = kept[number] else { return nil }
          var value = StateWriter(context)
          value.write(entry.event)
          value.write(entry.time)
          var times: [Int64?] = []
          if let idle = parameters.idle {
            let last = (entry.last - spilled.epoch).nanoseconds
            value.write(last)
            times = [last &+ idle.nanoseconds]
          }
          defer { context.fault = nil }
          // What cannot be read again stays in memory.
          return context.fault == nil ? SpilledValues.Record(value: value.bytes, times: times) : nil
        },
        leave: { for number in $0 { remove(number) } })
      setIdleTimer()
    }

    private func setIdleTimer() {
      guard let spilled, parameters.idle != nil else { return }
      idleOnDisk.set(self, known, spilled)
    }

    private func take(_ spilled: SpilledValues) {
      self.spilled = spilled
      spilled.takeAll(kept.indices.filter { kept[$0] != nil })
      countKept()
    }

    /// The timer is not moved for each event; when it fires too early, it is set again.
    override func timeCame(_ token: Int) {
      if token == IdleOnDisk.token {
        if let spilled {
          idleOnDisk.timeCame(
            self, known, spilled, { (text, hash) throws(SpillFault) in try comeBack(text, hash, spilled) },
            forget: forget)
        }
        return
      }
      guard let idle = parameters.idle, token < kept.count, let entry = kept[token] else { return }
      kept[token]?.timer = .none
      if entry.last + idle > now { kept[token]?.timer = wake(at: entry.last + idle, token) } else { forget(token) }
    }

    override func stopped() {
      idleOnDisk.cancel(self)
      spilled = nil
      for number in kept.indices where kept[number] != nil { forget(number) }
    }

    /// With `idle`, the times at which keys have been idle for too long are in an index.
    private var indexes: Int { parameters.idle == nil ? 0 : 1 }

    override func save(_ state: inout StateWriter) {
      state.write(pages, keys: kept.count) { state, numbers in
        for number in numbers {
          guard let entry = kept[number] else { continue }
          state.append(counted: known.text(number))
          state.write(entry.event)
          state.write(entry.time)
          state.write(entry.last)
        }
      }
      if spilled == nil, let spilling = state.spilling(pages) {
        take(SpilledValues(spilling, owner: state.newOwner(), epoch: state.now, indexes: indexes))
      }
      spilled?.save(&state)
    }

    override func restore(_ state: inout StateReader) throws(StateFault) {
      func read(_ state: inout StateReader, _ number: Int?) throws(StateFault) {
        guard let number = known.insertNew(try state.counted(), at: number) else {
          throw StateFault("a key is repeated")
        }
        insert(Kept(event: try state.read(), time: try state.read(), last: try state.read()), at: number)
      }
      guard state.version < 2 else {
        try state.readPages(pages, read)
        guard !state.isAtEnd else { return }
        take(try SpilledValues(&state, indexes: indexes, hasGone: state.version > 2))
        return setIdleTimer()
      }
      for _ in 0..<(try state.count()) { try read(&state, nil) }
    }
  }
}
