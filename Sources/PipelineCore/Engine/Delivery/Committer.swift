import Synchronization

/// Commits the state of a pipeline with the positions of its sources and, in durable delivery, the events that its
/// sinks must deliver. docs/decisions/0040-commits.md has the reasons.
///
/// The end of a turn is a consistent cut: earlier events can still have effects only through the state of operators,
/// their timers, the calls under way and the rows on their way to sinks. A *commit* takes all of them at the end of one
/// turn.
///
/// - **Light**: sinks write in the turn. A commit is a checkpoint: taken now, written when every effect of the turns
///   before it is acknowledged.
/// - **Durable**: sinks write rows (``OutboxSink``), which are part of the commit, so it is written at once. Senders
///   that wait for an acknowledgement get it when the commit that contains their turn is on the disk.
///
/// One commit is under way at a time; later turns go into the next one, so slow disks get larger commits. Used in
/// turns.
final class Committer: TimerTarget {
  var mayGoOn: Bool { false }
  var timerKind: TimerKind { .output }

  private unowned let execution: Execution
  private let executor: Executor
  private let options: DeliveryOptions
  private var transaction = StoreTransaction()
  /// The callbacks that the next commit calls.
  private var waiting: [() -> Void] = []
  /// Acknowledgements that answer clients: of the next commit, and of the one under way. Other acknowledgements are
  /// among the callbacks.
  private var clients: [Ack] = []
  private var clientsUnderWay: [Ack] = []
  /// Whether the store accepts no new events, because its file system is full.
  private var isFull = false
  private var isUnderWay = false
  /// Whether the state may have changed since the last commit.
  private var hasChanged = false
  /// Whether a sender or a sink waits for the next commit.
  private var isUrgent = false
  /// The number of the last turn that served only a commit and did not change the state.
  private var ownTurn: UInt64 = 0
  private var wake = Wake.none
  /// The time at which `wake` is due.
  private var wakeTime: Instant?
  /// The earliest times of the next commit: without and with waiting senders.
  private var nextRegular: Instant
  private var nextUrgent: Instant
  private var lastRow: Int64
  /// The last owner of pages of the state.
  private var lastOwner: Int64
  /// Whether an effect has failed, so that no later checkpoint can be acknowledged.
  private var hasFailed = false
  /// Whether the pipeline ends: only `finish` commits.
  private var isOver = false
  /// The bytes of the rows and dead letters that are in no finished commit.
  private var uncommitted = 0 {
    didSet { share.set(uncommitted) }
  }
  private var share: MemoryShare
  private var isInputPaused = false
  private var isPausedForKeys = false
  /// Moves keys of steps to the disk; nil: all stay in memory.
  private let spilling: Spilling?
  /// Whether the state is being taken for a commit that is not the last.
  private(set) var isCommitting = false

  var isDurable: Bool { options.isDurable }
  /// The identity of the store, which no other store has.
  var identity: UInt64 { options.store.identity }

  init(_ execution: Execution, _ options: DeliveryOptions) {
    self.execution = execution
    self.options = options
    spilling = execution.commits.spilling
    executor = execution.executor
    lastRow = options.store.lastRow
    lastOwner = options.store.lastOwner
    share = MemoryShare(of: execution.services.memory)
    nextRegular = executor.now
    nextUrgent = executor.now
  }

  /// Called once, after the execution has stored its reference to the committer.
  func begin() {
    let (executor, committer) = (executor, Weak(self))
    options.store.whenRoomChanges { room in executor.post { committer.object?.roomChanged(room) } }
  }

  /// Pauses the input while the store has no room, because new events would be in memory only. Events received before
  /// are written to the store's reserve. If the reserve is full too, the waiting clients receive the failure.
  private func roomChanged(_ room: RoomOfStore) {
    guard isDurable else { return }
    turnIsOwn()
    let isFull = room != .enough
    if isFull != self.isFull {
      self.isFull = isFull
      execution.storage.set(isFull)
      if isFull { executor.pauseInput(.output) } else { executor.resumeInput(.output) }
    }
    guard room == .none else { return }
    let left = clientsUnderWay + clients
    clientsUnderWay = []
    clients = []
    for ack in left { ack.release(.failed("the file system of the state directory is full")) }
  }

