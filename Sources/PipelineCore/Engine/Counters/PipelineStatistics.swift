/// The counts of a pipeline so far, edge by edge and step by step.
public struct PipelineStatistics: Sendable {
  /// One edge of the plan, over all of its subscriptions.
  package struct Edge: Sendable {
    package let plan: EdgePlan
    /// Events that passed.
    package var events: UInt64 = 0
    /// The number of subscriptions.
    package var subscriptions: UInt64 = 0
    /// The number of subscriptions that have not ended.
    package var open = 0
    /// The number of subscriptions that ended with an error.
    package var failures: UInt64 = 0
    /// Bytes of the events. Exact at the ends: at an edge that leaves a source, the bytes read, rejected input
    /// included; at an edge into a sink, the bytes written. Elsewhere estimated from samples: the events as JSON text.
    /// Nil: no event was sampled.
    package var bytes: UInt64?
    package var bytesAreEstimated = false

    package init(_ plan: EdgePlan) { self.plan = plan }

    /// Adds the counts of another execution of the plan.
    package mutating func add(_ other: Edge) {
      events &+= other.events
      subscriptions &+= other.subscriptions
      failures &+= other.failures
      if let more = other.bytes {
        bytes = (bytes ?? 0) &+ more
        bytesAreEstimated = bytesAreEstimated || other.bytesAreEstimated
      }
    }
  }

