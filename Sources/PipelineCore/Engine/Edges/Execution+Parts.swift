/// The settings of an execution before its launch, and the state that its parts share.
extension Execution {
  package struct Settings {
    /// Whether sinks acknowledge data written to files only when it is on the disk, whatever their `sync` says: where
    /// states are kept on disk, which must not be ahead of the files.
    package var acknowledgesOnDisk = false
    /// Whether every source reads its present content once and completes (``SourceComponent/once``).
    package var runsOnce = false
    /// Whether a failure leaves a ``Execution/savedState``: in it the failed signal starts over, everything else
    /// continues, and sources continue after the events that they sent.
    package var keepsStateOnFailure = false
    /// A hash of the values and files that the pipeline file refers to, comparable within one process.
    package var insertedValues = 0
    /// Whether the event time of live sources may be ahead of the clock only by a limit; false where the clock is
    /// arbitrary.
    package var boundsEventTime = true
    /// Whether tables read their sources again (`every`); false in tests, which give the rows.
    package var reloadsTables = true
    /// Whether this is a dry run, in which nothing opens or starts: see
    /// ``Execution/dryRun(_:services:clock:restoring:)``.
    package internal(set) var isDryRun = false
    /// Whether every event that a sink takes is tracked until the sink has acknowledged it (``SinkAudit``). The default
    /// is true in debug builds.
    package var auditsSinks = _isDebugAssertConfiguration()
    /// Receives the report of a sink that does not acknowledge its events; nil: it is logged.
    package var reportSink: ((String) -> Void)?
  }

  /// Sources and sinks in place of those of the plan: for tests, and for commands whose sinks only print.
  package struct Replacements {
    /// Replaces named sources.
    package var sources: ((String) -> (any SourceComponent)?)?
    /// Replaces sources, by their signals in the plan.
    package var origins: ((SignalPlan) -> (any SourceComponent)?)?
    /// Replaces sources that are not replaced by name, including inner ones.
    package var others: ((any SourceComponent) -> any SourceComponent)?
    package var sinks: ((String) -> (any SinkComponent)?)?
  }

  /// How sources read.
  package struct Reading: Sendable {
    package var placement = Placement.auto
    /// The largest read, in bytes; nil: the source decides. For tests.
    package var blockBytes: Int?
    /// Whether all decoding threads of an input start at once and run its stage. For tests.
    package var startsAllThreads = false
    /// The number of blocks that a ``ParallelStage`` has encoded.
    package internal(set) var encodedBlocks = 0
  }

  /// The number of events that the sinks may receive in total.
  package struct OutputLimit {
    /// The number of events left; nil: there is no limit.
    package var left: Int?
    /// Whether the sinks have received the last event.
    var isReached = false
    var inputs: [LimitedInput] = []
  }

  /// The start and the end of an execution.
  struct Life {
    /// Whether everything that was wired at the launch has started.
    var hasBegun = false
    /// Called when everything has started, see ``Execution/whenBegun(_:)``.
    var takeovers: [() -> Void] = []
    /// Called after `takeovers`, see ``Execution/whenTakenOver(_:)``.
    var lastTakeovers: [() -> Void] = []
    /// Whether the sources have been stopped; a new source ends at once.
    fileprivate(set) var isStopping = false
    /// Whether the sources are being stopped right now.
    var isDraining = false
    /// Set while the pipeline is being suspended.
    var suspension: Suspension?
    /// Whether the pipeline has been suspended; only sinks still finish.
    var isSuspended = false
    /// The number of activities outside the graph that must end before `onEnd` is called.
    var holds = 0
    var onEnd: (Outcome) -> Void = { _ in }
    /// How the execution ended; nil: it runs.
    var outcome: Outcome?
    var pauses = Pauses()
    /// The circular waits of the plan; computed on first use.
    var circularWaits: [CircularWait]?
  }

  /// Nodes that wait before they subscribe again.
  struct Pauses {
    /// Numbered in the order in which the waits began.
    private var waiting: [ObjectIdentifier: (number: UInt64, node: any Pausing)] = [:]
    private var last: UInt64 = 0

    mutating func begin(_ node: any Pausing) {
      last &+= 1
      waiting[ObjectIdentifier(node)] = (last, node)
    }

    mutating func end(_ node: any Pausing) { waiting[ObjectIdentifier(node)] = nil }

    /// The waiting nodes, in the order in which their pauses began.
    var nodes: [any Pausing] { waiting.values.sorted { $0.number < $1.number }.map(\.node) }
  }

