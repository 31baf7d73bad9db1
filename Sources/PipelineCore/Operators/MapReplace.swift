/// `mapReplace`: replaces each event by a constant.
struct MapReplace: PureOperator {
  var value = LiteralParameter()

  static let changesValue = true

  static let spec = ComponentSpec<MapReplace>(
    "mapReplace",
    summary: "Replaces each event by a fixed value.",
    details: "The value is JSON written in YAML, not an expression; `map` takes expressions.",
    parameters: [
      .init("value", \.value, primary: true, required: true, whole: true, "What to send; may be null.")
    ],
    examples: [
      .marble("a text", "mapReplace: ok", in: "-1-2-|", out: "-o-o-|", values: ["o": "ok"]),
      .marble("an object", "mapReplace: { state: up }", in: "-1|", out: "-o|", values: ["o": "{state: up}"]),
    ],
    knownAs: ["RxJS mapTo"],
    useCases: [
      .init(.shaping, "send a fixed value in place of each event", "mapReplace: true")
    ],
    seeAlso: ["map", "startWith"])

  func outputType(_ inputs: [EventType]) -> EventType { .dyn }

  func makePureStep() -> PureStep { Step(value.value) }

  final class Step: PureStep {
    private let value: OwnedValue
    init(_ value: OwnedValue) { self.value = value }

    override func transform(_ value: inout Value, _ frame: EventFrame) -> PureVerdict {
      value = self.value.value
      return .pass
    }
  }
}
