import PipelineCore

/// Tables of sources and sinks.
extension ScriptWriter {
  // MARK: Sources

  /// Defines the table of a source. `time`: the event time declared with it, and its location.
  func table(
    of source: any SourceDeclaration, _ signal: SignalPlan, ownedBy owner: String,
    time: (form: RelationalTime, location: SourceLocation)?
  ) -> Relation? {
    let info = plan.steps[signal.step.number]
    do throws(Refusal) {
      return try defined(source, signal, owner, time, info)
    } catch {
      report(error)
      return nil
    }
  }

  private func defined(
    _ source: any SourceDeclaration, _ signal: SignalPlan, _ owner: String,
    _ time: (form: RelationalTime, location: SourceLocation)?, _ info: StepPlan
  ) throws(Refusal) -> Relation {
    if source.runsOnVirtualTime || source.immediateValues != nil {
      throw Refusal(
        message: "the source '\(info.keyword)' makes its events itself, and no connector of Flink does the same",
        help: "Write the events into a file, and read that", location: info.location)
    }
    let fields = try schema(signal, info)
    var shape: [(name: String, shape: Shape)] = []
    var columns: [(name: String, definition: String)] = []
    for field in fields {
      if field.name.hasPrefix("__") {
        throw Refusal(
          message: "the field '\(field.name)' begins as the names of the export do",
          help: "Rename it before the exported part", location: info.location)
      }
      let type: FlinkType
      do throws(TypeRefusal) { type = try FlinkType(field.type) } catch {
        throw Refusal(
          message: "the field '\(field.name)' of the source '\(owner)' \(error.reason)",
          help: "Declare another type in 'schema', or remove the field", location: info.location)
      }
      let isNullable = field.type.unwrapped != field.type || field.mayBeAbsent
      columns.append((field.name, "\(SQLText.name(field.name)) \(type.sql)\(isNullable ? "" : " NOT NULL")"))
      shape.append((field.name, Self.shape(SQLText.name(field.name), type, isNullable: isNullable)))
    }
    let hasOptional = Self.hasOptional(fields)
    let end = try connector(source, info, owner, fields, hasOptional: hasOptional, &columns)
    // The table is named after the source unless a view takes that name.
    let isWhole = plan.named.contains { $0.name == owner && $0.kind == .source && Self.isSource($0.body) }
    let name = isWhole ? owner : freshName("\(owner)_source")
    var relation = Relation(from: SQLText.name(name), shape: .object(shape))
    // A column of a row would otherwise look like a column of the table.
    if columns.contains(where: { $0.name == name }),
      shape.contains(where: { if case .object = $0.shape { true } else { false } })
    {
      relation.from += " AS `__source`"
    }
    var definitions = columns.map(\.definition)
    if let time {
      let value = try moment(time.form, relation, info, time.location)
      definitions.append("`__time` AS \(value)")
      // One millisecond more: Flink's watermark promises that no more events with this time follow.
      definitions.append(
        "WATERMARK FOR `__time` AS `__time` - \(SQLText.interval(milliseconds: time.form.lateness.nanoseconds / 1_000_000 + 1))"
      )
      relation.time = "`__time`"
    }
    define(
      "CREATE TABLE \(SQLText.name(name)) (\n\(definitions.map { "  \($0)" }.joined(separator: ",\n"))\n) WITH (\n\(end)\n);"
    )
    return relation
  }

  /// Whether a named source is its table, without steps.
  private static func isSource(_ body: SignalPlan) -> Bool {
    if body.source != nil { return true }
    guard body.steps.count == 1, let step = body.steps[0].component as? any RelationalOperator,
      case .eventTime = step.relationalForm
    else { return false }
    return body.inputs.first?.source != nil
  }

  private func schema(_ signal: SignalPlan, _ info: StepPlan) throws(Refusal) -> [ExpressionType.Field] {
    guard case .object(let fields, let isOpen) = signal.type.type, fields.contains(where: \.isDeclared) else {
      throw Refusal(
        message: "the source has no 'schema', and the columns of a table have types",
        help: "Declare the fields: 'schema: { id: int, name: string?, at: timestamp }'", location: info.location)
    }
    if isOpen {
      throw Refusal(
        message: "the schema allows further fields ('...'), and a table has a fixed number of columns",
        help: "Declare all fields that are needed, and remove '...'", location: info.location)
    }
    return fields
  }

