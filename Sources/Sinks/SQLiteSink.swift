import PipelineCore
import Transport

/// `sqlite`: a row of a table for each event.
package struct SQLiteSink: SinkComponent {
  enum Mode: String, ChoiceParameter {
    case insert, upsert
    var help: String {
      switch self {
      case .insert: "a new row for each event; an existing row is refused"
      case .upsert:
        "a row with the same `key` is changed, otherwise a new one is added; a retracted one is deleted"
      }
    }
  }
  struct Batch: RecordParameter {
    var count = 1000
    var every = TimeSpan.milliseconds(100)
    static var fields: [RecordField<Batch>] {
      [
        .init("count", \.count, primary: true, range: 1...100_000, "The maximum number of events in a transaction."),
        .init("every", \.every, range: 0...Int64.max, "How long an event waits for others, at most."),
      ]
    }
  }

  var path = FilePathParameter()
  var table = ""
  var columns = Table<ExpressionParameter>()
  var mode = Mode.insert
  var key: [String] = []
  var create: String?
  var batch = Batch()
  var queue = 10_000
  var busyTimeout = TimeSpan.seconds(5)
  var retry = ReconnectParameter()

  package var writesDatabase: FilePathParameter? { path }

  package init() {}

  package static let spec = ComponentSpec<SQLiteSink>(
    "sqlite",
    summary: "Writes a row into a table of a SQLite database for each event.",
    details: """
      `columns` gives the value of each column as an expression. Null is NULL, a boolean 0 or 1, bytes a blob, a time or duration its text, a list or map its JSON; a value that \
      SQLite cannot hold (NaN, an integer beyond 63 bits) is refused. With `mode: upsert`, a row with the same values in the columns of `key` is changed; the table needs a \
      PRIMARY KEY or UNIQUE condition on exactly these columns. An event that takes a row back (`meta.retracts`, as \
      [results that change](../../event-time.md#results-that-change) do) deletes the row with its key, so the table always has what holds now; with `mode: insert` it is another \
      row; a column with the value `meta.retracts` shows which rows these are.

      The events that come together are one transaction, at most `batch.count` of them. They are acknowledged when it is committed, which waits for the disk \
      (`synchronous = FULL`). A row that a condition of the table refuses (UNIQUE, NOT NULL, CHECK, a foreign key, a type of a STRICT table) goes to the errors output alone, \
      with SQLite's reason; all others of the transaction are written. Foreign keys are enforced. After a crash events may be written again: \
      an upsert changes nothing then, and an insert with a UNIQUE column is refused.

      The file is created, and tables are, only if `create` says how: statements that are executed each time the file is opened, so they begin with `CREATE TABLE IF NOT EXISTS`. \
      A file that others have locked is waited for, for `busyTimeout`; then, as after a full disk, or while the file is not there, the sink tries again after the pauses of `retry`, and the events wait. \
      A table or column that is not there ends the pipeline. The state of a pipeline of rxd is refused. The mode of the journal is left as it is: \
      with `PRAGMA journal_mode = WAL`, which `create` may have, readers need not wait for the sink.
      """,
    parameters: [
      .init("path", \.path, primary: true, required: true, "The file of the database."),
      .init("table", \.table, required: true, "The table, or a view with triggers."),
      .init("columns", \.columns, required: true, "The value of each column, as an expression."),
      .init("mode", \.mode, "What happens if the row exists already."),
      .init("key", \.key, applies: .word("mode", ["upsert"]), "The columns that identify a row."),
      .init("create", \.create, "Statements that create the table; the file is then created, too."),
      .init("batch", \.batch, "What is one transaction."),
      .init("queue", \.queue, range: 1...1_000_000, "How many events may wait."),
      .init(
        "busyTimeout", \.busyTimeout, range: 0...Int64.max, "How long it waits for a program that has locked the file."),
      .init(
        "retry", \.retry, "The pauses before a transaction is repeated that failed for another reason than its rows."),
    ],
    examples: [
      .snippet(
        "one row for each order",
        "sqlite: { path: /var/lib/shop/orders.db, table: orders, columns: { id: event.id, total: event.total } }"),
      .snippet(
        "the last value of each sensor, in a table of its own",
        """
        sqlite:
          path: /var/lib/rxd-data/sensors.db
          table: sensors
          mode: upsert
          key: name
          columns: { name: event.name, value: event.value, at: now }
          create: CREATE TABLE IF NOT EXISTS sensors(name TEXT PRIMARY KEY, value REAL, at TEXT NOT NULL)
        """),
    ],
    edges: EdgeCases(
      empty: "The file is opened, and nothing is written.",
      error: """
        A row that is refused goes to the errors output; a table or column that is not there, or a file that is no database, ends the pipeline.
        """,
      completion: "Waiting events are written first.",
      disposal: "The transaction under way ends; waiting events are given up, and a warning counts them."),
    memory: "Waiting events, up to `queue`, and those of the transaction under way.",
    knownAs: ["Benthos sql_insert", "Telegraf sql", "Logstash jdbc output"],
    useCases: [
      .init(
        .writing, "write events into a database",
        "sqlite: { path: orders.db, table: orders, columns: { id: event.id, total: event.total } }"),
      .init(
        .writing, "keep the last state of each thing in a table",
        "sqlite: { path: s.db, table: s, columns: { id: event.id, v: event.v }, mode: upsert, key: id }"),
      .init(
        .writing, "have a table follow results that change: rows are added, changed and deleted",
        "sqlite: { path: t.db, table: t, columns: { id: event.id, n: event.n }, mode: upsert, key: id }"),
    ],
    seeAlso: ["file", "http"])

  package func validate(_ context: inout DecodingContext) {
    if path.text == ":memory:" {
      context.badValue(
        at: context.location(of: "path"), "no other process could read ':memory:', which ends with the connection",
        help: "Name a file")
    }
    if table.isEmpty || table.utf8.contains(0) {
      context.badValue(at: context.location(of: "table"), "'table' of 'sqlite' is not a name")
    }
    if columns.entries.isEmpty {
      context.badValue(
        at: context.location(of: "columns"), "'columns' of 'sqlite' is empty, so there is nothing to write",
        help: "Write 'columns: { id: event.id }'")
    }
    for entry in columns.entries where entry.name.isEmpty || entry.name.utf8.contains(0) {
      context.badValue(at: entry.location, "this cannot be the name of a column")
    }
    if mode == .upsert, key.isEmpty {
      context.badValue(
        at: context.location, "'mode: upsert' needs 'key', the columns that identify a row",
        .conflictingParameters, help: "Add 'key: id'")
    }
    for name in key where !columns.entries.contains(where: { $0.name == name }) {
      context.badValue(
        at: context.location(of: "key"),
        "'key' names the column '\(Printable.cut(name))', which 'columns' does not have")
    }
  }

  package var threads: String? { "written by a thread of its own" }
  package var confirmation: SinkConfirmation { .disk }

  var sql: String {
    let names = columns.entries.map { Database.quoted($0.name) }
    var text = "INSERT INTO \(Database.quoted(table))(\(names.joined(separator: ", ")))"
    text += " VALUES(\(names.indices.map { "?\($0 + 1)" }.joined(separator: ", ")))"
    guard mode == .upsert else { return text }
    let others = columns.entries.map(\.name).filter { !key.contains($0) }.map(Database.quoted)
    let change =
      others.isEmpty ? "NOTHING" : "UPDATE SET " + others.map { "\($0) = excluded.\($0)" }.joined(separator: ", ")
    return text + " ON CONFLICT(\(key.map(Database.quoted).joined(separator: ", "))) DO \(change)"
  }

  /// Deletes the row with the values of ``key``, in that order.
  var deletion: String? {
    guard mode == .upsert else { return nil }
    let conditions = key.indices.map { "\(Database.quoted(key[$0])) IS ?\($0 + 1)" }
    return "DELETE FROM \(Database.quoted(table)) WHERE \(conditions.joined(separator: " AND "))"
  }

  package func makeSink(_ nodeContext: NodeContext) -> RunningSink {
    Connector(self, nodeContext).sink(nodeContext)
  }

  /// A batch is a transaction.
  final class Connector: DeliveryConnector {
    /// The values of an event.
    private final class Row {
      let row: DatabaseWriter.Row
      init(_ row: DatabaseWriter.Row) { self.row = row }
    }

    let traits: DeliveryTraits
    private let parameters: SQLiteSink
    private let nodeContext: NodeContext
    private let writer: DatabaseWriter
    private lazy var worker = nodeContext.worker("sqlite")
    private lazy var frame = EventFrame.make(nodeContext)

    init(_ parameters: SQLiteSink, _ nodeContext: NodeContext) {
      self.parameters = parameters
      self.nodeContext = nodeContext
      var options = DatabaseWriter.Options()
      options.path = parameters.path.text
      options.sql = parameters.sql
      options.deletion = parameters.deletion
      options.create = parameters.create
      options.busyTimeout = parameters.busyTimeout
      writer = DatabaseWriter(options)
      var traits = DeliveryTraits(
        DeliveryWords(
          "the database", recovered: "the database accepts rows again", failure: "failed attempt",
          left: "the database had not committed"))
      traits.count = parameters.batch.count
      traits.age = parameters.batch.every
      traits.queue = parameters.queue
      traits.retry = parameters.retry.attempts
      traits.handsOver = true
      self.traits = traits
    }

    /// Writes an empty transaction, so that errors of the file are reported before the first event.
    func open(_ answer: DeliveryAnswer) -> Bool {
      write([], answer)
      return false
    }

    func encode(_ event: Event) throws(DeliveryRefusal) -> DeliveryPiece {
      try frame.read(event)
      let isDeletion = parameters.mode == .upsert && event.retracts
      // Only the key of a row is needed to delete it.
      let columns =
        isDeletion
        ? parameters.key.compactMap { name in parameters.columns.entries.first { $0.name == name } }
        : parameters.columns.entries
      var row: [DatabaseValue] = []
      row.reserveCapacity(columns.count)
      for column in columns {
        guard let program = column.value.program else { throw DeliveryRefusal("") }
        let value = program.evaluate(frame.frame)
        if value.isError {
          throw DeliveryRefusal("the column '\(column.name)': \(program.failureMessage(value, frame.frame))")
        }
        do throws(DatabaseValue.Refusal) {
          row.append(try DatabaseValue(value, frame))
        } catch {
          throw DeliveryRefusal("the value of the column '\(column.name)' \(error.message)")
        }
      }
      let bytes = row.reduce(0) { $0 + $1.size }
      return DeliveryPiece(
        .object(Row(DatabaseWriter.Row(row, isDeletion: isDeletion))), bytes: bytes,
        memory: bytes + row.count * MemoryLayout<DatabaseValue>.stride)
    }

    func deliver(_ batch: DeliveryBatch, _ answer: DeliveryAnswer) {
      write(
        batch.items.map { item in if case .object(let piece as Row) = item.piece { piece.row } else { .init([]) } },
        answer)
    }

    private func write(_ rows: [DatabaseWriter.Row], _ answer: DeliveryAnswer) {
      let (writer, worker, location) = (writer, worker, nodeContext.location)
      worker.enqueue {
        switch writer.write(rows) {
        case .committed(let refused):
          answer.put(
            .answered(refused: refused.map { .init($0.row, "the database refused the row: \($0.reason)") }))
        case .later(let message): answer.put(.down(message))
        case .impossible(let message): answer.put(.impossible(SignalFailure(.sink, message, at: location)))
        }
        // The worker must outlive the writer, because in a reload the next version waits for it.
        withExtendedLifetime(worker) {}
      }
    }

    func close(handsOver: Bool) {
      if !handsOver { writer.stop() }
      let (writer, worker) = (writer, worker)
      worker.enqueue {
        writer.close()
        withExtendedLifetime(worker) {}
      }
    }
  }
}
