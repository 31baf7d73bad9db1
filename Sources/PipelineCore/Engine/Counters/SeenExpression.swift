/// An expression of a step, and the values that it read from one event.
package struct SeenExpression: Sendable {
  /// One value that the expression read.
  package struct Read: Sendable, Equatable {
    /// As written: `event.user.name`.
    package var path: String
    /// The value as text: `200`, `'GET'`, `missing`.
    package var value: String

    package init(path: String, value: String) {
      self.path = path
      self.value = value
    }
  }
  /// As written in the file; secrets are masked.
  package var text: String
  package var location: SourceLocation
  /// The result as text; nil: the expression failed, or its result is unknown.
  package var result: String?
  /// Why the expression failed; nil: it did not fail, or that is unknown.
  package var failure: String?
  /// The values that the expression read; nil: they are not known.
  package var reads: [Read]?

  private static let mostReads = 12
  private static let mostBytes = 200

  /// - Parameters:
  ///   - location: Only the expression that contains this location is evaluated. Nil, or a location in no expression:
  ///     all expressions of the step.
  ///   - time: The value of `now`, in nanoseconds since 1970.
  static func of(
    _ plan: Plan, _ step: StepID, _ within: SourceLocation?, _ event: Event, outer: Value?, time: Int64
  ) -> [SeenExpression] {
    let all = plan.expressions.filter { $0.step == step }.map(\.checked)
    let containing = all.filter { checked in
      within.map { within in
        let whole = checked.text.location(0, checked.text.text.count)
        return whole.text.name == within.text.name && whole.offset <= within.offset
          && within.offset + within.length <= whole.offset + whole.length
      } ?? false
    }
    return (containing.isEmpty ? all : containing).map { SeenExpression($0, plan, event, outer: outer, time: time) }
  }

  private init(_ checked: CheckedExpression, _ plan: Plan, _ event: Event, outer: Value?, time: Int64) {
    text = SecretMask.process.masked(String(decoding: checked.text.shown(0, checked.text.text.count), as: UTF8.self))
    location = checked.text.location(0, checked.text.text.count)
    // The result of an expression with a secret may be that secret; the variables of some operators are not kept.
    let known: Set<String> = ["event", "meta", "now", "env", "outer"]
    guard !checked.isSecret, checked.reads.allSatisfy({ known.contains($0.variable) }),
      outer != nil || !checked.reads.contains(where: { $0.variable == "outer" })
    else { return }
    let arena = Arena()
    let expression = StandaloneExpression(checked, arena: arena)
    let frame = expression.frame
    frame[Variables.meta] = event.meta(in: arena, wallTime: time)
    frame[Variables.env] = plan.sinks.first?.segment.environment.value ?? .absent
    frame[Variables.outer] = outer ?? .absent
    frame.now = .timestamp(wallTime: time)
    let value = expression.evaluate(event.value)
    if value.isError {
      failure = SecretMask.process.masked(expression.program.failureMessage(value, frame))
    } else {
      result = Self.text(value, frame)
    }
    var reads: [Read] = []
    for read in checked.reads where !reads.contains(where: { $0.path == read.path }) && reads.count < Self.mostReads {
      reads.append(Read(path: read.path, value: Self.value(of: read, frame).map { Self.text($0, frame) } ?? "missing"))
    }
    self.reads = reads
  }

  /// The value at a path; nil: a field is missing.
  private static func value(of read: ReadPath, _ frame: EvaluationFrame) -> Value? {
    var value: Value
    switch read.variable {
    case "event": value = frame[Variables.event]
    case "meta": value = frame[Variables.meta]
    case "env": value = frame[Variables.env]
    case "outer": value = frame[Variables.outer]
    default: value = frame.now
    }
    let context = Context(state: frame.state)
    for field in read.fields {
      if value.is(.optional) { value = value.wrapped ?? .absent }
      let key = frame.arena.string(field)
      let found =
        value.is(.map)
        ? context.member(of: value, key)
        : value.is(.jsonMap) ? JSONParser.lookup(value, key: key.rawBytes) : .absent
      if found.isAbsent || found.isError { return nil }
      value = found
    }
    return value.isAbsent ? nil : value
  }

  /// The text of a value, at most ``mostBytes`` bytes; lists and maps as JSON.
  private static func text(_ value: Value, _ frame: EvaluationFrame) -> String {
    let buffer = OutputBuffer()
    if value.isAnyMap || value.isAnyList {
      JSONWriter.appendShown(value, to: buffer)
    } else {
      ValueText.describe(value, into: buffer, Context(state: frame.state))
    }
    let text = SecretMask.process.masked(String(decoding: buffer.bytes.prefix(16 << 10), as: UTF8.self))
    return text.utf8.count > mostBytes ? String(decoding: text.utf8.prefix(mostBytes - 3), as: UTF8.self) + "..." : text
  }
}

extension Event {
  /// The variable `meta` of expressions, with all members.
  func meta(in arena: Arena, wallTime: Int64) -> Value {
    let origin = origin.takeUnretainedValue()
    var members: [(key: Value, value: Value)] = [
      (.literal("source"), arena.string(origin.source)),
      (.literal("time"), .timestamp(wallTime: origin.receivedAt == 0 ? wallTime : origin.receivedAt)),
    ]
    if let path = origin.path { members.append((.literal("path"), arena.string(path))) }
    if position >= 0 { members.append((.literal("offset"), .int(position))) }
    if !key.isAbsent { members.append((.literal("key"), key)) }
    if let id { members.append((.literal("id"), arena.string(id))) }
    let fields = origin.fields.value
    if fields.is(.map) { members += fields.entries.map { (key: $0.key, value: $0.value) } }
    return arena.map(members)
  }
}
