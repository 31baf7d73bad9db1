import Foundation
import PipelineCore
import PipelineHost
import PipelineTestSupport
import Synchronization
import Testing
import Transport

@testable import Storage

/// The SQLite store of a pipeline.
@Suite struct DiskStoreTests {
  private let folder = Scratch()
  private var path: String { folder("a.db") }
  private let lines = Lines()

  private func open() throws -> DiskStore {
    let lines = lines
    return try DiskStore(path) { level, message in lines.add("\(level): \(message)") }
  }

  /// Commits and waits until the commit is on disk.
  private func commit(_ store: DiskStore, _ change: (inout StoreTransaction) -> Void) {
    var transaction = StoreTransaction()
    change(&transaction)
    let done = DispatchSemaphore(value: 0)
    store.commit(transaction) { done.signal() }
    done.wait()
  }

  private func rows(_ store: DiskStore, of sink: String, after number: Int64 = 0, bytes: Int = 1 << 20) -> [Int64] {
    let found = Box<[OutboxRow]>([])
    let done = DispatchSemaphore(value: 0)
    store.read(rowsOf: sink, after: number, bytes: bytes) {
      found.value = $0
      done.signal()
    }
    done.wait()
    return found.value.map(\.number)
  }

  private func row(_ number: Int64, _ sink: String = "out", _ bytes: [UInt8] = [1, 2, 3]) -> OutboxRow {
    OutboxRow(number: number, sink: sink, events: 2, bytes: bytes)
  }

  @Test func keepsStateAndRows() throws {
    var store = try open()
    #expect(store.savedState == nil)
    let identity = store.identity
    commit(store) {
      $0.state = .replace(SavedState([1, 2, 3, 4], ends: [1, 3]))
      $0.rows = [row(1), row(2, "other"), row(3)]
    }
    #expect(store.close(within: .seconds(30)))
    store = try open()
    #expect(store.savedState == [1, 2, 3, 4])
    #expect(store.identity == identity && store.lastRow == 3)
    #expect(rows(store, of: "out") == [1, 3] && rows(store, of: "other") == [2])
    #expect(rows(store, of: "out", after: 1) == [3] && rows(store, of: "out", bytes: 1) == [1])
    #expect(store.backlogs["out"]?.events == 4 && store.backlogs["out"]?.bytes == 6)
    commit(store) {
      $0.state = .clear
      $0.removed = [RemovedRow(number: 1, sink: "out", events: 2, size: 3)]
    }
    #expect(store.backlogs["out"]?.rows == 1)
    #expect(store.close(within: .seconds(30)))
    store = try open()
    #expect(store.savedState == nil && rows(store, of: "out") == [3])
    #expect(lines.all.isEmpty)
  }

  /// A sink is renamed: its rows are read under the new name immediately, whatever waits to be written, and after a
  /// restart.
  @Test func rowsGetAnotherName() throws {
    var store = try open()
    commit(store) { $0.rows = [row(1, "old"), row(2, "new"), row(3, "old"), row(4, "other")] }
    store.giveRows(of: "old", to: "new")
    #expect(rows(store, of: "new") == [1, 2, 3])
    let backlog = try #require(store.backlogs["new"])
    #expect(store.backlogs["old"] == nil && backlog.rows == 3 && backlog.first == 1 && backlog.last == 3)
    commit(store) { $0.removed = [RemovedRow(number: 1, sink: "new", events: 2, size: 3)] }
    #expect(store.close(within: .seconds(30)))
    store = try open()
    #expect(rows(store, of: "new") == [2, 3] && rows(store, of: "old") == [] && rows(store, of: "other") == [4])
    #expect(store.backlogs["new"]?.events == 4)
    #expect(lines.all.isEmpty)
  }

  private func page(_ owner: Int64, _ number: Int64, _ bytes: [UInt8]) -> StatePage {
    StatePage(owner: owner, number: number, bytes: bytes)
  }

  /// A state of these bytes and pages, as the engine reads it.
  private func whole(_ bytes: [UInt8], _ pages: [StatePage]) -> [UInt8] {
    var state = bytes
    for page in pages { page.bytes.withUnsafeBytes { StatePage.append(page.owner, page.number, $0, to: &state) } }
    return state
  }

