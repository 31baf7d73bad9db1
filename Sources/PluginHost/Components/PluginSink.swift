import PipelineCore
import Transport

/// A sink of a plugin.
struct PluginSink: SinkComponent, BoundComponent {
  var plugin: BoundPlugin

  init(_ plugin: BoundPlugin) { self.plugin = plugin }

  var confirmation: SinkConfirmation { offered.resolved(arguments).confirmation }
  var threads: String? { "a thread of the plugin writes" }

  func makeSink(_ nodeContext: NodeContext) -> RunningSink {
    Connector(self, nodeContext).sink(nodeContext)
  }

  /// Delivers through an instance, which goes to the next version in a reload.
  final class Connector: LastingConnector {
    let traits: DeliveryTraits
    private let parameters: PluginSink
    private let nodeContext: NodeContext
    private let perEvent: PerEventArguments
    private lazy var frame = EventFrame.make(nodeContext)
    private var instance: SinkInstance?

    init(_ parameters: PluginSink, _ nodeContext: NodeContext) {
      self.parameters = parameters
      self.nodeContext = nodeContext
      perEvent = PerEventArguments(parameters.offered, parameters.arguments)
      var traits = DeliveryTraits(
        DeliveryWords(
          "the plugin", recovered: "the plugin delivers again", failure: "failed attempt",
          left: "the plugin had not delivered"))
      traits.count = parameters.offered.credit
      traits.concurrency = parameters.offered.credit
      traits.order = .stream
      traits.queue = 4 * parameters.offered.credit
      traits.retry = Attempts(.milliseconds(500), most: .seconds(30))
      traits.shortensPauses = false
      traits.handsOver = true
      traits.countsBytes = false
      self.traits = traits
    }

    func open(_ answer: DeliveryAnswer) -> Bool {
      guard let maker = parameters.plugin.maker else { return true }
      let instance = self.instance ?? SinkInstance(parameters.plugin, nodeContext)
      self.instance = instance
      instance.open(maker, answer)
      return true
    }

    func dryRun() -> SignalFailure? {
      var failure = parameters.startFailure(isDryRun: true)
      failure?.location = nodeContext.location
      return failure
    }

    /// Version 1 stored the values of its parameters after each event. They are evaluated again.
    func formerEvents(_ state: inout StateReader) throws(StateFault) -> [OwnedEvent]? {
      guard state.version == 1 else { return nil }
      var events: [OwnedEvent] = []
      for _ in 0..<(try state.count()) {
        events.append(try state.read())
        _ = try state.read([OwnedValue].self)
      }
      return events
    }

    /// The values of the parameters that are evaluated for an event.
    func encode(_ event: Event) throws(DeliveryRefusal) -> DeliveryPiece {
      do throws(PerEventArguments.Failure) {
        let arguments = try perEvent.values(event, frame)
        return DeliveryPiece(.values(arguments), bytes: arguments.reduce(0) { $0 + $1.byteCount })
      } catch { throw DeliveryRefusal(error.message) }
    }

    var room: Int { instance?.room ?? 0 }
    func deliver(_ batch: DeliveryBatch, _ answer: DeliveryAnswer) { instance?.deliver(batch, answer) }
    func flush() { instance?.flush() }
    func finish(_ answer: DeliveryAnswer) -> Bool { instance?.finish(answer) ?? true }

    func close(handsOver: Bool) {
      if handsOver { instance?.leave() } else { retire() }
    }

    // MARK: A reload

    func goOn(with former: any LastingConnector) -> Bool {
      guard let former = former as? Connector, let instance = former.instance,
        instance.serves(parameters.plugin, nodeContext)
      else { return false }
      former.instance = nil
      instance.goOn(nodeContext)
      self.instance = instance
      return true
    }

    func finishBeside(_ nodeContext: NodeContext) { instance?.finishBeside(nodeContext) }

    func retire() {
      instance?.close()
      instance = nil
    }

    func end() -> (accepted: Int, wait: @Sendable () -> Void) {
      retire()
      return (0, {})
    }
  }
}
