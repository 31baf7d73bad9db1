import PipelineCore

/// Replaces programs: answers from a list, on the executor's time.
final class StubPrograms: ProgramRunner {
  let calls: StubCalls<ProgramCall>

  init(_ calls: StubCalls<ProgramCall>) { self.calls = calls }

  func run(
    _ call: ProgramCall, _ completion: @escaping @Sendable (Result<ProgramResult, ProgramFailure>) -> Void
  ) -> any Cancellable { calls.make(call, completion) }
}

extension ProgramCall: StubbedCall {
  typealias Reply = ProgramResult
  var timeout: TimeSpan { options.timeout }
  var noAnswer: ProgramFailure { .late(after: options.timeout) }
  var noStub: ProgramFailure { ProgramFailure(.start, "has no stub in this test") }

  /// The program and its arguments, for comparison with stubs and for messages.
  var line: String { ([program] + arguments).joined(separator: " ") }
  var shownLine: String { ([program] + shownArguments).joined(separator: " ") }
}

/// The stubbed results of programs.
struct ProgramStub: Sendable {
  /// The program and its arguments, separated by spaces; `*` matches any bytes.
  var command: String
  /// The answers in order, at least one; the last one is repeated.
  var answers: [Stub<ProgramResult, ProgramFailure>.Answer]
  var location: SourceLocation?

  func matches(_ call: ProgramCall) -> Bool { Glob.matches(command, call.line) }
}
