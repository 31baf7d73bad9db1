internal import DequeModule
import PipelineCore
import Synchronization
import Transport

/// A running program with all instances of one step. Its inputs have one order, because the ids of all instances ascend.
///
/// It lives as long as its process. The state of a step between processes is in its ``ProgramSlot``.
final class SharedProgram: FrameHandler, @unchecked Sendable {
  private let plugin: ProcessPlugin
  private let process: PluginProcess
  private let spec: PluginComponentSpec
  private let perEvent: [PluginParameter]
  private let services: PluginServices
  private let slot: ProgramSlot

  /// An input or request that awaits an answer.
  private struct Awaited {
    enum Kind {
      case input
      /// The state after the input.
      case state
      /// The input could not be handed over.
      case failed(String)
    }
    var id: Int
    var instance: ProcessInstance
    var number: Int
    var kind: Kind
  }
  private struct Shared {
    /// The instances, by their numbers in frames.
    var instances: [Int: ProcessInstance] = [:]
    var lastInstance = 0
    var lastID = 0
    var awaited = Deque<Awaited>()
    /// Inputs held back during the search for the one that ends the program.
    var waiting = Deque<(instance: ProcessInstance, input: PluginInput)>()
    /// The number of next inputs that may have ended the last process: they are handed over one at a time.
    var suspects = 0
    /// When the first unanswered input was submitted, or the last answer arrived.
    var since: Int64 = 0
    var isOver = false
    var writer = FrameWriter()
  }
  private let shared = Mutex(Shared())
  // Used on the thread of the program.
  /// Answers that are complete.
  private var complete = Deliveries()
  private var hasNotedLate = false

  init(
    _ plugin: ProcessPlugin, _ process: PluginProcess, _ spec: PluginComponentSpec, _ services: PluginServices,
    _ slot: ProgramSlot
  ) {
    self.plugin = plugin
    self.process = process
    self.spec = spec
    self.services = services
    self.slot = slot
    perEvent = spec.perEvent
    process.handler = self
  }

  deinit {
    plugin.left()
    if services.isImmediate { process.destroy() }
  }

  // MARK: In turns

  /// Starts the program; its instances are notified of the result.
  func start() {
    if services.isImmediate {
      do throws(PluginFault) { try process.start() } catch { cannotStart(error.message) }
      return
    }
    do throws(PosixError) {
      _ = try OwnThread("rxd plugin", stackBytes: 1 << 20) { [self] in
        do throws(PluginFault) {
          try process.start()
          process.run()
        } catch { cannotStart(error.message) }
      }
    } catch {
      ended("the plugin cannot get a thread: \(error.message)", isFinal: false)
    }
  }

  private func cannotStart(_ reason: String) { ended(reason, isFinal: true) }

  /// Opens an instance; false: the program is ending.
  func join(_ instance: ProcessInstance, _ opening: PluginOpening) -> Bool {
    shared.withLock { shared in
      guard !shared.isOver else { return false }
      shared.lastInstance += 1
      instance.number = shared.lastInstance
      shared.instances[instance.number] = instance
      shared.writer.buffer.clear()
      shared.writer.open(opening, spec, instance: instance.number)
      process.send(shared.writer.buffer.bytes)
      return true
    }
  }

  /// - Parameter areSuspects: Whether the inputs were already given to a process that has ended.
  func submit(_ inputs: ArraySlice<PluginInput>, of instance: ProcessInstance, areSuspects: Bool) {
    let failed = shared.withLock { shared -> Deliveries in
      guard !shared.isOver, !instance.isOver else { return Deliveries() }
      if areSuspects { shared.suspects += inputs.count }
      shared.writer.buffer.clear()
      if shared.suspects == 0, shared.waiting.isEmpty {
        for input in inputs { hand(input, instance, &shared) }
      } else {
        for input in inputs { shared.waiting.append((instance, input)) }
        advance(&shared)
      }
      if shared.writer.buffer.count > 0 { process.send(shared.writer.buffer.bytes) }
      var failed = Deliveries()
      takeFailed(&shared, &failed)
      return failed
    }
    deliver(failed)
    // A sink may answer only after the flush, which follows.
    if services.isImmediate, spec.kind != .sink { pump() }
  }

