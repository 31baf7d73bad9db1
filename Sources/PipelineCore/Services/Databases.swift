/// Reads SQLite databases: the transport implements it, tests stub it.
package protocol DatabaseReader: AnyObject, Sendable {
  /// Runs a query off the calling thread. `completion` is called exactly once, on any thread, unless the call is cancelled before. It may be called
  /// before `read` returns.
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
  /// The file.
  package var path: String
  /// One statement that reads.
  package var sql: String
  /// The values of its parameters, by their names without the colon.
  package var parameters: [(name: String, value: DatabaseValue)] = []
  /// The columns of the result whose values grow; empty: all rows are read, in the order of the statement.
  package var key: [String] = []
  /// Only rows whose key is greater; nil: all that have a key. As many values as the key has columns.
  package var after: [DatabaseValue]?
  /// The most rows and bytes. With a key more rows are left for the next query; otherwise they are an error.
  package var maxRows = 1000
  package var maxBytes = 16 << 20
  /// How long it may take, waiting for locks included.
  package var timeout = TimeSpan.seconds(30)
  /// How long it waits for others that have locked the file.
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
  /// The key of each row, if there is one.
  package var keys: [[DatabaseValue]]
  /// There may be more rows behind the last one.
  package var hasMore: Bool

  package init(columns: [String], rows: [[DatabaseValue]], keys: [[DatabaseValue]] = [], hasMore: Bool = false) {
    self.columns = columns
    self.rows = rows
    self.keys = keys
    self.hasMore = hasMore
  }
}

/// Why there are no rows.
package struct DatabaseFailure: Error, Sendable, Equatable {
  /// The cause of a failure.
  package enum Kind: String, Sendable {
    /// The library cannot be loaded.
    case unavailable
    /// The file or the statement is not usable; another attempt would fail, too.
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
