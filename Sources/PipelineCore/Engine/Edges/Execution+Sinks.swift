extension Execution {
  /// Which sinks are open, and which wait for their writers.
  struct SinkEnds {
    /// The number of sinks that have not drained.
    var open = 0
    /// The number of sinks that wait for their writers (``RunningSink/closeBeside(_:then:)``). Only then is it known
    /// what they have written and lost: the last commit and the end come after that.
    var closing = 0
    /// Called in a cancelled execution when the last of these sinks has ended.
    var onCancelled: (() -> Void)?
    /// The sinks that finish because no state has the events that they hold.
    var finishing: FinishingSinks?
  }

  // MARK: Reports of sinks

  func sinkDrained(_ index: Int) {
    guard sinks[index].isOpen else { return }
    if let fault = sinks[index].audit?.finalFault() { report(fault) }
    sinks[index].isOpen = false
    sinks[index].upstream.cancel()
    sinkEnds.open -= 1
    if !wirings.isLaunching, !isOver { sinks[index].errors.complete() }
    endIfOver()
    if !wirings.isLaunching, !isOver { completeErrors() }
  }

  func sinkFailed(_ index: Int, _ failure: SignalFailure) {
    guard sinks[index].isOpen else { return }
    end(.failed(failure))
  }

  /// Ends the pipeline, because a failure reached a sink and nothing has handled it.
  package func unhandled(_ failure: SignalFailure) { end(.failed(failure)) }

  /// Reports a sink that does not acknowledge its events.
  func report(_ fault: String) {
    if let report = settings.reportSink { report(fault) } else { services.log(.error, "sink", fault) }
  }
}
