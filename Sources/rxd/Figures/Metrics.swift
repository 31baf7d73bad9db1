import FigureTable
import Glibc
import PipelineCore

/// The metrics of the process; names and labels are an interface (``Figures``).
struct Metrics {
  /// The maximum number of steps and edges that have their own series; those of further pipelines are omitted and
  /// counted.
  static let mostParts = 5000

  let view: ProcessView
  /// The share of a core of each step, by the names of its pipeline and step; see ``BusyShares``.
  let busy: [BusyShares.Name: Double]

  func text(_ format: MetricsFormat) -> String {
    var parts = 0
    let shown = view.pipelines.filter { pipeline in
      parts += pipeline.plan.steps.count + pipeline.plan.edges.count
      return parts <= Self.mostParts
    }
    var writer = MetricsWriter(format)
    writer.write(Figures.process, [("", process(omitted: view.pipelines.count - shown.count))])
    let names = view.pipelines.map { MetricsWriter.labels([("pipeline", $0.name)]) }
    writer.write(Figures.pipelines, zip(names, view.pipelines).map { ($0, $1.figures) })
    writer.write(Figures.runs, zip(names, view.pipelines).map { ($0, $1.statistics) })
    writer.write(steps: shown.flatMap(steps))
    writer.write(Figures.edges, shown.flatMap(edges))
    return writer.finished()
  }

  private func process(omitted: Int) -> ProcessFigures {
    var usage = rusage()
    getrusage(__rusage_who_t(RUSAGE_SELF.rawValue), &usage)
    func span(_ time: timeval) -> TimeSpan {
      TimeSpan(nanoseconds: Int64(time.tv_sec) * 1_000_000_000 + Int64(time.tv_usec) * 1000)
    }
    var figures = ProcessFigures(version: Version.number)
    (figures.at, figures.startedAt) = (view.at, view.startedAt)
    figures.cpu = span(usage.ru_utime) + span(usage.ru_stime)
    figures.residentMemory = ResidentMemory.bytes()
    (figures.reloads, figures.lastReloadSucceeded) = (view.reloads, view.lastReloadSucceeded)
    (figures.omitted, figures.late) = (omitted, view.pipelines.count { !$0.figures.isCurrent })
    return figures
  }

  private func steps(_ pipeline: ProcessView.Pipeline) -> [MetricsWriter.Labelled<StepFigures>] {
    pipeline.index.steps.map { step in
      let labels = MetricsWriter.labels([
        ("pipeline", pipeline.name), ("component_id", step.name), ("component_kind", step.kind.rawValue),
        ("component_type", step.keyword),
      ])
      let busy = busy[BusyShares.Name(pipeline: pipeline.name, step: step.name)]
      return (labels, pipeline.statistics.figures(of: step, busy: busy))
    }
  }

  private func edges(_ pipeline: ProcessView.Pipeline) -> [MetricsWriter.Labelled<PipelineStatistics.Edge>] {
    pipeline.index.links.filter { !$0.to.isEmpty }.map { link in
      let labels = MetricsWriter.labels([
        ("pipeline", pipeline.name), ("from", link.from), ("to", link.to), ("output", link.output),
      ])
      return (labels, pipeline.statistics.sum(of: link))
    }
  }
}
