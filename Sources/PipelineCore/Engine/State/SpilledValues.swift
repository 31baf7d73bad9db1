internal import DequeModule

/// The keys of one step that are on the disk, with values that change. A key is in memory or on the disk: it comes back to memory
/// when it is needed, changes there, and goes to the disk again when there is no room for it.
///
/// What is on the disk of a key that is in memory is old. Nobody looks for it there: memory, and after a crash the pages of the
/// last commit, go first. A key that is forgotten while the disk may have it is *gone*: the state has its text, until a finished commit
/// says so and it has been removed from the disk.
///
/// The step gives its keys in memory numbers, those of its ``KeyTable``.
final class SpilledValues {
  /// How many keys are moved at once.
  private static let atOnce = 64

  /// What is known of a key in memory.
  private struct Use {
    /// How often the state had been written when the key last changed.
    var stamp = 0
    /// Whether it has come since it was last looked at.
    var hasCome = false
    /// Whether the disk may have an old value of it.
    var mayBeOnDisk = false
    /// Whether there is such a key.
    var isThere = false
  }

  private let spilling: Spilling
  private let owner: Int64
  /// The moment from which the times of keys on the disk count.
  let epoch: Instant
  private let indexes: [Index]
  /// Whether the disk may have values of the keys that are in memory when the step begins to move keys.
  private let continues: Bool
  /// The estimated bytes of the step's keys in memory.
  private var bytes = 0
  /// Whether any key has been moved.
  private(set) var isUsed = false
  /// The number of keys that are only on the disk.
  private(set) var count = 0
  /// How often the step has written its state with pages; kept over restarts.
  private var saves = 0
  /// The number of keys that have changed since.
  private var changed = 0
  /// Commits that are not finished, each with the number of times the state had been written for it.
  private var underWay: [(commit: Int, saves: Int)] = []
  /// The value of `saves` in the last finished commit: it contains all changes with a smaller stamp.
  private var settled = 0
  /// By the numbers of the keys in memory.
  private var uses: [Use] = []
  /// The number of the key that is looked at next.
  private var hand = 0
  /// How many keys in a row had to stay, and the value of `settled` meanwhile.
  private var fruitless = (keys: 0, settled: 0)
  /// The keys that are gone, and for each the number of times that the state had been written before.
  private let gone = KeyTable()
  private var goneStamps: [Int] = []
  private var goneOrder = Deque<(number: Int, stamp: Int)>()
  private var reading: StateReader.Context?

  /// Begins to move keys, all of which are in memory.
  ///
  /// - Parameters:
  ///   - owner: A number under which nothing is on the disk. A run before may have moved keys after its last commit, which has them in its
  ///     pages: what the disk has of them under another number is not looked for, and goes with the next commit.
  ///   - indexes: The number of indexes in which each key may have one time (``first(_:isInMemory:)``).
  init(_ spilling: Spilling, owner: Int64, epoch: Instant, indexes: Int = 0) {
    (self.spilling, self.owner, self.epoch) = (spilling, owner, epoch)
    self.indexes = (0..<indexes).map { Index(UInt8($0)) }
    continues = false
  }

  deinit { spilling.bytes -= bytes }

  // MARK: Keys in memory

  /// Sets the estimated bytes of the keys in memory.
  @inline(__always)
  func setBytes(_ new: Int, keys: Int) {
    let all = new &+ keys &* MemoryLayout<Use>.stride
    spilling.bytes &+= all &- bytes
    bytes = all
  }

  /// Takes the keys that are in memory when the step begins to move keys.
  func takeAll(_ numbers: some Sequence<Int>) {
    for number in numbers { add(number, mayBeOnDisk: continues) }
  }

  /// A key has come, or come back, to memory.
  func add(_ number: Int, mayBeOnDisk: Bool = false) {
    while uses.count <= number { uses.append(Use()) }
    uses[number] = Use(stamp: saves, hasCome: true, mayBeOnDisk: mayBeOnDisk, isThere: true)
    changed &+= 1
  }

  /// Notes that a key in memory has come, and that what is kept of it has changed.
  @inline(__always)
  func change(_ number: Int) {
    guard number < uses.count, uses[number].isThere else { return }
    uses[number].hasCome = true
    if uses[number].stamp != saves {
      changed &+= 1
      uses[number].stamp = saves
    }
  }