  /// One step: a source, an operator, a sink.
  ///
  /// `received + restored + made == sent + kept + dropped + superseded + undecided + rejected + failed + held +
  /// holding` where ``isExact``; a sink sends what it delivers.
  package struct Step: Sendable {
    package var step: StepID
    /// Events that came over the step's inputs; for a source, those that it read or made (`made` is then 0).
    package var received: UInt64 = 0
    /// Events of the step's inner signals.
    package var receivedInner: UInt64 = 0
    package var sent: UInt64 = 0
    /// Events that the step made: values at the end, windows, figures.
    package var made: UInt64 = 0
    package var kept: UInt64 = 0
    package var dropped: UInt64 = 0
    package var superseded: UInt64 = 0
    package var undecided: UInt64 = 0
    package var rejected: UInt64 = 0
    /// Rejected events that no reader of an errors output received.
    package var deadLetters: UInt64 = 0
    package var failed: UInt64 = 0
    /// Events that the step held when its subscriptions ended; for a sink, those that it could not deliver.
    package var held: UInt64 = 0
    /// Events that an earlier execution received and that the step restored with its saved state.
    package var restored: UInt64 = 0
    /// Events that the step holds now and will send, deliver or give up; of steps that are not ``isExact``, only those
    /// in its queues.
    package var holding: UInt64 = 0
    /// The number of its inner signals, groups or executions that have not ended.
    package var inner = 0
    /// The number of pending timers, and the time until the next of them; negative: it is due.
    package var timers = 0
    package var nextTimer: TimeSpan?
    /// The times until the first timers are due, at most ``mostDueTimers``, in ascending order.
    package var dueTimers: [TimeSpan] = []
    /// Attempts that repeated a failed one.
    package var retries: UInt64 = 0
    /// How often expressions looked up a row of this table, and how often there was none.
    package var lookups: UInt64 = 0
    package var misses: UInt64 = 0
    /// Events that a sink has accepted and not delivered; with an ``outbox``, only the events of rows that the sink was
    /// given.
    package var queue: Queue?
    /// The rows of a sink on disk, in durable delivery.
    package var outbox: Queue?
    /// How long the step has paused the input in total, and whether it does so now.
    package var paused = TimeSpan.zero
    package var isPausing = false
    /// How long the threads of a source have waited for room in the pipeline, and whether one waits now.
    package var waited = TimeSpan.zero
    package var isWaiting = false
    /// The files that a source reads or will read, at most ``mostFiles``, with the offset in each.
    package var files: [ReadFile] = []
    /// Unread bytes of these files; nil: unknown. Set by the reader of the statistics, because examining files may take
    /// time.
    package var lag: Int64?
    /// How long the oldest of these bytes has been there; nil: unknown. Set like ``lag``.
    package var lagAge: TimeSpan?
    /// For a sink: the time from the arrival of an event to its delivery or rejection. For a source that sends
    /// requests: the time to the answer. Nil: nothing has been timed.
    package var latency: Latency?
    /// The step's bytes in the last saved state; nil: no state was saved, or the step has none.
    package var stateBytes: Int?
    /// The bytes of the keys, events and values that the step keeps now; nil: it has kept none so far.
    package var keptBytes: Int?
    /// Events stored to compute later events: those in windows and buffers, and the newest of each input; nil: the step
    /// has stored none so far.
    package var keptEvents: Int?
    /// Keys that the step remembers now; nil: it has remembered none so far.
    package var keys: Int?
    /// The watermark of the events that the step sends, in nanoseconds since 1970; nil: it has no event time, or has
    /// received nothing.
    package var watermark: Int64?
    /// Whether no event is expected for now, so that the step does not hold the watermark back.
    package var isIdle = false
    /// Whether no more events can arrive.
    package var hasEnded = false
    /// For a step whose inputs have event time: the label of the step with the smallest watermark, for which it waits.
    /// Where event time begins: the file or connection that is furthest behind.
    package var watermarkHeldBy: String?
    /// Bytes that a source read or a sink delivered; nil: the component counts no bytes.
    package var bytes: UInt64?
    /// The offset at which a source continues in the input that it read last; nil: unknown.
    package var position: Int64?
    /// The time in the step, estimated from `samples` events; nil: none was timed.
    package var nanoseconds: UInt64?
    package var samples: UInt64 = 0
    /// The connections of a component that has its own.
    package var connections: Connections?
    /// The reason why a sink cannot deliver at present; nil: none is known.
    package var trouble: SinkTrouble?
    /// The plugin behind the step.
    package var plugin: Plugin?
    /// Whether each received event is passed on once or has one of these verdicts. False for steps that combine several
    /// events into one, such as `combineLatest`; their `kept` is the remainder.
    package var isExact = false

    /// Events that the step could not process.
    package var givenUp: UInt64 { undecided &+ rejected &+ failed }

    /// Keeps the first timers, sorted.
    fileprivate mutating func note(dueTimer left: TimeSpan) {
      let isFull = dueTimers.count == PipelineStatistics.mostDueTimers
      if isFull, let last = dueTimers.last, left >= last { return }
      if isFull { dueTimers.removeLast() }
      dueTimers.insert(left, at: dueTimers.firstIndex { left < $0 } ?? dueTimers.count)
    }

    /// Adds the counts of an earlier execution; current values stay.
    package mutating func add(_ earlier: Step) {
      received &+= earlier.received
      receivedInner &+= earlier.receivedInner
      sent &+= earlier.sent
      made &+= earlier.made
      kept &+= earlier.kept
      dropped &+= earlier.dropped
      superseded &+= earlier.superseded
      undecided &+= earlier.undecided
      rejected &+= earlier.rejected
      deadLetters &+= earlier.deadLetters
      failed &+= earlier.failed
      held &+= earlier.held
      restored &+= earlier.restored
      retries &+= earlier.retries
      lookups &+= earlier.lookups
      misses &+= earlier.misses
      samples &+= earlier.samples
      paused = paused + earlier.paused
      waited = waited + earlier.waited
      if let more = earlier.latency {
        if latency == nil { latency = more } else { latency?.add(more) }
      }
      if let more = earlier.bytes { bytes = (bytes ?? 0) &+ more }
      if let more = earlier.connections {
        connections = connections ?? Connections()
        connections?.add(more)
      }
      if let more = earlier.plugin {
        plugin = plugin ?? Plugin()
        plugin?.add(more)
      }
      if let more = earlier.nanoseconds { nanoseconds = (nanoseconds ?? 0) &+ more }
    }
  }

  /// Statistics of a plan with all counts zero.
  package init(of plan: Plan) {
    edges = plan.edges.map { Edge($0) }
    steps = plan.steps.indices.map { Step(step: StepID($0)) }
  }

  /// A file that a source reads.
  public struct ReadFile: Sendable, Equatable {
    package var path: String
    /// The identity of the file; nil: it has not been opened.
    package var device: UInt64?
    package var inode: UInt64?
    /// The position of the source in it.
    package var offset: Int64

