import PipelineCore

/// The answer to `GET /stats` of a running process.
struct LiveStatistics {
  struct Queue {
    var events = 0
    var bytes = 0
    var inFlight = 0
    /// Nanoseconds; nil: unknown, or nothing waits.
    var oldest: Int?

    init?(_ document: JSONView?) {
      guard let document else { return nil }
      events = document["events"]?.count ?? 0
      bytes = document["bytes"]?.count ?? 0
      inFlight = document["in_flight"]?.count ?? 0
      oldest = document["oldest_nanoseconds"]?.count
    }
  }

  struct Step {
    var id: String
    var kind: String
    /// `search.yaml:14`.
    var place: String
    var received: Int
    var sent: Int
    /// Dropped, superseded and undecided.
    var dropped: Int
    /// Rejected and failed.
    var errors: Int
    var holding: Int
    /// What it keeps between events; nil: it has kept nothing so far.
    var keys: Int?
    var keptBytes: Int?
    var retries: Int
    var timers: Int
    /// Time in the step, estimated.
    var nanoseconds: Int
    var pausesInput: Bool
    var paused: Int
    var waits: Bool
    var waited: Int
    var queue: Queue?
    var outbox: Queue?
    /// Bytes of its files that a source has left to read; nil: unknown.
    var lag: Int?
    /// The plugin behind the step, as in `GET /stats`.
    var plugin: JSONView?
    /// The number of restarts of its program.
    var restarts: Int
    /// Nanoseconds for which the oldest of them has been there; nil: unknown.
    var lagAge: Int?
    /// How long events or requests took; nil: none did.
    var latency: Latency?

    init(_ document: JSONView) {
      func number(_ name: String) -> Int { document[name]?.count ?? 0 }
      id = document["id"]?.text ?? ""
      kind = document["kind"]?.text ?? ""
      // The file without its directory, the line without the column.
      let at = document["at"]?.text ?? ""
      let parts = (at.split(separator: "/").last ?? "").split(separator: ":")
      place = parts.prefix(2).joined(separator: ":")
      received = number("in")
      sent = number("out")
      dropped = number("dropped") + number("superseded") + number("undecided")
      errors = number("rejected") + number("failed")
      holding = number("holding")
      keys = document["keys"]?.count
      keptBytes = document["kept_bytes"]?.count
      retries = number("retries")
      timers = number("timers")
      nanoseconds = number("nanoseconds")
      pausesInput = document["pauses_input"]?.bool ?? false
      paused = number("paused_nanoseconds")
      waits = document["waits"]?.bool ?? false
      waited = number("waited_nanoseconds")
      queue = Queue(document["queue"])
      outbox = Queue(document["outbox"])
      lag = document["lag_bytes"]?.count
      plugin = document["plugin"]
      restarts = plugin?["restarts"]?.count ?? 0
      lagAge = document["lag_nanoseconds"]?.count
      let counts = document["latency"]?["counts"]?.items.compactMap(\.count) ?? []
      if counts.count == Latency.bounds.count + 1 {
        var latency = Latency()
        latency.counts = counts.map { UInt64($0) }
        latency.sum = Int64(document["latency"]?["sum_nanoseconds"]?.count ?? 0)
        self.latency = latency
      }
    }
  }

  struct Pipeline {
    var name: String
    var state: String
    var isCurrent: Bool
    var steps: [Step]

    init(_ document: JSONView) {
      name = document["name"]?.text ?? ""
      state = document["state"]?.text ?? ""
      isCurrent = document["current"]?.bool ?? true
      steps = document["steps"]?.items.map(Step.init) ?? []
    }
  }

  var at: String
  /// On the monotonic clock of the process.
  var nanoseconds: Int
  var pipelines: [Pipeline]

  /// Nil: the document is no such answer.
  init?(_ document: JSONView) {
    guard let nanoseconds = document["monotonic_nanoseconds"]?.count else { return nil }
    self.nanoseconds = nanoseconds
    at = document["at"]?.text ?? ""
    pipelines = document["pipelines"]?.items.map(Pipeline.init) ?? []
  }
}

/// The changes between two readings of a process.
struct LiveRates {
  struct Row {
    var pipeline: String
    var step: LiveStatistics.Step
    /// Events a second.
    var received: Double
    var sent: Double
    var dropped: Double
    var errors: Double
    /// Shares of the time.
    var busy: Double
    var paused: Double
    var waited: Double
    /// In all of the time.
    var receivedCount: Int
    var droppedCount: Int
    var errorCount: Int
    var retryCount: Int
    var restartCount: Int
    /// In all of the time; nil: none.
    var latency: Latency?
    var name: String { "\(pipeline) \(step.id)" }
  }

  var seconds: Double
  var now: LiveStatistics
  /// In the order of the files.
  var rows: [Row]

  init(from before: LiveStatistics, to now: LiveStatistics) {
    self.now = now
    let seconds = max(Double(now.nanoseconds - before.nanoseconds) / 1e9, 0.001)
    self.seconds = seconds
    var earlier: [String: LiveStatistics.Step] = [:]
    for pipeline in before.pipelines { for step in pipeline.steps { earlier["\(pipeline.name) \(step.id)"] = step } }
    rows = now.pipelines.flatMap { pipeline in
      pipeline.steps.map { step in
        let past = earlier["\(pipeline.name) \(step.id)"]
        // Counts begin anew with the process.
        func more(_ count: KeyPath<LiveStatistics.Step, Int>) -> Int {
          max(0, step[keyPath: count] - (past.map { $0[keyPath: count] } ?? step[keyPath: count]))
        }
        func share(_ time: KeyPath<LiveStatistics.Step, Int>) -> Double { min(1, Double(more(time)) / 1e9 / seconds) }
        var latency = step.latency
        if let before = past?.latency, let now = step.latency {
          for index in now.counts.indices {
            latency?.counts[index] =
              now.counts[index] > before.counts[index] ? now.counts[index] - before.counts[index] : 0
          }
          latency?.sum = max(0, now.sum - before.sum)
        }
        return Row(
          pipeline: pipeline.name, step: step, received: Double(more(\.received)) / seconds,
          sent: Double(more(\.sent)) / seconds, dropped: Double(more(\.dropped)) / seconds,
          errors: Double(more(\.errors)) / seconds, busy: Double(more(\.nanoseconds)) / 1e9 / seconds,
          paused: share(\.paused),
          waited: share(\.waited), receivedCount: more(\.received), droppedCount: more(\.dropped),
          errorCount: more(\.errors), retryCount: more(\.retries), restartCount: more(\.restarts), latency: latency)
      }
    }
  }
}
