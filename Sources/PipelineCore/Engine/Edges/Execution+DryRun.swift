extension Execution {
  /// The result of a dry run.
  package struct DryRun: Sendable {
    /// Why the pipeline would not start; nil: no reason was found.
    package var failure: SignalFailure?
    /// The parts of the state that could not be used, with the reasons.
    package var refusals: [Diagnostic] = []
  }

  /// Builds the whole graph of a plan from a state and takes it down again, while another execution of the pipeline may
  /// run. Sinks and sources check whether they could be opened (``RunningSink/dryRun()``, ``RunningSource/dryRun()``),
  /// steps read their state, and nothing starts. A failure goes through the graph as it would in a run, so a failure
  /// that a `retry` or `catch` handles is not reported.
  ///
  /// Runs on the calling thread, within some milliseconds.
  /// - Parameters:
  ///   - services: The services of the pipeline; nothing is logged, requested or stored.
  ///   - state: A copy of the state of the running execution (``saveState(keeping:positions:)``).
  package static func dryRun(
    _ plan: Plan, services: Services, clock: any Clock, restoring state: [UInt8]?
  ) -> DryRun {
    let executor = Executor(clock: clock)
    let execution = Execution(plan: plan, executor: executor, services: services.silent)
    execution.settings.isDryRun = true
    execution.settings.auditsSinks = false
    nonisolated(unsafe) var found = DryRun()
    nonisolated(unsafe) let running = execution
    executor.post {
      running.launch(restoring: state, isMoved: true) { _ in }
      found.refusals = running.refusals
      if case .failed(let failure) = running.outcome {
        found.failure = failure
      } else if let fault = running.restored.unreadable {
        found.failure = SignalFailure(.user, fault.message, at: fault.location)
      }
      running.cancel()
    }
    executor.run(limit: 1)
    executor.discard()
    return withExtendedLifetime(execution) { found }
  }
}

extension Services {
  /// Services of a dry run.
  fileprivate var silent: Services {
    var silent = Services(
      http: SilentHTTP(http), log: { _, _, _ in }, deadLetter: { _ in }, random: random)
    silent.keepsDeadLetters = keepsDeadLetters
    return silent
  }
}

/// A client that answers no request.
private final class SilentHTTP: HTTPClient {
  private let client: any HTTPClient
  init(_ client: any HTTPClient) { self.client = client }
  var fault: HTTPFailure? { client.fault }

  func send(
    _ request: HTTPRequest, _ completion: @escaping @Sendable (Result<HTTPResponse, HTTPFailure>) -> Void
  ) -> any Cancellable { Nothing() }

  private final class Nothing: Cancellable {
    func cancel() {}
  }
}
