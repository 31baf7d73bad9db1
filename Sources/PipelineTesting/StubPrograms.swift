import PipelineCore

// Stubs of programs: `exec: [ { command: "*/uptime*", reply: { text: up } } ]`. No program runs in a test.

extension ProgramCall: StubbedCall {
  typealias Reply = ProgramResult

  static var form: StubForm {
    StubForm(
      key: "exec", pattern: "command", keys: ["command"], name: "a stub of a program",
      needs: (
        ["command"], "the stub names no program",
        "Add 'command:', the program and its arguments, in which * stands for any text"
      ), example: "{ command: \"*/uptime*\", reply: { text: up } }", reply: "text: up", failure: "cannot be started",
      first: "Add 'stubs: { exec: [ { command: \"...\", reply: { text: ... } } ] }' to the test")
  }

  static func reply(_ node: YAMLNode, _ reader: inout PipelineTestReader) -> ProgramResult? {
    guard let entries = node.entries else {
      reader.report(
        .testStep, "'reply' takes a mapping, not \(node.kindName)", node.location,
        help: "Write 'reply: { text: ... }' or 'reply: { exit: 1 }'")
      return nil
    }
    guard reader.check(keys: entries, ["exit", "errors", "json", "text"], "'reply'") else { return nil }
    var result = ProgramResult()
    if let exit = reader.number(node, "exit", in: 0...255) { result.exit = exit }
    if let errors = node["errors"] { result.errors = Array((reader.text(errors, "'errors'") ?? "").utf8) }
    result.output = reader.body(node)
    return result
  }

  static func failure(_ reason: String) -> ProgramFailure { ProgramFailure(.start, reason) }
  static func serve(_ calls: StubCalls<ProgramCall>, _ services: inout Services) { services.programs = calls }

  var timeout: TimeSpan { options.timeout }
  var noAnswer: ProgramFailure { .late(after: options.timeout) }
  var noStub: ProgramFailure { ProgramFailure(.start, "has no stub in this test") }
  /// The program and its arguments.
  var line: String { ([program] + arguments).joined(separator: " ") }
  func unanswered(_ at: TimeSpan) -> String {
    let line = ([program] + shownArguments).joined(separator: " ")
    return "there is no stub for the program '\(Printable.cut(line, limit: 200))', run at \(at)"
  }
}

extension StubCalls: ProgramRunner where Call == ProgramCall {
  func run(_ call: ProgramCall, _ completion: @escaping @Sendable (Result<ProgramResult, ProgramFailure>) -> Void)
    -> any Cancellable
  { make(call, completion) }
}