  func backlog(of sink: String) -> OutboxBacklog { options.store.backlogs[sink] ?? OutboxBacklog() }

  func read(
    rowsOf sink: String, after number: Int64, _ done: @escaping @Sendable ([OutboxRow]) -> Void
  ) {
    options.store.read(rowsOf: sink, after: number, bytes: execution.services.memory.room(options.readBytes), done)
  }

  /// Delivered rows whose removal is not in a commit yet. Used on any thread.
  final class RemovedRows: Sendable {
    private let rows = Mutex<[RemovedRow]>([])
    func add(_ row: RemovedRow) { rows.withLock { $0.append(row) } }
    var isEmpty: Bool { rows.withLock(\.isEmpty) }
    func take() -> [RemovedRow] {
      rows.withLock { rows in
        defer { rows = [] }
        return rows
      }
    }
  }
  let removed = RemovedRows()

  /// The transaction of a checkpoint that waits for acknowledgements. Either the last acknowledgement commits the
  /// transaction, or `finish` withdraws it.
  private final class Checkpoint: Sendable {
    private let waiting = Mutex<StoreTransaction?>(nil)
    func put(_ transaction: StoreTransaction) { waiting.withLock { $0 = transaction } }
    func take() -> StoreTransaction? { waiting.withLock { $0.take() } }
  }
  private let checkpoint = Checkpoint()

  // MARK: Contents of a commit

  /// Adds a row; `committed` is called in a turn when it is on the disk.
  func add(_ events: Int, _ bytes: [UInt8], of sink: String, committed: @escaping (OutboxRow) -> Void) {
    lastRow += 1
    let row = OutboxRow(number: lastRow, sink: sink, events: events, bytes: bytes)
    transaction.rows.append(row)
    waiting.append { committed(row) }
    isUrgent = true
    countUncommitted(bytes.count)
  }

  private func countUncommitted(_ bytes: Int) {
    uncommitted += bytes
    if !isInputPaused, uncommitted > execution.services.memory.room(usualUncommitted) {
      isInputPaused = true
      executor.pauseInput(pressure)
    }
  }

  /// Pauses the input while keys that have no room in memory wait for a commit.
  private func pauseIfKeysAreFull() {
    guard !isPausedForKeys, !hasFailed, spilling?.isFull == true else { return }
    isPausedForKeys = true
    executor.pauseInput(pressure)
  }

  private func resumeForKeys() {
    guard isPausedForKeys else { return }
    isPausedForKeys = false
    executor.resumeInput(pressure)
  }

  /// Without outboxes a commit waits for acknowledgements, and these may wait for timers of steps and inner signals,
  /// such as the pause before a request is repeated. So backpressure must not hold back these timers.
  private var pressure: Executor.Pressure { isDurable ? .output : .queue }

  /// The usual limit of rows that are in no finished commit: the size of the state, which each commit writes, so that a
  /// large state is not written for a few rows.
  private var usualUncommitted: Int {
    max(options.uncommittedBytes, min(execution.saved.size, execution.services.memory.limit / 4))
  }

  func add(_ letter: StoredDeadLetter) {
    transaction.deadLetters.append(letter)
    countUncommitted(letter.document.count)
  }

  /// Calls `body` in a turn when all effects so far are on the disk.
  func whenCommitted(_ body: @escaping () -> Void) {
    waiting.append(body)
    isUrgent = true
  }

  // MARK: Times of commits

  /// Marks this turn as one that does not change the state.
  func turnIsOwn() { ownTurn = executor.turns }

  var isOwnTurn: Bool { ownTurn == executor.turns }

  /// Called at the end of each turn, after the sinks.
  func turnEnded() {
    guard !isOver else { return }
    if let ack = executor.ack, isDurable, ack.waitsForCommit {
      ack.hold()
      isUrgent = true
      if ack.answersClient { clients.append(ack) } else { waiting.append { ack.release() } }
    }
    if !isOwnTurn || !transaction.isEmpty || !waiting.isEmpty || !clients.isEmpty || !removed.isEmpty {
      hasChanged = true
    }
    pauseIfKeysAreFull()
    guard hasChanged, !isUnderWay, !hasFailed || !transaction.deadLetters.isEmpty else { return }
    // While the input waits for a commit, deferring the commit would save nothing.
    let isAwaited = isInputPaused || spilling?.needsCommit == true
    let due = isAwaited ? executor.now : isUrgent && isDurable ? nextUrgent : nextRegular
    if due <= executor.now { return commit() }
    guard wakeTime != due else { return }
    unset()
    wakeTime = due
    wake = executor.wake(at: due, self)
  }

