import Glibc
import PipelineCore

/// The metrics of the process; names and labels are an interface.
struct Metrics {
  /// How many steps and edges have series of their own; those of further pipelines are left out and counted.
  static let mostParts = 5000

  let view: ProcessView
  typealias Labels = [(name: String, value: String)]

  /// The share of a core of each step, by the names of its pipeline and step; see ``BusyShares``.
  private let busy: [BusyShares.Name: Double]

  init(_ view: ProcessView, busy: [BusyShares.Name: Double] = [:]) {
    self.view = view
    self.busy = busy
  }

  var families: [MetricFamily] {
    var parts = 0
    let shown = view.pipelines.filter { pipeline in
      parts += pipeline.plan.steps.count + pipeline.plan.edges.count
      return parts <= Self.mostParts
    }
    return process(omitted: view.pipelines.count - shown.count) + pipelines + components(shown)
      + Self.buffers(shown) + Self.plugins(shown) + Self.edges(shown)
  }

  // MARK: The process

  private func process(omitted: Int) -> [MetricFamily] {
    var build = MetricFamily("rxd_build", .info, "The version of rxd")
    build.add([("version", Version.number)], 1)
    var uptime = MetricFamily("rxd_uptime_seconds", .gauge, "Time since the process started")
    uptime.add([], seconds: TimeSpan(nanoseconds: max(0, view.at - view.startedAt)))
    var start = MetricFamily("process_start_time_seconds", .gauge, "When the process started, in seconds since 1970")
    start.add([], seconds: TimeSpan(nanoseconds: view.startedAt))
    var usage = rusage()
    getrusage(__rusage_who_t(RUSAGE_SELF.rawValue), &usage)
    func span(_ time: timeval) -> TimeSpan {
      TimeSpan(nanoseconds: Int64(time.tv_sec) * 1_000_000_000 + Int64(time.tv_usec) * 1000)
    }
    var cpu = MetricFamily("process_cpu_seconds", .counter, "CPU time of the process, in user and system mode")
    cpu.add([], seconds: span(usage.ru_utime) + span(usage.ru_stime))
    var memory = MetricFamily("process_resident_memory_bytes", .gauge, "Memory of the process that is in RAM")
    if let bytes = ResidentMemory.bytes() { memory.add([], bytes) }
    var reloads = MetricFamily("rxd_reloads", .counter, "Reloads by result")
    for result in ["reloaded", "refused", "failed"] { reloads.add([("result", result)], view.reloads[result] ?? 0) }
    var last = MetricFamily(
      "rxd_last_reload_successful", .gauge,
      "1 unless the last reload was refused, or a pipeline does not run from its new file")
    last.add([], view.lastReloadSucceeded ? 1 : 0)
    var left = MetricFamily(
      "rxd_metrics_omitted_pipelines", .gauge, "Pipelines whose steps have no series because there are too many")
    left.add([], omitted)
    var late = MetricFamily(
      "rxd_metrics_late_pipelines", .gauge, "Pipelines that one event kept busy for too long to be asked")
    late.add([], view.pipelines.count { !$0.isCurrent })
    return [build, uptime, start, cpu, memory, reloads, last, left, late]
  }

  // MARK: Pipelines

  private var pipelines: [MetricFamily] {
    var running = MetricFamily("rxd_pipeline_running", .gauge, "1 while the pipeline runs")
    var state = MetricFamily("rxd_pipeline_state", .gauge, "1 for the state in which the pipeline is")
    var restarts = MetricFamily(
      "rxd_pipeline_restarts", .counter, "Failures after which the pipeline was started again")
    var letters = MetricFamily(
      "rxd_pipeline_dead_letters", .counter,
      "Rejected events that nothing reads: kept in the state directory, written to the log alone, or kept and dropped to make room"
    )
    var turns = MetricFamily("rxd_pipeline_turns", .counter, "Turns: batches of input, timers and answers")
    var paused = MetricFamily(
      "rxd_pipeline_input_paused_seconds", .counter, "Time in which sinks or queues made the pipeline's sources wait")
    var timers = MetricFamily("rxd_pipeline_pending_timers", .gauge, "Timers that are set")
    for pipeline in view.pipelines {
      let labels = [(name: "pipeline", value: pipeline.name)]
      running.add(labels, pipeline.isRunning ? 1 : 0)
      state.add(labels + [("state", pipeline.state)], 1)
      restarts.add(labels, pipeline.restarts)
      for fate in DeadLetterCounts.Fate.allCases {
        letters.add(labels + [("fate", fate.rawValue)], pipeline.deadLetters[fate] ?? 0)
      }
      turns.add(labels, pipeline.statistics.turns)
      paused.add(labels, seconds: pipeline.statistics.paused)
      timers.add(labels, pipeline.statistics.timers)
    }
    return [running, state, restarts, letters, turns, paused, timers]
  }

  // MARK: Components

