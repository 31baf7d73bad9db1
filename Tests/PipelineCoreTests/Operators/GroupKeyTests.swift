import PipelineCore
import PipelineTestSupport
import PipelineTesting
import Testing

/// In a group every event has the group's key, whichever step sent it.
@Suite struct GroupKeyTests {
  /// An operator of the catalogue by an example, in the chain of a group: as a step, or in an inner signal.
  private static func text(_ example: MarbleCase, _ before: String, _ after: String) -> String {
    var text = "name: t\nsources:\n"
    for input in example.inputs { text += "  \(input.name): { scripted: {} }\n" }
    if example.isSignal { text += "  begin: { scripted: {} }\n" }
    let step =
      example.isSignal
      ? "flattenMap: { signal: \(example.text.hasPrefix("{") ? example.text : "{ \(example.text) }") }" : example.text
    text += """
      signals:
        result:
          from: \(example.isSignal ? "begin" : "a")
          chain:
            - groupBy:
                key: "'g'"
                chain:
      \(before)            - \(step)
      \(after)            - map: meta.key
      sinks:
        out: { from: result, probe: {} }

      """
    return text
  }

  private static let one = "            - window: { count: 1, to: \"events[0]\" }\n"
  private static let aggregated = [
    "window: { count: 1, aggregate: { k: meta.key, n: count() } }", "rateLimit: { per: 1ms, count: 1000 }",
    "filter: event.k == meta.key",
  ].map { "            - \($0)\n" }.joined()

  @Test(arguments: CatalogueExample.marbles)
  func everyStepSendsTheKey(_ example: CatalogueExample) throws {
    let marbles = try MarbleCase(example.example)
    for (before, after) in [("", ""), (Self.one, ""), ("", Self.aggregated), (Self.one, Self.aggregated)] {
      var sources: [String: any SourceComponent] = [:]
      for input in marbles.inputs { sources[input.name] = ScriptedSource(input.history.script) }
      if marbles.isSignal { sources["begin"] = ScriptedSource(SignalHistory(try Marbles("1|")).script) }
      var options = PipelineRun.Options()
      options.until = TimeSpan(nanoseconds: marbles.length.nanoseconds + 20_000_000)
      let plan: Plan
      do { plan = try PipelineRun.compile(Self.text(marbles, before, after)) } catch {
        Issue.record("\(error)", sourceLocation: example.location)
        continue
      }
      let run = PipelineRun(plan, sources: sources, options: options)
      let lost = (run.deadLetters + run.log).filter { $0.contains("meta.key") || $0.contains("'key'") }
      if let first = lost.first {
        Issue.record("\(lost.count) without a key: \(first)", sourceLocation: example.location)
      }
    }
  }

  @Test func aWindowBeforeAStepOfAnyKindHasIt() throws {
    for step in ["rateLimit: 10m", "delay: 1ms", "throttle: 1ms", "do: { values: [1] }", "timeout: 1h"] {
      let run = try PipelineRun(
        """
        name: t
        sources: { a: { scripted: {} } }
        signals:
          s:
            from: a
            chain:
              - groupBy:
                  key: event
                  chain:
                    - window: { every: 3ms, aggregate: { k: meta.key, n: count() } }
                    - \(step)
                    - map: "[event.k, meta.key]"
        sinks: { out: { from: s, probe: {} } }
        """, sources: ["a": ScriptedSource(SignalHistory(try Marbles("xyx-----|")).script)])
      #expect(run.deadLetters.isEmpty, "\(step)")
      #expect(run.texts["out"]?.sorted() == [#"["x","x"]"#, #"["y","y"]"#], "\(step)")
    }
  }

  /// A named signal is made outside of the group, and an inner signal may be.
  @Test func eventsFromOutsideGetIt() throws {
    let run = try PipelineRun(
      """
      name: t
      sources: { a: { scripted: {} }, b: { scripted: {} } }
      signals:
        other: { from: b, chain: [ { map: event } ] }
        s:
          from: a
          chain:
            - groupBy: { key: event, chain: [ { flattenMap: { signal: { from: other } } }, { map: "[event, meta.key]" } ] }
      sinks: { out: { from: s, probe: {} } }
      """,
      sources: [
        "a": ScriptedSource(SignalHistory(try Marbles("xy----|")).script),
        "b": ScriptedSource(SignalHistory(try Marbles("--1-2-|")).script),
      ])
    #expect(run.deadLetters.isEmpty)
    #expect(run.texts["out"] == [#"[1,"x"]"#, #"[1,"y"]"#, #"[2,"x"]"#, #"[2,"y"]"#])
  }
}
