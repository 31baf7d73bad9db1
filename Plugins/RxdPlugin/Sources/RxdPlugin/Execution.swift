import CRxdPlugin

/// The environment of an instance: its log, its clock, its position in the pipeline.
public final class Execution: @unchecked Sendable {
  public let services: Services
  /// The time of the present call.
  var times: (wall: Int64, monotonic: Int64) = (0, 0)

  init(_ services: Services) { self.services = services }
}

/// The log and the counters of an instance; may be used on any thread, until it is released.
public struct Services: @unchecked Sendable {
  /// The level of a log record.
  public enum Level: String, Sendable { case debug, info, warning, error }
  let instance: OpaquePointer?
  /// Whether time is virtual, as in `rxd test`.
  public let isImmediate: Bool

  /// The label of the step is ignored: rxd adds it itself.
  public func log(_ level: Level, _ label: String, _ message: String) {
    level.rawValue.withText { level in message.withText { host.log(instance, level, $0) } }
  }
  /// Adds to a counter of the step; at most 100 names.
  public func count(_ name: String, by number: Int64 = 1) { name.withText { host.count_up(instance, $0, number) } }
  /// Sets a gauge of this instance, such as a lag; nil removes it. `of` is its label, such as a partition. The gauges
  /// of a step's instances are added up. At most 100 names.
  public func gauge(_ name: String, of: String = "", _ value: Double?) {
    name.withText { name in of.withText { host.gauge(instance, name, $0, value ?? .nan) } }
  }
  /// The results of the instance are no longer needed.
  public var isClosing: Bool { host.is_closing(instance) != 0 }
}

/// The pipeline's clock.
public struct Executor {
  let execution: Execution
  /// Nanoseconds since 1970.
  public var wallTime: Int64 { execution.times.wall }
  public var now: Instant { Instant(nanoseconds: execution.times.monotonic) }
}

/// The environment of a running node.
public struct NodeContext {
  public let execution: Execution
  /// The name of the step: "out/geoip".
  public let label: String
  /// The name of the pipeline.
  public let pipeline: String
  /// The location of the whole component; to report one parameter, name it (`at: "path"`).
  public var location: SourceLocation? { SourceLocation("") }

  public func log(_ level: Services.Level, _ message: String) { execution.services.log(level, label, message) }
  /// Adds to a counter of the step.
  public func count(_ name: String, by number: Int64 = 1) { execution.services.count(name, by: number) }
}

/// Why a signal ends.
public struct SignalFailure: Error, Sendable, Equatable {
  /// The cause of a failure.
  public enum Kind: String, Sendable { case timeout, source, sink, limit, expression, user, plugin }
  public var kind: Kind
  /// One sentence without a full stop.
  public var message: String
  /// The path in the parameters.
  public var location: SourceLocation?
  public init(_ kind: Kind, _ message: String, at location: SourceLocation? = nil) {
    self.kind = kind
    self.message = message
    self.location = location
  }
}

/// The kinds of refusals. rxd reports every refusal by a plugin with one code, RX514.
public enum Diagnostic {
  /// The code of a failure.
  public enum Code: Sendable {
    case pluginRefusal, eventNotReadable, expressionFailed, eventNotDeliverable, eventRefused, unexpectedValue
  }
}

/// The policy for events that a step cannot process if the file sets no `onError`. For a plugin, they always go to
/// the errors output.
public enum ErrorPolicy: Sendable { case drop, keep, fail, route }

/// The receiver of a signal's events: `receive* (complete | fail)?`, one at a time, nothing after the end.
open class Downstream {
  public init() {}
  open func receive(_ event: Event) {}
  open func complete() {}
  open func fail(_ failure: SignalFailure) {}
}
