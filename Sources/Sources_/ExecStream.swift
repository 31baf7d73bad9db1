import Glibc
import PipelineCore
import Synchronization
import Transport

/// A program whose output is sent while it runs.
final class ExecStream: DecodingSource {
  private let parameters: Exec
  private lazy var inputQueue = InputQueue(nodeContext, gate: SemaphoreGate())
  private lazy var frame = makeFrame()
  private lazy var placement = makePlacement(
    threads: parameters.decoding.readsBlocksApart ? decodingThreads : 1)
  private var reader: BlockReader?
  private var program: StreamedProgram?
  /// How the program has ended; nil: it runs, or its output is still read.
  private var result: ProgramResult?
  private var isReadToEnd = false
  /// It is being ended because the pipeline stops.
  private var isEnding = false
  /// Holds the execution until everything that was read has been sent.
  private var isPausing = false
  private var timer = Wake.none
  /// What decodes, if the turns do.
  private var decoding: BlockDecoding?
  /// When the last event is sent whose end has not come.
  private var joinTimer = Wake.none
  /// What has been sent, in bytes. It cannot be read again, so this is for those that look on.
  private let sent = PositionLedger<Int64>(0)
  private var decodingPosition = DecodingPosition()
  private lazy var ownOrigin = Origin(
    source: origin.source, path: parameters.name, receivedAt: executor.wallTime, reply: origin.reply,
    identity: freshIdentity())

  init(_ parameters: Exec, _ nodeContext: NodeContext, _ downstream: Downstream) {
    self.parameters = parameters
    super.init(nodeContext, downstream: downstream)
  }

  override func begin() {
    frame.loadNothing()
    let call: ProgramCall
    switch parameters.call(frame) {
    case .failure(let failure):
      if rejectOuter(failure.kind == .expression ? .expressionFailed : .programRefused, because: failure) {
        finish()
      } else {
        finish(failing: failure)
      }
      return
    case .success(let made): call = made
    }
    guard let decoder = makeDecoder(parameters.decoding) else { return }
    let executor = executor
    let node = Weak(self)
    let services = execution.services
    let label = execution.plan.steps[nodeContext.step.number].label
    let program = StreamedProgram(call) { level, text in
      services.log(level, label, text)
    } ended: { result in
      executor.post { node.object?.ended(result) }
    }
    self.program = program
    do throws(ProgramFailure) {
      let output = try program.start()
      try read(output, by: decoder)
    } catch {
      finish(
        failing: SignalFailure(.source, "'\(parameters.name)' \(error.message)", at: nodeContext.location))
    }
  }

  private func read(_ output: FileDescriptor, by decoder: any EventDecoder) throws(ProgramFailure) {
    var options = BlockReader.Options()
    options.mode = .init(parameters.decoding.framing, limit: parameters.maxOutput.bytes)
    options.maxLine = parameters.maxLine.bytes
    options.whenTooLong = parameters.whenTooLong.policy
    if let bytes = execution.reading.blockBytes { options.blockBytes = bytes }
    let node = Weak(self)
    do throws(PosixError) {
      let reader = try BlockReader(output, options: options)
      self.reader = reader
      decoding = try reader.start(
        by: decoder, decoding: parameters.decoding, threads: decodingThreads(for: parameters.decoding),
        into: inputQueue,
        placement: placement
      ) { pieces in node.object?.take(pieces[...]) }
    } catch {
      throw ProgramFailure(.start, "cannot be read: \(error.message)")
    }
  }

  override func dryRun() { _ = makeDecoder(parameters.decoding) }

  override func beginPiece() { beginPiece(of: sent) { [self] in unsentOffset ?? decodingPosition.offset } }

  /// Takes the pieces one after the other. If the rows of a piece need further turns, the next piece waits for the
  /// last of them.
  private func take(_ pieces: ArraySlice<DecodedPiece>) {
    if !isClosed { beginPiece() }
    var rest = pieces
    while !isClosed, let piece = rest.popFirst() {
      if let rows = piece.rows { take(rows, encoded: piece.encoded, origin: ownOrigin) }
      guard isBatchDone else {
        return whenBatchIsDone { [unowned self, rest] in
          placement.usedMore(in: restTime)
          end(piece)
          take(rest)
        }
      }
      end(piece)
    }
    endTurn(placement)
    awaitMore()
  }

  /// Waits for the next line of the last event, as long as `join` says.
  private func awaitMore() {
    guard let join = parameters.join, !isClosed else { return }
    cancelWake(&joinTimer)
    if decoding?.pendingOffset != nil { joinTimer = wake(after: join.wait, Self.joinToken) }
  }
  private static let joinToken = 1

  /// Handles the end of a piece, after its rows.
  private func end(_ piece: DecodedPiece) {
    if let longLine = piece.longLine { rejectLong(longLine, parameters.maxLine, ownOrigin) }
    guard !isClosed else { return }
    if let place = piece.place { decodingPosition = place }
    switch piece.end {
    case nil: break
    case .finished, .stopped:
      isReadToEnd = true
      over()
    case .failed(let error):
      finish(failing: SignalFailure(.source, error.message, at: nodeContext.location))
    }
  }

  private func ended(_ result: ProgramResult) {
    guard !isClosed else { return }
    self.result = result
    over()
  }

  /// The program has ended, and its output has been sent.
  private func over() {
    guard let result, isReadToEnd, !isClosed else { return }
    cancelWake(&timer)
    if isPausing {
      endPause()
    } else if isEnding || result.exit.map(parameters.success.contains) == true {
      finish()
    } else {
      finish(failing: result.failure(of: parameters.name, at: nodeContext.location))
    }
  }

  // MARK: The end

  /// Its output up to its end is sent.
  override func drain() {
    guard program != nil, result == nil || !isReadToEnd else { return finish() }
    isEnding = true
    askToEnd()
  }

  override func suspend() {
    guard program != nil, !isPausing, result == nil || !isReadToEnd else { return }
    isPausing = true
    execution.hold()
    askToEnd()
  }

  private func askToEnd() {
    program?.signal(SIGTERM)
    timer = wake(after: parameters.stopTimeout)
  }

  override func woke(_ token: Int) {
    if token == Self.joinToken {
      joinTimer = .none
      guard isBatchDone else { return awaitMore() }
      if let (rows, place) = decoding?.endEvent() { take([DecodedPiece(rows: rows, place: place)]) }
      return
    }
    timer = .none
    program?.signal(SIGKILL)
  }

  private func endPause() {
    guard isPausing else { return }
    isPausing = false
    execution.release()
  }

  override func save(_ state: inout StateWriter) {}
  override func restore(_ state: inout StateReader) throws(StateFault) {}
  override func resume() { begin() }

  override func stop() {
    cancelWake(&timer)
    cancelWake(&joinTimer)
    inputQueue.stop()
    reader?.stop()
    program?.cancel()
    endPause()
  }
}