  /// In tests: waits for the answers.
  func pump() {
    while shared.withLock({ Self.first($0) != nil || !$0.waiting.isEmpty && !$0.isOver }) || process.isEnding,
      process.step(until: nil)
    {}
  }

  /// In tests: waits until the instance is opened or refused, which may complete its output.
  func pump(opening instance: ProcessInstance) {
    guard services.isImmediate else { return }
    while !instance.isOpeningAnswered, shared.withLock({ !$0.isOver }), process.step(until: nil) {}
  }

  func flush(_ instance: ProcessInstance) {
    shared.withLock { shared in
      shared.writer.buffer.clear()
      shared.writer.appendFlush(instance.number)
      process.send(shared.writer.buffer.bytes)
    }
    if services.isImmediate { pump() }
  }

  /// Drops the inputs of an instance, which are given again: a sink has asked for a pause.
  func forget(_ instance: ProcessInstance) {
    shared.withLock { shared in
      shared.awaited.removeAll { $0.instance === instance }
      shared.waiting.removeAll { $0.instance === instance }
    }
  }

  /// The instance gets no further input. The program ends with the turn in which its last instance ends.
  func leave(_ instance: ProcessInstance) {
    let isEmpty = shared.withLock { shared -> Bool in
      guard shared.instances.removeValue(forKey: instance.number) != nil, !shared.isOver else { return false }
      drop(waitingFor: instance, &shared)
      shared.writer.buffer.clear()
      shared.writer.buffer.append("{\"close\":\(instance.number)}\n")
      advance(&shared)
      process.send(shared.writer.buffer.bytes)
      return shared.instances.isEmpty
    }
    process.forget(instance: instance.number)
    guard isEmpty else { return }
    // An inner signal that replaces another one opens its instance in the same turn.
    let leaving = Leaving(self)
    services.route.postAfterTurn { leaving.isOver() }
  }

  /// Ends the program if it has no instance, even if no further turn runs.
  private final class Leaving: Sendable {
    private let program: SharedProgram
    init(_ program: SharedProgram) { self.program = program }
    func isOver() {}
    deinit { program.endIfEmpty() }
  }

  private func endIfEmpty() {
    let isEmpty = shared.withLock { shared in
      guard shared.instances.isEmpty, !shared.isOver else { return false }
      shared.isOver = true
      return true
    }
    guard isEmpty else { return }
    process.close()
    if services.isImmediate { while process.step(until: nil) {} }
  }

  // MARK: Under the lock

  /// Waiting inputs are no longer submitted to the instance.
  private func drop(waitingFor instance: ProcessInstance, _ shared: inout Shared) {
    guard !shared.waiting.isEmpty else { return }
    let before = shared.waiting.count
    shared.waiting.removeAll { $0.instance === instance }
    shared.suspects = max(0, shared.suspects - (before - shared.waiting.count))
  }

  /// Writes the waiting inputs that may be handed over now. A sink may collect inputs for a batch, so a flush follows: without it the sink would
  /// wait for inputs that are held back.
  private func advance(_ shared: inout Shared) {
    var given: Set<Int> = []
    while !shared.waiting.isEmpty, shared.suspects == 0 || Self.first(shared) == nil {
      let next = shared.waiting.removeFirst()
      hand(next.input, next.instance, &shared)
      given.insert(next.instance.number)
    }
    guard spec.kind == .sink else { return }
    for number in given.sorted() { shared.writer.appendFlush(number) }
  }

  private func hand(_ input: PluginInput, _ instance: ProcessInstance, _ shared: inout Shared) {
    if shared.awaited.isEmpty { shared.since = monotonicNow() }
    shared.lastID += 1
    if let problem = shared.writer.append(input, id: shared.lastID, to: instance.number, spec, perEvent) {
      shared.awaited.append(
        Awaited(id: shared.lastID, instance: instance, number: input.number, kind: .failed(problem)))
      return
    }
    shared.awaited.append(Awaited(id: shared.lastID, instance: instance, number: input.number, kind: .input))
    guard input.wantsState else { return }
    shared.lastID += 1
    shared.writer.appendSave(id: shared.lastID, to: instance.number)
    shared.awaited.append(Awaited(id: shared.lastID, instance: instance, number: input.number, kind: .state))
  }