  /// The state that an execution was launched with.
  struct RestoredState {
    /// Set while the graph is rebuilt from the state.
    var restoration: Restoration?
    private(set) var refusals: [Diagnostic] = []
    private(set) var steps: [String]?
    /// The parts of the file whose state was saved under former names.
    private(set) var renamed: [FormerName] = []
    /// The estates that sinks of the previous execution have left, by the keys of the sinks.
    var inherited: [String: any SinkEstate] = [:]
    /// The reference time of restored pages that are kept unchanged; nil: there are none.
    var startOfPages: Instant?
    /// Why a dry run could use nothing of the state.
    var unreadable: Diagnostic?

    /// Ends the restoration: the graph has been rebuilt.
    mutating func end(_ restoration: Restoration) {
      self.restoration = nil
      refusals = restoration.refusals
      steps = restoration.kept
      renamed = restoration.renamed
    }
  }

  /// The state that was saved last.
  package struct SavedParts {
    /// The number of bytes that each step wrote.
    package internal(set) var sizes: [StepID: Int] = [:]
    /// The parts that could not be saved, with the reasons.
    package internal(set) var faults: [Diagnostic] = []
    /// The table of the states with pages; nil: there has been none.
    var table: StateTable.Builder?
    /// The reference time of times in pages, on the executor's clock.
    var startOfPages = Instant(nanoseconds: 0)
    /// The state from which another execution can continue.
    var parts: SavedState?
    /// The estates that sinks hand over in memory to an execution that continues from that state, by the keys of their
    /// steps.
    package internal(set) var estates: [String: any SinkEstate] = [:]
    /// The size of the state, in bytes.
    var size = 0
    /// The state at the moment of failure, until the end of that turn.
    var draft: StateDraft?
  }

  /// State shared by all nodes of a step, or by all frames of a projection.
  struct SharedParts {
    /// The slots of projections that several frames share.
    var banks: [ObjectIdentifier: SlotBank] = [:]
    /// The results of ``NodeContext/meeting(_:)``, which are the same for all instances of a step.
    var meetings: [StepID: (meets: Bool, precedence: Int)] = [:]
    var warnings = StepWarnings()
  }

  /// The reasons that were logged, so that each is logged once.
  struct StepWarnings {
    /// Reasons that were logged once: by step and code and, for conditions, by path.
    private var logged: Set<String> = []
    /// The last warning of each step that may repeat, and how many were suppressed since.
    private var last: [StepID: (at: Instant, hidden: Int)] = [:]
    /// Whether the limit of remembered reasons is reached.
    var isFull: Bool { logged.count >= 1000 }

    /// Whether this reason was not logged before; marks it as logged.
    mutating func isNew(_ reason: String) -> Bool { logged.insert(reason).inserted }

    /// How many warnings of the step were suppressed before this one; nil: this one is suppressed, too.
    mutating func hidden(of step: StepID, at now: Instant) -> Int? {
      if let before = last[step], now < before.at + TimeSpan.seconds(60) {
        last[step]?.hidden += 1
        return nil
      }
      let hidden = last[step]?.hidden ?? 0
      last[step] = (at: now, hidden: 0)
      return hidden
    }
  }

  // MARK: Views of the parts

  /// How the execution ended; nil: it has not.
  package var outcome: Outcome? { life.outcome }
  /// Whether the sources have been stopped; a new source ends at once.
  package var isStopping: Bool { life.isStopping }
  /// Whether the sources are being stopped right now.
  var isDraining: Bool { life.isDraining }
  /// Whether the pipeline has been suspended; only sinks still finish.
  package var isSuspended: Bool { life.isSuspended }
  /// Whether everything that was wired at the launch has started.
  package var hasBegun: Bool { life.hasBegun }
  /// Whether the graph has ended or is suspended; only sinks may still finish.
  var isOver: Bool { outcome != nil || life.isSuspended }
  package var isDryRun: Bool { settings.isDryRun }
  /// Set while the graph is rebuilt from a saved state.
  var restoration: Restoration? { restored.restoration }
  /// The parts of the restored state that could not be used, with the reasons.
  package var refusals: [Diagnostic] { restored.refusals }
  /// The names of the steps that continue from the restored state; nil: no state was restored.
  package var restoredSteps: [String]? { restored.steps }
  /// The parts of the file whose restored state was saved under former names.
  package var renamed: [FormerName] { restored.renamed }
  /// The state from which another execution can continue: set when this one was suspended, or failed with
  /// ``Settings/keepsStateOnFailure`` set.
  package var savedState: [UInt8]? { saved.parts?.bytes }

  /// Stops the sources for good: steps no longer hold events back.
  func stopsForGood() {
    life.isStopping = true
    executor.holdsBack = false
  }
}
