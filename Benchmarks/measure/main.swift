// Times expressions and counts their allocations, retains and releases: `measure` prints a table, `measure --count`
// only the counts. Fails if code that should do none of these does.
import Glibc
import Measuring

var failures = 0

/// `references`: the number of retains and releases that is known and allowed.
@MainActor func count(_ name: String, _ counts: Counts, references: Int = 0) {
  let fine = counts.allocations == 0 && counts.references <= references
  if !fine { failures += 1 }
  let counted = Counts.countsReferences ? "\(counts.references)" : "uncounted"
  let known = references > 0 ? ", \(references) are known of" : ""
  print("\(fine ? "ok  " : "FAIL") \(name): \(counts.allocations) allocations, \(counted) retains and releases\(known)")
}

func loop(_ expression: String, _ event: String = Workloads.event) -> ExpressionLoop {
  guard let loop = ExpressionLoop(expression, event) else { fatalError("\(expression) does not work") }
  return loop
}

func chain(_ text: String) -> ChainRun {
  guard let chain = ChainRun(text) else { fatalError("\(text) does not compile") }
  return chain
}

if CommandLine.arguments.contains("--only") {
  measureOperators()
  exit(0)
}

/// Compares expressions with functions to the same without, alternating: the ratio of each pair, over slots and with
/// the scan.
func measureFunctions() {
  print("call and written out, ns (medians of 41 pairs), and min/median/max of the ratios")
  for (name, call, written) in Workloads.calls {
    guard let one = ExpressionLoop(call, Workloads.event, functions: Workloads.functions) else {
      fatalError("\(call) does not work")
    }
    let other = loop(written)
    for (how, scans, count) in [("over slots", false, 100_000), ("over JSON", true, 20_000)] {
      func time(_ loop: ExpressionLoop) -> Double {
        Stopwatch.samples(1, count) {
          if scans { loop.fill() }
          _ = loop.condition()
        }[0]
      }
      let pairs = (0..<41).map { _ in (time(one), time(other)) }
      func median(_ all: [Double]) -> Double { all.sorted()[all.count / 2] }
      let ratios = pairs.map { $0.0 / $0.1 }.sorted()
      func hundredths(_ value: Double) -> String { "\((value * 100).rounded() / 100)" }
      print(
        "\(name), \(how): \(number(median(pairs.map(\.0)))) and \(number(median(pairs.map(\.1)))), "
          + [ratios[0], median(ratios), ratios[ratios.count - 1]].map(hundredths).joined(separator: "/"))
    }
  }
}

if CommandLine.arguments.contains("--functions") {
  measureFunctions()
  exit(0)
}

