import PipelineCore

/// `values`: events written in the pipeline file.
package struct Values: SourceComponent {
  package var list = LiteralParameter()
  package var every: TimeSpan?

  package init() {}

  package static let spec = ComponentSpec<Values>(
    "values",
    summary: "Sends values that are written in the pipeline file, then completes.",
    details: "Use it to try out chains, for fixed first events and for tests.",
    parameters: [
      .init("list", \.list, primary: true, required: true, "The events: a list, or one value."),
      .init(
        "every", \.every, range: 1...Int64.max,
        "The time from one event to the next; by default all are sent at once."),
    ],
    examples: [
      .snippet("three numbers", "values: [1, 2, 3]"),
      .snippet("one a second", "values: { list: [tick, tock], every: 1s }"),
    ],
    edges: EdgeCases(
      empty: "An empty list completes at once.", error: "", completion: "After the last value.",
      disposal: "Frees its timer; the remaining values are not sent."),
    persistence: .state(version: 1),
    lateness: .always("each value is sent once") { values, _ in values.every == nil ? "it keeps no time" : nil },
    knownAs: ["RxJS of, from", "Benthos generate"],
    useCases: [
      .init(.reading, "try a chain out with values of my own", "values: [1, 2, 3]"),
      .init(.reading, "send events at a fixed rate", "values: { list: [tick, tock], every: 1s }"),
    ],
    seeAlso: ["interval"])

  package var outputType: EventType {
    // The values may represent events of any kind, so expressions may read fields that are missing here.
    let type = ExpressionType.of(list.value.value).opened
    guard case .list(let element) = type else { return EventType(type) }
    return EventType(element)
  }

  package var runsOnVirtualTime: Bool { true }
  package var once: (any SourceComponent)? { self }
  package var recovery: SourceRecovery { .made }
  package var namesEvents: Bool { true }

  package var pace: EventPace? { every.map { .every($0) } }

  package var immediateValues: OwnedValue? { every == nil ? list.value : nil }

  package func makeSource(_ nodeContext: NodeContext, downstream: Downstream) -> RunningSource {
    Node(self, nodeContext, downstream)
  }

  final class Node: RunningSource {
    private let list: OwnedValue
    private let every: TimeSpan?
    private var next = 0
    private var timer = Wake.none
    /// The number of values that have been sent.
    private let sent = PositionLedger(0)

    init(_ parameters: Values, _ nodeContext: NodeContext, _ downstream: Downstream) {
      list = parameters.list.value
      every = parameters.every
      super.init(nodeContext, downstream: downstream)
    }

    private var count: Int { list.value.is(.list) ? list.value.elements.count : 1 }

    override func begin() {
      guard every == nil else {
        woke(0)
        return
      }
      beginPiece(of: sent) { self.next }
      while next < count, !isClosed { send() }
      finish()
    }

    private func send() {
      let value = list.value.is(.list) ? list.value.elements[next] : list.value
      next += 1
      produce(value, position: Int64(next - 1))
    }

    override func woke(_ token: Int) {
      timer = .none
      guard next < count else {
        finish()
        return
      }
      beginPiece(of: sent) { self.next }
      send()
      guard let every, next < count else {
        finish()
        return
      }
      timer = wake(after: every)
    }

    override func save(_ state: inout StateWriter) {
      state.write(state.positions == .acknowledged ? sent.acknowledged : next)
      state.write(timer)
    }

    override func restore(_ state: inout StateReader) throws(StateFault) {
      next = try state.read(in: 0...count)
      sent.reset(to: next)
      timer = try state.read()
    }

    override func stop() { cancelWake(&timer) }
  }
}

extension Values {
  package static func savedPositions(_ state: inout StateReader) throws(StateFault) -> [SavedPosition] {
    [SavedPosition(offset: Int64(try state.read(Int.self)), unit: "values")]
  }
}
