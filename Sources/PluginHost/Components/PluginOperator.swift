internal import DequeModule
import PipelineCore

/// An operator of a plugin that answers in later turns.
struct PluginOperator: OperatorComponent, BoundComponent {
  var plugin: BoundPlugin

  init(_ plugin: BoundPlugin) { self.plugin = plugin }

  func outputType(_ inputs: [EventType]) -> EventType { EventType(offered.output) }

  func makeNode(_ nodeContext: NodeContext, downstream: Downstream) -> OperatorNode {
    Node(self, nodeContext, downstream)
  }

  /// Keeps each input until it is answered and, where the plugin has state, until a later state covers it. So a new
  /// instance can always continue: it is opened with the last state, and is given the inputs since then; answers that
  /// have been received before are ignored.
  final class Node: OperatorNode, PluginReceiver {
    private let parameters: PluginOperator
    private let perEvent: PerEventArguments
    private lazy var frame = makeFrame()

    private struct Entry {
      var input: PluginInput
      /// The bytes of the event.
      var bytes = 0
      /// Acknowledges the event to its source, if the source asked for that.
      var ack: Ack?
      /// Whether it holds `ack`; the last entry holds it for all entries before it with the same acknowledgement.
      var holds = false
      var isAnswered = false
    }
    /// Inputs in order; those before `answered` are kept only to restore the state.
    private var entries = Deque<Entry>()
    /// The number of entries at the start that are answered.
    private var answered = 0
    /// The number of entries at the start that have been given to the instance.
    private var submitted = 0
    /// The number of the first entry.
    private var first = 0
    /// The state that the instance last saved, which covers everything before the first entry.
    private var saved: [UInt8]?
    /// The spec version under which it was saved; an older one, until a new state is saved.
    private var savedVersion = 0
    private var sinceSave = 0

    private var instance: (any PluginInstance)?
    private var recovery = InstanceRecovery()
    private var watch = AnswerWatch()
    private var pace: AnswerPace
    private var timers: [(name: String, token: Int, wake: Wake)] = []
    private var nextToken = 1
    private var backlog = Backlog()
    /// The bytes of unanswered entries.
    private var waitingBytes = 0
    private var share: PluginShare
    private var isCrowded = false
    private var isFlushing = false

    /// The number of inputs after which the plugin is asked for its state.
    private static let saveInterval = 256
    /// The maximum number of answered inputs that are kept while the plugin saves no state.
    private static let mostUncovered = 16_384
    /// All instances of the step may together have this many times the credit of one unanswered before the input waits.
    private static let crowd = 8
    private static let reopens = 0
    private static let checks = -1

    init(_ parameters: PluginOperator, _ nodeContext: NodeContext, _ downstream: Downstream) {
      self.parameters = parameters
      perEvent = PerEventArguments(parameters.offered, parameters.arguments)
      share = PluginShare(nodeContext)
      pace = AnswerPace(of: parameters.plugin)
      super.init(nodeContext, downstream: downstream)
    }

    /// Only the plugin knows the outputs of its timers.
    override var outputTimers: [Wake]? { timers.map(\.wake) }

    private var label: String { nodeContext.label }
    private var hasState: Bool { parameters.offered.stateVersion > 0 }

    override func start() {
      open()
      super.start()
    }

    override func restored() {
      waitingBytes = entries[answered...].reduce(0) { $0 + $1.bytes }
      updateBacklog()
      open()
    }

    private func open() {
      // In a dry run the inputs belong to the running pipeline, and are not given to another process.
      guard !isClosed, !execution.isDryRun, let maker = parameters.plugin.maker else { return }
      let services = PluginServices(nodeContext)
      let instance: any PluginInstance
      if let standIn = execution.services.plugins, standIn.stands(for: parameters.offered.name) {
        instance = StubbedInstance(parameters.offered.name, standIn, executor, self)
      } else {
        instance = maker.makeInstance(of: parameters.offered, services, self)
      }
      self.instance = instance
      let repeated = recovery.isRepeating ? submitted : 0
      submitted = 0
      pace.restarted()
      updateCounts()
      instance.open(
        PluginOpening(
          step: label, pipeline: execution.plan.name, parameters: parameters.arguments, state: saved,
          stateVersion: savedVersion,
          isRepeating: recovery.isRepeating,
          isTest: services.isImmediate))
      submit(atLeast: repeated)
    }

