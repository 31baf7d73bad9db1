import Foundation
import PipelineCore
import PipelineHost
import Testing

/// `whenLate`: the handling of time that passed while a pipeline was down.
@Suite struct LatenessTests {
  static let start: Int64 = 1_767_225_600

  /// Runs a pipeline for a while, suspends it, and restores it in another process after `down`, with a clock that
  /// starts at 0.
  private func runAgain(
    _ yaml: String, after: Int64 = 1, down: Int64, until: TimeSpan, stepping: Int64 = 0, isMoved: Bool = false,
    times: Int = 1
  ) throws -> VirtualPipeline {
    var wallTime = Self.start
    var pipeline = try VirtualPipeline(yaml, wallTime: wallTime)
    pipeline.run(until: .seconds(after))
    wallTime += after
    for _ in 0..<times {
      let state = try #require(pipeline.suspend())
      wallTime += down + stepping
      pipeline = try VirtualPipeline(yaml, wallTime: wallTime, restoring: state, isMoved: isMoved)
      #expect(pipeline.execution.refusals.isEmpty)
    }
    pipeline.run(until: until)
    return pipeline
  }

  /// One step after a source that sends 1 and 2 at the start and stays silent, with the probe `out`.
  private func behindValues(_ step: String, _ rule: String?) -> String {
    """
    \(rule.map { "whenLate: \($0)" } ?? "name: test")
    sources:
      early: { values: [1, 2] }
      silent: { never: {} }
    signals:
      s: { merge: [early, silent], chain: [ \(step) ] }
    sinks:
      out: { from: s, probe: {} }
    """
  }

  struct Case: CustomStringConvertible, Sendable {
    var step: String
    var fire: [String]
    var skip: [String]?
    var resume: [String]
    var description: String { step }
  }

