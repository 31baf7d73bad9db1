import PipelineCore

/// Replaces databases: answers queries from a list, on the executor's time.
final class StubDatabases: DatabaseReader {
  let calls: StubCalls<DatabaseQuery>

  init(_ calls: StubCalls<DatabaseQuery>) { self.calls = calls }

  func read(
    _ query: DatabaseQuery, _ completion: @escaping @Sendable (Result<DatabaseRows, DatabaseFailure>) -> Void
  ) -> any Cancellable {
    calls.make(query) { result in
      completion(result.flatMap { $0.answering(query) })
    }
  }
}

extension DatabaseQuery: StubbedCall {
  typealias Reply = DatabaseRows
  var noAnswer: DatabaseFailure { DatabaseFailure(.timeout, "the query had not ended after \(timeout)") }
  var noStub: DatabaseFailure { DatabaseFailure(.refused, "the query has no stub in this test") }

  /// The statement on one line, for comparison with stubs and for messages.
  var line: String { sql.split(whereSeparator: \.isWhitespace).joined(separator: " ") }
}

extension DatabaseRows {
  /// The rows as the query would receive them, with its key.
  fileprivate func answering(_ query: DatabaseQuery) -> Result<DatabaseRows, DatabaseFailure> {
    guard !query.key.isEmpty, !rows.isEmpty else { return .success(self) }
    let places = query.key.map { columns.firstIndex(of: $0) }
    if let index = places.firstIndex(of: nil) {
      return .failure(DatabaseFailure(.refused, "the rows have no column '\(query.key[index])', which 'key' names"))
    }
    var answer = self
    answer.keys = rows.map { row in places.map { row[$0!] } }
    return .success(answer)
  }
}

/// The stubbed rows of queries.
struct DatabaseStub: Sendable {
  /// The statement on one line; `*` matches any bytes.
  var query: String
  /// The answers in order, at least one; the last one is repeated.
  var answers: [Stub<DatabaseRows, DatabaseFailure>.Answer]
  var location: SourceLocation?

  func matches(_ call: DatabaseQuery) -> Bool { Glob.matches(query, call.line) }
}
