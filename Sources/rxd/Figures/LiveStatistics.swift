import PipelineCore

/// The answer to `GET /stats` of a running process.
struct LiveStatistics {
  struct Queue {
    var events = 0
    var bytes = 0
    var inFlight = 0
    /// Nanoseconds; nil: unknown, or nothing waits.
    var oldest: Int?

    init?(_ document: (some JSONReadable)?) {
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
    var location: String
    var received: Int
    var sent: Int
    /// Dropped, superseded and undecided.
    var dropped: Int
    /// Rejected without a reader of the errors output, and failed.
    var errors: Int
    /// Rejected to a reader of the errors output, as the file intends.
    var diverted: Int
    var holding: Int
    /// The number of keys that the step keeps; nil: it has kept none so far.
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
    /// The bytes of its files that a source has not read; nil: unknown.
    var lag: Int?
    /// The plugin behind the step, as in `GET /stats`.
    var plugin: JSONText?
    /// The number of restarts of the plugin's program.
    var restarts: Int
    /// How long the oldest byte of ``lag`` has been unread, in nanoseconds; nil: unknown.
    var lagAge: Int?
    /// Why a sink cannot deliver, and since when (RFC 3339); nil: it can.
    var trouble: (reason: String, since: String)?
    /// The latency of events or requests; nil: there were none.
    var latency: Latency?

    init(_ document: some JSONReadable) {
      func number(_ name: String) -> Int { document[name]?.count ?? 0 }
      id = document["id"]?.asText ?? ""
      kind = document["kind"]?.asText ?? ""
      // The file without its directory, the line without the column.
      let at = document["at"]?.asText ?? ""
      let parts = (at.split(separator: "/").last ?? "").split(separator: ":")
      location = parts.prefix(2).joined(separator: ":")
      received = number("in")
      sent = number("out")
      dropped = number("dropped") + number("superseded") + number("undecided")
      errors = number("dead_letters") + number("failed")
      diverted = max(0, number("rejected") - number("dead_letters"))
      holding = max(number("holding"), number("kept_events"))
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
      plugin = document["plugin"]?.copied
      restarts = plugin?["restarts"]?.count ?? 0
      lagAge = document["lag_nanoseconds"]?.count
      if let found = document["trouble"], let reason = found["reason"]?.asText {
        trouble = (reason, found["since"]?.asText ?? "")
      }
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
    /// Why the pipeline does not run, and the time of the next start (RFC 3339; empty: it is not restarted
    /// automatically); nil: no run has failed.
    var failure: (reason: String, nextTry: String)?
    var steps: [Step]

    init(_ document: some JSONReadable) {
      name = document["name"]?.asText ?? ""
      state = document["state"]?.asText ?? ""
      isCurrent = document["current"]?.bool ?? true
      if let found = document["failure"], let reason = found["reason"]?.asText {
        failure = (reason, found["next_try"]?.asText ?? "")
      }
      steps = document["steps"]?.items.map { Step($0) } ?? []
    }
  }

  var at: String
  /// Why the new files of the last reload do not run; nil: they run, or there was no reload.
  var refusal: String?
  /// The time of the reading, on the monotonic clock of the process.
  var nanoseconds: Int
  var pipelines: [Pipeline]

  /// Nil: the document is not such an answer.
  init?(_ document: some JSONReadable) {
    guard let nanoseconds = document["monotonic_nanoseconds"]?.count else { return nil }
    self.nanoseconds = nanoseconds
    at = document["at"]?.asText ?? ""
    if let reload = document["reload"], let result = reload["result"]?.asText, result == "refused" || result == "failed"
    {
      refusal = reload["reason"]?.asText ?? reload["summary"]?.asText ?? result
    }
    pipelines = document["pipelines"]?.items.map { Pipeline($0) } ?? []
  }
}

/// Readings of the last minute, for statements about that time. Few of them are kept, so that a process with many steps
/// uses little memory for them.
struct LiveWindow {
  private static let length = 60_000_000_000
  private static let pause = 5_000_000_000
  /// The readings, oldest first; the first is the newest one before the window, if there is one.
  private var readings: [LiveStatistics] = []

  /// The changes since the oldest reading; nil: this is the first reading.
  mutating func rates(to now: LiveStatistics) -> LiveRates? {
    while readings.count > 1, readings[1].nanoseconds <= now.nanoseconds - Self.length { readings.removeFirst() }
    let rates = readings.first.map { LiveRates(from: $0, to: now) }
    if readings.last.map({ $0.nanoseconds + Self.pause <= now.nanoseconds }) ?? true { readings.append(now) }
    return rates
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
    /// Over the whole time.
    var receivedCount: Int
    var droppedCount: Int
    var errorCount: Int
    var divertedCount: Int
    var retryCount: Int
    var restartCount: Int
    /// Over the whole time; nil: none.
    var latency: Latency?
    var name: String { "\(pipeline) \(step.id)" }
  }

  var seconds: Double
  var now: LiveStatistics
  /// The rows of all steps, in the order of the files.
  var rows: [Row]

  init(from before: LiveStatistics, to now: LiveStatistics) {
    self.now = now
    let seconds = max(Double(now.nanoseconds - before.nanoseconds) / 1e9, 0.001)
    self.seconds = seconds
    let indexes = Dictionary(before.pipelines.enumerated().map { ($1.name, $0) }) { first, _ in first }
    rows = now.pipelines.flatMap { pipeline -> [Row] in
      let earlier = indexes[pipeline.name].map { before.pipelines[$0].steps } ?? []
      // Usually the steps are the same; after a reload some have other indexes.
      lazy var moved = Dictionary(earlier.map { ($0.id, $0) }) { first, _ in first }
      return pipeline.steps.enumerated().map { number, step -> Row in
        let past = number < earlier.count && earlier[number].id == step.id ? earlier[number] : moved[step.id]
        // Counts restart at 0 with the process.
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
          errors: Double(more(\.errors) + more(\.diverted)) / seconds,
          busy: Double(more(\.nanoseconds)) / 1e9 / seconds,
          paused: share(\.paused),
          waited: share(\.waited), receivedCount: more(\.received), droppedCount: more(\.dropped),
          errorCount: more(\.errors), divertedCount: more(\.diverted), retryCount: more(\.retries),
          restartCount: more(\.restarts), latency: latency)
      }
    }
  }
}
