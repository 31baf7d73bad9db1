import FigureTable
import PipelineCore

extension StoppedEvent {
  /// The reason why the event did not pass, one sentence without a full stop.
  var reason: String {
    if let problem { return SecretMask.process.masked(problem.message) }
    if verdict == .superseded { return "a newer event replaced it" }
    let conditions = expressions.filter { $0.result == "false" || $0.result == "true" }
    if conditions.count == 1, let condition = conditions.first, let result = condition.result {
      return "\(Printable.cut(condition.text, limit: 200)) is \(result)"
    }
    return Self.reasons[plan.steps[step.number].keyword] ?? "the step leaves such events out, as the file says"
  }

  /// The reasons why steps without a condition drop an event.
  private static let reasons = [
    "distinct": "an equal event arrived before it", "distinctUntilChanged": "it equals the one before it",
    "ignore": "it equals an ignored value", "skip": "it is one of the first, which are skipped",
    "skipUntil": "it arrived before the event that the step waits for",
    "skipWhile": "it came before the first event that may pass",
    "take": "the signal had already sent all the events that it may send", "takeLast": "the step keeps no events",
    "takeWhile": "the signal had ended", "takeUntil": "the signal ended with it",
    "rateLimit": "it is over the limit", "throttle": "another event had passed within the quiet time",
    "sample": "the signal ended before it was sampled", "gate": "the gate was closed",
    "window": "it lies between two windows",
    "delay": "it was due while the pipeline was down", "bufferWithTime": "it was due while the pipeline was down",
    "withLatestFrom": "the other signal had sent nothing yet",
    "flattenMap": "the signal of an earlier event still runs, and 'policy' is 'exhaust'",
    "execute": "the command was busy, and its 'whenBusy' is 'drop'",
    "join": "no event of the other signal matched it within the time",
    "zip": "another input ended without a partner for it",
    "groupBy": "the chain of its group had ended", "then": "the step waits for the end of this signal only",
  ]

  /// The location of the reason: the expression that decided, or the step.
  var reasonLocation: SourceLocation {
    if let location = problem?.location { return location }
    let conditions = expressions.filter { $0.result == "false" || $0.result == "true" }
    if verdict == .dropped, conditions.count == 1, let condition = conditions.first { return condition.location }
    return plan.steps[step.number].location
  }

  /// The position from which the event was read: `/var/log/a.log, at byte 12`.
  private var from: String? {
    if source.isEmpty { return nil }
    return (path ?? source) + (position >= 0 ? ", at \(path == nil ? "number" : "byte") \(position)" : "")
  }

  func document(bytes: Int) -> JSONText {
    let (text, size) = text(limit: bytes)
    let described = plan.steps[step.number]
    var members: [(String, JSONText)] = [
      ("pipeline", .string(plan.name)), ("step", .string(plan.id(of: step))), ("type", .string(described.keyword)),
      ("verdict", .string(verdict.rawValue)), ("reason", .string(reason)), ("time", .string(StoredTime.text(time))),
      ("nanoseconds", .int(Int(instant.nanoseconds))), ("number", .count(number)), ("at", .string("\(reasonLocation)")),
      ("line", .int(reasonLocation.line)), ("event", size == nil ? .document(text) : .string(text)),
    ]
    if let size { members += [("cut", .bool(true)), ("bytes", .int(size))] }
    if !source.isEmpty { members.append(("source", .string(source))) }
    if let path { members.append(("path", .string(SecretMask.process.masked(path)))) }
    if position >= 0 { members.append(("offset", .int(Int(position)))) }
    if let key { members.append(("key", .document(key))) }
    if let id { members.append(("id", .string(SecretMask.process.masked(id)))) }
    if let problem { members.append(("code", .string(problem.code))) }
    members.append(("expressions", .array(expressions.map(\.document))))
    members.append(
      (
        "way",
        .array(
          way.map {
            .object([("step", .string(plan.id(of: $0))), ("at", .string("\(plan.steps[$0.number].location)"))])
          })
      ))
    return .object(members)
  }

  /// The answer for a terminal: the line of the file is underlined.
  func text(bytes: Int, _ renderer: DiagnosticRenderer) -> String {
    let (event, size) = text(limit: bytes)
    var remarks: [(kind: String, text: String)] = []
    for expression in expressions {
      if let failure = expression.failure, failure != problem?.message { remarks.append(("failed", failure)) }
      guard let reads = expression.reads, !reads.isEmpty else { continue }
      remarks.append(("saw", reads.map { "\($0.path) = \($0.value)" }.joined(separator: ", ")))
    }
    remarks.append(("event", size.map { "\(event)… (\($0) bytes)" } ?? event))
    if let key { remarks.append(("key", key)) }
    if let id { remarks.append(("id", SecretMask.process.masked(id))) }
    if let from { remarks.append(("from", SecretMask.process.masked(from))) }
    if way.count > 1 { remarks.append(("way", way.map(plan.id(of:)).joined(separator: " -> "))) }
    let code = problem.map { "[\($0.code)]" } ?? ""
    return renderer.passage(
      "\(StoredTime.text(time)) \(plan.name): \(verdict.rawValue)\(code) by `\(plan.id(of: step))`: \(reason)",
      at: reasonLocation,
      remarks)
  }
}

extension SeenExpression {
  fileprivate var document: JSONText {
    var members: [(String, JSONText)] = [("text", .string(text)), ("at", .string("\(location)"))]
    if let result { members.append(("result", .string(result))) }
    if let failure { members.append(("failure", .string(failure))) }
    if let reads {
      members.append(
        ("reads", .array(reads.map { .object([("path", .string($0.path)), ("value", .string($0.value))]) })))
    }
    return .object(members)
  }
}
