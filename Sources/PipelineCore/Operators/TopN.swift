/// `topN`: the first events of each key by a rank, as they change.
struct TopN: FusableOperator, ChangingOperator {
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
      rows goes to the errors output.
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
    persistence: .state(version: 2),
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
    private let buffer = OutputBuffer()

    init(_ parameters: TopN) {
      self.parameters = parameters
      rank = parameters.by.required
      key = parameters.per.program
      super.init()
    }

    override var isFresh: Bool { known.count == 0 }

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
      let found = known.find(buffer.bytes, hash)
      let time = run.executor.eventTime
      let isTakenBack = parameters.takesBack && event.retracts
      guard let found else {
        if isTakenBack { return .drop }
        guard known.count < parameters.maxKeys else {
          return refused(
            event, .limitReached, "topN has \(Printable.count(known.count, "key")), its limit `maxKeys`", run)
        }
        guard rowCount < parameters.maxRows else { return tooMany(event, run) }
        let number = known.insert(buffer.bytes, hash)
        open(Group(last: now), at: number)
        insert(Row(rank: OwnedValue(value), time: time, event: OwnedValue(event.value)), at: 0, of: number)
        send(event.value, .early, .adds)
        return .keep
      }
      groups[found]?.last = now
      pages.mark(found)
      if isTakenBack { return takeBack(event, value, found, frame, run) }
      guard let at = insertionIndex(value, time, found, context) else {
        return refused(event, .unexpectedValue, "'by' of topN cannot compare \(value.kindName) with earlier ranks", run)
      }
      let count = parameters.count
      if at >= count, !parameters.takesBack { return .drop }
      let leaving = at < count ? row(count - 1, of: found) : nil
      if leaving == nil || parameters.takesBack, rowCount >= parameters.maxRows { return tooMany(event, run) }
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
      refused(event, .limitReached, "topN keeps \(Printable.count(rowCount, "event")), its limit `maxRows`", run)
    }

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

    private func open(_ group: Group, at number: Int) {
      while groups.count <= number { groups.append(nil) }
      groups[number] = group
      pages.mark(number)
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
      guard var group = groups[number] else { return }
      cancelWake(&group.timer)
      rowCount -= group.rows.count
      bytes -= group.rows.reduce(0) { $0 + $1.byteCount }
      groups[number] = nil
      pages.mark(number)
      known.remove(number)
      countKept()
    }

    private func countKept() { keptSize.set(keys: known.count, events: rowCount, bytes: known.textBytes + bytes) }

    /// The timer is not moved for each event; when it fires too early, it is set again.
    override func timeCame(_ token: Int) {
      guard let idle = parameters.idle, token < groups.count, let group = groups[token] else { return }
      groups[token]?.timer = .none
      if group.last + idle > now { groups[token]?.timer = wake(at: group.last + idle, token) } else { forget(token) }
    }

    override func stopped() {
      for number in groups.indices where groups[number] != nil { forget(number) }
    }

    override func save(_ state: inout StateWriter) {
      state.write(pages, keys: groups.count) { state, numbers in
        for number in numbers {
          guard let group = groups[number] else { continue }
          state.append(counted: known.text(number))
          state.write(group.last)
          state.write(each: group.rows) { state, row in
            state.write(row.rank)
            state.write(row.time)
            state.write(row.event)
          }
        }
      }
    }

    override func restore(_ state: inout StateReader) throws(StateFault) {
      guard state.version < 2 else { return try state.readPages(pages, restoreGroup) }
      for _ in 0..<(try state.count()) { try restoreGroup(&state, nil) }
    }

    private func restoreGroup(_ state: inout StateReader, _ number: Int?) throws(StateFault) {
      guard let number = known.insertNew(try state.counted(), at: number) else {
        throw StateFault("a key is repeated")
      }
      open(Group(last: try state.read()), at: number)
      for index in 0..<(try state.count()) {
        insert(Row(rank: try state.read(), time: try state.read(), event: try state.read()), at: index, of: number)
      }
    }
  }
}
