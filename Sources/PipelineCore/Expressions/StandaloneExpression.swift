/// A compiled expression with slots, variables and memory of its own, for use outside of a graph: a prompt, a tap, an explanation.
///
/// Steps of a graph share theirs (``EventFrame``). Not thread-safe.
package final class StandaloneExpression {
  package let program: Program
  /// Variables other than the event must be set before an evaluation.
  package let frame: EvaluationFrame
  private let projection = Projection()

  package init(_ checked: CheckedExpression, arena: Arena = Arena(), json: JSONParser = JSONParser()) {
    program = checked.compile(projection: projection)
    projection.freeze()
    frame = EvaluationFrame(
      variables: max(checked.scope.variables.count, Variables.firstOwn), slots: projection.slotCount, arena: arena,
      json: json)
  }

  /// The result for an event; an error if the event cannot be read.
  package func evaluate(_ event: Value) -> Value {
    let failure = load(event)
    return failure.isError ? failure : program.evaluate(frame)
  }

  /// The outcome of a condition for an event; failed, if the event cannot be read.
  package func evaluateBool(_ event: Value) -> Program.Tri {
    load(event).isError ? .failed : program.evaluateBool(frame)
  }

  private func load(_ event: Value) -> Value {
    frame[Variables.event] = event
    return projection.slotCount > 0 ? projection.fill(event, frame) : .null
  }
}
