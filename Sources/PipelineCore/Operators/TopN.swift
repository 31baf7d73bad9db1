/// `topN`: the first events of each key by a rank, as they change.
struct TopN: FusableOperator, ChangingOperator, SpillingOperator {
  enum Order: String, ChoiceParameter {
    case descending, ascending
    var help: String {
      switch self {
      case .descending: "the greatest come first"
      case .ascending: "the least come first"
      }
    }
  }

  var by = ExpressionParameter()
  var count = 1
  var per = ExpressionParameter()
  var order = Order.descending
  var maxKeys = 10_000
  var maxRows = 1_000_000
  var idle: TimeSpan?
  /// Whether rows of its input are taken back; set when it is bound.
  private(set) var takesBack = false

  static let changesValue = true
  var sendsLater: Bool { true }

  static let spec = ComponentSpec<TopN>(
    "topN",
    summary: "Sends the first `count` events of each key by a rank, and retracts those that no longer belong.",
    details: """
      An event that is among the first is sent. One that it displaces is sent again before it, with `meta.retracts`: a sink with a key, such as `sqlite` with `mode: upsert`, \
      then deletes its row, so that the table has the first `count` of each key at any time. Of equal ranks the event with the earlier event time comes first, or else the \
      one that came before. An event that is not among the first is dropped. The rank itself is not sent, because each new event would change those of others. See \
      [results that change](../../event-time.md#results-that-change).

      Where rows of the input are retracted, such as sums that change, all rows are kept, at most `maxRows`, and the next one replaces a retracted one. \
      A key that has had no event for `idle` is forgotten, and its rows stay where they were sent to. An event that would need more than `maxKeys` keys or `maxRows` \
      rows goes to the errors output. With `state: { memory: SIZE }` at the top of the file, the keys that have not come for the longest time are kept on \
      the disk instead of in memory, each with its rows.
      """,
    parameters: [
      .init("by", \.by, primary: true, required: true, "The rank: a number, text, time or duration."),
      .init("count", \.count, required: true, range: 1...100_000, "How many are sent of each key."),
      .init("per", \.per, "The key; without it, all events are ranked together."),
      .init("order", \.order, "Which events come first."),
      .init("maxKeys", \.maxKeys, range: 1...10_000_000, "The largest number of keys."),
      .init("maxRows", \.maxRows, range: 1...100_000_000, "The largest number of events to keep, of all keys."),
      .init("idle", \.idle, range: 1...(1 << 60), applies: .with("per"), "How long a key may have no events."),
    ],
    examples: [
      .marble(
        "the two greatest", "topN: { by: event, count: 2 }", in: "-3-1-2-9-|", out: "-3-1-(12)-(29)-|"),
      .marble(
        "the least of each key", "topN: { by: event.n, count: 1, per: event.k, order: ascending }", in: "-a-b-c-|",
        out: "-a-b-(ac)-|", values: ["a": "{k: 1, n: 5}", "b": "{k: 2, n: 4}", "c": "{k: 1, n: 3}"]),
    ],
    memory: """
      The first `count` events of each key, of at most `maxKeys`; all events, at most `maxRows`, where rows of the input are retracted. With `idle`, one timer for each key.
      """,
    persistence: .state(version: 3),
    lateness: .always("a key that was idle for too long is forgotten") { top, _ in
      top.idle == nil ? "it keeps no time without 'idle'" : nil
    },
    knownAs: ["SQL ROW_NUMBER() OVER (PARTITION BY ... ORDER BY ...) <= N", "Flink Top-N", "RisingWave TopN"],
    useCases: [
      .init(
        .gathering, "keep the ten highest bids of each auction",
        "topN: { by: event.price, count: 10, per: event.auction }"),
      .init(
        .gathering, "have the customers with the largest sums",
        "topN: { by: event.total, count: 5 }"),
    ],
    seeAlso: ["latest", "groupBy", "aggregate"])

  mutating func bind(_ binder: inout Binder) { takesBack = binder.inputs.first?.changes == .pairs }

