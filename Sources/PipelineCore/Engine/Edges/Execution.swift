/// A running pipeline.
///
/// Everything here happens in turns of its executor. The graph is wired completely, sinks first, before any source
/// starts, and stops in the opposite order.
public final class Execution {
  /// How a pipeline ended.
  public enum Outcome: Sendable, Equatable {
    case completed
    case failed(SignalFailure)
  }

  /// Counters for the summary at the end and for metrics.
  package struct Counters: Sendable, Equatable {
    /// Events that sources made.
    package var received: UInt64 = 0
    /// Events that sinks delivered: the system has taken them, or the server has acknowledged them. Events of a sink
    /// that reads only errors outputs are not counted here; they were counted as rejected.
    package var sent: UInt64 = 0
    /// Events rejected with a reason.
    package var rejected: UInt64 = 0
    /// Events that a sink held and could not deliver when the pipeline ended, and that are stored nowhere.
    package var undelivered: UInt64 = 0
    /// Events dropped because a condition could not be evaluated.
    package var undecided: UInt64 = 0
    package init() {}
  }

  package let plan: Plan
  package let executor: Executor
  package let services: Services
  package let json = JSONParser()
  package let topScope = Scope.top()
  /// The settings, fixed before the launch.
  package var settings = Settings()
  /// Sources and sinks in place of those of the plan. Set before the launch.
  package var replacements = Replacements()
  /// How sources read. Set before the launch.
  package var reading = Reading()
  /// Ends the execution when its sinks have received this number of events in total. Set before the launch.
  package var outputLimit = OutputLimit()
  /// The sinks whose destinations are down.
  package let troubles = SinkTroubles()
  let tables: RunningTables
  /// The counters of edges and steps.
  let meters: Meters
  /// Whether the store has room for events that must be stored before they are delivered.
  package let storage = StorageRoom()
  /// The data that the execution keeps on disk, and its last commit.
  var commits = Commits()
  /// The memory of the events in the queues of steps.
  private(set) lazy var keptMemory = KeptMemory(executor, services.memory)

  // Used in turns only, which never overlap. Lacks the events that sinks have delivered since ``counters`` was last
  // read.
  @exclusivity(unchecked) var tally = Counters()
  var named: [SharedSignal] = []
  var errorsOutputs = ErrorsOutputs()
  var sinks: [OpenSink] = []
  /// Which sinks are open, and which wait for their writers.
  var sinkEnds = SinkEnds()
  /// The subscribers of signals that execute commands and have no reader.
  var rootSubscribers: [RootSubscriber] = []
  /// Further subscribers of named signals, for tests.
  package var taps: [Tap] = []
  /// The running commands, by their index in the plan.
  var commands: [Int: OperatorNode] = [:]
  var sources = RunningSources()
  /// The subscriptions that are being wired.
  var wirings = Wirings()
  /// The saved state that the graph was built from.
  var restored = RestoredState()
  /// The state that was saved last.
  package internal(set) var saved = SavedParts()
  /// The start and the end of this execution.
  var life = Life()
  var shared = SharedParts()
  /// Work that nodes have deferred to later in the turn.
  @exclusivity(unchecked) var priorities = PriorityQueue()

  /// The counts so far. Read it in turns, or after the pipeline has ended.
  package var counters: Counters {
    for sink in sinks { sink.node.countDelivered() }
    return tally
  }

  struct OpenSink {
    var node: RunningSink
    var upstream: any Subscription
    let errors: ErrorsSignal
    var isOpen = true
    /// Tracks the events of the sink; nil: they are not tracked.
    var audit: SinkAudit?
    /// The persistence of its component's state.
    var persistence = Persistence.nothing
    /// The undelivered events are part of a saved state.
    var isPersistent: Bool { persistence.version > 0 }
  }

  /// Whether this is a rehearsal: the replaced sinks send nothing, and no input is acknowledged. A client that waits
  /// for an answer is refused, and other senders keep their events. Set before the launch.
  package var isRehearsal: Bool {
    get { executor.withholdsAcks }
    set { executor.withholdsAcks = newValue }
  }

  package init(plan: Plan, executor: Executor, services: Services) {
    self.plan = plan
    self.executor = executor
    self.services = services
    meters = Meters(plan, executor)
    tables = RunningTables(plan.tables.count)
    // Posted work may run another turn after this object is freed.
    executor.lookedAtClock = { [weak meters] in meters?.clockWasRead(at: $0) }
    executor.turnEnded = { [weak self] in self?.turnEnded() }
    executor.becameQuiet = { [weak self] in self?.becameQuiet() ?? false }
  }

  private func turnEnded() {
    if let draft = saved.draft {
      saved.draft = nil
      saved.parts = finishState(draft)
      release()
    }
    if !sources.justClosed.isEmpty { _ = sources.takeClosed() }
    if !sources.pieceEnds.isEmpty {
      for end in sources.pieceEnds { end() }
      sources.pieceEnds.removeAll(keepingCapacity: true)
    }
    if meters.isTiming { meters.stopTiming(executor.now) }
    for bank in shared.banks.values { bank.forget() }
    let wasFree = !executor.isInputPaused
    for sink in sinks where sink.isOpen { sink.node.turnEnded() }
    // Events that a sink holds back for its next batch do not wait while another sink pauses the input.
    if wasFree, executor.isInputPaused {
      for sink in sinks where sink.isOpen { sink.node.turnEnded() }
    }
    commitForClients()
    committer?.turnEnded()
    inHand?.turnEnded()
    if settings.auditsSinks, outcome == nil {
      for sink in sinks where sink.isOpen { if let fault = sink.audit?.fault() { report(fault) } }
    }
  }

  /// The slots that all frames of a shared projection fill and read.
  func slotBank(_ projection: Projection, evenAlone: Bool) -> SlotBank? {
    guard projection.isShared || evenAlone else { return nil }
    if let known = shared.banks[ObjectIdentifier(projection)] { return known }
    let new = SlotBank(projection.slotCount)
    shared.banks[ObjectIdentifier(projection)] = new
    return new
  }
}
