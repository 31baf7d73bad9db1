extension RunningSink {
  /// Records when the sink's destination is down, and when it works again. A sink that retries deliveries reports both.
  package final var trouble: SinkTroubles.Note {
    SinkTroubles.Note(
      troubles: execution.troubles, sink: execution.plan.steps[nodeContext.step.number].owner, clock: executor.clock)
  }
}