  /// Pages change separately, belong to owners, and are removed with them.
  @Test func keepsPages() throws {
    func state(_ bytes: [UInt8], _ pages: [StatePage], of owners: Set<Int64>) -> StoreTransaction.StateChange {
      var state = SavedState(bytes)
      (state.pages, state.owners) = (pages, owners)
      return .replace(state)
    }
    func version() throws -> Int64? { try Database(path, .writing).number("PRAGMA user_version") }
    var store = try open()
    #expect(store.lastOwner == 0)
    commit(store) { $0.state = .replace(SavedState([1])) }
    #expect(store.close(within: .seconds(30)))
    #expect(try version() == 1, "earlier versions can read a store without pages")
    store = try open()
    commit(store) { $0.state = state([1, 2], [page(1, 0, [5]), page(1, 7, [6, 6]), page(2, 0, [7])], of: [1, 2]) }
    commit(store) { $0.state = state([1, 3], [page(1, 7, [8]), page(2, 0, []), page(2, 1, [9])], of: [1, 2]) }
    // The next run in this process must not reuse the owners of this one, from whose state it may continue.
    #expect(store.lastOwner == 2)
    #expect(store.close(within: .seconds(30)))
    #expect(try version() == 2, "earlier versions must not go on from a part of the state")
    store = try open()
    #expect(store.savedState == whole([1, 3], [page(1, 0, [5]), page(1, 7, [8]), page(2, 1, [9])]))
    #expect(store.lastOwner == 2)
    // The state of another run replaces all earlier state.
    commit(store) { $0.state = state([4], [page(3, 0, [1])], of: [3]) }
    #expect(try StoreReader(path).state() == whole([4], [page(3, 0, [1])]))
    // A whole state, such as that of a stop, has no pages.
    commit(store) { $0.state = .replace(SavedState(whole([4], [page(3, 0, [1])]))) }
    #expect(store.close(within: .seconds(30)))
    store = try open()
    #expect(store.savedState == whole([4], [page(3, 0, [1])]) && store.lastOwner == 0)
    commit(store) { $0.state = state([4], [page(1, 0, [1])], of: [1]) }
    commit(store) { $0.state = .clear }
    #expect(store.close(within: .seconds(30)))
    store = try open()
    #expect(store.savedState == nil && store.lastOwner == 0 && lines.all.isEmpty)
  }

  /// A page whose bytes have changed is detected, and the state is refused with it.
  @Test func damagedPagesAreFound() throws {
    var store = try open()
    commit(store) {
      var state = SavedState([1, 2])
      (state.pages, state.owners) = ([page(1, 0, [5]), page(1, 1, [6])], [1])
      $0.state = .replace(state)
      $0.rows = [row(1)]
    }
    #expect(store.close(within: .seconds(30)))
    do {
      let database = try Database(path, .writing)
      try database.execute("UPDATE page SET body = x'07' WHERE id = \(1 << 32 | 1)")
    }
    store = try open()
    #expect(store.savedState == nil && rows(store, of: "out") == [1])
    #expect(lines.all.contains { $0.contains("page 1 of owner 1 of the state is damaged") }, "\(lines.all)")
  }

