import PipelineCore
import PipelineTestSupport
import PipelineTesting
import Testing

/// When an errors output ends.
@Suite struct ErrorsOutputTests {
  private func run(
    _ yaml: String, _ sources: [String: String], closing: [String: Int] = [:],
    letters: [String: TestValue] = [:]
  ) throws -> PipelineRun {
    var options = PipelineRun.Options()
    options.closeAfter = closing
    options.until = .milliseconds(100)
    return try PipelineRun(
      yaml,
      sources: sources.mapValues { ScriptedSource(SignalHistory(try Marbles($0)).script) as any SourceComponent },
      options: options)
  }

  private let reading = """
    name: t
    sources: { a: { scripted: {} } }
    signals: { s: { from: a, chain: [ { map: event * 2 } ] } }
    sinks: { out: { from: s, probe: {} }, given_up: { from: s.errors, probe: {} } }
    """

  /// A closed pipe must not keep the pipeline running, which waits for errors that cannot come.
  @Test func endsWhenNobodyReadsTheSignalAnyMore() throws {
    let run = try run(reading, ["a": "1-2-3-4-5-6"], closing: ["out": 2])
    #expect(run.outcome == .completed)
    #expect(run.sinks["given_up"]?.entries.map(\.at) == [.milliseconds(2)])
  }

  @Test func endsWithTheSignal() throws {
    let run = try run(reading, ["a": "1-x-3|"])
    #expect(run.outcome == .completed)
    #expect(run.sinks["given_up"]?.entries.count == 2)
    #expect(run.deadLetters.isEmpty)
  }

  /// A signal that runs repeatedly sends errors each time.
  @Test func staysWhileTheSignalMayRunAgain() throws {
    let run = try run(
      """
      name: t
      sources: { a: { scripted: {} }, b: { scripted: {} } }
      signals:
        bad: { from: b, chain: [ { map: event * 2 } ] }
        s: { from: a, chain: [ { flattenMap: { policy: latest, signal: { from: bad } } } ] }
      sinks: { out: { from: s, probe: {} }, given_up: { from: bad.errors, probe: {} } }
      """, ["a": "1----1-1----1|", "b": "-x-y|"])
    let times = run.sinks["given_up"]?.entries.dropLast().map(\.at)
    #expect(times == [1, 3, 6, 8, 10, 13, 15].map { .milliseconds($0) })
    #expect(run.deadLetters.isEmpty)
    #expect(run.outcome == .completed)
  }

  /// Each reference to a cold signal is a separate run; the errors of all are sent.
  @Test func aColdSignalHasOne() throws {
    let run = try run(
      """
      name: t
      sources: { a: { scripted: {} } }
      signals: { bad: { from: a, cold: true, chain: [ { map: event * 2 } ] } }
      sinks: { one: { from: bad, probe: {} }, two: { from: bad, probe: {} }, given_up: { from: bad.errors, probe: {} } }
      """, ["a": "-x|"])
    #expect(run.sinks["given_up"]?.entries.count == 3)
    #expect(run.deadLetters.isEmpty)
    #expect(run.outcome == .completed)
  }

  /// A reader of only the errors output makes the signal run, with everything upstream of it, once.
  @Test(arguments: [
    "sinks: { given_up: { from: s.errors, probe: {} } }",
    "sinks: { given_up: { from: t, probe: {} } }",
    "sinks: { given_up: { from: u, probe: {} } }",
    "sinks: { given_up: { from: s.errors, probe: {} }, more: { from: t, probe: {} } }",
  ])
  func runsForItsErrors(_ sinks: String) throws {
    let run = try run(
      """
      name: t
      sources: { a: { scripted: {} }, b: { scripted: {} } }
      signals:
        s: { from: a, chain: [ { map: event * 2 } ] }
        t: { from: s.errors, chain: [ { map: event.event } ] }
        u: { from: b, chain: [ { flattenMap: { signal: { from: s.errors } } } ] }
      \(sinks)
      """, ["a": "-1-x-3-y|", "b": "1|"])
    let given = run.sinks["given_up"]?.entries ?? []
    #expect(given.map(\.at) == [3, 7, 8].map { .milliseconds($0) })
    #expect(given.last?.moment == .complete)
    #expect(run.outcome == .completed)
    #expect(run.counters.received >= 4)
  }

  /// A signal that runs only for its errors has its own errors read, too.
  @Test func runsForErrorsOfErrors() throws {
    let run = try run(
      """
      name: t
      sources: { a: { scripted: {} } }
      signals:
        s: { from: a, chain: [ { map: event * 2 } ] }
        t: { from: s.errors, chain: [ { map: event.event * 2 } ] }
      sinks: { given_up: { from: t.errors, probe: {} } }
      """, ["a": "-1-x-3|"])
    #expect(run.sinks["given_up"]?.entries.map(\.at) == [.milliseconds(3), .milliseconds(6)])
    #expect(run.outcome == .completed)
  }

  /// A signal that nothing reads starts nothing, whatever errors it would read.
  @Test func anUnreadReaderStartsNothing() throws {
    let plan = try PipelineRun.compile(
      """
      name: t
      sources: { a: { scripted: {} }, b: { scripted: {} } }
      signals: { unread: { from: a.errors, chain: [ { map: event } ] } }
      sinks: { out: { from: b, probe: {} } }
      """)
    #expect(plan.rootSubscribers.isEmpty)
  }

