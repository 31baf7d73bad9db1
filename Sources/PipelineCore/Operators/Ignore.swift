/// `ignore`: drops events with a given value.
struct Ignore: PureOperator {
  var value = LiteralParameter()

  static let spec = ComponentSpec<Ignore>(
    "ignore",
    summary: "Drops the events that are equal to a value.",
    details: "Values are compared by content: `1` and `1.0` are equal, `1` and `\"1\"` are not.",
    parameters: [
      .init("value", \.value, primary: true, required: true, whole: true, "What to drop; may be null.")
    ],
    examples: [
      .marble("without the ones", "ignore: 1", in: "1-2-1-3|", out: "--2---3|"),
      .marble("without nulls", "ignore: null", in: "n-1-n|", out: "--1--|", values: ["n": "null"]),
      .marble("a number is not a text", "ignore: '1'", in: "1-s|", out: "1--|", values: ["s": "'1'"]),
    ],
    knownAs: ["RxJS filter", "ReactiveCocoa ignore:"],
    useCases: [
      .init(.choosing, "drop one particular value", "ignore: null")
    ],
    seeAlso: ["filter", "distinctUntilChanged"])

  func makePureStep() -> PureStep { Step(value.value) }

  final class Step: PureStep {
    private let value: OwnedValue
    init(_ value: OwnedValue) { self.value = value }

    override func transform(_ value: inout Value, _ frame: EventFrame) -> PureVerdict {
      frame.areEqual(value, self.value.value) ? .drop : .pass
    }
  }
}
