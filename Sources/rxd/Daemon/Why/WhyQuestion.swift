import PipelineCore

/// A question about events that did not pass.
struct WhyQuestion {
  /// The name of the pipeline; `*` matches any text.
  var pipeline = "*"
  /// Steps, or lines of the file; none: all.
  var steps: [StepPattern] = []
  /// The verdicts; empty: all.
  var verdicts: Set<Verdict> = []
  /// The name of an event, its position (`FILE:OFFSET`), or its field `id`.
  var id: String?
  var condition: CheckedExpression?
  /// The times between which the event was stopped, in nanoseconds since 1970.
  var since = Int64.min
  var until = Int64.max
  /// The number of events that are shown, which are the newest.
  var limit = 10
  /// The maximum number of bytes of an event that are shown.
  var eventBytes = 2048

  /// Verdicts that stop an event.
  static let verdicts: [Verdict] = [.dropped, .superseded, .undecided, .rejected, .failed]

  func means(_ plan: Plan) -> Bool { Wildcard.matches(pipeline, plan.name) }
  func means(_ step: StepID, of plan: Plan) -> Bool { steps.isEmpty || steps.contains { $0.means(step, of: plan) } }

  /// The matching events, in chronological order, and the number of events that could not be judged, because they were
  /// too large to be kept or because the condition failed.
  func events(of stopped: StoppedEvents) -> (found: [StoppedEvent], unjudged: Int) {
    let judge = condition.map { TapCondition($0) }
    var unjudged = 0
    let found = stopped.all.filter { event in
      guard since <= event.time, event.time <= until, verdicts.isEmpty || verdicts.contains(event.verdict),
        means(event.step, of: event.plan)
      else { return false }
      if let id, !Self.isCalled(id, event) { return false }
      guard let judge else { return true }
      switch event.withEvent({ judge.verdict(on: $0, at: event.time) }) ?? .failed {
      case .fulfilled: return true
      case .notFulfilled: return false
      case .failed:
        unjudged += 1
        return false
      }
    }
    return (found, unjudged)
  }

  private static func isCalled(_ id: String, _ event: StoppedEvent) -> Bool {
    if event.id == id { return true }
    if event.position >= 0, id == "\(event.path ?? event.source):\(event.position)" { return true }
    return event.withEvent { $0.hasField("id", of: id) } ?? false
  }
}

/// Names steps: by name, by their signal or sink, or by a line of the file.
struct StepPattern {
  private enum Kind {
    case name(String)
    case line(file: String, number: Int)
  }
  private let kind: Kind

  /// `books/filter`, `books`, `books/*`, `14`, `search.yaml:14`.
  init(_ text: String) {
    if let number = Int(text), number > 0 {
      kind = .line(file: "", number: number)
    } else if let colon = text.utf8.lastIndex(of: UInt8(ascii: ":")),
      let number = Int(text[text.index(after: colon)...]), number > 0
    {
      kind = .line(file: String(text[..<colon]), number: number)
    } else {
      kind = .name(text)
    }
  }

  func means(_ step: StepID, of plan: Plan) -> Bool {
    let described = plan.steps[step.number]
    switch kind {
    case .name(let pattern):
      return [described.label, described.owner].contains { Wildcard.matches(pattern, $0) }
    case .line(let file, let number):
      let path = plan.source.name
      guard path == file || path.hasSuffix("/" + file) || file.isEmpty else { return false }
      return described.location.line == number
        || plan.expressions.contains { $0.step == step && $0.checked.text.location(0, 0).line == number }
    }
  }
}

extension Event {
  /// Whether the event has this field, with this text or a number written in this way.
  func hasField(_ name: String, of value: String) -> Bool {
    let arena = Arena()
    let output = OutputBuffer()
    guard JSONWriter.appendAsItCame(self.value, to: output) == nil else { return false }
    let memory = Slab(Array(output.bytes))
    return withExtendedLifetime(memory) {
      let document = JSONParser().parse(memory.bytes, into: arena)
      guard document.isAnyMap else { return false }
      for entry in document.entries where String(decoding: entry.key.rawBytes, as: UTF8.self) == name {
        if entry.value.is(.string) {
          return String(decoding: JSONParser.unescape(entry.value, into: arena).rawBytes, as: UTF8.self) == value
        }
        let text = OutputBuffer()
        return JSONWriter.appendAsItCame(entry.value, to: text) == nil
          && String(decoding: text.bytes, as: UTF8.self) == value
      }
      return false
    }
  }
}
