/// The positions of a source whose input has parts that come and go: containers, partitions of a broker.
///
/// A part that is assigned to this source has its own ``PositionLedger`` and an *epoch*, a number that is used once.
/// The part is taken back in one of two ways:
///
/// - ``revoke(_:)``: another member continues where this source ends. Nothing more is taken from the part, but the
///   input that turns have taken is still under way: the acknowledged position advances and may be committed, until
///   ``settled(_:)`` is true or ``lose(_:)`` gives up. ``PartRevocations`` waits for that, and gives the part back in a
///   bounded time.
/// - ``lose(_:)``: another member may have begun already. No position of the part is committed any more, whatever is
///   acknowledged later.
///
/// An acknowledgement counts for the epoch in which its piece began, so a late one never moves the position of a part
/// that was assigned again. Used in turns of the source; acknowledgements arrive on any thread.
package final class PartLedgers<Position: Sendable> {
  /// One assignment of a part.
  package struct Epoch: Hashable, Sendable {
    let number: Int
  }

  private struct Part {
    var name: String
    var ledger: PositionLedger<Position>
    /// The position after the last event that was sent.
    var taken: Position
    var isRevoked = false
  }

  private var parts: [Epoch: Part] = [:]
  private var current: [String: Epoch] = [:]
  private var last = 0

  package init() {}

  /// Assigns a part, which is read from `position` on. An earlier assignment that was not taken back is lost.
  @discardableResult
  package func assign(_ name: String, at position: Position) -> Epoch {
    if let earlier = current[name] { lose(earlier) }
    last += 1
    let epoch = Epoch(number: last)
    current[name] = epoch
    parts[epoch] = Part(name: name, ledger: PositionLedger(position), taken: position)
    return epoch
  }

  /// The assignment of that part; nil if there is none.
  package func epoch(of name: String) -> Epoch? { current[name] }

  /// The names of the assigned parts, in the order of their assignment.
  package var names: [String] { current.sorted { $0.value.number < $1.value.number }.map(\.key) }

  /// The ledger of an assigned part, for ``RunningSource/beginPiece(of:endingAt:)``; nil: no more input may be taken
  /// from it.
  package func ledger(_ epoch: Epoch) -> PositionLedger<Position>? {
    guard let part = parts[epoch], !part.isRevoked else { return nil }
    return part.ledger
  }

  /// The position after the last event of that part that was sent; nil if the part is lost.
  package func taken(_ epoch: Epoch) -> Position? { parts[epoch]?.taken }

  /// Records that all input before `position` has been sent.
  package func take(_ epoch: Epoch, to position: Position) { parts[epoch]?.taken = position }

  /// Revokes the part: no more input is taken from it.
  package func revoke(_ epoch: Epoch) {
    guard let name = parts[epoch]?.name else { return }
    parts[epoch]?.isRevoked = true
    if current[name] == epoch { current[name] = nil }
  }

  /// The name and the ledger of a revoked part that is not lost.
  func revoked(_ epoch: Epoch) -> (name: String, ledger: PositionLedger<Position>)? {
    guard let part = parts[epoch], part.isRevoked else { return nil }
    return (part.name, part.ledger)
  }

  /// Whether everything that was taken from the part has been acknowledged; a lost part is settled.
  package func settled(_ epoch: Epoch) -> Bool { parts[epoch].map { $0.ledger.outstanding == 0 } ?? true }

  /// Drops the part, because it belongs to another member.
  package func lose(_ epoch: Epoch) {
    guard let part = parts.removeValue(forKey: epoch) else { return }
    if current[part.name] == epoch { current[part.name] = nil }
  }

  /// The positions that may be committed: those up to which each part is acknowledged, for assigned parts and for
  /// revoked parts that are not lost. If a revoked part was assigned again, the new assignment counts.
  package var acknowledged: [String: Position] { positions(\.ledger.acknowledged) }

  /// The positions after the last events that were sent, of the same parts.
  package var taken: [String: Position] { positions(\.taken) }

  private func positions(_ position: (Part) -> Position) -> [String: Position] {
    var found: [String: Position] = [:]
    for (epoch, part) in parts.sorted(by: { $0.key.number < $1.key.number })
    where !part.isRevoked || current[part.name] == nil {
      _ = epoch
      found[part.name] = position(part)
    }
    return found
  }

  /// Forgets the revoked parts whose input is all acknowledged.
  package func forgetSettled() {
    for (epoch, part) in parts where part.isRevoked && part.ledger.outstanding == 0 { parts[epoch] = nil }
  }
}
