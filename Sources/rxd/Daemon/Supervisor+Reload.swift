import Logging
import PipelineCore
import PipelineRuntime
import Storage
import Transport

extension Supervisor {
  /// A reload whose pipelines are changing from the old files to the new ones.
  struct Reload {
    var started: Instant
    var at = SystemClock.shared.wallTime
    /// The changes of each pipeline, by its path.
    var changes: [String: ReloadVerdict.Change] = [:]
    var diagnostics: [Diagnostic] = []
    /// The requests that wait for the verdict.
    var requests: [ControlRequest] = []
    /// Set when all changes are done: the number of the read that finds the events left behind.
    var reading: Int?

    var isDecided: Bool { !changes.values.contains { $0.kind == .pending } }
  }

  /// Reloads for a client, which gets the verdict when the new files run or are refused; with `wait=false`, when the
  /// files have been checked.
  func reload(for request: ControlRequest) {
    if isStopping { return request.answer(503, .object([("error", .string("the process is stopping"))])) }
    reloadAll(for: request)
  }

  /// Reads all files again and changes to their current versions; if any has errors, everything stays as it is.
  /// Pipelines whose files and inserted values have the same meaning are not touched; others continue from their state,
  /// as far as their steps are the same.
  ///
  /// A reload that is under way continues as part of this one: requests that wait for it get the verdict of both.
  func reloadAll(for request: ControlRequest? = nil) {
    let started = now
    notify?.send("RELOADING=1\nMONOTONIC_USEC=\(started.nanoseconds / 1000)\nSTATUS=reloading")
    options.watch?.willLoad()
    let loaded = options.load()
    options.watch?.didLoad(at: now)
    let diagnostics = loaded.flatMap(\.diagnostics)
    if loaded.contains(where: \.hasErrors) {
      for diagnostic in diagnostics where diagnostic.severity == .error {
        log.write(.error, "", diagnostic.line, limited: false)
      }
      let summary = "not reloaded: the files have errors, so the pipelines continue unchanged"
      logger.error("\(summary)")
      let verdict = ReloadVerdict(
        result: .refused, at: SystemClock.shared.wallTime, duration: now - started, diagnostics: diagnostics,
        summary: summary)
      reloads.last = verdict
      // During a reload the process is ready only when the reload is done.
      if reload == nil { notify?.send("READY=1\nSTATUS=\(status); the last reload found errors") }
      if let request { answer(request, verdict) }
      return
    }
    broken = []
    KeptListeners.begin()
    reloads.keepingEnd = started + Self.answerLimit + Self.closingLimit + .seconds(5)
    var reload = reload ?? Reload(started: started)
    reload.reading = nil
    reloads.readingEnd = nil
    reload.diagnostics = diagnostics
    if let request {
      if request.query["wait"] == "false" {
        answer(
          request,
          ReloadVerdict(
            result: .accepted, at: reload.at, duration: now - started, diagnostics: diagnostics,
            summary: "the files have no errors; the change is under way"))
      } else {
        reload.requests.append(request)
      }
    }
    self.reload = reload
    let renamed = followRenamedFiles(loaded)
    for slot in slots where !slot.isLeaving && !loaded.contains(where: { $0.path == slot.path }) {
      note(.removed, slot)
      slot.isLeaving = true
      slot.next = nil
      drain(slot, within: options.drainLimit)
    }
    for result in loaded {
      guard let version = result.version else { continue }
      guard let slot = slots.first(where: { $0.path == result.path }) else {
        let slot = PipelineSlot(path: result.path, version)
        slots.append(slot)
        note(.added, slot)
        launch(slot)
        continue
      }
      // The messages of a renamed file must have its new name.
      let isSame = !renamed.contains(slot.path) && slot.current.means(version)
      slot.isLeaving = false
      if isSame, slot.state == .running {
        slot.next = nil
        // The version that was to be tried is obsolete.
        if slot.isTrying { self.reload?.changes[slot.path] = nil }
        note(.unchanged, slot)
        continue
      }
      // The pipeline ended successfully and has not changed.
      if isSame, slot.state == .over, !slot.hasFailed {
        note(.unchanged, slot)
        continue
      }
      note(.pending, slot, named: version.plan.name)
      move(slot, to: version)
    }
  }

