internal import DequeModule

extension Command {
  /// A running command. Its callers and listeners hold subscriptions, which keep it alive.
  final class Running: MultiInletNode {
    let parameters: Command
    /// The `execute` steps, by their permanent numbers.
    private var callers: [UInt64: CommandCaller] = [:]
    /// The number of signals with inner signals that may execute the command.
    private var holders = 0
    /// The listeners in the order of subscription.
    private var listeners: [CommandOutput.Node] = []
    /// The executions under way, by inlet number.
    private var executions: [Int: Request] = [:]
    private var newest = 0
    private var waiting = Deque<Request>()
    private var backlog = Backlog()
    /// The latest value of the `enabled` signal.
    private var isPermitted = true
    private var sentExecuting = false
    private var sentEnabled = true
    private var isAdvancing = false
    /// The nesting depth of starting executions: an event of one execution may start the next.
    private var depth = 0
    /// Deeper starts are deferred, so that they use no stack and the turn can end.
    private static let depthLimit = 32
    private static let advance = 1
    /// Whether a stop of the pipeline ended an execution early, so that the command does not report that it is free
    /// again.
    private var isCut = false
    /// Whether all subscribers of the launch are attached.
    private var isWired = false
    /// The events that late listeners receive first, oldest first; `lastValue` is the number of the last one.
    private var kept = Deque<OwnedEvent>()
    private var lastValue: UInt64 = 0

    /// The inlet number of the input; executions have higher numbers.
    private static let enabledInlet = 0

    private struct Request {
      var input: OwnedEvent
      /// The number of the calling step, which may have ended.
      var caller: UInt64
      let work = Scope.Work()
      /// Whether the execution began while the sources were being ended, so that the stop did not end it early.
      var isLate = false

      /// Whether the execution ends because the pipeline stops.
      func isCut(_ execution: Execution) -> Bool { work.isCut || execution.isDraining && !isLate }

      init(input: OwnedEvent, caller: UInt64) {
        self.input = input
        self.caller = caller
      }

      init(_ state: inout StateReader) throws(StateFault) {
        self.init(input: try state.read(), caller: try state.read())
      }

      func save(_ state: inout StateWriter) {
        state.write(input)
        state.write(caller)
      }
    }

    init(_ parameters: Command, _ nodeContext: NodeContext, _ downstream: Downstream) {
      self.parameters = parameters
      super.init(nodeContext, downstream: downstream)
    }

    override func start() {
      execution.commands[parameters.index] = self
      if let enabled = nodeContext.inputs.first { open(enabled, number: Self.enabledInlet) }
      // Callers that subscribe in this turn are attached before the command could end without callers.
      execution.whenWired { [weak self] in self?.later() }
    }

    override func resumed(_ token: Int) {
      if token == Self.advance {
        advance()
        announce()
      } else {
        isWired = true
      }
      if !isClosed { endIfIdle() }
    }

    // MARK: Callers and listeners

    var isExecuting: Bool { !executions.isEmpty || !waiting.isEmpty }

    var isEnabled: Bool {
      guard isPermitted else { return false }
      if parameters.allowsConcurrentExecution { return executions.count < parameters.maxConcurrent }
      return executions.isEmpty || parameters.whenBusy == .queue || parameters.whenBusy == .latest
    }

    func attach(_ caller: CommandCaller) { callers[caller.serial] = caller }

    /// The caller's executions continue: ending the subscription does not cancel them (RACCommand's `execute:`).
    func detach(_ caller: CommandCaller) {
      callers[caller.serial] = nil
      if !isClosed { endIfIdle() }
    }

    /// The number of waiting and running executions of an `execute` step.
    func pending(of caller: CommandCaller) -> Int {
      executions.values.count { $0.caller == caller.serial }
        + waiting.count { $0.caller == caller.serial }
    }

    /// Registers a signal whose inner signals may execute the command.
    func hold() { holders += 1 }

    func release() {
      holders -= 1
      if !isClosed { endIfIdle() }
    }

    func attach(_ listener: CommandOutput.Node) {
      let next = listeners.firstIndex { $0.serial > listener.serial }
      listeners.insert(listener, at: next ?? listeners.count)
    }
    func detach(_ listener: CommandOutput.Node) { listeners.removeAll { $0 === listener } }

    // MARK: Late listeners

    /// Whether there are values that a new subscriber has missed.
    var hasValues: Bool { !kept.isEmpty }