  static func labels(_ pipeline: ProcessView.Pipeline, _ step: StepID) -> Labels {
    let plan = pipeline.plan
    return [
      ("pipeline", pipeline.name), ("component_id", plan.id(of: step)), ("component_kind", plan.kind(of: step)),
      ("component_type", plan.steps[step.number].keyword),
    ]
  }

  private func components(_ pipelines: [ProcessView.Pipeline]) -> [MetricFamily] {
    var received = MetricFamily(
      "rxd_component_received_events", .counter,
      "Events that came to the component; of a source, those that it read or made")
    var sent = MetricFamily(
      "rxd_component_sent_events", .counter, "Events that the component sent; of a sink, those that it delivered")
    var made = MetricFamily(
      "rxd_component_made_events", .counter, "Events of the component's own, such as sums and windows")
    var kept = MetricFamily(
      "rxd_component_kept_events", .counter, "Events that the component keeps or has combined into others")
    var discarded = MetricFamily(
      "rxd_component_discarded_events", .counter,
      "Events left out: dropped by the meaning of the component, superseded by newer ones, or not delivered")
    var errors = MetricFamily(
      "rxd_component_errors", .counter,
      "Events for which the component failed: rejected to the errors output, undecided conditions, or ends of the signal"
    )
    var holding = MetricFamily(
      "rxd_component_held_events", .gauge, "Events that the component holds and will decide about")
    var inner = MetricFamily("rxd_component_inner_signals", .gauge, "Inner signals, groups or executions that run")
    var timers = MetricFamily("rxd_component_pending_timers", .gauge, "Timers of the component that are set")
    var keys = MetricFamily("rxd_component_keys", .gauge, "Keys that the component remembers")
    var keptBytes = MetricFamily(
      "rxd_component_kept_bytes", .gauge,
      "Bytes of the keys, events and values that the component keeps, without the tables around them")
    var state = MetricFamily(
      "rxd_component_state_bytes", .gauge, "Bytes of the component in the state that was saved last")
    var time = MetricFamily(
      "rxd_component_processing_seconds", .counter, "Time in the component alone, estimated from samples")
    var retries = MetricFamily("rxd_component_retries", .counter, "Attempts that repeated a failed one")
    var pauses = MetricFamily(
      "rxd_component_backpressure_seconds", .counter, "Time in which the component made the pipeline's sources wait")
    var readBytes = MetricFamily("rxd_component_received_bytes", .counter, "Bytes that a source has read")
    var sentBytes = MetricFamily("rxd_component_sent_bytes", .counter, "Bytes that a sink has delivered")
    var position = MetricFamily(
      "rxd_source_position_bytes", .gauge, "Where a source goes on in the input that it read last")
    var lag = MetricFamily(
      "rxd_source_lag_bytes", .gauge, "Bytes of the files of a source that are left to read")
    var waited = MetricFamily(
      "rxd_source_wait_seconds", .counter, "Time in which a source had events and had to wait for the pipeline")
    var lagAge = MetricFamily(
      "rxd_source_lag_seconds", .gauge, "How long the oldest byte that is left to read has been there")
    var latency = MetricFamily(
      "rxd_component_latency_seconds", .histogram,
      "Of a sink, from taking an event to its delivery; of a source that asks others, from a request to its answer")
    var utilization = MetricFamily(
      "rxd_utilization", .gauge, "The share of a core that the component takes, since a look 5 to 60 seconds ago")
    var open = MetricFamily("rxd_component_connections", .gauge, "Connections of the component that are open")
    var opened = MetricFamily(
      "rxd_component_connections_opened", .counter, "Connections that the component has accepted or made")
    var ended = MetricFamily(
      "rxd_component_connections_failed", .counter,
      "Connections that were refused because there were too many, or that ended with an error, attempts included")
    var reused = MetricFamily(
      "rxd_component_connections_reused", .counter, "Requests over a connection that there was already")
    for pipeline in pipelines {
      for step in pipeline.plan.fileSteps(pipeline.statistics) {
        let labels = Self.labels(pipeline, step.step)
        let stage = Self.stage
        if let connections = step.connections {
          open.add(labels, connections.open)
          opened.add(labels, connections.opened)
          if let count = connections.reused {
            reused.add(labels, count)
          } else {
            ended.add(labels + [("reason", "refused")], connections.refused)
          }
          ended.add(labels + [("reason", "broken")], connections.broken)
        }
        let kind = pipeline.plan.kind(of: step.step)
        received.add(labels, step.received)
        sent.add(labels, step.sent)
        errors.add(labels + [("error_type", "rejected"), ("stage", stage(kind))], step.rejected)
        if kind == "operator" {
          errors.add(labels + [("error_type", "undecided"), ("stage", stage(kind))], step.undecided)
        }
        if kind != "sink" { errors.add(labels + [("error_type", "failed"), ("stage", stage(kind))], step.failed) }
        if kind != "source" {
          discarded.add(labels + [("intentional", "true"), ("reason", "dropped")], step.dropped)
          holding.add(labels, step.holding)
        }
        switch kind {
        case "operator":
          discarded.add(labels + [("intentional", "true"), ("reason", "superseded")], step.superseded)
          made.add(labels, step.made)
          kept.add(labels, step.kept)
          if step.inner > 0 || step.receivedInner > 0 { inner.add(labels, step.inner) }
        case "sink": discarded.add(labels + [("intentional", "false"), ("reason", "undelivered")], step.held)
        default: waited.add(labels, seconds: step.waited)
        }
        if step.timers > 0 || kind == "operator" { timers.add(labels, step.timers) }
        if let count = step.keys { keys.add(labels, count) }
        if let bytes = step.keptBytes { keptBytes.add(labels, bytes) }
        if let bytes = step.stateBytes { state.add(labels, bytes) }
        if step.nanoseconds != nil || kind == "operator" {
          time.add(labels, seconds: TimeSpan(nanoseconds: Int64(clamping: step.nanoseconds ?? 0)))
        }
        if step.retries > 0 || step.queue != nil || pipeline.plan.steps[step.step.number].keyword == "retry" {
          retries.add(labels, step.retries)
        }
        if kind == "sink" || step.isPausing || step.paused > .zero { pauses.add(labels, seconds: step.paused) }
        if let bytes = step.bytes {
          if kind == "source" { readBytes.add(labels, bytes) } else { sentBytes.add(labels, bytes) }
        }
        if let age = step.lagAge { lagAge.add(labels, seconds: age) }
        if let spans = step.latency { latency.add(labels, spans) }
        if let share = busy[BusyShares.Name(pipeline: pipeline.name, step: pipeline.plan.id(of: step.step))] {
          utilization.add(labels, share: share)
        }
        if let bytes = step.lag { lag.add(labels, Int(bytes)) }
        if let offset = step.position { position.add(labels, Int(offset)) }
      }
    }
    return [
      received, sent, made, kept, discarded, errors, holding, inner, timers, keys, keptBytes, state, time, retries,
      pauses, readBytes,
      sentBytes, position, lag, lagAge, waited, latency, utilization, open, opened, reused, ended,
    ]
  }