    /// Updates the current counts.
    private func updateCounts() {
      let inHand = instance == nil ? 0 : max(0, submitted - answered)
      guard let all = share.set(isOpen: instance != nil, inHand: inHand) else { return }
      isCrowded = all > Self.crowd * parameters.offered.credit
    }

    /// The number of events that may wait. While the step is crowded, an instance gets no further event until it has answered.
    private var mostWaiting: Int { isCrowded ? 0 : 2 * parameters.offered.credit }

    private func updateBacklog() { backlog.update(entries.count - answered, mostWaiting, bytes: waitingBytes, self) }

    // MARK: Inputs

    override func receive(_ event: Event) {
      guard !isClosed else { return }
      do throws(PerEventArguments.Failure) {
        append(.event, OwnedEvent(event), try perEvent.values(event, frame), ackToHold)
      } catch {
        switch error {
        case .unreadable: reject(event, .eventNotReadable, error.message)
        case .failed: reject(event, .expressionFailed, error.message)
        }
      }
    }

    override func complete() { append(.complete, OwnedEvent(made(.null)), [], nil) }

    override func woke(_ token: Int) {
      if token == Self.checks {
        watch.wake = .none
        guard answered < submitted else { return }
        if let message = watch.check(first + answered) { execution.services.log(.warning, label, message) }
        watch.wake = wake(after: AnswerWatch.interval, Self.checks)
        return
      }
      guard token != Self.reopens else {
        recovery.wake = .none
        open()
        return
      }
      guard let index = timers.firstIndex(where: { $0.token == token }) else { return }
      append(.timer(timers.remove(at: index).name), OwnedEvent(made(.null)), [], nil)
    }

    private func append(_ kind: PluginInput.Kind, _ event: OwnedEvent, _ arguments: [OwnedValue], _ ack: Ack?) {
      sinceSave += 1
      let wantsState = hasState && sinceSave >= Self.saveInterval
      if wantsState { sinceSave = 0 }
      let input = PluginInput(
        number: first + entries.count, kind: kind, event: event, arguments: arguments, wallTime: executor.wallTime,
        time: executor.now.nanoseconds, wantsState: wantsState)
      let bytes = input.byteCount
      hold(ack)
      entries.append(Entry(input: input, bytes: bytes, ack: ack, holds: ack != nil))
      waitingBytes += bytes
      updateBacklog()
      flushLater()
    }

    /// Adds the acknowledgement of the next entry.
    private func hold(_ ack: Ack?) {
      guard let ack else { return }
      let last = entries.count - 1
      // Answers arrive in order, so that the last of them waits for all.
      if last >= answered, entries[last].ack === ack { entries[last].holds = false } else { ack.hold() }
    }

    /// Ties everything this turn emits for an answer to the acknowledgement of its event.
    private func goOn(_ index: Int) {
      guard let ack = entries[index].ack else { return }
      entries[index].ack = nil
      if followed === ack {
        if entries[index].holds { ack.release() }
        return
      }
      followed = ack
      if !entries[index].holds { ack.hold() }
      var held: Ack? = ack
      goOn(with: &held)
    }

    /// Hands all inputs of the turn over together.
    private func flushLater() {
      guard !isFlushing else { return }
      isFlushing = true
      execution.whenTurnEnds { [self] in
        isFlushing = false
        submit()
      }
    }

