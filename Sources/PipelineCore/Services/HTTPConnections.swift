import Synchronization

/// Counts the connections of a component's requests. A client shares its connections among all components; a connection
/// counts for the component whose request opened it. May be used on any thread.
package final class HTTPConnections: Sendable, Equatable {
  /// The counters of connections.
  package struct Counts: Sendable, Equatable {
    /// Open sockets, including attempts to connect.
    package var open = 0
    /// Connections that were established.
    package var opened: UInt64 = 0
    /// Requests that were sent over an existing connection.
    package var reused: UInt64 = 0
    /// Requests without a response, because their connection could not be established or has ended.
    package var broken: UInt64 = 0
  }

  private let counted = Mutex(Counts())

  package init() {}

  package var counts: Counts { counted.withLock { $0 } }

  /// Always true: requests that differ only in their counters are equal.
  package static func == (a: HTTPConnections, b: HTTPConnections) -> Bool { true }

  package func count(_ change: (inout Counts) -> Void) { counted.withLock { change(&$0) } }
}
