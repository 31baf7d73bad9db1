internal import DequeModule
import PipelineCore

/// A sink of a plugin.
struct PluginSink: SinkComponent, BoundComponent {
  var plugin: BoundPlugin

  init(_ plugin: BoundPlugin) { self.plugin = plugin }

  var confirmation: SinkConfirmation { offered.resolved(arguments).confirmation }
  var threads: String? { "a thread of the plugin writes" }

  func makeSink(_ nodeContext: NodeContext) -> RunningSink { Node(self, nodeContext) }

  /// Keeps each event until the plugin has answered for it.
  final class Node: RunningSink, PluginReceiver, TimerTarget {
    private let parameters: PluginSink
    private let perEvent: PerEventArguments
    private lazy var frame = makeFrame()

    private struct Entry {
      var input: PluginInput
      var receipt: Receipt
      /// The plugin has answered.
      var isAnswered = false
      /// The receipt is acknowledged.
      var isAcknowledged = false
    }
    private var entries = Deque<Entry>()
    private var submitted = 0
    private var first = 0
    private var bytes = 0
    private var receipt: Receipt?
    private var counted: PluginShare

    private var instance: (any PluginInstance)?
    private var recovery = InstanceRecovery()
    private var watch = AnswerWatch()
    private var pace: AnswerPace
    /// Wakes to hand over undelivered events again.
    private var again = Wake.none
    private var pause = TimeSpan.milliseconds(500)
    private var isInTrouble = false
    /// The completion has been handed over.
    private var isCompleting = false
    private var isFinishing = false
    private var isOver = false
    private var isSuspending = false
    private var patience = Wake.none

    private static let reopens = 0
    private static let repeats = 1
    private static let waitsNoLonger = 2
    private static let checks = 3
    /// The memory of a waiting event beside its value.
    private static let bytesOfEntry = 256
    private static let longestPause = TimeSpan.seconds(30)
    private static let longestWait = TimeSpan.seconds(2)

    init(_ parameters: PluginSink, _ nodeContext: NodeContext) {
      self.parameters = parameters
      perEvent = PerEventArguments(parameters.offered, parameters.arguments)
      counted = PluginShare(nodeContext)
      pace = AnswerPace(of: parameters.plugin)
      super.init(nodeContext)
    }

    private var label: String { nodeContext.label }

    /// Updates the current counts.
    private func updateCounts() {
      counted.set(isOpen: instance != nil, inHand: instance == nil ? 0 : min(submitted, entries.count))
    }

    override func open() { openInstance() }

    override func dryRun() {
      guard var failure = parameters.startFailure(isDryRun: true) else { return }
      failure.location = nodeContext.location
      fail(because: failure)
    }

    private func openInstance() {
      // The next execution has an instance of its own.
      guard !isOver, !isSuspending, let maker = parameters.plugin.maker else { return }
      let instance = maker.makeInstance(of: parameters.offered, PluginServices(nodeContext), self)
      self.instance = instance
      let repeated = recovery.isRepeating ? submitted : 0
      submitted = 0
      pace.restarted()
      updateCounts()
      instance.open(
        PluginOpening(
          step: label, pipeline: execution.plan.name, parameters: parameters.arguments,
          isRepeating: recovery.isRepeating))
      submit(atLeast: repeated)
    }

    // MARK: Taking events in

    override func receive(_ event: Event) {
      guard !isOver else { return }
      let arguments: [OwnedValue]
      do throws(PerEventArguments.Failure) {
        arguments = try perEvent.values(event, frame)
      } catch { return reject(event, error.message) }
      let input = makeInput(OwnedEvent(event), arguments)
      let receipt = take(1, bytes: input.byteCount + Self.bytesOfEntry, joining: receipt)
      self.receipt = receipt
      append(input, receipt)
      updatePressure()
    }

    /// The input that comes next.
    private func makeInput(_ event: OwnedEvent, _ arguments: [OwnedValue]) -> PluginInput {
      PluginInput(
        number: first + entries.count, kind: .event, event: event, arguments: arguments, wallTime: executor.wallTime,
        time: executor.now.nanoseconds)
    }

    private func append(_ input: PluginInput, _ receipt: Receipt) {
      bytes += input.byteCount
      entries.append(Entry(input: input, receipt: receipt))
    }

    private func updatePressure() {
      bound(entries.count, 4 * parameters.offered.credit)
    }

    override func turnEnded() { submit() }