  func changes(_ input: Changes) -> Changes { .pairs }
  func understands(_ input: Changes) -> Bool { input == .pairs }

  func makeStep() -> FusedStep { Step(self) }

  final class Step: LateStep {
    private struct Row {
      var rank: OwnedValue
      /// The event time of the row.
      var time: Int64
      var event: OwnedValue
      var byteCount: Int { MemoryLayout<Row>.stride + rank.byteCount + event.byteCount }

      init(rank: OwnedValue, time: Int64, event: OwnedValue) {
        (self.rank, self.time, self.event) = (rank, time, event)
      }

      init(_ state: inout StateReader) throws(StateFault) {
        (rank, time, event) = (try state.read(), try state.read(), try state.read())
      }

      func save(_ state: inout StateWriter) {
        state.write(rank)
        state.write(time)
        state.write(event)
      }
    }

    private struct Group {
      /// Sorted; only the first `count`, unless rows can be retracted.
      var rows: [Row] = []
      /// The arrival time of the group's last event.
      var last: Instant
      /// Set only with `idle`.
      var timer = Wake.none
    }

    private let parameters: TopN
    private let rank: Program
    private let key: Program?
    private let known = KeyTable()
    /// The groups, by the number of their key.
    private var groups: [Group?] = []
    private var rowCount = 0
    private var bytes = 0
    private let pages = StatePages()
    /// The keys on the disk; nil: all stay in memory.
    private var spilled: SpilledValues?
    /// The number of their rows.
    private var rowsOnDisk = 0
    /// With `idle`, set for the first time at which a key on the disk has been idle for too long.
    private var idleOnDisk = IdleOnDisk()
    private let buffer = OutputBuffer()

    init(_ parameters: TopN) {
      self.parameters = parameters
      rank = parameters.by.required
      key = parameters.per.program
      super.init()
    }

    override var isFresh: Bool { count == 0 }

    private var count: Int { known.count + (spilled?.count ?? 0) }

