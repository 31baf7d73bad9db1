import Foundation
import PipelineCore
import PipelineHost
import PipelineTestSupport
import PluginHost
import Synchronization
import Testing

/// Operators of plugins that complete their output before their input does, in all forms.
@Suite(.serialized, .timeLimit(.minutes(5))) struct PluginFinishTests {
  /// Completes with the third event of an instance, or with another; `late` handles later events. A new instance is given one event, then two: of
  /// these, the second follows an end at the second event overall.
  private static func program(
    _ name: String, late: String = "pass", more: String = "", last: Int = 3
  ) throws -> String {
    try PluginFixtures.program(
      name,
      components:
        #"[{"kind": "operator", "name": "three", "summary": "Passes three.", "state": {"version": 1}, "timers": true}]"#,
      """
      elif 'event' in f:
      \(more.split(separator: "\n").map { "    " + $0 }.joined(separator: "\n"))
          n = states[f['to']] = (states.get(f['to']) or 0) + 1
          if n > \(last): \(late)
          else: say({"id": f['id'], "events": [f['event']], **({"finish": True} if n == \(last) else {})})
      elif 'save' in f: say({"id": f['id'], "state": states.get(f['to'])})
      elif 'id' in f: say({"id": f['id']})
      """)
  }

  private static let lates = ["pass", "say({'id': f['id']})", "say({'id': f['id'], 'events': ['late']})"]

  private func dropped(_ pipeline: VirtualPipeline, _ keyword: String) -> UInt64? {
    let plan = pipeline.execution.plan
    return pipeline.execution.statistics.steps.first { plan.steps[$0.step.number].keyword == keyword }?.dropped
  }

  // MARK: In the middle of what was handed over

  @Test(arguments: [
    ("exampleTake: 3", "[0,1,2]", 7), ("exampleTake: 10", "[0,1,2,3,4,5,6,7,8,9]", 0), ("exampleTake: 0", "[]", 0),
    ("exampleTakeWhile: event < 3", "[0,1,2]", 1),
    ("exampleTakeWhile: { where: event < 3, inclusive: true }", "[0,1,2,3]", 0),
  ]) func aLibraryFinishesInTheMiddleOfABatch(_ step: String, _ expected: String, _ dropped: UInt64) throws {
    let pipeline = try PluginFixtures.pipeline(
      try PluginFixtures.example.get(), values: "[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]", chain: "[ { \(step) } ]")
    pipeline.run()
    #expect("[" + pipeline.probe().events.joined(separator: ",") + "]" == expected)
    #expect(pipeline.outcome == .completed)
    let keyword = String(step.prefix { $0 != ":" })
    if step != "exampleTake: 0" { #expect(self.dropped(pipeline, keyword) == dropped) }
    // A row operator completes in the turn of the event, like the core's: the source sends no more.
    let sent: UInt64 = keyword == "exampleTakeWhile" ? 4 : 10
    #expect(pipeline.execution.statistics.faults(pipeline.execution.plan, received: sent) == [])
  }

  /// Later events were already passed to the program: whatever it makes of them is discarded, and it is not restarted.
  @Test(arguments: lates) func aProgramFinishesInTheMiddleOfWhatItWasGiven(_ late: String) throws {
    let path = try Self.program("two-\(Self.lates.firstIndex(of: late) ?? 0)", late: late, last: 2)
    let pipeline = try PluginFixtures.pipeline(path, values: "[0, 1, 2, 3, 4, 5]", chain: "[ three ]")
    pipeline.run()
    #expect(pipeline.probe().events == ["0", "1"])
    #expect(pipeline.outcome == .completed)
    #expect(dropped(pipeline, "three") == 4)
    #expect(!pipeline.log.contains { $0.contains("starting again") }, "\(pipeline.log)")
  }

  /// The other instances of the process continue.
  @Test(arguments: lates) func groupsFinishEachForItself(_ late: String) throws {
    let path = try Self.program("grouped-\(Self.lates.firstIndex(of: late) ?? 0)", late: late)
    let pipeline = try VirtualPipeline(
      """
      plugins: ['\(path)']
      sources: { in: { values: \(Array(0..<100)) } }
      sinks: { out: { from: in, chain: [ { groupBy: { key: event % 10, chain: [ three ] } } ], probe: {} } }
      """, plugins: PluginFixtures.plugins)
    pipeline.run()
    #expect(Set(pipeline.probe().events) == Set((0..<30).map(String.init)), "\(pipeline.log)")
    #expect(pipeline.probe().events.count == 30)
    #expect(pipeline.outcome == .completed)
    #expect(!pipeline.log.contains { $0.contains("starting again") }, "\(pipeline.log)")
  }

  @Test func whatIsSentBehindTheEndIsLogged() throws {
    let path = try Self.program("talks-on", late: Self.lates[2], last: 2)
    let pipeline = try VirtualPipeline(
      """
      plugins: ['\(path)']
      sources: { in: { values: [1, 1, 1, 1, 2, 2, 2] } }
      sinks: { out: { from: in, chain: [ { groupBy: { key: event, chain: [ three ] } } ], probe: {} } }
      """, plugins: PluginFixtures.plugins)
    pipeline.run()
    #expect(pipeline.probe().events.count == 4)
    #expect(pipeline.log.count { $0.contains("after the end of its output") } == 1, "\(pipeline.log)")
  }

  // MARK: The input

  /// The input is cancelled, and senders are told that all of their events were accepted, including those after the
  /// end.
  @Test(arguments: ["exampleTake: 2", "exampleTakeWhile: event < 3", "take: 2", "three"])
  func theInputIsCancelledAndItsEventsAreAcknowledged(_ step: String) throws {
    let example = try PluginFixtures.example.get()
    let program = try Self.program("acknowledged")
    let source = TrackedSource()
    let pipeline = try VirtualPipeline(
      """
      plugins: ['\(example)', '\(program)']
      sources: { in: { never: {} } }
      sinks: { out: { from: in, chain: [ { \(step.contains(":") ? step : step + ": {}") } ], probe: {} } }
      """, plugins: PluginFixtures.plugins)
    pipeline.execution.replacements.sources = { _ in source }
    pipeline.settle()
    source.feed.send(1, [1])
    source.feed.send(2, [2, 5, 6])
    source.feed.send(3, [7])
    pipeline.run()
    #expect(pipeline.probe().events == (step == "three" ? ["1", "2", "5"] : ["1", "2"]))
    #expect(pipeline.outcome == .completed)
    // After the end there is no receiver: the core's take has no third batch either.
    #expect(source.feed.outcomes[1] == .acknowledged && source.feed.outcomes[2] == .acknowledged)
  }

  /// A batch is acknowledged when the last of its events is answered, however many turns and processes that takes.
  @Test func abatchIsAcknowledgedWhenAllOfItIsAnswered() throws {
    let once = PluginFixtures.scratch("acknowledged-once")
    let path = try PluginFixtures.program(
      "one-by-one", components: #"[{"kind": "operator", "name": "work", "summary": "Works.", "credit": 1}]"#,
      """
      elif 'event' in f:
          if f['event'] == 2 and not os.path.exists('\(once)'):
              open('\(once)', 'w').close()
              os._exit(3)
          say({"id": f['id'], "error": "not this"} if f['event'] == 3 else {"id": f['id'], "events": [f['event']]})
      elif 'id' in f: say({"id": f['id']})
      """)
    let source = TrackedSource()
    let pipeline = try VirtualPipeline(
      """
      plugins: ['\(path)']
      sources: { in: { never: {} } }
      sinks: { out: { from: in, chain: [ work ], probe: {} }, bad: { from: out.errors, probe: {} } }
      """, plugins: PluginFixtures.plugins)
    pipeline.execution.replacements.sources = { _ in source }
    pipeline.settle()
    source.feed.send(1, [1, 2])
    source.feed.send(2, [3])
    source.feed.send(3, [4, 5])
    pipeline.settle()
    // The program has ended with the second event; it is restarted 0.1 s later.
    #expect(pipeline.probe().events == ["1"])
    #expect(source.feed.outcomes.isEmpty)
    pipeline.run()
    #expect(pipeline.probe().events == ["1", "2", "4", "5"])
    #expect(source.feed.outcomes == [1: .acknowledged, 2: .acknowledged, 3: .acknowledged])
  }

  // MARK: Timers, states, crashes

  @Test func aTimerMayFinish() throws {
    let path = try PluginFixtures.program(
      "late-end", components: #"[{"kind": "operator", "name": "until", "summary": "Ends.", "timers": true}]"#,
      """
      elif 'event' in f: say({"id": f['id'], "events": [f['event']], "timers": {"end": 2500000000}} if f['event'] == 1 else {"id": f['id'], "events": [f['event']]})
      elif 'timer' in f: say({"id": f['id'], "events": ["bye"], "timers": {"again": 1}, "finish": True})
      elif 'id' in f: say({"id": f['id']})
      """)
    let pipeline = try PluginFixtures.pipeline(
      path, values: "{ list: [1, 2, 3, 4, 5], every: 1s }", chain: "[ until ]")
    pipeline.run()
    #expect(pipeline.out == ["0s 1", "1s 2", "2s 3", "2s500ms \"bye\"", "2s500ms |"], "\(pipeline.out)")
  }

  @Test(arguments: ["three: {}", "exampleTake: 3", "exampleTakeWhile: event < 3"])
  func aFinishedOperatorStaysFinishedAfterARestart(_ step: String) throws {
    let example = try PluginFixtures.example.get()
    let program = try Self.program("restarted")
    func pipeline(_ state: [UInt8]?) throws -> VirtualPipeline {
      try VirtualPipeline(
        """
        plugins: ['\(example)', '\(program)']
        sources: { in: { values: { list: [0, 1, 2, 3, 4], every: 1s } }, other: { values: { list: [10, 11], every: 10s } } }
        signals:
          short: { from: in, chain: [ { \(step) } ] }
          all: { merge: [ short, other ] }
        sinks: { out: { from: all, probe: {} } }
        """, restoring: state, isMoved: true, plugins: PluginFixtures.plugins)
    }
    for cut: TimeSpan in [.milliseconds(500), .milliseconds(1500), .milliseconds(2500), .milliseconds(5500)] {
      let first = try pipeline(nil)
      first.run(until: cut)
      let second = try pipeline(first.suspend())
      second.run()
      #expect(Set(first.probe().events + second.probe().events) == ["0", "1", "2", "10", "11"], "\(cut)")
      #expect(first.probe().events.count + second.probe().events.count == 5, "\(cut)")
      #expect(second.outcome == .completed)
    }
  }

  /// Events unanswered when the program ended are given to the next program, which completes with them.
  @Test func aProgramFinishesAfterACrash() throws {
    let once = PluginFixtures.scratch("finish-once")
    let path = try Self.program(
      "crashes",
      more: """
        if f['event'] == 2 and not os.path.exists('\(once)'):
            open('\(once)', 'w').close()
            os._exit(3)
        """)
    let pipeline = try PluginFixtures.pipeline(path, values: "[0, 1, 2, 3, 4, 5]", chain: "[ three ]")
    pipeline.run()
    #expect(pipeline.probe().events == ["0", "1", "2"])
    #expect(pipeline.outcome == .completed)
    #expect(pipeline.log.count { $0.contains("starting again") } == 1, "\(pipeline.log)")
  }

  // MARK: At once, in tests, against the spec

  @Test func aProgramMayFinishWhenItIsOpened() throws {
    let path = PluginFixtures.scratch("at-once")
    let text = """
      #!/usr/bin/python3 -S
      import sys, json
      for line in sys.stdin:
          f = json.loads(line)
          if 'hello' in f: print('{"spec":{"plugin":"o","version":"1","summary":"For a test.","components":[{"kind":"operator","name":"none","summary":"Nothing."}]}}', flush=True)
          elif 'open' in f: print('{"opened":%d,"finish":true}' % f['open'], flush=True)
          elif 'ping' in f: print('{"pong":%d}' % f['ping'], flush=True)
      """
    try Data(text.utf8).write(to: URL(fileURLWithPath: path))
    chmod(path, 0o755)
    let pipeline = try PluginFixtures.pipeline(path, values: "{ list: [1, 2], every: 1s }", chain: "[ none ]")
    pipeline.run()
    #expect(pipeline.out == ["0s |"], "\(pipeline.out)")
  }

  @Test func aRowThatDoesNotSaySoMayNotFinish() throws {
    let path = try PluginFixtures.probe("finishing-row", "ROW")
    let pipeline = try PluginFixtures.pipeline(
      path, values: "[1, 2]", chain: "[ { probe: finish } ]",
      more: "  bad: { from: out.errors, chain: [ { map: event.error } ], probe: {} }")
    pipeline.run()
    #expect(pipeline.probe().events == [])
    #expect(pipeline.probe("bad").events.allSatisfy { $0.contains("its spec has no 'finishes'") })
    #expect(pipeline.probe("bad").events.count == 2)
  }

  @Test func finishesIsOfRows() throws {
    let path = try PluginFixtures.program(
      "no-row", components: #"[{"kind": "operator", "name": "work", "summary": "Works.", "finishes": true}]"#, "")
    #expect(PluginFixtures.plugins.refusal(path).contains("'finishes' is for an operator with 'form: row'"))
  }
}
