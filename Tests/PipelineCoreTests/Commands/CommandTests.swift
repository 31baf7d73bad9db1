import PipelineTestSupport
import Testing

@testable import PipelineCore
@testable import PipelineTesting

/// ReactiveCocoa's RACCommand, property by property.
@Suite struct CommandTests {
  /// Runs a command `work`, executed for each event of `clicks`, whose executions send `run`. `expected`: the output
  /// of outputs and signals, as marbles of 1 ms; `T` and `F` are true and false.
  private func check(
    _ clicks: String, run: String, _ parameters: String = "", enabled: String? = nil,
    gives expected: KeyValuePairs<String, String>, values: [String: TestValue] = [:],
    line: Int = #line
  ) throws {
    var yaml = """
      sources:
        clicks: { scripted: {} }
        permission: { scripted: {} }
      signals:
        results:
          from: clicks
          chain: [ { execute: work } ]
      commands:
        work:
          run: \(run)
      """
    if enabled != nil { yaml += "\n    enabled: permission" }
    if !parameters.isEmpty { yaml += "\n    \(parameters)" }
    yaml += "\nsinks:"
    for (name, _) in expected {
      yaml += "\n  to-\(name.split(separator: ".").joined(separator: "-")): { from: \(name), probe: {} }"
    }
    let table = values.merging(["T": .bool(true), "F": .bool(false)]) { own, _ in own }
    func history(_ text: String) throws -> SignalHistory { SignalHistory(try Marbles(text), values: table) }
    var sources = ["clicks": ScriptedSource(try history(clicks).script)]
    if let enabled { sources["permission"] = ScriptedSource(try history(enabled).script) }
    let plan = try PipelineRun.compile(yaml)
    // Unchanged, and with the state saved, everything dropped and the state restored after each turn.
    for restarts in [false, true] {
      var options = PipelineRun.Options()
      options.cutAfter = { _ in restarts }
      let result = PipelineRun(plan, sources: sources, options: options)
      for (name, marbles) in expected {
        let got = result.sinks["to-" + name.split(separator: ".").joined(separator: "-")] ?? SignalHistory()
        #expect(got == (try history(marbles)), "\(name), line \(line)\(restarts ? ", with restarts" : "")")
      }
      #expect(result.outcome == .completed, "line \(line)")
      #expect(result.pendingTimers == 0)
      #expect(!result.isInputPaused)
      #expect(result.refusals.isEmpty, "\(result.refusals.map(\.message))")
      #expect(!restarts || !result.savedStates.isEmpty)
    }
  }

  private static let two = "{ from: { marbles: '--x-y|' } }"

  @Test func executesAndReportsIt() throws {
    try check(
      "-a--------|", run: Self.two,
      gives: [
        "results": "---x-y----|", "work.values": "---x-y----|", "work.executing": "FT----F---|",
        "work.enabled": "TF----T---|",
      ])
  }

  @Test func theInputIsSeenByTheExecution() throws {
    try check(
      "-1-2-|", run: "{ from: { values: [7] }, chain: [ { map: outer * 10 + event } ] }",
      gives: ["results": "-A-B-|"], values: ["A": .int(17), "B": .int(27)])
  }

  @Test func aClickWhileItIsExecutingIsRefused() throws {
    try check("-a-b-------|", run: Self.two, gives: ["results": "---x-y-----|", "work.executing": "FT----F----|"])
  }

  @Test func concurrentExecutions() throws {
    try check(
      "-a-b-------|", run: Self.two, "allowsConcurrentExecution: true",
      gives: [
        "results": "---x-(yx)-y---|", "work.executing": "FT------F--|",
        "work.enabled": "T----------|",
      ])
  }

  @Test func onlyTheNewestIsReceived() throws {
    try check(
      "-a-b-------|", run: Self.two, "allowsConcurrentExecution: true\n    deliver: newest",
      gives: ["work.values": "-----x-y---|"])
  }

  @Test func queued() throws {
    try check(
      "-(ab)-----------|", run: Self.two, "whenBusy: queue",
      gives: ["results": "---x-y--x-y--|", "work.executing": "FT---------F-|", "work.enabled": "T------------|"])
  }

  @Test func dropped() throws {
    try check(
      "-a-b-------|", run: Self.two, "whenBusy: drop",
      gives: ["results": "---x-y-----|", "results.errors": "-----------|"])
  }

  @Test func theLatestTakesThePlace() throws {
    try check(
      "-a-b-------|", run: Self.two, "whenBusy: latest",
      gives: ["results": "-----x-y---|", "work.executing": "FT------F--|"])
  }

