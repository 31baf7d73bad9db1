import PipelineCore

extension HTTPServer {
  /// Ends the server of a component: it listens no more, and what waits for the pipeline is refused, or goes to the next server of the path. A
  /// thread waits until the clients have their answers, at most `limit`, and the execution does not end before. When nothing of the
  /// execution can answer any more, the rest is answered 503. In turns.
  ///
  /// - Parameters:
  ///   - handsOver: If there is a reload, requests wait for the next server of the path, until the reload is over.
  ///   - waits: Whether the execution waits; false where another version of the pipeline follows, and needs nothing of the clients of this one.
  ///   - done: Called in a turn when the clients have left.
  package func end(
    of execution: Execution, handsOver: Bool, within limit: TimeSpan, waits: Bool = true,
    _ done: @escaping () -> Void = {}
  ) {
    // The port is free when this returns, for the next listener, or its socket is kept for it.
    stopListening(handsOver: handsOver)
    closeQueue()
    guard waits else {
      if (try? OwnThread("rxd close", { [self] in stop(within: limit) })) == nil { stop(within: .zero) }
      return done()
    }
    let hold = execution.hold { [self] in refuseRemaining() }
    let executor = execution.executor
    let execution = Weak(execution)
    nonisolated(unsafe) let done = done
    let thread = try? OwnThread("rxd close") { [self] in
      stop(within: limit)
      executor.post {
        done()
        execution.object?.endHold(hold)
      }
    }
    if thread == nil {
      stop(within: .zero)
      done()
      execution.object?.endHold(hold)
    }
  }
}
