import FigureTable
import PipelineCore
import PipelineRuntime

/// A snapshot of all pipelines that is being taken.
struct Observation {
  /// Distinguishes the snapshot from earlier ones, whose answers are late.
  var number: Int
  /// The numbers of the runs that must answer, by their slots.
  var runs: [ObjectIdentifier: Int]
  var gathering: StatisticsGathering
  /// Runs that have not answered by then are omitted.
  var deadline: Instant
  var waiting: [(ProcessView) -> Void]
  /// Set when the runs have answered. The sizes of files are then measured for these steps, by pipeline and step.
  var view: ProcessView?
  var sized: [(pipeline: Int, step: Int)] = []
}

extension Supervisor {
  /// How long an event may keep a pipeline busy before the pipeline is omitted from a view, and how long measuring the
  /// sizes of files may take.
  private static let patience = TimeSpan.seconds(1)
  private static let filePatience = TimeSpan.milliseconds(500)

  /// Calls `body` on the main thread with a snapshot of the process. Requests that arrive meanwhile share one snapshot.
  func observe(_ body: @escaping (ProcessView) -> Void) {
    if observation != nil {
      observation?.waiting.append(body)
      return
    }
    let running = slots.compactMap { slot in slot.run.map { (slot, $0) } }
    let post = poster()
    views.count += 1
    let number = views.count
    let gathering = StatisticsGathering(running.count) { post(.observed(number)) }
    var runs: [ObjectIdentifier: Int] = [:]
    for (index, (slot, run)) in running.enumerated() {
      runs[ObjectIdentifier(slot)] = index
      run.inspect { gathering.take(index, $0.statistics) }
    }
    observation = Observation(
      number: number, runs: runs, gathering: gathering, deadline: now + Self.patience, waiting: [body])
    if running.isEmpty { endObservation() }
  }

  /// Called when all runs of a snapshot have answered.
  func observed(_ number: Int) {
    if observation?.number == number, observation?.view == nil { endObservation() }
  }

  /// Called when the sizes of a snapshot's files are known.
  func sized(_ number: Int, _ lags: [Int64?]) {
    guard observation?.number == number, var view = observation?.view else { return }
    var measured: Set<BusyShares.Name> = []
    for (entry, lag) in zip(observation?.sized ?? [], lags) {
      let pipeline = view.pipelines[entry.pipeline]
      view.pipelines[entry.pipeline].statistics.steps[entry.step].lag = lag
      let name = BusyShares.Name(pipeline: pipeline.name, step: pipeline.plan.id(of: StepID(entry.step)))
      guard let lag else { continue }
      measured.insert(name)
      let taken = Int64(clamping: pipeline.statistics.steps[entry.step].bytes ?? 0)
      view.pipelines[entry.pipeline].statistics.steps[entry.step].lagAge = views.lagAges.note(
        name, taken: taken, lag: lag, at: view.instant)
    }
    views.lagAges.keep(measured)
    deliver(view)
  }

  /// Ends the snapshot: all have answered, or the time is over.
  func endObservation() {
    guard let observation else { return }
    if let view = observation.view { return deliver(view) }
    let view = view(of: observation)
    var entries: [(pipeline: Int, step: Int)] = []
    var files: [[PipelineStatistics.ReadFile]] = []
    for (pipeline, shown) in view.pipelines.enumerated() {
      for (step, counted) in shown.statistics.steps.enumerated() where !counted.files.isEmpty {
        entries.append((pipeline, step))
        files.append(counted.files)
      }
    }
    let post = poster()
    let number = observation.number
    if files.isEmpty || !views.sourceLag.measure(files, { post(.sized(number, $0)) }) { return deliver(view) }
    self.observation?.view = view
    self.observation?.sized = entries
    self.observation?.deadline = now + Self.filePatience
  }

  private func deliver(_ view: ProcessView) {
    let waiting = observation?.waiting ?? []
    observation = nil
    for body in waiting { body(view) }
  }

  private func view(of observation: Observation) -> ProcessView {
    let results = observation.gathering.results
    return ProcessView(
      at: SystemClock.shared.wallTime, instant: now, startedAt: startedAt, isStopping: isStopping,
      reloads: reloads.counts, lastReloadSucceeded: reloads.last.map { $0.result == .reloaded } ?? true,
      reload: reloads.last?.json(complete: false),
      pipelines: slots.map { slot in
        let statistics = observation.runs[ObjectIdentifier(slot)].flatMap { results[$0] }
        // A run that began or ended meanwhile has another plan.
        let isSame = statistics.map {
          $0.steps.count == slot.plan.steps.count && $0.edges.count == slot.plan.edges.count
        }
        var figures = PipelineFigures(file: slot.path, state: slot.stateName, since: StoredTime.text(slot.since))
        (figures.isRunning, figures.restarts) = (slot.run != nil, slot.restarts.count)
        figures.isCurrent = slot.run == nil || isSame == true
        (figures.failure, figures.deadLetters) = (slot.failureDocument, deadLetters.counts.of(slot.name))
        figures.replication = slot.store?.standing.map {
          ReplicationFigures(isReached: $0.isReached, behindBytes: $0.bytes, lag: $0.lag)
        }
        return ProcessView.Pipeline(
          name: slot.name, figures: figures,
          index: slot.index, revision: slot.revision,
          statistics: slot.past.added(to: isSame == true ? statistics?.withPluginMemory : nil, of: slot.plan))
      })
  }

  // MARK: Answers

  /// `GET /metrics`.
  func answerMetrics(_ request: ControlRequest) {
    let format = MetricsFormat(accept: request.accept)
    observe { [self] view in
      let busy = views.busyShares.note(view)
      request.answer(200, text: Metrics(view: view, busy: busy).text(format), type: format.contentType)
    }
  }

  /// `GET /stats`, of all pipelines or of those that `pipeline` names.
  func answerStatistics(_ request: ControlRequest) {
    observe { view in
      var view = view
      if let pattern = request.query["pipeline"] {
        view.pipelines.removeAll { !Wildcard.matches(pattern, $0.name) }
        guard !view.pipelines.isEmpty else {
          return request.answer(404, .object([("error", .string("there is no pipeline '\(pattern)'"))]))
        }
      }
      request.answer(200, view.document)
    }
  }

  /// `GET /health`: whether the process works, and will continue to.
  func answerHealth(_ request: ControlRequest) {
    request.answer(
      isStopping ? 503 : 200,
      .object([("status", .string(isStopping ? "stopping" : "ok")), ("pipelines", .string(status))]))
  }

  /// `GET /ready`: whether every pipeline runs, or has completed.
  func answerReadiness(_ request: ControlRequest) {
    let waiting = slots.filter { !$0.isReady }
    let isReady = waiting.isEmpty && !isStopping
    request.answer(
      isReady ? 200 : 503,
      .object([
        ("ready", .bool(isReady)), ("stopping", .bool(isStopping)),
        (
          "waiting",
          .array(waiting.map { .object([("name", .string($0.name)), ("state", .string($0.stateName))]) })
        ),
      ]))
  }
}

extension PipelineSlot {
  /// Whether the pipeline runs, or has completed. A reload does not make it unready.
  fileprivate var isReady: Bool {
    switch state {
    case .running: hasLaunched || saved != nil
    case .draining: true
    case .waiting, .failed: false
    case .over: !hasFailed
    }
  }
}