  /// A key in memory is forgotten; called while the step still has its text.
  func forget(_ number: Int, _ text: UnsafeRawBufferPointer) {
    let mayBeOnDisk = uses[number].mayBeOnDisk
    uses[number] = Use()
    guard mayBeOnDisk else { return }
    let hash = gone.hash(text)
    let known = gone.find(text, hash)
    // Each number is in the queue once with a stamp.
    if let known, goneStamps[known] == saves { return }
    noteGone(known ?? gone.insert(text, hash), stamp: saves)
  }

  private func noteGone(_ number: Int, stamp: Int) {
    while goneStamps.count <= number { goneStamps.append(0) }
    goneStamps[number] = stamp
    goneOrder.append((number, stamp))
  }

  private func isGone(_ text: UnsafeRawBufferPointer) -> Bool {
    gone.count > 0 && gone.find(text, gone.hash(text)) != nil
  }

  /// A key in memory is forgotten, but not on the disk: it has been moved there, or is never looked for again.
  func drop(_ number: Int) { uses[number] = Use() }

  /// Nothing on the disk is looked for any more. The step keeps nothing after that, so its owner is removed.
  func forgetAllOnDisk() { count = 0 }

  // MARK: Moving keys to the disk

  /// The bytes of a value with events, or with times; ``comeBack(_:_:_:)`` reads them after the origins of the events. Nil: it cannot be
  /// written, and the key must stay.
  func bytes(_ executor: Executor, _ body: (inout StateWriter) -> Void) -> [UInt8]? {
    StateWriter.bytesWithOrigins(executor, epoch: epoch, body)
  }

  /// What a step writes of a key.
  struct Record {
    var value: [UInt8]
    /// Its time in each index; nil: it has none.
    var times: [Int64?] = []
  }

  /// Whether ``makeRoom(text:record:leave:)`` must be called now.
  ///
  /// - Parameter keys: The number of keys in memory.
  @inline(__always)
  func needsRoom(_ keys: Int) -> Bool { spilling.isOver && needsRoomNow(keys) }

  @inline(never)
  private func needsRoomNow(_ keys: Int) -> Bool {
    settle()
    // A commit is requested when half of the keys have changed, so that the other half can be moved meanwhile.
    if changed > keys / 2 { spilling.needsCommit = true }
    return fruitless.keys < keys || fruitless.settled != settled
  }

  /// Moves keys that have not come for long to the disk.
  ///
  /// - Parameters:
  ///   - text: The text of a key in memory.
  ///   - record: What is to be written of it; nil: it must stay.
  ///   - leave: Called with the keys that have been moved. The step drops them without ``forget(_:_:)``.
  func makeRoom(text: (Int) -> UnsafeRawBufferPointer, record: (Int) -> Record?, leave: ([Int]) -> Void) {
    var moved: [(number: Int, record: Record)] = []
    var (looked, stayed) = (0, 0)
    while looked < min(2 * Self.atOnce, uses.count), moved.count < Self.atOnce {
      let number = hand < uses.count ? hand : 0
      hand = number + 1
      looked += 1
      let use = uses[number]
      uses[number].hasCome = false
      if use.hasCome || !use.isThere { continue }
      guard use.stamp < settled, let record = record(number) else {
        stayed += 1
        continue
      }
      moved.append((number, record))
    }
    let isWritten = moved.isEmpty || write(moved, text)
    let hasMoved = isWritten && !moved.isEmpty
    fruitless = (hasMoved || fruitless.settled != settled ? 0 : fruitless.keys + stayed, settled)
    guard hasMoved else { return }
    for (number, _) in moved { uses[number] = Use() }
    leave(moved.map(\.number))
  }

