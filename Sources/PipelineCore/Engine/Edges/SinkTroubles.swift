import Synchronization

/// The reason why a sink cannot deliver: its destination is down, full, or refuses everything.
package struct SinkTrouble: Sendable, Equatable {
  /// The destination's last message, as a clause.
  package var reason: String
  /// The start of the trouble: wall-clock nanoseconds since 1970.
  package var since: Int64
}

/// The sinks of one execution that cannot deliver. Read and written from any thread.
package final class SinkTroubles: Sendable {
  private let found = Mutex<[String: SinkTrouble]>([:])

  package init() {}

  /// The sinks that cannot deliver, by name.
  package var all: [String: SinkTrouble] { found.withLock { $0 } }

  func note(_ sink: String, _ reason: String, at time: Int64) {
    found.withLock { $0[sink] = SinkTrouble(reason: reason, since: $0[sink]?.since ?? time) }
  }

  func forget(_ sink: String) { found.withLock { _ = $0.removeValue(forKey: sink) } }

  /// Notes the trouble of one sink. From any thread.
  package struct Note: Sendable {
    let troubles: SinkTroubles
    let sink: String
    let clock: any Clock

    /// Notes that nothing can be delivered, and why. A new reason leaves the start of the trouble unchanged.
    package func begins(_ reason: String) { troubles.note(sink, reason, at: clock.wallTime) }
    /// Notes that an event was delivered.
    package func ends() { troubles.forget(sink) }
  }
}
