import Foundation
import PipelineCore
import PipelineHost
import PluginHost
import Testing

/// Programs on their standard streams. They run for real; the pipeline around them is on virtual time.
@Suite(.serialized, .timeLimit(.minutes(5))) struct ProgramPluginTests {
  private static let operators = #"[{"kind": "operator", "name": "work", "summary": "Works."}]"#
  private static let stateful =
    #"[{"kind": "operator", "name": "work", "summary": "Works.", "state": {"version": 1}, "timers": true, "clock": true}]"#
  private static let sinks =
    #"[{"kind": "sink", "name": "work", "summary": "Works.", "confirmation": "disk"}]"#

  private func program(_ name: String, _ body: String, offering components: String = operators) throws -> String {
    try PluginFixtures.program(name, components: components, body)
  }

  private func events(_ path: String, _ values: String, chain: String = "[ work ]") throws -> VirtualPipeline {
    let pipeline = try PluginFixtures.pipeline(
      path, values: values, chain: chain,
      more: "  bad: { from: out.errors, chain: [ { map: '[event.event, event.error]' } ], probe: {} }")
    pipeline.run()
    return pipeline
  }

  @Test func anOperatorAnswersWithAnyNumberOfEvents() throws {
    let path = try program(
      "any",
      """
      elif 'event' in f:
          n = f['event']
          say({"id": f['id'], "error": "not zero"} if n == 0 else {"id": f['id'], "events": [n] * n})
      elif 'id' in f: say({"id": f['id'], "events": ["end"]})
      """)
    let pipeline = try events(path, "[1, 0, 3]")
    #expect(pipeline.probe().events == ["1", "3", "3", "3", "\"end\""])
    #expect(pipeline.probe("bad").events == [#"[0,"not zero"]"#])
    #expect(pipeline.outcome == .completed)
  }

  @Test func parametersAndTheEnvironmentReachIt() throws {
    setenv("RXD_TEST_HIDDEN", "1", 1)
    let path = try program(
      "parameters",
      """
      elif 'event' in f: say({"id": f['id'], "events": [[opening['parameters'], f.get('with'), sorted(os.environ), opening['step']]]})
      elif 'id' in f: say({"id": f['id']})
      """,
      offering: #"""
        [{"kind": "operator", "name": "work", "summary": "Works.", "parameters": [
          {"name": "after", "type": "duration", "default": "1m", "help": "A."}, {"name": "most", "type": "size", "help": "B."},
          {"name": "names", "type": "list", "of": "text", "default": [], "help": "C."},
          {"name": "key", "type": "expression", "result": "string", "help": "D."}]}]
        """#)
    let pipeline = try VirtualPipeline(
      """
      plugins: { p: { path: '\(path)', env: { MINE: yes } } }
      sources: { in: { values: [{ k: a }] } }
      sinks: { out: { from: in, chain: [ { work: { most: 2KiB, names: [x, y], key: event.k } } ], probe: {} } }
      """, plugins: PluginFixtures.plugins)
    pipeline.run()
    let event = try #require(pipeline.probe().events.first)
    #expect(event.hasPrefix(#"[{"after":60000000000,"most":2048,"names":["x","y"]},{"key":"a"},["#), "\(event)")
    #expect(event.contains("\"MINE\"") && event.contains("\"RXD_PLUGIN\"") && !event.contains("RXD_TEST_HIDDEN"))
    #expect(event.hasSuffix("\"out/work\"]"))
    // Nothing else, such as NOTIFY_SOCKET; LC_CTYPE is set by Python itself.
    let parts = try #require(try JSONSerialization.jsonObject(with: Data(event.utf8)) as? [Any])
    let names = Set(try #require(parts[2] as? [String]))
    #expect(names.subtracting(["PATH", "LANG", "HOME", "TZ", "RXD_PLUGIN", "MINE", "LC_CTYPE"]).isEmpty, "\(names)")
  }

  @Test func stateTimersAndTimeSurviveASuspension() throws {
    let path = try program(
      "sum",
      """
      elif 'event' in f:
          state = (state or 0) + f['event']
          say({"id": f['id'], "events": [state], "timers": {"late": 3000000000}})
      elif 'timer' in f: say({"id": f['id'], "events": [f['timer'], (f['now'] - 1767225600000000000) // 1000000000]})
      elif 'save' in f: say({"id": f['id'], "state": state})
      elif 'id' in f: say({"id": f['id']})
      """, offering: Self.stateful)
    func pipeline(_ state: [UInt8]?) throws -> VirtualPipeline {
      try VirtualPipeline(
        """
        plugins: ['\(path)']
        sources: { in: { values: { list: [1, 2, 3, 4], every: 2s } } }
        sinks: { out: { from: in, chain: [ work ], probe: {} } }
        """, restoring: state, isMoved: true, plugins: PluginFixtures.plugins)
    }
    let first = try pipeline(nil)
    first.run(until: .seconds(3))
    #expect(first.probe().events == ["1", "3"])
    let second = try pipeline(first.suspend())
    second.run()
    // The sum continues, and so does the time to the next event.
    #expect(second.out.filter { !$0.contains("late") } == ["1s 6", "3s 10", "3s |"], "\(second.out)")
  }

  /// A state saved under an older version of the spec is passed with that version, until a newer state replaces it.
  @Test func anOlderStateComesWithItsVersion() throws {
    func pipeline(_ version: Int, _ values: String, _ state: [UInt8]?) throws -> VirtualPipeline {
      let path = try program(
        "versioned",
        """
        elif 'event' in f: say({"id": f['id'], "events": [[opening.get('stateVersion'), opening.get('state')]]})
        elif 'save' in f: say({"id": f['id'], "state": "form \(version)"})
        elif 'id' in f: say({"id": f['id']})
        """,
        offering: Self.stateful.replacing(#""version": 1"#, with: "\"version\": \(version)"))
      return try VirtualPipeline(
        """
        plugins: { p: '\(path)' }
        sources: { in: { values: \(values) } }
        sinks: { out: { from: in, chain: [ work ], probe: {} } }
        """, restoring: state, isMoved: true, plugins: PluginFixtures.plugins)
    }
    // A state is requested after 256 inputs.
    let many = "{ list: [" + (0..<300).map(String.init).joined(separator: ",") + "], every: 1s }"
    let first = try pipeline(1, many, nil)
    first.run(until: .seconds(280))
    #expect(first.probe().events.first == "[null,null]")
    let second = try pipeline(2, many, first.suspend())
    // Suspended before a new state replaces the old one.
    second.run(until: .milliseconds(1))
    let third = try pipeline(2, many, second.suspend())
    third.run(until: .seconds(3))
    #expect(Set(third.probe().events) == [#"[1,"form 1"]"#])
  }

  /// The memory kept for a state is limited.
  @Test func aStateThatNeverComesEndsTheSignal() throws {
    let path = try program(
      "unsaved",
      """
      elif 'event' in f: say({"id": f['id'], "events": []})
      elif 'save' in f: say({"id": f['id'], "error": "no"})
      elif 'id' in f: say({"id": f['id']})
      """, offering: Self.stateful)
    let values = "[" + (0..<17_000).map(String.init).joined(separator: ",") + "]"
    let pipeline = try PluginFixtures.pipeline(path, values: values, chain: "[ work ]")
    pipeline.run()
    #expect(pipeline.failure?.message.hasPrefix("the plugin has not saved its state for ") == true)
    #expect(pipeline.log.contains { $0.contains("has not saved its state: no") })
  }

  @Test func aTimerFiresOnVirtualTime() throws {
    let path = try program(
      "timer",
      """
      elif 'event' in f: say({"id": f['id'], "timers": {"late": 3600000000000}})
      elif 'timer' in f: say({"id": f['id'], "events": [(f['now'] - 1767225600000000000) // 1000000000]})
      elif 'save' in f: say({"id": f['id'], "state": 1})
      elif 'id' in f: say({"id": f['id']})
      """, offering: Self.stateful)
    let pipeline = try VirtualPipeline(
      """
      plugins: ['\(path)']
      sources: { in: { values: { list: [1, 2], every: 5h } } }
      sinks: { out: { from: in, chain: [ work ], probe: {} } }
      """, plugins: PluginFixtures.plugins)
    pipeline.run()
    #expect(pipeline.out.first == "1h 3600")
  }

  /// A reload tests a new version with the state of the running one, but sends no inputs to a second process.
  @Test func aDryRunStartsNothing() throws {
    let notes = PluginFixtures.scratch("opened")
    let path = try program(
      "dry",
      """
      elif 'event' in f:
          open('\(notes)', 'a').write('event\\n')
          say({"id": f['id'], "events": [f['event']]})
      elif 'id' in f: say({"id": f['id']})
      """, offering: Self.stateful)
    func text(_ values: String) -> String {
      """
      plugins: ['\(path)']
      sources: { in: { values: { list: \(values), every: 1s } } }
      sinks: { out: { from: in, chain: [ work ], probe: {} } }
      """
    }
    let first = try VirtualPipeline(text("[1, 2, 3]"), plugins: PluginFixtures.plugins)
    first.run(until: .milliseconds(1500))
    let state = first.suspend()
    let before = try String(contentsOfFile: notes, encoding: .utf8)
    #expect(before == "event\nevent\n")
    let plan = try PipelineText.compile(text("[1, 2, 3]"), plugins: PluginFixtures.plugins)
    let found = Execution.dryRun(plan, services: first.execution.services, clock: VirtualTime(), restoring: state)
    #expect(found.failure == nil)
    #expect(try String(contentsOfFile: notes, encoding: .utf8) == before)
  }

  // MARK: What goes wrong

  @Test func aPoisonousEventIsRejectedAndTheOthersFlow() throws {
    let path = try program(
      "poison",
      """
      elif 'event' in f:
          if f['event'] == 13: os._exit(3)
          say({"id": f['id'], "events": [f['event']]})
      elif 'id' in f: say({"id": f['id']})
      """)
    let pipeline = try events(path, "[1, 13, 2, 13, 3]")
    #expect(pipeline.probe().events == ["1", "2", "3"])
    #expect(pipeline.probe("bad").events.count == 2)
    #expect(
      pipeline.probe("bad").events.first?.contains(
        "ended three times when it was given the event: the plugin's process exited with 3") == true)
    #expect(pipeline.outcome == .completed)
  }

  /// A program that reads ahead dies with unwritten answers: only the offending event is rejected.
  @Test func innocentEventsBeforeAPoisonousOneAreKept() throws {
    let path = try program(
      "ahead",
      """
      elif 'event' in f:
          if f['event'] == 13: os._exit(3)
          held = globals().setdefault('held', [])
          held.append(f['id'])
          if len(held) == 5 or f.get('event') == 9 or len(held) and globals().get('alone', False):
              pass
          import select
          if len(held) >= 5 or not select.select([sys.stdin], [], [], 0.05)[0]:
              for one in held: say({"id": one, "events": [one]})
              held.clear()
      elif 'id' in f: say({"id": f['id']})
      """)
    let pipeline = try events(path, "[1, 2, 3, 13, 4, 5]")
    #expect(pipeline.probe().events.count == 5)
    #expect(pipeline.probe("bad").events.count == 1)
    #expect(pipeline.probe("bad").events.first?.hasPrefix("[13,") == true)
  }

  @Test(
    arguments: [
      ("garbage", "print('hello', flush=True)", "standard error): hello"),
      ("number", "print('7', flush=True)", "standard error): 7"),
      ("stranger", "say({'id': 99, 'events': []})", "answered 99, which is not the next unanswered input"),
      ("unknown", "say({'greeting': 1})", "a frame that the contract does not define"),
      ("long", "print('\"' + 'a' * (17 << 20) + '\"', flush=True)", "a frame of more than 16 MiB"),
      ("wrong", "say({'id': f['id'], 'events': 5})", "'events' is not a list"),
    ])
  func invalidFramesEndTheProcess(_ name: String, _ answer: String, _ reason: String) throws {
    let path = try program(
      name,
      """
      elif 'event' in f:
          if f['event'] == 2: \(answer)
          else: say({"id": f['id'], "events": [f['event']]})
      elif 'id' in f: say({"id": f['id']})
      """)
    let pipeline = try events(path, "[1, 2, 3]")
    #expect(pipeline.probe().events == ["1", "3"])
    #expect(pipeline.probe("bad").events.count == 1)
    #expect(pipeline.log.contains { $0.contains(reason) }, "\(pipeline.log)")
  }

  @Test func oneThatHangsIsKilled() throws {
    let path = try program(
      "hang",
      """
      elif 'event' in f:
          if f['event'] == 2: time.sleep(60)
          say({"id": f['id'], "events": [f['event']]})
      elif 'id' in f: say({"id": f['id']})
      """)
    let pipeline = try VirtualPipeline(
      """
      plugins: { p: { path: '\(path)', timeout: 300ms } }
      sources: { in: { values: [1, 2, 3] } }
      sinks:
        out: { from: in, chain: [ work ], probe: {} }
        bad: { from: out.errors, probe: {} }
      """, plugins: PluginFixtures.plugins)
    pipeline.run()
    #expect(pipeline.probe().events == ["1", "3"])
    #expect(pipeline.probe("bad").events.count == 1)
  }

  @Test func aFloodOfErrorLinesIsBounded() throws {
    let path = try program(
      "flood",
      """
      elif 'event' in f:
          for n in range(1000): sys.stderr.write('line %d\\n' % n)
          sys.stderr.flush()
          say({"id": f['id'], "events": [f['event']]})
      elif 'id' in f: say({"id": f['id']})
      """)
    let pipeline = try events(path, "[1]")
    #expect(pipeline.probe().events == ["1"])
    let lines = pipeline.log.filter { $0.contains("stderr: line") }
    #expect(lines.count >= 20 && lines.count <= 60, "\(lines.count)")
    #expect(pipeline.log.contains { $0.contains("further line") })
  }

  @Test func oneThatOpensNotFailsThePipelineWithThePlace() throws {
    let path = try program(
      "refuses", "elif False: pass",
      offering:
        #"[{"kind": "operator", "name": "work", "summary": "Works.", "parameters": [{"name": "table", "type": "text", "help": "A."}]}]"#
    )
    let refusing = try String(contentsOfFile: path, encoding: .utf8)
      .replacingOccurrences(
        of: #"say({"opened": f['open']})"#, with: #"say({"opened": 1, "error": "no such table", "at": "table"})"#)
    try Data(refusing.utf8).write(to: URL(fileURLWithPath: path))
    chmod(path, 0o755)
    let pipeline = try events(path, "[1]", chain: "[ { work: { table: t } } ]")
    #expect(pipeline.failure?.message == "the plugin refuses: no such table")
    #expect(pipeline.failure?.location?.column == 31)
  }

  @Test func whatItMayUseIsLimited() throws {
    let path = try program(
      "limits",
      """
      elif 'event' in f:
          if f['event'] == 1:
              try: held = bytearray(512 << 20); found = "memory"
              except MemoryError: found = "no memory"
          elif f['event'] == 2:
              found = len(os.listdir('/proc/self/fd'))
          else:
              try:
                  kept = [open('/dev/null') for _ in range(100)]; found = "files"
              except OSError: found = "no files"
              kept = None
          say({"id": f['id'], "events": [found]})
      elif 'id' in f: say({"id": f['id']})
      """)
    let pipeline = try VirtualPipeline(
      """
      plugins: { p: { path: '\(path)', memory: 256MiB, files: 32 } }
      sources: { in: { values: [1, 2, 3] } }
      sinks: { out: { from: in, chain: [ work ], probe: {} } }
      """, plugins: PluginFixtures.plugins)
    pipeline.run()
    // One of the descriptors is that of the directory.
    #expect(pipeline.probe().events == ["\"no memory\"", "4", "\"no files\""])
  }

  // MARK: Sinks

  @Test func aSinkDeliversRefusesAndAsksForAPause() throws {
    let target = PluginFixtures.scratch("written")
    let path = try program(
      "sink",
      """
      elif 'event' in f:
          if waiting and not f.get('again'): continue
          waiting = False
          if f['event'] == 2: say({"id": f['id'], "error": "no 2"})
          elif f['event'] == 3 and tries < 2:
              tries += 1
              waiting = True
              say({"id": f['id'], "retry": "busy"})
          else:
              open('\(target)', 'a').write('%d\\n' % f['event'])
              say({"id": f['id']})
      elif 'complete' in f: say({"id": f['id']})
      """, offering: Self.sinks)
    let text = try String(contentsOfFile: path, encoding: .utf8)
      .replacingOccurrences(of: "state = None\n", with: "state = None; waiting = False; tries = 0\n")
    try Data(text.utf8).write(to: URL(fileURLWithPath: path))
    chmod(path, 0o755)
    let pipeline = try VirtualPipeline(
      """
      plugins: ['\(path)']
      sources: { in: { values: [1, 2, 3, 4, 5] } }
      sinks:
        out: { from: in, work: {} }
        bad: { from: out.errors, chain: [ { map: event.event } ], probe: {} }
      """, plugins: PluginFixtures.plugins)
    pipeline.run()
    #expect(pipeline.outcome == .completed)
    #expect(try String(contentsOfFile: target, encoding: .utf8) == "1\n3\n4\n5\n")
    #expect(pipeline.probe("bad").events == ["2"])
    #expect(pipeline.counters.sent == 4)
  }
}
