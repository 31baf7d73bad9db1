import PipelineCore

/// The data from which the figures of a step are read.
package final class StepFigures: Sendable {
  package enum Kind: String, Sendable {
    case source, `operator`, sink

    /// The stage of the pipeline at which errors of this step happen.
    fileprivate var stage: String {
      switch self {
      case .source: "receiving"
      case .operator: "processing"
      case .sink: "sending"
      }
    }
  }

  fileprivate let counted: PipelineStatistics.Step
  fileprivate let kind: Kind
  /// The keyword of the step in the file.
  fileprivate let keyword: String
  /// The share of a core that the step takes; nil: unknown.
  fileprivate let busy: Double?
  /// As in `GET /status`.
  fileprivate let trouble: JSONText?

  package init(
    _ counted: PipelineStatistics.Step, _ kind: Kind, keyword: String, busy: Double? = nil, trouble: JSONText? = nil
  ) {
    (self.counted, self.kind, self.keyword, self.busy, self.trouble) = (counted, kind, keyword, busy, trouble)
  }

  fileprivate var hasPaused: Bool { counted.isPausing || counted.paused > .zero }
  fileprivate var isSource: Bool { kind == .source }
  fileprivate var isOperator: Bool { kind == .operator }
  fileprivate var isSink: Bool { kind == .sink }
}

extension Figures {
  package static let steps = FigureTable<StepFigures>(
    order: """
      in inner_in made out kept dropped superseded undecided rejected failed held restored holding nanoseconds \
      timed_events bytes position lag_bytes lag_nanoseconds latency inner timers next_timer_nanoseconds timers_due \
      watermark watermark_idle watermark_held_by dead_letters retries lookups misses keys kept_events kept_bytes state_bytes pauses_input paused_nanoseconds waits \
      waited_nanoseconds connections trouble plugin queue outbox
      """
  ) { table in
    addEvents(&table)
    addPresent(&table)
    addWork(&table)
    table.add("connections", meaning: "only for components with connections", connections) { $0.counted.connections }
    table.add("trouble", meaning: "why a sink does not deliver, and since when", { $0.trouble.map { .json($0) } })
    table.add("queue", meaning: "of a sink, in memory", buffers, labels: [("buffer", "memory")]) {
      $0.counted.queue.map { BufferFigures(queue: $0, isInMemory: true) }
    }
    table.add("outbox", meaning: "of a sink, on disk", buffers, labels: [("buffer", "outbox")]) {
      $0.counted.outbox.map { BufferFigures(queue: $0, isInMemory: false) }
    }
    table.add("plugin", meaning: "the plugin behind the step", plugins) { $0.counted.plugin }
  }

  /// Events by outcome.
  private static func addEvents(_ table: inout FigureTable<StepFigures>) {
    table.add(
      "in", { .count($0.counted.received) },
      .metric(
        "rxd_component_received_events", .counter,
        "Events that arrived at the component; for a source, those that it read or made"))
    table.add("inner_in", meaning: "events of its inner signals", { .count($0.counted.receivedInner) })
    table.add(
      "out", { .count($0.counted.sent) },
      .metric(
        "rxd_component_sent_events", .counter,
        "Events that the component sent; for a sink, those that it delivered"))
    table.add(
      "made", { .count($0.counted.made) },
      .metric(
        "rxd_component_made_events", .counter, "Events that the component created, such as sums and windows",
        if: \.isOperator))
    table.add(
      "kept", { .count($0.counted.kept) },
      .metric(
        "rxd_component_kept_events", .counter, "Events that the component keeps or has combined into others",
        if: \.isOperator))
    let discarded = MetricFamily(
      "rxd_component_discarded_events", .counter,
      "Events not passed on: dropped on purpose, superseded by newer ones, or not delivered")
    table.add(
      "dropped", meaning: "by the meaning of the step", { .count($0.counted.dropped) },
      .of(discarded, labels: [("intentional", "true"), ("reason", "dropped")], if: { !$0.isSource }))
    table.add(
      "superseded", meaning: "by newer ones", { .count($0.counted.superseded) },
      .of(discarded, labels: [("intentional", "true"), ("reason", "superseded")], if: \.isOperator))
    table.add(
      "held", meaning: "when the step ended; of a sink, those that it could not deliver", { .count($0.counted.held) },
      .of(discarded, labels: [("intentional", "false"), ("reason", "undelivered")], if: \.isSink))
    let errors = MetricFamily(
      "rxd_component_errors", .counter,
      "Events for which the component failed: rejected to the errors output, undecided conditions, or ends of the signal"
    )
    func error(_ type: String, if isGiven: Figure<StepFigures>.Condition? = nil) -> Metric<StepFigures> {
      .of(errors, labels: [("error_type", type)], label: "stage", value: { $0.kind.stage }, if: isGiven)
    }
    table.add("rejected", meaning: "to the errors output", { .count($0.counted.rejected) }, error("rejected"))
    table.add(
      "undecided", meaning: "a condition failed", { .count($0.counted.undecided) }, error("undecided", if: \.isOperator)
    )
    table.add("failed", meaning: "ended the signal", { .count($0.counted.failed) }, error("failed", if: { !$0.isSink }))
    table.add(
      "dead_letters", meaning: "rejected events that nothing reads", { .count($0.counted.deadLetters) },
      if: { $0.counted.deadLetters > 0 })
    table.add("restored", meaning: "events restored from a saved state", { .count($0.counted.restored) })
  }