  /// A removed file and a new one with a pipeline of the same name count as one renamed file: its pipeline continues.
  ///
  /// - Returns: The new paths.
  private func followRenamedFiles(_ loaded: [PipelineLoader.Loaded]) -> Set<String> {
    var renamed: Set<String> = []
    for slot in slots where !slot.isLeaving && !loaded.contains(where: { $0.path == slot.path }) {
      let file = loaded.first { file in
        file.version?.plan.name == slot.name && !slots.contains { $0.path == file.path }
      }
      guard let file else { continue }
      if var change = reload?.changes.removeValue(forKey: slot.path) {
        change.file = file.path
        reload?.changes[file.path] = change
      }
      slot.move(to: file.path)
      renamed.insert(file.path)
    }
    return renamed
  }

  /// Whether a slot that could not start tries again at once, because another slot is about to leave its address or has
  /// left it since the start.
  func triesAgain(_ slot: PipelineSlot) -> Bool {
    guard !slot.hasLaunched, !isStopping, !slot.isLeaving else { return false }
    let isLeft = slots.contains { other in
      other !== slot && other.run != nil && other.state == .draining && slot.plan.excludesAddress(of: other.plan)
    }
    guard isLeft || slot.mayHaveAddress else { return false }
    slot.restarts.at = slot.mayHaveAddress ? now : now + .milliseconds(20)
    return true
  }

  /// Notes that slots that are starting may be able to listen on the addresses of a run that has ended.
  func leaveAddresses(of run: PipelineLaunch) {
    for slot in slots where slot.run != nil && !slot.hasLaunched && slot.plan.excludesAddress(of: run.plan) {
      slot.mayHaveAddress = true
    }
  }

  /// Notes the change of a pipeline. A later part of the reload that finds the file unchanged does not replace it.
  func note(_ kind: ReloadVerdict.Change.Kind, _ slot: PipelineSlot, named name: String? = nil) {
    if kind == .unchanged, reload?.changes[slot.path] != nil { return }
    reload?.changes[slot.path] = .init(kind: kind, name: name ?? slot.name, file: slot.path)
  }

  /// Records that a pipeline of the reload runs.
  func decide(_ slot: PipelineSlot, _ run: PipelineLaunch) {
    guard var change = reload?.changes[slot.path], change.kind == .pending || change.kind == .added, slot.next == nil
    else { return }
    change.kept = run.restored?.kept ?? []
    change.lost = run.restored?.refusals.map(\.line) ?? []
    if change.kind == .pending {
      change.kind = run.restored == nil ? .restarted : .reloaded
      if change.kind == .restarted { change.reason = slot.loss ?? "it had no state" }
    }
    reload?.changes[slot.path] = change
  }

  /// Records that a pipeline of the reload does not run from its new file.
  func decide(_ slot: PipelineSlot, failed reason: String) {
    guard let change = reload?.changes[slot.path], [.pending, .added].contains(change.kind) else { return }
    reload?.changes[slot.path]?.kind = .failed
    reload?.changes[slot.path]?.reason = reason
  }

  /// Ends a reload whose changes are done, and sends its verdict.
  /// - Parameter unopened: The undelivered events of stores that no pipeline opens.
  func complete(_ reload: Reload, left unopened: [LeftBehind]) {
    self.reload = nil
    reloads.readingEnd = nil
    var reload = reload
    for slot in slots {
      let left = slot.store == nil ? unopened.filter { $0.pipeline == slot.name } : leftBehind(slot)
      if !left.isEmpty { reload.changes[slot.path]?.left = left.map(\.line) }
    }
    let changes = reload.changes.sorted { $0.key.utf8.lexicographicallyPrecedes($1.key.utf8) }.map(\.value)
    let failed = changes.filter { $0.kind == .failed || $0.kind == .pending }
    let took = now - reload.started
    let names = failed.map(\.name).joined(separator: ", ")
    let summary =
      "reloaded in \(took.nanoseconds / 1_000_000) ms\(failed.isEmpty ? "" : ", except for \(names)"): \(status)"
    logger.notice("\(summary)")
    let verdict = ReloadVerdict(
      result: failed.isEmpty ? .reloaded : .failed, at: reload.at, duration: took, changes: changes,
      diagnostics: reload.diagnostics,
      summary: failed.isEmpty ? summary : "not reloaded: \(names); \(status)")
    reloads.last = verdict
    notify?.send("READY=1\nSTATUS=\(status)")
    for request in reload.requests { answer(request, verdict) }
  }

