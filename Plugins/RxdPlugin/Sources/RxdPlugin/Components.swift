import CRxdPlugin

/// Why a call fails: an instance that cannot be opened, an event that cannot be worked on, a signal that ends.
public struct Failure: Error {
  public var message: String
  /// The place in the parameters, such as `server.port`.
  public var place: String
  public init(_ message: String, at place: String = "") {
    self.message = message
    self.place = place
  }
}

/// A sink cannot deliver for now: the events come again, after a pause.
public struct Retry: Error {
  public var message: String
  public init(_ message: String) { self.message = message }
}

/// What an instance is opened with. Valid until its initialiser returns.
public struct Opening {
  let raw: rxd_opening
  public let call: Call
  /// All that are given or have a default, but for expressions and templates; sizes as bytes.
  public var parameters: Value { Value(raw.parameters, call) }
  /// What was saved, and the version of the spec that it was saved under; nil: nothing.
  public var state: (bytes: [UInt8], version: Int)? {
    raw.state.bytes == nil ? nil : (Array(raw.state.buffer), Int(raw.state_version))
  }
  /// Of a source: behind what it goes on; nil: nothing.
  public var position: [UInt8]? { raw.position.bytes == nil ? nil : Array(raw.position.buffer) }
  /// Where it stands in the pipeline file: "out/2 geoip".
  public var step: String { raw.step.string }
  public var pipeline: String { raw.pipeline.string }
  /// In `rxd test`, where time is virtual.
  public var isTest: Bool { raw.is_test != 0 }
  /// The log and the counters of the instance, which may be kept.
  public var log: Log { Log(instance: raw.instance) }
}

/// Of one instance; may be used on any thread, until it is released.
public struct Log: @unchecked Sendable {
  public enum Level: String, Sendable { case debug, info, warning, error }
  let instance: OpaquePointer?

  public func callAsFunction(_ level: Level, _ message: String) {
    level.rawValue.withText { level in message.withText { host.log(instance, level, $0) } }
  }
  public func count(_ name: String, by number: Int64 = 1) { name.withText { host.count_up(instance, $0, number) } }
  /// Nobody waits for what it does any more.
  public var isClosing: Bool { host.is_closing(instance) != 0 }
}

/// A pure function of an event, with `"form": "row"` in the spec. Called on any thread, several at once; must not block.
public protocol RowOperator: Sendable {
  init(_ opening: Opening) throws
  /// - Parameter arguments: of each parameter of type expression or template, absent where it is not given.
  /// - Returns: The event that goes on; nil: none. What it throws sends the event to the errors output.
  func row(_ event: Value, _ arguments: Arguments, in call: Call) throws -> Value?
}

/// An operator with state, time or calls, on a thread of its own.
public protocol StreamOperator: AnyObject {
  init(_ opening: Opening) throws
  /// The inputs come in order, each once. What it throws sends the event to the errors output.
  func process(_ input: Input, _ output: Output, in call: Call) throws
  /// The state behind everything that it was given, where the spec has one.
  func save(in call: Call) throws -> [UInt8]
}

extension StreamOperator {
  public func save(in call: Call) throws -> [UInt8] { [] }
}

/// A source, on a thread of its own.
public protocol Source: AnyObject {
  init(_ opening: Opening) throws
  /// Sends until it has completed, or is to stop. What it throws fails the signal.
  func run(_ sender: Sender) throws
}

/// A sink, on a thread of its own.
public protocol Sink: AnyObject {
  init(_ opening: Opening) throws
  /// What it does not refuse is delivered when it returns. ``Retry``: what was not said to be delivered comes again.
  func write(_ batch: SinkBatch, in call: Call) throws
}

/// Results of expressions and templates, in the order of the spec.
public struct Arguments {
  let raw: UnsafePointer<rxd_value>?
  let call: Call
  public subscript(index: Int) -> Value { raw.map { Value($0[index], call) } ?? call.null[0] }
}

