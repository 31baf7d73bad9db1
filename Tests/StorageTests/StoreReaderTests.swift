import Foundation
import PipelineCore
import PipelineHost
import PipelineTestSupport
import Testing
import Transport

@testable import Storage

/// Reads a store while others write to it, and changes one that is not in use.
@Suite struct StoreReaderTests {
  private let folder = Scratch()
  private var path: String { folder("a.db") }

  private func open() throws -> DiskStore { try DiskStore(path) { _, _ in } }

  /// Commits and waits until the commit is on disk.
  private func commit(_ store: DiskStore, _ change: (inout StoreTransaction) -> Void) {
    var transaction = StoreTransaction()
    change(&transaction)
    let done = DispatchSemaphore(value: 0)
    store.commit(transaction) { done.signal() }
    done.wait()
  }

  private func fill(_ store: DiskStore) {
    commit(store) {
      $0.state = .replace(SavedState([1, 2, 3]))
      $0.rows = [
        OutboxRow(number: 1, sink: "out", events: 2, bytes: [9]),
        OutboxRow(number: 2, sink: "web", events: 3, bytes: [8, 8]),
      ]
      $0.deadLetters = [
        StoredDeadLetter(time: 10, code: "RX504", step: "out http", document: Array("{}".utf8)),
        StoredDeadLetter(time: 20, code: "RX503", step: "n/1 map", document: Array("{\"a\":1}".utf8)),
        StoredDeadLetter(time: 30, code: "RX504", step: "out http", document: Array("{\"a\":2}".utf8)),
      ]
    }
  }

  private func expectAll(_ reader: StoreReader) throws {
    #expect(try reader.state() == [1, 2, 3])
    #expect(try reader.stateBytes() == 3)
    #expect(try reader.backlogs()["out"]?.events == 2)
    #expect(try reader.backlogs()["web"]?.bytes == 2)
    #expect(
      try reader.letterCounts() == [
        DeadLetterCount(step: "out http", code: "RX504", count: 2, first: 10, last: 30),
        DeadLetterCount(step: "n/1 map", code: "RX503", count: 1, first: 20, last: 20),
      ])
    var times: [Int64] = []
    #expect(
      try reader.letters { letter in
        times.append(letter.letter.time)
        return times.count < 2
      } == 0)
    #expect(times == [10, 20])
    let contents = try reader.contents()
    #expect(contents.rows.map(\.number) == [1, 2] && contents.deadLetters.count == 3 && contents.lastRow == 2)
  }

  /// The names that `ls` would show, with times.
  private func names() throws -> [String] {
    try FileManager.default.contentsOfDirectory(atPath: folder.path).sorted().map { name in
      let about = try FileManager.default.attributesOfItem(atPath: folder(name))
      return "\(name) \(about[.size] ?? "") \(about[.modificationDate] ?? "")"
    }
  }

  @Test func readsAClosedStoreWithoutATrace() throws {
    let store = try open()
    fill(store)
    #expect(store.close(within: .seconds(30)))
    let before = try names()
    #expect(before.count == 1)
    try expectAll(try StoreReader(path))
    #expect(try names() == before)
  }

  @Test func readsBesideAWriter() throws {
    let store = try open()
    fill(store)
    let reader = try StoreReader(path)
    try expectAll(reader)
    // A reader returns a consistent snapshot.
    commit(store) { $0.state = .replace(SavedState([4])) }
    #expect(try reader.state() == [1, 2, 3])
    #expect(try StoreReader(path).state() == [4])
    #expect(store.close(within: .seconds(30)))
  }

  @Test func readsWhatAKilledProcessLeft() throws {
    let store = try open()
    fill(store)
    for name in ["a.db", "a.db-wal"] {
      try FileManager.default.copyItem(atPath: folder(name), toPath: folder("copy" + name.dropFirst()))
    }
    try expectAll(try StoreReader(folder("copy.db")))
    #expect(store.close(within: .seconds(30)))
  }

  private func refusal(_ body: () throws -> Void) -> String {
    do { try body() } catch { return (error as? StoreRefusal)?.message ?? "\(error)" }
    return ""
  }

  @Test func refusesWhatIsNoStore() throws {
    #expect(refusal { _ = try StoreReader(path) } == "there is no store \(path)")
    #expect(!FileManager.default.fileExists(atPath: path))
    folder.append("no database at all" + String(repeating: "x", count: 4096), to: "a.db")
    #expect(refusal { _ = try StoreReader(path) } == "\(path) cannot be read: it is not a store of rxd")
    do {
      let database = try Database(folder("other.db"), .writing)
      try database.execute("CREATE TABLE t(a)")
    }
    #expect(refusal { _ = try StoreReader(folder("other.db")) }.hasSuffix("it is not a store of rxd"))
  }

  @Test func refusesANewerFormat() throws {
    #expect(try open().close(within: .seconds(30)))
    do {
      let database = try Database(path, .writing)
      try database.execute("PRAGMA user_version = 99")
    }
    #expect(refusal { _ = try StoreReader(path) }.contains("its format is 99"))
  }

  @Test func findsDamage() throws {
    let store = try open()
    fill(store)
    #expect(store.close(within: .seconds(30)))
    do {
      let database = try Database(path, .writing)
      try database.execute(
        "UPDATE state SET body = x'010204'; UPDATE outbox SET body = x'07' WHERE number = 1; "
          + "UPDATE deadletter SET document = x'7b' WHERE number = 2")
    }
    let reader = try StoreReader(path)
    #expect(refusal { _ = try reader.state() }.contains("part 0 of the state is damaged"))
    var rows: [Int64] = []
    #expect(
      try reader.rows { row in
        rows.append(row.number)
        return true
      } == 1)
    #expect(rows == [2])
    #expect(try reader.letters { _ in true } == 1)
    #expect(refusal { _ = try reader.contents() }.contains("damaged"))
  }

  // MARK: Changing

  @Test func anEditorChangesPartsOfAStore() throws {
    let store = try open()
    fill(store)
    #expect(store.close(within: .seconds(30)))
    let editor = try StoreEditor(path)
    #expect(editor.lastRow == 2)
    try editor.removeLetters([1, 3], adding: [OutboxRow(number: 3, sink: "out", events: 1, bytes: [7])])
    try editor.removeRows(of: "web")
    try editor.replaceState(nil)
    try editor.close()
    let reader = try StoreReader(path)
    #expect(try reader.state() == nil)
    #expect(try reader.backlogs().mapValues(\.events) == ["out": 3])
    #expect(try reader.letterNumbers() == [2])
    #expect(try reader.lastRow() == 3)
  }

  @Test func aStoreMovesWithAllThatItHas() throws {
    let store = try open()
    fill(store)
    let identity = store.identity
    #expect(store.close(within: .seconds(30)))
    let contents = try StoreReader(path).contents()
    // The other store has used numbers that are not used again.
    let other = try DiskStore(folder("b.db")) { _, _ in }
    commit(other) { $0.rows = [OutboxRow(number: 40, sink: "old", events: 1, bytes: [1])] }
    #expect(other.close(within: .seconds(30)))
    let editor = try StoreEditor(folder("b.db"))
    try editor.replaceAll(with: contents)
    try editor.close()
    let moved = try StoreReader(folder("b.db"))
    try #expect(moved.identity() == identity)
    #expect(try moved.lastRow() == 40)
    let now = try moved.contents()
    #expect(now.rows.map(\.sink) == ["out", "web"] && now.rows.map(\.bytes) == [[9], [8, 8]])
    #expect(now.state == [1, 2, 3] && now.deadLetters.map(\.time) == [10, 20, 30])
  }
}
