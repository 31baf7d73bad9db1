import Glibc
import PipelineCore
import Transport

/// Reads the store of a pipeline, even while a daemon has it open, and changes nothing.
///
/// A reader shows the store as it was at one moment. Must be used by one thread.
package final class StoreReader {
  package let path: String
  private let database: Database
  private let gate: ReaderGate
  /// The times of the file when it was opened, if there was no log.
  private let quiet: FileTimes?

  /// Opens the store at `path`.
  /// - Throws: ``StoreRefusal`` if there is no store, or for another program's file, a newer format, or damage.
  package init(_ path: String) throws(StoreRefusal) {
    self.path = path
    guard let times = FileTimes(path) else {
      throw StoreRefusal(errno == ENOENT ? "there is no store \(path)" : PosixError("open", path).message)
    }
    let isQuiet: Bool
    var left: (reader: AnyObject, gate: ReaderGate)?
    do throws(DatabaseError) {
      gate = try ReaderGate(path, creates: false)
      left = (gate, gate)
      guard gate.enter(within: .seconds(5)) else {
        throw DatabaseError(code: 5, message: "its log is being moved into it: try again")
      }
      // A store that was closed cleanly has no log; reading it in SQLite's usual way would create one.
      isQuiet = FileTimes(path + "-wal") == nil
      quiet = isQuiet ? times : nil
      database = try Database(path, isQuiet ? .quietReading : .readingBeside)
      database.companion = gate
      left = (database, gate)
      try database.execute("PRAGMA query_only = ON; PRAGMA cell_size_check = ON; BEGIN")
      if let refusal = try database.refusal() {
        throw DatabaseError(code: DatabaseError.notADatabase, message: refusal)
      }
    } catch {
      if let left { OpenStores.leave(left.reader, of: left.gate.fileIdentity) }
      throw StoreRefusal("\(path) cannot be read: \(Self.clause(error))")
    }
  }

  deinit {
    // The log may be moved into the file from now on. The descriptors may have to stay open.
    gate.open()
    OpenStores.leave(database, of: gate.fileIdentity)
  }

  private static func clause(_ error: DatabaseError) -> String {
    error.code == DatabaseError.notADatabase && error.message.hasPrefix("file is not")
      ? "it is not a store of rxd" : error.message
  }

  /// The refusal for an error that concerns the whole store.
  private func refusal(_ message: String) -> StoreRefusal {
    if let quiet, FileTimes(path) != quiet || FileTimes(path + "-wal") != nil {
      return StoreRefusal("\(path) has changed while it was read: try again")
    }
    return StoreRefusal(
      "\(path) cannot be read: \(message). A start of the pipeline sets a damaged store aside and takes over what can be read"
    )
  }

  private func reading<T>(_ body: () throws -> T) throws(StoreRefusal) -> T {
    do {
      return try body()
    } catch let error as DatabaseError {
      throw refusal(error.message)
    } catch let damage as StoreDamage {
      throw refusal(damage.message)
    } catch {
      throw refusal("\(error)")
    }
  }

  /// The time at which the store was last written, in nanoseconds since 1970.
  package var writtenAt: Int64 { max(FileTimes(path)?.modified ?? 0, FileTimes(path + "-wal")?.modified ?? 0) }

  package func identity() throws(StoreRefusal) -> UInt64 {
    try reading { UInt64(bitPattern: try database.meta("identity") ?? 0) }
  }

  /// The highest number that any row of the outbox has had so far.
  package func lastRow() throws(StoreRefusal) -> Int64 {
    try reading { try database.meta("last_row") ?? 0 }
  }

  /// The saved state; nil if there is none.
  package func state() throws(StoreRefusal) -> [UInt8]? { try reading { try database.state() } }

  /// The size of the saved state in bytes, without checking it; 0 if there is none.
  package func stateBytes() throws(StoreRefusal) -> Int {
    try reading {
      var bytes = try database.number("SELECT total(length(body)) FROM state") ?? 0
      if try database.hasPages { bytes += try database.number("SELECT total(length(body)) FROM page") ?? 0 }
      return Int(bytes)
    }
  }

  /// The undelivered rows of the sinks.
  package func backlogs() throws(StoreRefusal) -> [String: OutboxBacklog] { try reading { try database.backlogs() } }

  /// Calls `body` for each undamaged row of the outbox, in order, until it returns false. Returns the number of damaged
  /// rows.
  @discardableResult
  package func rows(of sink: String? = nil, _ body: (OutboxRow) -> Bool) throws(StoreRefusal) -> Int {
    try reading {
      var damaged = 0
      try database.rows(of: sink, after: .min, damaged: { _ in damaged += 1 }, body)
      return damaged
    }
  }

  /// The complete contents of the store.
  package func contents() throws(StoreRefusal) -> StoreContents {
    var contents = StoreContents(identity: try identity(), lastRow: try lastRow())
    contents.state = try state()
    var damaged = try rows { row in
      contents.rows.append(row)
      return true
    }
    // The number must never be lower than that of an existing row.
    contents.lastRow = max(contents.lastRow, contents.rows.last?.number ?? 0)
    damaged += try letters { letter in
      contents.deadLetters.append(letter.letter)
      return true
    }
    if damaged > 0 { throw refusal("\(Printable.count(damaged, "record")) are damaged") }
    return contents
  }

  /// The number of dead letters for each step and code, in the order of the first of each.
  package func letterCounts() throws(StoreRefusal) -> [DeadLetterCount] { try reading { try database.letterCounts() } }

  /// The numbers of all dead letters, including damaged ones.
  package func letterNumbers() throws(StoreRefusal) -> [Int64] {
    try reading {
      let statement = try database.prepare("SELECT number FROM deadletter ORDER BY number")
      var numbers: [Int64] = []
      while try statement.step() { numbers.append(statement.number(0)) }
      return numbers
    }
  }

  /// Calls `body` for each undamaged dead letter, the oldest first, until it returns false. Returns the number of
  /// damaged ones.
  @discardableResult
  package func letters(_ body: (NumberedDeadLetter) -> Bool) throws(StoreRefusal) -> Int {
    try reading { try database.letters(body) }
  }
}

