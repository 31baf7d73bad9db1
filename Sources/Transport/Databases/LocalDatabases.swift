import Glibc
import PipelineCore
import Synchronization

/// Reads SQLite files of this machine. Each query has a thread and a connection of its own, so it reads the file that
/// has the path at that time, and no lock is held between queries.
package final class LocalDatabases: DatabaseReader {
  package init() {}

  package func read(
    _ query: DatabaseQuery, _ completion: @escaping @Sendable (Result<DatabaseRows, DatabaseFailure>) -> Void
  ) -> any Cancellable {
    let run = DatabaseRun(query, completion)
    do throws(PosixError) {
      _ = try OwnThread("rxd sqlite") { run.run() }
    } catch {
      completion(.failure(DatabaseFailure(.failed, error.message)))
    }
    return run
  }
}

private final class DatabaseRun: Cancellable, Sendable {
  private let query: DatabaseQuery
  private let completion: @Sendable (Result<DatabaseRows, DatabaseFailure>) -> Void
  private let limits: DatabaseLimits
  private let isCancelled = Atomic(false)

  init(
    _ query: DatabaseQuery, _ completion: @escaping @Sendable (Result<DatabaseRows, DatabaseFailure>) -> Void
  ) {
    self.query = query
    self.completion = completion
    limits = DatabaseLimits(busy: query.busyTimeout)
  }

  func cancel() {
    isCancelled.store(true, ordering: .relaxed)
    limits.stop()
  }

  func run() {
    let (end, isOver) = monotonicNow().addingReportingOverflow(query.timeout.nanoseconds)
    limits.deadline = isOver ? .max : end
    var result: Result<DatabaseRows, DatabaseFailure>
    do throws(DatabaseError) {
      result = try rows()
    } catch {
      result = .failure(failure(error))
    }
    if !isCancelled.load(ordering: .relaxed) { completion(result) }
  }

  private func failure(_ error: DatabaseError) -> DatabaseFailure {
    if error.isInterrupted { return DatabaseFailure(.timeout, "the query had not ended after \(query.timeout)") }
    let message = "\(query.path): \(error.message)"
    if error.isBusy { return DatabaseFailure(.busy, "\(message), also after \(query.busyTimeout)") }
    if error.isMissing { return DatabaseFailure(.unavailable, error.message) }
    return DatabaseFailure(error.isOfStatement || error.isDamage ? .refused : .failed, message)
  }

  private func refused(_ message: String) -> Result<DatabaseRows, DatabaseFailure> {
    .failure(DatabaseFailure(.refused, message))
  }

  private func rows() throws(DatabaseError) -> Result<DatabaseRows, DatabaseFailure> {
    let database = try Database(query.path, .foreignReading, limits: limits)
    if try database.isStore() {
      return refused("\(query.path) is the state of a pipeline of rxd, which no pipeline may read")
    }
    // The query is first compiled alone, because the text put around it later could complete a partial statement.
    guard var statement = try database.prepareOne(query.sql), statement.onlyReads, !statement.columnNames.isEmpty else {
      return refused("'query' is not a single statement that only reads")
    }
    var columns = statement.columnNames
    for (index, name) in columns.enumerated() where columns[..<index].contains(name) {
      return refused("'query' has two columns '\(name)': name one of them with AS")
    }
    for name in query.key where !columns.contains(name) {
      return refused("'query' has no column '\(name)', which 'key' names")
    }
    if !query.key.isEmpty {
      guard let paged = try database.prepareOne(pagedSQL) else { return refused("'query' cannot be read by its 'key'") }
      statement = paged
      columns = statement.columnNames
    }
    if let fault = bind(statement) { return refused(fault) }
    return try read(statement, columns)
  }

  /// The statement that selects the rows after the last key, in key order.
  private var pagedSQL: String {
    // Keys are compared byte by byte, so that different keys are never equal.
    let keys = query.key.map { Database.quoted($0) + " COLLATE BINARY" }
    // Rows with a NULL key are left out: NULL compares with nothing, so no query could continue after it.
    var conditions = query.key.map { Database.quoted($0) + " IS NOT NULL" }
    if query.after != nil {
      let last = query.key.indices.map { ":rxd_key_\($0)" }
      conditions.append("(\(keys.joined(separator: ", "))) > (\(last.joined(separator: ", ")))")
    }
    var text = query.sql[...]
    while let last = text.last, last.isWhitespace || last == ";" { text.removeLast() }
    return """
      SELECT * FROM (
      \(text)
      ) WHERE \(conditions.joined(separator: " AND ")) ORDER BY \(keys.joined(separator: ", ")) LIMIT \(query.maxRows + 1)
      """
  }

  /// Binds the parameters; returns the error, if any.
  private func bind(_ statement: Statement) -> String? {
    var unused = Set(query.parameters.map(\.name))
    for (index, name) in statement.parameterNames.enumerated() {
      guard let name, !name.isEmpty else { return "a parameter of 'query' has no name: write :NAME" }
      let parameter = Int32(index + 1)
      if let after = query.after, name.hasPrefix("rxd_key_"), let number = Int(name.dropFirst(8)), number < after.count
      {
        statement.bind(parameter, after[number])
      } else if let value = query.parameters.first(where: { $0.name == name })?.value {
        statement.bind(parameter, value)
        unused.remove(name)
      } else {
        return "'query' has the parameter ':\(name)', but 'bind' does not"
      }
    }
    return unused.min().map { "'bind' has '\($0)', but 'query' has no parameter ':\($0)'" }
  }

  private func read(
    _ statement: Statement, _ columns: [String]
  ) throws(DatabaseError) -> Result<DatabaseRows, DatabaseFailure> {
    let keyColumns = query.key.compactMap { columns.firstIndex(of: $0) }
    var result = DatabaseRows(columns: columns, rows: [])
    var bytes = 0
    while try statement.step() {
      let row = columns.indices.map { statement.value(Int32($0)) }
      let key = keyColumns.map { row[$0] }
      if let last = result.keys.last, zip(last, key).allSatisfy({ $0.isSameKey(as: $1) }) {
        return refused(
          "two rows have the same key, \(key.map(\.shown).joined(separator: ", ")): add a column to 'key' that distinguishes them"
        )
      }
      bytes += row.reduce(0) { $0 + $1.size }
      if result.rows.count == query.maxRows || bytes > query.maxBytes && (keyColumns.isEmpty || !result.rows.isEmpty) {
        guard !keyColumns.isEmpty else {
          return refused(
            bytes > query.maxBytes
              ? "the result has more than the \(query.maxBytes) bytes that 'maxBytes' allows"
              : "the result has more than \(query.maxRows) rows, which 'maxRows' allows")
        }
        result.hasMore = true
        break
      }
      result.rows.append(row)
      if !keyColumns.isEmpty { result.keys.append(key) }
    }
    return .success(result)
  }
}

extension DatabaseValue {
  /// Whether SQLite considers neither of the two keys greater.
  fileprivate func isSameKey(as other: DatabaseValue) -> Bool {
    switch (self, other) {
    case (.int(let a), .real(let b)), (.real(let b), .int(let a)): Double(a) == b
    default: self == other
    }
  }

  fileprivate var shown: String {
    switch self {
    case .null: "NULL"
    case .int(let number): "\(number)"
    case .real(let number): "\(number)"
    case .text(let bytes): "'\(Printable.cut(bytes, limit: 60))'"
    case .blob(let bytes): "a blob of \(bytes.count) bytes"
    }
  }
}
