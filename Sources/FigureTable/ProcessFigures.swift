import PipelineCore

/// The data from which the figures of the process are read.
package struct ProcessFigures: Sendable {
  package var version: String
  /// Wall-clock nanoseconds since 1970.
  package var at: Int64 = 0
  package var startedAt: Int64 = 0
  /// CPU time in user and system mode.
  package var cpu = TimeSpan.zero
  /// Bytes; nil: unknown.
  package var residentMemory: Int?
  /// Reloads by result.
  package var reloads: [String: Int] = [:]
  package var lastReloadSucceeded = true
  /// Pipelines without series of their steps, and those that did not answer.
  package var omitted = 0
  package var late = 0

  package init(version: String) { self.version = version }
}

extension Figures {
  package static let process = FigureTable<ProcessFigures> { table in
    table.add(
      nil, { .counts([(name: $0.version, count: UInt64(1))]) },
      .metric("rxd_build", .info, "The version of rxd", label: "version"))
    table.add(
      nil, { .span(TimeSpan(nanoseconds: max(0, $0.at - $0.startedAt))) },
      .metric("rxd_uptime_seconds", .gauge, "Time since the process started"))
    table.add(
      nil, { .span(TimeSpan(nanoseconds: $0.startedAt)) },
      .metric("process_start_time_seconds", .gauge, "When the process started, in seconds since 1970"))
    table.add(
      nil, { .span($0.cpu) },
      .metric("process_cpu_seconds", .counter, "CPU time of the process, in user and system mode"))
    table.add(
      nil, { $0.residentMemory.map { .number($0) } },
      .metric("process_resident_memory_bytes", .gauge, "Memory of the process that is in RAM"))
    table.add(
      nil,
      { process in .counts(["reloaded", "refused", "failed"].map { ($0, UInt64(max(0, process.reloads[$0] ?? 0))) }) },
      .metric("rxd_reloads", .counter, "Reloads by result", note: "`reloaded`, `refused` or `failed`", label: "result"))
    table.add(
      nil, { .flag($0.lastReloadSucceeded) },
      .metric(
        "rxd_last_reload_successful", .gauge,
        "1 unless the last reload was refused, or a pipeline does not run from its new file"))
    table.add(
      nil, { .number($0.omitted) },
      .metric(
        "rxd_metrics_omitted_pipelines", .gauge, "Pipelines whose steps have no series because there are too many",
        note: "beyond 5,000 steps and edges, only the series of pipelines are given"))
    table.add(
      nil, { .number($0.late) },
      .metric(
        "rxd_metrics_late_pipelines", .gauge, "Pipelines that one event keeps too busy to report",
        note: "for more than a second; only their earlier runs are counted"))
  }
}

/// The data from which the figures of a pipeline are read, besides the counts of its run.
package struct PipelineFigures: Sendable {
  package var file: String
  /// As in `GET /status`.
  package var state: String
  /// The time when `state` began, in RFC 3339.
  package var since: String
  package var isRunning = false
  package var restarts = 0
  /// False: only the counts of earlier runs are here.
  package var isCurrent = true
  /// As in `GET /status`; nil: no run has failed.
  package var failure: JSONText?
  /// Dead letters by outcome.
  package var deadLetters: [(name: String, count: UInt64)] = []
  /// The copy of the store on a standby; nil: there is none.
  package var replication: ReplicationFigures?

  package init(file: String, state: String, since: String) {
    (self.file, self.state, self.since) = (file, state, since)
  }
}

/// The lag of a store's copy on a standby.
package struct ReplicationFigures: Sendable {
  package var isReached: Bool
  /// Nil: unknown, because the standby has not answered yet.
  package var behindBytes: Int?
  package var lag: TimeSpan

  package init(isReached: Bool, behindBytes: Int?, lag: TimeSpan) {
    (self.isReached, self.behindBytes, self.lag) = (isReached, behindBytes, lag)
  }
}

