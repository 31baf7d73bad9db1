/// `catch`: continues with another signal after an error.
struct Catch: OperatorComponent {
  var with = SignalParameter()
  var value = MappingParameter()
  private var hasValue = false

  init() {}

  static let spec = ComponentSpec<Catch>(
    "catch",
    summary: "Continues with another signal when the signal fails.",
    details: """
      The other signal is `with`, a name or an inner signal, whose expressions see `error` with `error.kind`, \
      `error.message` and, for an HTTP response, `error.status`; or it is the single event `value`. An error of the \
      other signal is passed on.
      """,
    parameters: [
      .init("with", \.with, primary: true, "The signal to continue with."),
      .init("value", \.value, "One event to end with."),
    ],
    examples: [
      .marble("another signal", "catch: { with: { values: [2] } }", in: "-1#", out: "-1(2|)"),
      .marble(
        "one event", "catch: { value: error.message }", in: "-1#", out: "-1(m|)",
        values: ["m": "error"]),
    ],
    edges: EdgeCases(
      error: "Continues with the other signal, once; an error of that signal is passed on.",
      disposal: "Unsubscribes from upstream or from the replacement."),
    knownAs: ["RxJS catchError", "Combine catch"],
    useCases: [
      .init(.failing, "continue with something else after an error", "catch: { with: other }"),
      .init(.failing, "replace an error by a value", "catch: { value: \"{'error': error.message}\" }"),
    ],
    seeAlso: ["retry"])

  func validate(_ context: inout DecodingContext) {
    if with.isGiven == value.isGiven {
      context.diagnostics.report(
        Diagnostic(
          .conflictingParameters,
          with.isGiven ? "'catch' has both 'with' and 'value'" : "'catch' needs 'with' or 'value'",
          at: context.location,
          help: "Write 'catch: SIGNAL', 'catch: { with: { from: ... } }' or 'catch: { value: ... }'"))
    }
  }

  static let seesError = true

  func outputType(_ inputs: [EventType]) -> EventType { .dyn }

  func makeNode(_ nodeContext: NodeContext, downstream: Downstream) -> OperatorNode {
    Node(self, nodeContext, downstream)
  }

  final class Node: MultiInletNode {
    private let parameters: Catch
    private static let replacement = 1

    init(_ parameters: Catch, _ nodeContext: NodeContext, _ downstream: Downstream) {
      self.parameters = parameters
      super.init(nodeContext, downstream: downstream)
    }

    override func start() { open(nodeContext.inputs[0]) }

    override func completed(_ inlet: Inlet) { finish() }

    override func failed(_ inlet: Inlet, _ failure: SignalFailure) {
      drop(inlet)
      guard inlet.number != Self.replacement else {
        finish(failing: failure)
        return
      }
      let scope = nodeContext.scope.with(error: failure.value(in: arena))
      guard let builder = parameters.value.makeBuilder() else {
        open(parameters.with.required, number: Self.replacement, scope)
        return
      }
      let frame = EventFrame(nodeContext.segment, scope, execution)
      frame.loadNothing()
      var failing: Unmanaged<Program>?
      let value = builder.build(frame, &failing)
      if value.isError, let failing = failing?.takeUnretainedValue() {
        finish(
          failing: SignalFailure(
            .expression, failing.failureMessage(value, frame.frame),
            at: failing.failureLocation(value)))
        return
      }
      emit(made(value))
      finish()
    }
  }
}
