import Glibc
import PipelineCore
import Synchronization
import Transport

/// A program that keeps running, and whose output is sent as it arrives.
final class ExecStream: DecodingSource {
  private let parameters: Exec
  private lazy var inputQueue = InputQueue(nodeContext, gate: SemaphoreGate())
  private lazy var frame = makeFrame()
  private lazy var placement = makePlacement(
    threads: parameters.decoding.readsBlocksApart ? decodingThreads : 1)
  private var reader: BlockReader?
  private var program: StreamedProgram?
  /// How the program ended; nil while it runs.
  private var result: ProgramResult?
  private var isReadToEnd = false
  /// The descriptor of the output, to be passed to the next version of the source.
  private var output: FileDescriptor?
  private var call: ProgramCall?
  /// How its output is decoded.
  private lazy var options = parameters.decoding
  /// Whether this is the program of a previous version with another call; the source's own program starts after its
  /// end.
  private var isPredecessor = false
  /// Whether the next version of the source continues to read.
  private var isHandingOver = false
  /// Whether the program is being ended because the pipeline stops.
  private var isEnding = false
  /// Whether the execution must wait until everything that was read has been sent.
  private var isPausing = false
  private var timer = Wake.none
  /// The decoder, if turns decode.
  private var decoding: BlockDecoding?
  /// Ends the incomplete last event when its wait is over.
  private var joinTimer = Wake.none
  /// The number of bytes sent, for statistics; output cannot be read again.
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
    let key = execution.name(of: nodeContext.step)
    let mayFollow = hasPieces && KeptPrograms.all.has(key)
    guard let call = makeCall(), let decoder = makeDecoder(parameters.decoding) else { return }
    guard mayFollow else { return launch(call, decoder) }
    execution.whenBegun { [self] in
      guard !isClosed else { return }
      if let kept = KeptPrograms.all.takeFirst(key) { goOn(with: kept, call, decoder) } else { launch(call, decoder) }
    }
  }

  /// Nil if the source has ended.
  private func makeCall() -> ProgramCall? {
    frame.loadNothing()
    switch parameters.call(frame) {
    case .failure(let failure):
      if rejectOuter(failure.kind == .expression ? .expressionFailed : .programRefused, because: failure) {
        finish()
      } else {
        finish(failing: failure)
      }
      return nil
    case .success(let call): return call
    }
  }

  private func launch(_ call: ProgramCall, _ decoder: any EventDecoder) {
    let (log, ended) = reports
    let program = StreamedProgram(call, log: log, ended: ended)
    self.program = program
    self.call = call
    do throws(ProgramFailure) {
      try read(try program.start(), by: decoder, from: KeptInput.Start())
    } catch {
      fail(error)
    }
  }

  private func fail(_ failure: ProgramFailure) {
    let reason = SignalFailure(.source, "'\(parameters.name)' \(failure.message)", at: nodeContext.location)
    // The arguments come from this event; those of another event may be valid.
    if failure.kind == .arguments, rejectOuter(.programRefused, because: reason) { return finish() }
    finish(failing: reason)
  }

  /// The handlers for a program's log lines and its end.
  private var reports: (@Sendable (Services.Level, String) -> Void, @Sendable (ProgramResult) -> Void) {
    let executor = executor
    let node = Weak(self)
    let services = execution.services
    let label = execution.plan.steps[nodeContext.step.number].label
    return ({ services.log($0, label, $1) }, { result in executor.post { node.object?.ended(result) } })
  }

  /// Takes over the program of the previous version. If that has another call, the program is asked to end; what it
  /// writes until then is still sent.
  private func goOn(with kept: KeptPrograms.Entry, _ call: ProgramCall, _ decoder: any EventDecoder) {
    program = kept.program
    self.call = kept.call
    isPredecessor = kept.call != call
    if isPredecessor { options = kept.options }
    let start = kept.input.start(by: options)
    if start.lacksBeginning {
      execution.services.log(
        .warning, execution.plan.steps[nodeContext.step.number].label,
        "'decode' has changed and needs the start of the output, which has been read; the next row names the columns")
    }
    if let rows = start.rows {
      beginPiece()
      take(rows, origin: ownOrigin)
      guard !isClosed else { return }
    }
    do throws(ProgramFailure) {
      try read(kept.output, by: decoder, from: start)
    } catch {
      return fail(error)
    }
    awaitMore()
    let (log, ended) = reports
    kept.program.adopt(log: log, ended: ended)
    if isPredecessor { askToEnd() }
  }

  private func read(
    _ output: FileDescriptor, by decoder: any EventDecoder, from start: KeptInput.Start
  ) throws(ProgramFailure) {
    var reading = BlockReader.Options()
    reading.mode = .init(options.framing, limit: parameters.maxOutput.bytes)
    reading.maxLine = parameters.maxLine.bytes
    reading.whenTooLong = parameters.whenTooLong.policy
    reading.beginning = start.reading
    decodingPosition = start.position
    if let bytes = execution.reading.blockBytes { reading.blockBytes = bytes }
    reading.allBlocks = execution.services.memory.ofReaders
    let node = Weak(self)
    self.output = output
    do throws(PosixError) {
      let reader = try BlockReader(output, options: reading)
      self.reader = reader
      decoding = try reader.start(
        by: decoder, decoding: options, knowing: start.position.memory, goingOnWith: start.decoding,
        threads: decodingThreads(for: options), into: inputQueue, placement: placement
      ) { pieces in node.object?.take(pieces[...]) }
      if options.join != nil { decoding?.clock = { [weak self] in self?.now.nanoseconds ?? 0 } }
    } catch {
      throw ProgramFailure(.start, "cannot be read: \(error.message)")
    }
  }

  override func dryRun() { _ = makeDecoder(parameters.decoding) }

  override func beginPiece() { beginPiece(of: sent) { [self] in unsentOffset ?? decodingPosition.offset } }

  /// Takes pieces one after another. If the rows of a piece need further turns, the next piece waits for the last of
  /// these.
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

  /// Sets the timer that ends the last event if no further line arrives in the time that `join` allows.
  private func awaitMore() {
    guard let join = options.join, !isClosed else { return }
    cancelWake(&joinTimer)
    guard let decoding, decoding.pendingOffset != nil else { return }
    let wait = decoding.dueAt.map { TimeSpan(nanoseconds: max(0, $0 &- now.nanoseconds)) } ?? join.wait
    joinTimer = wake(after: wait, Self.joinToken)
  }
  private static let joinToken = 1

  /// Handles the end of a piece, after its rows were sent.
  private func end(_ piece: DecodedPiece) {
    if let longLine = piece.longLine { rejectLong(longLine, parameters.maxLine, ownOrigin) }
    guard !isClosed else { return }
    if let place = piece.place { decodingPosition = place }
    switch piece.end {
    case nil: break
    case .finished where isHandingOver, .stopped where isHandingOver: handOver(piece.decoding)
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

  /// Acts on the end of the program once all its output has been sent.
  private func over() {
    guard let result, isReadToEnd, !isClosed else { return }
    cancelWake(&timer)
    if isPausing {
      endPause()
    } else if isPredecessor, !isEnding {
      (program, reader, isReadToEnd, isPredecessor, options) = (nil, nil, false, false, parameters.decoding)
      self.result = nil
      begin()
    } else if isEnding || result.exit.map(parameters.success.contains) == true {
      finish()
    } else {
      finish(failing: result.failure(of: parameters.name, at: nodeContext.location))
    }
  }

  // MARK: The end

  /// The output is sent to its end.
  override func drain() {
    guard program != nil, result == nil || !isReadToEnd else { return finish() }
    isEnding = true
    askToEnd()
  }

  override func suspend() {
    guard program != nil, !isPausing, result == nil || !isReadToEnd else { return }
    isPausing = true
    execution.hold()
    let next = execution.successor(of: nodeContext.step) as? Exec
    isHandingOver = next?.streaming == true && hasPieces && !isReadToEnd && !isPredecessor && KeptListeners.isKeeping
    if isHandingOver { reader?.stop() } else { askToEnd() }
  }

  /// Lets the program run on; the next version of the source continues to read its output.
  private func handOver(_ decoding: BlockDecoding?) {
    cancelWake(&joinTimer)
    defer { endPause() }
    guard let program, let call, let output, let reader,
      let decoding = decoding ?? (try? options.decoder()).map(BlockDecoding.init)
    else { return }
    let entry = KeptPrograms.Entry(
      call: call, program: program, output: output, input: KeptInput(reader.rest, decoding, options), options: options)
    if KeptPrograms.all.keep([entry], for: execution.name(of: nodeContext.step)) { self.program = nil }
  }

  private func askToEnd() {
    program?.signal(SIGTERM)
    timer = wake(after: parameters.stopTimeout)
  }

  override func woke(_ token: Int) {
    if token == Self.joinToken {
      joinTimer = .none
      guard isBatchDone else { return awaitMore() }
      guard let (rows, place) = decoding?.endDueEvents(at: now.nanoseconds) else { return awaitMore() }
      take([DecodedPiece(rows: rows, place: place)])
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