  /// A store that is removed or replaced while it is open is written again from the open file, and that is reported.
  @Test(arguments: [false, true]) func keepsWhatIsRemoved(_ isReplaced: Bool) throws {
    var store = try open()
    let identity = store.identity
    commit(store) {
      $0.state = .replace(SavedState([1, 2, 3, 4], ends: [1, 3]))
      $0.rows = [row(1), row(2)]
    }
    unlink(path)
    if isReplaced { folder.append("another file", to: "a.db") }
    commit(store) { $0.rows = [row(3)] }
    #expect(lines.all.count == 1 && lines.all[0].contains(isReplaced ? "was replaced" : "was removed"), "\(lines.all)")
    commit(store) { $0.removed = [RemovedRow(number: 1, sink: "out", events: 2, size: 3)] }
    #expect(store.close(within: .seconds(30)))
    store = try open()
    #expect(store.savedState == [1, 2, 3, 4] && store.identity == identity && rows(store, of: "out") == [2, 3])
    #expect(lines.all.count == 1)
    if isReplaced { #expect(folder.read("a.db.replaced-1") == "another file") }
    let names = try FileManager.default.contentsOfDirectory(atPath: folder.path)
    #expect(Set(names).isSubset(of: ["a.db", "a.db-wal", "a.db-shm", "a.db.replaced-1"]), "\(names)")
  }

  /// Numbers of removed rows are not used again: readers recognize repeats by them.
  @Test func numbersAreNotUsedTwice() throws {
    var store = try open()
    commit(store) { $0.rows = [row(7)] }
    commit(store) { $0.removed = [RemovedRow(number: 7, sink: "out", events: 2, size: 3)] }
    #expect(store.close(within: .seconds(30)))
    store = try open()
    #expect(store.lastRow == 7)
  }

  /// A change of one part of a large state writes little.
  @Test func writesOnlyPartsThatChange() throws {
    let store = try open()
    var bytes = [UInt8](repeating: 7, count: 1 << 20)
    let ends = Array(stride(from: 1000, through: bytes.count, by: 1000))
    commit(store) { $0.state = .replace(SavedState(bytes, ends: ends)) }
    let before = try size(path + "-wal")
    bytes[500_000] = 8
    commit(store) { $0.state = .replace(SavedState(bytes, ends: ends)) }
    let growth = try size(path + "-wal") - before
    #expect(growth < 100_000, "the log has grown by \(growth) bytes")
    #expect(store.close(within: .seconds(30)))
    #expect(try open().savedState == bytes)
  }

  private func size(_ path: String) throws -> Int {
    try #require(FileManager.default.attributesOfItem(atPath: path)[.size] as? Int)
  }

  /// SQLite treats the first damaged page as the end of its log. A log cut off by a crash is not damaged.
  @Test(arguments: ["whole", "changed", "cut off"]) func damageOfTheLogIsReported(what: String) throws {
    let store = try open()
    for number in 1...20 { commit(store) { $0.rows = [row(Int64(number), "out", [UInt8](repeating: 7, count: 3000))] } }
    // The files after a kill, because closing a store empties its log.
    let left = folder("left.db")
    try FileManager.default.copyItem(atPath: path, toPath: left)
    var log = try Data(contentsOf: URL(fileURLWithPath: path + "-wal"))
    if what == "changed" { log[log.count / 2] ^= 1 }
    if what == "cut off" { log.removeLast(log.count / 2) }
    try log.write(to: URL(fileURLWithPath: left + "-wal"))
    let lines = lines
    let again = try DiskStore(left) { level, message in lines.add("\(level): \(message)") }
    #expect(lines.all.contains { $0.contains("is damaged after") } == (what == "changed"), "\(lines.all)")
    let rows = again.backlogs["out"]?.rows ?? 0
    #expect(what == "whole" ? rows == 20 : rows < 20)
  }

  /// The oldest dead letters are deleted, also after a restart.
  @Test func deadLettersAreBounded() throws {
    func letters(_ range: Range<Int64>) -> StoreTransaction {
      var transaction = StoreTransaction()
      transaction.deadLetters = range.map {
        StoredDeadLetter(time: $0, code: "RX501", step: "in file", document: [UInt8](repeating: 0x20, count: 1000))
      }
      return transaction
    }
    func times(_ file: StoreFile) throws -> ClosedRange<Int64>? {
      guard let first = try file.database.number("SELECT min(time) FROM deadletter"),
        let last = try file.database.number("SELECT max(time) FROM deadletter")
      else { return nil }
      return first...last
    }
    do {
      let file = try StoreFile(path)
      try file.write([letters(0..<40)])
      #expect(try file.boundDeadLetters(to: 50_000) == 0)
      try file.write([letters(40..<60)])
      #expect(try file.boundDeadLetters(to: 50_000) == 15)
      #expect(try times(file) == 15...59)
    }
    let file = try StoreFile(path)
    try file.write([letters(60..<70)])
    #expect(try file.boundDeadLetters(to: 50_000) == 10)
    #expect(try times(file) == 25...69)
    #expect(try file.boundDeadLetters(to: 50_000) == 0)
  }

  /// Also with few commits, one right after another.
  @Test func fewLargeCommitsAreBounded() throws {
    let messages = Mutex<[String]>([])
    let store = try DiskStore(path, deadLetterBytes: 100_000) { _, message in messages.withLock { $0.append(message) } }
    for number in 0..<20 {
      var transaction = StoreTransaction()
      transaction.deadLetters = (0..<30).map {
        StoredDeadLetter(
          time: Int64(100 * number + $0), code: "RX501", step: "in file",
          document: [UInt8](repeating: 0x20, count: 1000))
      }
      store.commit(transaction) {}
    }
    #expect(store.close(within: .seconds(60)))
    let file = try StoreFile(path)
    let size = try #require(try file.database.number("SELECT total(size) FROM deadletter"))
    #expect(size > 80_000 && size <= 106_250 + 30_000, "\(size)")
    #expect(try file.database.number("SELECT max(time) FROM deadletter") == 1929, "the newest stay")
    #expect(messages.withLock { $0.contains { $0.contains("dead letters were dropped") } })
  }

  @Test func percentilesAreUpperBounds() {
    var statistics = StoreStatistics()
    #expect(statistics.percentile99 == nil)
    for _ in 0..<99 { statistics.count(1_000_000) }
    statistics.count(40_000_000)
    #expect(statistics.percentile99 == TimeSpan(nanoseconds: 1 << 20))
    for _ in 0..<9 { statistics.count(40_000_000) }
    #expect(statistics.percentile99 == TimeSpan(nanoseconds: 1 << 26))
    statistics.count(.max)
    #expect(statistics.commits == 110)
  }

  @Test func othersCannotReadIt() throws {
    let store = try open()
    commit(store) { $0.rows = [row(1)] }
    for name in [path, path + "-wal"] {
      let mode = try #require(FileManager.default.attributesOfItem(atPath: name)[.posixPermissions] as? Int)
      #expect(mode & 0o077 == 0, "\(name) has mode \(String(mode, radix: 8))")
    }
  }

  @Test func refusesOtherFiles() throws {
    folder.append(
      "no database at all, but long enough to be looked at as one; " + String(repeating: "x", count: 4096), to: "a.db")
    // The store is set aside like a damaged one, and nothing of it is lost.
    let store = try open()
    #expect(store.savedState == nil)
    #expect(lines.all.contains { $0.contains("is kept as") })
    #expect(folder.read("a.db.damaged-1").hasPrefix("no database"))
  }

  @Test func refusesNewerFormats() throws {
    #expect(try open().close(within: .seconds(30)))
    do {
      let database = try Database(path, .writing)
      try database.execute("PRAGMA user_version = 99")
    }
    #expect { _ = try open() } throws: { "\(($0 as? StoreRefusal)?.message ?? "")".contains("its format is 99") }
  }

  /// Corrupted bytes are detected, whatever they belong to; the rest is delivered.
  @Test(arguments: 0..<40) func damageIsFound(seed: Int) throws {
    var generator = SplitMix(UInt64(seed))
    var store = try open()
    let body = [UInt8](repeating: 0xAB, count: 3000)
    commit(store) {
      $0.state = .replace(SavedState([UInt8](repeating: 0xCD, count: 20_000), ends: [5000, 15_000]))
      $0.rows = (1...50).map { row($0, "out", body) }
    }
    #expect(store.close(within: .seconds(30)))
    var bytes = Array(try Data(contentsOf: URL(fileURLWithPath: path)))
    let at = Int.random(in: 0..<bytes.count - 512, using: &generator)
    for index in at..<at + Int.random(in: 1...512, using: &generator) { bytes[index] ^= 0x5A }
    try Data(bytes).write(to: URL(fileURLWithPath: path))
    do { store = try open() } catch {
      Issue.record("refused: \(error)")
      return
    }
    if let state = store.savedState { #expect(state == [UInt8](repeating: 0xCD, count: 20_000)) }
    let found = Box<[OutboxRow]>([])
    let done = DispatchSemaphore(value: 0)
    store.read(rowsOf: "out", after: 0, bytes: 1 << 30) {
      found.value = $0
      done.signal()
    }
    done.wait()
    #expect(found.value.allSatisfy { $0.bytes == body })
    #expect(found.value.count >= 25 || !lines.all.isEmpty)
    if store.savedState == nil || found.value.count < 50 { #expect(!lines.all.isEmpty, "\(found.value.count) rows") }
  }
}

final class Lines: @unchecked Sendable {
  private let lock = NSLock()
  private var texts: [String] = []
  func add(_ text: String) { lock.withLock { texts.append(text) } }
  var all: [String] { lock.withLock { texts } }
}

private final class Box<Value>: @unchecked Sendable {
  var value: Value
  init(_ value: Value) { self.value = value }
}
