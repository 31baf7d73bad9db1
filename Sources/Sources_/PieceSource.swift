import PipelineCore
import Transport

/// A part of an input, decoded by another thread.
protocol InputPiece: Sendable {
  /// Nil: there is nothing to send.
  var rows: DecodedBlock? { get }
  /// The same rows as the sinks write them, if a decoding thread has encoded them.
  var encoded: Batch? { get }
}

extension DecodedPiece: InputPiece {}

extension ReceivedPiece: InputPiece {
  var encoded: Batch? { nil }
}

/// A source whose input other threads read and decode.
class PieceSource<Piece: InputPiece>: DecodingSource {
  /// The origin of a piece's rows; called before they are sent.
  func begin(_ piece: Piece) -> Origin { origin }

  /// The rows of a piece are sent, or wait for further turns.
  func took(_ piece: Piece) {}

  /// Handles the end of a piece, after its rows.
  func end(_ piece: Piece) {}

  /// Rows have needed further turns.
  func waited() {}

  /// All pieces of a delivery have been sent, or the source is closed.
  func tookAll() {}

  /// Sends pieces one after the other. If the rows of a piece need further turns, the next piece waits for the last of them.
  final func take(_ pieces: ArraySlice<Piece>) {
    if !isClosed { beginPiece() }
    var rest = pieces
    while !isClosed, let piece = rest.popFirst() {
      let origin = begin(piece)
      if let rows = piece.rows { take(rows, encoded: piece.encoded, origin: origin) }
      took(piece)
      guard isBatchDone else {
        return whenBatchIsDone { [unowned self, rest] in
          waited()
          end(piece)
          take(rest)
        }
      }
      end(piece)
    }
    tookAll()
  }
}

/// A source whose input a ``BlockReader`` reads.
class BlockSource: PieceSource<DecodedPiece> {
  private(set) final lazy var inputQueue = InputQueue(nodeContext, gate: SemaphoreGate())
  /// Decides on the work of the threads that read the input.
  private(set) final lazy var placement = makePlacement(
    threads: decodingOptions.readsBlocksApart ? decodingThreads : 1)
  /// How the input is decoded.
  final var decodingOptions: DecoderOptions
  final var reader: BlockReader?

  init(_ options: DecoderOptions, _ nodeContext: NodeContext, _ downstream: Downstream) {
    decodingOptions = options
    super.init(nodeContext, downstream: downstream)
  }

  override func waited() { placement.usedMore(in: restTime) }
  override func tookAll() { endTurn(placement) }

  override func stop() {
    inputQueue.stop()
    reader?.stop()
  }
}

/// A source that reads one stream, which cannot be read again: input that it had read before a reload goes to its next version.
class StreamSource: BlockSource {
  private let maxLine: ByteSize
  /// The decoder, if turns decode.
  private final var decoding: BlockDecoding?
  /// The state from which a decoder continues after the last event.
  final var decodingPosition = DecodingPosition()
  /// How far the stream has been sent, in bytes, for statistics.
  private let sent = PositionLedger<Int64>(0)
  /// Ends the incomplete last event.
  private final var joinTimer = Wake.none
  private static let joinToken = 1
  /// Holds the execution until everything that was read has been sent.
  private(set) final var isPausing = false
  /// The origin of its rows.
  var streamOrigin: Origin { origin }

  init(_ options: DecoderOptions, maxLine: ByteSize, _ nodeContext: NodeContext, _ downstream: Downstream) {
    self.maxLine = maxLine
    super.init(options, nodeContext, downstream)
  }

  override func dryRun() { _ = makeDecoder(decodingOptions) }

  /// Reads a stream, from its start or where the version before has stopped.
  final func read(
    _ stream: FileDescriptor, by decoder: any EventDecoder, _ options: BlockReader.Options, from start: KeptInput.Start
  ) throws(PosixError) {
    var options = options
    options.beginning = start.reading
    decodingPosition = start.position
    if let rows = start.rows {
      beginPiece()
      take(rows, origin: streamOrigin)
      guard !isClosed else { return }
    }
    let node = Weak(self)
    let reader = try BlockReader(stream, options: options)
    self.reader = reader
    decoding = try reader.start(
      by: decoder, decoding: decodingOptions, knowing: start.position.memory, goingOnWith: start.decoding,
      threads: decodingThreads(for: decodingOptions), into: inputQueue, placement: placement
    ) { pieces in node.object?.take(pieces[...]) }
    if decodingOptions.join != nil { decoding?.clock = { [weak self] in self?.now.nanoseconds ?? 0 } }
    awaitMore()
  }

  override func beginPiece() { beginPiece(of: sent) { [self] in unsentOffset ?? decodingPosition.offset } }

  override func begin(_ piece: DecodedPiece) -> Origin { streamOrigin }

  override func end(_ piece: DecodedPiece) {
    if let longLine = piece.longLine { rejectLong(longLine, maxLine, streamOrigin) }
    guard !isClosed else { return }
    if let position = piece.position { decodingPosition = position }
    switch piece.end {
    case nil: break
    case .failed(let error): finish(failing: SignalFailure(.source, error.message, at: nodeContext.location))
    case .finished: ended(piece.decoding, isStopped: false)
    case .stopped: ended(piece.decoding, isStopped: true)
    }
  }

  /// The last piece has been sent.
  ///
  /// - Parameters:
  ///   - decoding: The decoder of the stream, with the incomplete event, if the reader was stopped.
  ///   - isStopped: The reader was stopped before the end of the stream.
  func ended(_ decoding: BlockDecoding?, isStopped: Bool) {}

  override func tookAll() {
    super.tookAll()
    awaitMore()
  }

  /// Waits for the next line of the last event, for the time that `join` allows.
  private func awaitMore() {
    guard let join = decodingOptions.join, !isClosed else { return }
    cancelWake(&joinTimer)
    guard let decoding, decoding.pendingOffset != nil else { return }
    let wait = decoding.dueAt.map { TimeSpan(nanoseconds: max(0, $0 &- now.nanoseconds)) } ?? join.wait
    joinTimer = wake(after: wait, Self.joinToken)
  }

  override func woke(_ token: Int) {
    guard token == Self.joinToken else { return }
    joinTimer = .none
    guard isBatchDone else { return awaitMore() }
    guard let (rows, position) = decoding?.endDueEvents(at: now.nanoseconds) else { return awaitMore() }
    take([DecodedPiece(rows: rows, position: position)])
  }

  // MARK: The end

  /// Holds the execution until ``endPause()``.
  final func beginPause() {
    isPausing = true
    execution.hold()
  }

  final func endPause() {
    guard isPausing else { return }
    isPausing = false
    execution.release()
  }

  /// Waits no longer for further lines.
  final func stopWaiting() { cancelWake(&joinTimer) }

  override func stop() {
    stopWaiting()
    super.stop()
    endPause()
  }
}

extension BlockReader.Options {
  /// How a source reads its input.
  ///
  /// - Parameter limit: The maximum size, in bytes, of an input that is decoded as a whole.
  init(
    _ decoding: DecoderOptions, limit: ByteSize, maxLine: ByteSize, whenTooLong: WhenTooLong, _ execution: Execution
  ) {
    self.init()
    mode = .init(decoding.framing, limit: limit.bytes)
    self.maxLine = maxLine.bytes
    self.whenTooLong = whenTooLong.policy
    if let bytes = execution.reading.blockBytes { blockBytes = bytes }
    allBlocks = execution.services.memory.ofReaders
  }
}
