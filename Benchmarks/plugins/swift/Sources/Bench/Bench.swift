import RxdPlugin

// Two operators that pass one event in a hundred, as `filter: event.n % 100 == 0` does: a row operator, and one with batches.

private func passes(_ value: Value) -> Bool { value["n"].asInt % 100 == 0 }

struct BenchRow: PureOperator {
  static let spec = ComponentSpec<BenchRow>("benchRowSwift", summary: "Passes one event in a hundred.")

  func makePureStep() -> PureStep { Step() }

  final class Step: PureStep {
    override func transform(_ value: inout Value, _ frame: EventFrame) -> PureVerdict { passes(value) ? .pass : .drop }
  }
}

struct BenchBatch: OperatorComponent {
  static let spec = ComponentSpec<BenchBatch>("benchBatchSwift", summary: "Passes one event in a hundred.")

  func makeNode(_ nodeContext: NodeContext, downstream: Downstream) -> OperatorNode {
    Node(nodeContext, downstream: downstream)
  }

  final class Node: OperatorNode {
    override func receive(_ event: Event) { if passes(event.value) { emit(event) } }
  }
}

@_cdecl("rxd_swift_plugin")
public func plugin() -> UnsafeMutableRawPointer {
  Plugin(
    "bench-swift", version: "1", summary: "For measuring.",
    [CatalogueEntry(row: BenchRow.self), CatalogueEntry(operator: BenchBatch.self)]
  ).handle
}
