extension RunningSink {
  /// Notes when its destination is down, and when it works again. A sink that repeats what it could not deliver calls both.
  package final var trouble: SinkTroubles.Note {
    SinkTroubles.Note(
      troubles: execution.troubles, sink: execution.plan.steps[nodeContext.step.number].owner, clock: executor.clock)
  }
}