    package init(path: String, device: UInt64? = nil, inode: UInt64? = nil, offset: Int64) {
      self.path = path
      self.device = device
      self.inode = inode
      self.offset = offset
    }
  }

  package static let mostFiles = 100
  package static let mostDueTimers = 16

  /// The events that wait for delivery.
  public struct Queue: Sendable, Equatable {
    package var events = 0
    package var bytes = 0
    /// Requests that wait for an answer.
    package var inFlight = 0
    /// How long the oldest event has waited, accurate to a second or a thousandth of the time; nil: unknown, or there
    /// is none.
    package var oldest: TimeSpan?

    package init(events: Int = 0, bytes: Int = 0, inFlight: Int = 0, oldest: TimeSpan? = nil) {
      self.events = events
      self.bytes = bytes
      self.inFlight = inFlight
      self.oldest = oldest
    }
  }

  /// The connections of a component that listens, or that connects to others.
  public struct Connections: Sendable, Equatable {
    /// The number of open connections.
    package var open = 0
    /// All connections that were accepted or made.
    package var opened: UInt64 = 0
    /// Connections closed at once, because there were too many.
    package var refused: UInt64 = 0
    /// Connections that ended with an error, attempts to connect included.
    package var broken: UInt64 = 0
    /// Requests over an existing connection; nil: the component sends no requests.
    package var reused: UInt64?

    package init(open: Int = 0, opened: UInt64 = 0, refused: UInt64 = 0, broken: UInt64 = 0, reused: UInt64? = nil) {
      self.open = open
      self.opened = opened
      self.refused = refused
      self.broken = broken
      self.reused = reused
    }

    /// The connections of a component's requests.
    package init(_ requests: HTTPConnections) {
      let counts = requests.counts
      self.init(open: counts.open, opened: counts.opened, broken: counts.broken, reused: counts.reused)
    }

    /// Adds earlier counts; current values stay.
    mutating func add(_ earlier: Connections) {
      opened &+= earlier.opened
      refused &+= earlier.refused
      broken &+= earlier.broken
      if let more = earlier.reused { reused = (reused ?? 0) &+ more }
    }
  }

  /// When the counts were read, on the monotonic clock.
  package var instant = Instant(nanoseconds: 0)
  package var turns: UInt64 = 0
  /// All pending timers, and whether those of each step are counted: they are unless there are very many.
  package var timers = 0
  package var timersAreCounted = true
  /// How long the input has been paused in total, and whether it is paused now.
  package var paused = TimeSpan.zero
  package var isInputPaused = false
  package var edges: [Edge]
  /// In the order of ``Plan/steps``.
  package var steps: [Step]

  package init(edges: [Edge], steps: [Step]) {
    self.edges = edges
    self.steps = steps
  }
}

extension Plan {
  /// For each step that combines signals with event time, the label of the step whose watermark it waits for: the
  /// upstream step with the smallest watermark that is not idle.
  fileprivate func watermarkHolders(_ counted: [PipelineStatistics.Step]) -> [(step: Int, label: String)] {
    guard components.values.contains(where: { Timing.of($0) == .begins }) else { return [] }
    var found: [(step: Int, label: String)] = []
    func visit(_ signal: SignalPlan) {
      let inputs = signal.watermarkInputs
      inputs.forEach(visit)
      guard let step = signal.steps.first, inputs.count > 1,
        Timing.of(step.component) == .all, signal.type.isTimed
      else { return }
      var givers: [Int] = []
      Plan.walk(from: inputs, named) { next in
        if let giver = next.steps.first(where: { Timing.of($0.component) == .begins }) {
          givers.append(giver.id.number)
          return nil
        }
        return next.watermarkInputs
      }
      let waiting = givers.filter { !counted[$0].isIdle && !counted[$0].hasEnded }
      // An input that has sent nothing is the slowest.
      guard let slowest = waiting.min(by: { (counted[$0].watermark ?? .min) < (counted[$1].watermark ?? .min) }) else {
        return
      }
      found.append((step.id.number, steps[slowest].label))
    }
    for signal in named { visit(signal.body) }
    for sink in sinks { visit(sink.input) }
    return found
  }
}

