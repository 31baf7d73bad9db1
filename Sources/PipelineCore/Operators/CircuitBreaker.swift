internal import DequeModule

/// `circuitBreaker`: an inner signal for each event, paused after too many failures.
struct CircuitBreaker: OperatorComponent {
  var signal = SignalParameter()
  var failures = 5
  var within: TimeSpan?
  var pause = TimeSpan.seconds(30)
  var fallback = SignalParameter()
  var maxConcurrent = 16
  var queueLimit = 1000

  static let spec = ComponentSpec<CircuitBreaker>(
    "circuitBreaker",
    summary: "Creates a signal for each event, and pauses when too many of them fail.",
    details: """
      Like flattenMap, it sends what the inner signals send, but a failing inner signal does not end it: its event \
      goes to `fallback`, also an inner signal, or to the errors output if there is none. After `failures` failures \
      in a row (with `within`: in that time) the breaker opens: for `pause`, every event takes this path, and no \
      inner signal starts. The next event after that is a trial: if its signal completes, the breaker closes; if it \
      fails, the breaker stays open for another `pause`. While more than `queueLimit` events wait, or more \
      bytes than `--queue-memory` allows, the pipeline reads no further input.
      """,
    parameters: [
      .init("signal", \.signal, primary: true, required: true, "The inner signal; it sees the event as `outer`."),
      .init("failures", \.failures, range: 1...10_000, "How many failures open the breaker."),
      .init(
        "within", \.within, range: 1...(Int64.max / 4),
        "Count all failures within this time, whatever succeeds between them."),
      .init("pause", \.pause, range: 1...(Int64.max / 4), "How long the breaker stays open before a trial."),
      .init("fallback", \.fallback, "The inner signal for events that fail or are refused."),
      .init("maxConcurrent", \.maxConcurrent, range: 1...10_000, "How many inner signals may run at the same time."),
      .init(
        "queueLimit", \.queueLimit, range: 1...10_000_000,
        "How many events may wait before the pipeline's input pauses."),
    ],
    examples: [
      .marble(
        "open, a trial, closed",
        """
        circuitBreaker: { failures: 2, pause: 5ms, signal: { values: [ok], chain: [ { try: outer > 0 } ] } }
        """, in: "-1-0-0-1-----1-1-|", out: "-k-----------k-k-|", values: ["k": "ok"]),
      .marble(
        "a fallback",
        """
        circuitBreaker: { failures: 2, pause: 5ms, fallback: { values: [no] }, \
        signal: { values: [ok], chain: [ { try: outer > 0 } ] } }
        """, in: "-1-0-0-1-----0-1-|", out: "-k-n-n-n-----n-n-|", values: ["k": "ok", "n": "no"]),
    ],
    edges: EdgeCases(
      error: "Passed on at once; the inner signals end.", completion: "Completes when all inner signals have.",
      disposal: "Unsubscribes from the input and every inner signal; waiting events are dropped."),
    memory:
      "The running inner signals with their events, the events that wait, and the times of at most `failures` failures.",
    persistence: .state(version: 1),
    lateness: .always("a pause that is over is over"),
    knownAs: ["Hystrix", "resilience4j", "Envoy outlier detection"],
    useCases: [
      .init(
        .failing, "spare a server that keeps failing", "circuitBreaker: { signal: other, failures: 5, pause: 30s }"),
      .init(.failing, "answer from a cache while a service is down", "circuitBreaker: { signal: other, fallback: b }"),
    ],
    seeAlso: ["flattenMap", "retry", "catch"])

  static let seesError = true

  func outputType(_ inputs: [EventType]) -> EventType { .dyn }

  func makeNode(_ nodeContext: NodeContext, downstream: Downstream) -> OperatorNode {
    Node(self, nodeContext, downstream)
  }

  final class Node: QueueingNode {
    private enum State {
      case closed
      /// No inner signal starts before this instant.
      case open(until: Instant)
      /// One trial runs; its result decides whether the breaker closes.
      case trial(Int)
    }

    private let parameters: CircuitBreaker
    private var state = State.closed
    /// The times of the counted failures, oldest first.
    private var failures = Deque<Instant>()
    /// The events of the running inner signals, by inlet number; fallbacks are not included.
    private var running: [Int: OwnedEvent] = [:]
    private var begun = 0
    private var outerEnded = false
    override var heldCount: Int { waitingCount }