  private func write(
    _ moved: [(number: Int, record: Record)], _ text: (Int) -> UnsafeRawBufferPointer
  ) -> Bool {
    var changes: [SpillChange] = []
    for (number, record) in moved {
      let former: [(index: UInt8, time: Int64)]
      do throws(SpillFault) {
        former = uses[number].mayBeOnDisk || isGone(text(number)) ? try marks(of: text(number)) : []
      } catch { return false }
      let marks = record.times.enumerated().compactMap { index, time in time.map { (UInt8(index), $0) } }
      let value = indexes.isEmpty ? record.value : Self.head(record.times) + record.value
      changes.append(
        SpillChange(
          text(number), SpilledValue(rank: 0, time: 0, payload: value), marks: marks, formerMarks: former))
    }
    // A commit that is on the disk has been written at least this often, so a directory with more is newer than its store.
    guard spilling.write(changes, of: owner, top: settled) else { return false }
    isUsed = true
    count += changes.count
    for change in changes {
      if gone.count > 0, let number = gone.find(change.key, gone.hash(change.key)) { gone.remove(number) }
      removed(change)
      for mark in change.marks {
        indexes[Int(mark.index)].added(SpilledMark(time: mark.time, key: Array(change.key)))
      }
    }
    return true
  }

  private func settle() {
    while let first = underWay.first, first.commit <= spilling.finished {
      settled = first.saves
      underWay.removeFirst()
    }
  }

  /// Removes from the disk what finished commits know to be gone.
  private func removeGone() {
    var (changes, numbers): ([SpillChange], [Int]) = ([], [])
    while let (number, stamp) = goneOrder.first, stamp < settled {
      goneOrder.removeFirst()
      // A key may have been gone, come again, and be gone again.
      guard gone.has(number), goneStamps[number] == stamp else { continue }
      let text = gone.text(number)
      do throws(SpillFault) {
        changes.append(SpillChange(text, nil, formerMarks: try marks(of: text)))
        numbers.append(number)
      } catch {
        goneOrder.prepend((number, stamp))
        break
      }
    }
    guard !changes.isEmpty else { return }
    guard spilling.write(changes, of: owner, top: settled) else {
      for number in numbers.reversed() { goneOrder.prepend((number, goneStamps[number])) }
      return
    }
    for change in changes { removed(change) }
    for number in numbers { gone.remove(number) }
  }

  /// The disk has lost marks of a key.
  private func removed(_ change: SpillChange) {
    for mark in change.formerMarks {
      indexes[Int(mark.index)].removed(SpilledMark(time: mark.time, key: Array(change.key)))
    }
  }

  // MARK: Finding keys

  /// Takes back the value of a key that is not in memory; nil: there is none. Afterwards the step must keep it in memory, and
  /// ``add(_:mayBeOnDisk:)`` it.
  func comeBack<T>(
    _ text: UnsafeRawBufferPointer, _ executor: Executor, _ read: (inout StateReader) throws(StateFault) -> T
  ) throws(SpillFault) -> T? {
    guard count > 0, !isGone(text), let bytes = try spilling.store.find(text, of: owner)?.payload else { return nil }
    let context = reading ?? StateReader.Context(executor)
    reading = context
    context.origins = []
    context.setNow(epoch)
    var reader = StateReader(bytes, try readHead(bytes).length..<bytes.count, context)
    do throws(StateFault) {
      let value = try read(&reader)
      count -= 1
      return value
    } catch { throw SpillFault(error.message) }
  }

  /// The first key by its time in an index, of those that are only on the disk.
  ///
  /// - Parameter isInMemory: Whether a key is in memory: what the index has of it is old.
  func first(_ index: Int, isInMemory: (UnsafeRawBufferPointer) -> Bool) throws(SpillFault) -> SpilledMark? {
    guard count > 0 else { return nil }
    return try indexes[index].first(spilling.store, owner) { text in isInMemory(text) || isGone(text) }
  }

  /// Goes on in an index behind all marks before this one.
  func skip(_ index: Int, to mark: SpilledMark) { indexes[index].skip(to: mark) }

  /// The marks of a key on the disk.
  private func marks(of text: UnsafeRawBufferPointer) throws(SpillFault) -> [(index: UInt8, time: Int64)] {
    guard !indexes.isEmpty, let bytes = try spilling.store.find(text, of: owner)?.payload else { return [] }
    return try readHead(bytes).marks
  }

  /// The times of a key in the indexes, before the rest of its value.
  private static func head(_ times: [Int64?]) -> [UInt8] {
    var head: [UInt8] = []
    for time in times {
      head.append(time == nil ? 0 : 1)
      guard let time else { continue }
      for shift in stride(from: Int64(0), to: 64, by: 8) { head.append(UInt8(truncatingIfNeeded: time &>> shift)) }
    }
    return head
  }

