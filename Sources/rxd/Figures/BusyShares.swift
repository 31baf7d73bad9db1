import PipelineCore

/// The steps' shares of a core. The engine counts time; a share needs two readings, so earlier readings are kept here.
struct BusyShares {
  struct Name: Hashable {
    var pipeline: String
    var step: String
  }
  private struct Reading {
    var instant: Instant
    var times: [Name: UInt64]
  }
  /// The readings, oldest first.
  private var readings: [Reading] = []
  private static let least = TimeSpan.seconds(5)
  private static let longest = TimeSpan.seconds(60)

  /// The shares since the newest reading that is at least ``least`` old, or since the start of the process.
  mutating func note(_ view: ProcessView) -> [Name: Double] {
    var times: [Name: UInt64] = [:]
    for pipeline in view.pipelines {
      for step in pipeline.statistics.steps where step.nanoseconds != nil {
        times[Name(pipeline: pipeline.name, step: pipeline.plan.id(of: step.step))] = step.nanoseconds
      }
    }
    let now = view.instant
    readings.removeAll { $0.instant + Self.longest < now }
    let before = readings.last { $0.instant + Self.least <= now }
    let seconds = before.map { Double((now - $0.instant).nanoseconds) / 1e9 } ?? Double(view.at - view.startedAt) / 1e9
    if readings.last.map({ $0.instant + .seconds(1) <= now }) ?? true {
      readings.append(Reading(instant: now, times: times))
    }
    guard seconds > 0 else { return [:] }
    return times.reduce(into: [:]) { shares, time in
      let past = before?.times[time.key] ?? 0
      // Counts are estimates, and start again at 0 for a new step.
      shares[time.key] = Double(time.value > past ? time.value - past : 0) / 1e9 / seconds
    }
  }
}