  private static func hasOptional(_ fields: [ExpressionType.Field]) -> Bool {
    fields.contains { field in
      if field.mayBeAbsent || field.type.unwrapped != field.type { return true }
      if case .object(let inner, _) = field.type { return hasOptional(inner) }
      return false
    }
  }

  /// A column, or the columns of a row that is always there.
  private static func shape(_ text: String, _ type: FlinkType, isNullable: Bool) -> Shape {
    guard case .row(let fields) = type, !isNullable else {
      return .leaf(SQLValue(text: text, type: type, null: isNullable ? .value : .never, isColumn: true))
    }
    return .object(
      fields.map { ($0.name, shape("\(text).\(SQLText.name($0.name))", $0.type, isNullable: $0.isNullable)) })
  }

  /// The expression of the event time.
  private func moment(
    _ time: RelationalTime, _ relation: Relation, _ info: StepPlan, _ location: SourceLocation
  ) throws(Refusal) -> String {
    for (name, isGiven) in [("idle", time.idle != nil), ("maxAhead", time.maxAhead != nil)] where isGiven {
      throw Refusal(
        message: "'\(name)' uses the clock, and Flink has no equivalent", help: "Remove it", location: location)
    }
    guard time.lateness.nanoseconds % 1_000_000 == 0 else {
      throw Refusal(
        message: "'lateness' is not a whole number of milliseconds", help: "Use milliseconds or more",
        location: location)
    }
    let tree = try tree(time.time, at: location)
    if case .call("timestamp", let arguments) = tree.form, arguments.count == 1 {
      let value = try ExpressionTranslator(relation).value(arguments[0])
      if value.type == .bigint, value.null == .never { return "TO_TIMESTAMP_LTZ(\(value.text), 0)" }
    }
    let value = try ExpressionTranslator(relation).value(tree)
    guard value.type == .timestamp, value.null == .never else {
      throw Refusal(
        message:
          "the time of an event is a timestamp that is always there, and this is a \(value.type.shown)"
          + (value.null == .never ? "" : " that may be missing"),
        help: "Declare the field as 'timestamp' in 'schema'", location: tree.location)
    }
    return "CAST(\(value.text) AS TIMESTAMP_LTZ(3))"
  }

  /// The contents of WITH.
  private func connector(
    _ source: any SourceDeclaration, _ info: StepPlan, _ owner: String, _ fields: [ExpressionType.Field],
    hasOptional: Bool, _ columns: inout [(name: String, definition: String)]
  ) throws(Refusal) -> String {
    guard let readable = source as? any RelationalSource else {
      noteEndless(owner, info.location)
      return Self.foreign(info, "source", settings: Self.kafka(info, isSource: true) ?? [])
    }
    let input = readable.relationalInput
    if !input.ends { noteEndless(owner, info.location) }
    let decoding = input.decoding
    func refused(_ message: String, _ help: String) -> Refusal {
      Refusal(message: message, help: help, location: info.location)
    }
    if decoding.charset != nil { throw refused("'charset' has no equivalent: Flink reads UTF-8", "Convert the file") }
    if decoding.join != nil {
      throw refused("'join' of lines has no equivalent in Flink", "Let rxd write one JSON document a line")
    }
    if decoding.plugin != nil {
      throw refused("the format '\(decoding.name)' of a plugin has no equivalent in Flink", "Use json")
    }
    if !input.ends {
      throw refused(
        "'follow' reads data appended to a file, and Flink reads a file only once",
        "Remove 'follow' for the export, or read the events from a broker")
    }
    var path = "stdin.ndjson"
    var lines: [String] = []
    if let file = input.paths.first {
      guard input.paths.count == 1, !file.text.contains(where: { "*?[{".contains($0) }) else {
        throw refused(
          "several files or a pattern are no path of Flink", "Put the files into a directory, and name that")
      }
      path = file.text
    } else {
      lines.append("  -- Standard input of rxd: name the file or directory that has it.")
    }
    lines += ["  'connector' = 'filesystem',", "  'path' = \(SQLText.literal(path)),"]
    switch decoding.format {
    case .json, .ndjson:
      lines += ["  'format' = 'json',", "  'json.timestamp-format.standard' = 'ISO-8601',"]
      // With optional fields, a field may be missing; others are NOT NULL.
      lines.append("  'json.fail-on-missing-field' = '\(hasOptional ? "false" : "true")'")
    case .csv:
      let csv = decoding.csv
      guard case .names(let names) = csv.header, csv.skipLines == 0, csv.headerAt == nil else {
        throw refused(
          "Flink's csv reads the first line as data",
          "Name the columns, 'csv: { header: [a, b] }', for a file without that line")
      }
      guard csv.emptyIsNull != true, fields.allSatisfy({ $0.type == .string }) else {
        throw refused(
          "fields of csv are texts, and rxd and Flink read numbers in different ways from them",
          "Declare the fields as string, without 'emptyIsNull', and convert before the exported part")
      }
      // Columns of CSV are bound by position.
      columns = names.map { ($0, "\(SQLText.name($0)) STRING NOT NULL") }
      lines.append("  'format' = 'csv',")
      let delimiter = String(UnicodeScalar(csv.delimiter))
      guard csv.delimiter >= 0x20 else {
        throw refused("this delimiter has no equivalent", "Use a character that is printed")
      }
      lines.append("  'csv.field-delimiter' = \(SQLText.literal(delimiter))")
    default:
      throw refused("the format '\(decoding.name)' has no columns", "Read 'json', or 'csv' with named columns")
    }
    return lines.joined(separator: "\n")
  }