  /// The figures of the events and the state that a step currently holds.
  private static func addPresent(_ table: inout FigureTable<StepFigures>) {
    table.add(
      "holding", { .count($0.counted.holding) },
      .metric(
        "rxd_component_held_events", .gauge, "Events that the component holds and has not decided about",
        if: { !$0.isSource }))
    table.add(
      "inner", { .number($0.counted.inner) }, if: { $0.counted.inner > 0 },
      .metric(
        "rxd_component_inner_signals", .gauge, "Inner signals, groups or executions that run",
        if: { $0.isOperator && ($0.counted.inner > 0 || $0.counted.receivedInner > 0) }))
    table.add(
      "timers", { .number($0.counted.timers) }, if: { $0.counted.timers > 0 },
      .metric(
        "rxd_component_pending_timers", .gauge, "Timers of the component that are set",
        if: { $0.counted.timers > 0 || $0.isOperator }))
    table.add(
      "next_timer_nanoseconds", meaning: "until the next of them", { .span($0.counted.nextTimer ?? .zero) },
      if: { $0.counted.timers > 0 })
    table.add(
      "timers_due", meaning: "nanoseconds until each of the first 16 of them",
      { .json(.array($0.counted.dueTimers.map { .int(Int($0.nanoseconds)) })) }, if: { $0.counted.timers > 0 })
    table.add(
      "watermark", meaning: "of event time, in nanoseconds since 1970",
      { $0.counted.watermark.map { .json(.int(Int($0))) } },
      .metric(
        "rxd_component_watermark_seconds", .gauge,
        "The watermark of the component's events: no earlier event is waited for",
        read: { $0.counted.watermark.map { .span(TimeSpan(nanoseconds: $0)) } }))
    table.add(
      "watermark_idle", meaning: "no event has arrived for 'idle', so the watermark holds nothing back",
      { .flag($0.counted.isIdle) },
      if: { $0.counted.isIdle })
    table.add(
      "watermark_held_by",
      meaning: "the step with the smallest watermark, or the file or connection, for which it waits",
      { $0.counted.watermarkHeldBy.map { .json(.string($0)) } })
    table.add(
      "keys", { $0.counted.keys.map { .number($0) } },
      .metric(
        "rxd_component_keys", .gauge, "Keys that the component remembers",
        note: "those of `distinct`, `groupBy`, `join` and `countDistinct`; absent before the first"))
    table.add(
      "kept_events", meaning: "events in windows and buffers", { $0.counted.keptEvents.map { .number($0) } },
      if: { ($0.counted.keptEvents ?? 0) > 0 })
    table.add(
      "kept_bytes", { $0.counted.keptBytes.map { .number($0) } },
      .metric(
        "rxd_component_kept_bytes", .gauge,
        "Bytes of the keys, events and values that the component keeps, without the tables around them",
        note: "queues, windows, last values, running totals; absent before the first byte"))
    table.add(
      "state_bytes", { $0.counted.stateBytes.map { .number($0) } },
      .metric("rxd_component_state_bytes", .gauge, "Bytes of the component in the state that was saved last"))
  }