  /// The first input whose answer is needed.
  private static func first(_ shared: Shared) -> Awaited? { shared.awaited.first { !$0.instance.isOver } }

  private func countAnswer(_ shared: inout Shared) {
    shared.since = monotonicNow()
    if shared.suspects > 0 { shared.suspects -= 1 }
    if shared.suspects == 0 { slot.restarts.works() }
  }

  /// Inputs that could not be handed over and are next.
  private func takeFailed(_ shared: inout Shared, _ found: inout Deliveries) {
    while let first = shared.awaited.first, case .failed(let message) = first.kind {
      shared.awaited.removeFirst()
      countAnswer(&shared)
      found.add(PluginAnswer(number: first.number, verdict: .rejected(message)), first.instance)
    }
  }

  // MARK: Answers

  /// Answers on their way to their nodes, grouped by instance.
  private struct Deliveries {
    var parts: [(instance: ProcessInstance, answers: [PluginAnswer])] = []

    mutating func add(_ answer: PluginAnswer, _ instance: ProcessInstance) {
      // No copy of the last part may exist here: appending would then copy all of its answers.
      if parts.last?.instance === instance {
        parts[parts.count - 1].answers.append(answer)
      } else {
        parts.append((instance, [answer]))
      }
    }
  }

  private func deliver(_ found: Deliveries) {
    guard !found.parts.isEmpty else { return }
    services.route.post { for part in found.parts { part.instance.take(part.answers) } }
  }

  // MARK: On the thread of the program

  var waitingSince: Int64? { shared.withLock { Self.first($0) == nil ? nil : $0.since } }

  func take(_ frame: Value, _ block: LineBlock) -> String? {
    let opened = frame["opened"]
    if !opened.isAbsent { return take(opened: opened, frame) }
    let id = frame["id"]
    if id.is(.int) { return answer(Int(id.asInt), frame, block) }
    let through = frame["through"]
    if through.is(.int) { return answer(through: Int(through.asInt)) }
    return "it has sent a frame that the contract does not define"
  }

  private func take(opened: Value, _ frame: Value) -> String? {
    guard opened.is(.int) else { return "'opened' is not the number of an instance" }
    let number = Int(opened.asInt)
    let (instance, isKnown) = shared.withLock { ($0.instances[number], (1...max(1, $0.lastInstance)).contains(number)) }
    guard isKnown else { return "it has opened \(number), which was not requested" }
    // The instance has been closed meanwhile and needs no answer.
    guard let instance else { return nil }
    instance.isOpeningAnswered = true
    guard frame["error"].is(.string) else {
      instance.isOpen = true
      if frame["finish"].isTrue, spec.kind == .operator {
        shared.withLock { finish(instance, &$0) }
        services.route.post { instance.finishedAtOnce() }
      }
      return nil
    }
    let end = PluginEnd(
      reason: "the plugin refuses: \(Printable.cut(frame["error"].text, limit: 500))", path: frame["at"].text,
      isFinal: true)
    services.route.post { instance.hear(end) }
    return nil
  }

  private func answer(_ id: Int, _ frame: Value, _ block: LineBlock) -> String? {
    let awaited = shared.withLock { shared -> Awaited? in
      takeFailed(&shared, &complete)
      // Inputs of a closed or finished instance need no answer.
      while let first = shared.awaited.first, first.id < id, first.instance.isOver {
        shared.awaited.removeFirst()
        takeFailed(&shared, &complete)
      }
      // The input stays first in the queue until the frame has proved valid.
      guard let first = shared.awaited.first, first.id == id else { return nil }
      return first
    }
    guard let awaited else { return "it has answered \(id), which is not the next unanswered input" }
    var answer = PluginAnswer(number: awaited.number)
    var hasNews = !awaited.instance.hasFinished
    if !hasNews {
      noteLate(frame)
    } else if case .state = awaited.kind {
      let state = frame["state"]
      hasNews = !state.isAbsent
      if hasNews {
        let text = OutputBuffer(capacity: 256)
        _ = JSONWriter.append(state, to: text)
        answer.state = Array(text.bytes)
      } else {
        services.log(.warning, "the plugin has not saved its state: \(Printable.cut(frame["error"].text))")
      }
    } else if let problem = AnswerFrame.read(frame, block, spec, into: &answer) {
      return problem
    }
    shared.withLock { shared in
      shared.awaited.removeFirst()
      if case .input = awaited.kind { countAnswer(&shared) } else { shared.since = monotonicNow() }
      if answer.finishes { finish(awaited.instance, &shared) }
    }
    if case .again = answer.verdict {
      // The plugin ignores later inputs.
      awaited.instance.pause.begin()
      forget(awaited.instance)
    }
    if hasNews { complete.add(answer, awaited.instance) }
    return nil
  }

