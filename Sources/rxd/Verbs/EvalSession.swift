import CEdit
import Glibc
import PipelineCore
import PipelineRuntime
import Transport

/// `rxd eval` on a terminal: evaluates typed expressions on the current event.
final class EvalSession {
  private let renderer: DiagnosticRenderer
  private let isText: Bool
  private let isRaw: Bool
  private let functions: UserFunctions
  private let historyPath: String?
  /// The current event as text; empty: null.
  private var event: [UInt8] = []
  /// The events of a file, and the index of the current one.
  private var events: [[UInt8]] = []
  private var index = 0
  private var editor: OpaquePointer?
  private static let historyLines: Int32 = 1000

  init(_ renderer: DiagnosticRenderer, isText: Bool, isRaw: Bool, keepsHistory: Bool, functions: UserFunctions) {
    self.functions = functions
    self.renderer = renderer
    self.isText = isText
    self.isRaw = isRaw
    historyPath = keepsHistory ? Self.history() : nil
  }

  /// The history file, by the XDG base directories; nil without a home.
  private static func history() -> String? {
    var state = ProcessEnvironment["XDG_STATE_HOME"] ?? ""
    if !state.hasPrefix("/") {
      guard let home = ProcessEnvironment["HOME"], home.hasPrefix("/") else { return nil }
      state = home + "/.local/state"
    }
    return state + "/rxd/history"
  }

  /// Reads the events of a file; the first becomes the current one.
  func load(_ path: String) throws {
    let file = try Eval.open(path)
    var bytes: [UInt8] = []
    let chunk = UnsafeMutableRawBufferPointer.allocate(byteCount: 256 << 10, alignment: 16)
    defer { chunk.deallocate() }
    do throws(PosixError) {
      while let count = try file.read(into: chunk), count > 0, bytes.count < 256 << 20 { bytes += chunk[..<count] }
    } catch {
      Console.printError(error.message)
      throw ExitStatus.inputOutput
    }
    events = bytes.split(whereSeparator: { $0 == 0x0A }).map { line in
      Array(line.last == 0x0D ? line.dropLast() : line)
    }.filter { line in line.contains { $0 > 0x20 } }
    index = 0
    event = events.first ?? []
  }

  func run() {
    Console.print("\(Version.line): one expression a line; :help for help, control-D ends.")
    if !events.isEmpty {
      Console.print("\(Printable.count(events.count, "event")); 'event' is the first, :next shows the next one.")
    }
    open()
    defer {
      rx_edit_free(editor)
      editor = nil
    }
    while let line = next() {
      let text = line.trimmed
      if text.isEmpty { continue }
      remember(line)
      if text == ":quit" || text == ":q" || text == "exit" || text == "quit" { return }
      execute(text)
    }
    Console.print("")
  }

  // MARK: Lines

  private func open() {
    let complete: rx_complete = { context, line, length, out, capacity in
      guard let context, let line, let out else { return 0 }
      let session = Unmanaged<EvalSession>.fromOpaque(context).takeUnretainedValue()
      let bytes = UnsafeRawBufferPointer(start: line, count: length)
      return session.complete(String(decoding: bytes, as: UTF8.self), out, capacity)
    }
    editor = rx_edit_create("rxd", "> ", complete, Unmanaged.passUnretained(self).toOpaque())
    guard let editor, let historyPath else { return }
    rx_edit_load(editor, historyPath, Self.historyLines)
  }

  /// The next line, or nil at the end of the input. Cancelled lines are skipped.
  private func next() -> String? {
    guard let editor else {
      Console.print("> ", terminator: "")
      return readLine(strippingNewline: true)
    }
    while true {
      var interrupted = false
      guard let line = rx_edit_read(editor, &interrupted) else { return interrupted ? "" : nil }
      if !interrupted { return String(cString: line) }
      Console.print("^C")
    }
  }

  private func remember(_ line: String) {
    guard let editor else { return }
    rx_edit_remember(editor, line)
    guard let historyPath else { return }
    // The history is saved after each line, in case the terminal goes away; failures are ignored.
    var folder = ""
    for part in historyPath.split(separator: "/").dropLast() {
      folder += "/" + part
      mkdir(folder, 0o700)
    }
    rx_edit_save(editor, historyPath)
  }

  // MARK: Commands

  private static let commands: [(name: String, form: String, help: String)] = [
    (":help", ":help", "shows this"),
    (":event", ":event [JSON]", "shows the current event, or sets it; so does 'event = JSON or expression'"),
    (":load", ":load FILE", "reads the events of a file, one a line"),
    (":next", ":next", "moves to the next event of the file"),
    (":type", ":type EXPRESSION", "prints the type"),
    (":explain", ":explain EXPRESSION", "prints the fields that are read, and the program"),
    (":describe", ":describe NAME", "describes a function"), (":quit", ":quit", "ends; so does control-D"),
  ]

