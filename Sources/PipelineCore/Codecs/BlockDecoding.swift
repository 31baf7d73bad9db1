import Synchronization

/// Decodes an input on the thread that reads it, block after block, so that the pipeline's thread gets rows.
///
/// `decode` is called on one thread at a time, in the order of the input. What it returns may be used, and let go of,
/// on another thread.
public final class BlockDecoding: @unchecked Sendable {
  private let decoder: any EventDecoder
  private let free = Mutex<[Rows]>([])
  /// As many as small files are handed over together.
  private static let mostFree = 16

  /// Rows with the memory that they point into, used again and again.
  final class Rows: @unchecked Sendable {
    let batch = RowBatch()
    let arena = Arena()
  }

  public init(_ decoder: any EventDecoder) { self.decoder = decoder }

  /// Where a row begins that was handed in but not yet decoded, because its end is missing; nil: there is none.
  public var pendingOffset: Int64? { decoder.pendingOffset }

  /// Another input begins.
  public func reset() { decoder.reset() }

  /// How the input must be cut.
  public var framing: Framing { decoder.framing }

  /// Where decoding can go on behind the last block, and what a decoder must know for that.
  ///
  /// - Parameter end: Where the last block ended in the input.
  public func position(behind end: Int64) -> DecodingPosition {
    DecodingPosition(offset: decoder.pendingOffset ?? end, memory: decoder.memory)
  }

  /// Decodes the next block. `offset`: where it begins in the input. `isLast`: the input ends with it. `isPassedOn`: it
  /// will probably be passed on as it stands, so its rows need not be found.
  public func decode(_ slab: Slab, offset: Int64, isLast: Bool, isPassedOn: Bool = false) -> DecodedBlock {
    let rows = free.withLock { $0.popLast() } ?? Rows()
    if !decoder.index(slab, offset: offset, isPassedOn: isPassedOn, into: rows.batch) {
      decoder.decode(slab, 0..<slab.count, offset: offset, isLast: isLast, arena: rows.arena, into: rows.batch)
    }
    return DecodedBlock(slab, rows, self)
  }

  fileprivate func giveBack(_ rows: Rows) {
    rows.batch.clear()
    rows.arena.reset()
    free.withLock { if $0.count < Self.mostFree { $0.append(rows) } }
  }
}

/// The rows of one block. They are valid as long as it lives.
public final class DecodedBlock: @unchecked Sendable {
  private let slab: Slab
  private let rows: BlockDecoding.Rows
  private let decoding: BlockDecoding

  fileprivate init(_ slab: Slab, _ rows: BlockDecoding.Rows, _ decoding: BlockDecoding) {
    self.slab = slab
    self.rows = rows
    self.decoding = decoding
  }

  deinit { decoding.giveBack(rows) }

  var batch: RowBatch { rows.batch }
}
