/// `combineLatest`: the newest of each.
struct CombineLatest: CombiningOperator {
  static let spec = ComponentSpec<CombineLatest>(
    "combineLatest",
    summary: "Sends the newest events of all inputs, each time one of them sends.",
    details: """
      Nothing is sent before every input has sent once. The event is a list in the order of the inputs; \
      `reduce` behind it sees them by name. It completes when all inputs have, even if one never sent; \
      an error of any ends it. Inputs that depend on one signal each make it fire: a signal combined \
      with itself sends twice for each of its events, at first with one old part.
      """,
    examples: [
      .marbles(
        "two inputs", "combineLatest: [a, b]", in: ["a": "-1|", "b": "---2-3-|"], out: "---p-q-|",
        values: ["p": "[1, 2]", "q": "[1, 3]"]),
      .marbles(
        "one signal twice", "combineLatest: { x: a, y: a }", in: ["a": "-1-2-|"], out: "-p-(qr)-|",
        values: ["p": "[1, 1]", "q": "[2, 1]", "r": "[2, 2]"]),
      .marbles(
        "reduced by name", "{ combineLatest: [a, b], chain: [ { reduce: a + b } ] }",
        in: ["a": "-1|", "b": "---2-3-|"], out: "---3-4-|"),
    ],
    keeps: "The newest event of each input.", carries: .state(version: 1),
    rivals: ["RxJS combineLatest", "Combine combineLatest"],
    seeAlso: ["zip", "merge", "reduce"])

  static let makesTuple = true

  func outputType(_ inputs: [EventType]) -> EventType { .dyn }

  func makeNode(_ seat: Seat, downstream: Downstream) -> OperatorNode {
    Node(seat, downstream: downstream)
  }

  final class Node: MultiInletNode {
    private var newest: [OwnedEvent?] = []
    private var missing = 0
    private var open = 0

    override func start() {
      newest = Array(repeating: nil, count: seat.inputs.count)
      missing = seat.inputs.count
      open = seat.inputs.count
      for (number, input) in seat.inputs.enumerated() {
        if isClosed { return }
        open(input, number: number)
      }
    }

    override func receive(_ event: Event, from inlet: Inlet) {
      if newest[inlet.number] == nil {
        newest[inlet.number] = OwnedEvent(event)
        missing -= 1
      } else {
        newest[inlet.number]?.assign(event, retiring: arena)
      }
      guard missing == 0 else { return }
      let list = arena.elements(newest.count)
      for index in newest.indices {
        list[index] = newest[index]?.event.value ?? .null
      }
      emit(event.with(Value(kind: .list, pointer: list.baseAddress, length: list.count)))
    }

    override func completed(_ inlet: Inlet) {
      drop(inlet)
      open -= 1
      if open == 0 { finish() }
    }

    override func save(_ state: inout StateWriter) {
      state.write(newest)
      state.write(open)
    }

    override func restore(_ state: inout StateReader) throws(StateFault) {
      newest = try state.read()
      open = try state.read(in: 0...seat.inputs.count)
      guard newest.count == seat.inputs.count else { throw StateFault("it has other inputs") }
      missing = newest.count { $0 == nil }
    }
  }
}
