import Glibc
import PipelineCore
import Synchronization

/// A store in memory, whose disk completes a commit when the test says so.
package final class MemoryStore: PipelineStore {
  /// What survives a crash.
  package struct Disk: Sendable {
    /// The parts of the state; all of it is in ``state``.
    private var parts: [UInt8]?
    package private(set) var pages: [Int64: [Int64: [UInt8]]] = [:]
    package var state: [UInt8]? {
      get {
        guard var state = parts else { return nil }
        for (owner, pages) in pages.sorted(by: { $0.key < $1.key }) {
          for (number, bytes) in pages.sorted(by: { $0.key < $1.key }) {
            bytes.withUnsafeBytes { StatePage.append(owner, number, $0, to: &state) }
          }
        }
        return state
      }
      set { (parts, pages) = (newValue, [:]) }
    }
    /// How many pages all commits have written or removed.
    package private(set) var changedPages = 0
    package var rows: [Int64: OutboxRow] = [:]
    package var lastRow: Int64 = 0
    package var deadLetters: [StoredDeadLetter] = []
    /// The number of completed commits.
    package var commits = 0
    package init() {}

    /// What no transaction may do; nil: it is sound.
    fileprivate func fault(of transaction: StoreTransaction) -> String? {
      if case .replace(let saved) = transaction.state,
        saved.ends != saved.ends.sorted() || saved.ends.last != saved.bytes.count
      {
        return "the parts of a state are not its bytes: \(saved.ends) of \(saved.bytes.count)"
      }
      var last = lastRow
      var sizes = rows.mapValues(\.bytes.count)
      for row in transaction.rows {
        guard row.number > last else { return "the number \(row.number) is used twice" }
        last = row.number
        sizes[row.number] = row.bytes.count
      }
      for row in transaction.removed where sizes.removeValue(forKey: row.number) != row.size {
        return "the row \(row.number) of \(row.size) bytes is removed twice, or was never there"
      }
      return nil
    }

    package mutating func keep(_ saved: SavedState) {
      parts = saved.bytes
      changedPages += saved.pages.count
      for page in saved.pages { pages[page.owner, default: [:]][page.number] = page.bytes.isEmpty ? nil : page.bytes }
      pages = pages.filter { saved.owners.contains($0.key) }
    }

    fileprivate mutating func apply(_ transaction: StoreTransaction) {
      commits += 1
      switch transaction.state {
      case .keep: break
      case .clear: state = nil
      case .replace(let saved): keep(saved)
      }
      for (former, name) in transaction.renamed {
        for (number, row) in rows where row.sink == former {
          rows[number] = OutboxRow(number: number, sink: name, events: row.events, bytes: row.bytes)
        }
      }
      for row in transaction.rows {
        lastRow = row.number
        rows[row.number] = row
      }
      for row in transaction.removed { rows[row.number] = nil }
      deadLetters += transaction.deadLetters
    }
  }

  private struct State {
    var disk: Disk
    /// Whose pages it has as they were when it was opened.
    var owners: Set<Int64>
    var reportRoom: (@Sendable (RoomOfStore) -> Void)?
    var waiting: [(StoreTransaction, @Sendable () -> Void)] = []
    var faults: [String] = []
    var holdsReads = false
    var reads: [@Sendable () -> Void] = []
  }
  private let state: Mutex<State>
  package let identity: UInt64 = 1
  private let keys: MemorySpill?
  package var spill: (any SpillStore)? { keys }
  /// Whether commits complete at once.
  private let isImmediate: Bool

  /// - Parameter keys: Takes keys of steps; nil: it takes none.
  package init(_ disk: Disk = Disk(), isImmediate: Bool = false, keys: MemorySpill? = nil) {
    self.keys = keys
    state = Mutex(State(disk: disk, owners: Set(disk.pages.keys)))
    self.isImmediate = isImmediate
  }

  package var disk: Disk { state.withLock(\.disk) }
  /// Violations of the rules for transactions. Nothing is stored from then on, and nothing is reported as stored, so the test times out; the reason
  /// is also on standard error.
  package var faults: [String] { state.withLock(\.faults) }
  package var lastOwner: Int64 {
    state.withLock { state in
      let waiting = state.waiting.map { transaction, _ -> Int64 in
        if case .replace(let saved) = transaction.state { saved.lastOwner } else { 0 }
      }
      return max(state.disk.pages.keys.max() ?? 0, waiting.max() ?? 0, keys?.written.tops.keys.max() ?? 0)
    }
  }
  package var owners: Set<Int64> { state.withLock(\.owners) }
  package var lastRow: Int64 { state.withLock(\.disk.lastRow) }
  package var waiting: Int { state.withLock(\.waiting.count) }

  package func whenRoomChanges(_ report: @escaping @Sendable (RoomOfStore) -> Void) {
    state.withLock { $0.reportRoom = report }
  }
  /// Reports the store's room to the pipeline.
  package func has(_ room: RoomOfStore) { state.withLock(\.reportRoom)?(room) }

  package func commit(_ transaction: StoreTransaction, _ done: @escaping @Sendable () -> Void) {
    state.withLock { state in
      state.waiting.append((transaction, done))
      if case .keep = transaction.state {} else { state.owners = [] }
    }
    if isImmediate { takeOne() }
  }

  /// Completes the oldest waiting commit. `isHeard`: whether the process is notified.
  package func takeOne(isHeard: Bool = true) {
    let done = state.withLock { state -> (@Sendable () -> Void)? in
      guard !state.waiting.isEmpty else { return nil }
      let (transaction, done) = state.waiting.removeFirst()
      if let fault = state.disk.fault(of: transaction) {
        state.faults.append(fault)
        _ = "a store in memory: \(fault)\n".withCString { write(2, $0, strlen($0)) }
      }
      guard state.faults.isEmpty else { return nil }
      keys?.sync()
      state.disk.apply(transaction)
      switch transaction.state {
      case .keep: break
      case .clear: keys?.keep([])
      case .replace(let saved): keys?.keep(saved.spilled)
      }
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

  /// The disk loses its rows.
  package func loseRows() { state.withLock { $0.disk.rows = [:] } }

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