    /// Sends a listener the values that it has missed, and the values that arrive meanwhile.
    func catchUp(_ listener: CommandOutput.Node) {
      var next: UInt64 = 0
      while !listener.isClosed, !kept.isEmpty, next <= lastValue {
        let first = lastValue - UInt64(kept.count) + 1
        next = max(next, first)
        let event = kept[Int(next - first)]
        next += 1
        event.keep(in: arena)
        listener.send(event.event)
      }
    }

    private func keep(_ event: Event) {
      guard parameters.replay > 0 else { return }
      lastValue += 1
      if kept.count == parameters.replay { keptSize.add(bytes: -kept.removeFirst().byteCount) }
      // A waiting HTTP request gets an error as soon as an answer has become impossible.
      let origin = event.origin.takeUnretainedValue().withoutReply
      withExtendedLifetime(origin) {
        var event = event
        event.origin = .passUnretained(origin)
        let own = OwnedEvent(event)
        kept.append(own)
        keptSize.add(bytes: own.byteCount)
      }
    }

    private func forgetValues() {
      keptSize.add(bytes: -kept.reduce(0) { $0 + $1.byteCount })
      kept.removeAll()
    }

    /// Stores an execution under way.
    private func put(_ request: Request, under number: Int) {
      executions[number] = request
      keptSize.add(bytes: request.input.byteCount)
    }

    private func removeExecution(_ number: Int) -> Request? {
      guard let request = executions.removeValue(forKey: number) else { return nil }
      keptSize.add(bytes: -request.input.byteCount)
      return request
    }

    // MARK: Executing

    func execute(_ event: Event, for caller: CommandCaller) -> Answer {
      guard !isClosed, isPermitted else { return .disabled }
      let request = Request(input: OwnedEvent(event), caller: caller.serial)
      let limit = parameters.allowsConcurrentExecution ? parameters.maxConcurrent : 1
      if executions.count + waiting.count < limit {
        caller.began()
        beginOrWait(request)
        return .accepted
      }
      switch parameters.whenBusy {
      case .reject: return .busy
      case .drop: return .dropped
      case .queue:
        caller.began()
        put(request)
        return .accepted
      case .latest:
        caller.began()
        // Teardown comes before the next start, and observers see one continuous execution.
        for inlet in inlets where executions[inlet.number] != nil {
          let old = removeExecution(inlet.number)
          drop(inlet)
          if let old { callers[old.caller]?.superseded(old.input) }
        }
        if isClosed { return .disabled }
        for old in waiting { callers[old.caller]?.superseded(old.input) }
        waiting.removeAll()
        backlog.cleared(parameters.queueLimit, self)
        beginOrWait(request)
        return .accepted
      }
    }

    private func beginOrWait(_ request: Request) {
      if waiting.isEmpty, depth < Self.depthLimit {
        begin(request)
      } else {
        put(request)
        later(Self.advance)
      }
    }

    private func put(_ request: Request) {
      waiting.append(request)
      backlog.added(request.input, waiting.count, parameters.queueLimit, self)
    }

    private func begin(_ request: Request) {
      if executions.isEmpty || parameters.deliver == .newest { forgetValues() }
      newest += 1
      let number = newest
      var request = request
      request.isLate = execution.isDraining
      put(request, under: number)
      announce()
      guard !isClosed else { return }
      request.input.keep(in: arena)
      depth += 1
      defer { depth -= 1 }
      open(
        parameters.run.required, number: number,
        nodeContext.scope.with(outer: request.input.event).with(work: request.work))
    }

    override func receive(_ event: Event, from inlet: Inlet) {
      guard inlet.number != Self.enabledInlet else {
        guard event.value.is(.bool) else {
          reject(event, .unexpectedValue, "'enabled' must be true or false, not \(event.value.kindName)")
          return
        }
        isPermitted = event.value.isTrue
        announce()
        return
      }
      let caller = executions[inlet.number].flatMap { callers[$0.caller] }
      if parameters.deliver == .all || inlet.number == newest {
        keep(event)
        send(.values, event)
      }
      caller?.pass(event)
    }

    override func completed(_ inlet: Inlet) {
      drop(inlet)
      guard inlet.number != Self.enabledInlet else { return }
      if let request = executions[inlet.number], request.isCut(execution) { cut(request) }
      over(inlet.number)
    }

    /// Marks the command as cut, because the pipeline stops during the execution: the command does not report the
    /// execution as done.
    private func cut(_ request: Request) {
      isCut = true
      request.input.keep(in: arena)
      reject(
        request.input.event, .executionFailed, "the execution was cut off: the pipeline stopped before it ended")
    }

