import PipelineCore
import PipelineTestSupport
import Testing

/// An expression compiled against a JSON event, and its result.
struct Evaluation {
  var frame: EvaluationFrame
  var program: Program
  var value: Value
  private let slab: Slab

  /// `projects`: through the scanner; else over the event as a tree or raw, selected field by field.
  init?(
    _ expression: String, _ event: String = "{}", projects: Bool = true, tree: Bool = false,
    functions: UserFunctions = .none,
    sourceLocation: Testing.SourceLocation = #_sourceLocation
  ) {
    var diagnostics = Diagnostics()
    var scope = ExpressionScope([.init("event"), .init("meta"), .init("now", .timestamp)])
    scope.functions = functions
    guard
      let checked = ExpressionSyntax.parse(LocatedText(expression), into: &diagnostics)?
        .check(in: scope, into: &diagnostics)
    else {
      Issue.record(
        "\(expression): \(diagnostics.all.map(\.message).joined(separator: "; "))",
        sourceLocation: sourceLocation)
      return nil
    }
    let projection = projects ? Projection() : nil
    program = checked.compile(projection: projection)
    projection?.freeze()
    let arena = Arena()
    frame = EvaluationFrame(variables: 3, slots: projection?.slotCount ?? 0, arena: arena, json: JSONParser())
    slab = Slab(Array(event.utf8))
    let opened = frame.json.open(slab.bytes)
    frame[0] = tree ? frame.json.expand(opened, into: arena) : opened
    frame[1] = arena.map(["source": .literal("test")])
    frame.now = .timestamp(seconds: 0, nanoseconds: 0)
    if let projection, projection.fill(frame[0], frame).isError {
      Issue.record("the event is malformed", sourceLocation: sourceLocation)
      return nil
    }
    value = program.evaluate(frame)
    let truth: Program.Tri = !value.is(.bool) ? .failed : value.asBool ? .yes : .no
    #expect(program.evaluateBool(frame) == truth, "\(expression) as a condition", sourceLocation: sourceLocation)
  }

  /// The value as JSON, or the message of the failure.
  var text: String {
    if value.isError { return "error: " + program.failureMessage(value, frame) }
    let buffer = OutputBuffer()
    JSONWriter.append(value, to: buffer)
    return dense(String(decoding: buffer.bytes, as: UTF8.self))
  }
}

/// JSON text passes through unchanged, so white space is ignored here; errors stay.
func dense(_ text: String) -> String {
  text.hasPrefix("error") ? text : text.filter { $0 != " " }
}

/// Evaluates by all three paths, which must agree; returns JSON text or `error: ...`.
func evaluate(
  _ expression: String, _ event: String = "{}", functions: UserFunctions = .none,
  sourceLocation: Testing.SourceLocation = #_sourceLocation
) -> String? {
  let ways = [
    Evaluation(expression, event, functions: functions, sourceLocation: sourceLocation)?.text,
    Evaluation(expression, event, tree: true, functions: functions, sourceLocation: sourceLocation)?.text,
    Evaluation(expression, event, projects: false, functions: functions, sourceLocation: sourceLocation)?.text,
  ]
  // Without the scanner an error has another reason if a parent is a scalar.
  for other in ways.dropFirst() where other?.hasPrefix("error") != true || ways[0]?.hasPrefix("error") != true {
    #expect(ways[0] == other, "\(expression)", sourceLocation: sourceLocation)
  }
  return ways[0]
}

/// The diagnostics of an expression, as `code: message | help`.
func diagnose(_ expression: String, expecting: ExpressionType? = nil, event: ExpressionType = .dyn) -> [String] {
  var diagnostics = Diagnostics()
  _ = ExpressionSyntax.parse(LocatedText(expression), into: &diagnostics)?
    .check(in: ExpressionScope([.init("event", event)]), expecting: expecting, into: &diagnostics)
  return diagnostics.all.map { diagnostic in
    "\(diagnostic.code.name) \(diagnostic.location?.offset ?? -1)+\(diagnostic.location?.length ?? -1) \(diagnostic.message) | \(diagnostic.help ?? "")"
  }
}