let two = loop(Workloads.twoTerms)
let six = loop(Workloads.sixTerms)
let four = loop(Workloads.fourFields)
let pattern = loop(#"event.agent.matches('^curl/[0-9]+\\.[0-9]+')"#)

/// An object for the control, which allocates one and retains it in each round.
final class Kept {}
var kept: [Kept] = []
let control = ExpressionLoop.counts(100) {
  kept.append(Kept())
  kept.append(contentsOf: kept.suffix(1))
}
if control.allocations < 100 || Counts.countsReferences && control.references < 100 {
  failures += 1
  print("FAIL the counters do not count: \(control)")
}

// Few enough that everything a turn makes fits into the first block of its memory.
let batch = 16
print("counted over 1,000 evaluations, or \(batch) events of a chain")
count("two terms over slots", ExpressionLoop.counts { _ = two.condition() })
count("six terms over slots", ExpressionLoop.counts { _ = six.condition() })
count(
  "two terms over JSON",
  ExpressionLoop.counts {
    two.fill()
    _ = two.condition()
  })
count("matches over slots", ExpressionLoop.counts { _ = pattern.condition() })
count(
  "an object of four fields over JSON",
  ExpressionLoop.counts {
    four.fill()
    four.value()
  })
for row in Workloads.chains {
  count(
    row.name, chain(row.text).countsPerBatch(Workloads.events, count: batch), references: batch * row.references)
}
for row in Workloads.integerChains {
  guard let run = OperatorRun(chain: row.text) else { fatalError("\(row.text) does not compile") }
  count("\(row.name), integers", run.countsPerTurn(batch), references: batch * row.references)
}
if CommandLine.arguments.contains("--count") { exit(failures == 0 ? 0 : 1) }

func number(_ value: Double) -> String {
  let tenths = (value * 10).rounded() / 10
  return value >= 100 ? "\(Int(value.rounded()))" : "\(tenths)"
}

func row(_ name: String, _ samples: [Double], bar: Double? = nil, unit: String = "ns") {
  let figures = [samples.first, samples[samples.count / 2], samples.last].map { number($0 ?? 0) }.joined(separator: "/")
  let pad = String(repeating: " ", count: max(1, 52 - name.utf8.count))
  print("\(name)\(pad)\(figures) \(unit)" + (bar.map { ", bar \(number($0))" } ?? ""))
  fflush(nil)
}

print("\nmin/median/max of 21 samples; the event has \(Workloads.event.utf8.count) bytes")
row("two terms over slots", Stopwatch.samples(21, 200_000) { _ = two.condition() }, bar: 20)
row("six terms over slots", Stopwatch.samples(21, 200_000) { _ = six.condition() }, bar: 60)
row(
  "two terms over JSON, scan included",
  Stopwatch.samples(21, 50_000) {
    two.fill()
    _ = two.condition()
  }, bar: 250)
row("scan of four fields", Stopwatch.samples(21, 50_000) { four.fill() })
row("an object of four fields, beyond the scan", Stopwatch.samples(21, 200_000) { four.value() }, bar: 150)
row("matches, constant pattern, 11 bytes", Stopwatch.samples(21, 50_000) { _ = pattern.condition() })
func timed(_ chain: ChainRun) -> [Double] {
  (0..<11).map { _ in chain.run([Workloads.event], count: 256, turns: 200).nanoseconds }.sorted()
}
row("an event through a graph: filter", timed(chain(Workloads.filterChain)))
row("an event through a graph: map to four fields", timed(chain(Workloads.mapChain)))
row("an event through a graph: filter, map, scan", timed(chain(Workloads.longChain)))

measureOperators()

print("\nlinear in the input: nanoseconds for each byte or element, at 1,000, 10,000 and 100,000")
func growth(_ name: String, _ make: (Int) -> ExpressionLoop) {
  var figures: [String] = []
  for size in [1_000, 10_000, 100_000] {
    let loop = make(size)
    loop.fill()
    figures.append(number(Stopwatch.samples(5, 2_000_000 / size) { loop.value() }[2] / Double(size)))
  }
  print(name + String(repeating: " ", count: max(1, 52 - name.utf8.count)) + figures.joined(separator: "/"))
}

func numbers(_ count: Int) -> String { "{\"l\": [" + (0..<count).map { "\($0)" }.joined(separator: ", ") + "]}" }

growth("matches '(a+)+$' on aaa...b") {
  loop("event.s.matches('(a+)+$')", "{\"s\": \"\(String(repeating: "a", count: $0))b\"}")
}
growth("matches '(x+x+)+y' on xxx...") {
  loop("event.s.matches('(x+x+)+y')", "{\"s\": \"\(String(repeating: "x", count: $0))\"}")
}
growth("map") { loop("event.l.map(x, x + 1)", numbers($0)) }
growth("filter") { loop("event.l.filter(x, x % 2 == 0)", numbers($0)) }
growth("a string of all elements") { loop("event.l.map(x, string(x)).join(',')", numbers($0)) }
growth("exists, nothing found") { loop("event.l.exists(x, x < 0)", numbers($0)) }
exit(failures == 0 ? 0 : 1)