  /// The time that steps take, and their waits.
  private static func addWork(_ table: inout FigureTable<StepFigures>) {
    table.add(
      "nanoseconds", { $0.counted.nanoseconds.map { .count($0) } },
      .metric(
        "rxd_component_processing_seconds", .counter, "Time in the component alone, estimated from samples",
        if: { $0.counted.nanoseconds != nil || $0.isOperator },
        read: { .span(TimeSpan(nanoseconds: Int64(clamping: $0.counted.nanoseconds ?? 0))) }))
    table.add(
      "timed_events", meaning: "the samples", { .count($0.counted.samples) }, if: { $0.counted.nanoseconds != nil })
    table.add(
      "retries", { .count($0.counted.retries) }, if: { $0.counted.retries > 0 },
      .metric(
        "rxd_component_retries", .counter, "Attempts that repeated a failed one",
        if: { $0.counted.retries > 0 || $0.counted.queue != nil || $0.keyword == "retry" }))
    table.add(
      "lookups", { .count($0.counted.lookups) }, if: { $0.counted.lookups > 0 },
      .metric(
        "rxd_table_lookups", .counter, "How often expressions asked a table for a row",
        if: { $0.keyword == "table" || $0.counted.lookups > 0 }))
    table.add(
      "misses", { .count($0.counted.misses) }, if: { $0.counted.lookups > 0 },
      .metric(
        "rxd_table_misses", .counter, "How often a table had no row with the key",
        if: { $0.keyword == "table" || $0.counted.lookups > 0 }))
    table.add(
      "pauses_input", meaning: "whether it makes the sources wait", { .flag($0.counted.isPausing) }, if: \.hasPaused)
    table.add(
      "paused_nanoseconds", { .span($0.counted.paused) }, if: \.hasPaused,
      .metric(
        "rxd_component_backpressure_seconds", .counter, "Time in which the component made the pipeline's sources wait",
        if: { $0.isSink || $0.hasPaused }))
    table.add(
      "bytes", meaning: "read by a source, delivered by a sink", { $0.counted.bytes.map { .count($0) } },
      .metric("rxd_component_received_bytes", .counter, "Bytes that a source has read", if: \.isSource))
    table.add(
      nil, { $0.counted.bytes.map { .count($0) } },
      .metric("rxd_component_sent_bytes", .counter, "Bytes that a sink has delivered", if: { !$0.isSource }))
    table.add(
      "position", { $0.counted.position.map { .number(Int($0)) } },
      .metric("rxd_source_position_bytes", .gauge, "The position at which a source continues in its last input"))
    table.add(
      "lag_bytes", { $0.counted.lag.map { .number(Int($0)) } },
      .metric(
        "rxd_source_lag_bytes", .gauge, "Bytes of the files of a source that are left to read",
        note: "what the pipeline has not taken of the files of a `file` source, at most 100 of them"))
    table.add(
      "lag_nanoseconds", { $0.counted.lagAge.map { .span($0) } },
      .metric(
        "rxd_source_lag_seconds", .gauge, "The age of the oldest unread byte of a source",
        note:
          "as exact as readings (scrapes, `rxd top`) are frequent; older bytes count from the first reading"
      ))
    table.add(
      "waits", meaning: "whether it has events and waits for the pipeline", { .flag($0.counted.isWaiting) },
      if: \.isSource)
    table.add(
      "waited_nanoseconds", { .span($0.counted.waited) }, if: \.isSource,
      .metric(
        "rxd_source_wait_seconds", .counter, "Time in which a source had events and had to wait for the pipeline",
        if: \.isSource))
    table.add(
      "latency", meaning: "with the bounds of half and of 99 %, and the counts for each bound",
      { $0.counted.latency.map { .latency($0) } },
      .metric(
        "rxd_component_latency_seconds", .histogram,
        "For a sink, the time from accepting an event to its delivery; for a source that sends requests, from request to response",
        note: "with the time in queues and of all attempts, to 10 ms; of an `http` source also in an inner signal"))
    table.add(
      nil, { $0.busy.map { .share($0) } },
      .metric(
        "rxd_utilization", .gauge, "The share of a core that the component uses, since a reading 5 to 60 seconds ago",
        note: "the first one: since the start; above 1 where several threads run it"))
  }

  private static let connections = FigureTable<PipelineStatistics.Connections>(
    order: "open opened refused broken reused"
  ) { table in
    table.add(
      "open", { .number($0.open) },
      .metric(
        "rxd_component_connections", .gauge, "Connections of the component that are open",
        note:
          "of sources and sinks that listen (`tcp`, `unix`, `syslog`, `httpServer`, `sse`, `webSocket`, `prometheusExporter`), keep a connection (`tcp`, `unix`, `syslog` as sinks, `webSocket` with `url`) or send requests (`http`, `sse`, `docker`, `prometheusRemoteWrite`)"
      ))
    table.add(
      "opened", { .count($0.opened) },
      .metric(
        "rxd_component_connections_opened", .counter, "Connections that the component has accepted or made",
        note:
          "all components that send requests share the connections of the process: one counts for the component whose request made it"
      ))
    table.add(
      "reused", { $0.reused.map { .count($0) } },
      .metric("rxd_component_connections_reused", .counter, "Requests over an existing connection"))
    let failed = MetricFamily(
      "rxd_component_connections_failed", .counter,
      "Connections that were refused because there were too many, or that ended with an error, attempts included",
      note: "of requests: those without an answer, for lack of a connection or because it ended")
    table.add(
      "refused", meaning: "beyond the limit", { .count($0.refused) },
      .of(failed, labels: [("reason", "refused")], if: { $0.reused == nil }))
    table.add(
      "broken", meaning: "ended with an error", { .count($0.broken) }, .of(failed, labels: [("reason", "broken")]))
  }

