import PipelineCore
import Transport

/// The treatment of lines longer than the limit.
package enum WhenTooLong: String, ChoiceParameter {
  case cut, drop, reject
  package var help: String {
    switch self {
    case .cut: "its beginning is used as the line"
    case .drop: "it is dropped"
    case .reject: "its beginning goes to the errors output"
    }
  }
  var policy: LongLine.Policy { LongLine.Policy(rawValue: rawValue) ?? .reject }
}

extension BlockReader.Options.Mode {
  init(_ framing: Framing, limit: Int) {
    switch framing {
    case .lines: self = .lines
    case .whole: self = .whole(limit: limit)
    case .chunks, .anywhere: self = .bytes
    }
  }
}

extension Framing {
  /// Whether the decoder may hold rows that only the end of the input completes. If not, each range is complete, and
  /// the decoder need not be notified of the end.
  var hasOpenEnd: Bool { self == .lines || self == .anywhere }
}

extension RunningSource {
  /// The maximum number of threads that decode this source's input.
  var decodingThreads: Int { execution.plan.threads ?? Processors.available }

  /// Rejects or drops a line that was not delivered completely, as the file specifies.
  func rejectLong(_ line: LongLine, _ limit: ByteSize, _ origin: Origin) {
    // An earlier line may already have ended the signal.
    guard line.policy != .cut, !isClosed else { return }
    let reason = "the line has \(line.length) bytes, more than the \(limit.bytes) that 'maxLine' allows"
    line.head.withUnsafeBytes {
      if line.policy == .drop {
        dropInput($0, reason, origin: origin, position: line.offset)
      } else {
        rejectInput($0, reason, origin: origin, position: line.offset)
      }
    }
  }
}

extension DecoderOptions {
  /// Whether the input must be text, which makes a compressed input an error.
  var readsText: Bool { format != .bytes && invalidUTF8 != .bytes }

  /// The decoder options, if a reader that continues in the middle depends on them; otherwise empty.
  var dependence: String { needsBeginning ? "\(self)" : "" }

  /// Whether a decoder can continue at a position that was saved with that `dependence`.
  func goesOn(at position: DecodingPosition, _ dependence: String) -> Bool {
    !needsBeginning || position.offset == 0 || self.dependence == dependence
  }

  /// Which threads read and decode a stream, in words.
  func threads(_ limit: Int?) -> String {
    if limit == 1 || join != nil { return "read by a thread of its own, decoded on the pipeline thread" }
    guard readsBlocksApart else { return "read and decoded by a thread of its own" }
    let most = limit.map { "up to \($0)" } ?? "up to one for each processor"
    return "read and decoded by a thread of its own, by \(most) if the pipeline waits for it"
  }
}

/// A decoded piece of an input.
struct DecodedPiece: Sendable {
  /// Set at the start of a file.
  var opened: FilePosition?
  var file: FileDescriptor?
  /// Set after the last row of a file, if there are several files.
  var closesFile = false
  /// Nil if there is nothing to decode.
  var rows: DecodedBlock?
  /// The same rows in the form that the sinks write, if a decoding thread has encoded them.
  var encoded: Batch?
  var longLine: LongLine?
  /// The position at which another reader would continue after the piece; nil if it has not changed.
  var position: DecodingPosition?
  /// Set in the last piece.
  var end: BlockReader.End?
  /// Set if the end is `stopped`: the decoder of the stream, with the incomplete event.
  var decoding: BlockDecoding?
}

