import ArgumentParser
import Glibc
import PipelineCore
import Transport

/// `rxd tap`: shows events of a running pipeline.
struct TapVerb: ParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "tap",
    abstract: "Shows events that pass an edge of a running pipeline.",
    discussion: """
      An edge is named after the signal that it makes up (books), the errors that it carries (books.errors), the step or \
      sink that it leads to (books/filter, screen), both its ends ('books -> screen'), or a line of the file \
      (14, search.yaml:14). * stands for any text. Without an edge, the edges of the pipeline are listed.

      Each event is a line of JSON, with what the step did with it: passed, kept, dropped, superseded, undecided, \
      rejected, failed. Secrets are masked. A tap goes on over a reload. It never slows the pipeline down for its reader: \
      events that the reader does not take in time, or beyond 1,000 a second, are left out and counted.
      """)

  @Argument(help: "The pipeline's name; * stands for any text.")
  var pipeline: String

  @Argument(help: "Names, ends or lines of edges.")
  var edges: [String] = []

  @Option(
    name: .customLong("where"),
    help: ArgumentHelp("Show only events that fulfil this condition, in CEL: event, meta, now.", valueName: "condition")
  )
  var condition: String?

  @Option(help: ArgumentHelp("Show one of this many events.", valueName: "count"))
  var sample: Int?

  @Option(help: ArgumentHelp("End after this many events.", valueName: "count"))
  var limit: Int?

  @Option(help: ArgumentHelp("How much of an event is shown; default is 2KiB.", valueName: "size"))
  var bytes: ByteSize?

  @Flag(help: "Draw lanes of marbles, in the notation of the tests.")
  var marbles = false

  @Option(help: ArgumentHelp("The time of one character of marbles; default is 20ms.", valueName: "span"))
  var tick: Span?

  @OptionGroup var control: ControlOptions
  @OptionGroup var color: ColorOptions

  /// A time span with its unit.
  struct Span: ExpressibleByArgument {
    var span: TimeSpan

    init?(argument: String) {
      guard case .success(let span) = Units.duration(LocatedText(argument)), span > .zero else { return nil }
      self.span = span
    }
  }

  func validate() throws {
    for (name, number) in [("--sample", sample), ("--limit", limit)] where number.map({ $0 < 1 }) == true {
      throw ValidationError("\(name) is a number from 1.")
    }
    if let bytes, !(1...(1 << 20)).contains(bytes.bytes) { throw ValidationError("--bytes is at most 1MiB.") }
  }

  func run() throws {
    var query = [("pipeline", pipeline)] + edges.map { ("edge", $0) }
    if let condition { query.append(("where", condition)) }
    if let sample { query.append(("sample", String(sample))) }
    if let limit { query.append(("limit", String(limit))) }
    if let bytes { query.append(("bytes", String(bytes.bytes))) }
    query.append(("colors", String(Console.colors(try color.mode(), on: 2))))
    let target = "/tap?" + ControlClient.query(query)
    let client = try control.client()
    do throws(ControlClient.Failure) {
      if edges.isEmpty {
        let answer = try client.ask("GET", target, within: .seconds(60))
        guard answer.status == 200, let document = JSONView(answer.body) else { refuse(answer) }
        Console.print(Self.list(document), terminator: "")
        return
      }
      var output = TapOutput(
        marbles ? TapMarbles(tick: tick?.span ?? .milliseconds(20), columns: Console.columns) : nil)
      let answer = try client.stream(target, idle: marbles ? output.patience : nil) { output.take($0) }
      output.flush()
      guard answer.status == 200 else { refuse(answer) }
      if let report = output.report { Console.printError(report) }
      if !output.isDone { throw ControlClient.Failure(message: "the process at \(client.path) has ended") }
    } catch {
      Console.printError(error.message)
      throw error.isLate ? ExitStatus.temporary : ExitStatus.unavailable
    }
  }

  private func refuse(_ answer: ControlClient.Answer) -> Never {
    answer.refuse(asked: pipeline, edges.first ?? "")
  }

  private static func list(_ document: JSONView) -> String {
    var text = ""
    for pipeline in document["pipelines"]?.items ?? [] {
      text += "\(pipeline["name"]?.text ?? "")\n"
      let edges = pipeline["edges"]?.items ?? []
      let width = min(30, edges.map { $0["name"]?.text?.unicodeScalars.count ?? 0 }.max() ?? 0)
      for edge in edges {
        let name = edge["name"]?.text ?? ""
        let pad = String(repeating: " ", count: max(0, width - name.unicodeScalars.count))
        text +=
          "  \(name)\(pad)  \(edge["from"]?.text ?? "") -> \(edge["to"]?.text ?? "")  \(edge["events"]?.int ?? 0) events\n"
      }
    }
    return text
  }
}

/// Prints the lines of a tap.
private struct TapOutput {
  private var marbles: TapMarbles?
  private var rest: [UInt8] = []
  /// Whether the answer is complete.
  private(set) var isDone = false
  private(set) var report: String?

  init(_ marbles: TapMarbles?) { self.marbles = marbles }

  /// How long to wait for further events before a picture is drawn.
  var patience: TimeSpan? { marbles?.span }

  /// Takes bytes of the answer; an empty slice: no bytes have arrived for a while.
  mutating func take(_ bytes: ArraySlice<UInt8>) {
    if bytes.isEmpty { return flush() }
    rest += bytes
    guard let end = rest.lastIndex(of: 0x0A) else { return }
    let lines = rest[...end]
    var shown: [UInt8] = []
    for line in lines.split(separator: 0x0A) {
      if line.starts(with: Array(#"{"done""#.utf8)) {
        note(Array(line))
      } else if marbles == nil {
        shown += line + [0x0A]
      } else if let document = JSONView(Array(line)), let picture = marbles?.take(document) {
        shown += picture.utf8
      }
    }
    rest.removeSubrange(...end)
    if !shown.isEmpty { Console.write(shown) }
  }

  mutating func flush() {
    guard let picture = marbles?.finish(), !picture.isEmpty else { return }
    Console.write(Array(picture.utf8))
  }

  private mutating func note(_ line: [UInt8]) {
    guard let counts = JSONView(line)?["done"] else { return }
    isDone = counts["ending"]?.bool != true
    guard let missed = counts["missed"]?.int,
      let undecided = counts["undecided"]?.int
    else { return }
    var parts: [String] = []
    if missed > 0 { parts.append("\(Printable.count(missed, "event")) came too fast to be shown") }
    if undecided > 0 { parts.append("the condition failed for \(Printable.count(undecided, "event"))") }
    report = parts.isEmpty ? nil : parts.joined(separator: "; ")
  }
}
