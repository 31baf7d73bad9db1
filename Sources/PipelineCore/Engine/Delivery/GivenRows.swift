import Synchronization

/// The rows that an outbox has given to its sink and that are not acknowledged. In a reload the next version of the sink may have their
/// events: then the next outbox is told.
package final class GivenRows: Sendable {
  typealias Owner = @Sendable (_ row: RemovedRow, _ outcome: Ack.Outcome) -> Void

  private struct State {
    var rows: [Int64: RemovedRow] = [:]
    /// Those that ended while nobody was told.
    var ended: [(row: RemovedRow, outcome: Ack.Outcome)] = []
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

  /// From now on `owner` is told; nil: nobody, until there is another one.
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

  /// The rows that need not be delivered again: under way, or acknowledged since nobody was told.
  var delivering: [RemovedRow] {
    state.withLock { state in
      Array(state.rows.values) + state.ended.filter { $0.outcome == .acknowledged }.map(\.row)
    }
  }
}
