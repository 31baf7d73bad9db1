/// Reads SQLite databases: the transport implements it, tests stub it.
package protocol DatabaseReader: AnyObject, Sendable {
  /// Runs a query off the calling thread. `completion` is called exactly once, on any thread, possibly before `read`
  /// returns; it is not called if the call is cancelled first.
  func read(
    _ query: DatabaseQuery, _ completion: @escaping @Sendable (Result<DatabaseRows, DatabaseFailure>) -> Void
  ) -> any Cancellable
}

/// A value as SQLite stores it.
package enum DatabaseValue: Sendable, Equatable {
  case null
  case int(Int64)
  case real(Double)
  case text([UInt8])
  case blob([UInt8])

  /// Its approximate size in bytes.
  package var size: Int {
    switch self {
    case .null, .int, .real: 16
    case .text(let bytes), .blob(let bytes): 16 + bytes.count
    }
  }
}

/// One query.
package struct DatabaseQuery: Sendable, Equatable {
  /// The path of the database file.
  package var path: String
  /// One statement that only reads.
  package var sql: String
  /// The values of its parameters, by name without the colon.
  package var parameters: [(name: String, value: DatabaseValue)] = []
  /// The columns of the result whose values increase from row to row; empty: all rows are read, in the order of the
  /// statement.
  package var key: [String] = []
  /// Read only rows whose key is greater; nil: all rows that have a key. It has one value for each key column.
  package var after: [DatabaseValue]?
  /// The maximum number of rows; `maxBytes` limits their size. With a key, further rows are left for the next query;
  /// otherwise they are an error.
  package var maxRows = 1000
  package var maxBytes = 16 << 20
  /// The time limit, including the wait for locks.
  package var timeout = TimeSpan.seconds(30)
  /// How long to wait while others have locked the file.
  package var busyTimeout = TimeSpan.seconds(5)

  package init(_ path: String, _ sql: String) {
    self.path = path
    self.sql = sql
  }

  package static func == (a: DatabaseQuery, b: DatabaseQuery) -> Bool {
    a.path == b.path && a.sql == b.sql && a.key == b.key && a.after == b.after
      && a.parameters.elementsEqual(b.parameters) { $0.name == $1.name && $0.value == $1.value }
  }
}

/// The result of a query.
package struct DatabaseRows: Sendable, Equatable {
  package var columns: [String]
  package var rows: [[DatabaseValue]]
  /// The key of each row; empty if the query has none.
  package var keys: [[DatabaseValue]]
  /// Whether there may be more rows after the last one.
  package var hasMore: Bool

  package init(columns: [String], rows: [[DatabaseValue]], keys: [[DatabaseValue]] = [], hasMore: Bool = false) {
    self.columns = columns
    self.rows = rows
    self.keys = keys
    self.hasMore = hasMore
  }
}

/// Why a query has no result.
package struct DatabaseFailure: Error, Sendable, Equatable {
  /// The cause of a failure.
  package enum Kind: String, Sendable {
    /// The library cannot be loaded.
    case unavailable
    /// The file or the statement cannot be used; another attempt would fail as well.
    case refused
    case busy, timeout, failed
  }
  package var kind: Kind
  /// One sentence without a full stop.
  package var message: String
  package init(_ kind: Kind, _ message: String) {
    self.kind = kind
    self.message = message
  }
}

/// Refuses all databases.
final class NoDatabases: DatabaseReader {
  func read(
    _ query: DatabaseQuery, _ completion: @escaping @Sendable (Result<DatabaseRows, DatabaseFailure>) -> Void
  ) -> any Cancellable {
    completion(.failure(DatabaseFailure(.refused, "no databases are read here")))
    return Nothing()
  }

  private final class Nothing: Cancellable {
    func cancel() {}
  }
}
