import CJSON

/// A source that reads bytes: decodes them and emits a row at a time.
open class DecodingSource: RunningSource {
  private let rows = RowBatch()

  /// Decodes `slab`, which continues what came before for this `decoder`, and emits its rows.
  ///
  /// `offset`: where the slab begins in the input. `isLast`: the input ends with it. Returns how many
  /// rows the slab held, and how many pieces of it are no events.
  @discardableResult
  public final func take(
    _ slab: Slab, offset: Int64, isLast: Bool, by decoder: any EventDecoder, origin: Origin
  ) -> (decoded: Int, refused: Int) {
    guard !isClosed else { return (0, 0) }
    arena.keep(slab)
    arena.keep(origin)
    rows.clear()
    decoder.decode(slab, 0..<slab.count, offset: offset, isLast: isLast, arena: arena, into: rows)
    let found = (decoded: rows.count, refused: rows.rejected.count)
    // Refused rows are reported in their place.
    var next = 0
    for refused in rows.rejected {
      produceRows(next..<refused.index, origin)
      next = refused.index
      if isClosed { return found }
      rejectInput(
        refused.bytes.rawBytes, "\(refused.reason)", origin: origin, position: refused.offset)
      if isClosed { return found }
    }
    produceRows(next..<rows.count, origin)
    return found
  }

  /// Emits some of the rows, until there is no more or the source is closed.
  private func produceRows(_ range: Range<Int>, _ origin: Origin) {
    let all = rows.rows.baseAddress
    guard let all, !range.isEmpty else { return }
    let indexed = execution.json.indexed
    let lines = rows.lines
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
      if isClosed { return }
    }
  }
}