extension Figures {
  private static let replication = FigureTable<ReplicationFigures> { table in
    table.add(
      "reached", { .flag($0.isReached) },
      .metric(
        "rxd_replication_reached", .gauge, "1 while the standby accepts what the pipeline's store writes",
        note: "0: the standby cannot be reached, refuses, or has not answered yet"))
    table.add(
      "behind_bytes", { $0.behindBytes.map { .number($0) } },
      .metric(
        "rxd_replication_behind_bytes", .gauge, "Bytes of the store that the standby does not have yet",
        note: "absent until it has answered"))
    table.add(
      "lag_nanoseconds", { .span($0.lag) },
      .metric(
        "rxd_replication_lag_seconds", .gauge, "Age of the oldest commit that the standby does not have",
        note: "0: it has all"))
  }

  package static let pipelines = FigureTable<PipelineFigures>(
    order: "file state since restarts current failure dead_letters"
  ) { table in
    table.add(
      nil, { .flag($0.isRunning) }, .metric("rxd_pipeline_running", .gauge, "1 while the pipeline runs"))
    table.add("file", meaning: "its file", { .json(.string($0.file)) })
    table.add(
      "state", { .json(.string($0.state)) },
      .metric(
        "rxd_pipeline_state", .gauge, "1 for the state in which the pipeline is",
        note: "the states of [`GET /status`](control.md#the-control-socket)", label: "state",
        read: { .counts([(name: $0.state, count: UInt64(1))]) }))
    table.add("since", meaning: "when the state began", { .json(.string($0.since)) })
    table.add(
      "current", meaning: "false: one event keeps the pipeline busy, so only its earlier runs are counted",
      { .flag($0.isCurrent) })
    table.add(
      "failure", meaning: "the last failure, as in `GET /status`; null: there was none", { .json($0.failure ?? .null) })
    table.add(
      "restarts", { .number($0.restarts) },
      .metric("rxd_pipeline_restarts", .counter, "Failures after which the pipeline was started again"))
    table.add(
      "dead_letters", { .counts($0.deadLetters) },
      .metric(
        "rxd_pipeline_dead_letters", .counter,
        "Rejected events that nothing reads: kept in the state directory, written to the log alone, or kept and dropped to make room",
        note: "`kept`, `logged` without a state directory, or `dropped`: [dead letters](contracts.md#dead-letters)",
        label: "fate"))
    table.add("replication", meaning: "the copy on a standby; absent without `--replicate`", replication) {
      $0.replication
    }
  }

  /// The counts of a run for its pipeline as a whole.
  package static let runs = FigureTable<PipelineStatistics>(order: "turns timers paused_nanoseconds is_paused") {
    table in
    table.add(
      "turns", { .count($0.turns) },
      .metric("rxd_pipeline_turns", .counter, "Turns: batches of input, timers and answers"))
    table.add(
      "paused_nanoseconds", { .span($0.paused) },
      .metric(
        "rxd_pipeline_input_paused_seconds", .counter,
        "Time in which sinks or queues made the pipeline's sources wait"))
    table.add("is_paused", meaning: "whether they do", { .flag($0.isInputPaused) })
    table.add(
      "timers", { .number($0.timers) }, .metric("rxd_pipeline_pending_timers", .gauge, "Timers that are set"))
  }

  package static let edges = FigureTable<PipelineStatistics.Edge>(
    order: "events open failures bytes bytes_are_estimated"
  ) { table in
    table.add(
      "events", { .count($0.events) },
      .metric(
        "rxd_edge_events", .counter, "Events that went from one component to another",
        note: "`output` is `events` or `errors`"))
    table.add("open", meaning: "subscriptions that have not ended", { .number($0.open) })
    table.add("failures", meaning: "subscriptions that ended with an error", { .count($0.failures) })
    table.add(
      "bytes", { $0.bytes.map { .count($0) } },
      .metric(
        "rxd_edge_bytes", .counter,
        "Bytes of these events: as a source read or a sink wrote them, else as JSON text, estimated from samples",
        note:
          "from the few events that are also timed, every 50 ms; exact where all events have one size, and never falls"
      ))
    table.add(
      "bytes_are_estimated", meaning: "absent where they are exact", { .flag($0.bytesAreEstimated) },
      if: { $0.bytes != nil && $0.bytesAreEstimated })
  }
}