  /// A signal that reads the errors of its own results waits for itself; it still ends.
  @Test func endsWhereASignalReadsItsOwnErrors() throws {
    let run = try run(
      """
      name: t
      sources: { a: { scripted: {} } }
      signals:
        all: { merge: [a, again] }
        doubled: { from: all, chain: [ { map: event * 2 } ] }
        again: { from: doubled.errors, chain: [ { map: size(event.event) } ] }
      sinks: { out: { from: doubled, probe: {} } }
      """, ["a": "1-x-3|"])
    #expect(run.out.entries.map(\.moment) == [.next(.int(2)), .next(.int(2)), .next(.int(6)), .complete])
    #expect(run.outcome == .completed)
  }

  /// However long the signal runs, and whatever started it.
  @Test(arguments: [
    "{ start: eager, stop: never }", "{ start: eager }", "{ stop: never }",
    "{ start: eager, stop: never, again: false }",
  ])
  func endsHoweverTheSignalIsShared(_ share: String) throws {
    for sink in ["s", "late"] {
      let run = try run(
        """
        name: t
        sources: { a: { scripted: {} }, b: { scripted: {} } }
        signals:
          s: { from: a, chain: [ { map: event * 2 } ], share: \(share) }
          late: { concat: [b, s] }
        sinks: { out: { from: \(sink), chain: [ { take: 2 } ], probe: {} }, given_up: { from: s.errors, probe: {} } }
        """, ["a": "1-x-3-4|", "b": "--|"])
      #expect(run.sinks["given_up"]?.entries.last?.moment == .complete, "\(sink)")
      #expect(run.outcome == .completed, "\(sink)")
    }
  }

  /// A signal that is subscribed to later, from the queue of a scheduler, may still have errors.
  @Test func staysForASignalThatIsSubscribedLater() throws {
    let run = try run(
      """
      name: t
      sources: { a: { scripted: {} } }
      signals:
        s: { from: a, chain: [ { map: event * 2 } ] }
        moved: { from: s, chain: [ { subscribeOn: later } ] }
      sinks: { out: { from: moved, probe: {} }, given_up: { from: s.errors, probe: {} } }
      """, ["a": "-x-3|"])
    #expect(run.sinks["given_up"]?.entries.map(\.at) == [.milliseconds(1), .milliseconds(4)])
    #expect(run.outcome == .completed)
  }

  /// So may a branch of `switch` that is left and taken again.
  @Test func staysForABranchThatIsTakenAgain() throws {
    let run = try run(
      """
      name: t
      sources: { on: { scripted: {} }, a: { scripted: {}, cold: true }, b: { scripted: {} } }
      signals:
        s: { from: { from: a }, chain: [ { map: event * 2 } ] }
        chosen: { switch: { by: on, cases: { x: s, y: b } } }
      sinks: { out: { from: chosen, probe: {} }, given_up: { from: s.errors, probe: {} } }
      """.replacing("{ from: { from: a }, ", with: "{ from: a, "), ["on": "x-y-x-y|", "a": "z----", "b": "1|"])
    #expect(run.sinks["given_up"]?.entries.dropLast().map(\.at) == [.zero, .milliseconds(4)])
    #expect(run.outcome == .completed)
  }
}

/// Steps that run a chain again, inside the chain of a group.
@Suite struct GroupRoundsTests {
  private func out(_ chain: String, _ marbles: String, more: String = "") throws -> PipelineRun {
    var options = PipelineRun.Options()
    options.until = .milliseconds(100)
    options.turnLimit = 10_000
    return try PipelineRun(
      """
      name: t
      sources: { a: { scripted: {} } }
      signals: { s: { from: a, chain: [ { groupBy: { key: 'dyn(event) == 0', \(more) chain: [ \(chain) ] } } ] } }
      sinks: { out: { from: s, probe: {} } }
      """, sources: ["a": ScriptedSource(SignalHistory(try Marbles(marbles)).script)], options: options)
  }

  private func events(_ run: PipelineRun) -> [String] { run.out.entries.map { "\($0.at) \($0.moment)" } }

  @Test(arguments: ["repeat", "repeat: 9", "repeat: { delay: 1ms }", "repeat: { delay: 50ms }"])
  func theEndOfTheGroupEndsTheRounds(_ step: String) throws {
    let run = try out("{ take: 1 }, \(step.contains(":") ? "{ \(step) }" : step)", "1-2-3|")
    #expect(run.outcome == .completed)
    #expect(run.isQuiet)
    #expect(run.pendingTimers == 0)
    let expected = step.contains("50ms") ? ["0s 1"] : ["0s 1", "2ms 2", "4ms 3"]
    #expect(events(run).filter { !$0.hasSuffix("completion") } == expected)
  }

  @Test func aFailureAfterTheEndOfTheGroupIsPassedOn() throws {
    let run = try out("{ delay: 3ms }, { map: event / 0, onError: fail }, retry", "-1|")
    guard case .failed = run.outcome else {
      Issue.record("\(String(describing: run.outcome))")
      return
    }
  }

  @Test func aRetryReceivesLaterEvents() throws {
    let run = try out("{ map: 6 / event, onError: fail }, retry", "-1-0-2-0-3|")
    #expect(events(run) == ["1ms 6", "5ms 3", "9ms 2", "10ms the completion"])
  }

  @Test func anIdleGroupEndsItsRounds() throws {
    let run = try out("{ take: 1 }, repeat", "-1-2----------3|", more: "idle: 4ms,")
    #expect(events(run) == ["1ms 1", "3ms 2", "14ms 3", "15ms the completion"])
  }
}
