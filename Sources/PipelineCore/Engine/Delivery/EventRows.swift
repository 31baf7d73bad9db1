/// Writes events as the bytes of an outbox row: values, keys, origins and positions, in the form of a saved state.
///
/// ```
/// format:1 or 2, where origins have identities
/// origins      those of the events
/// events       value, key, index of the origin, position
/// ```
struct EventRowWriter {
  static let format: UInt8 = 1
  static let formatWithIdentities: UInt8 = 2
  private let context: StateWriter.Context
  private var events: StateWriter
  private(set) var count = 0

  init(_ execution: Execution) { self.init(execution.executor) }

  init(_ executor: Executor) {
    context = StateWriter.Context(executor, StateTable.Builder(), .taken)
    events = StateWriter(context)
  }

  /// The approximate size of the row in bytes.
  var size: Int { events.bytes.count }

  /// Adds an event. Returns the reason if it cannot be encoded.
  mutating func append(_ event: Event) -> StateFault? {
    let start = events.bytes.count
    events.write(event)
    if let fault = context.fault {
      context.fault = nil
      events.truncate(to: start)
      return fault
    }
    count += 1
    return nil
  }

  func finish() -> [UInt8] {
    var row = StateWriter(context)
    row.append(row.hasIdentities ? Self.formatWithIdentities : Self.format)
    row.writeOrigins()
    row.append(events)
    return row.bytes
  }
}

/// Reads the events of an outbox row. They are valid until the end of the turn.
struct EventRowReader {
  private var reader: StateReader
  private let row: OutboxRow
  private var next = 0

  init(_ row: OutboxRow, _ execution: Execution) throws(StateFault) {
    let arena = execution.executor.arena
    let context = StateReader.Context(execution.executor, arena: arena, json: execution.json)
    reader = StateReader(row.bytes, 0..<row.bytes.count, context)
    self.row = row
    let format = try reader.byte()
    let (plain, named) = (EventRowWriter.format, EventRowWriter.formatWithIdentities)
    guard format == plain || format == named else {
      throw StateFault("its format is \(format), and this version of rxd reads \(plain) and \(named)")
    }
    try reader.readOrigins(haveIdentities: format == named)
    for origin in context.origins { arena.keep(origin) }
  }

  /// The next event; nil: there is none.
  mutating func nextEvent() throws(StateFault) -> Event? {
    guard next < row.events else {
      guard reader.isAtEnd else { throw StateFault("it is longer than its length says") }
      return nil
    }
    next += 1
    return try reader.event()
  }
}
