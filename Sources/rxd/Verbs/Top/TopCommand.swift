import ArgumentParser
import Glibc
import PipelineCore
import PipelineRuntime
import Transport

/// `rxd top`: a continuous view of a running process.
struct TopVerb: ParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "top",
    abstract: "Shows the work of the steps of running pipelines, live.",
    discussion: """
      Above the table stand sentences, the worst first: what holds a pipeline back, what failed, what left out nearly \
      everything in the last minute. IN/S and OUT/S are events a second, DROP/S those that the step left out, ERR/S those \
      that it failed for; HELD its held or queued events, BUSY its share of a core, estimated. A window of 100 columns or more also \
      shows KEYS, which the step remembers, and KEEPS, the bytes of its keys, events and values.

      On a terminal: q ends, s changes the order, / filters by name (Return ends, an empty name shows all), space \
      pauses, the arrows, Page Up, Page Down, Home and End scroll. Elsewhere a table follows the other, without escapes.
      """)

  enum Format: String, CaseIterable, ExpressibleByArgument { case text, json }

  @Flag(help: "Print once, after one interval, and end.")
  var once = false

  @Option(help: ArgumentHelp("The format of --once: text or json.", valueName: "form"))
  var format = Format.text

  @Option(help: ArgumentHelp("The time between two readings; default is 1s.", valueName: "span"))
  var interval: TapVerb.Span?

  @Option(
    help: ArgumentHelp("The order: file, name, in, out, dropped, errors, held, keys, kept or busy.", valueName: "order")
  )
  var sort = TopTable.Order.file

  @Option(help: ArgumentHelp("Show only steps whose pipeline or name contains this.", valueName: "text"))
  var filter = ""

  @OptionGroup var control: ControlOptions
  @OptionGroup var color: ColorOptions

  func validate() throws {
    if format == .json, !once { throw ValidationError("--format json needs --once.") }
    if let interval, interval.span < .milliseconds(100) { throw ValidationError("--interval is at least 100ms.") }
  }

  func run() throws {
    let client = try control.client()
    var table = TopTable()
    table.order = sort
    table.filter = filter
    do throws(ControlClient.Failure) {
      if once {
        let before = try Self.read(client)
        TopScreen.wait(until: SystemClock.shared.now + (interval?.span ?? .seconds(1)))
        let rates = LiveRates(from: before, to: try Self.read(client))
        if format == .json { return Console.print(Self.document(rates, filter)) }
        table.columns = isatty(1) == 1 ? Console.columns : 80
        table.colors = Console.colors((try? color.mode()) ?? .auto, on: 1)
        return Console.print(table.text(rates, longer: rates, history: [:]), terminator: "")
      }
      let screen = try TopScreen(
        client, table, interval: interval?.span ?? .seconds(1), color: (try? color.mode()) ?? .auto)
      try screen.run()
    } catch {
      Console.printError(error.message)
      throw error.isLate ? ExitStatus.temporary : ExitStatus.unavailable
    }
  }

  static func read(_ client: ControlClient) throws(ControlClient.Failure) -> LiveStatistics {
    let answer = try client.ask("GET", "/stats", within: .seconds(10))
    guard answer.status == 200, let document = JSONView(answer.body), let statistics = LiveStatistics(document) else {
      throw ControlClient.Failure(message: "the process at \(client.path) gives no counts (status \(answer.status))")
    }
    return statistics
  }

  /// The rates as JSON, rounded to whole numbers.
  private static func document(_ rates: LiveRates, _ filter: String) -> String {
    func number(_ rate: Double) -> JSONText { .int(Int(clamping: Int64(min(rate, 1e15).rounded()))) }
    let rows: [JSONText] = rates.rows.filter { filter.isEmpty || $0.name.contains(filter) }.map { row in
      var members: [(String, JSONText)] = [
        ("pipeline", .string(row.pipeline)), ("id", .string(row.step.id)), ("kind", .string(row.step.kind)),
        ("at", .string(row.step.location)), ("in_per_second", number(row.received)),
        ("out_per_second", number(row.sent)),
        ("dropped_per_second", number(row.dropped)), ("errors_per_second", number(row.errors)),
        ("in", .int(row.step.received)), ("out", .int(row.step.sent)), ("dropped", .int(row.step.dropped)),
        ("errors", .int(row.step.errors + row.step.diverted)), ("holding", .int(row.step.holding)),
        ("queued", .int(row.step.outbox?.events ?? row.step.queue?.events ?? 0)),
        ("busy_percent", number(row.busy * 100)), ("paused_percent", number(row.paused * 100)),
        ("waited_percent", number(row.waited * 100)), ("pauses_input", .bool(row.step.pausesInput)),
      ]
      if let keys = row.step.keys { members.append(("keys", .int(keys))) }
      if let bytes = row.step.keptBytes { members.append(("kept_bytes", .int(bytes))) }
      if let latency = row.latency {
        for (name, share) in [("p50", 0.5), ("p99", 0.99)] {
          members.append(("latency_\(name)_milliseconds", number(Double(latency.bound(of: share) ?? 0) / 1e6)))
        }
      }
      if let age = row.step.lagAge { members.append(("lag_milliseconds", .int(age / 1_000_000))) }
      if let plugin = row.step.plugin { members.append(("plugin", plugin)) }
      return .object(members)
    }
    return JSONText.object([
      ("at", .string(rates.now.at)), ("milliseconds", .int(Int((rates.seconds * 1000).rounded()))),
      ("sentences", .array(LiveRanking(rates).sentences.map(JSONText.string))), ("steps", .array(rows)),
    ]).text
  }
}