    override func apply(_ event: inout Event, _ frame: EventFrame, _ run: FusedRun) -> StepVerdict {
      buffer.clear()
      if let key, let failure = KeyText.failureToWrite(key, frame, to: buffer) {
        return failed(event, failure, key, frame, run)
      }
      let value = rank.evaluate(frame)
      if value.isError { return failed(event, value, rank, frame, run) }
      let context = Context(state: frame.evaluation)
      guard context.compare(.less, value, value) != Truth.failed else {
        return refused(event, .unexpectedValue, "'by' of topN cannot rank \(value.kindName)", run)
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
      let isTakenBack = parameters.takesBack && event.retracts
      guard let found else {
        if isTakenBack { return .drop }
        guard count < parameters.maxKeys else {
          return refused(event, .limitReached, "topN has \(Printable.count(count, "key")), its limit `maxKeys`", run)
        }
        guard allRows < parameters.maxRows else { return tooMany(event, run) }
        let number = known.insert(buffer.bytes, hash)
        open(Group(last: now), at: number)
        insert(Row(rank: OwnedValue(value), time: time, event: OwnedValue(event.value)), at: 0, of: number)
        send(event.value, .early, .adds)
        return .keep
      }
      groups[found]?.last = now
      pages.mark(found)
      spilled?.change(found)
      if isTakenBack { return takeBack(event, value, found, frame, run) }
      guard let at = insertionIndex(value, time, found, context) else {
        return refused(event, .unexpectedValue, "'by' of topN cannot compare \(value.kindName) with earlier ranks", run)
      }
      let count = parameters.count
      if at >= count, !parameters.takesBack { return .drop }
      let leaving = at < count ? row(count - 1, of: found) : nil
      if leaving == nil || parameters.takesBack, allRows >= parameters.maxRows { return tooMany(event, run) }
      insert(Row(rank: OwnedValue(value), time: time, event: OwnedValue(event.value)), at: at, of: found)
      if leaving != nil, !parameters.takesBack { remove(count, of: found) }
      guard at < count else { return .keep }
      if let leaving {
        leaving.event.keep(in: run.arena)
        send(leaving.event.value, .early, .retracts)
      }
      send(event.value, .early, .adds)
      return .keep
    }

    private func takeBack(
      _ event: Event, _ rank: Value, _ number: Int, _ frame: EventFrame, _ run: FusedRun
    ) -> StepVerdict {
      guard let rows = groups[number]?.rows,
        let at = rows.firstIndex(where: {
          frame.areEqual($0.rank.value, rank) && frame.areEqual($0.event.value, event.value)
        })
      else { return .drop }
      let old = rows[at]
      let next = at < parameters.count ? row(parameters.count, of: number) : nil
      remove(at, of: number)
      if groups[number]?.rows.isEmpty == true { forget(number) }
      guard at < parameters.count else { return .keep }
      old.event.keep(in: run.arena)
      send(old.event.value, .early, .retracts)
      if let next {
        next.event.keep(in: run.arena)
        send(next.event.value, .early, .adds)
      }
      return .keep
    }

    private func tooMany(_ event: Event, _ run: FusedRun) -> StepVerdict {
      refused(event, .limitReached, "topN keeps \(Printable.count(allRows, "event")), its limit `maxRows`", run)
    }

    private var allRows: Int { rowCount + rowsOnDisk }

    private func row(_ at: Int, of number: Int) -> Row? {
      guard let rows = groups[number]?.rows, at < rows.count else { return nil }
      return rows[at]
    }

    /// The index for a row of this rank and time; nil: the ranks cannot be compared.
    private func insertionIndex(_ rank: Value, _ time: Int64, _ number: Int, _ context: Context) -> Int? {
      guard let rows = groups[number]?.rows else { return nil }
      let before: Relation = parameters.order == .descending ? .greater : .less
      var (low, high) = (0, rows.count)
      while low < high {
        let middle = (low + high) / 2
        let row = rows[middle]
        switch context.compare(before, rank, row.rank.value) {
        case Truth.failed: return nil
        case Truth.yes: high = middle
        default:
          if context.compare(before, row.rank.value, rank) == Truth.no, time < row.time {
            high = middle
          } else {
            low = middle + 1
          }
        }
      }
      return low
    }

    private func open(_ group: Group, at number: Int, mayBeOnDisk: Bool = false) {
      while groups.count <= number { groups.append(nil) }
      groups[number] = group
      pages.mark(number)
      spilled?.add(number, mayBeOnDisk: mayBeOnDisk)
      if let idle = parameters.idle { groups[number]?.timer = wake(at: group.last + idle, number) }
    }

    private func insert(_ row: Row, at index: Int, of number: Int) {
      groups[number]?.rows.insert(row, at: index)
      rowCount += 1
      bytes += row.byteCount
      countKept()
    }

    private func remove(_ index: Int, of number: Int) {
      guard let row = groups[number]?.rows.remove(at: index) else { return }
      rowCount -= 1
      bytes -= row.byteCount
      countKept()
    }

    private func forget(_ number: Int) {
      spilled?.forget(number, known.text(number))
      removeKey(number)
    }

    private func removeKey(_ number: Int) {
      guard var group = groups[number] else { return }
      cancelWake(&group.timer)
      rowCount -= group.rows.count
      bytes -= group.rows.reduce(0) { $0 + $1.byteCount }
      groups[number] = nil
      pages.mark(number)
      known.remove(number)
      countKept()
    }

    private func countKept() {
      keptSize.set(keys: count, events: allRows, bytes: known.textBytes + bytes)
      spilled?.setBytes(
        known.textBytes + bytes + known.count
          * (KeyTable.bytes(of: 0) + MemoryLayout<Group?>.stride + Self.bytesOfArray),
        keys: known.count)
    }

    /// The bytes of an array before its elements.
    private static let bytesOfArray = 32

    // MARK: Keys on the disk

    /// Takes a key back from the disk, if it is there; returns its number.
    private func comeBack(
      _ text: UnsafeRawBufferPointer, _ hash: UInt64, _ spilled: SpilledValues
    ) throws(SpillFault) -> Int? {
      let hasTime = parameters.idle != nil
      let now = now
      let found = try spilled.comeBack(text, run.executor) { (state) throws(StateFault) in
        var group = Group(last: hasTime ? spilled.epoch + TimeSpan(nanoseconds: try state.read()) : now)
        for _ in 0..<(try state.count()) { group.rows.append(try Row(&state)) }
        return group
      }
      guard let found else { return nil }
      let number = known.insert(text, hash)
      open(found, at: number, mayBeOnDisk: true)
      rowsOnDisk -= found.rows.count
      rowCount += found.rows.count
      bytes += found.rows.reduce(0) { $0 + $1.byteCount }
      countKept()
      return number
    }

    /// Moves keys that have not come for long to the disk, while there is no room for all.
    private func makeRoom() {
      guard let spilled, spilled.needsRoom(known.count) else { return }
      let context = StateWriter.Context(run.executor, StateTable.Builder(), .taken)
      spilled.makeRoom(
        text: known.text,
        record: { number in
          guard let group = groups[number] else { return nil }
          var value = StateWriter(context)
          var times: [Int64?] = []
          if let idle = parameters.idle {
            let last = (group.last - spilled.epoch).nanoseconds
            value.write(last)
            times = [last &+ idle.nanoseconds]
          }
          value.write(each: group.rows) { $1.save(&$0) }
          defer { context.fault = nil }
          // What cannot be read again stays in memory.
          return context.fault == nil ? SpilledValues.Record(value: value.bytes, times: times) : nil
        },
        leave: { numbers in
          for number in numbers {
            rowsOnDisk += groups[number]?.rows.count ?? 0
            removeKey(number)
          }
        })
      setIdleTimer()
    }

    private func setIdleTimer() {
      guard let spilled, parameters.idle != nil else { return }
      idleOnDisk.set(self, known, spilled)
    }

    private func take(_ spilled: SpilledValues) {
      self.spilled = spilled
      spilled.takeAll(groups.indices.filter { groups[$0] != nil })
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
      guard let idle = parameters.idle, token < groups.count, let group = groups[token] else { return }
      groups[token]?.timer = .none
      if group.last + idle > now { groups[token]?.timer = wake(at: group.last + idle, token) } else { forget(token) }
    }

    override func stopped() {
      idleOnDisk.cancel(self)
      spilled = nil
      for number in groups.indices where groups[number] != nil { forget(number) }
    }

    // MARK: State

    /// With `idle`, the times at which keys have been idle for too long are in an index.
    private var indexes: Int { parameters.idle == nil ? 0 : 1 }

    override func save(_ state: inout StateWriter) {
      state.write(pages, keys: groups.count) { state, numbers in
        for number in numbers {
          guard let group = groups[number] else { continue }
          state.append(counted: known.text(number))
          state.write(group.last)
          state.write(each: group.rows) { $1.save(&$0) }
        }
      }
      if spilled == nil, let spilling = state.spilling(pages) {
        take(SpilledValues(spilling, owner: state.newOwner(), epoch: state.now, indexes: indexes))
      }
      guard let spilled else { return }
      spilled.save(&state)
      if spilled.isUsed { state.write(rowsOnDisk) }
    }

    override func restore(_ state: inout StateReader) throws(StateFault) {
      guard state.version < 2 else {
        try state.readPages(pages, restoreGroup)
        guard !state.isAtEnd else { return }
        let spilled = try SpilledValues(&state, indexes: indexes, hasGone: true)
        rowsOnDisk = try state.read(in: 0...Int.max / 2)
        take(spilled)
        return setIdleTimer()
      }
      for _ in 0..<(try state.count()) { try restoreGroup(&state, nil) }
    }

    private func restoreGroup(_ state: inout StateReader, _ number: Int?) throws(StateFault) {
      guard let number = known.insertNew(try state.counted(), at: number) else {
        throw StateFault("a key is repeated")
      }
      open(Group(last: try state.read()), at: number)
      for index in 0..<(try state.count()) {
        insert(try Row(&state), at: index, of: number)
      }
    }
  }
}
