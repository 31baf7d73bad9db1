import PipelineCore

/// Translates a plan into Flink SQL: tables for sources and sinks, views for named signals, one INSERT for each sink.
///
/// It depends on the compiled plan only. Anything without an exact equivalent is refused with its location; nothing is
/// approximated.
package struct FlinkExport {
  /// The script; nil: parts of the file were refused.
  package let script: String?
  /// Diagnostics of the refused parts.
  package let diagnostics: [Diagnostic]

  /// - Parameter compiledPlan: The path to which Flink writes the compiled plan of the INSERT statements; nil: the script
  ///   runs them.
  package init(_ plan: Plan, compiledPlan: String? = nil) {
    let writer = ScriptWriter(plan, compiledPlan: compiledPlan)
    let script = writer.write()
    diagnostics = writer.diagnostics
    self.script = writer.diagnostics.isEmpty ? script : nil
  }
}

/// Writes the script of one plan.
final class ScriptWriter {
  let plan: Plan
  private let compiledPlan: String?
  private(set) var diagnostics: [Diagnostic] = []
  /// The statements that define tables and views, in their order.
  private var definitions: [String] = []
  private var inserts: [String] = []
  /// The relations of named sources and signals; nil: the signal was refused.
  private var named: [Int: Relation?] = [:]
  /// The signals that are being translated.
  private var open: Set<Int> = []
  /// The names of tables and views.
  private var names: Set<String> = []
  /// The first step that sends its result at the end of its input, and needs batch execution.
  var endStep: (keyword: String, location: SourceLocation)?
  /// The first step that batch execution lacks or executes differently.
  var streamingStep: (keyword: String, location: SourceLocation)?
  /// The first source without an end.
  private var endlessSource: (name: String, location: SourceLocation)?
  /// Whether an expression reads `meta.key`.
  private(set) lazy var readsKey = plan.expressions.contains { report in
    report.checked.reads.contains { $0.variable == "meta" }
  }

  init(_ plan: Plan, compiledPlan: String?) {
    self.plan = plan
    self.compiledPlan = compiledPlan
    names = Set(plan.named.filter { $0.kind == .source || $0.kind == .signal }.map(\.name) + plan.sinks.map(\.name))
  }

  func report(_ refusal: Refusal) {
    let diagnostic = Diagnostic(.notInFlink, refusal.message, at: refusal.location, help: refusal.help)
    if !diagnostics.contains(diagnostic) { diagnostics.append(diagnostic) }
  }

  func refuse(_ message: String, _ help: String, at location: SourceLocation) {
    report(Refusal(message: message, help: help, location: location))
  }

  // MARK: The script

  func write() -> String {
    for entry in plan.named where entry.kind == .table || entry.kind == .command {
      entry.kind == .table
        ? refuse(
          "the table '\(entry.name)' changes while it is read, and Flink reads a table of one moment",
          "Give its source 'time', and read it with 'join' and 'asOf: true'", at: entry.location)
        : refuse(
          "the command '\(entry.name)' has no equivalent in Flink SQL",
          "Leave commands to rxd, after the exported part",
          at: entry.location)
    }
    if plan.sinks.isEmpty, let first = plan.named.first {
      refuse("the file has no sink, and Flink runs INSERT statements only", "Add a sink", at: first.location)
    }
    for index in plan.named.indices where [.source, .signal].contains(plan.named[index].kind) {
      _ = relation(ofNamed: index)
    }
    for sink in plan.sinks { write(sink) }
    checkEnds()
    return assembled()
  }

  private func checkEnds() {
    guard let endStep else { return }
    if let endlessSource {
      refuse(
        "'\(endStep.keyword)' sends its result at the end, and the source '\(endlessSource.name)' has none",
        "Use 'window', or 'emit: update' with a sink that has a key", at: endStep.location)
    }
    if let streamingStep {
      refuse(
        "'\(endStep.keyword)' sends its result at the end, which is batch execution in Flink; "
          + "the '\(streamingStep.keyword)' of this file is exact in streaming only",
        "Put the two into files of their own", at: endStep.location)
    }
    if compiledPlan != nil {
      refuse(
        "'\(endStep.keyword)' sends its result at the end, which is batch execution, and Flink compiles plans of streams only",
        "Export without --compiled-plan", at: endStep.location)
    }
  }

