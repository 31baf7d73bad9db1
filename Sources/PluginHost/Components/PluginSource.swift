import PipelineCore
import Transport

/// A source of a plugin.
struct PluginSource: SourceComponent, LoadingSource, BoundComponent {
  var plugin: BoundPlugin

  init(_ plugin: BoundPlugin) { self.plugin = plugin }

  var outputType: EventType { EventType(offered.output) }
  var loads: Bool { offered.loads }
  var namesEvents: Bool { offered.names }
  var recovery: SourceRecovery { offered.resolved(arguments).recovery }
  func threads(_ limit: Int?) -> String? { "a thread of the plugin reads" }

  func makeSource(_ nodeContext: NodeContext, downstream: Downstream) -> RunningSource {
    Node(self, nodeContext, downstream)
  }

  final class Node: RunningSource, PluginSourceReceiver {
    private let parameters: PluginSource
    private var instance: (any PluginSourceInstance)?
    /// Wakes for the next attempt.
    private var again = Wake.none
    private let restarts: RestartPause
    /// The position after the last event that a turn has taken.
    private var position: [UInt8]?
    private let taken = PositionLedger<[UInt8]?>(nil)
    /// While a table waits for the source: the number of batches that the table has not stored, and whether the last
    /// batch has arrived.
    private var loading = (open: 0, isMarked: false)
    private var isDraining = false
    private var isSuspended = false
    private var share: PluginShare

    init(_ parameters: PluginSource, _ nodeContext: NodeContext, _ downstream: Downstream) {
      self.parameters = parameters
      // A table needs all rows at each start.
      isOfTable = nodeContext.execution.plan.tables.contains { $0.source == nodeContext.step }
      hasPositions = parameters.recovery == .position && !isOfTable
      share = PluginShare(nodeContext)
      restarts = nodeContext.pluginMeter?.kept { RestartPause() } ?? RestartPause()
      super.init(nodeContext, downstream: downstream)
    }

    private var label: String { nodeContext.label }
    private let hasPositions: Bool
    /// Whether a table is loaded from it.
    private let isOfTable: Bool

    override func begin() { open() }
    override func resume() { open() }

    private func open() {
      guard !isClosed, let maker = parameters.plugin.maker else { return }
      let instance = maker.makeSource(
        of: parameters.offered, PluginServices(nodeContext), InputQueue(nodeContext, gate: SemaphoreGate()))
      self.instance = instance
      share.set(isOpen: true, inHand: 0)
      instance.start(
        PluginOpening(
          step: label, pipeline: execution.plan.name, parameters: parameters.arguments,
          position: hasPositions ? position : nil), self)
    }

    // MARK: From the instance

    func take(_ sent: SentBatch, of instance: any PluginSourceInstance) {
      guard !isClosed, self.instance === instance else { return }
      sent.isTaken = true
      let batch = sent.batch
      restarts.works()
      if hasPositions {
        beginPiece(of: taken) { [self] in position }
      } else if !batch.tokens.isEmpty {
        let tokens = batch.tokens
        let meter = nodeContext.pluginMeter
        meter?.update { $0.inHand += tokens.count }
        executor.track(
          Ack { [weak instance] outcome in
            meter?.update { $0.inHand -= tokens.count }
            switch outcome {
            case .acknowledged: instance?.acknowledge(tokens, problem: nil)
            case .failed(let reason): instance?.acknowledge(tokens, problem: reason)
            }
          })
      }
      if isOfTable, isAwaitedByTable {
        loading.open += 1
        loading.isMarked = loading.isMarked || batch.isLoaded
        let (executor, node) = (executor, Weak(self))
        executor.track(Ack { _ in executor.post { node.object?.tableHasTakenOne() } })
      }
      let origin = Origin(source: origin.source, receivedAt: executor.wallTime, reply: origin.reply)
      arena.keep(origin)
      if let owner = batch.owner { arena.keep(owner) }
      var rejections = batch.rejections[...]
      var names = batch.names[...]
      for index in 0...batch.events.count {
        while let next = rejections.first, next.index <= index {
          rejections.removeFirst()
          next.input.withUnsafeBytes { rejectInput($0, next.message, origin: origin) }
        }
        guard index < batch.events.count, !isClosed else { break }
        var origin = origin
        if let name = names.first, name.index == index {
          names.removeFirst()
          if case .origin(let id)? = identity(name.name) {
            origin = origin.with(.event(id))
            arena.keep(origin)
          }
        }
        produce(batch.events[index], origin: origin)
      }
      if let reached = batch.position { position = reached }
    }

    private func tableHasTakenOne() {
      loading.open -= 1
      if loading.isMarked, loading.open == 0, !isClosed { hasLoaded() }
    }

    func ended(_ end: PluginSourceEnd, of instance: any PluginSourceInstance) {
      guard !isClosed, self.instance === instance else { return }
      self.instance = nil
      instance.release()
      share.set(isOpen: false, inHand: 0)
      switch end {
      // The next execution continues.
      case .complete where isSuspended, .died where isSuspended: break
      case .complete where isDraining: completeEarly()
      case .complete: finish()
      case .failed(let reason, let path):
        let at = parameters.arguments.location(path, parameters.offered) ?? nodeContext.location
        finish(failing: SignalFailure(.source, reason, at: at))
      case .died(let reason):
        if isDraining { return completeEarly() }
        let pause = restarts.ended(at: executor.now)
        execution.services.log(.warning, label, "\(reason); starting again in \(pause)")
        nodeContext.pluginMeter?.update { $0.restarts += 1 }
        again = wake(after: pause)
      case .refused(let reason, let path):
        let at = parameters.arguments.location(path, parameters.offered) ?? nodeContext.location
        endPipeline(because: SignalFailure(.plugin, reason, at: at))
      }
    }

    override func woke(_ token: Int) {
      again = .none
      open()
    }

    // MARK: The end

    override func drain() {
      guard let instance else { return completeEarly() }
      isDraining = true
      instance.stop()
    }

    override func suspend() {
      isSuspended = true
      instance?.stop()
    }

    override func stop() {
      cancelWake(&again)
      instance?.close()
      instance = nil
      share.set(isOpen: false, inHand: 0)
    }

    // MARK: State

    override var hasPosition: Bool { position != nil }

    override func save(_ state: inout StateWriter) {
      state.write(state.positions == .acknowledged ? taken.acknowledged : position)
    }

    override func restore(_ state: inout StateReader) throws(StateFault) {
      let restored: [UInt8]? = try state.read()
      position = hasPositions ? restored : nil
      taken.reset(to: position)
    }
  }
}
