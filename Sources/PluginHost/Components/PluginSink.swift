internal import DequeModule
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

  /// An instance is given as many events as its pace allows, and answers each. The events of a batch are those that it is given in one turn.
  final class Connector: DeliveryConnector, PluginReceiver, TimerTarget {
    /// An event that the instance has been given and has not answered.
    private struct Given {
      var answer: DeliveryAnswer
      /// Its index in the batch.
      var index: Int
    }

    let traits: DeliveryTraits
    private let parameters: PluginSink
    private let nodeContext: NodeContext
    private let perEvent: PerEventArguments
    private lazy var frame = EventFrame.make(nodeContext)
    private var given = Deque<Given>()
    /// The number of the first element of `given`.
    private var first = 0
    /// What goes to the instance at the end of the turn.
    private var inputs: [PluginInput] = []
    /// With this answer the instance has requested all events from here on again.
    private var asking: DeliveryAnswer?
    private var isAgain = false
    /// How many events the last instance had when it ended: the next one gets that many at once, one by one.
    private var repeated = 0
    private var counted: PluginShare

    private var instance: (any PluginInstance)?
    /// Receives the end of the instance.
    private var connection: DeliveryAnswer?
    /// The completion has been handed over.
    private var completion: DeliveryAnswer?
    private var recovery = InstanceRecovery()
    private var watch = AnswerWatch()
    private var pace: AnswerPace

    init(_ parameters: PluginSink, _ nodeContext: NodeContext) {
      self.parameters = parameters
      self.nodeContext = nodeContext
      perEvent = PerEventArguments(parameters.offered, parameters.arguments)
      counted = PluginShare(nodeContext)
      pace = AnswerPace(of: parameters.plugin)
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
      traits.countsBytes = false
      self.traits = traits
    }

    /// Updates the current counts.
    private func updateCounts() { counted.set(isOpen: instance != nil, inHand: given.count) }

    func open(_ answer: DeliveryAnswer) -> Bool {
      guard let maker = parameters.plugin.maker else { return true }
      connection = answer
      let instance = maker.makeInstance(of: parameters.offered, PluginServices(nodeContext), self)
      self.instance = instance
      pace.restarted()
      updateCounts()
      instance.open(
        PluginOpening(
          step: nodeContext.label, pipeline: nodeContext.execution.plan.name, parameters: parameters.arguments,
          isRepeating: recovery.isRepeating))
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

    // MARK: To the instance

    var room: Int {
      // The next event must be the requested one.
      instance == nil || asking?.isFollowed == false ? 0 : max(pace.window, repeated) - given.count
    }

    func deliver(_ batch: DeliveryBatch, _ answer: DeliveryAnswer) {
      for (index, item) in batch.items.enumerated() {
        inputs.append(
          PluginInput(
            number: first + given.count, kind: .event, event: item.event, arguments: item.piece.values,
            wallTime: item.takenAt, time: item.since.nanoseconds, isAgain: isAgain))
        isAgain = false
        given.append(Given(answer: answer, index: index))
      }
    }

    func flush() {
      guard let instance, !inputs.isEmpty else { return }
      let inputs = inputs
      self.inputs = []
      repeated = 0
      pace.gave(first + given.count - 1, unanswered: given.count)
      updateCounts()
      instance.submit(inputs)
      instance.flush()
      if !watch.wake.isSet { wakeToCheck() }
    }

    func finish(_ answer: DeliveryAnswer) -> Bool {
      guard let instance else { return true }
      completion = answer
      instance.submit([PluginInput(number: first, kind: .complete)])
      instance.flush()
      return false
    }

    func close(handsOver: Bool) {
      instance?.close()
      instance = nil
      given = []
      updateCounts()
      stopChecking()
    }

    // MARK: From the instance

    func take(_ answers: [PluginAnswer]) {
      guard instance != nil else { return }
      if let completion, answers.contains(where: { $0.number == first }) { return completion.put(.answered()) }
      // Outcomes of the events of one batch are reported together.
      var (done, refused): ([Int], [DeliveryOutcome.Refused]) = ([], [])
      var batch: DeliveryAnswer?
      func report(next: DeliveryAnswer?) {
        if !done.isEmpty || !refused.isEmpty { batch?.put(.partly(done: done, refused: refused)) }
        (done, refused, batch) = ([], [], next)
      }
      for answer in answers {
        guard let next = given.first, answer.number == first else { continue }
        if next.answer !== batch { report(next: next.answer) }
        pace.answered(answer.number)
        switch answer.verdict {
        case .done: done.append(next.index)
        case .rejected(let message): refused.append(.init(next.index, message))
        case .again(let message):
          report(next: nil)
          next.answer.put(.down(message))
          // The events get new numbers, and answers to the old numbers are ignored.
          first += given.count
          given = []
          inputs = []
          isAgain = true
          asking = next.answer
          pace.interrupted()
          continue
        }
        recovery.answered()
        given.removeFirst()
        first += 1
      }
      report(next: nil)
      if given.isEmpty { stopChecking() }
      updateCounts()
    }

    func ended(_ end: PluginEnd) {
      instance = nil
      defer { updateCounts() }
      let log = nodeContext.execution.services.log
      if end.isFinal {
        let place = parameters.arguments.location(end.place, parameters.offered) ?? nodeContext.location
        connection?.put(.impossible(SignalFailure(.sink, end.reason, at: place)))
        return
      }
      if let completion { return completion.put(.answered()) }
      if recovery.ended(end), let number = end.suspect, number == first, let suspect = given.popFirst() {
        log(.error, nodeContext.label, "\(end.reason), for the third time with the same event")
        nodeContext.pluginMeter?.update { $0.poisoned += 1 }
        first += 1
        let reason = "the plugin ended three times when it was given the event: \(end.reason)"
        suspect.answer.put(.partly(refused: [.init(suspect.index, reason)]))
      }
      // The same events get the same numbers again.
      repeated = recovery.isRepeating ? given.count : 0
      given = []
      inputs = []
      stopChecking()
      connection?.put(.lost(after: end.pause))
    }

    // MARK: Whether it answers

    private func wakeToCheck() {
      let executor = nodeContext.execution.executor
      watch.wake = executor.schedule(at: executor.now + AnswerWatch.interval, self, 0)
    }

    private func stopChecking() {
      if watch.wake.isSet { nodeContext.execution.executor.unschedule(watch.wake) }
      watch.wake = .none
    }

    var mayGoOn: Bool { false }
    var timerKind: TimerKind { .output }

    func woke(_ token: Int) {
      watch.wake = .none
      guard !given.isEmpty else { return }
      if let message = watch.check(first) { nodeContext.execution.services.log(.warning, nodeContext.label, message) }
      wakeToCheck()
    }
  }
}
