import PipelineCore

extension Metrics {
  /// The metrics of plugins behind steps.
  static func plugins(_ pipelines: [ProcessView.Pipeline]) -> [MetricFamily] {
    var instances = MetricFamily("rxd_plugin_instances", .gauge, "Open instances of the step's plugin")
    var processes = MetricFamily("rxd_plugin_processes", .gauge, "Processes of the step's plugin")
    var memory = MetricFamily("rxd_plugin_memory_bytes", .gauge, "Memory of these processes that is in RAM")
    var inHand = MetricFamily(
      "rxd_plugin_in_hand_events", .gauge, "Events that the plugin has received and neither answered nor acknowledged")
    var restarts = MetricFamily(
      "rxd_plugin_restarts", .counter, "Starts of the plugin's program after it had ended by itself")
    var poisoned = MetricFamily(
      "rxd_plugin_poisoned_events", .counter, "Events given up because the program had ended with them three times")
    var missed = MetricFamily(
      "rxd_plugin_missed_stderr_lines", .counter, "Lines of the program's standard error that were not logged")
    var counts = MetricFamily("rxd_plugin_counts", .counter, "What the plugin counts, by names of its own")
    for pipeline in pipelines {
      for step in pipeline.plan.fileSteps(pipeline.statistics) {
        guard let plugin = step.plugin else { continue }
        let labels = labels(pipeline, step.step)
        instances.add(labels, plugin.instances)
        inHand.add(labels, plugin.inHand)
        processes.add(labels, plugin.processes.count)
        restarts.add(labels, plugin.restarts)
        poisoned.add(labels, plugin.poisoned)
        missed.add(labels, plugin.missedLines)
        if let bytes = plugin.memory { memory.add(labels, bytes) }
        for (name, count) in plugin.sortedCounts { counts.add(labels + [("counter", name)], count) }
      }
    }
    return [instances, processes, memory, inHand, restarts, poisoned, missed, counts]
  }
}