  private static func stage(_ kind: String) -> String {
    kind == "source" ? "receiving" : kind == "sink" ? "sending" : "processing"
  }

  // MARK: Buffers

  private static func buffers(_ pipelines: [ProcessView.Pipeline]) -> [MetricFamily] {
    var events = MetricFamily("rxd_buffer_events", .gauge, "Events that a sink has taken and not delivered")
    var bytes = MetricFamily("rxd_buffer_bytes", .gauge, "Bytes of these events")
    var oldest = MetricFamily("rxd_buffer_oldest_age_seconds", .gauge, "How long the oldest of these events has waited")
    var inFlight = MetricFamily("rxd_buffer_in_flight_requests", .gauge, "Requests of a sink that wait for an answer")
    for pipeline in pipelines {
      for step in pipeline.plan.fileSteps(pipeline.statistics) {
        for (name, queue) in [("memory", step.queue), ("outbox", step.outbox)] {
          guard let queue else { continue }
          let labels = labels(pipeline, step.step) + [("buffer", name)]
          events.add(labels, queue.events)
          bytes.add(labels, queue.bytes)
          if let age = queue.oldest ?? (queue.events == 0 ? .zero : nil) { oldest.add(labels, seconds: age) }
          if name == "memory" { inFlight.add(labels, queue.inFlight) }
        }
      }
    }
    return [events, bytes, oldest, inFlight]
  }

  // MARK: Edges

  private static func edges(_ pipelines: [ProcessView.Pipeline]) -> [MetricFamily] {
    var events = MetricFamily("rxd_edge_events", .counter, "Events that went from one component to another")
    var bytes = MetricFamily(
      "rxd_edge_bytes", .counter,
      "Bytes of these events: as a source read or a sink wrote them, else as JSON text, estimated from samples")
    for pipeline in pipelines {
      var counts: [(labels: Labels, events: UInt64, bytes: UInt64?)] = []
      var known: [String: Int] = [:]
      for edge in pipeline.statistics.edges.dropFirst() {
        let (from, to) = (pipeline.plan.id(of: edge.plan.from), pipeline.plan.id(of: edge.plan.to))
        if to.isEmpty { continue }
        let name = "\(from)\n\(to)"
        if let index = known[name] {
          counts[index].events &+= edge.events
          if let more = edge.bytes { counts[index].bytes = (counts[index].bytes ?? 0) &+ more }
        } else {
          known[name] = counts.count
          counts.append(
            (
              [("pipeline", pipeline.name), ("from", from), ("to", to), ("output", edge.plan.output)], edge.events,
              edge.bytes
            ))
        }
      }
      for count in counts {
        events.add(count.labels, count.events)
        if let size = count.bytes { bytes.add(count.labels, size) }
      }
    }
    return [events, bytes]
  }
}