  private func execute(_ text: String) {
    guard text.hasPrefix(":") else {
      if let value = Self.assigned(text) { set(value) } else { evaluate(text) }
      return
    }
    let parts = text.split(separator: " ", maxSplits: 1)
    let rest = parts.count > 1 ? String(parts[1]).trimmed : ""
    switch parts[0] {
    case ":help":
      for command in Self.commands {
        Console.print("  \(command.form)\(String(repeating: " ", count: 22 - command.form.utf8.count))\(command.help)")
      }
      Console.print("  All else is an expression; tab completes functions and the fields of the event.")
    case ":event":
      if !rest.isEmpty { set(rest) }
      evaluate("event")
    case ":load":
      do { try load(rest) } catch { return }
      Console.print(Printable.count(events.count, "event"))
    case ":next":
      guard index + 1 < events.count else {
        Console.note(events.isEmpty ? "There are no events; :load FILE reads some." : "That was the last event.")
        return
      }
      index += 1
      event = events[index]
      evaluate("event")
    case ":type": if let checked = check(rest) { Console.print("\(checked.type)") }
    case ":explain": if let checked = check(rest) { Console.print(EvalExplanation.text(checked), terminator: "") }
    case ":describe":
      if let function = FunctionRegistry.described(rest) {
        Console.print(Describe.page(function), terminator: "")
      } else {
        if let own = functions.all.first(where: { $0.name == rest }) {
          Console.print(own.signature + (own.summary.map { "\n\($0)" } ?? ""))
          return
        }
        let names = functions.all.map(\.name) + FunctionRegistry.callable.map(\.name)
        let help = Suggestion.correction(for: rest, among: names)?.help
        Console.note("There is no function \(Printable.quote(rest)). \(help ?? "")")
      }
    default:
      let help = Suggestion.correction(for: String(parts[0]), among: Self.commands.map(\.name))?.help
      Console.note("There is no command \(Printable.quote(String(parts[0]))). \(help ?? ":help shows them.")")
    }
  }

  /// The text after `event =`, if the line is an assignment.
  private static func assigned(_ text: String) -> String? {
    guard text.hasPrefix("event") else { return nil }
    let rest = text.dropFirst(5).drop { $0 == " " }
    guard rest.hasPrefix("="), !rest.hasPrefix("==") else { return nil }
    return String(rest.dropFirst()).trimmed
  }

  /// Sets the event to the text itself if the text is JSON, otherwise to the result of the expression on the current
  /// event.
  private func set(_ text: String) {
    let bytes = Array(text.utf8)
    let isDocument = bytes.withUnsafeBytes { JSONFailure(JSONParser().open($0, checking: .everything)) == nil }
    if isDocument {
      event = bytes
      return
    }
    guard let checked = check(text) else { return }
    let evaluation = Evaluation(checked, renderer, isText: isText, isRaw: false)
    run(evaluation)
    if evaluation.failures == 0 { event = evaluation.takeOutput().dropLast() }
  }

  private func check(_ text: String) -> CheckedExpression? {
    var diagnostics = Diagnostics()
    let checked = Evaluation.check(text, event: isText ? .string : .dyn, functions: functions, into: &diagnostics)
    if !diagnostics.all.isEmpty {
      let lines = renderer.text(diagnostics.all).split(separator: "\n", omittingEmptySubsequences: false)
      Console.note(lines.dropLast(checked == nil ? 3 : 1).joined(separator: "\n"))
    }
    return checked
  }

  private func evaluate(_ text: String) {
    guard let checked = check(text) else { return }
    let evaluation = Evaluation(checked, renderer, isText: isText, isRaw: isRaw)
    evaluation.isPretty = true
    run(evaluation)
    evaluation.flush()
  }

  private func run(_ evaluation: Evaluation) {
    let slab = Slab(event)
    if event.isEmpty { evaluation.evaluate(.null, line: nil) } else { evaluation.event(slab.bytes, nil) }
    withExtendedLifetime(slab) {}
  }

  // MARK: Completion

  private func complete(_ line: String, _ out: UnsafeMutablePointer<CChar>, _ capacity: Int) -> Int32 {
    let (typed, choices) = EvalCompletion.choices(
      line, event: isText ? [] : event, commands: Self.commands.map(\.name), functions: functions.all.map(\.name))
    guard let first = choices.first else { return 0 }
    // The common prefix of all choices.
    var common = Array(first.utf8)
    for choice in choices.dropFirst() {
      let bytes = Array(choice.utf8)
      common = Array(common.prefix(zip(common, bytes).prefix { $0 == $1 }.count))
    }
    while let last = common.last, last & 0xC0 == 0x80, choices.count > 1 { common.removeLast() }
    let insertion = common.dropFirst(typed.utf8.count)
    if !insertion.isEmpty, insertion.count < capacity {
      for (at, byte) in insertion.enumerated() { out[at] = CChar(bitPattern: byte) }
      out[insertion.count] = 0
      return 1
    }
    guard choices.count > 1 else { return 0 }
    Console.print("\n" + Self.columns(choices), terminator: "")
    return 2
  }

  private static func columns(_ choices: [String]) -> String {
    let shown = choices.prefix(200)
    let width = (shown.map(\.unicodeScalars.count).max() ?? 0) + 2
    let perLine = max(1, Layout.width / width)
    var text = ""
    for (at, choice) in shown.enumerated() {
      text += choice
      if (at + 1) % perLine == 0 || at + 1 == shown.count {
        text += "\n"
      } else {
        text += String(repeating: " ", count: width - choice.unicodeScalars.count)
      }
    }
    return choices.count > shown.count ? text + "and \(choices.count - shown.count) more\n" : text
  }
}

extension String {
  /// The text without spaces and tabs at both ends.
  fileprivate var trimmed: String {
    let start = drop { $0 == " " || $0 == "\t" }
    guard let end = start.lastIndex(where: { $0 != " " && $0 != "\t" }) else { return "" }
    return String(start[...end])
  }
}