    init(_ parameters: CircuitBreaker, _ nodeContext: NodeContext, _ downstream: Downstream) {
      self.parameters = parameters
      super.init(
        maxConcurrent: parameters.maxConcurrent, queueLimit: parameters.queueLimit, nodeContext, downstream)
    }

    override func receive(_ event: Event) {
      if !isClosed { queue(event) }
    }

    // MARK: Inner signals

    override func begin(_ event: Event) {
      switch state {
      case .closed: attempt(event)
      case .open(let until) where until <= now:
        state = .trial(begun + 1)
        attempt(event)
      case .open, .trial:
        answer(event, SignalFailure(.limit, "the circuit breaker is open", at: nodeContext.location), .circuitOpen)
      }
    }

    private func attempt(_ event: Event) {
      begun += 1
      let kept = OwnedEvent(event)
      running[begun] = kept
      keptSize.add(bytes: kept.byteCount)
      open(parameters.signal.required, number: begun, nodeContext.scope.with(outer: event))
    }

    /// Handles an event that has failed or was refused.
    private func answer(_ event: Event, _ failure: SignalFailure, _ code: Diagnostic.Code) {
      guard let fallback = parameters.fallback.plan else {
        reject(event, code, failure.message, at: failure.location)
        return
      }
      begun += 1
      open(fallback, number: -begun, nodeContext.scope.with(outer: event).with(error: failure.value(in: arena)))
    }

    override func completed(_ inlet: Inlet) {
      drop(inlet)
      if let event = running.removeValue(forKey: inlet.number) {
        keptSize.add(bytes: -event.byteCount)
        if parameters.within == nil { failures.removeAll() }
        if case .trial(inlet.number) = state {
          state = .closed
          failures.removeAll()
        }
      }
      if advance() { finishIfOver() }
    }

    override func failed(_ inlet: Inlet, _ failure: SignalFailure) {
      drop(inlet)
      if let event = running.removeValue(forKey: inlet.number) {
        keptSize.add(bytes: -event.byteCount)
        count(inlet.number)
        event.keep(in: arena)
        answer(event.event, failure, .innerSignalFailed)
      } else {
        let outer = inlet.scope.outer
        outer?.keep(in: arena)
        reject(
          inlet.scope.outerEvent ?? made(.null), .innerSignalFailed, "the fallback failed: \(failure.message)",
          at: failure.location)
      }
      if advance() { finishIfOver() }
    }

    private func count(_ number: Int) {
      switch state {
      case .trial(number):
        open()
      case .trial, .open:
        // This inner signal had started before the breaker opened, so it decides nothing.
        break
      case .closed:
        if let within = parameters.within {
          while let first = failures.first, first + within <= now { failures.removeFirst() }
        }
        failures.append(now)
        if failures.count >= parameters.failures { open() }
      }
    }

    private func open() {
      state = .open(until: now + parameters.pause)
      failures.removeAll()
      execution.services.log(
        .warning, execution.plan.steps[nodeContext.step.number].label,
        "the circuit breaker is open for \(parameters.pause)")
    }

    override func complete() {
      outerEnded = true
      finishIfOver()
    }

    private func finishIfOver() {
      if outerEnded, isIdle { finish() }
    }

    override func stop() {
      running = [:]
      super.stop()
    }

    override func save(_ writer: inout StateWriter) {
      switch state {
      case .closed: writer.write(0)
      case .open(let until):
        writer.write(1)
        writer.write(until)
      case .trial(let number):
        writer.write(2)
        writer.write(number)
      }
      writer.write(each: failures)
      saveWaiting(&writer)
      writer.write(each: running.keys.sorted()) { writer, number in
        writer.write(number)
        writer.write(running[number])
      }
      writer.write(begun)
      writer.write(outerEnded)
      saveBacklog(&writer)
    }

    override func restore(_ reader: inout StateReader) throws(StateFault) {
      switch try reader.read(in: 0...2) {
      case 0: state = .closed
      case 1: state = .open(until: try reader.read())
      default: state = .trial(try reader.read())
      }
      failures = Deque(try reader.read([Instant].self))
      try restoreWaiting(&reader)
      for _ in 0..<(try reader.count()) {
        let number = try reader.read(Int.self)
        running[number] = try reader.read(OwnedEvent?.self)
        keptSize.add(bytes: running[number]?.byteCount ?? 0)
      }
      begun = try reader.read(in: 0...(1 << 62))
      outerEnded = try reader.read()
      try restoreBacklog(&reader)
    }
  }
}