  private func finish(_ instance: ProcessInstance, _ shared: inout Shared) {
    instance.finish()
    drop(waitingFor: instance, &shared)
  }

  /// An instance that has finished answers earlier inputs; events in these answers are a mistake.
  private func noteLate(_ frame: Value) {
    guard !hasNotedLate, !frame["events"].isAbsent else { return }
    hasNotedLate = true
    services.log(.warning, "the plugin has sent events after the end of its output; they are dropped")
  }

  private func answer(through id: Int) -> String? {
    let found = shared.withLock { shared -> [Awaited]? in
      guard let last = shared.awaited.firstIndex(where: { $0.id == id }) else { return nil }
      let found = Array(shared.awaited.prefix(last + 1))
      shared.awaited.removeFirst(last + 1)
      for one in found { if case .state = one.kind {} else { countAnswer(&shared) } }
      return found
    }
    guard let found else { return "it has answered through \(id), which is not awaited" }
    for one in found {
      switch one.kind {
      case .input: complete.add(PluginAnswer(number: one.number), one.instance)
      case .failed(let message):
        complete.add(PluginAnswer(number: one.number, verdict: .rejected(message)), one.instance)
      case .state: break
      }
    }
    return nil
  }

  func tookAll() {
    shared.withLock { shared in
      takeFailed(&shared, &complete)
      guard !shared.waiting.isEmpty, !shared.isOver else { return }
      shared.writer.buffer.clear()
      advance(&shared)
      if shared.writer.buffer.count > 0 { process.send(shared.writer.buffer.bytes) }
    }
    let all = complete
    complete = Deliveries()
    deliver(all)
  }

  // MARK: The end

  func ended(_ reason: String, isFinal: Bool) {
    let left = shared.withLock { shared in
      takeFailed(&shared, &complete)
      defer {
        shared.isOver = true
        shared.instances = [:]
        shared.awaited = []
        shared.waiting = []
      }
      let inputs = !shared.awaited.isEmpty || shared.suspects > 0
      return (
        instances: shared.instances.sorted { $0.key < $1.key }.map(\.value), suspect: shared.awaited.first,
        hadInputs: inputs
      )
    }
    let all = complete
    complete = Deliveries()
    deliver(all)
    services.route.post { [self] in
      guard left.instances.contains(where: { !$0.isClosed }) else { return }
      let pause = isFinal ? .zero : slot.ended(at: services.route.now)
      if !isFinal {
        services.log(.warning, "\(reason); starting again in \(pause)")
        services.meter.update { $0.restarts += 1 }
      }
      for instance in left.instances {
        let isSuspect = left.suspect?.instance === instance && instance.isOpen
        instance.hear(
          PluginEnd(
            reason: reason, isFinal: isFinal, suspect: isSuspect ? left.suspect?.number : nil,
            hadInputs: left.hadInputs, pause: pause))
      }
    }
  }
}

/// The state of a step's program between processes.
final class ProgramSlot: Sendable {
  private struct State {
    weak var program: SharedProgram?
  }
  private let state = Mutex(State())
  /// When the program may be started.
  let restarts = RestartPause()

  /// The running program, if there is one.
  var program: SharedProgram? {
    get { state.withLock { $0.program } }
    set { state.withLock { $0.program = newValue } }
  }

  /// The process has ended by itself. Returns after which pause it is started again.
  func ended(at now: Instant) -> TimeSpan {
    // In this order, so that no thread sees neither a program nor a pause.
    let pause = restarts.ended(at: now)
    program = nil
    return pause
  }
}