  func woke(_ token: Int) {
    wake = .none
    wakeTime = nil
    turnIsOwn()
  }

  private func unset() {
    if wake.isSet { executor.cancel(wake) }
    wake = .none
    wakeTime = nil
  }

  // MARK: Committing

  private func commit() {
    let start = executor.instant
    if hasFailed { return commitDeadLetters() }
    // The position of a sink in the state must match the rows that this commit removes.
    guard execution.hasState else { return }
    // Either all states with pages reach the store or, from now on, none does: each change is written only once.
    let paging = StatePaging(
      from: options.pagedKeys, after: lastOwner, most: pagesOfTurn, spilling: spilling)
    let gone = removed.take()
    for row in gone { execution.outbox(of: row.sink)?.isRemoved(row) }
    transaction.removed += gone
    isCommitting = true
    let state = execution.saveParts(paging)
    isCommitting = false
    lastOwner = paging.lastOwner
    let cost = executor.instant - start + preparation.cost
    guard paging.left == 0 else { return goOnPreparing(paging.left, cost) }
    preparation = Preparation()
    if let state { transaction.state = .replace(state) }
    unset()
    // Taking the state may use a fiftieth of the time, or a tenth if a sender or a sink waits.
    nextRegular = executor.now + max(options.interval, TimeSpan(nanoseconds: cost.nanoseconds &* 50))
    nextUrgent = executor.now + TimeSpan(nanoseconds: cost.nanoseconds &* 10)
    let (taken, released, bytes) = (transaction, waiting, uncommitted)
    transaction = StoreTransaction()
    waiting = []
    clientsUnderWay = clients
    clients = []
    hasChanged = false
    isUrgent = false
    isUnderWay = true
    let box = Box(self, released, bytes, number: state == nil ? 0 : spilling?.commitIsTaken() ?? 0)
    let (store, executor) = (options.store, executor)
    let isOnDisk: @Sendable () -> Void = { executor.post { box.isOnDisk() } }
    if isDurable {
      store.commit(taken, isOnDisk)
    } else {
      checkpoint.put(taken)
      execution.whenAcknowledged { [checkpoint] outcome in
        switch outcome {
        case .acknowledged: if let taken = checkpoint.take() { store.commit(taken, isOnDisk) }
        case .failed(let reason): executor.post { box.failed(reason) }
        }
      }
    }
  }

  /// Writes most pages of a large state in turns before the commit, so that no turn is long; pages that change
  /// meanwhile are written again.
  private struct Preparation {
    /// The number of pages left after the previous turn; nil: this is the first turn.
    var left: Int?
    /// Whether pages change faster than turns write them.
    var isInVain = false
    /// The time spent so far.
    var cost = TimeSpan.zero
  }
  private var preparation = Preparation()

  /// The number of pages that a turn may write: all, if pages change as fast as they are written, or if the rest of the
  /// state is large, which is written each time.
  private var pagesOfTurn: Int {
    preparation.isInVain || execution.saved.size > 1 << 20 ? .max : options.pagesOfTurn
  }

  private func goOnPreparing(_ left: Int, _ cost: TimeSpan) {
    let isInVain = preparation.left.map { left > $0 - options.pagesOfTurn / 2 } ?? false
    preparation = Preparation(left: left, isInVain: isInVain, cost: cost)
    unset()
    wakeTime = executor.now
    wake = executor.wake(at: executor.now, self)
  }

  /// Commits dead letters alone: they do not depend on undelivered events, and would fill the memory.
  private func commitDeadLetters() {
    unset()
    nextRegular = executor.now + options.interval
    var letters = StoreTransaction()
    letters.deadLetters = transaction.deadLetters
    transaction.deadLetters = []
    hasChanged = false
    isUnderWay = true
    let box = Box(self, [], uncommitted)
    let executor = executor
    options.store.commit(letters) { executor.post { box.isOnDisk() } }
  }

  /// The callbacks of a commit on its way through the store. Used in turns only.
  private final class Box: @unchecked Sendable {
    weak var committer: Committer?
    let released: [() -> Void]
    let bytes: Int

