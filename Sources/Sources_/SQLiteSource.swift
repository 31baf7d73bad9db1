import PipelineCore

/// `sqlite`: the rows of a query, read once, periodically, or as the query's key increases.
package struct SQLiteSource: SourceComponent, RepeatingSource {
  var path = FilePathParameter()
  var query = ""
  var bind = Table<ExpressionParameter>()
  var key: [String] = []
  var start = LiteralParameter()
  var columns = Table<ColumnKind>()
  var every: TimeSpan?
  var jitter = TimeSpan.zero
  var immediate = true
  var maxRows = 1000
  var maxBytes = ByteSize(16 << 20)
  var timeout = TimeSpan.seconds(30)
  var busyTimeout = TimeSpan.seconds(5)
  var stopTimeout = TimeSpan.seconds(10)

  package var readsDatabase: FilePathParameter? { path }

  package init() {}

  package static let spec = ComponentSpec<SQLiteSource>(
    "sqlite",
    summary: "Sends the rows of a query to a SQLite database: once, periodically, or those that are new.",
    details: """
      The file is opened for reading only, for each query, and never created; a symbolic link is followed. A file that another program has locked is \
      waited for, for `busyTimeout`. `query` is one statement that reads. Its parameters (`:name`) have the values of the expressions of \
      `bind`, which in an inner signal see the event that it was made for as `event`: event data never becomes part of the statement.

      With `key`, only rows whose key is greater than that of the last row are read, in its order, `maxRows` at a time, and all that there are before the source \
      waits for `every` again. The key of the last row is the position: with a state directory it is saved together with the state of the pipeline, \
      so a restart leaves out and repeats nothing. That holds as far as the key grows: a row that is added later needs a greater one. An `INTEGER PRIMARY KEY AUTOINCREMENT` \
      promises it, as SQLite has one writer at a time; without `AUTOINCREMENT` a number comes again if the last row is deleted; a time of the last change (`changed`) does not tell rows apart, \
      so add a column: `key: [changed, id]`. Two rows with the same key are an error, and a row with a key that is NULL is not read. \
      The statement is put into another one as `SELECT * FROM (query) WHERE (key) > (last) ORDER BY key LIMIT maxRows + 1`; an index of the columns makes that fast. \
      If `path` or `key` change, the source begins at `start` again.

      Without `key` all rows are sent each time; more than `maxRows` are an error. With `every`, a query that fails goes to the errors output (RX528), and the next one follows. \
      If a query is still running when the next is due, the next is skipped.

      SQLite types values, not columns. An event has the values as they are stored: NULL as null, integers, reals as doubles, texts, blobs as bytes; a text that is no UTF-8 is bytes. \
      `columns` names the columns that events have, with their types, for checks and conversions; a row with a value of another type goes to the errors output (RX501). The state of a pipeline of rxd is refused.
      """,
    parameters: [
      .init("path", \.path, primary: true, required: true, "The file of the database."),
      .init("query", \.query, required: true, "One statement that reads, such as `SELECT id, name FROM users`."),
      .init("bind", \.bind, "Values of the parameters of `query`, by their names without the colon."),
      .init("key", \.key, "The column, or columns, whose values grow: only new rows are read."),
      .init(
        "start", \.start,
        applies: .with("key"),
        "The value, or list of values, after which the first query begins; by default it reads all rows."),
      .init(
        "columns", \.columns, "The columns that events have, with their types; by default all, as they are stored."),
      .init("every", \.every, range: 1_000_000...Int64.max, "The time from one query to the next."),
      .init(
        "jitter", \.jitter, range: 0...Int64.max, applies: .with("every"),
        "Adds a random delay of up to this to each later query."),
      .init("immediate", \.immediate, applies: .with("every"), "Whether the first query starts at once."),
      .init(
        "maxRows", \.maxRows, range: 1...1_000_000,
        "The maximum number of rows of one query; with `key` the others follow at once."),
      .init(
        "maxBytes", \.maxBytes, "The maximum bytes of one query, as `maxRows`. With `key` one row may be larger."),
      .init("timeout", \.timeout, range: 1_000_000...Int64.max, "How long a query may take."),
      .init(
        "busyTimeout", \.busyTimeout, range: 0...Int64.max, "How long it waits for a program that has locked the file."),
      .init(
        "stopTimeout", \.stopTimeout, range: 0...Int64.max,
        "How long a query under way may still take when the pipeline is stopped; then it is cancelled."),
    ],
    examples: [
      .snippet(
        "new orders, every five seconds",
        "sqlite: { path: /var/lib/shop/shop.db, query: 'SELECT id, customer, total FROM orders', key: id, every: 5s }"),
      .pipeline(
        "only new events",
        """
        name: orders
        sources:
          orders:
            sqlite:
              path: /var/lib/shop/shop.db
              query: SELECT id, customer, total FROM orders
              key: id
              columns: { id: int, customer: string, total: double }
              every: 5s
        signals:
          large: { from: orders, chain: [ { filter: event.total >= 100.0 } ] }
        sinks:
          out: { from: large, stdout: {} }
        tests:
          - name: two queries
            stubs:
              sqlite:
                - query: "*FROM orders"
                  sequence:
                    - reply: { rows: [ { id: 1, customer: ada, total: 12.5 }, { id: 2, customer: bob, total: 120 } ] }
                    - reply: { rows: [ { id: 3, customer: eve, total: 300 } ] }
                    - reply: { rows: [] }
            until: 11s
            expect:
              large: [ { at: 0ms, next: { id: 2, customer: bob, total: 120.0 } }, { at: 5s, next: { id: 3, customer: eve, total: 300.0 } } ]
        """),
      .pipeline(
        "look each event up",
        """
        name: names
        sources:
          ids: { stdin: { decode: ndjson } }
        signals:
          named:
            from: ids
            chain:
              - flattenMap:
                  signal:
                    sqlite: { path: /var/lib/shop/shop.db, query: 'SELECT name FROM users WHERE id = :id', bind: { id: event.id } }
                    chain: [ { map: { id: outer.id, name: event.name } } ]
        sinks:
          out: { from: named, stdout: {} }
        tests:
          - name: a name
            inputs: { ids: { marbles: "a|", values: { a: { id: 7 } } } }
            stubs:
              sqlite: [ { query: "SELECT name FROM users*", reply: { rows: [ { name: ada } ] } } ]
            expect:
              named: { marbles: "a|", values: { a: { id: 7, name: ada } } }
        """),
    ],
    edges: EdgeCases(
      empty: "A query without rows gives no event.",
      error: """
        A file that is not there, a statement that is wrong, a locked database or a time-out ends it with an error; with `every` that query goes to the errors output, \
        and the next one follows. If libsqlite3 is not installed, the pipeline ends.
        """,
      completion: """
        After the rows, with `key` after all that there are; with `every`, never. When the pipeline is stopped: after the query, or `stopTimeout`.
        """,
      disposal: "Cancels the query."),
    memory: """
      The rows of one query. After a restart the schedule of `every` continues, behind the key of the last row; a query that was under way is \
      repeated.
      """,
    persistence: .position(version: 1),
    lateness: .leavesOut("Missed queries are skipped; the next one runs in its period.") { sqlite, _ in
      sqlite.every == nil ? "it asks once" : nil
    },
    knownAs: ["Benthos sql_select, sql_raw", "Logstash jdbc", "Telegraf sql", "Kafka Connect JDBC source"],
    useCases: [
      .init(
        .reading, "read new rows of a table",
        "sqlite: { path: /var/lib/shop/shop.db, query: SELECT * FROM orders, key: id, every: 5s }"),
      .init(
        .reading, "read a table periodically",
        "sqlite: { path: /var/lib/shop/shop.db, query: SELECT * FROM users, every: 1h }"),
    ],
    seeAlso: ["http", "exec", "flattenMap"])

  package func validate(_ context: inout DecodingContext) {
    if path.text == ":memory:" {
      context.badValue(
        at: context.location(of: "path"), "':memory:' is a database that no other program writes to",
        help: "Name a file")
    }
    if query.allSatisfy(\.isWhitespace) {
      context.badValue(at: context.location(of: "query"), "'query' of 'sqlite' is empty", help: "Write a SELECT")
    } else if query.utf8.contains(0) {
      context.badValue(at: context.location(of: "query"), "'query' of 'sqlite' has a zero byte")
    } else if query.utf8.firstRange(of: "{{".utf8) != nil {
      context.badValue(
        at: context.location(of: "query"),
        "'query' of 'sqlite' has no templates: event data could change the statement",
        help: "Write :name, and 'bind: { name: EXPRESSION }'")
    }
    for (index, name) in key.enumerated() where name.isEmpty || key[..<index].contains(name) {
      context.badValue(
        at: context.location(of: "key"),
        name.isEmpty ? "a column of 'key' has no name" : "'key' has the column '\(Printable.cut(name))' twice")
    }
    for entry in bind.entries where entry.name.hasPrefix("rxd_key_") {
      context.badValue(at: entry.location, "the names that begin with 'rxd_key_' are those of the key")
    }
    guard start.isGiven, !key.isEmpty else { return }
    let count = start.value.value.is(.list) ? start.value.value.elements.count : 1
    if count != key.count {
      context.badValue(
        at: context.location(of: "start"),
        "'start' has \(count) value\(count == 1 ? "" : "s"), and 'key' has \(key.count) column\(key.count == 1 ? "" : "s")"
      )
    }
  }

  package var outputType: EventType {
    guard !columns.entries.isEmpty else {
      return EventType(.object(fields: key.map { .init($0, .dyn) }, open: true))
    }
    return EventType(
      .object(
        fields: columns.entries.map { column in
          let type = column.value.type
          return .init(column.name, key.contains(column.name) || type.isDyn ? type : .wrapper(type))
        }, open: false))
  }

  package var runsOnVirtualTime: Bool { true }
  package var recovery: SourceRecovery { key.isEmpty ? .request : .position }

  package var repeats: TimeSpan? { every }

  package var once: (any SourceComponent)? {
    var once = self
    once.every = nil
    return once
  }

  package func threads(_ limit: Int?) -> String? {
    "each query on a thread of its own, made events on the pipeline thread"
  }

  package func makeSource(_ nodeContext: NodeContext, downstream: Downstream) -> RunningSource {
    Node(self, nodeContext, downstream)
  }

  private final class Node: PolledSource {
    private let parameters: SQLiteSource
    private lazy var frame = makeFrame()
    private let types: [(name: String, kind: ColumnKind)]
    /// The keys of the rows that are being sent.
    private var keys: [[DatabaseValue]] = []
    private var goesOn = false

    init(_ parameters: SQLiteSource, _ nodeContext: NodeContext, _ downstream: Downstream) {
      self.parameters = parameters
      types = parameters.columns.entries.map { ($0.name, $0.value) }
      super.init(
        Schedule(
          every: parameters.every, jitter: parameters.jitter, immediate: parameters.immediate,
          stopTimeout: parameters.stopTimeout),
        ("a query", "it had not ended"), nodeContext, downstream)
    }

    private func failure(_ message: String) -> SignalFailure {
      SignalFailure(.source, message, at: nodeContext.location)
    }

    override func ask() -> (any Cancellable)? {
      var query = DatabaseQuery(parameters.path.text, parameters.query)
      query.key = parameters.key
      query.maxRows = parameters.maxRows
      query.maxBytes = parameters.maxBytes.bytes
      // Rows that a query leaves, the next one reads.
      if !parameters.key.isEmpty { query.maxBytes = min(query.maxBytes, execution.services.memory.ofAnswer) }
      query.timeout = parameters.timeout
      query.busyTimeout = parameters.busyTimeout
      frame.loadNothing()
      do throws(SignalFailure) {
        if let cursor = position.cursor { query.after = CursorText.decode(cursor) } else { query.after = try start() }
        for entry in parameters.bind.entries { query.parameters.append((entry.name, try value(of: entry.value))) }
      } catch {
        refused(.expressionFailed, poll: .queryFailed, error)
        return nil
      }
      let executor = executor
      let node = Weak(self)
      let memory = execution.services.memory
      return execution.services.databases.read(query) { result in
        var bytes = 0
        if case .success(let rows) = result { bytes = rows.rows.joined().reduce(0) { $0 + $1.size } }
        let charge = MemoryCharge(bytes, of: memory)
        executor.post { [bytes] in
          node.object?.answered(result, bytes: bytes)
          withExtendedLifetime(charge) {}
        }
      }
    }

    private func start() throws(SignalFailure) -> [DatabaseValue]? {
      guard parameters.start.isGiven else { return nil }
      let value = parameters.start.value.value
      do throws(DatabaseValue.Refusal) {
        var values: [DatabaseValue] = []
        for one in value.is(.list) ? Array(value.elements) : [value] { values.append(try DatabaseValue(one, frame)) }
        return values
      } catch {
        throw failure("'start' \(error.message)")
      }
    }

    private func value(of parameter: ExpressionParameter) throws(SignalFailure) -> DatabaseValue {
      guard let program = parameter.program else { return .null }
      let value = program.evaluate(frame.frame)
      if value.isError {
        throw SignalFailure(.expression, program.failureMessage(value, frame.frame), at: parameter.location)
      }
      do throws(DatabaseValue.Refusal) {
        return try DatabaseValue(value, frame)
      } catch {
        throw SignalFailure(.expression, "the value \(error.message)", at: parameter.location)
      }
    }

    /// - Parameter bytes: The memory of the rows.
    private func answered(_ result: Result<DatabaseRows, DatabaseFailure>, bytes: Int) {
      guard take() else { return }
      let origin = Origin(
        source: origin.source, path: parameters.path.text, receivedAt: executor.wallTime, reply: origin.reply,
        identity: origin.identity)
      switch result {
      case .failure(let error):
        goesOn = false
        let reason = failure(error.message)
        if error.kind == .unavailable { return endPipeline(because: reason) }
        failed(.queryFailed, reason, from: origin)
        endFailed()
      case .success(let rows):
        if let missing = types.first(where: { type in !rows.columns.contains(type.name) }), !rows.columns.isEmpty {
          goesOn = false
          failed(
            .queryFailed, failure("'query' has no column '\(missing.name)', which 'columns' names"), from: origin)
          return endFailed()
        }
        keys = rows.keys
        goesOn = rows.hasMore
        sendRows(DatabaseDecoder(rows, types), bytes: bytes, origin)
      }
    }

    // MARK: The position

    override var hasMore: Bool { goesOn }

    override func answerSent() {
      if let last = keys.last { position.cursor = CursorText.text(last) }
      keys = []
    }

    override var positionOfTurn: PollPosition {
      guard let unsentOffset, unsentOffset > 0, Int(unsentOffset) <= keys.count else {
        return unsentOffset == nil && !keys.isEmpty ? position(behind: keys.count - 1) : position
      }
      return position(behind: Int(unsentOffset) - 1)
    }

    private func position(behind row: Int) -> PollPosition {
      var position = position
      position.cursor = CursorText.text(keys[row])
      return position
    }

    /// The key under which the position is saved.
    private var positionKey: String { "\(parameters.path.text)?\(parameters.key.joined(separator: ","))" }

    override var hasPosition: Bool { !parameters.key.isEmpty }

    override func save(_ state: inout StateWriter) {
      super.save(&state)
      state.write(positionKey)
      savePosition(&state)
    }

    override func restore(_ state: inout StateReader) throws(StateFault) {
      try super.restore(&state)
      let key: String = try state.read()
      try restorePosition(&state)
      if let cursor = position.cursor, CursorText.decode(cursor) == nil { throw StateFault("its key is none") }
      guard state.hasOtherParameters else { return }
      beginAnew(from: key == positionKey ? position : PollPosition())
    }
  }
}

/// The key of a row as one text, which is the cursor of the position.
private enum CursorText {
  static func text(_ values: [DatabaseValue]) -> String {
    values.map { value in
      switch value {
      case .null: "n"
      case .int(let number): "i\(number)"
      case .real(let number): "r\(String(number.bitPattern, radix: 16))"
      case .text(let bytes): "t" + HexText.text(bytes)
      case .blob(let bytes): "b" + HexText.text(bytes)
      }
    }.joined(separator: " ")
  }

  static func decode(_ text: String) -> [DatabaseValue]? {
    var values: [DatabaseValue] = []
    for part in text.split(separator: " ", omittingEmptySubsequences: false) {
      let rest = part.dropFirst()
      let value: DatabaseValue? =
        switch part.first {
        case "n": .null
        case "i": Int64(rest).map { .int($0) }
        case "r": UInt64(rest, radix: 16).map { .real(Double(bitPattern: $0)) }
        case "t": HexText.bytes(rest).map { .text($0) }
        case "b": HexText.bytes(rest).map { .blob($0) }
        default: nil
        }
      guard let value else { return nil }
      values.append(value)
    }
    return values
  }
}
