import PipelineCore
import Transport

extension HTTPSink {
  /// The meaning of an answer by the expression `answer`, which precedes the status.
  enum Meaning: String {
    /// The server has the events, or needs none.
    case ok
    /// The request is repeated.
    case retry
    /// One of the events is bad: as the status 400.
    case refuse
    /// The configuration is wrong, as after status 401.
    case fail
    /// `partial` gives the outcome of each event.
    case partial
  }

  /// The value of `answer`.
  enum Answer {
    case meaning(Meaning)
    case byStatus
    /// The value is neither null nor one of the words.
    case unknown(String)
  }
}

extension HTTPSink.Connector {
  private static let longestRetryAfter = TimeSpan.seconds(600)

  /// An answer as `response` for expressions.
  private func variable(_ response: HTTPResponse) -> Value {
    let arena = execution.executor.arena
    return response.body.withUnsafeBytes { bytes in
      var body = response.body.isEmpty ? Value.null : execution.json.parse(arena.copy(bytes), into: arena)
      if body.isError { body = arena.string(String(decoding: bytes, as: UTF8.self)) }
      return ResponseVariable.value(response, body: body, in: arena)
    }
  }

  /// The value of an expression over a response.
  private func evaluate(_ program: Program, _ response: HTTPResponse, _ count: Int) -> Value {
    frame.loadNothing()
    frame.set(0, variable(response))
    frame.set(1, .int(count))
    return program.evaluate(frame.frame)
  }

  /// The result of the parameter `answer`. Where the expression fails, the status decides: an answer of another form
  /// comes from a proxy, or has no more information than its status.
  func meaning(of response: HTTPResponse, _ count: Int) -> HTTPSink.Answer {
    guard let program = parameters.answer.program else { return .byStatus }
    let value = evaluate(program, response, count).unwrapped
    if value.isError || value.isNull || value.isAbsent { return .byStatus }
    let buffer = OutputBuffer(capacity: 64)
    if value.is(.string) { JSONWriter.appendUnescaped(value, to: buffer) } else { JSONWriter.append(value, to: buffer) }
    let text = String(decoding: buffer.bytes, as: UTF8.self)
    if text.isEmpty { return .byStatus }
    return HTTPSink.Meaning(rawValue: text).map { .meaning($0) } ?? .unknown(Printable.cut(text, limit: 100))
  }

  /// The pause that the answer asks for, in its body or in `Retry-After`; nil: it asks for none.
  func pause(of response: HTTPResponse, _ count: Int) -> TimeSpan? {
    let header = ServerPause.retryAfter(
      response, wallTime: executor.wallTime, longest: Self.longestRetryAfter)
    guard let program = parameters.retry.after.program else { return header }
    let value = evaluate(program, response, count).unwrapped
    let seconds: Double
    switch value.what {
    case .int: seconds = Double(value.asInt)
    case .uint: seconds = Double(value.asUInt)
    case .double: seconds = value.asDouble
    case .duration: seconds = Double(value.asInt) / 1e9
    default: return header
    }
    guard seconds >= 0 else { return header }
    return TimeSpan(nanoseconds: Int64(min(seconds, Double(Self.longestRetryAfter.nanoseconds) / 1e9) * 1e9))
  }

  func verdicts(of batch: DeliveryBatch, _ response: HTTPResponse) -> HTTPSink.Verdicts {
    guard let program = parameters.partial.program else { return .each(batch.items.map { _ in .accepted }) }
    let value = evaluate(program, response, batch.items.count)
    if value.isError { return .unclear(program.failureMessage(value, frame.frame)) }
    return HTTPSink.Verdicts(execution.json.expand(value, into: executor.arena), batch.items.count)
  }
}
