import Foundation
import PipelineCore
import PipelineHost
import PluginHost
import Testing

/// Plugins that are slow, collect their input, end once, or send many messages: processing continues, and none of them delays or floods the
/// rest. The pipeline is on virtual time; the time limit for an answer is real time.
@Suite(.serialized, .timeLimit(.minutes(5))) struct PluginPaceTests {
  private static let operators = #"[{"kind": "operator", "name": "work", "summary": "Works."}]"#
  private static let sinks = #"[{"kind": "sink", "name": "work", "summary": "Works.", "confirmation": "disk"}]"#
  /// A sink that acknowledges a whole batch at `flush` or `complete`.
  private static let gathering = """
    elif 'event' in f:
        EACH
        globals().setdefault('held', []).append(f['id'])
    elif 'flush' in f or 'complete' in f:
        held = globals().setdefault('held', [])
        BATCH
        if held: say({"through": held[-1]})
        held.clear()
        if 'complete' in f: say({"id": f['id']})
    """

  private func list(_ count: Int) -> String { "[" + (0..<count).map(String.init).joined(separator: ", ") + "]" }

  private func sink(_ path: String, timeout: String, _ count: Int) throws -> VirtualPipeline {
    let pipeline = try VirtualPipeline(
      """
      plugins: { p: { path: '\(path)', timeout: \(timeout) } }
      sources: { in: { values: \(list(count)) } }
      sinks:
        out: { from: in, work: {} }
        bad: { from: out.errors, probe: {} }
      """, plugins: PluginFixtures.plugins)
    pipeline.run()
    return pipeline
  }

  /// After a crash each unacknowledged event is sent alone, followed by `flush`, so a collecting sink acknowledges it.
  @Test func aGatheringSinkGoesOnAfterOneCrash() throws {
    let mark = PluginFixtures.scratch("gathering-crashed")
    try? FileManager.default.removeItem(atPath: mark)
    let path = try PluginFixtures.program(
      "gathering", components: Self.sinks,
      Self.gathering.replacing(
        "EACH",
        with: "if f['event'] == 200 and not os.path.exists('\(mark)'): open('\(mark)', 'w').close(); os._exit(1)"
      ).replacing("BATCH", with: "pass"))
    let pipeline = try sink(path, timeout: "20s", 400)
    #expect(FileManager.default.fileExists(atPath: mark))
    #expect(pipeline.outcome == .completed && pipeline.counters.sent == 400)
    #expect(pipeline.probe("bad").events.isEmpty)
    #expect(!pipeline.log.contains { $0.contains("has not answered") }, "\(pipeline.log)")
  }

  /// The limit applies to one event: a batch takes 3 s here, three times the limit.
  @Test func aSlowSinkIsNotKilledForALargeBatch() throws {
    let path = try PluginFixtures.program(
      "slow-sink", components: Self.sinks,
      Self.gathering.replacing("EACH", with: "pass").replacing("BATCH", with: "time.sleep(0.01 * len(held))"))
    let pipeline = try sink(path, timeout: "1s", 300)
    #expect(pipeline.outcome == .completed && pipeline.counters.sent == 300)
    #expect(!pipeline.log.contains { $0.contains("broke the contract") }, "\(pipeline.log)")
  }

  /// A program may read all available input before it answers.
  @Test func aSlowOperatorIsNotKilledForReadingAhead() throws {
    let path = try PluginFixtures.program(
      "slow-operator", components: Self.operators,
      """
      elif 'id' in f:
          import select
          held = globals().setdefault('held', [])
          held.append(f)
          time.sleep(0.01)
          if not select.select([sys.stdin], [], [], 0)[0]:
              for one in held: say({"id": one['id'], "events": [one['event']] if 'event' in one else []})
              held.clear()
      """)
    let text = try String(contentsOfFile: path, encoding: .utf8)
      // Unbuffered, so that `select` reports all available input.
      .replacing("for line in sys.stdin:", with: "for line in iter(sys.stdin.buffer.raw.readline, b''):")
    try Data(text.utf8).write(to: URL(fileURLWithPath: path))
    chmod(path, 0o755)
    let pipeline = try VirtualPipeline(
      """
      plugins: { p: { path: '\(path)', timeout: 1s } }
      sources: { in: { values: \(list(300)) } }
      sinks: { out: { from: in, chain: [ work ], probe: {} } }
      """, plugins: PluginFixtures.plugins)
    pipeline.run()
    #expect(pipeline.probe().events.count == 300 && pipeline.outcome == .completed)
    #expect(!pipeline.log.contains { $0.contains("broke the contract") }, "\(pipeline.log)")
  }

  // MARK: The log

  private func check(_ pipeline: VirtualPipeline, of all: Int) {
    let lines = pipeline.log.filter { $0.contains("spoken") }
    let leftOut = pipeline.log.compactMap { line in
      line.firstMatch(of: #/the plugin logged (\d+) further lines? within a second/#).flatMap { Int($0.1) }
    }.reduce(0, +)
    #expect(lines.count >= 20 && lines.count <= all / 2, "\(lines.count)")
    #expect(lines.count + leftOut == all, "\(lines.count) + \(leftOut)")
    #expect(lines.allSatisfy { $0.utf8.count < 3000 })
  }

  @Test func whatAProgramSaysIsBounded() throws {
    let path = try PluginFixtures.program(
      "talking", components: Self.operators,
      """
      elif 'event' in f:
          for n in range(3000): sys.stdout.write('{"log":"info","message":"spoken %s"}\\n' % ('x' * 5000))
          say({"id": f['id'], "events": [f['event']]})
      elif 'id' in f: say({"id": f['id']})
      """)
    let pipeline = try PluginFixtures.pipeline(path, values: "[1]", chain: "[ work ]")
    pipeline.run()
    #expect(pipeline.probe().events == ["1"])
    check(pipeline, of: 3000)
  }

  @Test func whatALibrarySaysIsBounded() throws {
    let pipeline = try PluginFixtures.pipeline(
      try PluginFixtures.probe(), values: "[1, 2, 3]", chain: "[ { probe: talk } ]")
    pipeline.run()
    #expect(pipeline.probe().events == ["1", "2", "3"])
    pipeline.settle()
    check(pipeline, of: 3000)
  }
}
