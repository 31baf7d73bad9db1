import PipelineCore

/// The parameter `batch` of a sink: which events are delivered together. A number is the maximum number of events.
public struct DeliveryBatchParameter: RecordParameter {
  /// The maximum number of events in a batch.
  public var count = 1000
  /// The maximum bytes of a batch; a single event may have more.
  public var bytes = ByteSize(1 << 20)
  /// How long an event waits for others.
  public var every = TimeSpan.milliseconds(100)
  /// The defaults: 1000 events, 1 MiB, 100 ms.
  public init() {}
  public static var fields: [RecordField<DeliveryBatchParameter>] {
    [
      .init("count", \.count, primary: true, range: 1...100_000, "The maximum number of events in a batch."),
      .init("bytes", \.bytes, "The maximum bytes of a batch; a single event may have more."),
      .init("every", \.every, range: 0...Int64.max, "How long an event waits for others, at most."),
    ]
  }
  public var defaultText: String? { String(count) }
}

/// The pauses between attempts of a sink, such as `reconnect: 1s` or `retry: { delay: 1s, maxDelay: 1m }`.
public struct ReconnectParameter: RecordParameter {
  /// The first pause; each further one is twice as long.
  public var delay = TimeSpan.milliseconds(100)
  /// The longest pause.
  public var maxDelay = TimeSpan.seconds(10)
  /// The defaults: from 100 ms to 10 s.
  public init() {}
  public static var fields: [RecordField<ReconnectParameter>] {
    [
      .init(
        "delay", \.delay, primary: true, range: 1_000_000...Int64.max,
        "The first pause; each further one is twice as long."),
      .init("maxDelay", \.maxDelay, range: 1_000_000...Int64.max, "The longest pause."),
    ]
  }
  public var defaultText: String? { delay.description }
  /// For ``DeliveryTraits/retry``.
  public var attempts: Attempts { Attempts(delay, most: maxDelay) }
}

extension EventFrame {
  /// Loads an event for the expressions of parameters. Throws why it cannot be read.
  public func read(_ event: Event) throws(DeliveryRefusal) {
    if let failure = load(event) { throw DeliveryRefusal(Self.message(of: failure)) }
  }

  /// The value of a parameter's expression for the event that was read last; valid until the end of the turn. Throws why it has none.
  public func value(of parameter: ExpressionParameter) throws(DeliveryRefusal) -> Value {
    let value = parameter.required.evaluate(self)
    if value.isError { throw DeliveryRefusal(parameter.required.failureMessage(value, frame)) }
    return value
  }
}
