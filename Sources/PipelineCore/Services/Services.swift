/// The external services of a running pipeline. The daemon passes the real ones, tests their own.
public struct Services: Sendable {
  /// The level of a log record.
  public enum Level: String, Sendable, CaseIterable, Comparable {
    case debug, info, warning, error
    public static func < (a: Level, b: Level) -> Bool {
      allCases.firstIndex(of: a).unsafelyUnwrapped < allCases.firstIndex(of: b).unsafelyUnwrapped
    }
  }

  package var http: any HTTPClient
  package var programs: any ProgramRunner = NoPrograms()
  package var databases: any DatabaseReader = NoDatabases()
  /// Replaces plugins in tests; nil: plugins run.
  package var plugins: (any PluginStandIn)?
  /// Writes one line to the log: level, component, message.
  package var log: @Sendable (Level, String, String) -> Void
  /// Receives one dead letter: a JSON document without a line break. Called on the executor's thread.
  package var deadLetter: @Sendable (UnsafeRawBufferPointer) -> Void
  /// Whether dead letters are stored. If so, events that are left in sinks at the end become dead letters; otherwise a
  /// warning gives their number.
  package var keepsDeadLetters = false
  /// Random numbers for jitter, uniformly distributed. Tests pass a fixed sequence.
  package var random: @Sendable () -> UInt64
  /// Makes a worker that runs jobs off the pipeline thread; the text names its purpose. The default worker runs its
  /// jobs within turns.
  package var worker: @Sendable (String) -> any Worker
  /// The memory limit for the queues of all pipelines that share it.
  package var memory = MemoryBudget()

  package init(
    http: any HTTPClient, log: @escaping @Sendable (Level, String, String) -> Void,
    deadLetter: @escaping @Sendable (UnsafeRawBufferPointer) -> Void,
    random: @escaping @Sendable () -> UInt64,
    worker: @escaping @Sendable (String) -> any Worker = { _ in ImmediateWorker() }
  ) {
    self.http = http
    self.log = log
    self.deadLetter = deadLetter
    self.random = random
    self.worker = worker
  }
}
