/// Runs programs until they end: the transport implements it, tests stub it.
package protocol ProgramRunner: AnyObject, Sendable {
  /// Starts a program. `completion` is called exactly once, on any thread, possibly before `run` returns; it is not
  /// called if the call is cancelled first.
  func run(
    _ call: ProgramCall, _ completion: @escaping @Sendable (Result<ProgramResult, ProgramFailure>) -> Void
  ) -> any Cancellable

  /// Starts a program that answers lines on its standard input with lines on its standard output, without a time limit.
  /// `receive` is called on any thread, but never before this call returns.
  ///
  /// - Parameters:
  ///   - call: The program; `input`, `timeout` and `maxOutput` are ignored.
  ///   - maxLine: The maximum length of a line in bytes; a longer line ends the program.
  func converse(
    _ call: ProgramCall, maxLine: Int, _ receive: @escaping @Sendable (ProgramPart) -> Void
  ) -> any ProgramDialogue
}

/// One run of a program.
package struct ProgramCall: Sendable, Equatable {
  /// An absolute or relative path, or a name to search for in ``searchPath``.
  package var program: String
  /// The arguments without the program itself. Print ``shownArguments``.
  package var arguments: [String]
  /// The arguments with `(secret)` in place of the secrets of the pipeline file; nil if they contain none.
  package var maskedArguments: [String]?
  /// The contents of its standard input.
  package var input: [UInt8] = []
  package var options = ProgramOptions()

  package init(_ program: String, _ arguments: [String] = []) {
    self.program = program
    self.arguments = arguments
  }

  /// The arguments for messages.
  package var shownArguments: [String] { maskedArguments ?? arguments }

  /// The directories in which programs without a `/` are searched for, independent of the environment.
  package static let searchPath = ["/usr/local/bin", "/usr/bin", "/bin", "/usr/local/sbin", "/usr/sbin", "/sbin"]
}

/// How programs are run; the same for all runs of one component. Everything has a limit.
package struct ProgramOptions: Sendable, Equatable {
  /// All variables that the program sees.
  package var environment: [String: String] = [:]
  /// Nil: the directory of the process.
  package var directory: String?
  /// The time limit, from the start to the end of the program.
  package var timeout: TimeSpan = .seconds(30)
  /// The maximum size of its standard output in bytes.
  package var maxOutput = 16 << 20
  /// The maximum private writable memory in bytes; 0: no limit.
  package var memory = 0
  /// The maximum processor time in seconds; 0: no limit.
  package var cpu = 0
  package init() {}
}

/// How a program ended.
package struct ProgramResult: Sendable, Equatable {
  /// The exit status; nil if a signal ended the program.
  package var exit: Int?
  package var signal: Int?
  package var output: [UInt8]
  /// The last 4 KiB of its standard error.
  package var errors: [UInt8]
  /// Charges the output to the memory of the process as long as the result lives; nil: it is not charged.
  package var charge: MemoryCharge?
  package init(exit: Int? = 0, signal: Int? = nil, output: [UInt8] = [], errors: [UInt8] = []) {
    self.exit = exit
    self.signal = signal
    self.output = output
    self.errors = errors
  }
}

/// Why a call has no result.
package struct ProgramFailure: Error, Sendable, Equatable {
  /// The cause of a failure.
  package enum Kind: String, Sendable {
    /// The program cannot be started.
    case start
    /// The program cannot be started with these arguments and variables.
    case arguments
    case timeout, outputTooLong
  }
  package var kind: Kind
  /// A clause that follows the name of the program, without a full stop.
  package var message: String
  package init(_ kind: Kind, _ message: String) {
    self.kind = kind
    self.message = message
  }

  /// The program exceeded its time limit.
  package static func late(after timeout: TimeSpan) -> ProgramFailure {
    ProgramFailure(.timeout, "had not ended after \(timeout)")
  }
}

/// Refuses to run programs.
final class NoPrograms: ProgramRunner {
  func run(
    _ call: ProgramCall, _ completion: @escaping @Sendable (Result<ProgramResult, ProgramFailure>) -> Void
  ) -> any Cancellable {
    completion(.failure(ProgramFailure(.start, "cannot be started: no programs are run here")))
    return Nothing()
  }

  private final class Nothing: Cancellable {
    func cancel() {}
  }
}

// MARK: - Programs that answer

/// An output of a program that answers lines.
package enum ProgramPart: Sendable {
  /// A line of its standard output, without the line break.
  case line([UInt8])
  /// A line of its standard error; at most twenty per second.
  case said(Services.Level, String)
  /// The program has ended, or could not be started. Always the last part.
  case ended(Result<ProgramResult, ProgramFailure>)
}

/// A running program that answers lines. Cancelling ends it: its input is closed, it gets SIGTERM, and SIGKILL after 5
/// s; no more parts are received.
package protocol ProgramDialogue: Cancellable {
  /// Writes lines, each with its line break. Never blocks.
  func write(_ bytes: [UInt8])
  /// Closes its input after the lines written so far; the program then ends by itself, or is ended.
  func close()
}

extension ProgramRunner {
  /// Runs the program separately for each line, one after another: for tests, in which one stub serves both uses.
  package func converse(
    _ call: ProgramCall, maxLine: Int, _ receive: @escaping @Sendable (ProgramPart) -> Void
  ) -> any ProgramDialogue { RepeatedRuns(self, call, receive) }
}

/// A dialogue with a program that is run once per line. Must be used on the executor's thread.
private final class RepeatedRuns: ProgramDialogue, @unchecked Sendable {
  private let runner: any ProgramRunner
  private let call: ProgramCall
  private let receive: @Sendable (ProgramPart) -> Void
  private var lines: [[UInt8]] = []
  private var running: (any Cancellable)?
  private var isRunning = false
  private var isOver = false

  init(_ runner: any ProgramRunner, _ call: ProgramCall, _ receive: @escaping @Sendable (ProgramPart) -> Void) {
    self.runner = runner
    self.call = call
    self.receive = receive
  }

  func write(_ bytes: [UInt8]) {
    lines += bytes.split(separator: 0x0A, omittingEmptySubsequences: false).dropLast().map(Array.init)
    next()
  }

  private func next() {
    guard !isRunning, !isOver, !lines.isEmpty else { return }
    isRunning = true
    var call = call
    call.input = lines.removeFirst()
    running = runner.run(call) { [self] result in
      isRunning = false
      guard !isOver else { return }
      switch result {
      case .success(let end) where end.exit == 0:
        let line = end.output.last == 0x0A ? end.output.dropLast() : end.output[...]
        receive(.line(Array(line)))
        next()
      default:
        isOver = true
        receive(.ended(result))
      }
    }
  }

  func close() {}

  func cancel() {
    isOver = true
    running?.cancel()
  }
}