    /// - Parameter least: How many inputs the last instance had when it ended; the next one gets these one at a time.
    private func submit(atLeast least: Int = 0) {
      guard let instance, !isClosed else { return }
      let end = min(entries.count, max(submitted, answered + pace.window, least))
      // A new instance is given all answered inputs again: they are part of its state.
      guard submitted < end else { return }
      let inputs = (submitted..<end).map { entries[$0].input }
      submitted = end
      pace.gave(first + end - 1, unanswered: end - answered)
      updateCounts()
      instance.submit(inputs)
      if !watch.wake.isSet { watch.wake = wake(after: AnswerWatch.interval, Self.checks) }
    }

    // MARK: Answers

    func take(_ answers: [PluginAnswer]) {
      defer { followed = nil }
      for index in answers.indices {
        guard !isClosed else { return }
        take(answers[index])
      }
      forget()
      updateCounts()
      guard answered <= Self.mostUncovered else {
        let reason = "the plugin has not saved its state for \(Printable.count(answered, "input"))"
        return finish(failing: SignalFailure(.plugin, reason, at: nodeContext.location))
      }
      if answered == submitted { cancelWake(&watch.wake) }
      updateBacklog()
      submit()
    }

    private func take(_ answer: PluginAnswer) {
      let index = answer.number - first
      guard entries.indices.contains(index) else { return }
      if let state = answer.state { cover(state, index) }
      // The input was repeated for the state only, and its answer was already taken; but an instance that finishes sends no more answers.
      guard !entries[index].isAnswered else {
        if answer.finishes { end() }
        return
      }
      guard index == answered else { return }
      entries[index].isAnswered = true
      answered += 1
      pace.answered(answer.number)
      recovery.answered()
      let input = entries[index].input
      waitingBytes -= entries[index].bytes
      goOn(index)
      for timer in answer.timers { set(timer.name, timer.after) }
      if let owner = answer.owner { arena.keep(owner) }
      if case .rejected(let message) = answer.verdict {
        input.event.keep(in: arena)
        refuse(input.event.event, message, input.kind)
      } else if !answer.events.isEmpty {
        arena.keep(input)
        let event = input.event.event
        for value in answer.events { emit(event.with(value)) }
      }
      if case .complete = input.kind { finish() }
      if answer.finishes { end() }
    }

    func finishedAtOnce() { end() }

    /// The plugin has completed the output. Unanswered inputs are dropped.
    private func end() {
      guard !isClosed else { return }
      countDropped(
        entries[answered...].count { if case .event = $0.input.kind { true } else { false } })
      finish()
    }

    private func refuse(_ event: Event, _ message: String, _ kind: PluginInput.Kind) {
      switch kind {
      case .event: reject(event, .pluginRefusal, message)
      case .timer, .complete: finish(failing: SignalFailure(.plugin, message, at: nodeContext.location))
      }
    }

    /// The last acknowledgement that this turn has continued; nil between turns.
    private var followed: Ack?
    private var covered = 0

    /// The state covers everything up to the entry with this index.
    private func cover(_ state: [UInt8], _ index: Int) {
      saved = state
      savedVersion = parameters.offered.stateVersion
      covered = index + 1
    }

    /// Forgets answered entries that no new instance needs.
    private func forget() {
      let count = hasState ? min(covered, answered) : answered
      guard count > 0 else { return }
      entries.removeFirst(count)
      first += count
      answered -= count
      submitted -= count
      covered -= min(covered, count)
    }

    private func set(_ name: String, _ after: Int64?) {
      if let index = timers.firstIndex(where: { $0.name == name }) {
        var timer = timers.remove(at: index)
        cancelWake(&timer.wake)
      }
      guard let after, after >= 0 else { return }
      timers.append((name, nextToken, wake(after: TimeSpan(nanoseconds: after), nextToken)))
      nextToken += 1
    }

    // MARK: Ends of the instance

