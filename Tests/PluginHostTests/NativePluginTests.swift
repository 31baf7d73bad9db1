import Foundation
import PipelineCore
import PipelineHost
import PluginHost
import Testing

/// Shared libraries that implement rxd_plugin.h.
@Suite struct NativePluginTests {
  // MARK: The example in C

  @Test func rowOperatorsAreStepsLikeOthers() throws {
    let example = try PluginFixtures.example.get()
    let pipeline = try PluginFixtures.pipeline(
      example, values: "[{ t: headline, n: 1 }, { t: ab }, { n: 2 }]",
      chain: "[ { exampleShorten: { field: t, to: 4 } } ]",
      more: "  bad: { from: out.errors, chain: [ { map: event.error } ], probe: {} }")
    pipeline.run()
    #expect(pipeline.probe().events == [#"{"t":"head","n":1}"#, #"{"t":"ab"}"#])
    #expect(pipeline.probe("bad").events.count == 1)
    #expect(pipeline.outcome == .completed)
  }

  @Test func streamOperatorsKeepTheirState() throws {
    let example = try PluginFixtures.example.get()
    func pipeline(_ state: [UInt8]?) throws -> VirtualPipeline {
      try VirtualPipeline(
        """
        plugins: ['\(example)']
        sources: { in: { values: { list: [{ a: 1 }, { a: 2 }, { a: 3 }, { a: 4 }], every: 1s } } }
        sinks: { out: { from: in, chain: [ { exampleRunningSum: { field: a, as: sum } } ], probe: {} } }
        """, restoring: state, isMoved: true, plugins: PluginFixtures.plugins)
    }
    let first = try pipeline(nil)
    first.run(until: .milliseconds(1500))
    #expect(first.probe().events == [#"{"a":1,"sum":1}"#, #"{"a":2,"sum":3}"#])
    let second = try pipeline(first.suspend())
    second.run()
    #expect(second.probe().events == [#"{"a":3,"sum":6}"#, #"{"a":4,"sum":10}"#])
    #expect(second.outcome == .completed)
  }

  @Test func timersRunOnTheClockOfThePipeline() throws {
    let example = try PluginFixtures.example.get()
    let pipeline = try VirtualPipeline(
      """
      plugins: ['\(example)']
      sources: { in: { values: { list: [1, 2, 3], every: 300ms } } }
      sinks: { out: { from: in, chain: [ { exampleDebounce: 250ms } ], probe: {} } }
      """, plugins: PluginFixtures.plugins)
    pipeline.run()
    #expect(pipeline.out == ["250ms 1", "550ms 2", "600ms 3", "600ms |"])
  }

  @Test func timersSurviveASuspension() throws {
    let example = try PluginFixtures.example.get()
    func pipeline(_ state: [UInt8]?) throws -> VirtualPipeline {
      try VirtualPipeline(
        """
        plugins: ['\(example)']
        sources: { in: { values: { list: [1, 2], every: 10s } } }
        sinks: { out: { from: in, chain: [ { exampleDebounce: 5s } ], probe: {} } }
        """, restoring: state, isMoved: true, plugins: PluginFixtures.plugins)
    }
    let first = try pipeline(nil)
    first.run(until: .milliseconds(3_000))
    let second = try pipeline(first.suspend())
    second.run()
    #expect(second.out == ["2s 1", "7s 2", "7s |"])
  }

  // MARK: What it hands over

  @Test func expressionsAndTemplatesComeWithEachEvent() throws {
    let pipeline = try PluginFixtures.pipeline(
      PluginFixtures.probe(), values: "[{ a: 1 }, { a: 2.50 }]",
      chain: "[ { probe: { mode: arguments, key: event.a, label: 'is {{ event.a }}' } } ]")
    pipeline.run()
    #expect(pipeline.probe().events == [#"{"key":1,"label":"is 1"}"#, #"{"key":2.50,"label":"is 2.50"}"#])
  }

