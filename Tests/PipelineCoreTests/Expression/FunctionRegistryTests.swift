import PipelineCore
import Testing

@Suite struct FunctionRegistryTests {
  @Test func everyFunctionIsDescribed() {
    for spec in FunctionRegistry.callable {
      #expect(spec.summary.hasSuffix("."), "\(spec.name)")
      #expect(!spec.summary.dropLast().contains(". "), "\(spec.name): one sentence")
      #expect(!spec.signatures.isEmpty, "\(spec.name)")
      #expect(!spec.examples.isEmpty, "\(spec.name)")
    }
  }

  @Test func everyExampleHolds() {
    for spec in FunctionRegistry.callable {
      for example in spec.examples {
        // Macros are shown as they are in pipelines.
        for mode in spec.isMacro ? [ExpressionScope.Mode.lenient] : [.lenient, .strict] {
          let text = "\(example.call) == dyn(\(example.result)) && type(\(example.call)) == type(\(example.result))"
          var diagnostics = Diagnostics()
          let program = ExpressionSyntax.parse(LocatedText(text), into: &diagnostics)?
            .check(in: ExpressionScope(mode: mode), into: &diagnostics)?.compile()
          let frame = EvaluationFrame(arena: Arena(), json: JSONParser())
          guard let program else {
            Issue.record("\(text): \(diagnostics.all.map(\.message))")
            continue
          }
          let value = program.evaluate(frame)
          #expect(value.isTrue, "\(text) \(value.isError ? program.failureMessage(value, frame) : "")")
        }
      }
    }
  }
}