  private func assembled() -> String {
    var parts = [
      """
      -- Flink SQL 2.3, exported by rxd from \(Self.oneLine(plan.source.name)), pipeline \(Self.oneLine(plan.name)).
      -- It gives the rows of rxd for input that fits the schema, and keeps its event time to the millisecond.
      SET 'execution.runtime-mode' = '\(endStep == nil ? "streaming" : "batch")';
      SET 'table.local-time-zone' = 'UTC';
      """
    ]
    // A watermark after each event, so that lateness does not depend on the clock.
    if endStep == nil {
      parts[0] += "\nSET 'pipeline.auto-watermark-interval' = '0 ms';"
    } else if definitions.contains(where: { $0.contains("WATERMARK FOR") }) {
      parts[0] +=
        "\n-- In batch execution no event is late: those that are later than 'lateness' count, and rxd rejects them."
    }
    parts += definitions
    let body =
      inserts.count == 1
      ? inserts[0] + ";"
      : "STATEMENT SET BEGIN\n" + inserts.map { $0 + ";" }.joined(separator: "\n\n") + "\nEND;"
    if let compiledPlan {
      parts.append("COMPILE PLAN \(SQLText.literal(compiledPlan)) FOR " + body)
    } else {
      parts.append(inserts.count == 1 ? body : "EXECUTE " + body)
    }
    return parts.joined(separator: "\n\n") + "\n"
  }

  static func oneLine(_ text: String) -> String {
    String(text.unicodeScalars.map { $0.value < 0x20 || $0.value == 0x7F ? " " : Character($0) })
  }

  // MARK: Definitions

  /// A name that no table or view has yet.
  func freshName(_ wanted: String) -> String {
    var name = wanted
    var number = 2
    while !names.insert(name).inserted {
      name = "\(wanted)_\(number)"
      number += 1
    }
    return name
  }

  func define(_ statement: String) { definitions.append(statement) }

  /// Defines a view with the rows of a relation, and returns a relation that reads the view.
  func view(_ name: String, _ relation: Relation) -> Relation {
    let (text, read) = Self.selected(relation)
    define("CREATE VIEW \(SQLText.name(name)) AS\n\(text);")
    return Self.reading(SQLText.name(name), read)
  }

  /// The relation as a finished SELECT, and the same relation with the columns that it then has; its `from` is not valid.
  static func selected(_ relation: Relation, leavingOut: Set<String> = []) -> (text: String, Relation) {
    var columns: [String] = []
    var taken: Set<String> = []
    func column(_ text: String, _ wanted: String) -> String {
      var name = wanted
      while !taken.insert(name).inserted { name += "_" }
      let quoted = SQLText.name(name)
      columns.append(text == quoted ? text : "\(text) AS \(quoted)")
      return quoted
    }
    var read = relation
    read.conditions = []
    read.shape = relation.shape.mapLeaves { path, value in
      var plain = value
      let isLiteral = value.text.first == "'" && value.type == .string
      plain.text = column(
        isLiteral ? "CAST(\(value.text) AS STRING)" : value.text, path.isEmpty ? "value" : path.joined(separator: "."))
      plain.isColumn = true
      plain.isPrimary = true
      return plain
    }
    read.keys = relation.keys.enumerated().map { index, key in
      var plain = key
      plain.text = column(key.text, relation.keys.count == 1 ? "__key" : "__key\(index + 1)")
      plain.isColumn = true
      plain.isPrimary = true
      return plain
    }
    if let time = relation.time { read.time = column(time, "__time") }
    var text = "SELECT\n" + columns.map { "  \($0)" }.joined(separator: ",\n") + "\nFROM \(relation.from)"
    if !relation.conditions.isEmpty { text += "\nWHERE " + relation.conditions.joined(separator: "\n  AND ") }
    return (text, read)
  }

  static func reading(_ from: String, _ relation: Relation) -> Relation {
    var relation = relation
    relation.from = from
    return relation
  }

  /// The relation with its fields as columns of a subquery.
  static func columns(_ relation: Relation) -> Relation {
    let (text, read) = selected(relation)
    return reading("(\n\(SQLText.indented(text))\n)", read)
  }

