/// An outbox row of encoded lines for a sink that writes a stream. The sink receives the lines unchanged. If a changed
/// pipeline file has another kind of sink under that name, the sink receives the decoded events.
///
/// ```
/// kind         documents:16, strings:17; lower numbers are formats of rows of events (``EventRowWriter``)
/// lines        each with a line feed
/// ```
struct LineRow {
  static let documents: UInt8 = 16
  static let strings: UInt8 = 17
  private(set) var bytes: [UInt8] = []
  private(set) var count = 0

  /// The kind of the lines; nil: the row is empty.
  var kind: EncodedEvents.Lines? { bytes.first.flatMap(Self.kind) }

  private static func kind(_ first: UInt8) -> EncodedEvents.Lines? {
    switch first {
    case Self.documents: .documents
    case Self.strings: .strings
    default: nil
    }
  }

  /// Appends lines of the row's kind.
  mutating func append(_ events: EncodedEvents) {
    if bytes.isEmpty { bytes.append(events.lines == .documents ? Self.documents : Self.strings) }
    bytes.append(contentsOf: events.bytes)
    count += events.count
  }

  /// The lines of a row; nil: the row holds events.
  static func lines(_ row: OutboxRow) -> EncodedEvents? {
    guard let first = row.bytes.first, let kind = kind(first) else { return nil }
    let slab = row.bytes.withUnsafeBytes { Slab(UnsafeRawBufferPointer(rebasing: $0.dropFirst())) }
    return EncodedEvents(bytes: slab.bytes, count: row.events, memory: slab, lines: kind)
  }
}

extension EncodedEvents {
  /// Calls `body` for the event of each of its lines, which is valid until the end of the turn.
  func forEachEvent(_ execution: Execution, _ body: (Event) -> Void) throws(StateFault) {
    let arena = execution.executor.arena
    arena.keep(memory)
    var found = 0
    var fault: StateFault?
    bytes.forEachLine { line, _ in
      let value = lines == .strings ? Value.string(line) : execution.json.parse(line, into: arena)
      guard !value.isError else {
        fault = StateFault("line \(found + 1) is not a JSON document")
        return
      }
      found += 1
      body(Event(value))
    }
    if let fault { throw fault }
    guard found == count else { throw StateFault("it has \(found) lines and says \(count)") }
  }
}
