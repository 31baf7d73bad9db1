import FigureTable
import PipelineCore
import PipelineRuntime

extension Supervisor {
  /// Assigns each pipeline its share of the memory for events that did not pass.
  func shareWhyMemory() {
    guard slots.count != whySharers, !slots.isEmpty else { return }
    whySharers = slots.count
    let share = min(StoppedEvents.limit, options.whyMemory / slots.count)
    for slot in slots { slot.stopped.setLimit(share) }
  }

  /// `GET /why`: events that did not pass, with the reasons.
  func answerWhy(_ request: ControlRequest) {
    func refuse(_ status: Int, _ message: String, _ more: [(String, JSONText)] = []) {
      request.answer(status, .object([("error", .string(message))] + more))
    }
    var asked = WhyQuestion()
    asked.pipeline = request.query["pipeline"] ?? "*"
    asked.steps = request.all("step").map(StepPattern.init)
    asked.id = request.query["id"]
    for text in request.all("verdict") {
      guard let verdict = Verdict(rawValue: text), WhyQuestion.verdicts.contains(verdict) else {
        let known = WhyQuestion.verdicts.map(\.rawValue).joined(separator: ", ")
        return refuse(400, "verdict is one of \(known), not '\(text)'")
      }
      asked.verdicts.insert(verdict)
    }
    for (name, path, most) in [("limit", \WhyQuestion.limit, 1000), ("bytes", \WhyQuestion.eventBytes, 1 << 14)] {
      guard let text = request.query[name] else { continue }
      guard let number = Int(text), (1...most).contains(number) else {
        return refuse(400, "\(name) is a number from 1 to \(most), not '\(text)'")
      }
      asked[keyPath: path] = number
    }
    for (name, path) in [("since", \WhyQuestion.since), ("until", \WhyQuestion.until)] {
      guard let text = request.query[name] else { continue }
      guard let time = Self.time(text) else {
        return refuse(
          400, "\(name) is a time span before now, such as 10m, or a time such as 2026-01-31T12:00:00Z, not '\(text)'")
      }
      asked[keyPath: path] = time
    }
    if let text = request.query["where"] {
      var diagnostics = Diagnostics()
      asked.condition = TapCondition.check(
        text, slots.map(\.plan).first(where: asked.means)?.functions ?? .none, into: &diagnostics)
      guard asked.condition != nil, !diagnostics.hasErrors else {
        return refuse(400, DiagnosticRenderer(colors: request.wantsColors).text(diagnostics.all))
      }
    }
    guard options.whyMemory > 0 else {
      return refuse(409, "events that do not pass are not kept: the process runs with a --why-memory of 0")
    }
    let plans = slots.map(\.plan).filter(asked.means)
    if plans.isEmpty {
      return refuse(
        404, "there is no pipeline '\(asked.pipeline)'", [("known", .array(slots.map { .string($0.name) }))])
    }
    let isKnown = slots.contains { slot in
      asked.means(slot.plan)
        && (slot.plan.steps.indices.contains { asked.means(StepID($0), of: slot.plan) }
          || slot.stopped.all.contains { asked.means($0.step, of: $0.plan) })
    }
    guard isKnown else {
      let known = plans.prefix(20).flatMap { plan in
        plan.steps.indices.map { StepID($0) }.filter(plan.isInFile).map(plan.id(of:))
      }
      return refuse(404, "no step has this name", [("known", .array(known.prefix(500).map(JSONText.string)))])
    }
    let stopped = Dictionary(slots.map { ($0.name, $0.stopped) }) { first, _ in first }
    observe { view in
      let answer = WhyAnswer(asked, view, stopped)
      switch request.query["format"] {
      case "text": request.answer(200, text: answer.text(DiagnosticRenderer(colors: request.wantsColors)))
      case "ndjson": request.answer(200, text: answer.lines, type: "application/x-ndjson")
      default: request.answer(200, answer.document)
      }
    }
  }

  /// A time span before now, `10m`, or a point in time, in nanoseconds since 1970.
  private static func time(_ text: String) -> Int64? {
    if case .success(let span) = Units.duration(LocatedText(text)), span >= .zero {
      return SystemClock.shared.wallTime &- span.nanoseconds
    }
    return TimeText.nanoseconds(rfc3339: text)
  }
}

/// The answer to one question about events that did not pass.
struct WhyAnswer {
  private struct Pipeline {
    var name: String
    var events: [StoppedEvent]
    var steps: [Step]
    /// Why the pipeline does not run; nil: it runs, or has completed.
    var failure: JSONText?
  }
  fileprivate struct Step {
    var counted: PipelineStatistics.Step
    var id: String
    var location: SourceLocation
    var kept: Int
    /// The number of stopped events, by verdict.
    var counts: [(verdict: Verdict, count: UInt64)]
  }
  private let asked: WhyQuestion
  private var pipelines: [Pipeline] = []
  private var found = 0
  private var unjudged = 0
  /// Why the last reload did not lead to the new files; nil: it did.
  private var refusal: String?

