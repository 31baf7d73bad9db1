import PipelineCore

extension PipelineStatistics {
  /// The counts as members of a JSON object, for `rxd run --stats`.
  func members(of plan: Plan) -> [(String, JSONText)] { members(PlanIndex(plan)) }

  /// The counts as members of a JSON object, for `rxd run --stats` and `GET /stats`.
  func members(_ index: PlanIndex) -> [(String, JSONText)] {
    let edges: [JSONText] = index.links.flatMap { link in
      link.edges.compactMap { edge in
        let members = self.edges[edge.number].members
        return members.isEmpty
          ? nil
          : .object(
            [("from", .string(link.from)), ("to", .string(link.to)), ("output", .string(link.output))] + members)
      }
    }
    return ownMembers + [
      ("steps", .array(index.steps.map { .object($0.members + steps[$0.id.number].members($0)) })),
      ("edges", .array(edges)),
    ]
  }

  /// The counts of the pipeline itself.
  var ownMembers: [(String, JSONText)] {
    [
      ("turns", .count(turns)), ("timers", .int(timers)), ("paused_nanoseconds", .int(Int(paused.nanoseconds))),
      ("is_paused", .bool(isInputPaused)),
    ]
  }
}

extension PipelineStatistics.Edge {
  /// The counts as members of a JSON object; none while nothing has used the edge.
  var members: [(String, JSONText)] {
    guard events > 0 || subscriptions > 0 else { return [] }
    var members: [(String, JSONText)] = [
      ("events", .count(events)), ("open", .int(open)), ("failures", .count(failures)),
    ]
    if let bytes {
      members.append(("bytes", .count(bytes)))
      if bytesAreEstimated { members.append(("bytes_are_estimated", .bool(true))) }
    }
    return members
  }
}

extension PipelineStatistics.Step {
  /// The counts as members of a JSON object.
  func members(_ step: PlanIndex.Step) -> [(String, JSONText)] {
    var members: [(String, JSONText)] = []
    members.reserveCapacity(32)
    members += [
      ("in", .count(received)), ("inner_in", .count(receivedInner)), ("made", .count(made)), ("out", .count(sent)),
      ("kept", .count(kept)), ("dropped", .count(dropped)), ("superseded", .count(superseded)),
      ("undecided", .count(undecided)), ("rejected", .count(rejected)), ("failed", .count(failed)),
      ("held", .count(held)), ("restored", .count(restored)), ("holding", .count(holding)),
    ]
    if let nanoseconds {
      members.append(("nanoseconds", .count(nanoseconds)))
      members.append(("timed_events", .count(samples)))
    }
    if let bytes { members.append(("bytes", .count(bytes))) }
    if let position { members.append(("position", .int(Int(position)))) }
    if let lag { members.append(("lag_bytes", .int(Int(lag)))) }
    if let lagAge { members.append(("lag_nanoseconds", .int(Int(lagAge.nanoseconds)))) }
    if let latency { members.append(("latency", latency.document)) }
    if inner > 0 { members.append(("inner", .int(inner))) }
    if timers > 0 {
      members.append(("timers", .int(timers)))
      members.append(("next_timer_nanoseconds", .int(Int(nextTimer?.nanoseconds ?? 0))))
      members.append(("timers_due", .array(dueTimers.map { .int(Int($0.nanoseconds)) })))
    }
    if deadLetters > 0 { members.append(("dead_letters", .count(deadLetters))) }
    if retries > 0 { members.append(("retries", .count(retries))) }
    if let keys { members.append(("keys", .int(keys))) }
    if let keptEvents, keptEvents > 0 { members.append(("kept_events", .int(keptEvents))) }
    if let keptBytes { members.append(("kept_bytes", .int(keptBytes))) }
    if let stateBytes { members.append(("state_bytes", .int(stateBytes))) }
    if paused > .zero || isPausing {
      members.append(("pauses_input", .bool(isPausing)))
      members.append(("paused_nanoseconds", .int(Int(paused.nanoseconds))))
    }
    if step.isSource {
      members.append(("waits", .bool(isWaiting)))
      members.append(("waited_nanoseconds", .int(Int(waited.nanoseconds))))
    }
    if let connections { members.append(("connections", connections.document)) }
    if let trouble { members.append(("trouble", trouble.document)) }
    if let plugin { members.append(("plugin", plugin.document)) }
    if let queue { members.append(("queue", queue.document)) }
    if let outbox { members.append(("outbox", outbox.document)) }
    return members
  }
}

extension Latency {
  fileprivate var document: JSONText {
    .object([
      ("count", .count(count)), ("sum_nanoseconds", .int(Int(sum))),
      ("p50_nanoseconds", .int(Int(bound(of: 0.5) ?? 0))), ("p99_nanoseconds", .int(Int(bound(of: 0.99) ?? 0))),
      // Counts for each bound, not cumulated; the last is above all bounds.
      ("counts", .array(counts.map(JSONText.count))),
    ])
  }
}

extension SinkTrouble {
  /// As in `GET /stats` and `GET /status`.
  var document: JSONText {
    .object([("reason", .string(Printable.cut(reason, limit: 1000))), ("since", .string(StoredTime.text(since)))])
  }
}

extension PipelineStatistics.Queue {
  fileprivate var document: JSONText {
    var members: [(String, JSONText)] = [
      ("events", .int(events)), ("bytes", .int(bytes)), ("in_flight", .int(inFlight)),
    ]
    if let oldest { members.append(("oldest_nanoseconds", .int(Int(oldest.nanoseconds)))) }
    return .object(members)
  }
}

extension PipelineStatistics.Connections {
  fileprivate var document: JSONText {
    var members: [(String, JSONText)] = [
      ("open", .int(open)), ("opened", .count(opened)), ("refused", .count(refused)), ("broken", .count(broken)),
    ]
    if let reused { members.append(("reused", .count(reused))) }
    return .object(members)
  }
}

extension PipelineStatistics.Plugin {
  fileprivate var document: JSONText {
    var members: [(String, JSONText)] = [
      ("instances", .int(instances)), ("processes", .int(processes.count)), ("restarts", .count(restarts)),
      ("in_hand", .int(inHand)), ("poisoned", .count(poisoned)), ("missed_stderr_lines", .count(missedLines)),
    ]
    if let memory { members.append(("memory_bytes", .int(memory))) }
    members.append(("counts", .object(sortedCounts.map { ($0.name, .count($0.count)) })))
    return .object(members)
  }

  /// The counts of the plugin, by name.
  var sortedCounts: [(name: String, count: UInt64)] {
    counts.sorted { $0.key.utf8.lexicographicallyPrecedes($1.key.utf8) }.map { ($0.key, $0.value) }
  }
}

extension Plan {
  /// The steps of the file, in its order.
  func fileSteps(_ statistics: PipelineStatistics) -> [PipelineStatistics.Step] {
    statistics.steps.filter { isInFile($0.step) }
      .sorted { steps[$0.step.number].location.offset < steps[$1.step.number].location.offset }
  }

  /// `source`, `operator` or `sink`.
  func kind(of step: StepID) -> String {
    isSource(step) ? "source" : sinks.contains { $0.step == step } ? "sink" : "operator"
  }
}

extension EdgePlan {
  /// `errors` or `events`.
  var output: String { if case .errors = from { "errors" } else { "events" } }
}

extension JSONText {
  static func count(_ number: UInt64) -> JSONText { .int(Int(clamping: number)) }
}
