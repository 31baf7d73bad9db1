import Synchronization

/// Decodes an input in blocks on the thread that reads it, so that the pipeline thread receives rows.
///
/// `decode` must be called on one thread at a time, in the order of the input. Its result may be used and released on
/// another thread.
package final class BlockDecoding: @unchecked Sendable {
  private let decoder: any EventDecoder
  private let free = Mutex<[Rows]>([])
  /// The maximum number of unused `Rows` that are kept; for small files the reader hands over this many blocks
  /// together.
  private static let mostFree = 16

  /// Reusable rows with the memory that they point into.
  final class Rows: @unchecked Sendable {
    let batch = RowBatch()
    let arena = Arena()
  }

  package init(_ decoder: any EventDecoder) { self.decoder = decoder }

  /// The input offset of a row that is incomplete and so not yet decoded; nil if there is none.
  package var pendingOffset: Int64? { decoder.pendingOffset }

  /// See ``EventDecoder/undecoded``.
  package var undecoded: [UInt8]? { decoder.undecoded }

  /// See ``EventDecoder/joinsLines``.
  package var joinsLines: Bool { decoder.joinsLines }

  /// The input offset of the end of the last block.
  private var reached: Int64 = 0

  /// The time of the lines when turns decode; see ``EventDecoder/setTime(_:)``.
  package var clock: (() -> Int64)?

  /// See ``EventDecoder/dueAt``.
  package var dueAt: Int64? { decoder.dueAt }

  /// Ends the events whose wait is over, as ``endEvent()`` does.
  package func endDueEvents(at now: Int64) -> (rows: DecodedBlock, position: DecodingPosition)? {
    decoder.endOnlyDue(at: now)
    return endEvent()
  }

  /// Ends the incomplete event and returns its lines so far; nil if there is none.
  package func endEvent() -> (rows: DecodedBlock, position: DecodingPosition)? {
    guard pendingOffset != nil else { return nil }
    let rows = free.withLock { $0.popLast() } ?? Rows()
    guard decoder.endRow(offset: reached, arena: rows.arena, into: rows.batch) else {
      recycle(rows)
      return nil
    }
    return (DecodedBlock(.empty, rows, self, end: reached), position(behind: reached))
  }

  /// See ``EventDecoder/memory``.
  package var memory: [UInt8] { decoder.memory }

  /// Starts another input, or continues in the middle of one with another decoder's memory.
  package func reset(memory: [UInt8] = []) {
    decoder.reset(memory: memory)
    reached = 0
  }

  /// How the reader must cut the input.
  package var framing: Framing { decoder.framing }

  /// The state from which another decoder can continue after the last block.
  ///
  /// - Parameter end: The input offset of the end of the last block.
  package func position(behind end: Int64) -> DecodingPosition {
    DecodingPosition(offset: decoder.pendingOffset ?? end, memory: decoder.memory)
  }

  /// Decodes the next block. `offset`: its start in the input. `isLast`: the input ends with it. `isPassedOn`: the
  /// block will probably pass through unchanged, so its rows need not be indexed.
  package func decode(_ slab: Slab, offset: Int64, isLast: Bool, isPassedOn: Bool = false) -> DecodedBlock {
    let rows = free.withLock { $0.popLast() } ?? Rows()
    if let clock { decoder.setTime(clock()) }
    if !decoder.index(slab, offset: offset, isPassedOn: isPassedOn, into: rows.batch) {
      decoder.decode(slab, 0..<slab.count, offset: offset, isLast: isLast, arena: rows.arena, into: rows.batch)
    }
    reached = offset &+ Int64(slab.count)
    return DecodedBlock(slab, rows, self, end: reached)
  }

  /// Decodes messages that were received together, each as a separate input.
  ///
  /// - Parameter offset: The offset of the slab in the stream; the offsets of rows count from the start of the stream.
  package func decode(_ slab: Slab, messages: [Range<Int>], offset: Int64) -> DecodedBlock {
    let rows = free.withLock { $0.popLast() } ?? Rows()
    for range in messages {
      decoder.reset()
      decoder.decode(
        slab, range, offset: offset &+ Int64(range.lowerBound), isLast: true, arena: rows.arena, into: rows.batch)
    }
    return DecodedBlock(slab, rows, self, end: offset &+ Int64(slab.count))
  }

  fileprivate func recycle(_ rows: Rows) {
    rows.batch.clear()
    rows.arena.reset()
    free.withLock { if $0.count < Self.mostFree { $0.append(rows) } }
  }
}

/// The rows of one block; valid as long as the block lives.
package final class DecodedBlock: @unchecked Sendable {
  private let slab: Slab
  private let rows: BlockDecoding.Rows
  private let decoding: BlockDecoding

  /// The input offset of the block's end.
  let end: Int64

  fileprivate init(_ slab: Slab, _ rows: BlockDecoding.Rows, _ decoding: BlockDecoding, end: Int64) {
    self.slab = slab
    self.end = end
    self.rows = rows
    self.decoding = decoding
  }

  deinit { decoding.recycle(rows) }

  var batch: RowBatch { rows.batch }
  var text: UnsafeRawBufferPointer { slab.bytes }
  package var bytes: Int { slab.count }
}
