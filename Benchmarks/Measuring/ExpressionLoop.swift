import CCounting
import PipelineCore

/// Evaluates one expression over one event repeatedly, as a running step does.
package final class ExpressionLoop {
  package let frame: EvaluationFrame
  private let program: Program
  private let projection = Projection()
  private let arena = Arena()
  private let slab: Slab
  private let event: Value

  /// `event` is JSON; `functions` is the section of a pipeline file.
  package init?(_ expression: String, _ event: String, functions: String = "") {
    var diagnostics = Diagnostics()
    var scope = ExpressionScope([.init("event")])
    if !functions.isEmpty {
      scope.functions = FrontEnd(.operators).parse(SourceText(name: "functions", text: functions))
        .functions(into: &diagnostics)
    }
    guard
      let checked = ExpressionSyntax.parse(LocatedText(expression), into: &diagnostics)?
        .check(in: scope, into: &diagnostics)
    else { return nil }
    program = checked.compile(projection: projection)
    projection.freeze()
    frame = EvaluationFrame(variables: 1, slots: projection.slotCount, arena: arena, json: JSONParser())
    slab = Slab(Array(event.utf8))
    self.event = frame.json.open(slab.bytes)
    if fill().isError || program.evaluate(frame).isError { return nil }
    arena.reset()
  }

  /// Reads the paths of the event.
  @discardableResult
  package func fill() -> Value {
    frame[0] = event
    return projection.fill(event, frame)
  }

  /// The outcome of a condition over the current slots.
  package func condition() -> Bool { program.evaluateBool(frame) == .yes }

  /// Evaluates the value, and frees the memory that it took.
  @discardableResult
  package func value() -> Value {
    let value = program.evaluate(frame)
    arena.reset()
    return value
  }

  /// The allocations and references of `count` rounds of `body`, after some rounds to warm up.
  package static func counts(_ count: Int = 1000, _ body: () -> Void) -> Counts {
    for _ in 0..<16 { body() }
    rx_counting_start()
    for _ in 0..<count { body() }
    return Counts(rx_counting_stop())
  }
}

/// What one thread did while it was counted.
package struct Counts: Sendable, Equatable {
  package var allocations: Int
  /// Retains and releases; 0 unless ``countsReferences``.
  package var references: Int

  /// Whether this program is linked so that retains and releases are counted.
  package static var countsReferences: Bool { rx_counting_references() != 0 }

  init(_ counts: rx_counts) {
    self.init(allocations: Int(counts.allocations), references: Int(counts.references))
  }

  init(allocations: Int, references: Int) {
    self.allocations = allocations
    self.references = references
  }

  static func - (more: Counts, less: Counts) -> Counts {
    Counts(allocations: more.allocations - less.allocations, references: more.references - less.references)
  }
}
