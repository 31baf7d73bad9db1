internal import CSQLite
import Glibc
import PipelineCore

/// An error of a database.
package struct DatabaseError: Error {
  /// SQLite's extended result code.
  package var code: Int32
  /// A clause: `database or disk is full`.
  package var message: String

  /// SQLite is not installed.
  package let isMissing: Bool
  /// Whether the system call that caused the error failed for lack of room.
  private let isFullSystem: Bool

  /// - Parameter errno: The errno of the system call that caused the error; 0: none.
  package init(code: Int32, message: String, isMissing: Bool = false, errno: Int32 = 0) {
    self.code = code
    self.message = message
    self.isMissing = isMissing
    isFullSystem = errno == ENOSPC || errno == EDQUOT
  }

  /// The code of a file that is not a database.
  package static let notADatabase = SQLITE_NOTADB

  /// The file is not a database, or damaged.
  package var isDamage: Bool { [SQLITE_CORRUPT, SQLITE_NOTADB, SQLITE_FORMAT].contains(code & 0xFF) }

  /// The file system has no room.
  package var isFull: Bool { code & 0xFF == SQLITE_FULL || isFullSystem }

  /// Others have locked the file, for longer than a statement waits.
  package var isBusy: Bool { [SQLITE_BUSY, SQLITE_LOCKED].contains(code & 0xFF) }
  /// The statement was stopped, or took too long.
  package var isInterrupted: Bool { code & 0xFF == SQLITE_INTERRUPT }
  /// Only this row is refused: it violates a constraint, or one of its values is too large or of the wrong type.
  package var isOfRow: Bool {
    [SQLITE_CONSTRAINT, SQLITE_MISMATCH, SQLITE_TOOBIG, SQLITE_RANGE].contains(code & 0xFF)
  }
  /// The statement or the tables are wrong, so no row can be written.
  package var isOfStatement: Bool {
    [SQLITE_ERROR, SQLITE_SCHEMA, SQLITE_AUTH, SQLITE_PERM, SQLITE_READONLY, SQLITE_MISUSE].contains(code & 0xFF)
  }
}

/// The limits of a connection's statements; ``stop()`` from any thread.
package final class DatabaseLimits: @unchecked Sendable {
  fileprivate let pointer: UnsafeMutablePointer<rx_sqlite_limits>

  package init(busy: TimeSpan) {
    pointer = .allocate(capacity: 1)
    pointer.initialize(to: rx_sqlite_limits(stop: 0, deadline: 0, busy: busy.nanoseconds, busy_since: 0))
  }

  deinit { pointer.deallocate() }

  /// When the running statement is interrupted, on the monotonic clock. Set only by the thread that uses the
  /// connection.
  package var deadline: Int64 {
    get { pointer.pointee.deadline }
    set { pointer.pointee.deadline = newValue }
  }

  /// Ends the running statement.
  package func stop() { rx_sqlite_stop(pointer) }
}

extension Database {
  /// A name as an identifier of SQL.
  package static func quoted(_ name: String) -> String {
    "\"" + name.replacing("\"", with: "\"\"") + "\""
  }
}