/// What a stream operator is given.
public enum Input {
  case event(Value, Arguments)
  case timer(String)
  case complete
}

/// Takes what an operator makes of one input.
public struct Output {
  let raw: OpaquePointer?
  let index: Int
  public func send(_ event: Value) { withUnsafePointer(to: event.raw) { host.send(raw, index, $0) } }
  public func reject(_ message: String) { message.withText { host.reject(raw, index, $0) } }
  /// From now on, on the pipeline's clock; moves one of the same name. rxd keeps timers with the state: a restored instance sets none again.
  public func setTimer(_ name: String, after duration: Duration) {
    name.withText { host.timer(raw, $0, max(0, duration.nanoseconds)) }
  }
  public func cancelTimer(_ name: String) { name.withText { host.timer(raw, $0, -1) } }
}

/// What a source sends with, on its own thread.
public struct Sender {
  let raw: OpaquePointer?
  /// For the values of events; what was made in it is gone after a ``flush()``.
  public var call: Call { Call(scope: host.source_scope(raw)) }
  /// False: the event is taken, and it was the last. `token`: above 0, of the author's choice, to hear what becomes of it.
  @discardableResult
  public func add(_ event: Value, token: UInt64 = 0) -> Bool {
    withUnsafePointer(to: event.raw) { host.add(raw, $0, token) } == 0
  }
  /// Input that is no event, for the errors output.
  public func reject(_ input: String, _ message: String, token: UInt64 = 0) {
    input.withText { input in message.withText { host.reject_input(raw, input, $0, token) } }
  }
  /// Behind the last event that was added: what a restart goes on behind.
  public func position(_ bytes: [UInt8]) { bytes.withText { host.position(raw, $0) } }
  /// Hands over what was added; waits while nobody wants more. False: it is to stop.
  @discardableResult
  public func flush() -> Bool { host.flush(raw) == 0 }
  /// What has become of events with a token. Waits until something has, or the source is to stop.
  ///
  /// - Parameter duration: How long, at most; nil: for ever.
  public func settled(within duration: Duration?) -> [(token: UInt64, hasFailed: Bool)] {
    var acks = [rxd_ack](repeating: rxd_ack(), count: 256)
    let count = host.acks(raw, &acks, acks.count, duration.map { max(0, $0.nanoseconds) } ?? -1)
    return acks.prefix(count).map { ($0.token, $0.is_failed != 0) }
  }
  /// Send nothing more: settle, and return from `run`.
  public var isStopping: Bool { host.is_stopping(raw) != 0 }
  /// Nothing more becomes known of events with a token: take what ``settled(within:)`` has, and return from `run`.
  public var isOver: Bool { host.is_stopping(raw) == 2 }
  /// Readable while something is settled, or it is to stop: for `poll`.
  public var wakeDescriptor: Int32 { host.wake_descriptor(raw) }
}

/// The events that a sink is given at once.
public struct SinkBatch {
  let batch: UnsafePointer<rxd_batch>
  let verdicts: OpaquePointer?
  let call: Call
  public var count: Int { Int(batch.pointee.count) }
  public func event(_ index: Int) -> Value { Value(batch.input(index).event, call) }
  public func arguments(_ index: Int) -> Arguments { Arguments(raw: batch.input(index).arguments, call: call) }
  /// For good: it goes to the errors output.
  public func refuse(_ index: Int, _ message: String) { message.withText { host.refuse(verdicts, index, $0) } }
  /// The first so many are, whatever `write` does then.
  public func delivered(_ count: Int) { host.delivered(verdicts, count) }
}

extension UnsafePointer<rxd_batch> {
  /// A newer rxd may have longer inputs.
  func input(_ index: Int) -> rxd_input {
    (UnsafeRawPointer(pointee.inputs!) + index * pointee.input_size).loadUnaligned(as: rxd_input.self)
  }
}
