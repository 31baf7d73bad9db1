/// The keys of one step that are on the disk. The step numbers its keys in the order in which they came, their *ranks*, and
/// moves the oldest first.
final class SpilledKeys {
  /// How many keys are moved at once.
  static let atOnce = 64

  private let spilling: Spilling
  private let owner: Int64
  /// The moment from which the times of keys on the disk count.
  let epoch: Instant
  /// The estimated bytes of the step's keys in memory.
  private var bytes = 0
  /// Whether any key has been moved.
  private(set) var isUsed: Bool
  private var top = 0
  /// The rank below which a finished commit has all keys.
  private var committed = 0
  /// The rank of the next key when the state was last written with pages, and the number of the commit for which it was.
  private var written = (next: 0, commit: Int.max)

  init(_ spilling: Spilling, owner: Int64, epoch: Instant) {
    (self.spilling, self.owner, self.epoch) = (spilling, owner, epoch)
    isUsed = false
  }

  deinit { spilling.bytes -= bytes }

  // MARK: Memory

  /// Counts a key in memory, of this many bytes.
  @inline(__always)
  func add(_ length: Int) {
    bytes &+= KeyTable.bytes(of: length)
    spilling.bytes &+= KeyTable.bytes(of: length)
  }

  @inline(__always)
  func remove(_ length: Int) {
    bytes &-= KeyTable.bytes(of: length)
    spilling.bytes &-= KeyTable.bytes(of: length)
  }

  /// The rank below which keys must be moved to the disk now, with ``write(_:)``; nil: there is room for all.
  ///
  /// - Parameters:
  ///   - first: The rank of the oldest key in memory.
  ///   - next: The rank of the next key.
  @inline(__always)
  func limit(from first: Int, next: Int) -> Int? { spilling.isOver ? limitNow(first, next) : nil }

  @inline(never)
  private func limitNow(_ first: Int, _ next: Int) -> Int? {
    if written.commit <= spilling.finished { committed = written.next }
    // Half of the keys in memory are moved while a commit takes the other half.
    if next - max(first, committed) > max(first, committed) - first { spilling.needsCommit = true }
    return first < committed ? min(committed, first + Self.atOnce) : nil
  }

  // MARK: Keys

  /// Moves keys to the disk; false: they must stay in memory.
  func write(_ keys: [(key: UnsafeRawBufferPointer, value: SpilledValue)]) -> Bool {
    guard let last = keys.last else { return true }
    let changes = keys.map { SpillChange($0.key, $0.value) }
    guard spilling.write(changes, of: owner, top: max(top, last.value.rank)) else { return false }
    top = max(top, last.value.rank)
    isUsed = true
    return true
  }

  /// The value of a key on the disk.
  func find(_ key: UnsafeRawBufferPointer) throws(SpillFault) -> SpilledValue? {
    isUsed ? try spilling.store.find(key, of: owner) : nil
  }

  // MARK: State

  /// Called whenever the step has written its state.
  ///
  /// - Parameters:
  ///   - next: The rank of the next key.
  ///   - least: The lower bounds of the keys that are still needed.
  func save(_ state: inout StateWriter, next: Int, least: SpilledValue) {
    if state.isPaged {
      if written.commit <= spilling.finished { committed = written.next }
      written = (next, spilling.taken + 1)
    }
    // A commit in progress when the first keys are moved must not remove them, so the owner is always registered.
    state.add(SpilledOwner(owner: owner, least: least, hasKeys: isUsed))
    guard isUsed else { return }
    state.write(owner)
    state.write(epoch)
  }

  /// Continues with the keys that a saved state has on the disk.
  ///
  /// - Parameter next: The rank of the next key.
  init(_ state: inout StateReader, next: Int) throws(StateFault) {
    owner = try state.read()
    epoch = try state.read()
    guard let spilling = state.spilling else { throw StateFault("its keys on the disk are not here") }
    self.spilling = spilling
    isUsed = true
    let top: Int?
    do throws(SpillFault) { top = try spilling.store.top(of: owner) } catch {
      throw StateFault("its keys on the disk cannot be read: \(error.message)")
    }
    guard let top else { throw StateFault("its keys on the disk are missing") }
    self.top = top
    guard top < next else { throw StateFault("its keys on the disk are newer than the rest of the state") }
  }
}
