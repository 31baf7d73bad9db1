import Glibc
import PipelineCore

/// Writes rows into a table of a SQLite database, a transaction for each group. Used by one thread; ``stop()`` from any.
package final class DatabaseWriter: @unchecked Sendable {
  package struct Options: Sendable {
    package var path = ""
    /// With a parameter `?1`, `?2` and so on for each value of a row.
    package var sql = ""
    /// Statements that make the tables; nil: the file and its tables must be there.
    package var create: String?
    package var busyTimeout = TimeSpan.seconds(5)
    package init() {}
  }

  /// The outcome of a group.
  package enum Outcome: Sendable {
    /// All other rows are on the disk. The index of each row that is refused, and why; in order.
    case committed(refused: [(row: Int, reason: String)])
    /// Nothing has been written; a later attempt may succeed.
    case later(String)
    /// Nothing can be written; another attempt would fail, too.
    case impossible(String)
  }

  private let options: Options
  private let limits: DatabaseLimits
  private var database: Database?
  private var statement: Statement?

  package init(_ options: Options) {
    self.options = options
    limits = DatabaseLimits(busy: options.busyTimeout)
  }

  /// Ends the running statement and waits.
  package func stop() { limits.stop() }

  /// Opens the database, unless that has been done. Nil: it is open.
  package func open() -> Outcome? {
    guard database == nil else { return nil }
    do throws(DatabaseError) {
      let database = try Database(options.path, .foreignWriting(creates: options.create != nil), limits: limits)
      if try database.isStore() {
        return .impossible("\(options.path) is the state of a pipeline of rxd, which no sink may write")
      }
      // A commit returns when it is on the disk.
      try database.execute("PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON")
      if let create = options.create { try database.execute(create) }
      guard let statement = try database.prepareOne(options.sql) else {
        return .impossible("the statement '\(options.sql)' is not one")
      }
      (self.database, self.statement) = (database, statement)
      return nil
    } catch {
      return outcome(of: error)
    }
  }

  private func outcome(of error: DatabaseError) -> Outcome {
    let message = "\(options.path): \(error.message)"
    // A file that is not there may come, as may a disk's room; wrong statements, and files that are no databases, stay so.
    return error.isOfStatement || error.isDamage || error.isMissing || error.isOfRow
      ? .impossible(message) : .later(message)
  }

  package func close() {
    statement = nil
    database = nil
  }

  package func write(_ rows: [[DatabaseValue]]) -> Outcome {
    if let fault = open() { return fault }
    var refused: [(row: Int, reason: String)] = []
    do throws(DatabaseError) {
      // A condition that is checked at the end of the transaction, or that ends it, does not name its row.
      if try !writeTogether(rows, &refused) {
        refused = []
        for index in rows.indices { try writeAlone(rows[index], index, &refused) }
      }
      return .committed(refused: refused)
    } catch {
      if let database, database.isInTransaction { try? database.execute("ROLLBACK") }
      // The next attempt opens the file anew: it may have been replaced.
      close()
      return outcome(of: error)
    }
  }

  /// False: nothing has been written, and the rows must be written one by one.
  private func writeTogether(
    _ rows: [[DatabaseValue]], _ refused: inout [(row: Int, reason: String)]
  ) throws(DatabaseError) -> Bool {
    guard let database else { return false }
    try database.execute("BEGIN IMMEDIATE")
    for (index, row) in rows.enumerated() {
      do throws(DatabaseError) {
        try run(row)
      } catch {
        guard error.isOfRow else { throw error }
        refused.append((index, error.message))
        if !database.isInTransaction { return false }
      }
    }
    do throws(DatabaseError) {
      try database.execute("COMMIT")
    } catch {
      guard error.isOfRow else { throw error }
      if database.isInTransaction { try database.execute("ROLLBACK") }
      return false
    }
    return true
  }

  private func writeAlone(
    _ row: [DatabaseValue], _ index: Int, _ refused: inout [(row: Int, reason: String)]
  ) throws(DatabaseError) {
    guard let database else { return }
    try database.execute("BEGIN IMMEDIATE")
    do throws(DatabaseError) {
      try run(row)
      try database.execute("COMMIT")
    } catch {
      if database.isInTransaction { try database.execute("ROLLBACK") }
      guard error.isOfRow else { throw error }
      refused.append((index, error.message))
    }
  }

  private func run(_ row: [DatabaseValue]) throws(DatabaseError) {
    guard let statement else { return }
    for (index, value) in row.enumerated() { statement.bind(Int32(index + 1), value) }
    try statement.run()
  }
}