    func ended(_ end: PluginEnd) {
      instance = nil
      guard !isClosed else { return }
      defer { updateCounts() }
      if end.isFinal {
        let at = parameters.arguments.location(end.path, parameters.offered) ?? nodeContext.location
        execution.unhandled(SignalFailure(.plugin, end.reason, at: at))
        return
      }
      if recovery.ended(end), let number = end.suspect { giveUp(number - first, end.reason) }
      if !isClosed { recovery.wake = wake(after: end.pause, Self.reopens) }
    }

    /// The plugin has ended on this input three times in a row; no further instance receives it.
    private func giveUp(_ index: Int, _ reason: String) {
      guard entries.indices.contains(index) else { return }
      defer { followed = nil }
      execution.services.log(.error, label, "\(reason), for the third time with the same input")
      nodeContext.pluginMeter?.update { $0.poisoned += 1 }
      // An answered input that ends the plugin when repeated is left out of the replay that rebuilds the state.
      if index >= answered {
        var answer = PluginAnswer(number: first + index)
        answer.verdict = .rejected("the plugin ended three times when it was given the event: \(reason)")
        take(answer)
        guard !isClosed else { return }
      }
      remove(index)
      forget()
    }

    /// Removes an answered input from the replay for new instances.
    private func remove(_ index: Int) {
      entries.remove(at: index)
      answered -= 1
      if covered > index { covered -= 1 }
      for at in index..<entries.count { entries[at].input = entries[at].input.with(number: first + at) }
      submitted = 0
      pace.interrupted()
    }

    // MARK: The end

    override func stop() {
      instance?.close()
      instance = nil
      cancelWake(&recovery.wake)
      cancelWake(&watch.wake)
      for index in timers.indices { cancelWake(&timers[index].wake) }
      timers = []
      let left = entries
      entries = []
      answered = 0
      submitted = 0
      updateCounts()
      for var entry in left where entry.holds && entry.ack != nil { goOn(with: &entry.ack, isGivenUp: true) }
      backlog.cleared(mostWaiting, self)
    }

    // MARK: State

    override func save(_ state: inout StateWriter) {
      state.write(parameters.offered.plugin)
      state.write(saved)
      state.write(savedVersion)
      state.write(answered)
      state.write(each: entries) { state, entry in
        switch entry.input.kind {
        case .event:
          state.write(UInt8(0))
          state.write(entry.input.event)
          state.write(each: entry.input.arguments)
        case .timer(let name):
          state.write(UInt8(1))
          state.write(name)
        case .complete: state.write(UInt8(2))
        }
      }
      state.write(each: timers) { state, timer in
        state.write(timer.name)
        state.write(timer.token)
        state.write(timer.wake)
      }
      state.write(nextToken)
    }

    override func restore(_ state: inout StateReader) throws(StateFault) {
      _ = try state.read(String.self)
      saved = try state.read()
      savedVersion = try state.read(in: 0...parameters.offered.stateVersion)
      let answered = try state.read(in: 0...Int.max)
      for _ in 0..<(try state.count()) {
        let input: PluginInput
        switch try state.read(UInt8.self) {
        case 0:
          let event = try state.read(OwnedEvent.self)
          let arguments = try state.read([OwnedValue].self)
          guard arguments.count == perEvent.count else { throw StateFault("an event has other arguments") }
          input = PluginInput(number: entries.count, kind: .event, event: event, arguments: arguments)
        case 1: input = PluginInput(number: entries.count, kind: .timer(try state.read()))
        case 2: input = PluginInput(number: entries.count, kind: .complete)
        default: throw StateFault("an input has an unknown kind")
        }
        entries.append(
          Entry(input: input, bytes: input.byteCount, isAnswered: entries.count < answered))
      }
      guard answered <= entries.count else { throw StateFault("more inputs are answered than there are") }
      self.answered = answered
      for _ in 0..<(try state.count()) {
        timers.append((try state.read(), try state.read(), try state.read()))
      }
      nextToken = try state.read(in: 1...Int.max)
    }
  }
}