  @Test func enabledIsTrueByDefault() throws {
    try check(
      "-a-----b-----|", run: "{ from: { marbles: '-x|' } }", enabled: "----F--------|",
      gives: ["results": "--x----------|", "work.enabled": "TF-TF--------|"])
  }

  @Test func enabledFollowsItsSignal() throws {
    try check(
      "--a---b-|", run: "{ from: { values: [1] } }", enabled: "F---T----|",
      gives: ["results": "------1-|", "work.executing": "F-----(TF)-|"])
  }

  @Test func aFailureEndsTheExecutionOnly() throws {
    try check(
      "-a-----b-----|", run: "{ from: { marbles: '--#' } }",
      gives: ["results": "-------------|", "work.executing": "FT-F---T-F---|"])
  }

  @Test func failuresAreReported() throws {
    let plan = try PipelineRun.compile(
      """
      sources: { clicks: { scripted: {} } }
      signals: { results: { from: clicks, chain: [ { execute: work } ] } }
      commands: { work: { run: { from: { marbles: '-#' } } } }
      sinks:
        failures: { from: work.errors, chain: [ { map: { code: event.code, input: event.event } } ], probe: {} }
        refusals: { from: results.errors, chain: [ { map: event.code } ], probe: {} }
      """)
    let clicks = SignalHistory(try Marbles("1-(23)-|"))
    let result = PipelineRun(plan, sources: ["clicks": ScriptedSource(clicks.script)])
    let failures = result.sinks["failures"]?.entries.compactMap {
      if case .next(let value) = $0.moment { "\(value)" } else { nil }
    }
    #expect(failures?.count == 2)
    #expect(failures?.first?.contains("RX510") == true, "\(failures ?? [])")
    #expect(result.sinks["refusals"]?.entries.count == 2, "one refusal, then the end")
  }

  @Test func anExecutionThatNeverEndsIsNeverOver() throws {
    let yaml = """
      sources: { clicks: { scripted: {} } }
      signals: { results: { from: clicks, chain: [ { execute: work } ] } }
      commands: { work: { run: { from: { marbles: '-x' } } } }
      sinks: { out: { from: work.executing, probe: {} } }
      """
    let clicks = SignalHistory(try Marbles("-a--b--|"))
    var options = PipelineRun.Options()
    options.until = .seconds(3600)
    let result = try PipelineRun(yaml, sources: ["clicks": ScriptedSource(clicks.script)], options: options)
    #expect(result.out == SignalHistory(try Marbles("FT"), values: ["T": .bool(true), "F": .bool(false)]))
    #expect(result.outcome == nil)
    #expect(result.counters.rejected == 1)
  }

  /// A subscriber that leaves does not cancel the execution.
  @Test func theWorkOutlivesWhoBeganIt() throws {
    let yaml = """
      sources: { clicks: { scripted: {} } }
      signals: { results: { from: clicks, chain: [ { execute: work }, { take: 1 } ] } }
      commands: { work: { run: \(Self.two) } }
      sinks:
        out: { from: results, probe: {} }
        values: { from: work.values, probe: {} }
      """
    let clicks = SignalHistory(try Marbles("-a------|"))
    let result = try PipelineRun(yaml, sources: ["clicks": ScriptedSource(clicks.script)])
    #expect(result.out == SignalHistory(try Marbles("---(x|)")))
    #expect(result.sinks["values"] == SignalHistory(try Marbles("---x-y|")))
  }

  @Test func whatEnablesItMayHearOfIt() throws {
    let yaml = """
      sources: { clicks: { scripted: {} } }
      signals:
        results: { from: clicks, chain: [ { execute: once } ] }
        notYet: { from: once.values, chain: [ { map: "false" }, { startWith: true } ] }
      commands: { once: { enabled: notYet, run: { from: { values: [1] } } } }
      sinks: { out: { from: results, probe: {} } }
      """
    let clicks = SignalHistory(try Marbles("-a-b-|"))
    let result = try PipelineRun(yaml, sources: ["clicks": ScriptedSource(clicks.script)])
    #expect(result.out == SignalHistory(try Marbles("-1---|")))
    #expect(result.outcome == .completed)
  }

  /// A command that its own output executes again, as for the next page, ends when no further event can occur.
  @Test func whatItSendsMayExecuteItAgain() throws {
    let yaml = """
      sources: { clicks: { scripted: {} } }
      signals:
        first: { from: clicks, chain: [ { execute: load } ] }
        next: { from: load.values, chain: [ { filter: event < 3 }, { execute: load } ] }
      commands:
        load: { whenBusy: queue, run: { from: { marbles: '-1|' }, chain: [ { map: outer + event } ] } }
      sinks: { out: { from: load.values, probe: {} } }
      """
    for restarts in [false, true] {
      var options = PipelineRun.Options()
      options.cutAfter = { _ in restarts }
      let clicks = ScriptedSource(SignalHistory(try Marbles("0|")).script)
      let result = try PipelineRun(yaml, sources: ["clicks": clicks], options: options)
      #expect(result.out == SignalHistory(try Marbles("-1-2-(3)|")), "\(result.out)")
      #expect(result.outcome == .completed)
    }
  }