  func answer(_ request: ControlRequest, _ verdict: ReloadVerdict) {
    if request.wantsText {
      request.answer(verdict.status, text: verdict.text(colors: request.wantsColors))
    } else {
      request.answer(verdict.status, verdict.json())
    }
  }

  /// Replaces a slot's run by `version`, which continues from its state: tries the version out, and suspends the run if
  /// the version could start.
  func move(_ slot: PipelineSlot, to version: PipelineSlot.Version) {
    slot.restarts.at = nil
    slot.restarts.checkAt = nil
    guard let run = slot.run else {
      slot.next = version
      return proceed(slot)
    }
    if slot.state == .draining {
      // The pipeline is already being suspended for an older version.
      if !isRefused(version, slot, restoring: nil) {
        slot.next = version
      } else if slot.next == nil {
        slot.next = slot.current
      }
      return
    }
    slot.next = version
    // If several versions arrive while the state is awaited, the newest is tried.
    guard !slot.isTrying else { return }
    guard slot.hasLaunched else { return suspend(slot, run, for: version) }
    guard let id = runs.first(where: { $0.value.run === run })?.key else { return }
    slot.isTrying = true
    let post = poster()
    run.snapshot { post(.snapshot(id, $0)) }
  }

  /// Tries the next version out with the state of the run.
  func tryOut(_ slot: PipelineSlot, _ run: PipelineLaunch, _ state: [UInt8]?) {
    slot.isTrying = false
    guard let version = slot.next, slot.state == .running, !isStopping else { return }
    if isRefused(version, slot, restoring: state) { slot.next = nil } else { suspend(slot, run, for: version) }
  }

  /// Tries a version out without effect on the running pipeline; returns whether the version could not start.
  private func isRefused(_ version: PipelineSlot.Version, _ slot: PipelineSlot, restoring state: [UInt8]?) -> Bool {
    let began = now
    let found = Execution.dryRun(
      version.plan, services: services, clock: SystemClock.shared,
      restoring: slot.name == version.plan.name ? state : nil)
    logger.debug(
      "tried the new version in \((now - began).nanoseconds / 1000) us", metadata: ["pipeline": "\(slot.name)"])
    guard let failure = found.failure else { return false }
    refuse(slot, failure)
    return true
  }

  /// Reports that a new version of a pipeline does not start.
  private func refuse(_ slot: PipelineSlot, _ failure: SignalFailure, isDecided: Bool = true) {
    let suffix = failure.location.map { " (\($0))" } ?? ""
    logger.error(
      "not reloaded: \(failure.message)\(suffix); the pipeline continues unchanged",
      metadata: ["pipeline": "\(slot.name)"])
    if isDecided { decide(slot, failed: "\(failure.message)\(suffix); the pipeline continues unchanged") }
  }

  private func suspend(_ slot: PipelineSlot, _ run: PipelineLaunch, for version: PipelineSlot.Version) {
    slot.state = .draining
    slot.isSuspending = true
    slot.drainDeadline = now + min(options.drainLimit, Self.answerLimit)
    run.suspend(for: version.plan, isReload: true)
  }

  /// Called if the version of a reload does not start although a dry run found nothing: runs the previous version
  /// again from its state; returns whether there is one.
  func goBack(_ slot: PipelineSlot, _ failure: SignalFailure) -> Bool {
    guard let previous = slot.previous, !slot.hasLaunched, !isStopping else { return false }
    refuse(slot, failure, isDecided: slot.next == nil)
    if slot.next == nil {
      slot.previous = nil
      slot.next = previous
    }
    proceed(slot)
    return true
  }
}
