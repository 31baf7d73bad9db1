import Measuring

/// Measures the operators over integers against their limits.
@MainActor func measureOperators() {
  /// `measure --only TEXT` runs those whose names begin with it, for a profiler.
  let arguments = CommandLine.arguments
  let only = arguments.firstIndex(of: "--only").flatMap { arguments.dropFirst($0 + 1).first }
  func run(_ name: String, _ run: OperatorRun?, bar: Double? = nil, turns: Int = 200) {
    if let only, !name.hasPrefix(only) { return }
    guard let run else { fatalError("\(name) does not compile") }
    row(name, run.samples(turns: turns), bar: bar)
    let figures = run.run(turns: 20)
    if figures.allocations >= 0.001 { print("    \(number(figures.allocations)) allocations each") }
  }
  print("\noperators over integers, for each event: min/median/max of 7 runs")
  let map = "{ map: event + 1 }"
  let filter = "{ filter: event % 2 == 0 }"
  let distinct = "distinctUntilChanged"
  let scan = "{ scan: { start: 0, next: running + event } }"
  run("nothing", OperatorRun("sources: { result: { numbers: {} } }"))
  run("map", OperatorRun(chain: "[ \(map) ]"))
  run("filter", OperatorRun(chain: "[ \(filter) ]"))
  run("scan", OperatorRun(chain: "[ \(scan) ]"))
  run("distinctUntilChanged", OperatorRun(chain: "[ \(distinct) ]"))
  run(
    "map, filter, scan, distinctUntilChanged", OperatorRun(chain: "[ \(map), \(filter), \(scan), \(distinct) ]"),
    bar: 60)
  run(
    "combineLatest of two",
    OperatorRun("sources: { a: { numbers: {} }, b: { numbers: {} } }\nsignals: { result: { combineLatest: [a, b] } }"),
    bar: 60)
  run("flattenMap, a list of one", OperatorRun(chain: "[ { flattenMap: \"[event]\" } ]"))
  run("flattenMap, an inner signal of one", OperatorRun(chain: "[ { flattenMap: { signal: { one: {} } } } ]"), bar: 150)
  run(
    "flattenMap, an inner signal of one with a map",
    OperatorRun(chain: "[ { flattenMap: { signal: { one: {}, chain: [ { map: outer + event } ] } } } ]"))
  print("groupBy with a scan in each group; flat is the bar")
  for groups in [10, 100, 1000, 10_000] {
    run(
      "groups: \(groups)",
      OperatorRun(chain: "[ { groupBy: { key: event % \(groups), chain: [ \(scan) ] } } ]"),
      // Enough events that creating the groups is less than a hundredth of the work.
      turns: 2000)
  }
  if let only, !"timers".hasPrefix(only) { return }
  print("timers, all pending at once: nanoseconds to set, to cancel, to fire each")
  for count in [1000, 10_000, 100_000, 1_000_000] {
    let runs = (0..<3).map { _ in TimerRun().run(count) }
    let best = (runs.map(\.set).min() ?? 0, runs.map(\.cancel).min() ?? 0, runs.map(\.fire).min() ?? 0)
    print("    \(count) timers: \(number(best.0)) / \(number(best.1)) / \(number(best.2))")
  }
}
