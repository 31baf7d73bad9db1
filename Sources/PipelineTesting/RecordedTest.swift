import PipelineCore

/// A test of a pipeline, generated from the events that passed its edges while it ran: the inputs of its sources, the
/// answers to the requests of its inner sources, and the events of one signal or sink, which the test expects.
///
/// Times are rounded to milliseconds. The expected times are those of virtual time, because a running pipeline is
/// always slightly late. So the generated test is run, and matches if the same events arrive in the same order, each
/// within ``tolerance`` of its recorded time.
package struct RecordedTest: Sendable {
  /// An event, or an end, that was seen on an edge.
  package struct Sighting: Sendable {
    package var edge: EdgeID
    /// The time on the monotonic clock.
    package var nanoseconds: Int64
    package var moment: SignalHistory.Moment

    package init(edge: EdgeID, nanoseconds: Int64, _ moment: SignalHistory.Moment) {
      self.edge = edge
      self.nanoseconds = nanoseconds
      self.moment = moment
    }
  }

  /// The test that was generated from a recording.
  package struct Outcome: Sendable {
    /// A `tests:` block for the pipeline file.
    package var text: String
    /// The reason why the test does not reproduce the recording; nil: it passes.
    package var problem: String?
  }

  /// The reason why no test can be generated.
  package struct Refusal: Error, Sendable {
    package var message: String
    package init(message: String) { self.message = message }
  }

  package static let tolerance = TimeSpan.milliseconds(100)
  /// The maximum number of events; a test with more would not be readable.
  package static let mostEvents = 400
  /// The maximum length of a recording: running the test takes time for each timer in that span.
  package static let longest = TimeSpan.seconds(3600)
  /// The maximum number of turns of one run.
  private static let mostTurns = 2_000_000

  /// Longer lines are split.
  private static let longestLine = 110

  private let plan: Plan
  private let name: String
  private let subject: String
  private var inputs: [(name: String, entries: [SignalHistory.Entry])] = []
  private var answers: [(at: TimeSpan, value: TestValue?)] = []
  private var stubsRequests = false
  private var expected: [SignalHistory.Entry] = []
  private let end: TimeSpan

  /// - Parameters:
  ///   - step: The selected step. The test expects the events of the signal or sink that contains it.
  ///   - end: When the recording ended, on the clock of the sightings. May be any number: a span longer than
  /// ``longest`` is refused.
  ///   - sightings: In the order in which they were seen, on the edges `sources(of:)` and `signalEdges(of:)`, and on
  /// the inputs of steps with inner signals.
  package init(
    _ plan: Plan, step: StepID, name: String, end: Int64, _ sightings: [Sighting]
  ) throws(Refusal) {
    self.plan = plan
    self.name = name
    guard let first = sightings.map(\.nanoseconds).min(), let last = sightings.map(\.nanoseconds).max() else {
      throw Refusal(message: "nothing was seen")
    }
    let start = TimeSpan(nanoseconds: first)
    guard TimeSpan(nanoseconds: max(end, last)) - start <= Self.longest else {
      throw Refusal(message: "the recording is longer than the \(Self.longest) of a test: choose a shorter time")
    }
    func at(_ nanoseconds: Int64) -> TimeSpan {
      .milliseconds(((TimeSpan(nanoseconds: nanoseconds) - start).nanoseconds + 500_000) / 1_000_000)
    }
    func entries(_ edge: EdgeID) -> [SignalHistory.Entry] {
      sightings.filter { $0.edge == edge }.map { SignalHistory.Entry(at: at($0.nanoseconds), $0.moment) }
    }
    self.end = at(max(end, last))
    guard let target = plan.signalEdges(of: step).first else {
      throw Refusal(message: "the step belongs to no signal or sink that a test can expect")
    }
    subject = plan.steps[step.number].owner
    expected = entries(target)
    for edge in plan.sources(of: step) {
      guard case .step(let source) = plan.edges[edge.number].from else { continue }
      if plan.sources.contains(where: { $0.step == source && $0.isInner }) {
        guard plan.steps[source.number].keyword == "http" else { continue }
        stubsRequests = true
        answers += Self.answers(plan, edge, source, entries(edge)) { entries($0) }
      } else {
        inputs.append((plan.steps[source.number].owner, entries(edge)))
      }
    }
    if plan.sources.contains(where: { $0.isInner && plan.steps[$0.step.number].keyword == "http" }) {
      stubsRequests = true
    }
    let count = expected.count + inputs.reduce(0) { $0 + $1.entries.count }
    guard inputs.contains(where: { !$0.entries.isEmpty }) else {
      throw Refusal(message: "no source received anything meanwhile, so a test would have no input")
    }
    guard count <= Self.mostEvents else {
      throw Refusal(message: "\(count) events are more than the \(Self.mostEvents) of a test: choose a shorter time")
    }
  }

  /// The answers to the requests. Each event of the step with the inner signal makes a request; the events of the inner
  /// source before the next request are its answer; nil if there were none.
  private static func answers(
    _ plan: Plan, _ edge: EdgeID, _ source: StepID, _ replies: [SignalHistory.Entry],
    _ entries: (EdgeID) -> [SignalHistory.Entry]
  ) -> [(at: TimeSpan, value: TestValue?)] {
    // Follows the inner signal to the step that runs it.
    var end = plan.edges[edge.number]
    var hops = 0
    while case .step(let step) = end.to, end.input != nil, hops < plan.edges.count,
      let next = plan.edges.first(where: { $0.from == .step(step) })
    {
      end = next
      hops += 1
    }
    guard case .step(let runner) = end.to, end.input == nil else { return [] }
    let requests = plan.edges.indices.filter { plan.edges[$0].to == .step(runner) && plan.edges[$0].input != nil }
      .flatMap { entries(EdgeID($0)) }
      .filter { if case .next = $0.moment { true } else { false } }
    return requests.enumerated().map { index, request in
      let next = index + 1 < requests.count ? requests[index + 1].at : TimeSpan(nanoseconds: .max)
      let reply = replies.first { $0.at >= request.at && $0.at < next && $0.moment.value != nil }
      let after = reply.map { $0.at - request.at }
      return (after ?? .zero, reply?.moment.value)
    }
  }

  /// The test, after it has been run.
  package func make() -> Outcome {
    var entries = expected
    for isLast in [false, true] {
      let text = text(expecting: entries)
      var diagnostics = Diagnostics()
      guard let test = read(text, into: &diagnostics) else {
        return Outcome(text: text, problem: diagnostics.all.map(\.line).joined(separator: "\n"))
      }
      var runner = TestRunner(plan)
      runner.turnLimit = Self.mostTurns
      let result = runner.run(test)
      if result.passed { return Outcome(text: text) }
      let actual = (result.failures.first { $0.expectation == 0 })?.history.entries.filter { !$0.moment.isMark }
      if !isLast, let actual, isAsSeen(actual) {
        entries = actual
        continue
      }
      let report = TestReport().text(TestReport.Case(result, seconds: 0))
      return Outcome(
        text: text,
        problem: """
          The test does not reproduce the recording: it starts without state, and the recorded pipeline may have had some, or may have \
          requested more than was recorded.
          \(report)
          """)
    }
    return Outcome(text: text(expecting: entries))
  }

  private func isAsSeen(_ actual: [SignalHistory.Entry]) -> Bool {
    // Only the presence of an error is compared; its message may differ from run to run.
    actual.count == expected.count
      && zip(actual, expected).allSatisfy { now, seen in
        guard max(now.at - seen.at, seen.at - now.at) <= Self.tolerance else { return false }
        if case .error = now.moment, case .error = seen.moment { return true }
        return now.moment == seen.moment
      }
  }

  private func read(_ text: String, into diagnostics: inout Diagnostics) -> PipelineTest? {
    guard let root = YAMLReader.read(SourceText(name: "recorded test", text: text), into: &diagnostics) else {
      return nil
    }
    let node = Interpolation.noEnvironment.apply(to: root, into: &diagnostics)
    // The text contains only the test, so other diagnostics do not matter.
    var ignored = Diagnostics()
    let file = PipelineFileParser.parse(node, into: &ignored)
    let tests = PipelineTestReader.read(file.tests, of: plan, into: &diagnostics) { _, _ in nil }
    return diagnostics.hasErrors ? nil : tests.first
  }

  // MARK: Text

  private func text(expecting entries: [SignalHistory.Entry]) -> String {
    var text = "tests:\n  - name: \(YAMLFlowText.quoted(Array(name.utf8)))\n    inputs:\n"
    for input in inputs { text += "      \(input.name): \(Self.write(input.entries))\n" }
    if stubsRequests {
      let own = answers.isEmpty ? [(at: TimeSpan.zero, value: nil)] : answers
      text += "    stubs:\n      http:\n        - url: \"*\"\n          sequence:\n"
      for answer in own { text += "            - \(Self.write(answer: answer.value, after: answer.at))\n" }
    }
    text += "    expect:\n      \(subject): \(Self.write(entries))\n    until: \(max(end, entries.last?.at ?? end))\n"
    return text
  }

  private static func write(answer: TestValue?, after: TimeSpan) -> String {
    switch answer {
    case nil: "{ hang: true }"
    case .text(let bytes): "{ reply: { text: \(YAMLFlowText.quoted(bytes)) }, after: \(after) }"
    case let value?: "{ reply: { json: \(YAMLFlowText.write(value)) }, after: \(after) }"
    }
  }

  /// Writes marbles if there are enough letters, otherwise a list.
  private static func write(_ entries: [SignalHistory.Entry]) -> String {
    if entries.isEmpty { return "[]" }
    var names = MarbleNames([])
    let hasMessages = entries.contains { if case .error = $0.moment { true } else { false } }
    if !hasMessages, let marbles = MarbleText.write(entries, tick: .milliseconds(1), &names) {
      let values = names.known.filter { MarbleNames.letter($0.value) != $0.name }
      let shown = YAMLFlowText.quoted(Array(marbles.utf8))
      if values.isEmpty { return "{ marbles: \(shown) }" }
      let list = values.map { "\($0.name): \(YAMLFlowText.write($0.value))" }
      let line = "{ marbles: \(shown), values: { \(list.joined(separator: ", ")) } }"
      if line.utf8.count <= longestLine { return line }
      return "\n        marbles: \(shown)\n        values:" + list.map { "\n          \($0)" }.joined()
    }
    let steps = entries.map { entry in
      switch entry.moment {
      case .next(let value): "\n        - { at: \(entry.at), next: \(YAMLFlowText.write(value)) }"
      case .complete: "\n        - { at: \(entry.at), complete: true }"
      case .error: "\n        - { at: \(entry.at), error: true }"
      case .subscribe, .cancel: ""
      }
    }
    return steps.joined()
  }
}

extension SignalHistory.Moment {
  fileprivate var value: TestValue? { if case .next(let value) = self { value } else { nil } }
}
