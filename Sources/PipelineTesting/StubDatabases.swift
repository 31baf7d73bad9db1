import PipelineCore

// Stubs of databases: `sqlite: [ { query: "*FROM users*", reply: { rows: [ { id: 1 } ] } } ]`. No file is opened in a test.

extension DatabaseQuery: StubbedCall {
  typealias Reply = DatabaseRows

  static var form: StubForm {
    StubForm(
      key: "sqlite", pattern: "query", keys: ["query"], name: "a stub of a database",
      needs: (["query"], "the stub names no queries", "Add 'query:', the statement, in which * stands for any text"),
      example: "{ query: \"*FROM users*\", reply: { rows: [ { id: 1 } ] } }", reply: "rows: [ { id: 1 } ]",
      failure: "database is locked",
      first: "Add 'stubs: { sqlite: [ { query: \"...\", reply: { rows: [ ... ] } } ] }' to the test")
  }

  /// Rows as mappings from column to value; a list or mapping is stored as JSON.
  static func reply(_ node: YAMLNode, _ reader: inout PipelineTestReader) -> DatabaseRows? {
    guard let entries = node.entries, reader.check(keys: entries, ["rows"], "'reply'"), let items = node["rows"]?.items
    else {
      reader.report(
        .testStep, "'reply' of a database takes 'rows', a list", node.location,
        help: "Write 'reply: { rows: [ { id: 1 } ] }'")
      return nil
    }
    var result = DatabaseRows(columns: [], rows: [])
    let arena = Arena()
    for item in items {
      guard let members = item.entries else {
        reader.report(.testStep, "a row is a mapping, not \(item.kindName)", item.location)
        return nil
      }
      for member in members where !result.columns.contains(member.name) { result.columns.append(member.name) }
    }
    for item in items {
      result.rows.append(result.columns.map { column in item[column].map { Self.stored($0, arena) } ?? .null })
    }
    return result
  }

  private static func stored(_ node: YAMLNode, _ arena: Arena) -> DatabaseValue {
    let value = LiteralParameter.value(of: node, in: arena)
    switch value.what {
    case .null: return .null
    case .bool: return .int(value.asBool ? 1 : 0)
    case .int: return .int(value.asInt)
    case .double: return .real(value.asDouble)
    case .string: return .text(Array(value.rawBytes))
    default:
      let buffer = OutputBuffer()
      JSONWriter.append(value, to: buffer)
      return .text(Array(buffer.bytes))
    }
  }

  static func failure(_ reason: String) -> DatabaseFailure { DatabaseFailure(.failed, reason) }
  static func serve(_ calls: StubCalls<DatabaseQuery>, _ services: inout Services) { services.databases = calls }

  var noAnswer: DatabaseFailure { DatabaseFailure(.timeout, "the query had not ended after \(timeout)") }
  var noStub: DatabaseFailure { DatabaseFailure(.refused, "the query has no stub in this test") }
  /// The statement on one line.
  var line: String { sql.split(whereSeparator: \.isWhitespace).joined(separator: " ") }
  func unanswered(_ at: TimeSpan) -> String {
    "no stub answers the query '\(Printable.cut(line, limit: 200))', made at \(at)"
  }
}

extension StubCalls: DatabaseReader where Call == DatabaseQuery {
  func read(_ query: DatabaseQuery, _ completion: @escaping @Sendable (Result<DatabaseRows, DatabaseFailure>) -> Void)
    -> any Cancellable
  { make(query) { result in completion(result.flatMap { $0.answering(query) }) } }
}

extension DatabaseRows {
  /// The rows as the query would receive them, with its key.
  fileprivate func answering(_ query: DatabaseQuery) -> Result<DatabaseRows, DatabaseFailure> {
    guard !query.key.isEmpty, !rows.isEmpty else { return .success(self) }
    let keyColumns = query.key.map { columns.firstIndex(of: $0) }
    if let index = keyColumns.firstIndex(of: nil) {
      return .failure(DatabaseFailure(.refused, "the rows have no column '\(query.key[index])', which 'key' names"))
    }
    var answer = self
    answer.keys = rows.map { row in keyColumns.map { row[$0!] } }
    return .success(answer)
  }
}
