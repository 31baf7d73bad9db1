import Glibc
public import PipelineCore
import Synchronization
internal import Transport

/// One pipeline in this process, for programs that embed rxd.
///
/// ```swift
/// let pipeline = try Pipeline("""
///   sources: { lines: { stdin: { decode: lines } } }
///   sinks: { out: { from: lines, chain: [ filter: size(event) > 3 ], stdout: { encode: text } } }
///   """)
/// let outcome = pipeline.run()
/// ```
///
/// A process that writes to pipes must ignore SIGPIPE itself: this library changes no signal handling.
public final class Pipeline: Sendable {
  /// Thrown if the text has errors; nothing was started.
  public struct Invalid: Error, CustomStringConvertible {
    /// Errors and warnings, each with its location.
    public let diagnostics: [Diagnostic]
    /// The diagnostics as `rxd check` prints them.
    public var description: String { DiagnosticRenderer().text(diagnostics) }
  }

  private let loop = Loop()
  private let launch: PipelineLaunch
  private let outcome = Mutex<Execution.Outcome?>(nil)
  /// Warnings of the front end.
  public let warnings: [Diagnostic]

  /// Compiles a pipeline file's text; starts nothing. A text with `require` is refused, because nothing is kept on disk
  /// here and delivery is best effort.
  ///
  /// - Parameters:
  ///   - text: A pipeline file.
  ///   - name: The name of the text in diagnostics.
  ///   - catalogue: The components that the text can name; `.builtIn.adding(...)` for your own components.
  ///   - variables: Values of `${NAME}` and of `env`; the process's environment is not read.
  ///   - log: Receives log lines: level, component, message. Called on any thread; must not block.
  ///   - deadLetter: Receives each rejected event that no sink reads, one JSON document. Called on the pipeline's
  ///     thread.
  public init(
    _ text: String, name: String = "pipeline.yaml", catalogue: Catalogue = .builtIn, variables: [String: String] = [:],
    log: @escaping @Sendable (Services.Level, String, String) -> Void = { _, _, _ in },
    deadLetter: @escaping @Sendable (UnsafeRawBufferPointer) -> Void = { _ in }
  ) throws(Invalid) {
    let front = FrontEnd(
      catalogue, values: Interpolation(variables: variables), environment: variables, files: .system)
    let result = front.compile(text, name: name)
    guard let plan = result.plan else { throw Invalid(diagnostics: result.diagnostics) }
    let shortfalls = plan.deliveryShortfalls(hasStateDirectory: false)
    guard shortfalls.isEmpty else { throw Invalid(diagnostics: result.diagnostics + shortfalls) }
    warnings = result.diagnostics
    var services = Services(
      http: DeferredHTTPClient(), log: log, deadLetter: deadLetter,
      random: {
        var generator = SystemRandomNumberGenerator()
        return generator.next()
      },
      worker: { WorkThread("rxd \($0)") })
    services.programs = LocalPrograms()
    services.databases = LocalDatabases()
    launch = PipelineLaunch(plan, loop: loop, services: services)
  }

  /// Runs the pipeline on the calling thread until it has ended; call it once.
  public func run() -> Execution.Outcome {
    launch.start { [self] report in
      switch report {
      case .launched: return
      case .ended(let outcome, _, state: _): end(outcome)
      case .suspended, .cancelled: end(.completed)
      }
    }
    loop.run()
    return outcome.withLock { $0 } ?? .completed
  }

  /// Ends the sources; `run` returns when all events that they have sent are written. Callable from any thread.
  public func stop() { launch.drain() }

  private func end(_ outcome: Execution.Outcome) {
    self.outcome.withLock { $0 = outcome }
    launch.retire()
    loop.stop()
  }
}