  init(_ asked: WhyQuestion, _ view: ProcessView, _ stopped: [String: StoppedEvents]) {
    self.asked = asked
    if !view.lastReloadSucceeded { refusal = view.reload.flatMap { $0["reason"]?.asText ?? $0["summary"]?.asText } }
    var all: [StoppedEvent] = []
    for pipeline in view.pipelines where asked.means(pipeline.plan) {
      guard let events = stopped[pipeline.name] else { continue }
      let (found, unjudged) = asked.events(of: events)
      self.unjudged += unjudged
      self.found += found.count
      all += found
      let kept = Dictionary(grouping: events.all) { $0.plan.id(of: $0.step) }.mapValues(\.count)
      let plan = pipeline.plan
      let steps = plan.fileSteps(pipeline.statistics).filter { asked.means($0.step, of: plan) }.compactMap {
        (step) -> Step? in
        let counts = WhyQuestion.verdicts.map { (verdict: $0, count: step.count(of: $0)) }.filter { $0.count > 0 }
        if counts.isEmpty, step.holding == 0, step.trouble == nil { return nil }
        let id = plan.id(of: step.step)
        return Step(
          counted: step, id: id, location: plan.steps[step.step.number].location, kept: kept[id] ?? 0, counts: counts)
      }
      let isDown = ["failed", "restarting"].contains(pipeline.figures.state)
      pipelines.append(
        Pipeline(name: pipeline.name, events: found, steps: steps, failure: isDown ? pipeline.figures.failure : nil))
    }
    // Only the newest events of all pipelines together are kept.
    if all.count > asked.limit {
      let first = all.map(\.time).sorted(by: >)[asked.limit - 1]
      for index in pipelines.indices { pipelines[index].events.removeAll { $0.time < first } }
      while pipelines.reduce(0, { $0 + $1.events.count }) > asked.limit {
        guard let index = pipelines.firstIndex(where: { $0.events.first?.time == first }) else { break }
        pipelines[index].events.removeFirst()
      }
    }
  }

  private var events: [StoppedEvent] {
    pipelines.flatMap(\.events).sorted { ($0.time, $0.number) < ($1.time, $1.number) }
  }

  var document: JSONText {
    .object([
      (
        "pipelines",
        .array(
          pipelines.map { pipeline in
            .object([
              ("name", .string(pipeline.name)), ("failure", pipeline.failure ?? .null),
              ("steps", .array(pipeline.steps.map(\.document))),
              ("events", .array(pipeline.events.map { $0.document(bytes: asked.eventBytes) })),
            ])
          })
      ), ("found", .int(found)), ("unjudged", .int(unjudged)),
    ])
  }

  /// The answer as lines: one for each event, and one with the counts.
  var lines: String {
    let rest = JSONText.object([
      ("found", .int(found)), ("unjudged", .int(unjudged)),
      (
        "pipelines",
        .array(
          pipelines.map { .object([("name", .string($0.name)), ("steps", .array($0.steps.map(\.document)))]) })
      ),
    ])
    return (events.map { $0.document(bytes: asked.eventBytes) } + [rest]).map { $0.line + "\n" }.joined()
  }

  func text(_ renderer: DiagnosticRenderer) -> String {
    let events = events
    var text = events.map { $0.text(bytes: asked.eventBytes, renderer) + "\n" }.joined()
    if events.isEmpty {
      text += "No kept event matches.\n"
      if asked.condition != nil || asked.id != nil {
        text +=
          "The event has passed, was one of many, or has not come. 'rxd tap --where' shows the next one.\n"
      }
    }
    if found > events.count { text += "\(Printable.count(found - events.count, "older event")) not shown (--limit)\n" }
    if unjudged > 0 {
      text += "Not judged, because too large or because the condition failed: \(LiveRanking.events(unjudged))\n"
    }
    let several = pipelines.count > 1
    if let refusal { text += "The last reload was rejected: \(refusal)\n" }
    for pipeline in pipelines {
      if let reason = pipeline.failure?["reason"]?.asText {
        text += "`\(pipeline.name)` does not run: \(reason)\n"
        if let next = pipeline.failure?["next_try"]?.asText { text += "It is started again at \(next).\n" }
      }
      for step in pipeline.steps {
        text += step.sentences(several ? "`\(step.id)` of `\(pipeline.name)`" : "`\(step.id)`")
      }
    }
    return text
  }
}

extension WhyAnswer.Step {
  fileprivate var document: JSONText {
    var members: [(String, JSONText)] = [
      ("id", .string(id)), ("at", .string("\(location)")),
      ("counts", .object(counts.map { ($0.verdict.rawValue, .count($0.count)) })), ("kept", .int(kept)),
      ("holding", .count(counted.holding)),
    ]
    if let trouble = counted.trouble { members.append(("trouble", trouble.document)) }
    if counted.timers > 0, let next = counted.nextTimer {
      members.append(("next_timer_nanoseconds", .int(Int(next.nanoseconds))))
    }
    return .object(members)
  }

  /// The counts of a step that stopped events.
  fileprivate func sentences(_ name: String) -> String {
    var text = ""
    if !counts.isEmpty {
      let parts = counts.map { "\(LiveRanking.number(Int(clamping: $0.count))) \($0.verdict.rawValue)" }
      text += "\(name) at \(location): \(parts.joined(separator: ", ")); \(kept) kept here\n"
    }
    if let trouble = counted.trouble {
      let reason = Printable.cut(trouble.reason, limit: 1000)
      text += "\(name) at \(location) does not deliver: \(reason), since \(StoredTime.text(trouble.since))\n"
    }
    if counted.holding > 0 {
      text += "\(name) at \(location) holds \(LiveRanking.events(Int(clamping: counted.holding)))"
      if counted.timers > 0, let next = counted.nextTimer {
        text +=
          next > .zero
          ? "; its next timer is due in \(LiveRanking.time(Double(next.nanoseconds) / 1e9))" : "; its timer is due"
      }
      text += "\n"
    }
    return text
  }
}

extension PipelineStatistics.Step {
  fileprivate func count(of verdict: Verdict) -> UInt64 {
    switch verdict {
    case .dropped: dropped
    case .superseded: superseded
    case .undecided: undecided
    case .rejected: rejected
    case .failed: failed
    case .passed, .kept: 0
    }
  }
}
