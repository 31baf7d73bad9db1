import Glibc
import PipelineCore
import Synchronization
import Transport

/// A program whose output is sent while it runs.
final class ExecStream: StreamSource {
  private let parameters: Exec
  private lazy var frame = makeFrame()
  private var program: StreamedProgram?
  /// How the program ended; nil while it runs.
  private var result: ProgramResult?
  private var isReadToEnd = false
  /// The descriptor of the output, to be passed to the next version of the source.
  private var output: FileDescriptor?
  private var call: ProgramCall?
  /// Whether the program belongs to a previous version with another call: the source starts its own after its end.
  private var isPredecessor = false
  /// Whether the next version of the source continues to read.
  private var isHandingOver = false
  /// Whether the program is being ended because the pipeline stops.
  private var isEnding = false
  private var timer = Wake.none
  private lazy var ownOrigin = Origin(
    source: origin.source, path: parameters.name, receivedAt: executor.wallTime, reply: origin.reply,
    identity: freshIdentity())

  init(_ parameters: Exec, _ nodeContext: NodeContext, _ downstream: Downstream) {
    self.parameters = parameters
    super.init(parameters.decoding, maxLine: parameters.maxLine, nodeContext, downstream)
  }

  override func begin() {
    let key = execution.names(ofHeir: nodeContext.step).first(where: KeptPrograms.all.has)
    let mayFollow = hasPieces && key != nil
    guard let call = makeCall(), let decoder = makeDecoder(parameters.decoding) else { return }
    guard mayFollow else { return launch(call, decoder) }
    execution.whenBegun { [self] in
      guard !isClosed else { return }
      if let kept = key.flatMap(KeptPrograms.all.takeFirst) {
        goOn(with: kept, call, decoder)
      } else {
        launch(call, decoder)
      }
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

  /// Takes over the program of the previous version. If that has another call, the program is asked to end; its output
  /// until then is still sent.
  private func goOn(with kept: KeptPrograms.Entry, _ call: ProgramCall, _ decoder: any EventDecoder) {
    program = kept.program
    self.call = kept.call
    isPredecessor = kept.call != call
    if isPredecessor { decodingOptions = kept.options }
    let start = kept.input.start(by: decodingOptions)
    if start.lacksBeginning {
      execution.services.log(
        .warning, execution.plan.steps[nodeContext.step.number].label,
        "'decode' has changed and needs the start of the output, which has been read; the next row names the columns")
    }
    do throws(ProgramFailure) {
      try read(kept.output, by: decoder, from: start)
    } catch {
      return fail(error)
    }
    guard !isClosed else { return }
    let (log, ended) = reports
    kept.program.adopt(log: log, ended: ended)
    if isPredecessor { askToEnd() }
  }

  private func read(
    _ output: FileDescriptor, by decoder: any EventDecoder, from start: KeptInput.Start
  ) throws(ProgramFailure) {
    self.output = output
    do throws(PosixError) {
      try read(
        output, by: decoder,
        BlockReader.Options(
          decodingOptions, limit: parameters.maxOutput, maxLine: parameters.maxLine,
          whenTooLong: parameters.whenTooLong, execution), from: start)
    } catch {
      throw ProgramFailure(.start, "cannot be read: \(error.message)")
    }
  }

  override var streamOrigin: Origin { ownOrigin }

  override func ended(_ decoding: BlockDecoding?, isStopped: Bool) {
    if isHandingOver { return handOver(decoding) }
    isReadToEnd = true
    over()
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
      (program, reader, isReadToEnd, isPredecessor, decodingOptions) = (nil, nil, false, false, parameters.decoding)
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
    beginPause()
    let next = execution.successor(of: nodeContext.step) as? Exec
    isHandingOver = next?.streaming == true && hasPieces && !isReadToEnd && !isPredecessor && KeptListeners.isKeeping
    if isHandingOver { reader?.stop() } else { askToEnd() }
  }

  /// Lets the program run on; the next version of the source continues to read its output.
  private func handOver(_ decoding: BlockDecoding?) {
    stopWaiting()
    defer { endPause() }
    guard let program, let call, let output, let reader,
      let decoding = decoding ?? (try? decodingOptions.decoder()).map(BlockDecoding.init)
    else { return }
    let entry = KeptPrograms.Entry(
      call: call, program: program, output: output, input: KeptInput(reader.rest, decoding, decodingOptions),
      options: decodingOptions)
    if KeptPrograms.all.keep([entry], for: execution.name(of: nodeContext.step)) { self.program = nil }
  }

  private func askToEnd() {
    program?.signal(SIGTERM)
    timer = wake(after: parameters.stopTimeout, Self.killToken)
  }

  private static let killToken = 2

  override func woke(_ token: Int) {
    guard token == Self.killToken else { return super.woke(token) }
    timer = .none
    program?.signal(SIGKILL)
  }

  override func save(_ state: inout StateWriter) {}
  override func restore(_ state: inout StateReader) throws(StateFault) {}
  override func resume() { begin() }

  override func stop() {
    cancelWake(&timer)
    program?.cancel()
    super.stop()
  }
}