extension Execution {
  /// The counts so far. Read it between two turns, in a turn, or when the pipeline has ended.
  package var statistics: PipelineStatistics {
    for sink in sinks { sink.node.countDelivered() }
    var edges = plan.edges.enumerated().map { number, edge in
      var counted = PipelineStatistics.Edge(edge)
      let counters = meters.edge(EdgeID(number)).pointee
      counted.events = counters.passed
      counted.subscriptions = counters.subscriptions
      counted.open = counters.open
      counted.failures = counters.failures
      return counted
    }
    edges[0] = PipelineStatistics.Edge(plan.edges[0])
    var steps = plan.steps.indices.map { number in
      let counters = meters.step(StepID(number)).pointee
      return PipelineStatistics.Step(
        step: StepID(number), made: counters.made, kept: counters.kept, dropped: counters.dropped,
        superseded: counters.superseded, undecided: counters.undecided, rejected: counters.rejected,
        deadLetters: counters.deadLetters, failed: counters.failed, held: counters.held, restored: counters.restored,
        retries: counters.retries, lookups: counters.lookups.all, misses: counters.lookups.misses,
        samples: counters.time.samples)
    }
    // An edge that leaves a fused step follows the edges that lead to that step.
    for (number, edge) in plan.edges.enumerated() {
      if edge.entry != nil, case .step(let from) = edge.from {
        let counters = meters.step(from).pointee
        // Steps count the events that they stop; the events between them follow from that.
        edges[number].events = steps[from.number].received &+ counters.made &- counters.stopped
        edges[number].subscriptions = edges[edge.entry?.number ?? 0].subscriptions
        edges[number].open = edges[edge.entry?.number ?? 0].open
      }
      let events = edges[number].events
      if case .step(let from) = edge.from { steps[from.number].sent &+= events }
      guard case .step(let to) = edge.to else { continue }
      if edge.input == nil {
        steps[to.number].receivedInner &+= events
        steps[to.number].inner += edges[number].open
      } else {
        steps[to.number].received &+= events
      }
    }
    for (number, component) in plan.components {
      switch component {
      case is any SourceComponent:
        steps[number].received = steps[number].sent &+ steps[number].givenUp &+ steps[number].dropped
        steps[number].isExact = true
      case is any FusableOperator: steps[number].isExact = true
      case let component as any OperatorComponent:
        steps[number].isExact = type(of: component).relaysEvents
        if steps[number].isExact { break }
        let left =
          steps[number].dropped &+ steps[number].superseded &+ steps[number].givenUp &+ steps[number].held
          &+ UInt64(max(0, meters.step(StepID(number)).pointee.waiting))
        let came = steps[number].received &+ steps[number].restored
        steps[number].kept = came &- min(left, came)
        steps[number].made = steps[number].sent
      default: break
      }
    }
    for sink in plan.sinks {
      steps[sink.step.number].sent = meters.step(sink.step).pointee.delivered
      steps[sink.step.number].isExact = true
    }
    for number in steps.indices {
      let counters = meters.step(StepID(number)).pointee
      if counters.bytes > 0 { steps[number].bytes = counters.bytes }
      if counters.position >= 0 { steps[number].position = counters.position }
      if counters.hasKept {
        steps[number].keptBytes = max(0, counters.keptBytes)
        steps[number].keptEvents = max(0, counters.keptEvents)
      }
      if counters.hasKeys { steps[number].keys = max(0, counters.keptKeys) }
      steps[number].isIdle = counters.watermark == EventTime.idle
      steps[number].hasEnded = counters.watermark == EventTime.end
      if EventTime.range.contains(counters.watermark) { steps[number].watermark = counters.watermark }
      steps[number].watermarkHeldBy = counters.behind?._withUnsafeGuaranteedRef { $0.title }
      let events = max(counters.time.samples, steps[number].received &+ steps[number].receivedInner)
      steps[number].nanoseconds = meters.step(StepID(number)).pointee.time.total(of: events)
    }
    for (number, name) in plan.watermarkHolders(steps) { steps[number].watermarkHeldBy = name }
    var statistics = PipelineStatistics(edges: edges, steps: steps)
    addPresent(to: &statistics)
    return statistics
  }

