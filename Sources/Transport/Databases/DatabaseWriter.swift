import Glibc
import PipelineCore

/// Writes rows into a table of a SQLite database, with one transaction for each group of rows. Used by one thread;
/// ``stop()`` may be called on any.
package final class DatabaseWriter: @unchecked Sendable {
  package struct Options: Sendable {
    package var path = ""
    /// Has a parameter for each value of a row: `?1`, `?2` and so on.
    package var sql = ""
    /// Deletes a row, by the values of its key; nil: rows are never deleted.
    package var deletion: String?
    /// Statements that create the tables; nil: the file and its tables must exist.
    package var create: String?
    package var busyTimeout = TimeSpan.seconds(5)
    package init() {}
  }

  /// A row to be written, or one to be deleted.
  package struct Row: Sendable {
    /// The values of the row; for a deletion, those of its key.
    package var values: [DatabaseValue]
    package var isDeletion: Bool
    package init(_ values: [DatabaseValue], isDeletion: Bool = false) {
      self.values = values
      self.isDeletion = isDeletion
    }
  }

  /// The outcome of a group.
  package enum Outcome: Sendable {
    /// The index of each refused row, in order, and why. All other rows are on the disk.
    case committed(refused: [(row: Int, reason: String)])
    /// Nothing has been written; a later attempt may succeed.
    case later(String)
    /// Nothing can be written, and another attempt would fail, too.
    case impossible(String)
  }

  private let options: Options
  private let limits: DatabaseLimits
  private var database: Database?
  private var statement: Statement?
  private var deletion: Statement?

  package init(_ options: Options) {
    self.options = options
    limits = DatabaseLimits(busy: options.busyTimeout)
  }

  /// Interrupts the running statement and any wait for a lock.
  package func stop() { limits.stop() }

  /// Opens the database if it is not open. Returns nil on success.
  package func open() -> Outcome? {
    guard database == nil else { return nil }
    do throws(DatabaseError) {
      let database = try Database(options.path, .foreignWriting(creates: options.create != nil), limits: limits)
      if try database.isStore() {
        return .impossible("\(options.path) is the state of a pipeline of rxd, which no sink may write")
      }
      // With FULL, a commit returns only when it is on the disk.
      try database.execute("PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON")
      if let create = options.create { try database.execute(create) }
      guard let statement = try database.prepareOne(options.sql) else {
        return .impossible("'\(options.sql)' is not a single statement")
      }
      deletion = try options.deletion.flatMap { sql throws(DatabaseError) in try database.prepareOne(sql) }
      (self.database, self.statement) = (database, statement)
      return nil
    } catch {
      return outcome(of: error)
    }
  }

  private func outcome(of error: DatabaseError) -> Outcome {
    let message = "\(options.path): \(error.message)"
    // A missing file may appear, and a full disk may get room; a wrong statement stays wrong, and a file that is not a
    // database remains one that is not.
    return error.isOfStatement || error.isDamage || error.isMissing || error.isOfRow
      ? .impossible(message) : .later(message)
  }

  package func close() {
    statement = nil
    deletion = nil
    database = nil
  }

  package func write(_ rows: [Row]) -> Outcome {
    if let fault = open() { return fault }
    var refused: [(row: Int, reason: String)] = []
    do throws(DatabaseError) {
      // A constraint that is checked at the end of the transaction, or that aborts it, does not say which row violates
      // it.
      if try !writeTogether(rows, &refused) {
        refused = []
        for index in rows.indices { try writeAlone(rows[index], index, &refused) }
      }
      return .committed(refused: refused)
    } catch {
      if let database, database.isInTransaction { try? database.execute("ROLLBACK") }
      // The next attempt opens the file again, because it may have been replaced.
      close()
      return outcome(of: error)
    }
  }

  /// False: nothing has been written, and the rows must be written one by one.
  private func writeTogether(
    _ rows: [Row], _ refused: inout [(row: Int, reason: String)]
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
    _ row: Row, _ index: Int, _ refused: inout [(row: Int, reason: String)]
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

  private func run(_ row: Row) throws(DatabaseError) {
    guard let statement = row.isDeletion ? deletion : statement else { return }
    for (index, value) in row.values.enumerated() { statement.bind(Int32(index + 1), value) }
    try statement.run()
  }
}