/// One connection to a SQLite file. Used by one thread at a time.
package final class Database {
  package let path: String
  private let limits: DatabaseLimits?
  private let handle: OpaquePointer
  private let log = LogLength()
  /// Released when the connection is closed.
  package var companion: AnyObject?

  /// `rxds` in the header of a file says that it is a store of a pipeline's state.
  package static let storeApplicationID: Int64 = 0x7278_6473

  package enum Mode {
    /// Creates the file if there is none, and has exclusive use of it.
    case writing
    /// For a file that a connection of mode `writing` may have open. The caller keeps that connection from making
    /// checkpoints meanwhile.
    case readingBeside
    /// For a file that no process writes to: leaves the files alongside it unchanged.
    case quietReading
    /// A database that belongs to others; created only if `creates` is true.
    case foreignReading
    case foreignWriting(creates: Bool)
  }

  package init(_ path: String, _ mode: Mode, limits: DatabaseLimits? = nil) throws(DatabaseError) {
    self.limits = limits
    var why = [CChar](repeating: 0, count: 256)
    guard rx_sqlite_load(&why, why.count) else {
      let reason = String(decoding: why.prefix { $0 != 0 }.map { UInt8(bitPattern: $0) }, as: UTF8.self)
      throw DatabaseError(code: SQLITE_MISUSE, message: "libsqlite3 cannot be loaded: \(reason)", isMissing: true)
    }
    var opened: OpaquePointer?
    let code =
      switch mode {
      case .writing: rx_sqlite_open(path, log.pages, &opened)
      case .readingBeside: rx_sqlite_open_beside(path, &opened)
      case .quietReading: rx_sqlite_open_quiet(path, &opened)
      case .foreignReading: rx_sqlite_open_foreign(path, false, false, &opened)
      case .foreignWriting(let creates): rx_sqlite_open_foreign(path, true, creates, &opened)
      }
    guard let opened else { throw DatabaseError(code: code, message: Self.name(code)) }
    handle = opened
    self.path = path
    if code != SQLITE_OK { throw error(code) }
    if let limits { rx_sqlite_limit(opened, limits.pointer) }
  }

  deinit { _ = rx_sqlite_close(handle) }

  /// A number at a fixed address, to which the C shim writes.
  private final class LogLength {
    let pages = UnsafeMutablePointer<Int32>.allocate(capacity: 1)
    init() { pages.initialize(to: 0) }
    deinit { pages.deallocate() }
  }

  private static func name(_ code: Int32) -> String { String(cString: rx_sqlite_name(code)) }

  fileprivate func error(_ code: Int32) -> DatabaseError {
    var message = String(cString: rx_sqlite_message(handle))
    let number = rx_sqlite_errno(handle)
    let isOfSystem = [SQLITE_IOERR, SQLITE_CANTOPEN].contains(code & 0xFF)
    if isOfSystem, number != 0, let text = strerror(number) {
      message += ": \(String(cString: text))"
    }
    return DatabaseError(code: code, message: message, errno: isOfSystem ? number : 0)
  }

  package func execute(_ sql: String) throws(DatabaseError) {
    let code = rx_sqlite_exec(handle, sql)
    if code != SQLITE_OK { throw error(code) }
  }

  package func prepare(_ sql: String) throws(DatabaseError) -> Statement {
    var statement: OpaquePointer?
    let code = rx_sqlite_prepare(handle, sql, &statement)
    guard code == SQLITE_OK, let statement else { throw error(code) }
    return Statement(statement, self)
  }

  /// Compiles a text that must be one statement; nil: it has several, or none.
  package func prepareOne(_ sql: String) throws(DatabaseError) -> Statement? {
    var statement: OpaquePointer?
    var hasMore = false
    let code = rx_sqlite_prepare_one(handle, sql, &statement, &hasMore)
    guard code == SQLITE_OK else { throw error(code) }
    guard let statement else { return nil }
    let made = Statement(statement, self)
    return hasMore ? nil : made
  }

  /// Whether the file is the store of a pipeline's state, which no component may read or write.
  package func isStore() throws(DatabaseError) -> Bool {
    try number("PRAGMA application_id") == Self.storeApplicationID
  }

  /// The first column of the first row; nil: there is no row, or it is NULL.
  package func number(_ sql: String) throws(DatabaseError) -> Int64? {
    let statement = try prepare(sql)
    guard try statement.step(), !statement.isNull(0) else { return nil }
    return statement.number(0)
  }

  package func text(_ sql: String) throws(DatabaseError) -> String? {
    let statement = try prepare(sql)
    return try statement.step() ? statement.text(0) : nil
  }

  /// The number of rows that the last statement changed.
  package var changes: Int { Int(rx_sqlite_changes(handle)) }

  package var isInTransaction: Bool { rx_sqlite_in_transaction(handle) }

  /// Leaves the write-ahead log as it is when the connection is closed.
  package func keepLogAtEnd() { rx_sqlite_keep_log(handle) }

  /// How many pages the log had after the last commit. Only for a database of which this connection has exclusive use.
  package var logPages: Int { Int(log.pages.pointee) }

  /// Moves the log into the file; returns whether all of it was moved, in which case the next commit starts the log
  /// from the beginning.
  package func checkpoint() throws(DatabaseError) -> Bool {
    var isWhole = false
    let code = rx_sqlite_checkpoint(handle, &isWhole)
    if code != SQLITE_OK { throw error(code) }
    if isWhole { log.pages.pointee = 0 }
    return isWhole
  }

  /// Moves everything from the log into the file, and empties the log.
  package func truncateLog() throws(DatabaseError) {
    let code = rx_sqlite_truncate_log(handle)
    if code != SQLITE_OK { throw error(code) }
  }
}

