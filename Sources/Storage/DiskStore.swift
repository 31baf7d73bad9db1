import Glibc
import PipelineCore
import Transport

/// The store of one pipeline: a SQLite file. One of the threads that all stores share writes to it.
///
/// Transactions that arrive while one is being written are combined and written next. While the disk is full or fails,
/// the file is reopened and the same transactions are written again, after growing pauses: after a failed sync, nothing
/// is reported as being on the disk.
///
/// A full disk does not block writes that free space: see ``StoreRoom``.
package final class DiskStore: PipelineStore {
  package typealias Log = @Sendable (Services.Level, String) -> Void

  struct Request {
    var transaction: StoreTransaction
    var done: @Sendable () -> Void
  }
  enum Job {
    case read(sink: String, after: Int64, bytes: Int, done: @Sendable ([OutboxRow]) -> Void)
  }
  struct State {
    var requests: [Request] = []
    var jobs: [Job] = []
    var isClosing = false
    var isOver = false
    var backlogs: [String: OutboxBacklog] = [:]
    var lastRow: Int64 = 0
    var lastOwner: Int64 = 0
    var owners: Set<Int64> = []
    var spill: SpillFile?
    var copier: StoreCopier?
    var mayReport: @Sendable () -> Bool = { true }
    var statistics = StoreStatistics()
    var reportDeadLetters: @Sendable (Int) -> Void = { _ in }
    var room = RoomOfStore.enough
    var reportRoom: (@Sendable (RoomOfStore) -> Void)?
    var reportOver: (@Sendable () -> Void)?
    var reportDroppedLetters: @Sendable (Int) -> Void = { _ in }
  }

  /// The threads of all stores. A store that waits for a slow disk delays the others only if all threads do.
  private static let threads = SharedThreads("rxd store", usual: 4, most: 16)

  let state: Guarded<State>
  private let path: String
  private let log: Log
  let turns: SerialWork
  package let identity: UInt64
  /// The state that an earlier run has saved; nil if there is none.
  package let savedState: [UInt8]?
  /// The pauses between attempts to write.
  private static let firstPause: Int64 = 100_000_000
  private static let longestPause: Int64 = 5_000_000_000
  /// The limit on the size of all dead letters of a store, in bytes. Beyond it the oldest are deleted.
  package static let deadLetterBytes: Int64 = 256 << 20

  /// Opens the store at `path`; creates it if there is none.
  ///
  /// A damaged store is renamed and kept; readable records are copied into a new one, and the log reports the losses.
  ///
  /// - Parameters:
  ///   - deadLetterBytes: The limit on the size of all dead letters; up to a sixteenth more may be stored temporarily.
  ///   - room: The reserve for when the disk is full; nil: there is none.
  ///   - caches: The page memory that the store shares with other stores.
  /// - Throws: ``StoreRefusal`` for another program's file, a newer format, or a directory that cannot be written to.
  package init(
    _ path: String, deadLetterBytes: Int64 = deadLetterBytes, room: StoreRoom? = nil,
    caches: StoreCaches = StoreCaches(), log: @escaping Log
  ) throws(StoreRefusal) {
    self.path = path
    self.log = log
    let isMissing = access(path, F_OK) != 0
    if isMissing || FileDescriptor.Status(path: path)?.size == 0,
      let size = FileDescriptor.Status(path: path + "-wal")?.size, size > 0
    {
      // If the file has no pages, SQLite would take the log for a stale one and remove it.
      let what = isMissing ? "missing" : "empty"
      guard LogCheck.makeFile(path, fromLog: path + "-wal") else {
        throw StoreRefusal(
          "the store \(path) is \(what), and cannot be rebuilt from its log \(path)-wal alone: restore the file, or move the log "
            + "away to start with an empty store")
      }
      log(
        .error,
        "the store \(path) was \(what), and has been rebuilt from its log: data that was no longer in the log is lost"
      )
    }
    if let damage = LogCheck.damage(ofLog: path + "-wal") {
      log(
        .error,
        "the log \(path)-wal is damaged after \(Printable.count(damage.whole, "page")): what was committed in the next "
          + "\(Printable.count(damage.lost, "page")) is lost")
    }
    let opened: (file: StoreFile, state: [UInt8]?, backlogs: [String: OutboxBacklog])
    do {
      opened = try Self.open(path)
    } catch let refusal as StoreRefusal {
      throw refusal
    } catch let error as DatabaseError where error.isBusy {
      throw StoreRefusal("the store \(path) cannot be opened: another process has it open, perhaps under another path")
    } catch let error as DatabaseError where !error.isDamage {
      throw StoreRefusal("the store \(path) cannot be opened: \(error.message)")
    } catch {
      let reason = (error as? StoreDamage)?.message ?? (error as? DatabaseError)?.message ?? "\(error)"
      do {
        try Salvage(path, log).run(because: reason)
        opened = try Self.open(path)
      } catch {
        throw StoreRefusal(
          "the store \(path) is damaged (\(reason)), and its readable records cannot be copied: \(error)")
      }
    }
    identity = opened.file.identity
    savedState = opened.state
    state = Guarded(
      State(
        backlogs: opened.backlogs, lastRow: opened.file.lastRow, lastOwner: opened.file.owners.max() ?? 0,
        owners: opened.file.owners))
    // Only the writer may hold the file, so that it is closed before `close` returns.
    let writer = Writer(path, opened.file, state, deadLetterBytes, room, caches, log)
    do throws(PosixError) {
      turns = try SerialWork(on: Self.threads) { writer.turn() }
    } catch {
      throw StoreRefusal(error.message)
    }
    // The first turn checks whether there is room.
    turns.wake()
  }

  private static func open(_ path: String) throws -> (StoreFile, [UInt8]?, [String: OutboxBacklog]) {
    let file = try StoreFile(path)
    return (file, try file.state(), try file.backlogs())
  }

  /// The keys of steps that are on the disk; nil: there are none, or ``openSpill(memory:)`` has not been called.
  package var spill: (any SpillStore)? { state.withLock(\.spill) }

  /// The directory for keys of steps alongside the store at `path`.
  package static func directoryOfKeys(besideStore path: String) -> String { SpillFile.path(besideStore: path) }

  /// Lets steps store keys in a directory alongside the store, which is opened now if it exists, and otherwise created
  /// with the first key. Called before the pipeline starts.
  ///
  /// - Parameter memory: The memory in bytes that the directory may use; nil: no more keys are moved there, so it need
  ///   not be created.
  /// - Throws: ``StoreRefusal``.
  package func openSpill(memory: Int?) throws(StoreRefusal) {
    guard state.withLock(\.spill) == nil else { return }
    guard memory != nil || access(SpillFile.path(besideStore: path), F_OK) == 0 else { return }
    let spill = try SpillFile(besideStore: path, identity: identity, memory: memory ?? 16 << 20, log: log)
    state.withLock { state in
      state.spill = spill
      state.lastOwner = max(state.lastOwner, spill.lastOwner)
    }
  }

  package var backlogs: [String: OutboxBacklog] { state.withLock(\.backlogs) }
  package var lastRow: Int64 { state.withLock(\.lastRow) }
  package var lastOwner: Int64 { state.withLock(\.lastOwner) }
  package var owners: Set<Int64> { state.withLock(\.owners) }
  /// Whether the store may receive new events.
  var hasRoom: Bool { state.withLock { $0.room == .enough } }
  /// Counters since the store was opened.
  package var statistics: StoreStatistics { state.withLock(\.statistics) }

  /// Called on the store's thread when dead letters are on the disk, with their number since the last call; at most
  /// once per second.
  package var reportDeadLetters: @Sendable (Int) -> Void {
    get { state.withLock(\.reportDeadLetters) }
    set { state.withLock { $0.reportDeadLetters = newValue } }
  }

  /// Called on the store's thread with the number of oldest dead letters that were deleted because their total size
  /// exceeded the limit.
  package var reportDroppedLetters: @Sendable (Int) -> Void {
    get { state.withLock(\.reportDroppedLetters) }
    set { state.withLock { $0.reportDroppedLetters = newValue } }
  }

  package func commit(_ transaction: StoreTransaction, _ done: @escaping @Sendable () -> Void) {
    let isOver = state.withLock { state in
      for row in transaction.rows { state.lastRow = max(state.lastRow, row.number) }
      if case .keep = transaction.state {} else { state.owners = [] }
      if case .replace(let saved) = transaction.state {
        state.lastOwner = max(state.lastOwner, saved.lastOwner)
      }
      if !state.isOver { state.requests.append(Request(transaction: transaction, done: done)) }
      return state.isOver
    }
    if !isOver { turns.wake() }
  }

  /// Assigns the rows of a sink to its new name; neither sink may have a run now. Reads and commits after this call use
  /// only the new name.
  package func giveRows(of former: String, to name: String) {
    var transaction = StoreTransaction()
    transaction.renamed = [(former, name)]
    state.withLock { state in
      guard let moved = state.backlogs.removeValue(forKey: former) else { return }
      state.backlogs[name] = state.backlogs[name].map { $0.adding(moved) } ?? moved
    }
    commit(transaction) {}
  }

  /// Calls `report` now, unless there is enough room, and whenever that changes; on any thread.
  package func whenRoomChanges(_ report: @escaping @Sendable (RoomOfStore) -> Void) {
    let now = state.withLock { state in
      state.reportRoom = report
      return state.room
    }
    if now != .enough { report(now) }
  }

  package func read(
    rowsOf sink: String, after number: Int64, bytes: Int, _ done: @escaping @Sendable ([OutboxRow]) -> Void
  ) {
    state.withLock { $0.jobs.append(.read(sink: sink, after: number, bytes: bytes, done: done)) }
    turns.wake()
  }

  /// Starts writing the pending commits and closing the file, without waiting for either.
  /// - Parameter then: Called once when the file is closed, on any thread.
  package func beginClosing(then: (@Sendable () -> Void)? = nil) {
    let isOver = state.withLock { state in
      state.isClosing = true
      if let then, !state.isOver { state.reportOver = then }
      return state.isOver
    }
    turns.wake()
    if isOver { then?() }
  }

  /// Writes the pending commits and closes the file. Returns whether all were written within `limit`; the rest is lost,
  /// and is repeated by sources that can be read again.
  @discardableResult
  package func close(within limit: TimeSpan) -> Bool {
    beginClosing()
    let deadline = monotonicNow() + limit.nanoseconds
    return state.wait(until: deadline) { $0.isOver ? true : nil } ?? false
  }

  deinit {
    state.withLock { $0.isClosing = true }
    turns.wake()
  }

  // MARK: Writing

  /// Must be used by one thread at a time.
  final class Writer: @unchecked Sendable {
    let path: String
    var file: StoreFile?
    let state: Guarded<State>
    let log: Log
    let room: StoreRoom?
    private let caches: StoreCaches
    /// The directory in which the file was opened.
    let directory: StoreFile.FileIdentity?
    var hasReportedMove = false
    /// Whether it was reported that readers keep the log from being moved into the file.
    var isLogHeld = false
    private var pause = DiskStore.firstPause
    var isFailing = false
    /// The requests that could not be written yet. `nextTry`: the time of the next attempt, on the monotonic clock.
    private var held: [Request] = []
    private var nextTry: Int64?
    private var roomNow = RoomOfStore.enough
    /// The interval between checks for free space, in nanoseconds.
    private static let roomPause: Int64 = 1_000_000_000
    /// The number of new dead letters that have not been reported.
    private var unreported = 0
    /// The number of commits since the last call of `tidy`.
    private var untidied = 0
    private let letterLimit: Int64
    /// The bytes of dead letters added since the limit was last checked.
    private var newLetterBytes: Int64 = 0
    /// Commits that are on this disk but not in the copy, each with the log's number of frames at that time.
    var uncopied: [(frames: Int, requests: [Request])] = []
    /// Commits that must not be reported any more (``DiskStore/mayReport``).
    var withheld: [Request] = []
    /// The deadline of the shutdown's wait for the copy, on the monotonic clock.
    private var copyUntil: Int64?
    private var nextReport: Int64 = 0

    init(
      _ path: String, _ file: StoreFile, _ state: Guarded<State>, _ letterLimit: Int64, _ room: StoreRoom?,
      _ caches: StoreCaches, _ log: @escaping Log
    ) {
      self.caches = caches
      caches.join()
      directory = StoreFile.directory(of: path)
      self.room = room
      room?.join()
      self.letterLimit = letterLimit
      self.path = path
      self.file = file
      self.state = state
      self.log = log
    }

    deinit {
      room?.leave()
      caches.leave()
    }

    /// Does everything that can be done now.
    func turn() -> SerialWork.Next {
      while true {
        let work = state.withLock { state -> (requests: [Request], jobs: [Job], isClosing: Bool) in
          defer {
            state.requests = []
            state.jobs = []
          }
          return (state.requests, state.jobs, state.isClosing)
        }
        held += work.requests
        let copier = state.withLock(\.copier)
        if let copier {
          // Otherwise the path leads to another file.
          if file?.isInPlace == true { copier.storeIsAwake() }
          reportCopied(copier)
        }
        lookForRoom()
        var jobs = work.jobs
        // Reads after a sink's renaming use its new name.
        if !jobs.isEmpty, held.contains(where: { !$0.transaction.renamed.isEmpty }) {
          state.withLock { $0.jobs.insert(contentsOf: jobs, at: 0) }
          jobs = []
        }
        for job in jobs { run(job) }
        defer { if !work.jobs.isEmpty || !work.requests.isEmpty { file?.boundCache(to: caches.pages) } }
        if !held.isEmpty {
          if let nextTry, monotonicNow() < nextTry, !work.isClosing { return .at(nextTry) }
          if write(held) {
            held = []
            nextTry = nil
            if untidied >= 256, state.withLock({ $0.requests.isEmpty }) { tidy() }
          } else if work.isClosing {
            break
          } else {
            nextTry = monotonicNow() + pause
            pause = min(pause * 2, DiskStore.longestPause)
          }
          continue
        }
        if !jobs.isEmpty { continue }
        if work.isClosing {
          if let copier { noteLog(copier) }
          if let copier, !copier.hasAll, !copier.isPromoted {
            let until = copyUntil ?? monotonicNow() + copier.limits.patience
            copyUntil = until
            if monotonicNow() < until { return .at(min(until, monotonicNow() + 50_000_000)) }
          }
          break
        }
        return roomNow == .enough ? .whenWoken : .at(monotonicNow() + Self.roomPause)
      }
      end()
      return .over
    }

    private func end() {
      reportLetters()
      let copier = state.withLock(\.copier)
      let end = copier?.end()
      do throws(DatabaseError) {
        do throws(DatabaseError) { try file?.end() } catch  where error.isFull && room?.giveUp() == true {
          try file?.end()
        }
        if let end, file?.isInPlace == true { StoreCopier.note(end, beside: path) }
      } catch {
        // Everything that was committed is in the log.
        log(error.isFull ? .debug : .warning, "the store \(path) cannot be closed in order: \(error.message)")
      }
      file = nil
      held = []
      (uncopied, withheld) = ([], [])
      let reportOver = state.withLock { state in
        state.spill = nil
        state.copier = nil
        defer { state.reportOver = nil }
        state.isOver = true
        state.reportRoom = nil
        return state.reportOver
      }
      state.notify()
      reportOver?()
    }

    // MARK: Room

    /// Detects that another store has given up the reserve, that there is barely enough space to move the log into the
    /// file, and that there is enough room again.
    private func lookForRoom() {
      guard let room else { return }
      let rows = held.reduce(0) { $0 + $1.transaction.rows.reduce(0) { $0 + $1.bytes.count } }
      func needed() -> Int { (file?.logBytes ?? 0) + rows + StoreRoom.least }
      func free() -> Int {
        let (sum, isOver) = room.free.addingReportingOverflow(file?.freeBytes ?? 0)
        return isOver ? .max : sum
      }
      if roomNow == .enough {
        guard room.keep() else { return set(.reserve) }
        if room.free >= needed() || free() >= needed() { return }
        // While there is still space in the file for the contents of the log, the log is moved there.
        moveLog(isSmall: true)
        if free() < needed() { set(.reserve) }
      } else if held.isEmpty {
        if !room.isKept { shrink() }
        moveLog(isSmall: true)
        if room.keep(), free() >= 2 * needed() { set(.enough) }
      }
    }

    /// Returns the space of removed records to the file system.
    private func shrink() {
      do throws(DatabaseError) { try file?.shrink(isFull: true) } catch {
        log(.debug, "the store \(path) cannot be made smaller: \(error.message)")
      }
    }

    func set(_ new: RoomOfStore) {
      guard new != roomNow else { return }
      let before = roomNow
      roomNow = new
      let report = state.withLock { state in
        state.room = new
        return state.reportRoom
      }
      if before == .enough {
        log(
          .error,
          "the file system of \(path) is full: until it has room, a durable pipeline accepts no new events; its sinks continue to deliver stored events"
        )
      } else if new == .enough {
        log(.info, "the file system of \(path) has room again")
      }
      report?(new)
    }

    /// False if nothing can be written now.
    private func write(_ requests: [Request]) -> Bool {
      while true {
        let start = monotonicNow()
        do throws(DatabaseError) {
          if file == nil { file = try reopen() }
          if file?.isInPlace == false {
            if StoreFile.directory(of: path) == directory { try putBack() } else { reportMoved() }
          }
          let spill = state.withLock(\.spill)
          try spill?.sync()
          try file?.write(requests.map(\.transaction))
          if let spill { keep(requests, spill) }
          let took = monotonicNow() - start
          if isFailing {
            isFailing = false
            pause = DiskStore.firstPause
            log(.info, "the store \(path) can be written again")
          }
          if roomNow == .none { set(room == nil ? .enough : .reserve) }
          state.withLock { state in
            for request in requests { state.count(request.transaction) }
            state.statistics.count(took)
          }
          untidied += 1
          count(requests.flatMap(\.transaction.deadLetters))
          report(requests)
          moveLog()
          return true
        } catch {
          // After a failed sync the contents of the disk are unknown, so the file is reopened and everything is written
          // again. A removed file must stay open, because it exists only there.
          if file?.isInPlace != false { file = nil }
          if error.isFull, room?.giveUp() == true {
            set(.reserve)
            continue
          }
          if !isFailing { log(.error, "the store \(path) cannot be written: \(error.message); trying again") }
          isFailing = true
          if error.isDamage, salvage(because: error.message) { continue }
          if error.isFull { set(.none) }
          return false
        }
      }
    }

    /// Removes the keys alongside the store that the committed state no longer has.
    private func keep(_ requests: [Request], _ spill: SpillFile) {
      let kept = requests.reversed().lazy.compactMap { request -> [SpilledOwner]? in
        switch request.transaction.state {
        case .keep: nil
        case .clear: []
        case .replace(let saved): saved.spilled
        }
      }.first
      guard let kept, let failure = spill.keep(kept) else { return }
      // The next commit tries again.
      log(.debug, "keys next to the store \(path) cannot be removed: \(failure)")
    }

    private func count(_ letters: [StoredDeadLetter]) {
      newLetterBytes += letters.reduce(0) { $0 + Int64($1.document.count) }
      if newLetterBytes > letterLimit / 16 { boundLetters() }
      unreported += letters.count
      if monotonicNow() >= nextReport { reportLetters() }
    }

    private func reportLetters() {
      guard unreported > 0 else { return }
      let report = state.withLock(\.reportDeadLetters)
      report(unreported)
      unreported = 0
      nextReport = monotonicNow() + 1_000_000_000
    }

    private func run(_ job: Job) {
      switch job {
      case .read(let sink, let number, let bytes, let done):
        var damaged: [RemovedRow] = []
        var rows: [OutboxRow] = []
        for attempt in 1...2 {
          damaged = []
          do throws(DatabaseError) {
            if file == nil { file = try reopen() }
            rows = try file?.rows(of: sink, after: number, bytes: bytes) { damaged.append($0) } ?? []
            break
          } catch {
            log(.error, "the outbox of '\(sink)' cannot be read: \(error.message)")
            guard attempt == 1, error.isDamage, salvage(because: error.message) else { break }
          }
        }
        if !damaged.isEmpty {
          let events = damaged.reduce(0) { $0 + $1.events }
          log(.error, "\(Printable.count(events, "event")) of the outbox of '\(sink)' are lost: their rows are damaged")
          var transaction = StoreTransaction()
          transaction.removed = damaged
          held.append(Request(transaction: transaction, done: {}))
        }
        done(rows)
      }
    }

    /// Maintenance that is done while no commit waits.
    private func tidy() {
      do throws(DatabaseError) {
        untidied = 0
        if newLetterBytes > 0 { boundLetters() }
        try file?.shrink()
      } catch {
        log(.warning, "the store \(path) cannot be tidied up: \(error.message)")
      }
    }

    /// Deletes the oldest dead letters if their total size exceeds the limit.
    private func boundLetters() {
      newLetterBytes = 0
      do throws(DatabaseError) {
        let dropped = try file?.boundDeadLetters(to: letterLimit) ?? 0
        guard dropped > 0 else { return }
        state.withLock(\.reportDroppedLetters)(dropped)
        log(
          .warning,
          "the oldest \(Printable.count(dropped, "dead letter")) were dropped: all of them had more than "
            + "\(ByteSize(Int(letterLimit)).defaultText ?? "")")
      } catch {
        log(.warning, "the oldest dead letters of \(path) cannot be dropped: \(error.message)")
      }
    }
  }
}

extension DiskStore.State {
  mutating func count(_ transaction: StoreTransaction) {
    for row in transaction.rows { backlogs[row.sink, default: OutboxBacklog()].add(row) }
    for row in transaction.removed { backlogs[row.sink]?.remove(row) }
  }
}
