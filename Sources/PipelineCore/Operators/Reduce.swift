/// `reduce`: one value from the parts that `combineLatest` or `zip` has combined.
struct Reduce: FusableOperator {
  var to = MappingParameter()
  private var count = 0

  init() {}

  static let changesValue = true

  static let seesParts = true

  static let spec = ComponentSpec<Reduce>(
    "reduce",
    summary: "Computes one value from the parts of a combineLatest or zip.",
    details: """
      Its variables are named after the inputs; no other step has them. It must follow `combineLatest` or `zip`, \
      directly or after steps that do not change the list, such as `filter`. This is ReactiveCocoa's reduce. To fold \
      over time, use `scan` or `aggregate`.
      """,
    parameters: [
      .init(
        "to", \.to, primary: true, required: true, whole: true,
        "The result: an expression or a mapping of expressions over the parts.")
    ],
    examples: [
      .marbles(
        "both at least three long",
        "{ combineLatest: [account, password], reduce: size(account) >= 3 && size(password) >= 3 }",
        in: ["account": "a-b|", "password": "-c-d|"], out: "-fft|",
        values: ["a": "an", "b": "ann", "c": "se", "d": "secret", "f": "false", "t": "true"])
    ],
    knownAs: ["ReactiveCocoa combineLatest:reduce:"],
    useCases: [
      .init(
        .combining, "compute one value from several signals",
        "{ combineLatest: { x: a, y: b }, chain: [ { reduce: x + y } ] }")
    ],
    seeAlso: ["combineLatest", "zip", "scan"])

  mutating func bind(_ binder: inout Binder) {
    guard let names = binder.inputs.first?.tuple else {
      binder.diagnostics.report(
        Diagnostic(
          .unsuitableReduce, "'reduce' must directly follow 'combineLatest' or 'zip'",
          at: binder.location,
          help:
            "To fold the events of a signal over time, use 'scan' (a value for each event) or 'aggregate' (one at the end)"
        ))
      return
    }
    count = names.count
    for name in names where !Self.isVariable(name) {
      binder.diagnostics.report(
        Diagnostic(
          .unsuitableReduce,
          name.hasPrefix("@")
            ? "an input has no name that 'reduce' could use"
            : "the input '\(name)' has a name that expressions cannot use",
          at: binder.location,
          help: "Name the inputs: 'combineLatest: { a: \(name.hasPrefix("@") ? "..." : name), b: ... }'"))
    }
  }

  private static func isVariable(_ name: String) -> Bool {
    name.utf8.allSatisfy { byte in
      byte == UInt8(ascii: "_") || (48...57).contains(byte) || (65...90).contains(byte)
        || (97...122).contains(byte)
    } && !["true", "false", "null", "in", "event", "meta", "now", "env"].contains(name)
  }

  func outputType(_ inputs: [EventType]) -> EventType { EventType(to.type) }

  func makeStep() -> FusedStep {
    guard let builder = to.makeBuilder() else { preconditionFailure("reduce was not bound") }
    return Step(builder, count)
  }

  final class Step: FusedStep {
    private let builder: ValueBuilder
    private let count: Int

    init(_ builder: ValueBuilder, _ count: Int) {
      self.builder = builder
      self.count = count
    }

    override func apply(_ event: inout Event, _ frame: EventFrame, _ run: FusedRun) -> StepVerdict {
      let parts = event.value.elements
      for index in 0..<min(count, parts.count) { frame.set(index, parts[index]) }
      var failing: Unmanaged<Program>?
      let value = builder.build(frame, &failing)
      if value.isError, let failing = failing?.takeUnretainedValue() {
        return failed(event, value, failing, frame, run)
      }
      event.value = value.is(.optional) ? value.wrapped ?? .null : value
      return .pass
    }
  }
}