    override func failed(_ inlet: Inlet, _ failure: SignalFailure) {
      guard inlet.number != Self.enabledInlet else {
        finish(failing: failure)
        return
      }
      drop(inlet)
      if let input = executions[inlet.number]?.input {
        input.keep(in: arena)
        reject(
          input.event, .executionFailed, "the execution failed: \(failure.message)", at: failure.location)
      }
      over(inlet.number)
    }

    private func over(_ number: Int) {
      let ended = removeExecution(number)
      advance()
      announce()
      if let ended { callers[ended.caller]?.ended() }
      if !isClosed { endIfIdle() }
    }

    /// The loop replaces a recursion: executions that end at once use no stack.
    private func advance() {
      guard !isAdvancing else { return }
      isAdvancing = true
      let limit = parameters.allowsConcurrentExecution ? parameters.maxConcurrent : 1
      var rounds = 0
      while !isClosed, executions.count < limit, !waiting.isEmpty {
        guard rounds < Self.depthLimit else {
          later(Self.advance)
          break
        }
        rounds += 1
        let next = waiting.removeFirst()
        backlog.removed(next.input, waiting.count, parameters.queueLimit, self)
        begin(next)
      }
      isAdvancing = false
    }

    // MARK: Notifying

    private func announce() {
      if isCut, !isExecuting { return }
      guard !isAdvancing || !executions.isEmpty else { return }
      if sentExecuting != isExecuting {
        sentExecuting = isExecuting
        send(.executing, Event(.bool(sentExecuting)))
      }
      if sentEnabled != isEnabled {
        sentEnabled = isEnabled
        send(.enabled, Event(.bool(sentEnabled)))
      }
    }

    private func send(_ output: CommandOutput.Kind, _ event: Event) {
      for listener in listeners where listener.kind == output { listener.pass(event) }
    }

    private func endIfIdle() {
      // A cancelled pipeline reports no end, and the state of a suspended one is saved already.
      guard !execution.isOver else { return }
      guard isWired, callers.isEmpty, holders == 0, executions.isEmpty, waiting.isEmpty else { return }
      finish()
    }

    override func stop() {
      super.stop()
      execution.commands[parameters.index] = nil
      waiting.removeAll()
      backlog.cleared(parameters.queueLimit, self)
      executions = [:]
      kept.removeAll()
    }

    // MARK: State

    override func save(_ state: inout StateWriter) {
      state.write(newest)
      state.write(isPermitted)
      state.write(sentExecuting)
      state.write(sentEnabled)
      state.write(isWired)
      state.write(each: executions.sorted { $0.key < $1.key }) { state, execution in
        state.write(execution.key)
        execution.value.save(&state)
      }
      state.write(each: waiting) { $1.save(&$0) }
      state.write(backlog.isOver)
      state.write(lastValue)
      state.write(each: kept)
    }

    override func restore(_ state: inout StateReader) throws(StateFault) {
      newest = try state.read(in: 0...1 << 62)
      isPermitted = try state.read()
      sentExecuting = try state.read()
      sentEnabled = try state.read()
      isWired = try state.read()
      for _ in 0..<(try state.count()) {
        let number = try state.read(in: 1...max(1, newest))
        guard executions[number] == nil else { throw StateFault("an execution is registered twice") }
        put(try Request(&state), under: number)
      }
      for _ in 0..<(try state.count()) { waiting.append(try Request(&state)) }
      backlog.restore(try state.read(), waiting.lazy.map(\.input), self)
      lastValue = try state.read()
      kept = Deque(try state.read([OwnedEvent].self))
      keptSize.add(bytes: kept.reduce(0) { $0 + $1.byteCount })
      guard kept.count <= parameters.replay, UInt64(kept.count) <= lastValue, lastValue < 1 << 62 else {
        throw StateFault("there are too many values")
      }
      // Inputs of the command may listen to it.
      execution.commands[parameters.index] = self
    }

    /// Ignores executions that a damaged state names and that do not exist.
    override func restored() {
      let running = Set(inlets.lazy.filter { !$0.hasEnded }.map(\.number))
      for number in executions.keys where !running.contains(number) { _ = removeExecution(number) }
    }

    override func scope(_ saved: Scope, number: Int) throws(StateFault) -> Scope {
      guard let request = executions[number] else { throw StateFault("an execution is not known") }
      return saved.with(work: request.work)
    }
  }
}

extension Execution {
  /// The running command with that index in ``Plan/named``; nil before it starts and after it ends.
  func command(_ index: Int) -> Command.Running? { commands[index] as? Command.Running }
}
