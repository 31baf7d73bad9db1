/// Reads SQLite databases: the transport implements it, tests stub it.
public protocol DatabaseReader: AnyObject, Sendable {
  /// Runs a query off the calling thread. `completion` is called exactly once, on any thread, unless the call is cancelled before. It may be called
  /// before `read` returns.
  func read(
    _ query: DatabaseQuery, _ completion: @escaping @Sendable (Result<DatabaseRows, DatabaseFailure>) -> Void
  ) -> any Cancellable
}

/// A value as SQLite stores it.
public enum DatabaseValue: Sendable, Equatable {
  case null
  case int(Int64)
  case real(Double)
  case text([UInt8])
  case blob([UInt8])

  /// Its approximate size in bytes.
  public var size: Int {
    switch self {
    case .null, .int, .real: 16
    case .text(let bytes), .blob(let bytes): 16 + bytes.count
    }
  }
}

/// One query.
public struct DatabaseQuery: Sendable, Equatable {
  /// The file.
  public var path: String
  /// One statement that reads.
  public var sql: String
  /// The values of its parameters, by their names without the colon.
  public var parameters: [(name: String, value: DatabaseValue)] = []
  /// The columns of the result whose values grow; empty: all rows are read, in the order of the statement.
  public var key: [String] = []
  /// Only rows whose key is greater; nil: all that have a key. As many values as the key has columns.
  public var after: [DatabaseValue]?
  /// The most rows and bytes. With a key more rows are left for the next query; otherwise they are an error.
  public var maxRows = 1000
  public var maxBytes = 16 << 20
  /// How long it may take, waiting for locks included.
  public var timeout = TimeSpan.seconds(30)
  /// How long it waits for others that have locked the file.
  public var busyTimeout = TimeSpan.seconds(5)

  public init(_ path: String, _ sql: String) {
    self.path = path
    self.sql = sql
  }

  public static func == (a: DatabaseQuery, b: DatabaseQuery) -> Bool {
    a.path == b.path && a.sql == b.sql && a.key == b.key && a.after == b.after
      && a.parameters.elementsEqual(b.parameters) { $0.name == $1.name && $0.value == $1.value }
  }
}

/// The result of a query.
public struct DatabaseRows: Sendable, Equatable {
  public var columns: [String]
  public var rows: [[DatabaseValue]]
  /// The key of each row, if there is one.
  public var keys: [[DatabaseValue]]
  /// There may be more rows behind the last one.
  public var hasMore: Bool

  public init(columns: [String], rows: [[DatabaseValue]], keys: [[DatabaseValue]] = [], hasMore: Bool = false) {
    self.columns = columns
    self.rows = rows
    self.keys = keys
    self.hasMore = hasMore
  }
}

/// Why there are no rows.
public struct DatabaseFailure: Error, Sendable, Equatable {
  /// The cause of a failure.
  public enum Kind: String, Sendable {
    /// The library cannot be loaded.
    case unavailable
    /// The file or the statement is not usable; another attempt would fail, too.
    case refused
    case busy, timeout, failed
  }
  public var kind: Kind
  /// One sentence without a full stop.
  public var message: String
  public init(_ kind: Kind, _ message: String) {
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
