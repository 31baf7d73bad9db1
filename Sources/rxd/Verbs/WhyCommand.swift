import ArgumentParser
import PipelineCore
import Transport

/// `rxd why`: which events did not pass, and why.
struct WhyVerb: ParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "why",
    abstract: "Says why events of a running pipeline did not pass.",
    discussion: """
      A running pipeline keeps some of the events that do not pass a step: dropped by a condition, superseded by newer \
      ones, rejected, late, over a limit. Of each step and verdict these are the newest, and a sample of older ones; of \
      few events that is all of them. The answer has the event, the expression with the values that it saw, the line \
      of the file, and the way that the event had come. Secrets are masked. It goes on over a reload.

      A step is named as in rxd top (books/filter), by its signal or sink (books), or by a line of the file (14, \
      search.yaml:14); * stands for any text.
      """)

  enum Format: String, CaseIterable, ExpressibleByArgument { case text, json }

  @Argument(help: "The pipeline's name; * stands for any text, and is the default.")
  var pipeline = "*"

  @Argument(help: "Names or lines of steps.")
  var steps: [String] = []

  @Option(
    help: ArgumentHelp(
      "The event of this name (meta.id), at this location (FILE:OFFSET), or with this value of the field 'id'.",
      valueName: "id"))
  var id: String?

  @Option(
    name: .customLong("where"),
    help: ArgumentHelp("Only events that fulfil this condition, in CEL: event, meta, now.", valueName: "condition"))
  var condition: String?

  @Option(
    help: ArgumentHelp("Only this verdict: dropped, superseded, undecided, rejected or failed.", valueName: "verdict"))
  var verdict: [String] = []

  @Option(help: ArgumentHelp("The earliest time: an age (10m), or a time (2026-01-31T12:00:00Z).", valueName: "time"))
  var since: String?

  @Option(help: ArgumentHelp("Not after, in the same forms.", valueName: "time"))
  var until: String?

  @Option(help: ArgumentHelp("How many events are shown, the newest; default is 10.", valueName: "count"))
  var limit: Int?

  @Option(help: ArgumentHelp("How much of an event is shown; default is 2KiB.", valueName: "size"))
  var bytes: ByteSize?

  @Option(help: ArgumentHelp("text, or json for a line for each event.", valueName: "form"))
  var format = Format.text

  @OptionGroup var control: ControlOptions
  @OptionGroup var color: ColorOptions

  func validate() throws {
    if let limit, !(1...1000).contains(limit) { throw ValidationError("--limit is a number from 1 to 1000.") }
    if let bytes, !(1...(16 << 10)).contains(bytes.bytes) { throw ValidationError("--bytes is at most 16KiB.") }
  }

  func run() throws {
    var query = [("pipeline", pipeline)] + steps.map { ("step", $0) } + verdict.map { ("verdict", $0) }
    for (name, value) in [("id", id), ("where", condition), ("since", since), ("until", until)] {
      if let value { query.append((name, value)) }
    }
    if let limit { query.append(("limit", String(limit))) }
    if let bytes { query.append(("bytes", String(bytes.bytes))) }
    query.append(("format", format == .json ? "ndjson" : "text"))
    query.append(("colors", String(Console.colors(try color.mode(), on: format == .json ? 2 : 1))))
    let client = try control.client()
    do throws(ControlClient.Failure) {
      let answer = try client.ask("GET", "/why?" + ControlClient.query(query), within: .seconds(60))
      guard answer.status == 200 else { answer.refuse(asked: pipeline, steps.first ?? "") }
      Console.write(answer.body)
    } catch {
      Console.printError(error.message)
      throw error.isLate ? ExitStatus.temporary : ExitStatus.unavailable
    }
  }
}
