import Synchronization

/// The rows that an outbox has given to its sink and that are not acknowledged. In a reload the next version of the sink may take over their
/// events; then the outbox of that version becomes the owner.
package final class GivenRows: Sendable {
  typealias Owner = @Sendable (_ row: RemovedRow, _ outcome: Ack.Outcome) -> Void

  private struct State {
    var rows: [Int64: RemovedRow] = [:]
    /// The rows that ended while there was no owner.
    var ended: [(row: RemovedRow, outcome: Ack.Outcome)] = []
    /// Called with each row that ends.
    var owner: Owner?
  }
  private let state = Mutex(State())

  func give(_ row: RemovedRow) { state.withLock { $0.rows[row.number] = row } }

  /// All events of a row are acknowledged, or one has failed. From any thread.
  func end(_ row: RemovedRow, _ outcome: Ack.Outcome) {
    let owner = state.withLock { state in
      state.rows[row.number] = nil
      if state.owner == nil { state.ended.append((row, outcome)) }
      return state.owner
    }
    owner?(row, outcome)
  }

  /// Notifies `owner` of the rows that end from now on, and of those that ended without an owner; nil: rows that end wait for the next owner.
  func setOwner(_ owner: Owner?) {
    let ended = state.withLock { state in
      state.owner = owner
      guard owner != nil else { return state.ended }
      defer { state.ended = [] }
      return state.ended
    }
    if let owner { for (row, outcome) in ended { owner(row, outcome) } }
  }

  /// Whether no row is under way: nothing of these rows can end any more.
  var isEmpty: Bool { state.withLock(\.rows.isEmpty) }

  /// The rows that must not be delivered again: those under way, and those acknowledged without an owner.
  var delivering: [RemovedRow] {
    state.withLock { state in
      Array(state.rows.values) + state.ended.filter { $0.outcome == .acknowledged }.map(\.row)
    }
  }
}
