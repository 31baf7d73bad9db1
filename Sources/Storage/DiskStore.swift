import Glibc
import PipelineCore
import Transport

/// The store of one pipeline: a SQLite file with a thread that writes to it.
///
/// Transactions that come while one is being written are written together in the next. While the disk is full or fails, the file is opened
/// anew and the same transactions are written again, after growing pauses: nothing is reported as on the disk after a failed sync.
package final class DiskStore: PipelineStore {
  package typealias Log = @Sendable (Services.Level, String) -> Void

  fileprivate struct Request {
    var transaction: StoreTransaction
    var done: @Sendable () -> Void
  }
  fileprivate enum Job {
    case read(sink: String, after: Int64, bytes: Int, done: @Sendable ([OutboxRow]) -> Void)
  }
  fileprivate struct State {
    var requests: [Request] = []
    var jobs: [Job] = []
    var isClosing = false
    var isOver = false
    var backlogs: [String: OutboxBacklog] = [:]
    var lastRow: Int64 = 0
    var statistics = StoreStatistics()
    var reportDeadLetters: @Sendable (Int) -> Void = { _ in }
    var reportDroppedLetters: @Sendable (Int) -> Void = { _ in }
  }

  private let state: Guarded<State>
  private let path: String
  private let log: Log
  package let identity: UInt64
  /// The state that an earlier run has left; nil: there is none.
  package let savedState: [UInt8]?
  /// The pauses between attempts to write.
  private static let firstPause: Int64 = 100_000_000
  private static let longestPause: Int64 = 5_000_000_000
  /// The limit of all dead letters of a store, in bytes. Beyond it the oldest are deleted.
  package static let deadLetterBytes: Int64 = 256 << 20

  /// Opens the store at `path`, creates it if there is none, and starts its thread.
  ///
  /// A damaged store is set aside under another name; readable records are taken over, and the log reports the losses.
  ///
  /// - Parameter deadLetterBytes: The limit of all dead letters, in bytes; up to a sixteenth more may be stored for a while.
  /// - Throws: ``StoreRefusal``: another program's file, a newer format, a directory that cannot be written to.
  package init(
    _ path: String, deadLetterBytes: Int64 = deadLetterBytes, log: @escaping Log
  ) throws(StoreRefusal) {
    self.path = path
    self.log = log
    if let damage = LogCheck.damage(ofLog: path + "-wal") {
      log(
        .error,
        "the log \(path)-wal is damaged behind \(Printable.count(damage.whole, "page")): what was committed in the next "
          + "\(Printable.count(damage.lost, "page")) is lost")
    }
    let opened: (file: StoreFile, state: [UInt8]?, backlogs: [String: OutboxBacklog])
    do {
      opened = try Self.open(path)
    } catch let refusal as StoreRefusal {
      throw refusal
    } catch let error as DatabaseError where !error.isDamage {
      throw StoreRefusal("the store \(path) cannot be opened: \(error.message)")
    } catch {
      let reason = (error as? StoreDamage)?.message ?? (error as? DatabaseError)?.message ?? "\(error)"
      do {
        try Salvage(path, log).run(because: reason)
        opened = try Self.open(path)
      } catch {
        throw StoreRefusal(
          "the store \(path) is damaged (\(reason)), and what can be read of it cannot be taken over: \(error)")
      }
    }
    identity = opened.file.identity
    savedState = opened.state
    state = Guarded(State(backlogs: opened.backlogs, lastRow: opened.file.lastRow))
    // The writer alone holds the file, so that it is closed before `close` returns.
    nonisolated(unsafe) let writer = Writer(path, opened.file, state, deadLetterBytes, log)
    do throws(PosixError) {
      _ = try OwnThread("rxd store", stackBytes: 512 << 10) { writer.run() }
    } catch {
      throw StoreRefusal(error.message)
    }
  }

  private static func open(_ path: String) throws -> (StoreFile, [UInt8]?, [String: OutboxBacklog]) {
    let file = try StoreFile(path)
    return (file, try file.state(), try file.backlogs())
  }

  package var backlogs: [String: OutboxBacklog] { state.withLock(\.backlogs) }
  package var lastRow: Int64 { state.withLock(\.lastRow) }
  /// Counters since the store was opened.
  package var statistics: StoreStatistics { state.withLock(\.statistics) }

  /// Called on the store's thread when dead letters are on the disk, with how many have come since the last call; at most once a second.
  package var reportDeadLetters: @Sendable (Int) -> Void {
    get { state.withLock(\.reportDeadLetters) }
    set { state.withLock { $0.reportDeadLetters = newValue } }
  }

  /// Called on the store's thread with how many of the oldest dead letters were deleted, because all of them had more than the limit.
  package var reportDroppedLetters: @Sendable (Int) -> Void {
    get { state.withLock(\.reportDroppedLetters) }
    set { state.withLock { $0.reportDroppedLetters = newValue } }
  }

  package func commit(_ transaction: StoreTransaction, _ done: @escaping @Sendable () -> Void) {
    let isOver = state.withLock { state in
      for row in transaction.rows { state.lastRow = max(state.lastRow, row.number) }
      if !state.isOver { state.requests.append(Request(transaction: transaction, done: done)) }
      return state.isOver
    }
    if !isOver { state.notify() }
  }

  package func read(
    rowsOf sink: String, after number: Int64, bytes: Int, _ done: @escaping @Sendable ([OutboxRow]) -> Void
  ) {
    state.withLock { $0.jobs.append(.read(sink: sink, after: number, bytes: bytes, done: done)) }
    state.notify()
  }

  /// Writes the pending commits and closes the file. Returns whether all were written within `limit`; the rest is lost,
  /// and repeated by sources that can be read again.
  @discardableResult
  package func close(within limit: TimeSpan) -> Bool {
    state.withLock { $0.isClosing = true }
    state.notify()
    let deadline = monotonicNow() + limit.nanoseconds
    return state.wait(until: deadline) { $0.isOver ? true : nil } ?? false
  }

  deinit {
    state.withLock { $0.isClosing = true }
    state.notify()
  }

  // MARK: The thread

  private final class Writer {
    private let path: String
    private var file: StoreFile?
    private let state: Guarded<State>
    private let log: Log
    private var pause = DiskStore.firstPause
    private var isFailing = false
    /// The number of new dead letters that have not been reported.
    private var unreported = 0
    /// The number of commits since `tidy` last ran.
    private var untidied = 0
    private let letterLimit: Int64
    /// What dead letters have brought since the limit was last looked at, in bytes.
    private var newLetterBytes: Int64 = 0
    private var nextReport: Int64 = 0

    init(
      _ path: String, _ file: StoreFile, _ state: Guarded<State>, _ letterLimit: Int64, _ log: @escaping Log
    ) {
      self.letterLimit = letterLimit
      self.path = path
      self.file = file
      self.state = state
      self.log = log
    }

    func run() {
      while true {
        let work = state.wait(until: nil) { state -> (requests: [Request], jobs: [Job], isClosing: Bool)? in
          guard !state.requests.isEmpty || !state.jobs.isEmpty || state.isClosing else { return nil }
          defer {
            state.requests = []
            state.jobs = []
          }
          return (state.requests, state.jobs, state.isClosing)
        }
        guard let work else { continue }
        if !work.requests.isEmpty, !write(work.requests) { break }
        for job in work.jobs { run(job) }
        if work.requests.isEmpty, work.jobs.isEmpty, work.isClosing { break }
        if untidied >= 256, state.withLock({ $0.requests.isEmpty }) { tidy() }
      }
      reportLetters()
      do { try file?.end() } catch { log(.warning, "the store \(path) cannot be closed in order: \(error)") }
      file = nil
      state.withLock { $0.isOver = true }
      state.notify()
    }

    /// False: it was closed before it could write.
    private func write(_ requests: [Request]) -> Bool {
      while true {
        let start = monotonicNow()
        do throws(DatabaseError) {
          if file == nil { file = try reopen() }
          if file?.isInPlace == false { try putBack() }
          try file?.write(requests.map(\.transaction))
          let took = monotonicNow() - start
          if isFailing {
            isFailing = false
            pause = DiskStore.firstPause
            log(.info, "the store \(path) can be written again")
          }
          state.withLock { state in
            for request in requests { state.count(request.transaction) }
            state.statistics.count(took)
          }
          untidied += 1
          count(requests.flatMap(\.transaction.deadLetters))
          for request in requests { request.done() }
          return true
        } catch {
          if !isFailing { log(.error, "the store \(path) cannot be written: \(error.message); trying again") }
          isFailing = true
          // After a failed sync the contents of the disk are unknown: the file is opened anew, and all of it is written again. A removed file is
          // only where it is open.
          if file?.isInPlace != false { file = nil }
          if error.isDamage, salvage(because: error.message) { continue }
        }
        let end = monotonicNow() + pause
        pause = min(pause * 2, DiskStore.longestPause)
        if state.wait(until: end, { $0.isClosing ? true : nil }) == true, monotonicNow() < end {
          // One more attempt, unless this was it.
          if (try? retry(requests)) != nil { return true }
          return false
        }
      }
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

    /// Sets the damaged file aside and takes over its readable records; false: that failed.
    private func salvage(because reason: String) -> Bool {
      file = nil
      do {
        try Salvage(path, log).run(because: reason)
        return true
      } catch {
        log(.error, "what can be read of the damaged store \(path) cannot be taken over: \(error)")
        return false
      }
    }

    /// The file was removed or replaced while it was open: writes a copy of its contents under its name.
    private func putBack() throws(DatabaseError) {
      guard let open = file else { return }
      var aside: String?
      if access(path, F_OK) == 0 {
        var number = 1
        while access("\(path).replaced-\(number)", F_OK) == 0 { number += 1 }
        aside = "\(path).replaced-\(number)"
      }
      let copy = path + ".copy"
      try open.copy(to: copy)
      if let aside, rename(path, aside) != 0 {
        throw DatabaseError(code: 14, message: PosixError("rename", path).message)
      }
      // Closing removes the log of that name, which must not meet the copy.
      file = nil
      for suffix in ["-wal", "-shm"] { unlink(path + suffix) }
      guard chmod(copy, 0o600) == 0, rename(copy, path) == 0 else {
        throw DatabaseError(code: 14, message: PosixError("rename", copy).message)
      }
      do { try StoreFile.syncDirectory(of: path) } catch let error as DatabaseError { throw error } catch {}
      file = try reopen()
      log(
        .error,
        "the store \(path) was \(aside == nil ? "removed" : "replaced") while it was in use, and has been written again from the copy in use; "
          + (aside.map { "the other file is \($0) now" } ?? "'rxd state delete' removes a store"))
    }

    private func retry(_ requests: [Request]) throws {
      if file?.isInPlace == false { try putBack() } else { file = try reopen() }
      try file?.write(requests.map(\.transaction))
      for request in requests { request.done() }
    }

    private func reopen() throws(DatabaseError) -> StoreFile {
      do {
        return try StoreFile(path)
      } catch let error as DatabaseError {
        throw error
      } catch let damage as StoreDamage {
        throw DatabaseError(code: 11, message: damage.message)
      } catch {
        throw DatabaseError(code: 1, message: "\(error)")
      }
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
          _ = write([Request(transaction: transaction, done: {})])
        }
        done(rows)
      }
    }

    /// Maintenance work, done while no commit waits.
    private func tidy() {
      do throws(DatabaseError) {
        untidied = 0
        if newLetterBytes > 0 { boundLetters() }
        try file?.shrink()
      } catch {
        log(.warning, "the store \(path) cannot be tidied up: \(error.message)")
      }
    }

    /// Deletes the oldest dead letters if all of them have more than the limit.
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

/// The counters of a store since it was opened.
package struct StoreStatistics: Sendable {
  package private(set) var commits: UInt64 = 0
  /// How many commits took less than twice as many nanoseconds as the power of two of the index, and not less than that.
  private var durations = [UInt64](repeating: 0, count: 63)

  package init() {}

  package mutating func count(_ nanoseconds: Int64) {
    commits += 1
    durations[63 - max(1, nanoseconds).leadingZeroBitCount] += 1
  }

  /// A time within which 99 % of the commits were on the disk: at most twice the exact one. Nil: there was none.
  package var percentile99: TimeSpan? {
    guard commits > 0 else { return nil }
    var left = commits - commits / 100
    for (power, count) in durations.enumerated() {
      if count >= left { return TimeSpan(nanoseconds: power < 62 ? 1 << Int64(power + 1) : .max) }
      left -= count
    }
    return nil
  }
}

extension DiskStore.State {
  mutating func count(_ transaction: StoreTransaction) {
    for row in transaction.rows { backlogs[row.sink, default: OutboxBacklog()].add(row) }
    for row in transaction.removed { backlogs[row.sink]?.remove(row) }
  }
}
