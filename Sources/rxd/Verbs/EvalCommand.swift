import ArgumentParser
import Glibc
import PipelineCore
import PipelineRuntime
import Transport

/// `rxd eval`: one expression over events, or a session.
struct Eval: ParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "eval",
    abstract: "Evaluates an expression for each event of standard input.",
    discussion: """
      The input is a JSON document a line, or with --text any lines. Each result is printed as JSON on a line of its \
      own. An event for which the expression fails is reported, the others are still evaluated, and the exit status \
      is 1.

        echo '{"status": 503}' | rxd eval 'event.status >= 500'

      On a terminal and without an expression it starts a session with history and with completion of functions and \
      fields: 'rxd eval --input events.ndjson'.
      """)

  @Argument(help: "The expression; it can use event, meta, now and env.")
  var expression: String?

  @Flag(name: [.customShort("n"), .long], help: "Read nothing and evaluate once.")
  var noInput = false

  @Option(
    name: .shortAndLong, help: ArgumentHelp("Read events from a file.", valueName: "file"), completion: .file())
  var input: String?

  @Option(
    help: ArgumentHelp("The expression can call the functions of a pipeline file.", valueName: "file"),
    completion: .file())
  var functions: String?

  @Flag(help: "Events are lines of text.")
  var text = false

  @Flag(help: "Print the type of the expression instead of evaluating it.")
  var type = false

  @Flag(help: "Print the fields that the expression reads and its program instead of evaluating it.")
  var explain = false

  @Flag(name: .shortAndLong, help: "Print texts as they are, without quotes.")
  var raw = false

  @Flag(help: "Neither read nor write the input history.")
  var noHistory = false

  @OptionGroup var color: ColorOptions

  func validate() throws {
    if noInput, input != nil { throw ValidationError("--no-input and --input exclude each other.") }
    if expression == nil, noInput || type || explain { throw ValidationError("Name an expression.") }
  }

  func run() throws {
    var renderer = DiagnosticRenderer()
    renderer.colors = Console.colors(try color.mode(), on: 2)
    let functions = try functions.map { try Self.functions(of: $0, renderer) } ?? .none
    guard let expression else {
      guard isatty(0) == 1, isatty(1) == 1 else {
        throw ValidationError("Name an expression; without one, input and output must be a terminal.")
      }
      let session = EvalSession(renderer, isText: text, isRaw: raw, keepsHistory: !noHistory, functions: functions)
      if let input { try session.load(input) }
      session.run()
      return
    }
    var diagnostics = Diagnostics()
    let checked = Evaluation.check(
      expression, event: noInput ? .null : text ? .string : .dyn, functions: functions, into: &diagnostics)
    if !diagnostics.all.isEmpty { Console.note(String(renderer.text(diagnostics.all).dropLast())) }
    guard let checked else { throw ExitStatus.configuration }
    if type {
      Console.print("\(checked.type)")
      return
    }
    if explain {
      Console.print(EvalExplanation.text(checked), terminator: "")
      return
    }
    let evaluation = Evaluation(checked, renderer, isText: text, isRaw: raw)
    // On a terminal, do not wait for input that the expression does not read.
    let isTerminal = input == nil && isatty(0) == 1
    if noInput || isTerminal && !checked.reads.contains(where: { $0.variable == "event" }) {
      evaluation.evaluate(.null, line: nil)
    } else {
      if isTerminal {
        Console.note("Type events, \(text ? "a text" : "a JSON document") a line; control-D ends.")
      }
      try evaluation.readLines(of: try Self.open(input))
    }
    evaluation.flush()
    evaluation.reportRest()
    if evaluation.failures > 0 { throw ExitStatus.failure }
  }

  private static func functions(of path: String, _ renderer: DiagnosticRenderer) throws -> UserFunctions {
    let loaded = PipelineLoader().load(path)
    var diagnostics = Diagnostics()
    let functions = loaded.compiled.functions(into: &diagnostics)
    if !diagnostics.all.isEmpty { Console.note(String(renderer.text(diagnostics.all).dropLast())) }
    if loaded.isUnreadable { throw ExitStatus.noInput }
    if diagnostics.hasErrors { throw ExitStatus.configuration }
    return functions
  }

  /// The file, or standard input.
  static func open(_ path: String?) throws -> FileDescriptor {
    guard let path else { return .standardInput }
    let number = Glibc.open(path, O_RDONLY | O_CLOEXEC)
    guard number >= 0 else {
      Console.printError("\(Printable.quote(path)) cannot be read: \(String(cString: strerror(errno)))")
      throw ExitStatus.noInput
    }
    return FileDescriptor(number, name: path)
  }
}

/// The parts of an expression, in words.
enum EvalExplanation {
  static func text(_ checked: CheckedExpression) -> String {
    let projection = Projection()
    let program = checked.compile(projection: projection)
    var text = "type: \(checked.type)\n"
    text += "may fail: \(checked.canFail ? "yes" : "no")\n"
    if !checked.reads.isEmpty {
      var seen: Set<String> = []
      let rows = checked.reads.filter { seen.insert($0.path).inserted }.map { first in
        // If a field is read several times, one read may be guarded and another may fail.
        let read = checked.reads.first { $0.path == first.path && $0.canBeMissing } ?? first
        let fails =
          read.neededPath == read.path ? "fails where it is missing" : "fails where \(read.neededPath) is missing"
        return [read.path, read.canBeMissing ? fails : read.isGuarded ? "may be missing" : ""]
      }
      text += "reads:\n" + columns(rows)
    }
    if projection.slotCount > 0 {
      text += "slots, filled in one pass over the event:\n"
      text += columns(
        projection.slotPaths.map { ["\($0.slot)", $0.path, $0.isPresenceOnly ? "only whether it is there" : ""] })
    }
    text += "program:\n"
    text += columns(program.listing().map { ["\($0.number)", $0.text, $0.source] })
    return text
  }

  private static func columns(_ rows: [[String]]) -> String {
    let count = rows.first?.count ?? 0
    let widths = (0..<count).map { column in rows.map { $0[column].unicodeScalars.count }.max() ?? 0 }
    return rows.map { row in
      var line = " "
      for (column, cell) in row.enumerated() where !row[column...].allSatisfy(\.isEmpty) {
        line += " " + cell
        if column + 1 < count, !row[(column + 1)...].allSatisfy(\.isEmpty) {
          line += String(repeating: " ", count: widths[column] - cell.unicodeScalars.count + 1)
        }
      }
      return line + "\n"
    }.joined()
  }
}
