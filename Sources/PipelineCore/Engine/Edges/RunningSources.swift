/// The running sources of an execution, and the unacknowledged rest of those that have ended.
struct RunningSources {
  private(set) var running: [RunningSource] = []
  /// When `running` exceeds this number, the ended sources are removed.
  private var limit = 64
  /// Sources with a position that were closed in this turn. A failure in this turn still saves their positions.
  private(set) var justClosed: [RunningSource] = []
  /// Sources that have ended and whose last pieces may not be acknowledged.
  private var unacknowledged: [() -> Bool] = []
  /// When `unacknowledged` reaches this number, the acknowledged ones are removed.
  private var unacknowledgedLimit = 16
  /// Callbacks that record the ends of this turn's pieces.
  var pieceEnds: [() -> Void] = []

  mutating func add(_ source: RunningSource) {
    running.append(source)
    // Doubles the limit, so that the cost of each source does not grow with their number.
    if running.count > limit {
      running.removeAll { $0.isClosed }
      limit = max(64, 2 * running.count)
    }
  }

  mutating func forget(_ source: RunningSource) {
    if let index = running.lastIndex(where: { $0 === source }) { running.remove(at: index) }
  }

  /// Sorts the sources in the order in which they were made.
  mutating func sort() { running.sort { $0.serial < $1.serial } }

  /// Removes and returns all running sources. The caller releases them.
  mutating func takeAll() -> [RunningSource] {
    defer { running = [] }
    return running
  }

  mutating func closed(_ source: RunningSource) { justClosed.append(source) }

  /// Removes and returns the sources that were closed in the turn that has ended. The caller releases them.
  mutating func takeClosed() -> [RunningSource] {
    defer { justClosed = [] }
    return justClosed
  }

  mutating func ended(_ isAcknowledged: @escaping () -> Bool) {
    // Removing them at each end would be quadratic: of many sources that end in one turn, none is acknowledged before
    // the turn ends.
    if unacknowledged.count >= unacknowledgedLimit {
      unacknowledged.removeAll { $0() }
      unacknowledgedLimit = max(16, unacknowledged.count * 2)
    }
    unacknowledged.append(isAcknowledged)
  }

  /// Whether a source has ended and not everything that it sent is acknowledged.
  var hasUnacknowledgedEnd: Bool { unacknowledged.contains { !$0() } }
}
