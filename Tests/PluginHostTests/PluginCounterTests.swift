import Foundation
import PipelineCore
import PipelineHost
import PluginHost
import Testing

/// The counters of plugins, in metrics and `--stats`.
@Suite(.serialized, .timeLimit(.minutes(5))) struct PluginCounterTests {
  private func plugin(_ pipeline: VirtualPipeline, _ keyword: String) throws -> PipelineStatistics.Plugin {
    let plan = pipeline.execution.plan
    let step = try #require(pipeline.execution.statistics.steps.first { plan.steps[$0.step.number].keyword == keyword })
    return try #require(step.plugin)
  }

  @Test func aProgramIsCounted() throws {
    let path = try PluginFixtures.program(
      "counted", components: #"[{"kind": "operator", "name": "work", "summary": "Works."}]"#,
      """
      elif 'event' in f:
          if f['event'] == 13: os._exit(3)
          say({"count": "hits", "by": 2})
          say({"count": "hits"})
          say({"count": "misses", "by": -5})
          if f['event'] == 2: sys.stderr.write('line\\n' * 50); sys.stderr.flush()
          say({"id": f['id'], "events": [f['event']]})
      elif 'id' in f: say({"id": f['id']})
      """)
    let pipeline = try PluginFixtures.pipeline(
      path, values: "{ list: [1, 13, 2], every: 1s }", chain: "[ work ]",
      more: "  bad: { from: out.errors, discard: {} }")
    pipeline.run(until: .milliseconds(500))
    let first = try plugin(pipeline, "work")
    #expect(first.instances == 1 && first.processes.count == 1 && first.inHand == 0 && first.restarts == 0)
    #expect(first.counts == ["hits": 3])
    pipeline.run()
    let last = try plugin(pipeline, "work")
    #expect(last.instances == 0 && last.processes.isEmpty && last.inHand == 0)
    #expect(last.restarts == 3 && last.poisoned == 1)
    #expect(last.counts == ["hits": 6])
    // Depending on when its lines are read, they fall into one second or two.
    #expect(last.missedLines >= 10 && last.missedLines <= 30, "\(last.missedLines)")
  }

  @Test func aNativeOneIsCounted() throws {
    let pipeline = try PluginFixtures.pipeline(
      try PluginFixtures.probe(), values: "[1, 2, 3]", chain: "[ probe ]")
    pipeline.run(until: .zero)
    let counted = try plugin(pipeline, "probe")
    #expect(counted.counts == ["seen": 3])
    #expect(counted.processes.isEmpty && counted.memory == nil)
  }

  /// Values that rise and fall go with the instance that set them.
  @Test func gaugesAreThoseOfNow() throws {
    let pipeline = try PluginFixtures.pipeline(
      try PluginFixtures.probe(), values: "{ list: [1, 2, 3], every: 1s }", chain: "[ { probe: gauge } ]")
    pipeline.run(until: .milliseconds(500))
    #expect(try plugin(pipeline, "probe").gauges == ["depth": ["": 1], "of": ["a": 1.5]])
    pipeline.run(until: .milliseconds(1_500))
    #expect(try plugin(pipeline, "probe").gauges == ["depth": ["": 2], "of": ["a": 1.5, "b": -3]])
    pipeline.run()
    #expect(try plugin(pipeline, "probe").gauges == [:])
  }

  /// Instances of one step are added up, and an instance that ends takes its values with it.
  @Test func gaugesOfInstancesAreAddedUp() throws {
    for (path, left) in [(try PluginFixtures.probe(), 2.0), (try gaugingProgram(), 1.0)] {
      let pipeline = try PluginFixtures.pipeline(
        path, values: "{ list: [1, 2, 3, 3, 3], every: 1s }",
        chain: "[ { groupBy: { key: event, idle: 2500ms, chain: [ { probe: gauge } ] } } ]")
      pipeline.run(until: .milliseconds(1_500))
      #expect(try plugin(pipeline, "probe").gauges["depth"] == ["": 2])
      pipeline.run(until: .milliseconds(2_200))
      #expect(try plugin(pipeline, "probe").gauges["depth"] == ["": 3])
      pipeline.run(until: .milliseconds(3_800))
      #expect(try plugin(pipeline, "probe").gauges["depth"] == ["": left])
    }
  }

  private func gaugingProgram() throws -> String {
    try PluginFixtures.program(
      "gauging",
      components:
        #"[{"kind": "operator", "name": "probe", "summary": "Works.", "parameters": [{"name": "mode", "type": "text", "primary": true, "help": "What."}]}]"#,
      """
      elif 'event' in f:
          say({"gauge": "depth", "value": 1, "from": f['to']})
          say({"gauge": "depth", "of": "x", "value": 7, "from": f['to']})
          say({"gauge": "depth", "of": "x", "value": None, "from": f['to']})
          say({"id": f['id'], "events": [f['event']]})
      elif 'id' in f: say({"id": f['id']})
      """)
  }

  /// The functions of one location are opened once, and each execution counts separately.
  @Test func aRowCountsForEachExecution() throws {
    let plan = try PipelineText.compile(
      """
      plugins: ['\(try PluginFixtures.probe("row", "ROW"))']
      sources: { in: { values: [1, 2, 3] } }
      sinks: { out: { from: in, chain: [ probe ], discard: {} } }
      """, plugins: PluginFixtures.plugins)
    for _ in 1...2 {
      let time = VirtualTime()
      let executor = Executor(clock: time)
      nonisolated(unsafe) let execution = Execution(
        plan: plan, executor: executor,
        services: Services(http: ScriptedHTTP(), log: { _, _, _ in }, deadLetter: { _ in }, random: { 0 }))
      executor.post { execution.launch(restoring: nil) { _ in } }
      time.run(executor, turnLimit: 100)
      let step = execution.statistics.steps.first { plan.steps[$0.step.number].keyword == "probe" }
      #expect(step?.plugin?.counts == ["rows": 3])
    }
  }
}
