import Synchronization

/// Counts the connections of a component's requests. A client shares its connections among all components; a connection
/// counts for the one whose request made it. On any thread.
public final class HTTPConnections: Sendable, Equatable {
  /// The counters of connections.
  public struct Counts: Sendable, Equatable {
    /// Open sockets, attempts to connect included.
    public var open = 0
    /// Connections that were made.
    public var opened: UInt64 = 0
    /// Requests that were sent over an existing connection.
    public var reused: UInt64 = 0
    /// Requests without an answer, because their connection could not be made or has ended.
    public var broken: UInt64 = 0
  }

  private let counted = Mutex(Counts())

  public init() {}

  public var counts: Counts { counted.withLock { $0 } }

  /// Always true: requests that differ only in their counters are equal.
  public static func == (a: HTTPConnections, b: HTTPConnections) -> Bool { true }

  public func count(_ change: (inout Counts) -> Void) { counted.withLock { change(&$0) } }
}