    /// - Parameter least: So many were given to the last instance, which has ended: they go to the next one one at a time.
    private func submit(atLeast least: Int = 0) {
      guard let instance, !isOver, !again.isSet else { return }
      var end = min(entries.count, max(submitted, pace.window, least))
      // Of a pipeline that is being suspended only what no state can hold, because its sender waits for an answer.
      if isSuspending { end = min(end, (entries.lastIndex { $0.receipt.notifiesSender } ?? -1) + 1) }
      if submitted < end {
        let inputs = (submitted..<end).map { entries[$0].input }
        submitted = end
        pace.gave(first + end - 1, unanswered: end)
        updateCounts()
        instance.submit(inputs)
        instance.flush()
        if !watch.wake.isSet {
          watch.wake = executor.schedule(at: executor.now + AnswerWatch.interval, self, Self.checks)
        }
      }
      guard isFinishing, entries.isEmpty, !isCompleting else { return }
      isCompleting = true
      instance.submit([PluginInput(number: first, kind: .complete)])
      instance.flush()
    }

    // MARK: Answers

    func take(_ answers: [PluginAnswer]) {
      var delivered = 0
      for answer in answers where !isOver {
        if isCompleting, answer.number == first, entries.isEmpty {
          over()
          return
        }
        let index = answer.number - first
        guard entries.indices.contains(index), !entries[index].isAnswered else { continue }
        pace.answered(answer.number)
        switch answer.verdict {
        case .done:
          entries[index].isAnswered = true
          delivered += 1
          works()
        case .rejected(let message):
          entries[index].isAnswered = true
          works()
          let entry = entries[index]
          entry.input.event.keep(in: executor.arena)
          reject(entry.input.event.event, message, on: entry.receipt)
          entries[index].isAcknowledged = true
        case .again(let message):
          forget()
          fails(message)
          handOverAgain()
        }
      }
      countSent(delivered)
      forget()
      if submitted == 0 { unset(&watch.wake) }
      updateCounts()
      updatePressure()
      submit()
      if hasNothingInHand { waitNoLonger() }
    }

    /// Acknowledges and removes answered events, from the first on.
    private func forget() {
      var count = 0
      while count < entries.count, entries[count].isAnswered {
        let entry = entries[count]
        bytes -= entry.input.byteCount
        if !entry.isAcknowledged { entry.receipt.acknowledge(1) }
        count += 1
      }
      entries.removeFirst(count)
      first += count
      submitted = max(0, submitted - count)
    }

    /// Gives unanswered inputs new numbers and hands them over again, in order.
    private func handOverAgain() {
      first += submitted
      pace.interrupted()
      for index in entries.indices {
        entries[index].input = entries[index].input.with(number: first + index, isAgain: index == 0)
      }
      submitted = 0
    }

    private func works() {
      recovery.answered()
      pause = .milliseconds(500)
      if isInTrouble {
        isInTrouble = false
        trouble.ends()
        execution.services.log(.info, label, "the plugin delivers again")
      }
    }

    private func fails(_ message: String) {
      countRetry()
      trouble.begins(message)
      if !isInTrouble {
        isInTrouble = true
        execution.services.log(.warning, label, "\(message); trying again")
      }
      guard !again.isSet else { return }
      again = executor.schedule(at: executor.now + pause, self, Self.repeats)
      pause = min(pause.scaled(by: 2), Self.longestPause)
    }

    func woke(_ token: Int) {
      switch token {
      case Self.reopens:
        recovery.wake = .none
        openInstance()
      case Self.repeats:
        again = .none
        if instance == nil { openInstance() } else { submit() }
      case Self.checks:
        watch.wake = .none
        guard submitted > 0 else { return }
        if let message = watch.check(first) { execution.services.log(.warning, label, message) }
        watch.wake = executor.schedule(at: executor.now + AnswerWatch.interval, self, Self.checks)
      default:
        patience = .none
        execution.release()
      }
    }

    func ended(_ end: PluginEnd) {
      instance = nil
      guard !isOver else { return }
      defer { updateCounts() }
      if isSuspending { return waitNoLonger() }
      if end.isFinal {
        let at = parameters.arguments.location(end.place, parameters.offered) ?? nodeContext.location
        fail(because: SignalFailure(.sink, end.reason, at: at))
        cancel()
        return
      }
      if entries.isEmpty, isCompleting { return over() }
      guard entries.isEmpty || submitted > 0 || !again.isSet else { return }
      if recovery.ended(end), let number = end.suspect {
        execution.services.log(.error, label, "\(end.reason), for the third time with the same event")
        nodeContext.pluginMeter?.update { $0.poisoned += 1 }
        var answer = PluginAnswer(number: number)
        answer.verdict = .rejected("the plugin ended three times when it was given the event: \(end.reason)")
        take([answer])
      }
      if !isOver { recovery.wake = executor.schedule(at: executor.now + end.pause, self, Self.reopens) }
    }