  /// Each runs for 1 s, is down for 60 s, and then runs for 20 s. Without `skip`, `skip` is refused.
  static let cases = [
    Case(step: "delay: 5s", fire: ["0s 1", "0s 2"], skip: [], resume: ["4s 1", "4s 2"]),
    // Not due yet: at its original time.
    Case(step: "delay: 70s", fire: ["9s 1", "9s 2"], skip: ["9s 1", "9s 2"], resume: []),
    Case(step: "throttle: 5s", fire: ["0s 2"], skip: [], resume: ["4s 2"]),
    Case(
      step: "throttle: { quiet: 5s, maxWait: 6s, edge: both }", fire: ["0s 2"], skip: [], resume: ["4s 2"]),
    Case(
      // Samples were due every 7 s: at 56 s before the start, and then 8 s after 1 s + 60 s.
      step: "sample: 7s", fire: ["0s 2", "7s 2", "14s 2"], skip: ["2s 2", "9s 2", "16s 2"],
      resume: ["6s 2", "13s 2", "20s 2"]),
    Case(step: "bufferWithTime: 5s", fire: ["0s [1,2]"], skip: [], resume: ["4s [1,2]"]),
    Case(step: "window: 5s", fire: ["0s [1,2]"], skip: [], resume: ["4s [1,2]"]),
    Case(
      step: "window: { every: 7s, empty: true, to: size(events) }",
      fire: ["0s 2"] + Array(repeating: "0s 0", count: 7) + ["2s 0", "9s 0", "16s 0"],
      skip: ["2s 0", "9s 0", "16s 0"], resume: ["6s 2", "13s 0", "20s 0"]),
    // The events of an open window are kept, and those of skipped windows too.
    Case(
      step: "window: { every: 20s, length: 80s }", fire: ["0s [1,2]", "0s [1,2]", "0s [1,2]", "19s [1,2]"],
      skip: ["19s [1,2]"], resume: ["19s [1,2]"]),
    Case(step: "window: { gap: 5s }", fire: ["0s [1,2]"], skip: [], resume: ["4s [1,2]"]),
    Case(
      step: "window: { gap: 70s, maxLength: 30s, aggregate: { n: count() } }", fire: [#"0s {"n":2}"#], skip: [],
      resume: []),
    Case(
      step: "absence: { after: 5s, only: true }", fire: [#"0s {"silence":"61s"}"#], skip: [#"5s {"silence":"5s"}"#],
      resume: [#"4s {"silence":"5s"}"#]),
    Case(
      step: "absence: { after: 8s, repeat: true, only: true, value: \"'quiet'\" }",
      fire: [#"0s "quiet""#, #"8s "quiet""#, #"16s "quiet""#], skip: [#"8s "quiet""#, #"16s "quiet""#],
      resume: [#"7s "quiet""#, #"15s "quiet""#]),
    Case(
      step: "timeoutBetween: 5s", fire: ["0s #nothing came for 5s"], skip: ["5s #nothing came for 5s"],
      resume: ["4s #nothing came for 5s"]),
    Case(
      step: "timeout: 5s", fire: ["0s #the signal did not complete within 5s"],
      resume: ["4s #the signal did not complete within 5s"]),
    Case(step: "rateLimit: { per: 5s, mode: trailing }", fire: ["0s 2"], skip: [], resume: ["4s 2"]),
    Case(
      step: "rateLimit: { per: 5s, mode: bucket, count: 1, excess: wait }", fire: ["0s 2"], resume: ["4s 2"]),
    // Steps that send nothing by time, but whose state ages.
    Case(
      step: "{ distinct: { within: 5s } }, { flattenMap: { signal: { values: [1], chain: [ { delay: 5s } ] } } }",
      fire: ["0s 1", "0s 1"], skip: [], resume: ["4s 1", "4s 1"]),
    Case(
      step: "{ groupBy: { key: event, idle: 5s, chain: [ collect ] } }", fire: ["0s [1]", "0s [2]"],
      resume: ["4s [1]", "4s [2]"]),
    Case(
      step: "{ join: { signal: silent, within: 5s, unmatched: left } }", fire: ["0s [1,null]", "0s [2,null]"],
      resume: ["4s [1,null]", "4s [2,null]"]),
  ]

  @Test(arguments: cases, WhenLate.allCases)
  func timersAreFiredLeftOutOrResumed(_ example: Case, _ rule: WhenLate) throws {
    let expected: [String]?
    switch rule {
    case .fire: expected = example.fire
    // At the top of the file it applies wherever it has a meaning.
    case .skip: expected = example.skip ?? example.fire
    case .resume: expected = example.resume
    }
    let step = example.step.hasPrefix("{") ? example.step : "{ \(example.step) }"
    let again = try runAgain(behindValues(step, rule.rawValue), down: 60, until: .seconds(20))
    #expect(again.out == expected)
    guard example.step.first != "{" else { return }
    // The same as a parameter of the step.
    let own = behindValues("{ \(example.step), whenLate: \(rule.rawValue) }", nil)
    if rule == .skip, example.skip == nil {
      #expect(PipelineText.complaints(own).contains { $0.contains("'whenLate: skip' has no meaning") })
    } else {
      let again = try runAgain(own, down: 60, until: .seconds(20))
      #expect(again.out == expected)
    }
  }

  /// A clock that was set back, and a reload: no time has passed.
  @Test(arguments: WhenLate.allCases)
  func nothingIsLateWhenNoTimeHasPassed(_ rule: WhenLate) throws {
    let yaml = behindValues("{ delay: 5s }", rule.rawValue)
    #expect(try runAgain(yaml, down: 0, until: .seconds(20)).out == ["4s 1", "4s 2"])
    #expect(try runAgain(yaml, down: 60, until: .seconds(20), stepping: -86_400).out == ["4s 1", "4s 2"])
    // Timers that became due during a reload fire.
    #expect(try runAgain(yaml, down: 10, until: .seconds(20), isMoved: true).out == ["0s 1", "0s 2"])
    // A second time.
    let twice = try runAgain(yaml, down: 60, until: .seconds(20), times: 2)
    #expect(twice.out == (rule == .fire ? ["0s 1", "0s 2"] : rule == .skip ? [] : ["4s 1", "4s 2"]))
  }

  @Test func whatWasDueComesInTheOrderOfItsTimesAndBeforeNewInput() throws {
    let again = try runAgain(
      """
      sources:
        early: { values: [1, 2] }
        later: { values: { list: [a, b], every: 30s } }
        tick: { interval: 20s }
      signals:
        slow: { from: early, chain: [ { delay: 50s } ] }
        fast: { from: early, chain: [ { delay: 10s } ] }
        ticks: { from: tick, chain: [ { map: "'tick'" } ] }
        s: { merge: [slow, ticks, later, fast] }
      sinks:
        out: { from: s, probe: {} }
      """, down: 60, until: .seconds(0))
    #expect(again.out == ["0s 1", "0s 2", #"0s "tick""#, #"0s "b""#, "0s 1", "0s 2"])
  }

  /// More timers than one kind of work may have consecutive turns.
  @Test func newInputWaitsForAllThatWasDue() throws {
    let yaml = """
      sources:
        many: { values: [\((0..<3000).map(String.init).joined(separator: ","))] }
        silent: { never: {} }
      signals:
        due:
          merge: [many, silent]
          chain: [ { groupBy: { key: event, idle: 5s, chain: [ collect ] } } ]
      sinks:
        out: { from: due, probe: {} }
      """
    let first = try VirtualPipeline(yaml, wallTime: Self.start)
    first.run(until: .seconds(1))
    let state = try #require(first.suspend())
    let again = try VirtualPipeline(yaml, wallTime: Self.start + 60, restoring: state)
    nonisolated(unsafe) var before = -1
    let recording = again.probe()
    again.executor.postBatch { before = recording.moments.count }
    again.settle()
    #expect(before == 3000)
  }

  @Test func aHeldEventThatIsLeftOutIsCounted() throws {
    let again = try runAgain(behindValues("{ delay: 5s }", "skip"), down: 60, until: .seconds(20))
    let delay = try #require(again.execution.plan.steps.firstIndex { $0.keyword == "delay" })
    let step = try #require(again.execution.statistics.steps.first { $0.step == StepID(delay) })
    #expect(step.dropped == 2)
    #expect(again.executor.pendingTimers == 0)
  }

  /// The completion is not skipped.
  @Test func aSignalCompletesAllTheSame() throws {
    let again = try runAgain(
      """
      sources: { early: { values: [1] }, silent: { never: {} } }
      signals: { s: { from: early, chain: [ { delay: 5s, whenLate: skip } ] } }
      sinks: { out: { from: s, probe: {} }, rest: { from: silent, discard: {} } }
      """, down: 60, until: .seconds(20))
    #expect(again.out == ["0s |"])
  }

  @Test func retryAndRepeatContinue() throws {
    func pipeline(_ step: String) -> String {
      """
      sources: { silent: { never: {} } }
      signals:
        s: { from: { \(step.contains("retry") ? "error: broken" : "values: [1]") }, chain: [ { \(step) } ] }
      sinks: { out: { from: s, probe: {} }, rest: { from: silent, discard: {} } }
      """
    }
    let attempt = "retry: { count: 1, delay: 10s }"
    #expect(try runAgain(pipeline(attempt), down: 60, until: .seconds(20)).out == ["0s #broken"])
    #expect(
      try runAgain(pipeline(attempt + ", whenLate: resume"), down: 60, until: .seconds(20)).out == ["9s #broken"])
    let round = "repeat: { count: 2, delay: 10s }"
    #expect(try runAgain(pipeline(round), down: 60, until: .seconds(20)).out == ["0s 1", "0s |"])
    #expect(
      try runAgain(pipeline(round + ", whenLate: resume"), down: 60, until: .seconds(20)).out == ["9s 1", "9s |"])
    #expect(PipelineText.complaints(pipeline(round + ", whenLate: skip")).count == 1)
  }

  /// The execution of a command waits like any inner signal.
  @Test func commandsFollowTheirSteps() throws {
    func pipeline(_ rule: String) -> String {
      """
      whenLate: \(rule)
      sources: { early: { values: [1] }, silent: { never: {} } }
      commands: { work: { run: { values: [7], chain: [ { delay: 10s } ] } } }
      signals: { s: { merge: [early, silent], chain: [ { execute: work } ] } }
      sinks: { out: { from: work.values, probe: {} }, rest: { from: s, discard: {} } }
      """
    }
    #expect(try runAgain(pipeline("fire"), down: 60, until: .seconds(20)).out == ["0s 7"])
    #expect(try runAgain(pipeline("skip"), down: 60, until: .seconds(20)).out == [])
    #expect(try runAgain(pipeline("resume"), down: 60, until: .seconds(20)).out == ["9s 7"])
  }

  // MARK: Schedules

  private func ticks(_ interval: String, _ rule: String) -> String {
    """
    sources: { tick: { interval: \(interval), whenLate: \(rule) } }
    signals: { s: { from: tick, chain: [ { map: '[event.tick, event.missed]' } ] } }
    sinks: { out: { from: s, probe: {} } }
    """
  }

  @Test func anIntervalKnowsWhatItMissed() throws {
    // Ticks at 10, 20 ... 70 s; down from 15 to 75 s. 20 ... 70 have passed.
    #expect(
      try runAgain(ticks("10s", "fire"), after: 15, down: 60, until: .seconds(20)).out
        == ["0s [2,5]", "5s [3,0]", "15s [4,0]"])
    #expect(
      try runAgain(ticks("10s", "skip"), after: 15, down: 60, until: .seconds(20)).out == ["5s [2,6]", "15s [3,0]"])
    #expect(
      try runAgain(ticks("10s", "resume"), after: 15, down: 60, until: .seconds(20)).out == ["5s [2,0]", "15s [3,0]"])
    // No timer was due.
    for rule in WhenLate.allCases {
      #expect(
        try runAgain(ticks("1m", rule.rawValue), after: 15, down: 20, until: .seconds(50)).out
          == [rule == .resume ? "45s [1,0]" : "25s [1,0]"])
    }
    // Down twice without a tick in between.
    #expect(
      try runAgain(ticks("10s", "skip"), after: 15, down: 60, until: .seconds(20), times: 2).out
        == ["5s [2,12]", "15s [3,0]"])
  }

