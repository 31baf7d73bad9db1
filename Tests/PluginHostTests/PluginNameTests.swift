import Foundation
import PipelineCore
import PipelineHost
import PluginHost
import Testing

/// Names that sources of plugins give their events.
@Suite(.serialized, .timeLimit(.minutes(5))) struct PluginNameTests {
  private static func namer() throws -> String {
    let path = PluginFixtures.scratch("namer.so")
    try PluginFixtures.build("namer.c", to: path)
    return path
  }

  private static func naming(_ spec: String = #""names": true, "#) throws -> String {
    try PluginFixtures.program(
      "naming-\(spec.count)",
      components:
        #"[{"kind": "source", "name": "namer", \#(spec)"summary": "Names.", "parameters": [{"name": "count", "type": "integer", "primary": true, "help": "N."}]}]"#,
      """
      elif 'credit' in f:
          say({"from": f['to'], "event": 0, "name": "p0/0"})
          say({"from": f['to'], "events": [1, 2, 3], "names": ["p1/1", "p0/2"]})
      """)
  }

  /// A name is the same at each start, and an event without one has none.
  @Test func namesAreThoseOfTheSource() throws {
    for path in [try Self.namer(), try Self.naming()] {
      for _ in 1...2 {
        let pipeline = try RealPipeline(
          """
          plugins: ['\(path)']
          sources: { in: { namer: 4 } }
          sinks: { out: { from: in, chain: [ { map: "[event, meta.?id.orValue('none')]" } ], probe: {} } }
          """, plugins: PluginFixtures.plugins)
        pipeline.run { pipeline.probe().events.count >= 4 }
        let names = ["in/namer:p0/0", "in/namer:p1/1", "in/namer:p0/2"]
        let events = names.enumerated().map { #"[\#($0),"\#($1)"]"# } + [#"[3,"none"]"#]
        #expect(pipeline.probe().events == events, "\(path)")
      }
    }
  }

  /// Where nothing asks for names, none is made.
  @Test func namesThatNobodyReadsAreNotKept() throws {
    let pipeline = try RealPipeline(
      """
      plugins: ['\(try Self.namer())']
      sources: { in: { namer: 3 } }
      sinks: { out: { from: in, probe: {} } }
      """, plugins: PluginFixtures.plugins)
    pipeline.run { pipeline.probe().events.count >= 3 }
    #expect(pipeline.probe().events == ["0", "1", "2"])
    #expect(!pipeline.execution.namesEvents)
  }

  @Test func gaugesOfSourcesAreShown() throws {
    let pipeline = try RealPipeline(
      """
      plugins: ['\(try Self.namer())']
      sources: { in: { namer: 4 } }
      sinks: { out: { from: in, probe: {} } }
      """, plugins: PluginFixtures.plugins)
    pipeline.run { pipeline.probe().events.count >= 4 }
    let step = pipeline.execution.statistics.steps.first { $0.plugin != nil }
    #expect(step?.plugin?.gauges == ["lag": ["p0": 2, "p1": 1], "share": ["": 0.5]])
  }

  @Test func namesAreForSources() throws {
    let path = try PluginFixtures.program(
      "misnamed", components: #"[{"kind": "operator", "name": "a", "names": true, "summary": "Names."}]"#, "")
    #expect(PluginFixtures.plugins.refusal(path).contains("'names' is for sources"))
  }
}
