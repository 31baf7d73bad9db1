import Foundation
import PipelineCore
import PipelineHost
import PluginHost
import Testing

/// All instances of a step are in one process of the plugin's program.
@Suite(.serialized, .timeLimit(.minutes(5))) struct SharedProgramTests {
  private static let stateful =
    #"[{"kind": "operator", "name": "work", "summary": "Works.", "state": {"version": 1}}]"#

  /// Sums up the numbers of each instance; answers with the process id, the sum and the number.
  private func summing(_ name: String, before: String = "") throws -> String {
    try PluginFixtures.program(
      name, components: Self.stateful,
      """
      elif 'event' in f:
      \(before.split(separator: "\n").map { "    " + $0 }.joined(separator: "\n"))
          states[f['to']] = (states.get(f['to']) or 0) + f['event']
          say({"id": f['id'], "events": [[os.getpid(), states[f['to']], f['event']]]})
      elif 'save' in f: say({"id": f['id'], "state": states.get(f['to'])})
      elif 'id' in f: say({"id": f['id']})
      """)
  }

  private func grouped(_ path: String, keys: Int, values: String, restoring state: [UInt8]? = nil) throws
    -> VirtualPipeline
  {
    try VirtualPipeline(
      """
      plugins: ['\(path)']
      sources: { in: { values: \(values) } }
      sinks:
        out: { from: in, chain: [ { groupBy: { key: event % \(keys), chain: [ work ] } } ], probe: {} }
        bad: { from: out.errors, chain: [ { map: '[event.event, event.error]' } ], probe: {} }
      """, restoring: state, isMoved: state != nil, plugins: PluginFixtures.plugins)
  }

  private func list(_ numbers: some Sequence<Int>) -> String {
    "[" + numbers.map(String.init).joined(separator: ",") + "]"
  }

  /// The sums of each group; the processes that computed them.
  private func read(_ events: [String], keys: Int) throws -> (sums: [[Int]], processes: Set<Int>) {
    var sums = [[Int]](repeating: [], count: keys)
    var processes: Set<Int> = []
    for event in events {
      let parts = try #require(try JSONSerialization.jsonObject(with: Data(event.utf8)) as? [Int])
      processes.insert(parts[0])
      sums[parts[2] % keys].append(parts[1])
    }
    return (sums, processes)
  }

  private func sums(_ numbers: some Sequence<Int>, keys: Int) -> [[Int]] {
    var all = [[Int]](repeating: [], count: keys)
    for number in numbers { all[number % keys].append((all[number % keys].last ?? 0) + number) }
    return all
  }

  @Test func athousandGroupsAreInOneProcess() throws {
    let path = try summing("groups")
    let pipeline = try grouped(path, keys: 1000, values: list(0..<3000))
    pipeline.run()
    #expect(pipeline.outcome == .completed, "\(pipeline.log)")
    let found = try read(pipeline.probe().events, keys: 1000)
    #expect(found.processes.count == 1)
    #expect(found.sums == sums(0..<3000, keys: 1000))
  }

  /// The program ends with one event each time, and once with another: all groups continue with their states, and one event is given
  /// up.
  @Test func groupsContinueAfterAnEnd() throws {
    let once = PluginFixtures.scratch("ended-once")
    let path = try summing(
      "ends",
      before: """
        if f['event'] == 500: os._exit(3)
        if f['event'] == 777 and not os.path.exists('\(once)'):
            open('\(once)', 'w').close()
            os._exit(4)
        """)
    let pipeline = try grouped(path, keys: 20, values: list(0..<1000))
    pipeline.run()
    #expect(pipeline.outcome == .completed, "\(pipeline.log)")
    let found = try read(pipeline.probe().events, keys: 20)
    #expect(found.sums == sums((0..<1000).filter { $0 != 500 }, keys: 20))
    #expect(pipeline.probe("bad").events.count == 1)
    #expect(
      pipeline.probe("bad").events.first?.hasPrefix("[500,\"the plugin ended three times when it was given the event")
        == true,
      "\(pipeline.probe("bad").events)")
    let plan = pipeline.execution.plan
    let plugin = pipeline.execution.statistics.steps.first { plan.steps[$0.step.number].keyword == "work" }?.plugin
    #expect(plugin?.restarts == 4 && plugin?.poisoned == 1)
    // One line for each end, not one for each group.
    #expect(pipeline.log.count { $0.contains("starting again in") } == 4, "\(pipeline.log)")
  }

  /// Each of two groups has an event that ends the program: these are given up, and nothing else.
  @Test func twoPoisonousEventsInDifferentGroups() throws {
    let path = try summing("two", before: "if f['event'] in (30, 31): os._exit(3)")
    let pipeline = try grouped(path, keys: 10, values: list(0..<100))
    pipeline.run()
    #expect(pipeline.outcome == .completed)
    let found = try read(pipeline.probe().events, keys: 10)
    #expect(found.sums == sums((0..<100).filter { $0 != 30 && $0 != 31 }, keys: 10))
    #expect(pipeline.probe("bad").events.map { String($0.prefix(4)) } == ["[30,", "[31,"])
  }

  @Test func groupsSurviveASuspension() throws {
    let path = try summing("suspended")
    let values = "{ list: \(list(0..<200)), every: 1s }"
    let first = try grouped(path, keys: 50, values: values)
    first.run(until: .seconds(120))
    let early = try read(first.probe().events, keys: 50)
    let second = try grouped(path, keys: 50, values: values, restoring: first.suspend())
    second.run()
    let late = try read(second.probe().events, keys: 50)
    #expect(zip(early.sums, late.sums).map { $0 + $1 } == sums(0..<200, keys: 50))
    #expect(early.processes.count == 1 && late.processes.count == 1 && early.processes != late.processes)
  }

  /// An inner signal replaces another: the process stays.
  @Test func aProcessOutlivesItsInstances() throws {
    let path = try summing("latest")
    let pipeline = try VirtualPipeline(
      """
      plugins: ['\(path)']
      sources: { in: { values: { list: [1, 2, 3], every: 1s } } }
      sinks:
        out: { from: in, chain: [ { switchToLatest: { values: [5, 6], chain: [ work, { delay: 1h } ] } } ], probe: {} }
      """, plugins: PluginFixtures.plugins)
    pipeline.run(until: .seconds(5))
    let plan = pipeline.execution.plan
    let plugin = pipeline.execution.statistics.steps.first { plan.steps[$0.step.number].keyword == "work" }?.plugin
    #expect(plugin?.restarts == 0)
    pipeline.run()
    let found = try read(pipeline.probe().events, keys: 100)
    #expect(found.sums[5] == [5] && found.sums[6] == [11])
    #expect(pipeline.log.isEmpty, "\(pipeline.log)")
  }

  /// A program that reports opening an instance that was not requested breaks the contract.
  @Test func aWrongNumberEndsTheProcess() throws {
    let path = try summing("number")
    let text = try String(contentsOfFile: path, encoding: .utf8)
      .replacingOccurrences(of: #"say({"opened": f['open']})"#, with: #"say({"opened": 7})"#)
    try Data(text.utf8).write(to: URL(fileURLWithPath: path))
    chmod(path, 0o755)
    let pipeline = try grouped(path, keys: 1, values: "[1]")
    pipeline.run(until: .seconds(10))
    #expect(pipeline.log.contains { $0.contains("it has opened 7, which was not requested") }, "\(pipeline.log)")
  }

  @Test func stepsAreLimited() throws {
    let path = try summing("steps")
    let chain = Array(repeating: "work", count: 65).joined(separator: ", ")
    let pipeline = try PluginFixtures.pipeline(path, values: "[1]", chain: "[ \(chain) ]")
    pipeline.run()
    #expect(pipeline.failure?.message == "more than 64 steps would run the plugin at once")
  }
}