  /// The contents of WITH for a source or sink whose connector the export cannot name.
  private static func foreign(_ info: StepPlan, _ what: String, settings: [String]) -> String {
    if !settings.isEmpty { return settings.joined(separator: "\n") }
    return """
        -- The \(what) '\(oneLine(info.keyword))' of rxd: name a connector and its options here.
        'connector' = '...'
      """
  }

  /// The options of the plugin `kafka`, as far as the file gives them.
  private static func kafka(_ info: StepPlan, isSource: Bool) -> [String]? {
    guard info.keyword == "kafka" else { return nil }
    func setting(_ name: String) -> String? {
      info.settings.entries.first { $0.name == name && !$0.isNested }?.text.trimmingBrackets
    }
    guard let topic = setting(isSource ? "topics" : "topic") else { return nil }
    var lines = ["  'connector' = 'kafka',"]
    lines.append(
      "  '\(topic.contains(",") || topic.contains("{{") ? "topic-pattern" : "topic")' = \(SQLText.literal(topic)),")
    lines.append("  'properties.bootstrap.servers' = \(SQLText.literal(setting("brokers") ?? "127.0.0.1:9092")),")
    if isSource {
      if let group = setting("group") { lines.append("  'properties.group.id' = \(SQLText.literal(group)),") }
      lines.append("  'scan.startup.mode' = '\(setting("start") == "new" ? "latest-offset" : "earliest-offset")',")
      lines.append("  'scan.watermark.emit.strategy' = 'on-event',")
    }
    return lines + ["  'format' = 'json',", "  'json.timestamp-format.standard' = 'ISO-8601'"]
  }

  // MARK: Sinks

  func write(_ sink: SinkPlan) {
    guard let relation = relation(of: sink.input, ownedBy: sink.name, input: nil) else { return }
    let info = plan.steps[sink.step.number]
    do throws(Refusal) {
      try insert(relation, sink, info)
    } catch {
      report(error)
    }
  }

  private func insert(_ input: Relation, _ sink: SinkPlan, _ info: StepPlan) throws(Refusal) {
    var relation = input.isPlain ? input : Self.columns(input)
    let component = sink.component
    let output = (component as? any RelationalSink)?.relationalOutput
    var key: [String] = []
    if let value = component.sentValue, value.isGiven {
      throw Refusal(
        message: "'value' of '\(info.keyword)' is not exported", help: "Use 'map' before the sink",
        location: info.location)
    }
    if case .table(_, let columns, let names, let replaces)? = output {
      if !columns.isEmpty {
        let translator = ExpressionTranslator(relation)
        var fields: [(name: String, shape: Shape)] = []
        for column in columns {
          let part = try translator.value(try tree(column.value, at: info.location))
          fields.append((column.name, .leaf(part)))
        }
        relation = try reshaped(relation, .object(fields), info)
      }
      if replaces { key = names }
    }
    guard case .object(let fields) = relation.shape else {
      throw Refusal(
        message: "an event without fields is not a row", help: "Name the value: 'map: { value: event }'",
        location: info.location)
    }
    try checkChanges(input, relation, key, sink, info)
    for name in key where !fields.contains(where: { $0.name == name }) {
      throw Refusal(message: "the key '\(name)' is not a column", help: "Name a column", location: info.location)
    }
    let values = fields.map { ($0.name, $0.shape.value) }
    var definitions = values.map { name, value in
      "\(SQLText.name(name)) \(value.type.sql)\(key.contains(name) ? " NOT NULL" : "")"
    }
    if !key.isEmpty {
      definitions.append("PRIMARY KEY (\(key.map(SQLText.name).joined(separator: ", "))) NOT ENFORCED")
    }
    let end = try connector(output, component, info, values.map(\.0))
    define(
      "CREATE TABLE \(SQLText.name(sink.name)) (\n\(definitions.map { "  \($0)" }.joined(separator: ",\n"))\n) WITH (\n\(end)\n);"
    )
    var row = relation
    row.time = nil
    row.keys = []
    row.shape = .object(values.map { ($0.0, .leaf($0.1)) })
    // Flink must be told that the sink's key identifies rows, because the rank by which rows are deleted is not a
    // column.
    let conflict = relation.changes == .rows ? "\nON CONFLICT DO DEDUPLICATE" : ""
    addInsert("INSERT INTO \(SQLText.name(sink.name))\n\(Self.selected(row).text)\(conflict)")
  }

  private func checkChanges(
    _ input: Relation, _ relation: Relation, _ key: [String], _ sink: SinkPlan, _ info: StepPlan
  ) throws(Refusal) {
    func refused(_ message: String, _ help: String) -> Refusal {
      Refusal(message: message, help: help, location: info.location)
    }
    switch relation.changes {
    case .none:
      if !key.isEmpty,
        relation.shape.leaves.contains(where: {
          $0.path.count == 1 && key.contains($0.path[0]) && $0.value.null != .never
        })
      {
        throw refused("a key that may be null is none in Flink", "Filter events with null before the sink")
      }
    case .rows:
      if key.isEmpty {
        throw refused(
          "the sink adds a row for each change, and Flink applies changes",
          "Use a sink with a key: 'sqlite' with 'mode: upsert'")
      }
    case .byKey(let paths):
      if key.isEmpty {
        throw refused(
          "the sink adds a row for each change, and Flink applies changes",
          "Use a sink with a key: 'sqlite' with 'mode: upsert'")
      }
      // Projections may have renamed the columns; the names in the row decide.
      guard let paths, Set(paths.map { $0.joined(separator: ".") }) == Set(key) else {
        throw refused(
          "the key of the sink is not the key by which rows replace each other, so rxd would leave rows that Flink deletes",
          "Use the same key in both")
      }
    }
  }

  private func connector(
    _ output: RelationalOutput?, _ component: any SinkDeclaration, _ info: StepPlan, _ names: [String]
  ) throws(Refusal) -> String {
    func refused(_ message: String, _ help: String) -> Refusal {
      Refusal(message: message, help: help, location: info.location)
    }
    var lines: [String] = []
    switch output {
    case .files:
      throw refused("a file for each event has no equivalent", "Write one file, and partition the table in Flink")
    case .file(let path):
      lines.append(
        path == nil
          ? "  -- Standard output of rxd: Flink writes files below this directory."
          : "  -- Flink writes files below a directory of this name.")
      lines += ["  'connector' = 'filesystem',", "  'path' = \(SQLText.literal(path?.text ?? "\(info.owner).out")),"]
      guard let encoding = component.encoding?.options, encoding.plugin == nil else {
        throw refused("the format has no equivalent in Flink", "Write 'json'")
      }
      switch encoding.format {
      case .json, .ndjson:
        lines += ["  'format' = 'json',", "  'json.timestamp-format.standard' = 'ISO-8601'"]
      case .csv:
        if encoding.csv.header {
          throw refused("Flink's csv writes no header", "Write 'encode: { csv: { header: false } }'")
        }
        guard encoding.csv.columns == nil || encoding.csv.columns == names else {
          throw refused(
            "'columns' of csv are not the fields of the event in their order", "Use 'map' with these fields")
        }
        lines.append("  'format' = 'csv'")
      default:
        throw refused(
          "the format '\(encoding.format.rawValue)' has no columns", "Write 'json', or 'csv' without header")
      }
    case .table, nil:
      return Self.foreign(info, "sink", settings: Self.kafka(info, isSource: false) ?? [])
    }
    return lines.joined(separator: "\n")
  }
}

extension String {
  /// `[a, b]` without the brackets of a list.
  fileprivate var trimmingBrackets: String { hasPrefix("[") && hasSuffix("]") ? String(dropFirst().dropLast()) : self }
}
