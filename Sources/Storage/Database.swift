import CSQLite
import Glibc
import PipelineCore

/// What went wrong in a database.
struct DatabaseError: Error {
  /// SQLite's extended result code.
  var code: Int32
  /// A clause: `database or disk is full`.
  var message: String

  /// The file is no database, or damaged.
  var isDamage: Bool { [SQLITE_CORRUPT, SQLITE_NOTADB, SQLITE_FORMAT].contains(code & 0xFF) }
}

/// One connection to a SQLite file. Used by one thread at a time.
final class Database {
  let path: String
  private let handle: OpaquePointer

  enum Mode {
    /// Creates the file if there is none.
    case writing
    case reading
    /// For a file that no process writes to: changes nothing beside it.
    case quietReading
  }

  convenience init(_ path: String, writable: Bool) throws(DatabaseError) {
    try self.init(path, writable ? .writing : .reading)
  }

  init(_ path: String, _ mode: Mode) throws(DatabaseError) {
    var why = [CChar](repeating: 0, count: 256)
    guard rx_sqlite_load(&why, why.count) else {
      let reason = String(decoding: why.prefix { $0 != 0 }.map { UInt8(bitPattern: $0) }, as: UTF8.self)
      throw DatabaseError(code: SQLITE_MISUSE, message: "libsqlite3 cannot be loaded: \(reason)")
    }
    var opened: OpaquePointer?
    let code =
      mode == .quietReading ? rx_sqlite_open_quiet(path, &opened) : rx_sqlite_open(path, mode == .writing, &opened)
    guard let opened else { throw DatabaseError(code: code, message: Self.name(code)) }
    handle = opened
    self.path = path
    if code != SQLITE_OK { throw error(code) }
  }

  deinit { _ = rx_sqlite_close(handle) }

  private static func name(_ code: Int32) -> String { String(cString: rx_sqlite_name(code)) }

  fileprivate func error(_ code: Int32) -> DatabaseError {
    var message = String(cString: rx_sqlite_message(handle))
    let number = rx_sqlite_errno(handle)
    if number != 0, [SQLITE_IOERR, SQLITE_CANTOPEN].contains(code & 0xFF), let text = strerror(number) {
      message += ": \(String(cString: text))"
    }
    return DatabaseError(code: code, message: message)
  }

  func execute(_ sql: String) throws(DatabaseError) {
    let code = rx_sqlite_exec(handle, sql)
    if code != SQLITE_OK { throw error(code) }
  }

  func prepare(_ sql: String) throws(DatabaseError) -> Statement {
    var statement: OpaquePointer?
    let code = rx_sqlite_prepare(handle, sql, &statement)
    guard code == SQLITE_OK, let statement else { throw error(code) }
    return Statement(statement, self)
  }

  /// The first column of the first row; nil: there is no row, or it is NULL.
  func number(_ sql: String) throws(DatabaseError) -> Int64? {
    let statement = try prepare(sql)
    guard try statement.step(), !statement.isNull(0) else { return nil }
    return statement.number(0)
  }

  func text(_ sql: String) throws(DatabaseError) -> String? {
    let statement = try prepare(sql)
    return try statement.step() ? statement.text(0) : nil
  }

  /// The number of rows that the last statement changed.
  var changes: Int { Int(rx_sqlite_changes(handle)) }

  var isInTransaction: Bool { rx_sqlite_in_transaction(handle) }

  /// Moves everything from the log into the file, and empties the log.
  func truncateLog() throws(DatabaseError) {
    let code = rx_sqlite_truncate_log(handle)
    if code != SQLITE_OK { throw error(code) }
  }
}

/// A compiled statement. Columns count from 0, parameters from 1.
final class Statement {
  private let handle: OpaquePointer
  // Keeps the connection open.
  private let database: Database

  fileprivate init(_ handle: OpaquePointer, _ database: Database) {
    self.handle = handle
    self.database = database
  }

  deinit { rx_sqlite_finalize(handle) }

  /// Binds a number.
  func bind(_ index: Int32, _ number: Int64) { _ = rx_sqlite_bind_int(handle, index, number) }

  /// Binds a text, which is copied.
  func bind(_ index: Int32, _ text: String) {
    var text = text
    text.withUTF8 { bytes in
      bytes.withMemoryRebound(to: CChar.self) { _ = rx_sqlite_bind_text(handle, index, $0.baseAddress, $0.count) }
    }
  }

  /// Binds bytes, which must stay until the statement is reset.
  func bind(_ index: Int32, _ bytes: UnsafeRawBufferPointer) {
    _ = rx_sqlite_bind_bytes(handle, index, bytes.baseAddress, bytes.count)
  }

  /// Whether there is a row.
  func step() throws(DatabaseError) -> Bool {
    switch rx_sqlite_step(handle) {
    case SQLITE_ROW: return true
    case SQLITE_DONE: return false
    case let code: throw database.error(code)
    }
  }

  func reset() { _ = rx_sqlite_reset(handle) }

  /// Runs a statement without rows, so that it can be bound anew.
  func run() throws(DatabaseError) {
    defer { reset() }
    _ = try step()
  }

  func isNull(_ column: Int32) -> Bool { rx_sqlite_is_null(handle, column) }
  func number(_ column: Int32) -> Int64 { rx_sqlite_int(handle, column) }
  func text(_ column: Int32) -> String { String(decoding: bytes(column), as: UTF8.self) }
  /// Valid until the next step.
  func bytes(_ column: Int32) -> UnsafeRawBufferPointer {
    var count = 0
    let start = rx_sqlite_bytes(handle, column, &count)
    return UnsafeRawBufferPointer(start: start, count: start == nil ? 0 : count)
  }
}
