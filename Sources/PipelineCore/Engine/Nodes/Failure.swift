/// Why a signal ended without completing.
public struct SignalFailure: Error, Sendable, Equatable {
  /// The cause of a failure.
  public enum Kind: String, Sendable, CaseIterable {
    /// `timeout` ran out.
    case timeout
    /// A source cannot continue: connection lost, file gone, unusable answer.
    case source
    /// A sink cannot continue.
    case sink
    /// A limit was reached, and the operator has no other way to stay within it.
    case limit
    /// An expression failed under `onError: fail`.
    case expression
    /// The pipeline itself caused the failure: `error:` in a test's marbles.
    case user
    /// A plugin cannot continue.
    case plugin
  }

  /// The kind of component that failed.
  public var kind: Kind
  /// One sentence without a full stop.
  public var message: String
  /// The location in the pipeline file, if known.
  public var location: SourceLocation?
  /// Further facts, such as the `status` of an HTTP answer; names and numbers only.
  public var details: [Detail] = []

  /// A further fact about a failure.
  public struct Detail: Sendable, Equatable {
    /// The name of the detail, a member of `error.details`.
    public var name: String
    /// The value of the detail.
    public var value: Int64
    /// A number with a name.
    public init(_ name: String, _ value: Int64) {
      self.name = name
      self.value = value
    }
  }

  /// A failure with its reason, a sentence without a full stop.
  public init(
    _ kind: Kind, _ message: String, at location: SourceLocation? = nil, details: [Detail] = []
  ) {
    self.kind = kind
    self.message = message
    self.location = location
    self.details = details
  }

  /// The variable `error` of expressions: `error.message`, `error.kind`, and the details.
  func value(in arena: Arena) -> Value {
    var members: [(key: Value, value: Value)] = [
      (.literal("kind"), arena.string(kind.rawValue)),
      (.literal("message"), arena.string(message)),
    ]
    for detail in details { members.append((arena.string(detail.name), .int(detail.value))) }
    return arena.map(members)
  }
}

/// An event that a node could not process, with the reason; the signal continues without it.
package struct Rejection {
  package var event: Event
  /// A code of the RX5xx range.
  package var code: Diagnostic.Code
  /// One sentence without a full stop.
  public var message: String
  package var location: SourceLocation?

  package init(_ event: Event, _ code: Diagnostic.Code, _ message: String, at location: SourceLocation?) {
    self.event = event
    self.code = code
    self.message = message
    self.location = location
  }
}
