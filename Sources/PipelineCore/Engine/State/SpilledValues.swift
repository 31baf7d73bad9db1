/// The keys of one step that are on the disk, with values that change. A key is in memory or on the disk: it comes back to memory
/// when it is needed, changes there, and goes to the disk again when there is no room for it.
///
/// What is on the disk of a key that is in memory is old. Nobody looks for it there: memory, and after a crash the pages of the
/// last commit, go first.
final class SpilledValues {
  /// How many keys are moved at once.
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
  /// The number of keys that have changed since.
  private var changed = 0
  /// Commits that are not finished, each with the number of times the state had been written for it.
  private var underWay: [(commit: Int, saves: Int)] = []
  /// A finished commit has what had changed before the state was written this often.
  private var settled = 0
  /// How many keys in a row had to stay, and the value of `settled` meanwhile.
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
  /// - Parameter stamp: What the call for this key returned last; nil: it is new, or has come back.
  /// - Returns: What to ask ``isSettled(_:)`` with.
  @inline(__always)
  func change(_ stamp: Int?) -> Int {
    if stamp != saves { changed &+= 1 }
    return saves
  }

  /// Whether a finished commit has the key as it is.
  @inline(__always)
  func isSettled(_ stamp: Int) -> Bool { stamp < settled }

  /// Whether keys are to be moved to the disk now.
  ///
  /// - Parameter keys: How many are in memory.
  @inline(__always)
  func isOver(_ keys: Int) -> Bool { spilling.isOver && isOverNow(keys) }

  @inline(never)
  private func isOverNow(_ keys: Int) -> Bool {
    settle()
    // Half of the keys in memory are moved while a commit takes the other half.
    if changed > keys / 2 { spilling.needsCommit = true }
    return fruitless.keys < keys || fruitless.settled != settled
  }

  /// Notes how many keys could not be moved although they had not come, and whether others were.
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

  /// Moves keys to the disk, each with its value; false: they must stay in memory. They must be settled.
  func write(_ keys: [(key: UnsafeRawBufferPointer, value: [UInt8])]) -> Bool {
    if keys.isEmpty { return true }
    let values = keys.map { (key: $0.key, value: SpilledValue(rank: 0, time: 0, payload: $0.value)) }
    // A commit that is on the disk has been written at least this often, so a directory with more is newer than its store.
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
      // The state of one commit may be written several times, and it has what the last time had.
      let commit = spilling.taken + 1
      if underWay.last?.commit == commit { underWay.removeLast() }
      underWay.append((commit, saves))
    }
    // A commit that is under way when the first keys are moved must not remove them, so it names the owner before.
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
