import Synchronization

/// The rows that an outbox has given to its sink and that are not acknowledged. After a reload the new version of the
/// sink may take over their events; the outbox of that version then becomes the owner.
package final class GivenRows: Sendable {
  typealias Owner = @Sendable (_ row: RemovedRow, _ outcome: Ack.Outcome) -> Void

  private struct State {
    var rows: [Int64: RemovedRow] = [:]
    /// The rows that ended while there was no owner.
    var ended: [(row: RemovedRow, outcome: Ack.Outcome)] = []
    /// Called with each row that ends, under the lock, so that a change of the owner misses no row.
    var owner: Owner?
  }
  private let state = Mutex(State())

  func give(_ row: RemovedRow) { state.withLock { $0.rows[row.number] = row } }

  /// Ends a row: all of its events are acknowledged, or one has failed. Called on any thread.
  func end(_ row: RemovedRow, _ outcome: Ack.Outcome) {
    state.withLock { state in
      state.rows[row.number] = nil
      if let owner = state.owner { owner(row, outcome) } else { state.ended.append((row, outcome)) }
    }
  }

  /// Notifies `owner` of the rows that end from now on, and of those that ended without an owner; nil: rows that end
  /// wait for the next owner.
  func setOwner(_ owner: Owner?) {
    state.withLock { state in
      state.owner = owner
      guard let owner else { return }
      for (row, outcome) in state.ended { owner(row, outcome) }
      state.ended = []
    }
  }

  /// Whether no row is under way, so that no further row can end.
  var isEmpty: Bool { state.withLock(\.rows.isEmpty) }

  /// The rows that must not be delivered again: those under way, and those acknowledged without an owner.
  var delivering: [RemovedRow] {
    state.withLock { state in
      Array(state.rows.values) + state.ended.filter { $0.outcome == .acknowledged }.map(\.row)
    }
  }
}
