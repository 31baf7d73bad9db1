/// Moves keys of steps from memory to the disk while they have more than their share of the memory
/// (docs/decisions/0209-state-larger-than-memory.md). Used in turns.
final class Spilling {
  let store: any SpillStore
  /// The bytes in memory above which keys are moved to the disk; nil: none are moved, but keys on the disk are still
  /// read.
  private let limit: Int?
  /// The estimated bytes of the keys in memory.
  var bytes = 0
  private let now: () -> Instant
  private let report: (Services.Level, String) -> Void
  /// The number of the last commit taken, and of the last one on the disk; numbers start at 1.
  private(set) var taken = 0
  private(set) var finished = 0
  /// Whether keys can be moved only after another commit.
  var needsCommit = false
  /// The time until which no key is moved, because a write has failed; nil: none has.
  private var pausedUntil: Instant?
  private static let pause = TimeSpan.seconds(1)

  init(
    _ store: any SpillStore, limit: Int?, now: @escaping () -> Instant,
    report: @escaping (Services.Level, String) -> Void
  ) {
    (self.store, self.limit, self.now, self.report) = (store, limit, now, report)
  }

  /// Whether steps may move keys to the disk.
  var isOn: Bool { limit != nil }

  /// Whether there is no room for more keys before another commit is on the disk.
  var isFull: Bool {
    guard needsCommit, let limit else { return false }
    return bytes > limit + limit / 2
  }

  /// Called when the state has been taken for a commit. Returns its number.
  func commitIsTaken() -> Int {
    taken += 1
    needsCommit = false
    return taken
  }

  func isOnDisk(_ commit: Int) { finished = max(finished, commit) }

  /// Whether keys must be moved now.
  var isOver: Bool {
    guard let limit, bytes > limit else { return false }
    guard let pausedUntil else { return true }
    return now() >= pausedUntil
  }

  /// False: the disk has refused the changes.
  func write(_ changes: [SpillChange], of owner: Int64, top: Int) -> Bool {
    do throws(SpillFault) {
      try store.write(changes, of: owner, top: top)
      if pausedUntil != nil { report(.info, "keys are moved to the disk again") }
      pausedUntil = nil
      return true
    } catch {
      if pausedUntil == nil {
        report(.error, "keys cannot be moved to the disk and stay in memory: \(error.message); trying again")
      }
      pausedUntil = now() + Self.pause
      return false
    }
  }
}
