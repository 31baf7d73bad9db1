import PipelineCore

extension HTTPServer {
  /// Ends the server of a component: it stops listening, and requests that wait for the pipeline are refused or go to
  /// the next server of the path. A thread waits until the clients have their answers, at most `limit`, and the
  /// execution does not end before that. When nothing in the execution can answer any more, the remaining requests are
  /// answered 503. Call within a turn.
  ///
  /// - Parameters:
  ///   - handsOver: In a reload, requests wait for the next server of the path, until the reload is over.
  ///   - waits: Whether the execution waits; false if another version of the pipeline follows and need not wait for
  ///     this one's clients.
  ///   - done: Called in a turn when the clients have left or the limit has passed.
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