  /// Executions that start each other do not nest on the stack.
  @Test(arguments: [
    "whenBusy: queue", "whenBusy: latest", "allowsConcurrentExecution: true, maxConcurrent: 10000",
    "allowsConcurrentExecution: true, maxConcurrent: 10000, whenBusy: queue",
  ])
  func manyBeginEachOther(_ parameters: String) throws {
    let yaml = """
      sources: { clicks: { scripted: {} } }
      signals:
        first: { from: clicks, chain: [ { execute: load } ] }
        next: { from: load.values, chain: [ { filter: event < 5000 }, { execute: load } ] }
      commands:
        load: { \(parameters), run: { from: { values: [1] }, chain: [ { map: outer + event } ] } }
      sinks: { out: { from: load.values, chain: [ count ], probe: {} }, state: { from: load.executing, chain: [ count ], probe: {} } }
      """
    let clicks = ScriptedSource(SignalHistory(try Marbles("0|")).script)
    let result = try PipelineRun(yaml, sources: ["clicks": clicks])
    #expect(result.out.entries.first?.moment == .next(.int(5000)), "\(result.out)")
    #expect(result.sinks["state"]?.entries.first?.moment == .next(.int(3)))
    #expect(result.outcome == .completed)
  }

  @Test func aPipelineMayHaveNothingButACommand() throws {
    let yaml = """
      sources: { clicks: { values: [1, 2, 3] } }
      signals: { results: { from: clicks, chain: [ { execute: work } ] } }
      commands: { work: { run: { from: { marbles: '-x|' } }, whenBusy: queue } }
      """
    let result = try PipelineRun(yaml, sources: [:])
    #expect(result.outcome == .completed)
    #expect(result.counters.rejected == 0)
  }

  @Test(arguments: [
    ("from: work", "is a command, which has several outputs"),
    ("from: work.excuting", "Did you mean 'executing'?"),
    ("{ from: clicks, chain: [ { execute: wrk } ] }", "Did you mean 'work'?"),
    ("{ from: clicks, chain: [ { execute: clicks } ] }", "there is no command 'clicks'"),
  ])
  func mistakes(_ signal: String, _ message: String) throws {
    let yaml = """
      sources: { clicks: { scripted: {} } }
      signals: { results: \(signal.hasPrefix("{") ? signal : "{ \(signal) }") }
      commands: { work: { run: { from: clicks } } }
      sinks: { out: { from: results, probe: {} } }
      """
    do {
      _ = try PipelineRun.compile(yaml)
      Issue.record("it compiles")
    } catch {
      #expect("\(error)".contains(message), "\(error)")
    }
  }

  /// One mistake gives one message: an executor of a command with errors is not told that the command does not exist.
  @Test(arguments: ["{ rn: { from: clicks } }", "[ run ]", "{ run: { from: clicks, chian: [ count ] } }", "{}"])
  func anIncorrectCommandIsNotMissing(_ command: String) throws {
    let yaml = """
      sources: { clicks: { scripted: {} } }
      signals:
        results: { from: clicks, chain: [ { execute: work } ] }
        more: { from: work.values }
      commands: { work: \(command) }
      sinks: { out: { from: results, probe: {} }, other: { from: more, probe: {} } }
      """
    do {
      _ = try PipelineRun.compile(yaml)
      Issue.record("it compiles")
    } catch {
      #expect(!"\(error)".contains("there is no"), "\(error)")
    }
  }

  @Test func aCommandCannotExecuteItself() throws {
    let yaml = """
      sources: { clicks: { scripted: {} } }
      signals: { again: { from: clicks, chain: [ { execute: work } ] } }
      commands: { work: { run: { from: again } } }
      sinks: { out: { from: again, probe: {} } }
      """
    #expect(throws: PipelineRun.CompileFailure.self) { try PipelineRun.compile(yaml) }
    let inner = """
      sources: { clicks: { scripted: {} } }
      signals: { again: { from: clicks, chain: [ { execute: work } ] } }
      commands: { work: { run: { from: { values: [1] }, chain: [ { execute: work } ] } } }
      sinks: { out: { from: again, probe: {} } }
      """
    #expect(throws: PipelineRun.CompileFailure.self) { try PipelineRun.compile(inner) }
  }
}
