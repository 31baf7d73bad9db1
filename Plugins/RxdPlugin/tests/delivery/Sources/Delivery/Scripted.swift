import RxdPlugin

/// Delivers events `{ id, do }` as `do` says, and logs the ids of each batch.
struct Scripted: SinkComponent {
  var count = 1000
  var bytes = 1_000_000

  static let spec = ComponentSpec<Scripted>(
    "scripted", summary: "Does as its events say.",
    parameters: [
      .init("count", \.count, range: 1...1000, "The most events of a batch."),
      .init("bytes", \.bytes, range: 1...1_000_000, "The most bytes of a batch."),
    ])

  func makeSink(_ nodeContext: NodeContext) -> RunningSink { DeliverySink(Connector(self, nodeContext), nodeContext) }

  struct Unknown: Error {}

  final class Connector: DeliveryConnector {
    let traits: DeliveryTraits
    private let nodeContext: NodeContext

    init(_ parameters: Scripted, _ nodeContext: NodeContext) {
      traits = DeliveryTraits(count: parameters.count, bytes: parameters.bytes)
      self.nodeContext = nodeContext
    }

    func open() { nodeContext.log(.info, "open") }
    func close() { nodeContext.log(.info, "close") }

    func encode(_ event: Event, _ frame: EventFrame) throws(DeliveryRefusal) -> [UInt8] {
      guard event.value["do"].text != "encode" else { throw DeliveryRefusal("it has no form") }
      return Array("0123456789".utf8)
    }

    func deliver(_ batch: DeliveryBatch<[UInt8]>) throws -> DeliveryOutcome {
      nodeContext.log(.info, batch.items.map { $0.event.value["id"].json }.joined(separator: " "))
      let orders = batch.items.map { $0.event.value["do"].text ?? "" }
      func all(_ order: String) -> [Int] { orders.indices.filter { orders[$0] == order } }
      if orders.contains("throw") { throw Unknown() }
      if orders.contains("fail") { throw SignalFailure(.sink, "nobody is there") }
      if orders.contains("down") { return .again("the server is away") }
      if orders.contains("broken") { return .broken(SignalFailure(.sink, "the password is wrong")) }
      if orders.contains("poison") { return .refused("the batch is refused") }
      if orders.contains("outside") { return .answered(again: [orders.count]) }
      if let twice = all("twice").first { return .answered(again: [twice], refused: [.init(twice, "no")]) }
      return .answered(again: all("again"), refused: all("refuse").map { .init($0, "refused") }, reason: "busy")
    }
  }
}

@_cdecl("rxd_swift_plugin")
public func plugin() -> UnsafeMutableRawPointer {
  Plugin("delivery", version: "1.0.0", summary: "For a test.", [CatalogueEntry(sink: Scripted.self)]).handle
}
