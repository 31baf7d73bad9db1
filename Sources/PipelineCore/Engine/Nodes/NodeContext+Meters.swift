extension NodeContext {
  /// Records an answer to a request of a source, or its failure.
  package func answered(since start: Instant) { execution.meters.latency(step).ended(1, since: start) }

  /// The counts of the plugin behind the step; nil: there is none.
  package var pluginMeter: PluginMeter? { execution.meters.plugins[step.number]?.meter }

  /// From now on, adds the counts of a plugin that an earlier execution started to this execution.
  package func goOn(with meter: PluginMeter) { execution.meters.goOn(with: meter, at: step) }
}
