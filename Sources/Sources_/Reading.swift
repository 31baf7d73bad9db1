import PipelineCore
import Transport

/// What becomes of a line that is longer than allowed.
public enum WhenTooLong: String, ChoiceParameter {
  case cut, drop, reject
  public var help: String {
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
    case .chunks: self = .bytes
    }
  }
}

extension Framing {
  /// Whether the decoder holds rows that only the end of the input completes. Otherwise each range that
  /// it is given is whole, and the end is nothing to tell it.
  var hasOpenEnd: Bool { self == .lines }
}

extension RunningSource {
  /// How many threads may decode what this source reads.
  var decodingThreads: Int { execution.plan.threads ?? Processors.available }

  /// Reports a line that was not delivered whole.
  func rejectLong(_ line: LongLine, _ limit: ByteSize, _ origin: Origin) {
    // A line before it may have been the last that anybody wanted.
    guard line.policy == .reject, !isClosed else { return }
    line.head.withUnsafeBytes {
      rejectInput(
        $0, "the line has \(line.length) bytes, more than the \(limit.bytes) that 'maxLine' allows",
        origin: origin, position: line.offset)
    }
  }
}

extension DecoderOptions {
  /// Whether the input must be text, so that one which is compressed is a mistake.
  var readsText: Bool { format != .bytes && invalidUTF8 != .bytes }

  /// What an input was decoded by, where that matters to a reader that goes on in its middle; empty where it does not.
  var dependence: String { needsBeginning ? "\(self)" : "" }

  /// Whether a decoder can go on there, if the one that came there had that `dependence`.
  func goesOn(at place: DecodingPosition, _ dependence: String) -> Bool {
    !needsBeginning || place.offset == 0 || self.dependence == dependence
  }

  /// Which threads read and decode a stream, in words.
  func threads(_ limit: Int?) -> String {
    if limit == 1 { return "read by a thread of its own, decoded on the pipeline thread" }
    guard readsBlocksApart else { return "read and decoded by a thread of its own" }
    let most = limit.map { "up to \($0)" } ?? "up to one for each processor"
    return "read and decoded by a thread of its own, by \(most) if the pipeline waits for it"
  }
}

/// What came of a piece of an input.
struct DecodedPiece: Sendable {
  /// Set where a file begins.
  var opened: (status: FileDescriptor.Status, path: String)?
  /// Set behind the last row of a file, where there are several.
  var closesFile = false
  /// Nil where there is nothing to decode.
  var rows: DecodedBlock?
  /// The same as the sink will write it, where that could be made beside the turns.
  var encoded: EncodedBlock?
  var longLine: LongLine?
  /// Where another reader would go on behind it; nil where that is at no other place than before.
  var place: DecodingPosition?
  /// Set in the last piece.
  var end: BlockReader.End?
}

extension BlockReader {
  /// Starts reading and decoding; `take` is called for one piece after the other, or a few together, in order, in a turn.
  ///
  /// `threads`: how many may decode at the same time; 1: the turns do it. There is one at first, and another one each time that the
  /// turns are found to wait for rows (``ReadingDemand``).
  ///
  /// `first`: decodes where there is one thread; others get decoders of their own.
  ///
  /// `memory`: what the decoder knew where reading starts.
  ///
  /// `placement`: what else those threads do.
  func start(
    by first: any EventDecoder, decoding options: DecoderOptions, knowing memory: [UInt8] = [], threads: Int,
    allAtOnce: Bool, into inputQueue: InputQueue,
    placement: StagePlacement, take: @escaping @Sendable ([DecodedPiece]) -> Void
  ) throws(PosixError) {
    // Where there is one processor only, nothing is won by handing blocks to other threads.
    let isAlone = Processors.available == 1
    if threads == 1 {
      first.reset(memory: memory)
      let decoding = BlockDecoding(first)
      try start(
        making: { { $0 } },
        deliver: { pieces in
          _ = inputQueue.deliver(here: isAlone) {
            take(pieces.map { decoding.decode($0, isPassedOn: placement.passesThrough) })
          }
        })
      return
    }
    let limit = options.readsBlocksApart ? threads : 1
    let demand = limit > 1 && !allAtOnce ? ReadingDemand() : nil
    if let demand { placement.whenUsedMore { demand.used(in: $0) } }
    let making: @Sendable () -> (@Sendable (Piece) -> DecodedPiece)? = {
      // The first one could be made, so others can.
      guard let decoder = try? options.decoder() else { return nil }
      decoder.reset(memory: memory)
      let decoding = BlockDecoding(decoder)
      let thread = StageThread(placement, decoding)
      return { thread.make($0) }
    }
    try start(
      upTo: limit, when: demand, making: making,
      deliver: { [self] pieces in
        // While this thread runs a turn that does next to nothing, and writes, another one makes the next piece.
        _ = inputQueue.deliver(here: placement.isHandedOver && threadCount > 1) {
          let start = monotonicNow()
          take(pieces)
          let time = monotonicNow() &- start
          demand?.used(in: time)
          placement.used(in: time)
        }
      })
  }
}

/// What one thread does with the blocks that it reads. Used by that thread only.
private final class StageThread: @unchecked Sendable {
  private let placement: StagePlacement
  private let decoding: BlockDecoding
  private var worker: StageWorker?

  init(_ placement: StagePlacement, _ decoding: BlockDecoding) {
    self.placement = placement
    self.decoding = decoding
  }

  func make(_ read: BlockReader.Piece) -> DecodedPiece {
    if worker == nil { worker = placement.makeWorker() }
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

extension BlockDecoding {
  func decode(_ piece: BlockReader.Piece, isPassedOn: Bool = false) -> DecodedPiece {
    switch piece {
    case .block(let block):
      let rows = decode(block.slab, offset: block.offset, isLast: false, isPassedOn: isPassedOn)
      return DecodedPiece(rows: rows, longLine: block.longLine, place: position(behind: block.endOffset))
    case .opened(let status, let path):
      reset()
      return DecodedPiece(opened: (status, path))
    case .closed(let offset): return DecodedPiece(closesFile: true, rows: finish(offset))
    case .end(let end):
      guard case .finished(let offset) = end else { return DecodedPiece(end: end) }
      return DecodedPiece(rows: finish(offset), end: end)
    }
  }

  /// What the end of the input decides of what came before.
  private func finish(_ offset: Int64) -> DecodedBlock? {
    framing.hasOpenEnd && pendingOffset != nil ? decode(Slab(capacity: 0), offset: offset, isLast: true) : nil
  }
}
