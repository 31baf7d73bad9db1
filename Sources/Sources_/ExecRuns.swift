import PipelineCore

/// Separate runs of a program, once or periodically.
final class ExecRuns: PolledSource {
  private let parameters: Exec
  private lazy var frame = makeFrame()

  init(_ parameters: Exec, _ nodeContext: NodeContext, _ downstream: Downstream) {
    self.parameters = parameters
    super.init(
      Schedule(
        every: parameters.every, jitter: parameters.jitter, immediate: parameters.immediate,
        stopTimeout: parameters.stopTimeout),
      ("a run of '\(parameters.name)'", "it had not ended"), nodeContext, downstream)
  }

  override func ask() -> (any Cancellable)? {
    frame.loadNothing()
    switch parameters.call(frame) {
    case .failure(let failure):
      refused(.programRefused, poll: .runFailed, failure)
      return nil
    case .success(let call):
      let executor = executor
      let node = Weak(self)
      return execution.services.programs.run(call) { result in
        executor.post { node.object?.ended(result) }
      }
    }
  }

  private func ended(_ result: Result<ProgramResult, ProgramFailure>) {
    guard take() else { return }
    let origin = Origin(
      source: origin.source, path: parameters.name, receivedAt: executor.wallTime, reply: origin.reply,
      identity: origin.identity)
    switch result {
    case .failure(let failure) where failure.kind == .arguments:
      refused(
        .programRefused, poll: .runFailed,
        SignalFailure(.source, "'\(parameters.name)' \(failure.message)", at: nodeContext.location))
      end()
    case .failure(let failure):
      failed(
        .runFailed, SignalFailure(.source, "'\(parameters.name)' \(failure.message)", at: nodeContext.location),
        from: origin)
      end()
    case .success(let result) where parameters.emit == .exit:
      sendAnswer(
        arena.map([
          "exit": .int(Int64(result.exit ?? -1)), "signal": .int(Int64(result.signal ?? 0)),
          "output": arena.string(String(decoding: result.output, as: UTF8.self)),
          "errors": arena.string(String(decoding: result.errors, as: UTF8.self)),
        ]), origin)
    case .success(let result) where result.exit.map(parameters.success.contains) == true:
      sendBody(result.output, parameters.decoding, origin)
    case .success(let result):
      failed(.runFailed, result.failure(of: parameters.name, at: nodeContext.location), result.output, from: origin)
      end()
    }
  }
}

extension ProgramResult {
  /// The failure for a program that has ended in an unexpected way.
  func failure(of program: String, at location: SourceLocation?) -> SignalFailure {
    let lines = errors.split(separator: UInt8(ascii: "\n"))
    let said = lines.last.map { ", after it had written: \(Printable.cut(Array($0), limit: 200))" } ?? ""
    let what = exit.map { "exited with \($0)" } ?? "was ended by signal \(signal ?? 0)"
    var details: [SignalFailure.Detail] = []
    if let exit { details.append(.init("exit", Int64(exit))) }
    if let signal { details.append(.init("signal", Int64(signal))) }
    return SignalFailure(.source, "'\(program)' \(what)\(said)", at: location, details: details)
  }
}