  @Test func valuesAreKeptWithTheirKinds() throws {
    let pipeline = try PluginFixtures.pipeline(
      PluginFixtures.probe(), values: "[1.50, text, { a: [1, { b: null }] }]",
      chain:
        "[ { probe: { mode: kept } }, { map: \"{'v': event, 't': timestamp('2026-01-01T00:00:00Z')}\" }, { probe: { mode: kept } }, { map: \"[event.v, event.t + duration('1s')]\" } ]"
    )
    pipeline.run()
    #expect(
      pipeline.probe().events == [
        #"[1.50,"2026-01-01T00:00:01Z"]"#, #"["text","2026-01-01T00:00:01Z"]"#,
        #"[{"a":[1,{"b":null}]},"2026-01-01T00:00:01Z"]"#,
      ])
  }

  @Test func aRejectionGoesToTheErrorsOutput() throws {
    let pipeline = try PluginFixtures.pipeline(
      PluginFixtures.probe(), values: "[1]", chain: "[ { probe: reject } ]",
      more: "  bad: { from: out.errors, chain: [ { map: '[event.code, event.event]' } ], probe: {} }")
    pipeline.run()
    #expect(pipeline.out == ["0s |"])
    #expect(pipeline.probe("bad").events == [#"["RX511",1]"#])
  }

  // MARK: What goes wrong

  @Test func indicesAndValuesAreChecked() throws {
    let pipeline = try PluginFixtures.pipeline(PluginFixtures.probe(), values: "[1, 2]", chain: "[ { probe: lies } ]")
    pipeline.run()
    #expect(pipeline.probe().events == ["1", "2"])
    #expect(pipeline.outcome == .completed)
  }

  @Test func aFailureEndsThePipelineWithItsPlace() throws {
    let failing = try PluginFixtures.pipeline(PluginFixtures.probe(), values: "[1]", chain: "[ { probe: fail } ]")
    failing.run()
    #expect(failing.failure?.message == "the plugin failed: it failed as it was told")
    let silent = try PluginFixtures.pipeline(PluginFixtures.probe(), values: "[1]", chain: "[ { probe: silent } ]")
    silent.run()
    #expect(silent.failure?.message == "the plugin failed: it failed without saying why")
    let refused = try PluginFixtures.pipeline(PluginFixtures.probe(), values: "[1]", chain: "[ { probe: refuse } ]")
    refused.run()
    #expect(refused.failure?.message == "the plugin refuses: it does not like the mode")
    #expect(refused.failure?.location?.line == 6)
    #expect(refused.failure?.location?.column == 23)
  }

  @Test func buildsOfAnotherKindAreRefusedBeforeTheyRun() throws {
    let plugins = PluginFixtures.plugins
    #expect(plugins.refusal(try PluginFixtures.probe()) == "")
    #expect(
      plugins.refusal(try PluginFixtures.probe("magic", "NO_MAGIC")).contains("does not export 'rxd_plugin_magic'"))
    #expect(
      plugins.refusal(try PluginFixtures.probe("name", "MAGIC_NAME=1,2,3")).contains("not that of rxd_plugin.h"))
    #expect(
      plugins.refusal(try PluginFixtures.probe("contract", "MAGIC_CONTRACT=7"))
        == "it was compiled for contract 7, and this rxd knows 1")
    #expect(
      plugins.refusal(try PluginFixtures.probe("pointer", "MAGIC_POINTER=4"))
        == "its pointers have 4 bytes, and those of this rxd have 8")
    #expect(plugins.refusal(try PluginFixtures.probe("format", "MAGIC_FORMAT=2")).contains("format 2"))
    #expect(plugins.refusal(try PluginFixtures.probe("size", "PLUGIN_SIZE=8")).contains("8 bytes"))
    #expect(
      plugins.refusal(try PluginFixtures.probe("refuses", "REFUSES")) == "it refuses to start: the moon is not full")
    #expect(
      plugins.refusal(try PluginFixtures.probe("write", "NO_WRITE")) == "the sink 'probeSink' has no function 'write'")
    #expect(plugins.refusal(try PluginFixtures.probe("spec", "SPEC=\"{}\"")).contains("a spec needs 'plugin'"))
    #expect(plugins.refusal(try PluginFixtures.probe("json", "SPEC=\"[\"")).contains("its spec does not"))
    let text = PluginFixtures.scratch("text.so")
    try Data("no library".utf8).write(to: URL(fileURLWithPath: text))
    #expect(plugins.refusal(text).contains("cannot be loaded"))
  }

  /// Accepts jobs and never runs them.
  private final class StuckWorker: Worker {
    func enqueue(_ work: @escaping @Sendable () -> Void) {}
  }

  @Test(arguments: ["chain: [ probe ], discard: {}", "probeSink: {}"]) func oneThatDoesNotReturnIsNamed(
    _ use: String
  ) throws {
    let pipeline = try VirtualPipeline(
      """
      plugins: ['\(try PluginFixtures.probe())']
      sources: { in: { values: { list: [1, 2, 3], every: 100s } } }
      sinks: { out: { from: in, \(use) } }
      """, worker: StuckWorker(), plugins: PluginFixtures.plugins)
    pipeline.run(until: .seconds(119))
    #expect(!pipeline.log.contains { $0.contains("not answered") })
    pipeline.run(until: .seconds(301))
    let said = pipeline.log.filter { $0.contains("not answered") }
    #expect(said.count == 4)
    #expect(said.first?.contains("the plugin has not answered for more than 1 minute") == true)
    #expect(said.last?.hasSuffix("4 minutes") == true)
  }

  // MARK: Sinks

  @Test func aSinkRefusesSingleEvents() throws {
    let pipeline = try VirtualPipeline(
      """
      plugins: ['\(try PluginFixtures.probe())']
      sources: { in: { values: [1, 2, 3] } }
      sinks:
        out: { from: in, probeSink: refuse2 }
        bad: { from: out.errors, chain: [ { map: '[event.event, event.error]' } ], probe: {} }
      """, plugins: PluginFixtures.plugins)
    pipeline.run()
    #expect(pipeline.probe("bad").events == [#"[2,"not a 2"]"#])
    #expect(pipeline.outcome == .completed)
    #expect(pipeline.counters.sent == 2 + 0)
  }

  @Test func undeliveredEventsComeAgain() throws {
    let pipeline = try VirtualPipeline(
      """
      plugins: ['\(try PluginFixtures.probe())']
      sources: { in: { values: [1, 2, 3, 4, 5] } }
      sinks: { out: { from: in, probeSink: later } }
      """, plugins: PluginFixtures.plugins)
    pipeline.run()
    #expect(pipeline.outcome == .completed)
    #expect(pipeline.counters.sent == 5)
    // It requests three pauses. The first batch is one event, which is delivered, so nothing is repeated; then 0.5 s each, because each
    // delivery resets the pauses.
    #expect(pipeline.time.now == Instant(nanoseconds: 1_000_000_000))
    #expect(pipeline.log.contains { $0.contains("not now; trying again") })
    #expect(pipeline.log.contains { $0.contains("delivers again") })
  }

  /// Events may be delivered in any order: only those that are not are given again.
  @Test func eventsAreDeliveredInAnyOrder() throws {
    let pipeline = try VirtualPipeline(
      """
      plugins: ['\(try PluginFixtures.probe())']
      sources: { in: { values: [1, 2, 3, 4, 5, 6, 7, 8, 9] } }
      sinks: { out: { from: in, probeSink: backwards } }
      """, plugins: PluginFixtures.plugins)
    pipeline.run()
    #expect(pipeline.outcome == .completed)
    #expect(pipeline.counters.sent == 9)
    #expect(pipeline.counters.rejected == 0)
    #expect(pipeline.log.contains { $0.contains("not now; trying again") })
  }

  @Test func aSinkThatFailsEndsThePipeline() throws {
    let pipeline = try VirtualPipeline(
      """
      plugins: ['\(try PluginFixtures.probe())']
      sources: { in: { values: [1] } }
      sinks: { out: { from: in, probeSink: fail } }
      """, plugins: PluginFixtures.plugins)
    pipeline.run()
    #expect(pipeline.failure?.message == "the plugin failed: it cannot")
  }

  // MARK: Checks

  @Test func parametersAreCheckedLikeBuiltInOnes() throws {
    let example = try PluginFixtures.example.get()
    func complaints(_ step: String) -> [String] {
      PipelineText.complaints(
        """
        plugins: ['\(example)']
        sources: { in: { values: [{ t: a }] } }
        sinks: { out: { from: in, chain: [ \(step) ], discard: {} } }
        """, plugins: PluginFixtures.plugins)
    }
    #expect(complaints("{ exampleShorten: t }") == [])
    #expect(
      complaints("{ exampleShorten: { field: t, to: 0 } }") == [
        "3:70: 'to' of 'exampleShorten' is 0, but must be between 1 and 10000"
      ])
    #expect(complaints("{ exampleShorten: { feld: t } }").first == "3:56: 'exampleShorten' has no parameter 'feld'")
    #expect(complaints("exampleShorten") == ["3:36: 'exampleShorten' needs 'field'"])
    #expect(complaints("{ exampleDebounce: 5 }").count == 1)
    #expect(complaints("{ exampleShortn: t }") == ["3:38: there is no operator 'exampleShortn'"])
  }

  @Test func namesOfBuiltInComponentsAreTaken() throws {
    let path = try PluginFixtures.probe(
      "taken",
      #"SPEC="{\"plugin\":\"taken\",\"version\":\"1\",\"summary\":\"Takes.\",\"components\":[{\"kind\":\"operator\",\"name\":\"filter\",\"summary\":\"Takes.\"}]}""#
    )
    let complaints = PipelineText.complaints(
      "plugins: ['\(path)']\nsources: { in: { values: [1] } }\nsinks: { out: { from: in, discard: {} } }\n",
      plugins: PluginFixtures.plugins)
    #expect(complaints == ["1:11: the plugin 'taken' offers the operator 'filter', which is built in"])
  }

  @Test func checkingStartsNothing() throws {
    let path = try PluginFixtures.probe("unknown", "REFUSES")
    let complaints = PipelineText.complaints(
      "plugins: ['\(path)']\nsources: { in: { values: [1] } }\nsinks: { out: { from: in, discard: {} } }\n",
      plugins: LocalPlugins(asks: false, directories: []))
    #expect(complaints.count == 1)
    #expect(complaints.first?.contains("not known yet, and checking starts no plugin") == true)
  }

  @Test func filesThatOthersMayWriteAreRefused() throws {
    let path = try PluginFixtures.probe("open")
    chmod(path, 0o777)
    #expect(PluginFixtures.plugins.refusal(path).contains("others may write"))
    chmod(path, 0o755)
    #expect(PluginFixtures.plugins.refusal(path) == "")
    let folder = PluginFixtures.scratch("folder")
    mkdir(folder, 0o777)
    chmod(folder, 0o777)
    try FileManager.default.copyItem(atPath: path, toPath: folder + "/a.so")
    #expect(PluginFixtures.plugins.refusal(folder + "/a.so").contains("others may write"))
  }
}