  /// The relation without the rows in which an evaluation has failed.
  static func withoutFailures(_ relation: Relation) -> Relation {
    let fails =
      relation.shape.leaves.contains { $0.value.null == .failure } || relation.keys.contains { $0.null == .failure }
    guard fails else { return relation }
    var relation = columns(relation)
    var conditions: [String] = []
    func checked(_ value: SQLValue) -> SQLValue {
      guard value.null == .failure else { return value }
      conditions.append("\(value.text) IS NOT NULL")
      var value = value
      value.null = .never
      return value
    }
    relation.shape = relation.shape.mapLeaves { _, value in checked(value) }
    relation.keys = relation.keys.map(checked)
    relation.conditions += conditions
    return relation
  }

  // MARK: Signals

  /// The relation of a named source or signal; nil: a part of it was refused.
  private func relation(ofNamed index: Int) -> Relation? {
    if let known = named[index] { return known }
    let entry = plan.named[index]
    guard entry.kind == .source || entry.kind == .signal, open.insert(index).inserted else { return nil }
    defer { open.remove(index) }
    var made = relation(of: entry.body, ownedBy: entry.name, input: nil)
    // A source without steps is its table.
    if let relation = made,
      relation.from != SQLText.name(entry.name) || !relation.conditions.isEmpty || !relation.isPlain
    {
      made = view(entry.name, relation)
    }
    named[index] = .some(made)
    return made
  }

  /// The relation of a signal. `input`: that of the step around a chain.
  func relation(of signal: SignalPlan, ownedBy owner: String, input: Relation?) -> Relation? {
    switch signal.origin {
    case .named(let index): return relation(ofNamed: index)
    case .errors(let errors):
      let name = plan.name(of: errors).text
      let reader = plan.named.first { $0.name == owner }?.location ?? plan.sinks.first { $0.name == owner }?.location
      refuse(
        "the errors output '\(name).errors' has no equivalent in Flink SQL: rows for which an evaluation fails are left out",
        "Let rxd run the parts that read it", at: reader ?? plan.steps[signal.step.number].location)
      return nil
    case .input: return input
    case nil: break
    }
    if let source = signal.source { return table(of: source, signal, ownedBy: owner, time: nil) }
    if signal.isHidden { return signal.inputs.first.flatMap { relation(of: $0, ownedBy: owner, input: input) } }
    // `time` alongside a source becomes the watermark of its table.
    if signal.steps.count == 1, let form = form(of: signal.steps[0]), case .eventTime(let time) = form,
      let first = signal.inputs.first, let source = first.source
    {
      return table(of: source, first, ownedBy: owner, time: (time, plan.steps[signal.steps[0].id.number].location))
    }
    var inputs: [Relation?] = signal.inputs.map { relation(of: $0, ownedBy: owner, input: input) }
    if inputs.isEmpty { inputs = [nil] }
    var current = inputs[0]
    for (number, step) in signal.steps.enumerated() {
      current = apply(step, to: current, others: number == 0 ? Array(inputs.dropFirst()) : [], ownedBy: owner)
    }
    return current
  }

  private func form(of step: SignalPlan.Step) -> RelationalForm? {
    (step.component as? any RelationalOperator)?.relationalForm
  }

  /// The tree of an expression.
  func tree(_ parameter: ExpressionParameter, at fallback: SourceLocation) throws(Refusal) -> TypedExpression {
    let location = parameter.location ?? fallback
    guard let report = parameter.report, plan.expressions.indices.contains(report) else {
      throw Refusal(message: "the expression is not part of the plan", help: "Remove it", location: location)
    }
    let checked = plan.expressions[report].checked
    if checked.isSecret {
      throw Refusal(
        message: "the expression contains a secret, which the export would print", help: "Leave this step to rxd",
        location: location)
    }
    guard let tree = checked.typedTree() else {
      throw Refusal(
        message: "the expression is too large with the bodies of its functions", help: "Leave this step to rxd",
        location: location)
    }
    return tree
  }

  /// A note for the source that has no end.
  func noteEndless(_ name: String, _ location: SourceLocation) {
    if endlessSource == nil { endlessSource = (name, location) }
  }

  func addInsert(_ text: String) { inserts.append(text) }
}