/// Dead letters of one step and code.
package struct DeadLetterCount: Sendable, Equatable {
  package var step: String
  package var code: String
  package var count: Int
  /// The times of the first and of the last letter, in nanoseconds since 1970.
  package var first: Int64
  package var last: Int64

  package init(step: String, code: String, count: Int, first: Int64, last: Int64) {
    self.step = step
    self.code = code
    self.count = count
    self.first = first
    self.last = last
  }
}

/// A dead letter with its number in the store.
package struct NumberedDeadLetter: Sendable {
  package var number: Int64
  package var letter: StoredDeadLetter
}

extension Database {
  func letterCounts() throws(DatabaseError) -> [DeadLetterCount] {
    let statement = try prepare(
      "SELECT step, code, count(*), min(time), max(time) FROM deadletter GROUP BY step, code ORDER BY min(number)")
    var counts: [DeadLetterCount] = []
    while try statement.step() {
      counts.append(
        DeadLetterCount(
          step: statement.text(0), code: statement.text(1), count: Int(statement.number(2)),
          first: statement.number(3), last: statement.number(4)))
    }
    return counts
  }

  func letters(_ body: (NumberedDeadLetter) -> Bool) throws(DatabaseError) -> Int {
    let statement = try prepare("SELECT number, time, code, step, sum, document FROM deadletter ORDER BY number")
    var damaged = 0
    while try statement.step() {
      let document = statement.bytes(5)
      let time = statement.number(1)
      guard StoreSchema.sum(document, time) == statement.number(4) else {
        damaged += 1
        continue
      }
      let letter = StoredDeadLetter(
        time: time, code: statement.text(2), step: statement.text(3), document: Array(document))
      if !body(NumberedDeadLetter(number: statement.number(0), letter: letter)) { break }
    }
    return damaged
  }
}

/// The times that reveal whether a file has been written to.
private struct FileTimes: Equatable {
  var inode: UInt64
  var size: Int64
  /// The modification time, in nanoseconds since 1970.
  var modified: Int64

  /// Nil: there is no such file; `errno` has the reason.
  init?(_ path: String) {
    var status = stat()
    guard lstat(path, &status) == 0 else { return nil }
    inode = UInt64(status.st_ino)
    size = Int64(status.st_size)
    modified = Int64(status.st_mtim.tv_sec) * 1_000_000_000 + Int64(status.st_mtim.tv_nsec)
  }
}
