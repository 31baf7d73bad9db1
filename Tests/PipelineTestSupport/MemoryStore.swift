import PipelineCore
import Synchronization

/// A store in memory, whose disk completes a commit when the test says so.
package final class MemoryStore: PipelineStore {
  /// What survives a crash.
  package struct Disk: Sendable {
    package var state: [UInt8]?
    package var rows: [Int64: OutboxRow] = [:]
    package var lastRow: Int64 = 0
    package var deadLetters: [StoredDeadLetter] = []
    /// The number of completed commits.
    package var commits = 0
    package init() {}

    mutating func apply(_ transaction: StoreTransaction) {
      commits += 1
      switch transaction.state {
      case .keep: break
      case .clear: state = nil
      case .replace(let saved):
        precondition(saved.ends == saved.ends.sorted() && saved.ends.last == saved.bytes.count)
        state = saved.bytes
      }
      for row in transaction.rows {
        precondition(row.number > lastRow, "a number was used twice")
        lastRow = row.number
        rows[row.number] = row
      }
      for row in transaction.removed {
        precondition(rows.removeValue(forKey: row.number)?.bytes.count == row.size, "a row was removed twice")
      }
      deadLetters += transaction.deadLetters
    }
  }

  private struct State {
    var disk: Disk
    var reportRoom: (@Sendable (RoomOfStore) -> Void)?
    var waiting: [(StoreTransaction, @Sendable () -> Void)] = []
    var holdsReads = false
    var reads: [@Sendable () -> Void] = []
  }
  private let state: Mutex<State>
  package let identity: UInt64 = 1
  /// Whether commits complete at once.
  private let isImmediate: Bool

  package init(_ disk: Disk = Disk(), isImmediate: Bool = false) {
    state = Mutex(State(disk: disk))
    self.isImmediate = isImmediate
  }

  package var disk: Disk { state.withLock(\.disk) }
  package var lastRow: Int64 { state.withLock(\.disk.lastRow) }
  package var waiting: Int { state.withLock(\.waiting.count) }

  package func whenRoomChanges(_ report: @escaping @Sendable (RoomOfStore) -> Void) {
    state.withLock { $0.reportRoom = report }
  }
  /// Reports the store's room to the pipeline.
  package func has(_ room: RoomOfStore) { state.withLock(\.reportRoom)?(room) }

  package func commit(_ transaction: StoreTransaction, _ done: @escaping @Sendable () -> Void) {
    state.withLock { $0.waiting.append((transaction, done)) }
    if isImmediate { takeOne() }
  }

  /// Completes the oldest waiting commit. `isHeard`: whether the process is notified.
  package func takeOne(isHeard: Bool = true) {
    let done = state.withLock { state -> (@Sendable () -> Void)? in
      guard !state.waiting.isEmpty else { return nil }
      let (transaction, done) = state.waiting.removeFirst()
      state.disk.apply(transaction)
      return done
    }
    if isHeard { done?() }
  }

  package func read(
    rowsOf sink: String, after number: Int64, bytes: Int, _ done: @escaping @Sendable ([OutboxRow]) -> Void
  ) {
    let rows = state.withLock { state in
      state.disk.rows.values.filter { $0.sink == sink && $0.number > number }.sorted { $0.number < $1.number }
    }
    var size = 0
    var found: [OutboxRow] = []
    for row in rows where found.isEmpty || size + row.bytes.count <= bytes {
      size += row.bytes.count
      found.append(row)
    }
    let answer: @Sendable () -> Void = { [found] in done(found) }
    let isHeld = state.withLock { state in
      if state.holdsReads { state.reads.append(answer) }
      return state.holdsReads
    }
    if !isHeld { answer() }
  }

  /// Whether reads are answered only by ``answerReads()``, with what the disk had when they were asked for.
  package var holdsReads: Bool {
    get { state.withLock(\.holdsReads) }
    set { state.withLock { $0.holdsReads = newValue } }
  }

  package func answerReads() {
    let reads = state.withLock { state in
      defer { state.reads = [] }
      return state.reads
    }
    for read in reads { read() }
  }

  package var backlogs: [String: OutboxBacklog] {
    state.withLock { state in
      var all: [String: OutboxBacklog] = [:]
      for row in state.disk.rows.values.sorted(by: { $0.number < $1.number }) {
        all[row.sink, default: OutboxBacklog()].add(row)
      }
      return all
    }
  }
}