  private struct BufferFigures {
    var queue: PipelineStatistics.Queue
    var isInMemory: Bool
  }

  private static let buffers = FigureTable<BufferFigures>(order: "events bytes in_flight oldest_nanoseconds") { table in
    table.add(
      "events", { .number($0.queue.events) },
      .metric(
        "rxd_buffer_events", .gauge, "Events that a sink has taken and not delivered",
        note: "`memory`, and in durable delivery `outbox`, which includes it"))
    table.add("bytes", { .number($0.queue.bytes) }, .metric("rxd_buffer_bytes", .gauge, "Bytes of these events"))
    table.add(
      "oldest_nanoseconds", { $0.queue.oldest.map { .span($0) } },
      .metric(
        "rxd_buffer_oldest_age_seconds", .gauge, "How long the oldest of these events has waited",
        read: { ($0.queue.oldest ?? ($0.queue.events == 0 ? .zero : nil)).map { .span($0) } }))
    table.add(
      "in_flight", { .number($0.queue.inFlight) },
      .metric(
        "rxd_buffer_in_flight_requests", .gauge, "Requests of a sink that wait for an answer", if: \.isInMemory))
  }

  private static let plugins = FigureTable<PipelineStatistics.Plugin>(
    order: "instances processes restarts in_hand poisoned missed_stderr_lines memory_bytes counts"
  ) { table in
    table.add(
      "instances", { .number($0.instances) },
      .metric("rxd_plugin_instances", .gauge, "Open instances of the step's plugin"))
    table.add(
      "processes", { .number($0.processes.count) },
      .metric("rxd_plugin_processes", .gauge, "Processes of the step's plugin"))
    table.add(
      "memory_bytes", { $0.memory.map { .number($0) } },
      .metric("rxd_plugin_memory_bytes", .gauge, "Memory of these processes that is in RAM"))
    table.add(
      "in_hand", { .number($0.inHand) },
      .metric(
        "rxd_plugin_in_hand_events", .gauge,
        "Events that the plugin has received and neither answered nor acknowledged"))
    table.add(
      "restarts", { .count($0.restarts) },
      .metric("rxd_plugin_restarts", .counter, "Starts of the plugin's program after it had ended by itself"))
    table.add(
      "poisoned", { .count($0.poisoned) },
      .metric(
        "rxd_plugin_poisoned_events", .counter, "Events given up because the program had ended with them three times"))
    table.add(
      "missed_stderr_lines", { .count($0.missedLines) },
      .metric(
        "rxd_plugin_missed_stderr_lines", .counter, "Lines of the program's standard error that were not logged",
        note: "beyond 20 a second"))
    table.add(
      "counts", { .counts($0.sortedCounts) },
      .metric(
        "rxd_plugin_counts", .counter, "Counters of the plugin, by its own names", note: "at most 100 names",
        label: "counter"))
    table.add(
      "gauges", { $0.gauges.isEmpty ? nil : .gauges($0.sortedGauges) },
      .metric(
        "rxd_plugin_gauge", .gauge, "Gauges of the plugin, by its own names",
        note: "the label `of` distinguishes gauges of one name, such as the lag of each partition; at most 100 names"))
  }
}

extension PipelineStatistics.Plugin {
  /// The counts of the plugin, by name.
  package var sortedCounts: [(name: String, count: UInt64)] {
    counts.sorted { $0.key.utf8.lexicographicallyPrecedes($1.key.utf8) }.map { ($0.key, $0.value) }
  }

  /// The gauges of the plugin, by name.
  package var sortedGauges: [(name: String, values: [(of: String, value: Double)])] {
    gauges.sorted { $0.key.utf8.lexicographicallyPrecedes($1.key.utf8) }.map { name, values in
      (name, values.sorted { $0.key.utf8.lexicographicallyPrecedes($1.key.utf8) }.map { ($0.key, $0.value) })
    }
  }
}

// Steps are many. Called here, the generic code is compiled for them.

extension StepFigures {
  /// The figures as members of a JSON object.
  package var members: [(String, JSONText)] { Figures.steps.members(of: self) }
}

extension MetricsWriter {
  package mutating func write(steps: [Labelled<StepFigures>]) { write(Figures.steps, steps) }
}
