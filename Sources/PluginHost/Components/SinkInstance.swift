internal import DequeModule
import PipelineCore
import Transport

/// The instance of a sink of a plugin, with the events that it has been given and has not answered: as many as its pace
/// allows. In a reload it is passed to the next version with them.
///
/// The events of a batch are those that it is given in one turn.
final class SinkInstance: PluginReceiver, TimerTarget {
  /// An event that the instance has been given and has not answered.
  private struct Given {
    var answer: DeliveryAnswer
    /// The event's index in the batch.
    var index: Int
    /// Whether the event was answered before an earlier one.
    var isAnswered = false
  }

  private let plugin: BoundPlugin
  private let step: String
  /// The node context of the version that has the instance. Not to be used between two versions.
  private var nodeContext: NodeContext
  private let route: PluginRoute
  private let services: PluginServices
  private var given = Deque<Given>()
  /// The number of the first element of `given`.
  private var first = 0
  /// The inputs that are passed to the instance at the end of the turn.
  private var inputs: [PluginInput] = []
  /// The answer with which the instance has requested a retry of all events from here on.
  private var asking: DeliveryAnswer?
  private var isAgain = false
  /// The number of unanswered events of the last instance when it ended: the next one gets that many at once, one by one.
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

  init(_ plugin: BoundPlugin, _ nodeContext: NodeContext) {
    self.plugin = plugin
    self.nodeContext = nodeContext
    step = nodeContext.label
    route = PluginRoute(to: nodeContext.execution.executor, isKept: true)
    services = PluginServices(nodeContext, route)
    counted = PluginShare(nodeContext)
    pace = AnswerPace(of: plugin)
  }

  deinit {
    instance?.close()
    route.end()
  }

  /// Updates the current counts.
  private func updateCounts() { counted.set(isOpen: instance != nil, inHand: given.count) }

  func open(_ maker: any PluginMaker, _ answer: DeliveryAnswer) {
    connection = answer
    let instance = maker.makeInstance(of: plugin.offered, services, self)
    self.instance = instance
    pace.restarted()
    updateCounts()
    instance.open(
      PluginOpening(
        step: step, pipeline: nodeContext.execution.plan.name, parameters: plugin.arguments,
        isRepeating: recovery.isRepeating))
  }

  // MARK: A reload

  /// Whether a step of the next version, with the same parameters, can continue with this instance: the plugin sees the
  /// same step, in the same program.
  func serves(_ other: BoundPlugin, _ nodeContext: NodeContext) -> Bool {
    step == nodeContext.label && plugin.maker?.file == other.maker?.file
  }

  /// The version that has the instance has ended: nothing is processed until ``goOn(_:)`` or ``close()``.
  func leave() {
    stopChecking()
    route.leave()
  }

  func goOn(_ nodeContext: NodeContext) {
    nodeContext.goOn(with: services.meter)
    finishBeside(nodeContext)
  }

  /// The next version has an instance of its own, and waits until this one has answered.
  func finishBeside(_ nodeContext: NodeContext) {
    self.nodeContext = nodeContext
    route.lead(to: nodeContext.execution.executor)
    if !given.isEmpty { wakeToCheck() }
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

  func close() {
    instance?.close()
    instance = nil
    given = []
    updateCounts()
    stopChecking()
    route.end()
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
      // A library answers the events of a batch in any order.
      let place = answer.number - first
      guard given.indices.contains(place), !given[place].isAnswered else { continue }
      let next = given[place]
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
      given[place].isAnswered = true
      while given.first?.isAnswered == true {
        given.removeFirst()
        first += 1
      }
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
      let location = plugin.arguments.location(end.path, plugin.offered) ?? nodeContext.location
      connection?.put(.impossible(SignalFailure(.sink, end.reason, at: location)))
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
