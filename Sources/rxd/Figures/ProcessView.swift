import FigureTable
import PipelineCore
import Synchronization

/// A snapshot of the process: the one source of metrics, of `rxd top` and of every other view.
struct ProcessView {
  struct Pipeline {
    var name: String
    /// The pipeline's figures, apart from its counts.
    var figures: PipelineFigures
    var index: PlanIndex
    var plan: Plan { index.plan }
    /// Changes with the meaning of the file.
    var revision: String
    /// The counts, including those of earlier runs.
    var statistics: PipelineStatistics
  }

  /// The time of the snapshot: wall-clock nanoseconds since 1970.
  var at: Int64
  /// The time of the snapshot on the monotonic clock.
  var instant: Instant
  var startedAt: Int64
  var isStopping: Bool
  /// The number of reloads by result.
  var reloads: [String: Int]
  /// Whether the last reload, if any, has led to the new files.
  var lastReloadSucceeded: Bool
  /// The last reload, as in `GET /status`; nil: there was none.
  var reload: JSONText?
  var pipelines: [Pipeline]

  /// The answer to `GET /stats`.
  var document: JSONText {
    .object([
      ("version", .string(Version.number)), ("at", .string(StoredTime.text(at))),
      ("monotonic_nanoseconds", .int(Int(instant.nanoseconds))), ("reload", reload ?? .null),
      (
        "pipelines",
        .array(
          pipelines.map { pipeline in
            .object(
              [("name", .string(pipeline.name))] + Figures.pipelines.members(of: pipeline.figures)
                + pipeline.statistics.members(pipeline.index))
          })
      ),
    ])
  }
}

/// Collects the statistics of several runs, each taken between two turns of its pipeline.
final class StatisticsGathering: Sendable {
  private struct State {
    var results: [Int: PipelineStatistics] = [:]
    var left: Int
  }
  private let state: Mutex<State>
  private let done: @Sendable () -> Void

  /// `done` is called on any thread when `count` runs have answered.
  init(_ count: Int, done: @escaping @Sendable () -> Void) {
    state = Mutex(State(left: count))
    self.done = done
  }

  func take(_ run: Int, _ statistics: PipelineStatistics) {
    let isLast = state.withLock {
      $0.results[run] = statistics
      $0.left -= 1
      return $0.left == 0
    }
    if isLast { done() }
  }

  var results: [Int: PipelineStatistics] { state.withLock { $0.results } }
}