  /// Adds the current state: queues, timers, inner signals, connections.
  private func addPresent(to statistics: inout PipelineStatistics) {
    let now = executor.instant
    statistics.instant = now
    statistics.turns = executor.turns
    statistics.paused = executor.timePaused(until: now)
    statistics.isInputPaused = executor.isInputPaused
    statistics.timers = executor.pendingTimers
    statistics.timersAreCounted = executor.visitTimers(limit: Self.countedTimers) { deadline, target in
      let step: StepID
      switch (target as? SkippedTimer)?.target ?? target {
      case let node as OperatorNode: step = node.nodeContext.step
      case let sink as RunningSink: step = sink.nodeContext.step
      case let late as LateStep: step = late.id
      default: return
      }
      let left = deadline - now
      statistics.steps[step.number].timers += 1
      statistics.steps[step.number].nextTimer = min(left, statistics.steps[step.number].nextTimer ?? left)
      statistics.steps[step.number].note(dueTimer: left)
    }
    for number in statistics.steps.indices {
      let counters = meters.step(StepID(number)).pointee
      statistics.steps[number].inner += counters.groups
      statistics.steps[number].isPausing = counters.pauses > 0
      statistics.steps[number].paused = TimeSpan(
        nanoseconds: counters.paused &+ (counters.pauses > 0 ? max(0, (now - counters.pausedSince).nanoseconds) : 0))
      if let size = saved.sizes[StepID(number)], size > 0 { statistics.steps[number].stateBytes = size }
      let step = statistics.steps[number]
      if step.isExact {
        let came = step.received &+ step.restored &+ step.made
        let gone = step.sent &+ step.kept &+ step.dropped &+ step.superseded &+ step.givenUp &+ step.held
        statistics.steps[number].holding = came > gone ? came &- gone : 0
      } else {
        statistics.steps[number].holding = UInt64(max(0, counters.waiting))
      }
    }
    for (number, meter) in meters.latencies {
      let latency = meter.latency
      if latency.count > 0 { statistics.steps[number].latency = latency }
    }
    for (number, waits) in meters.waits {
      let waited = waits.waited(until: now)
      statistics.steps[number].waited = TimeSpan(nanoseconds: waited.nanoseconds)
      statistics.steps[number].isWaiting = waited.isWaiting
    }
    for (number, plugin) in meters.plugins { statistics.steps[number].plugin = plugin.meter.now.since(plugin.before) }
    let troubles = troubles.all
    for sink in sinks {
      let number = sink.node.nodeContext.step.number
      statistics.steps[number].trouble = troubles[plan.steps[number].owner]
      statistics.steps[number].queue = sink.node.queued
      statistics.steps[number].connections = sink.node.connections
      statistics.steps[number].outbox = (sink.node as? OutboxSink)?.outboxed
    }
    for source in sources.running where !source.isClosed && source.hasPieces {
      let step = source.nodeContext.step.number
      if let connections = source.connections { statistics.steps[step].connections = connections }
      let room = PipelineStatistics.mostFiles - statistics.steps[step].files.count
      if room > 0 { statistics.steps[step].files += source.readFiles.prefix(room) }
    }
    addBytes(to: &statistics)
  }

  /// The bytes that passed each edge: as counted by a source or a sink, else estimated from samples.
  private func addBytes(to statistics: inout PipelineStatistics) {
    let sinkSteps = Set(plan.sinks.map(\.step))
    for (number, edge) in plan.edges.enumerated().dropFirst() {
      let events = statistics.edges[number].events
      if let total = meters.edge(EdgeID(number)).pointee.bytes.total(of: events) {
        statistics.edges[number].bytes = total
        statistics.edges[number].bytesAreEstimated = true
      }
      var counted: UInt64?
      if case .step(let step) = edge.from, plan.isSource(step) { counted = statistics.steps[step.number].bytes }
      if case .step(let step) = edge.to, sinkSteps.contains(step) {
        counted = statistics.steps[step.number].bytes ?? counted
      }
      if let counted {
        statistics.edges[number].bytes = counted
        statistics.edges[number].bytesAreEstimated = false
      }
    }
  }

  /// Above this number, timers are not counted step by step; counting this many takes about a millisecond.
  private static let countedTimers = 1 << 15
}
