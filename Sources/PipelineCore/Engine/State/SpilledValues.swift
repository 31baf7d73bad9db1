/// The keys of one step that are on the disk, with values that change. A key is in memory or on the disk: it comes back to memory
/// when it is needed, changes there, and goes to the disk again when there is no room for it.
///
/// The disk may have an old value of a key that is in memory. It is never read: memory takes precedence, and after a
/// crash the pages of the last commit.
final class SpilledValues {
  /// The maximum number of keys moved at once.
  static let atOnce = 64

  private let spilling: Spilling
  private let owner: Int64
  /// The estimated bytes of the step's keys in memory.
  private var bytes = 0
  /// Whether any key has been moved.
  private(set) var isUsed = false
  /// The number of keys that are only on the disk.
  private(set) var count = 0
  /// How often the step has written its state with pages; kept over restarts.
  private(set) var saves = 0
  /// The number of keys that have changed since the state was last written.
  private var changed = 0
  /// Commits that are not finished, each with the number of times the state had been written for it.
  private var underWay: [(commit: Int, saves: Int)] = []
  /// The value of `saves` in the last finished commit: it contains all changes with a smaller stamp.
  private var settled = 0
  /// The number of successive keys that could not be moved, and the value of `settled` then.
  private var fruitless = (keys: 0, settled: 0)

  init(_ spilling: Spilling, owner: Int64) {
    (self.spilling, self.owner) = (spilling, owner)
  }

  deinit { spilling.bytes -= bytes }

  // MARK: Memory

  /// Counts a key in memory, of this many bytes.
  func add(_ size: Int) {
    bytes &+= size
    spilling.bytes &+= size
  }

  func remove(_ size: Int) { add(-size) }

  /// Notes that a key in memory has changed.
  ///
  /// - Parameter stamp: The result of the last call for this key; nil: the key is new or has come back from the disk.
  /// - Returns: The stamp for ``isSettled(_:)``.
  @inline(__always)
  func change(_ stamp: Int?) -> Int {
    if stamp != saves { changed &+= 1 }
    return saves
  }

  /// Whether a finished commit contains the key's current value.
  @inline(__always)
  func isSettled(_ stamp: Int) -> Bool { stamp < settled }

  /// Whether keys are to be moved to the disk now.
  ///
  /// - Parameter keys: The number of keys in memory.
  @inline(__always)
  func isOver(_ keys: Int) -> Bool { spilling.isOver && isOverNow(keys) }

  @inline(never)
  private func isOverNow(_ keys: Int) -> Bool {
    settle()
    // A commit is requested when half of the keys have changed, so that the other half can be moved meanwhile.
    if changed > keys / 2 { spilling.needsCommit = true }
    return fruitless.keys < keys || fruitless.settled != settled
  }

  /// Notes the number of unused keys that could not be moved, and whether others were moved.
  func stayed(_ keys: Int, hasMoved: Bool) {
    fruitless = (hasMoved || fruitless.settled != settled ? 0 : fruitless.keys + keys, settled)
  }

  private func settle() {
    while let first = underWay.first, first.commit <= spilling.finished {
      settled = first.saves
      underWay.removeFirst()
    }
  }

  // MARK: Keys

  /// Moves settled keys to the disk, each with its value; false: they must stay in memory.
  func write(_ keys: [(key: UnsafeRawBufferPointer, value: [UInt8])]) -> Bool {
    if keys.isEmpty { return true }
    let values = keys.map { (key: $0.key, value: SpilledValue(rank: 0, time: 0, payload: $0.value)) }
    // The finished commit has at least this number of saves, so a directory with a higher number is newer than its
    // store.
    guard spilling.write(values, of: owner, top: settled) else { return false }
    isUsed = true
    count += keys.count
    return true
  }

  /// The value of a key that is not in memory; nil: there is none.
  func find(_ key: UnsafeRawBufferPointer) throws(SpillFault) -> [UInt8]? {
    count > 0 ? try spilling.store.find(key, of: owner)?.payload : nil
  }

  /// A key has come back to memory.
  func cameBack() { count -= 1 }

  // MARK: State

  /// Called whenever the step has written its state.
  func save(_ state: inout StateWriter) {
    if state.isPaged {
      settle()
      saves += 1
      changed = 0
      // The state of one commit may be written several times; the last one counts.
      let commit = spilling.taken + 1
      if underWay.last?.commit == commit { underWay.removeLast() }
      underWay.append((commit, saves))
    }
    // A commit in progress when the first keys are moved must not remove them, so the owner is always registered.
    state.add(SpilledOwner(owner: owner, least: SpilledValue(rank: 0, time: .min), hasKeys: isUsed))
    guard isUsed else { return }
    state.write(owner)
    state.write(saves)
    state.write(count)
  }

  /// Continues with the keys that a saved state has on the disk.
  init(_ state: inout StateReader) throws(StateFault) {
    owner = try state.read()
    saves = try state.read(in: 0...Int.max / 2)
    count = try state.read(in: 0...Int.max / 2)
    guard let spilling = state.spilling else { throw StateFault("its keys on the disk are not here") }
    self.spilling = spilling
    isUsed = true
    let top: Int?
    do throws(SpillFault) { top = try spilling.store.top(of: owner) } catch {
      throw StateFault("its keys on the disk cannot be read: \(error.message)")
    }
    guard let top else { throw StateFault("its keys on the disk are missing") }
    guard top <= saves else { throw StateFault("its keys on the disk are newer than the rest of the state") }
  }
}
