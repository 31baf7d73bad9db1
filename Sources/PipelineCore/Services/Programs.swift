/// Runs programs to their end: the transport implements it, tests stub it.
public protocol ProgramRunner: AnyObject, Sendable {
  /// Starts a program. `completion` is called exactly once, on any thread, unless the call is cancelled before. It may be called
  /// before `run` returns.
  func run(
    _ call: ProgramCall, _ completion: @escaping @Sendable (Result<ProgramResult, ProgramFailure>) -> Void
  ) -> any Cancellable
}

/// One run of a program.
public struct ProgramCall: Sendable, Equatable {
  /// An absolute or relative path, or a name that is looked for in ``searchPath``.
  public var program: String
  /// Without the program itself. Print ``shownArguments``.
  public var arguments: [String]
  /// The arguments with `(secret)` in place of the secrets of the pipeline file; nil: they have none.
  public var maskedArguments: [String]?
  /// What the program reads from its standard input, which then ends.
  public var input: [UInt8] = []
  public var options = ProgramOptions()

  public init(_ program: String, _ arguments: [String] = []) {
    self.program = program
    self.arguments = arguments
  }

  /// The arguments for messages.
  public var shownArguments: [String] { maskedArguments ?? arguments }

  /// Where programs without a `/` are looked for, whatever the environment says.
  public static let searchPath = ["/usr/local/bin", "/usr/bin", "/bin", "/usr/local/sbin", "/usr/sbin", "/sbin"]
}

/// How programs are run; the same for all runs of one component. Everything has a limit.
public struct ProgramOptions: Sendable, Equatable {
  /// All variables that the program gets.
  public var environment: [String: String] = [:]
  /// Nil: the directory of the process.
  public var directory: String?
  /// From the start to the end of the program.
  public var timeout: TimeSpan = .seconds(30)
  /// Bytes of its standard output.
  public var maxOutput = 16 << 20
  /// Bytes of private writable memory; 0: no limit.
  public var memory = 0
  /// Seconds of processor time; 0: no limit.
  public var cpu = 0
  public init() {}
}

/// How a program has ended.
public struct ProgramResult: Sendable, Equatable {
  /// The exit status; nil: a signal has ended it.
  public var exit: Int?
  public var signal: Int?
  public var output: [UInt8]
  /// The last 4 KiB of its standard error.
  public var errors: [UInt8]
  public init(exit: Int? = 0, signal: Int? = nil, output: [UInt8] = [], errors: [UInt8] = []) {
    self.exit = exit
    self.signal = signal
    self.output = output
    self.errors = errors
  }
}

/// Why there is no result.
public struct ProgramFailure: Error, Sendable, Equatable {
  public enum Kind: String, Sendable {
    /// It cannot be started.
    case start
    case timeout, outputTooLong
  }
  public var kind: Kind
  /// A clause that follows the name of the program, without a full stop.
  public var message: String
  public init(_ kind: Kind, _ message: String) {
    self.kind = kind
    self.message = message
  }

  /// It ran longer than it may.
  public static func late(after timeout: TimeSpan) -> ProgramFailure {
    ProgramFailure(.timeout, "had not ended after \(timeout)")
  }
}

/// Where no programs may be run.
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