    // MARK: The end

    override func finish() {
      isFinishing = true
      submit()
    }

    private func over() {
      _ = close()
      drained()
    }

    override var queued: PipelineStatistics.Queue? {
      PipelineStatistics.Queue(
        events: entries.count { !$0.isAnswered }, bytes: bytes, inFlight: min(submitted, entries.count),
        oldest: entries.first.map { executor.now - Instant(nanoseconds: $0.input.time) })
    }

    override var awaitsAnswers: Bool { !isOver && !entries.isEmpty }

    /// Releases everything; returns the unanswered events.
    private func close() -> [Entry] {
      guard !isOver else { return [] }
      isOver = true
      instance?.close()
      instance = nil
      unset(&again)
      unset(&recovery.wake)
      unset(&watch.wake)
      waitNoLonger()
      forget()
      let left = Array(entries.filter { !$0.isAnswered })
      entries = []
      submitted = 0
      updateCounts()
      bytes = 0
      updatePressure()
      return left
    }

    override func rejectRemaining() -> Bool {
      let left = close()
      var rejected = 0
      for entry in left {
        if entry.receipt.notifiesSender {
          entry.receipt.acknowledge(1, .failed("the plugin had not delivered it when the pipeline ended"))
        } else {
          rejected += 1
          entry.input.event.keep(in: executor.arena)
          reject(
            entry.input.event.event, "the plugin had not delivered the event when the pipeline ended",
            on: entry.receipt)
        }
      }
      return rejected > 0
    }

    override func cancel() {
      let left = close()
      // A receipt knows its senders until it is acknowledged.
      let lost = left.count { !$0.receipt.notifiesSender }
      for entry in left {
        entry.receipt.acknowledge(1, .failed("the plugin had not delivered it when the pipeline ended"))
      }
      guard !left.isEmpty else { return }
      execution.services.log(
        .warning, label,
        "the plugin had not delivered \(left.count) event\(left.count == 1 ? "" : "s") when the pipeline ended")
      countUndelivered(lost)
    }

    override func willSuspend() {
      isSuspending = true
      guard !isOver, !hasNothingInHand else { return }
      execution.hold()
      patience = executor.schedule(at: executor.now + Self.longestWait, self, Self.waitsNoLonger)
    }

    /// The next execution gives the plugin what it has not been given.
    private var hasNothingInHand: Bool { submitted == 0 || instance == nil }

    private func waitNoLonger() {
      guard patience.isSet else { return }
      unset(&patience)
      execution.release()
    }

    override func suspend() {
      for entry in close() {
        // Events that the state does not hold are sent again by their sender.
        entry.receipt.acknowledge(
          1, entry.receipt.notifiesSender ? .failed("the pipeline was suspended") : .acknowledged)
      }
    }

    private func unset(_ timer: inout Wake) {
      if timer.isSet { executor.unschedule(timer) }
      timer = .none
    }

    // MARK: State

    override func save(_ state: inout StateWriter) {
      let kept = entries.filter { !$0.isAnswered && !$0.receipt.notifiesSender }
      state.write(each: kept) { state, entry in
        state.write(entry.input.event)
        state.write(each: entry.input.arguments)
      }
    }

    override func restore(_ state: inout StateReader) throws(StateFault) {
      var restored: [(event: OwnedEvent, arguments: [OwnedValue])] = []
      for _ in 0..<(try state.count()) { restored.append((try state.read(), try state.read([OwnedValue].self))) }
      // The parameters may have changed, so the events are evaluated again.
      if state.hasOtherParameters, !perEvent.isEmpty {
        for index in restored.indices {
          if let arguments = try? perEvent.values(restored[index].event.event, frame) {
            restored[index].arguments = arguments
          }
        }
      }
      for one in restored {
        let input = makeInput(one.event, one.arguments)
        append(input, takeBack(1, bytes: input.byteCount + Self.bytesOfEntry))
      }
      updatePressure()
    }
  }
}