    /// The number that steps with keys on the disk know the commit by; 0: it has no state.
    let number: Int

    init(_ committer: Committer, _ released: [() -> Void], _ bytes: Int, number: Int = 0) {
      self.number = number
      self.committer = committer
      self.released = released
      self.bytes = bytes
    }

    func isOnDisk() { committer?.isOnDisk(released, bytes, number) }
    func failed(_ reason: String) { committer?.failed(reason) }
  }

  private func isOnDisk(_ released: [() -> Void], _ bytes: Int, _ number: Int) {
    turnIsOwn()
    isUnderWay = false
    uncommitted -= bytes
    spilling?.isOnDisk(number)
    // The next keys move those that this commit has.
    resumeForKeys()
    if isInputPaused, uncommitted <= usualUncommitted / 2 {
      isInputPaused = false
      executor.resumeInput(pressure)
    }
    let answered = clientsUnderWay
    clientsUnderWay = []
    for ack in answered { ack.release() }
    for release in released { release() }
  }

  /// An event before the checkpoint was not delivered: the last commit stays valid.
  private func failed(_ reason: String) {
    turnIsOwn()
    isUnderWay = false
    hasFailed = true
    resumeForKeys()
    if let taken = checkpoint.take() { transaction.deadLetters.insert(contentsOf: taken.deadLetters, at: 0) }
    // A pipeline that ends because of the failure reports it itself.
    guard execution.hasState else { return }
    execution.services.log(
      .error, execution.plan.name,
      "an event was not delivered (\(reason)), so nothing is committed any more: the next start repeats events after the last commit"
    )
  }

  // MARK: The end

  /// The last commit writes all pages that have changed since the commit before.
  var pagingOfEnd: StatePaging {
    StatePaging(from: options.pagedKeys, after: lastOwner, most: .max, spilling: spilling)
  }

  /// Makes the last commit of a pipeline that has ended or is suspended. `done` is called once, on any thread, when it
  /// is on the disk.
  ///
  /// - Parameter state: Nil: the state of the previous commit stays.
  func finish(_ state: StoreTransaction.StateChange, _ done: @escaping @Sendable () -> Void) {
    unset()
    var last = transaction
    transaction = StoreTransaction()
    last.state = state
    last.removed += removed.take()
    // The state of a checkpoint that still waits is older; only its dead letters are kept.
    if let waiting = checkpoint.take() { last.deadLetters = waiting.deadLetters + last.deadLetters }
    // The older state makes sinks cut off later output, and senders send later events again.
    if case .keep = state {
      last.rows = []
      last.removed = []
      waiting = []
      clients = []
    }
    let answered = clientsUnderWay + clients
    clientsUnderWay = []
    clients = []
    let box = Box(self, waiting + answered.map { ack in { ack.release() } }, uncommitted)
    waiting = []
    isOver = true
    let executor = executor
    options.store.commit(last) {
      executor.post { for release in box.released { release() } }
      done()
    }
  }
}

/// How a pipeline's commits are made.
package struct DeliveryOptions: Sendable {
  package var store: any PipelineStore
  /// Whether sinks deliver from the outbox.
  package var isDurable: Bool
  /// The record of the event in hand; nil: none is kept.
  package var inHand: InHand?
  /// The time between two commits if no sender or sink waits.
  package var interval = TimeSpan.milliseconds(100)
  /// The number of keys from which the state of a step is divided into pages, of which a commit writes only the changed
  /// ones. Debug builds divide every state, so that all tests check that changes are marked.
  package var pagedKeys = _isDebugAssertConfiguration() ? 1 : 256
  /// The bytes of keys in memory beyond which steps move the oldest to the disk, if the store takes them; nil: none are
  /// moved.
  package var stateMemory: Int?
  /// The maximum number of pages that one turn writes.
  package var pagesOfTurn = 1000
  /// The limit of bytes in rows that are in no finished commit, unless the state is larger; the input is paused beyond
  /// it.
  package var uncommittedBytes = 8 << 20
  /// The limit of bytes of a sink's rows in memory, and of one read.
  package var memoryBytes = 8 << 20
  package var readBytes = 2 << 20

  package init(store: any PipelineStore, isDurable: Bool) {
    self.store = store
    self.isDurable = isDurable
  }
}
