import Synchronization

/// Stores one pipeline's state, outbox and dead letters on disk, across runs of the process.
///
/// A commit is one transaction: all of it is on the disk, or nothing. `Storage` implements this protocol with SQLite,
/// tests in memory.
package protocol PipelineStore: AnyObject, Sendable {
  /// Commits `transaction` after all earlier ones. `done` is called once, on any thread, when it is on the disk. If the
  /// disk fails, the store tries again; if the store is closed first, `done` is released without a call.
  func commit(_ transaction: StoreTransaction, _ done: @escaping @Sendable () -> Void)

  /// Reads outbox rows of `sink` with numbers above `number`, in order: at least one if there is any, then as many as
  /// fit in `bytes`. Rows whose bytes are damaged are reported by the store and left out. `done` is called once, on any
  /// thread.
  func read(rowsOf sink: String, after number: Int64, bytes: Int, _ done: @escaping @Sendable ([OutboxRow]) -> Void)

  /// The contents of each sink's outbox, after all finished commits.
  var backlogs: [String: OutboxBacklog] { get }

  /// The highest number that any row has had so far.
  var lastRow: Int64 { get }

  /// The highest owner of pages that it had when it was opened, or that a commit has had since; 0: there was none. A pipeline that starts again after a
  /// failure may find pages of the run before, which its own must not be mixed with.
  var lastOwner: Int64 { get }

  /// The owners of the pages that the store had when it was opened; empty once a commit changes the state.
  var owners: Set<Int64> { get }

  /// A number that is unique to this store; part of the identity of rows.
  var identity: UInt64 { get }

  /// Calls `report` now, unless there is enough room, and whenever that changes; on any thread.
  func whenRoomChanges(_ report: @escaping @Sendable (RoomOfStore) -> Void)

  /// The keys of steps that are on the disk, alongside the pages; nil: the store has none, and takes none.
  var spill: (any SpillStore)? { get }
}

extension PipelineStore {
  package var spill: (any SpillStore)? { nil }
}

/// How much room the file system of a store has.
package enum RoomOfStore: Sendable {
  case enough
  /// Only the reserve for the shutdown and for removing delivered events: the store must not receive new events.
  case reserve
  /// Not even enough for the events that the store has already received.
  case none
}

/// The changes of one commit.
package struct StoreTransaction: Sendable {
  /// The change of the saved state.
  package enum StateChange: Sendable {
    /// The state of the previous commit stays.
    case keep
    /// A new run continues from this state.
    case replace(SavedState)
    /// The pipeline has completed: a new run starts without state.
    case clear
  }

  package var state = StateChange.keep
  /// New rows, in the order of their numbers.
  package var rows: [OutboxRow] = []
  /// Rows that have been delivered or dropped.
  package var removed: [RemovedRow] = []
  package var deadLetters: [StoredDeadLetter] = []
  /// Sinks that are renamed: all rows of `former`, except those of this transaction, become rows of `name`.
  package var renamed: [(former: String, name: String)] = []

  package init() {}

  /// Whether it changes nothing.
  package var isEmpty: Bool {
    if case .keep = state { rows.isEmpty && removed.isEmpty && deadLetters.isEmpty && renamed.isEmpty } else { false }
  }
}

/// The bytes of a saved state, divided into parts of which a store writes only those that have changed.
package struct SavedState: Sendable, Equatable {
  package var bytes: [UInt8]
  /// The ends of the parts, ascending; the last is `bytes.count`.
  package var ends: [Int]

  /// Changes of the state in pages, alongside the parts; an empty page is removed.
  package var pages: [StatePage] = []
  /// The owners whose pages belong to the state; those of all others are removed.
  package var owners: Set<Int64> = []
  /// The steps that have keys on the disk, alongside the pages.
  package var spilled: [SpilledOwner] = []
  /// The highest owner of both kinds; 0: there is none.
  package var lastOwner: Int64 { max(owners.max() ?? 0, spilled.lazy.map(\.owner).max() ?? 0) }

  package init(_ bytes: [UInt8], ends: [Int] = []) {
    self.bytes = bytes
    self.ends = ends.last == bytes.count ? ends : ends + [bytes.count]
  }
}

/// A part of the state that a step keeps for many keys. A state consists of its bytes, followed by those of all pages.
package struct StatePage: Sendable, Equatable {
  /// The step, in one run of the pipeline; not used again while the store has its pages. Fits into 31 bits.
  package var owner: Int64
  /// Counts from 0; fits into 32 bits.
  package var number: Int64
  package var bytes: [UInt8]

  package init(owner: Int64, number: Int64, bytes: [UInt8]) {
    (self.owner, self.number, self.bytes) = (owner, number, bytes)
  }
}

/// Events that a sink has to deliver, committed together.
package struct OutboxRow: Sendable {
  /// Ascending within a store; never used twice.
  package var number: Int64
  package var sink: String
  package var events: Int
  package var bytes: [UInt8]

  package init(number: Int64, sink: String, events: Int, bytes: [UInt8]) {
    self.number = number
    self.sink = sink
    self.events = events
    self.bytes = bytes
  }
}

/// A row that is no longer needed.
package struct RemovedRow: Sendable {
  package var number: Int64
  package var sink: String
  package var events: Int
  /// The number of bytes that it had.
  package var size: Int

  package init(number: Int64, sink: String, events: Int, size: Int) {
    self.number = number
    self.sink = sink
    self.events = events
    self.size = size
  }
}

/// The undelivered rows of a sink.
package struct OutboxBacklog: Sendable, Equatable {
  package var rows = 0
  package var events = 0
  package var bytes = 0
  /// A lower bound of its row numbers, and the number of its last row; 0 if there is none.
  package var first: Int64 = 0
  package var last: Int64 = 0
  package init() {}

  package mutating func add(_ row: OutboxRow) {
    rows += 1
    events += row.events
    bytes += row.bytes.count
    if rows == 1 { first = row.number }
    last = row.number
  }

  /// The sum of both.
  package func adding(_ other: OutboxBacklog) -> OutboxBacklog {
    guard rows > 0, other.rows > 0 else { return rows > 0 ? self : other }
    var sum = self
    sum.rows += other.rows
    sum.events += other.events
    sum.bytes += other.bytes
    sum.first = min(first, other.first)
    sum.last = max(last, other.last)
    return sum
  }

  package mutating func remove(_ row: RemovedRow) {
    rows -= 1
    events -= row.events
    bytes -= row.size
  }
}

/// A rejected event that no signal reads.
package struct StoredDeadLetter: Sendable {
  /// Nanoseconds since 1970.
  package var time: Int64
  /// The code of the reason, such as `RX501`.
  package var code: String
  /// The label of the step that rejected the event.
  package var step: String
  /// The event and the reason as a JSON document.
  package var document: [UInt8]

  package init(time: Int64, code: String, step: String, document: [UInt8]) {
    self.time = time
    self.code = code
    self.step = step
    self.document = document
  }
}

/// Whether the store has room for events that must be stored before they are delivered. Thread-safe.
package final class StorageRoom: Sendable {
  private let full = Atomic(false)
  package var isFull: Bool { full.load(ordering: .relaxed) }
  func set(_ isFull: Bool) { full.store(isFull, ordering: .relaxed) }
}