  private func readHead(_ bytes: [UInt8]) throws(SpillFault) -> (marks: [(index: UInt8, time: Int64)], length: Int) {
    var marks: [(index: UInt8, time: Int64)] = []
    var at = 0
    for index in indexes.indices {
      guard at < bytes.count, bytes[at] == 0 || at + 9 <= bytes.count else {
        throw SpillFault("a value is shorter than its times")
      }
      defer { at += 1 }
      guard bytes[at] != 0 else { continue }
      marks.append((UInt8(index), (1...8).reduce(0) { $0 | Int64(bytes[at + $1]) << (8 * Int64($1 - 1)) }))
      at += 8
    }
    return (marks, at)
  }

  // MARK: State

  /// Called whenever the step has written its state.
  func save(_ state: inout StateWriter) {
    if state.isPaged {
      settle()
      removeGone()
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
    state.write(epoch)
    let texts = (0..<goneStamps.count).filter(gone.has)
    state.write(each: texts) { state, number in state.append(counted: gone.text(number)) }
  }

  /// Continues with the keys that a saved state has on the disk.
  ///
  /// - Parameter hasGone: Whether the version of the state has a moment from which times count, and the keys that are gone.
  init(_ state: inout StateReader, indexes: Int = 0, hasGone: Bool) throws(StateFault) {
    owner = try state.read()
    saves = try state.read(in: 0...Int.max / 2)
    count = try state.read(in: 0...Int.max / 2)
    epoch = hasGone ? try state.read() : state.now
    self.indexes = (0..<indexes).map { Index(UInt8($0)) }
    guard let spilling = state.spilling else { throw StateFault("its keys on the disk are not here") }
    self.spilling = spilling
    isUsed = true
    // A key may have been moved after the commit that has it in memory.
    continues = true
    let top: Int?
    do throws(SpillFault) { top = try spilling.store.top(of: owner) } catch {
      throw StateFault("its keys on the disk cannot be read: \(error.message)")
    }
    guard let top else { throw StateFault("its keys on the disk are missing") }
    guard top <= saves else { throw StateFault("its keys on the disk are newer than the rest of the state") }
    guard hasGone else { return }
    for _ in 0..<(try state.count()) {
      guard let number = gone.insertNew(try state.counted(), at: nil) else { throw StateFault("a key is gone twice") }
      // The state may be one that no finished commit has: that of a reload.
      noteGone(number, stamp: saves)
    }
  }

  // MARK: Indexes

  /// The marks of one index, from the first on whose key is only on the disk.
  private final class Index {
    /// How many marks are read at once; few in debug builds, so that tests read on.
    private static let atOnce = _isDebugAssertConfiguration() ? 3 : 64

    private let number: UInt8
    /// No mark before this place is of a key that is only on the disk.
    private var place = SpilledMark.first
    /// The marks from `place` on that have been read, the last one first.
    private var ahead: [SpilledMark] = []
    /// Whether `ahead` has all.
    private var isWhole = false

    init(_ number: UInt8) { self.number = number }

    func first(
      _ store: any SpillStore, _ owner: Int64, isOld: (UnsafeRawBufferPointer) -> Bool
    ) throws(SpillFault) -> SpilledMark? {
      while true {
        while let next = ahead.last {
          guard next.key.withUnsafeBytes(isOld) else { return next }
          place = next.next
          ahead.removeLast()
        }
        if isWhole { return nil }
        ahead = try store.marks(number, of: owner, from: place, count: Self.atOnce).reversed()
        isWhole = ahead.count < Self.atOnce
      }
    }

    func skip(to mark: SpilledMark) {
      if place < mark { place = mark }
      while let next = ahead.last, next < place { ahead.removeLast() }
    }

    /// A key has been moved to the disk with this mark.
    func added(_ mark: SpilledMark) {
      if mark < place { place = mark }
      // What is behind all that has been read will be read with the rest.
      if !isWhole, let last = ahead.first, last < mark { return }
      (ahead, isWhole) = ([], false)
    }

    /// The disk no longer has this mark: the key may have another one now.
    func removed(_ mark: SpilledMark) {
      // The last one comes first.
      var (low, high) = (0, ahead.count)
      while low < high {
        let middle = (low + high) / 2
        if mark < ahead[middle] { low = middle + 1 } else { high = middle }
      }
      if low < ahead.count, ahead[low] == mark { ahead.remove(at: low) }
    }
  }
}
