import CJSON

/// A source that reads bytes: decodes them and emits a row at a time.
open class DecodingSource: RunningSource {
  // Grows with what comes: an answer that holds one event needs little, and there may be hundreds of sources.
  private let rows = RowBatch(capacity: 16)
  private var hasShared = false
  /// Of the last block.
  private var fate = BlockFate.rows
  /// Where the first event of the last block stands in the input that was decoded and not sent, because the source was
  /// closed before; nil: all of them were sent.
  public private(set) var unsentOffset: Int64?

  /// Decodes `slab`, which continues what came before for this `decoder`, and emits its rows.
  ///
  /// `offset`: where the slab begins in the input. `isLast`: the input ends with it. Returns how many
  /// rows the slab held, and how many pieces of it are no events.
  @discardableResult
  public final func take(
    _ slab: Slab, offset: Int64, isLast: Bool, by decoder: any EventDecoder, origin: Origin
  ) -> (decoded: Int, refused: Int) {
    guard !isClosed else { return (0, 0) }
    unsentOffset = nil
    arena.keep(slab)
    arena.keep(origin)
    rows.clear()
    decoder.decode(slab, 0..<slab.count, offset: offset, isLast: isLast, arena: arena, into: rows)
    let found = (decoded: rows.count, refused: rows.rejected.count)
    produce(rows, origin)
    return found
  }

  /// Emits the rows of a block that was decoded on another thread, or hands on what it has become there.
  public final func take(_ block: DecodedBlock, encoded: EncodedBlock? = nil, origin: Origin) {
    guard !isClosed else { return }
    unsentOffset = nil
    if let encoded, emit(encoded) {
      fate = .encoded
      execution.counters.received &+= UInt64(encoded.received)
      execution.encodedBlocks += 1
      return
    }
    arena.keep(block)
    arena.keep(origin)
    produce(block.batch, origin)
  }

  /// Tells the threads that decode what else they can do with their blocks, if anything and if it is worth it. For the end
  /// of each turn in which there were some: by then everybody has subscribed.
  public final func shareWork(through place: BlockWorkPlace) {
    place.fate = fate
    guard !hasShared, !isClosed, place.isWorthIt() else { return }
    hasShared = true
    let work = BlockWork()
    if offer(work) { place.put(work) }
  }

  private func produce(_ rows: RowBatch, _ origin: Origin) {
    if let lines = rows.verbatim, emit(lines) {
      fate = .verbatim
      execution.counters.received &+= UInt64(lines.count)
      return
    }
    fate = .rows
    rows.findCounted()
    switch rows.form {
    case .counted: return
    case .documents(let lines, let text, let offset): produceDocuments(lines, text, offset, rows.lines, origin)
    case .lines(let text, let offset): produceLines(text, offset, origin)
    case .rows:
      // Refused rows are reported in their place.
      var next = 0
      for refused in rows.rejected {
        produceRows(rows, next..<refused.index, origin)
        next = refused.index
        if isClosed {
          unsentOffset = unsentOffset ?? refused.offset
          return
        }
        rejectInput(
          refused.bytes.rawBytes, "\(refused.reason)", origin: origin, position: refused.offset)
        settle()
        if isClosed {
          unsentOffset = next < rows.count ? rows.rows[next].offset : nil
          return
        }
      }
      produceRows(rows, next..<rows.count, origin)
    }
  }

  /// Emits some of the rows, until there is no more or the source is closed.
  private func produceRows(_ batch: RowBatch, _ range: Range<Int>, _ origin: Origin) {
    let all = batch.rows.baseAddress
    guard let all, !range.isEmpty else { return }
    let indexed = execution.json.indexed
    let lines = batch.lines
    var emitted: UInt64 = 0
    defer {
      execution.counters.received &+= emitted
      // Nobody may find tokens of a slab that is gone.
      indexed.pointee.lines = nil
    }
    var event = Event(.null, origin: origin)
    for at in range {
      let row = all[at]
      if row.token != RowBatch.Row.none {
        indexed.pointee = rx_lines_row(
          lines: lines, payload: row.value.payload, length: row.value.length, token: row.token)
      }
      event.value = row.value
      event.position = row.offset
      emitted &+= 1
      emit(event)
      settle()
      if isClosed {
        unsentOffset = at &+ 1 < range.upperBound ? all[at &+ 1].offset : nil
        return
      }
    }
  }

  private func produceDocuments(
    _ documents: UnsafeBufferPointer<rx_line>, _ text: UnsafeRawBufferPointer, _ offset: Int64,
    _ tokens: OpaquePointer?, _ origin: Origin
  ) {
    guard let base = text.baseAddress else { return }
    let indexed = execution.json.indexed
    var emitted: UInt64 = 0
    defer {
      execution.counters.received &+= emitted
      // Nobody may find tokens of a slab that is gone.
      indexed.pointee.lines = nil
    }
    var event = Event(.null, origin: origin)
    for (at, line) in documents.enumerated() {
      let start = base + Int(line.start)
      let value = Value(
        kind: start.load(as: UInt8.self) == UInt8(ascii: "{") ? .jsonMap : .jsonList, pointer: start,
        length: Int(line.end &- line.start))
      indexed.pointee = rx_lines_row(
        lines: tokens, payload: value.payload, length: value.length, token: line.token)
      event.value = value
      event.position = offset &+ Int64(line.line)
      emitted &+= 1
      emit(event)
      settle()
      if isClosed {
        unsentOffset = at &+ 1 < documents.count ? offset &+ Int64(documents[at &+ 1].line) : nil
        return
      }
    }
  }

  private func produceLines(_ text: UnsafeRawBufferPointer, _ offset: Int64, _ origin: Origin) {
    var emitted: UInt64 = 0
    defer { execution.counters.received &+= emitted }
    var event = Event(.null, origin: origin)
    text.forEachLine { line, at in
      if isClosed {
        unsentOffset = unsentOffset ?? offset &+ Int64(at)
        return
      }
      event.value = .string(line)
      event.position = offset &+ Int64(at)
      emitted &+= 1
      emit(event)
      settle()
    }
  }
}