extension BlockReader {
  /// Starts reading and decoding. `take` is called in turns, for one piece or a few together, in order.
  ///
  /// - Parameters:
  ///   - threads: The maximum number of threads that decode at the same time; 1: the pipeline thread decodes. There is
  /// one thread at first, and another one is added each time the turns wait for rows (``ReadingDemand``).
  ///   - first: The decoder of the first thread; the other threads get decoders of their own.
  ///   - memory: The decoder's memory at the start.
  ///   - kept: The decoder of the stream, if an earlier version of the source has read a part of it.
  ///   - placement: Decides which further work these threads do.
  /// - Returns: The decoder, if the turns decode.
  @discardableResult
  func start(
    by first: any EventDecoder, decoding options: DecoderOptions, knowing memory: [UInt8] = [],
    goingOnWith kept: BlockDecoding? = nil, threads: Int, into inputQueue: InputQueue, placement: StagePlacement,
    take: @escaping @Sendable ([DecodedPiece]) -> Void
  ) throws(PosixError) -> BlockDecoding? {
    // With a single processor, passing blocks to other threads gains nothing.
    let isAlone = Processors.available == 1
    if threads == 1 {
      first.reset(memory: memory)
      let decoding = kept ?? BlockDecoding(first)
      let thread = StageThread(placement, decoding)
      try start(
        making: { { $0 } },
        deliver: { pieces in
          _ = inputQueue.deliver(here: isAlone, bytes: pieces.reduce(0) { $0 + $1.bytes }) {
            take(pieces.map(thread.make))
          }
        })
      return decoding
    }
    let limit = options.readsBlocksApart ? threads : 1
    let demand = limit > 1 && !placement.startsAllThreads ? ReadingDemand() : nil
    if let demand { placement.whenUsedMore { demand.used(in: $0) } }
    let kept = Guarded(kept)
    let making: @Sendable () -> (@Sendable (Piece) -> DecodedPiece)? = {
      if let decoding = kept.withLock({ $0.take() }) {
        let thread = StageThread(placement, decoding)
        return { thread.make($0) }
      }
      // The options have made a first decoder, so they can make this one.
      guard let decoder = try? options.decoder() else { return nil }
      decoder.reset(memory: memory)
      let decoding = BlockDecoding(decoder)
      let thread = StageThread(placement, decoding)
      return { thread.make($0) }
    }
    try start(
      upTo: limit, when: demand, making: making,
      deliver: { [self] pieces in
        // While this thread runs and writes a turn that takes almost no time, another thread makes the next piece.
        let bytes = pieces.reduce(0) { $0 + ($1.rows?.bytes ?? 0) }
        _ = inputQueue.deliver(here: placement.isHandedOver && threadCount > 1, bytes: bytes) {
          let start = monotonicNow()
          take(pieces)
          let time = monotonicNow() &- start
          demand?.used(in: time)
          placement.used(in: time)
        }
      })
    return nil
  }
}

/// The work of one thread on the blocks that it reads, or of the turns if they decode. Must be used by one thread at a
/// time.
private final class StageThread: @unchecked Sendable {
  private let placement: StagePlacement
  private let decoding: BlockDecoding
  private var worker: StageWorker?

  init(_ placement: StagePlacement, _ decoding: BlockDecoding) {
    self.placement = placement
    self.decoding = decoding
  }

  func make(_ read: BlockReader.Piece) -> DecodedPiece {
    if worker == nil { worker = placement.makeWorker(clock: monotonicNow) }
    let start = monotonicNow()
    var piece = decoding.decode(read, isPassedOn: placement.passesThrough)
    guard let worker else {
      placement.made(in: monotonicNow() &- start)
      return piece
    }
    if let rows = piece.rows { piece.encoded = worker.encode(rows) }
    return piece
  }
}

extension BlockReader.Piece {
  fileprivate var bytes: Int {
    if case .block(let block) = self { block.slab.count } else { 0 }
  }
}

extension BlockDecoding {
  func decode(_ piece: BlockReader.Piece, isPassedOn: Bool = false) -> DecodedPiece {
    switch piece {
    case .block(let block):
      let endsEvent = block.longLine != nil && joinsLines
      let rows = decode(block.slab, offset: block.offset, isLast: endsEvent, isPassedOn: isPassedOn)
      return DecodedPiece(rows: rows, longLine: block.longLine, position: position(behind: block.endOffset))
    case .opened(let start, let file):
      reset()
      return DecodedPiece(opened: start, file: file)
    case .closed(let offset): return DecodedPiece(closesFile: true, rows: finish(offset))
    case .end(let end):
      switch end {
      case .finished(let offset): return DecodedPiece(rows: finish(offset), end: end)
      case .stopped: return DecodedPiece(end: end, decoding: self)
      case .failed: return DecodedPiece(end: end)
      }
    }
  }

  /// The pieces that a stopped reader left, followed by the end of the input.
  func end(_ rest: BlockReader.Rest) -> [DecodedPiece] {
    let (blocks, end) = rest.blocks
    let pieces = blocks.map { decode(.block($0)) }
    return pieces + [DecodedPiece(rows: finish(end), position: position(behind: end), end: .stopped(offset: end))]
  }

  /// Decodes the rows that the end of the input completes.
  private func finish(_ offset: Int64) -> DecodedBlock? {
    framing.hasOpenEnd && pendingOffset != nil ? decode(Slab(capacity: 0), offset: offset, isLast: true) : nil
  }
}