  @Test func aScheduleKnowsWhatItMissed() throws {
    // Every ten minutes; down from 00:15 to 01:15.
    #expect(
      try runAgain(ticks("{ cron: '*/10 * * * *' }", "fire"), after: 900, down: 3600, until: .seconds(1000)).out
        == ["0s [2,5]", "5m [3,0]", "15m [4,0]"])
    #expect(
      try runAgain(ticks("{ cron: '*/10 * * * *' }", "skip"), after: 900, down: 3600, until: .seconds(1000)).out
        == ["5m [2,6]", "15m [3,0]"])
    // A time of day, three days later.
    let daily = "{ cron: '0 6 * * *' }"
    #expect(
      try runAgain(ticks(daily, "fire"), after: 900, down: 3 * 86_400, until: .seconds(6 * 3600)).out
        == ["0s [1,2]", "5h45m [2,0]"])
    #expect(
      try runAgain(ticks(daily, "skip"), after: 900, down: 3 * 86_400, until: .seconds(6 * 3600)).out
        == ["5h45m [1,3]"])
    // The clock is set back by ten years: the schedule continues from the new time.
    #expect(
      try runAgain(ticks(daily, "fire"), after: 900, down: -3652 * 86_400, until: .seconds(6 * 3600)).out
        == ["5h45m [1,0]"])
    // A schedule for each minute, a year later: the count of missed ticks is bounded.
    #expect(
      try runAgain(ticks("{ cron: '* * * * *' }", "fire"), after: 30, down: 365 * 86_400, until: .seconds(1)).out
        == ["0s [1,100000]"])
    #expect(
      PipelineText.complaints(ticks(daily, "resume")) == [
        "1:63: 'whenLate: resume' has no meaning for this 'interval': a schedule follows the clock on the wall"
      ])
    // At the top of the file it applies to the other timers.
    let general = "whenLate: resume\n" + ticks(daily, "fire").replacingOccurrences(of: ", whenLate: fire", with: "")
    #expect(
      try runAgain(general, after: 900, down: 86_400, until: .seconds(1)).out == ["0s [1,0]"])
  }

  @Test func pollsThatWereDueAreLeftOut() throws {
    func asked(_ rule: String) throws -> Int {
      let again = try runAgain(
        """
        sources: { poll: { http: { url: 'http://h.example/', every: 10s, immediate: false, decode: text }, whenLate: \(rule) } }
        sinks: { out: { from: poll, probe: {} } }
        """, after: 5, down: 60, until: .seconds(1))
      return again.http.exchanges.count
    }
    #expect(try asked("fire") == 1)
    #expect(try asked("skip") == 0)
    #expect(try asked("resume") == 0)
  }

  @Test func valuesComeOneAfterTheOther() throws {
    let yaml = """
      sources: { list: { values: { list: [1, 2, 3], every: 10s }, whenLate: RULE } }
      sinks: { out: { from: list, probe: {} } }
      """
    func out(_ rule: String) throws -> [String] {
      try runAgain(yaml.replacingOccurrences(of: "RULE", with: rule), after: 5, down: 60, until: .seconds(8)).out
    }
    #expect(try out("fire") == ["0s 2"])
    #expect(try out("resume") == ["5s 2"])
    #expect(throws: PipelineText.Refused.self) { try out("skip") }
  }

  // MARK: The file

  @Test(arguments: [
    ("whenLate: later\n", "1:11: 'whenLate' "),
    ("whenLate: [skip]\n", "1:11: "),
  ])
  func refusesUnknownValues(_ head: String, _ message: String) {
    let complaints = PipelineText.complaints(
      head + "sources: { a: { interval: 1s } }\nsinks: { out: { from: a, probe: {} } }")
    #expect(complaints.count == 1)
    #expect(complaints.first?.hasPrefix(message) == true, "\(complaints)")
  }

  @Test(arguments: [
    ("{ filter: 'true', whenLate: fire }", "'whenLate: fire' has no meaning for this 'filter': it keeps no time"),
    ("{ window: { count: 3 }, whenLate: skip }", "it goes by number"),
    ("{ window: { every: 1s, time: event }, whenLate: skip }", "it goes by the times of events"),
    ("{ groupBy: { key: event, chain: [] }, whenLate: fire }", "it keeps no time without 'idle'"),
    ("{ delay: 1s, whenLate: now }", "'whenLate' "),
  ])
  func refusesWhatHasNoMeaning(_ step: String, _ reason: String) {
    let complaints = PipelineText.complaints(behindValues(step, nil))
    #expect(complaints.count == 1 && complaints.first?.contains(reason) == true, "\(complaints)")
  }

  /// State saved under another rule is used: the rule does not change the meaning of the state.
  @Test func theRuleMayChange() throws {
    let first = try VirtualPipeline(behindValues("{ delay: 5s }", "fire"), wallTime: Self.start)
    first.run(until: .seconds(1))
    let state = try #require(first.suspend())
    let again = try VirtualPipeline(
      behindValues("{ delay: 5s, whenLate: resume }", nil), wallTime: Self.start + 61, restoring: state)
    again.run(until: .seconds(9))
    #expect(again.execution.refusals.isEmpty)
    #expect(again.out == ["4s 1", "4s 2"])
  }
}