/// A compiled statement. Columns count from 0, parameters from 1.
package final class Statement {
  private let handle: OpaquePointer
  // Keeps the connection open.
  private let database: Database

  fileprivate init(_ handle: OpaquePointer, _ database: Database) {
    self.handle = handle
    self.database = database
  }

  deinit { rx_sqlite_finalize(handle) }

  /// Binds a number.
  package func bind(_ index: Int32, _ number: Int64) { _ = rx_sqlite_bind_int(handle, index, number) }

  /// Binds a text, which is copied.
  package func bind(_ index: Int32, _ text: String) {
    var text = text
    text.withUTF8 { bytes in
      bytes.withMemoryRebound(to: CChar.self) { _ = rx_sqlite_bind_text(handle, index, $0.baseAddress, $0.count) }
    }
  }

  /// Binds bytes without copying them; they must stay valid until the statement is reset.
  package func bind(_ index: Int32, _ bytes: UnsafeRawBufferPointer) {
    _ = rx_sqlite_bind_bytes(handle, index, bytes.baseAddress, bytes.count)
  }

  /// Whether there is a row.
  package func step() throws(DatabaseError) -> Bool {
    switch rx_sqlite_step(handle) {
    case SQLITE_ROW: return true
    case SQLITE_DONE: return false
    case let code: throw database.error(code)
    }
  }

  package func reset() { _ = rx_sqlite_reset(handle) }

  /// Runs a statement that returns no rows, and resets it for new values.
  package func run() throws(DatabaseError) {
    defer { reset() }
    _ = try step()
  }

  package func isNull(_ column: Int32) -> Bool { rx_sqlite_is_null(handle, column) }
  package func number(_ column: Int32) -> Int64 { rx_sqlite_int(handle, column) }
  package func text(_ column: Int32) -> String { String(decoding: bytes(column), as: UTF8.self) }
  /// The bytes of a column, valid until the next step.
  package func bytes(_ column: Int32) -> UnsafeRawBufferPointer {
    var count = 0
    let start = rx_sqlite_bytes(handle, column, &count)
    return UnsafeRawBufferPointer(start: start, count: start == nil ? 0 : count)
  }

  // MARK: Values

  package var columnNames: [String] {
    (0..<rx_sqlite_columns(handle)).map { rx_sqlite_column_name(handle, $0).map { String(cString: $0) } ?? "" }
  }

  /// Whether it changes nothing.
  package var onlyReads: Bool { rx_sqlite_only_reads(handle) }

  /// The names of the parameters, in order, without their first character; nil for a parameter without a name.
  package var parameterNames: [String?] {
    (1..<max(1, rx_sqlite_parameters(handle) + 1)).map { index in
      rx_sqlite_parameter_name(handle, index).map { String(String(cString: $0).dropFirst()) }
    }
  }

  package func bind(_ index: Int32, _ value: DatabaseValue) {
    switch value {
    case .null: _ = rx_sqlite_bind_null(handle, index)
    case .int(let number): _ = rx_sqlite_bind_int(handle, index, number)
    case .real(let number): _ = rx_sqlite_bind_double(handle, index, number)
    case .text(let bytes):
      bytes.withUnsafeBytes {
        _ = rx_sqlite_bind_text(handle, index, $0.baseAddress?.assumingMemoryBound(to: CChar.self), $0.count)
      }
    case .blob(let bytes): bytes.withUnsafeBytes { _ = rx_sqlite_bind_copy(handle, index, $0.baseAddress, $0.count) }
    }
  }

  package func value(_ column: Int32) -> DatabaseValue {
    switch rx_sqlite_type(handle, column) {
    case SQLITE_INTEGER: .int(rx_sqlite_int(handle, column))
    case SQLITE_FLOAT: .real(rx_sqlite_double(handle, column))
    case SQLITE_TEXT: .text(Array(bytes(column)))
    case SQLITE_BLOB: .blob(Array(bytes(column)))
    default: .null
    }
  }
}
