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
    if rows.rejected.isEmpty {
      for row in rows.rows {
        produce(row.value, origin: origin, position: row.offset)
        if isClosed { return found }
      }
      return found
    }
    // Refused rows are reported in their place.
    var next = 0
    for refused in rows.rejected {
      while next < refused.index {
        let row = rows.rows[next]
        next += 1
        produce(row.value, origin: origin, position: row.offset)
        if isClosed { return found }
      }
      rejectInput(
        refused.bytes.rawBytes, "\(refused.reason)", origin: origin, position: refused.offset)
      if isClosed { return found }
    }
    while next < rows.count {
      let row = rows.rows[next]
      next += 1
      produce(row.value, origin: origin, position: row.offset)
      if isClosed { return found }
    }
    return found
  }
}
