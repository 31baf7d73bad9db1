import CLinux
import Glibc
import Logging
import PipelineCore
import PipelineRuntime
import Storage
import Synchronization
import Transport

/// Runs pipelines until they end or the process is stopped.
///
/// Everything here happens on the main thread; loops report through a mailbox. While nothing happens, the thread sleeps
/// without a timeout.
final class Supervisor {
  struct Options {
    /// Failed pipelines restart, and the process runs for ever.
    var isDaemon = false
    /// How long stopping may take before the rest is cancelled.
    var drainLimit = TimeSpan.seconds(60)
    /// What queues may hold in memory, in bytes.
    var queueMemory = MemoryBudget.standard
    /// What every run of a pipeline has done is printed when it ends, in this form.
    var statistics: StatisticsReport.Form?
    /// Reads and compiles all files anew.
    var load: () -> [PipelineLoader.Loaded] = { [] }
    /// Notices changes of the files.
    var watch: ConfigWatch?
    /// Where requests come in.
    var control: LocalSocket?
    /// Where metrics are asked for over TCP.
    var metrics: MetricsListener?
  }

  enum Message: Sendable {
    case report(Int, PipelineLaunch.Report)
    case heldBack
    case request(ControlRequest)
    /// The look at all pipelines is done.
    case observed
  }

  let options: Options
  let log: LogWriter
  private let logger: Logger
  private let services: Services
  private let deadLetters: DeadLetters
  private let stores: Stores?
  private let notify: Notify?
  private let signals: Signals
  private let wake: WakeEvent
  private let mailbox = Mailbox()
  private var loops: [Loop] = []
  private(set) var slots: [PipelineSlot] = []
  private var runs: [Int: (slot: PipelineSlot, run: PipelineLaunch)] = [:]
  private var nextRun = 0
  private var isReady = false
  private var reload: Reload?
  private(set) var lastReload: ReloadVerdict? {
    didSet { if let result = lastReload?.result { reloadCounts[result.rawValue, default: 0] += 1 } }
  }
  /// How many reloads had which result.
  private(set) var reloadCounts: [String: Int] = [:]
  /// A look at all pipelines that is under way.
  var observation: Observation?
  /// Until then listening sockets are kept for the new versions of their pipelines.
  private var keepingEnd: Instant?
  let startedAt = SystemClock.shared.wallTime
  /// The network thread accepts connections to the control socket.
  private var servesControl = false
  private var stopDeadline: Instant?
  private var stoppedAt: Instant?
  /// An earlier further signal is a duplicate, as timeout(1) sends, not a person's second attempt.
  private static let patience = TimeSpan.seconds(1)
  /// Readable when the wall clock has been set.
  private let clockWatch = rx_clock_watch()
  /// The limit for stopping has passed.
  private var isCancelling = false
  private var nextFeed: Instant?
  private var nextSummary: Instant?
  /// When to free memory that only the start needed.
  private var forgetAt: Instant?
  private var hasFailed = false

  /// A reload whose pipelines are changing from the old files to the new ones.
  private struct Reload {
    var started: Instant
    var at = SystemClock.shared.wallTime
    /// What it does to each pipeline, by its path.
    var changes: [String: ReloadVerdict.Change] = [:]
    var diagnostics: [Diagnostic] = []
    /// Who waits for the verdict.
    var requests: [ControlRequest] = []

    var isDecided: Bool { !changes.values.contains { $0.kind == .pending } }
  }

  private final class Mailbox: Sendable {
    let messages = Mutex<[Message]>([])
  }

  init(
    _ options: Options, log: LogWriter, deadLetters: DeadLetters, stores: Stores?, signals: Signals, notify: Notify?
  ) throws(PosixError) {
    self.stores = stores
    self.options = options
    self.log = log
    self.deadLetters = deadLetters
    logger = log.logger("")
    services = .real(log, memory: options.queueMemory)
    self.signals = signals
    self.notify = notify
    wake = try WakeEvent()
    let post = poster()
    log.whenHeldBack { post(.heldBack) }
  }

  /// Files with errors, which a daemon skips.
  private var broken: [String] = []

  var now: Instant { SystemClock.shared.now }
  var isStopping: Bool { stopDeadline != nil }

  func poster() -> @Sendable (Message) -> Void {
    let mailbox = mailbox
    let wake = wake
    return { message in
      mailbox.messages.withLock { $0.append(message) }
      wake.wake()
    }
  }

  // MARK: The main loop

  /// Runs the plans in `loaded`; returns the exit status.
  func run(_ loaded: [PipelineLoader.Loaded]) -> Int32 {
    // A request to end during the start finds nothing started; other signals wait until something has.
    var early: [Int32] = []
    while let signal = signals.next() { early.append(signal) }
    if early.contains(SIGQUIT) { return 128 + SIGQUIT }
    if early.contains(SIGTERM) || early.contains(SIGINT) { return ExitStatus.success.rawValue }
    guard startMetrics() else { return ExitStatus.inputOutput.rawValue }
    for result in loaded { add(result) }
    broken = loaded.filter(\.hasErrors).map { Printable.cut($0.path, limit: 200) }
    balance(slots.count)
    for slot in slots { launch(slot) }
    if let interval = feedInterval { nextFeed = now + interval }
    reportIfReady()
    options.watch?.didLoad(at: now)
    for signal in early { _ = take(signal: signal) }
    defer { options.control?.remove() }
    while !isOver {
      wait()
      for message in mailbox.messages.withLock({ box in
        let all = box
        box = []
        return all
      }) {
        take(message)
      }
      while let signal = signals.next() {
        if let status = take(signal: signal) { return status }
      }
      if let status = passTime() { return status }
      reportIfReady()
    }
    notify?.send("STOPPING=1")
    deadLetters.close(within: .seconds(5))
    _ = log.summarize(all: true)
    log.flush(patience: .seconds(1))
    return hasFailed ? ExitStatus.failure.rawValue : ExitStatus.success.rawValue
  }

  private var isOver: Bool {
    if slots.isEmpty { return isStopping || !options.isDaemon }
    return slots.allSatisfy { $0.state == .over }
  }

  private func wait() {
    let deadlines =
      slots.flatMap { [$0.retryAt, $0.drainDeadline] }
      + [stopDeadline, nextFeed, nextSummary, forgetAt, keepingEnd, options.watch?.lookAt, observation?.deadline]
    let deadline = deadlines.compactMap { $0 }.min()
    var entries = [
      pollfd(fd: signals.descriptor, events: Int16(POLLIN), revents: 0),
      pollfd(fd: wake.descriptor, events: Int16(POLLIN), revents: 0),
      pollfd(fd: clockWatch, events: Int16(POLLIN), revents: 0),
      pollfd(fd: options.watch?.descriptor ?? -1, events: Int16(POLLIN), revents: 0),
      pollfd(fd: servesControl ? -1 : options.control?.descriptor ?? -1, events: Int16(POLLIN), revents: 0),
    ]
    var timeout: Int32 = -1
    if let deadline {
      let left = max(0, (deadline - now).nanoseconds)
      timeout = Int32(clamping: (left + 999_999) / 1_000_000)
    }
    _ = poll(&entries, nfds_t(entries.count), timeout)
    wake.clear()
    if entries[2].revents != 0, rx_clock_was_set(clockWatch) {
      for slot in slots { slot.run?.clockWasSet() }
    }
    if entries[3].revents != 0 { options.watch?.noteEvent(at: now) }
    if entries[4].revents != 0 { serveControl() }
  }

  private func take(_ message: Message) {
    switch message {
    case .heldBack: nextSummary = log.summarize()
    case .request(let request): ControlRoom.answer(request, self)
    case .observed: endObservation()
    case .report(let id, let report):
      guard let (slot, run) = runs[id] else { return }
      switch report {
      case .launched:
        decide(slot, run)
        slot.hasLaunched = true
        slot.saved = nil
        slot.isMoved = false
        slot.previous = nil
        if options.isDaemon { logger.debug("started", metadata: ["component_id": "\(slot.name)"]) }
      case .ended(let outcome, let counters, let state):
        release(id, slot, run, counters)
        if outcome == .completed { decide(slot, run) }
        if let state {
          slot.saved = state
          slot.isMoved = false
        } else {
          slot.loss = outcome == .completed ? "it had completed" : "it had failed"
        }
        ended(slot, outcome)
      case .suspended(let state, let counters):
        release(id, slot, run, counters)
        slot.saved = state
        slot.isMoved = true
        if (isStopping || slot.isLeaving) && slot.store == nil { flush(slot) } else { proceed(slot) }
      case .cancelled(let counters, let state):
        release(id, slot, run, counters)
        if let state { slot.saved = state } else { slot.loss = "its sinks were not done within the limit" }
        if slot.state == .draining {
          logger.warning(
            "cancelled: it was not done within the limit", metadata: ["component_id": "\(slot.name)"])
        }
        proceed(slot)
      }
    }
  }

  /// Handles everything that is due; returns an exit status if the process must end at once.
  private func passTime() -> Int32? {
    let now = now
    if let deadline = stopDeadline, now >= deadline {
      if isCancelling { return abort() }
      // Sinks get a last second to write.
      isCancelling = true
      hasFailed = true
      stopDeadline = now + .seconds(1)
      for slot in slots { cancel(slot) }
    }
    if let watch = options.watch, let at = watch.lookAt, now >= at, watch.look(at: now), !isStopping {
      logger.debug("files have changed")
      reloadAll()
    }
    for slot in slots {
      if let at = slot.retryAt, now >= at {
        slot.retryAt = nil
        launch(slot)
      }
      if let at = slot.drainDeadline, now >= at {
        if slot.isSuspending {
          slot.isSuspending = false
          slot.drainDeadline = at + Self.closingLimit
          slot.run?.freeze()
        } else {
          slot.drainDeadline = nil
          cancel(slot)
        }
      }
    }
    if let at = nextFeed, now >= at, let interval = feedInterval {
      // Each loop must have run since the last time.
      let turned = loops.map { $0.hasTurned() }
      // No write or sync may last longer than that time.
      if let call = WriterCalls.longest(), call.duration > interval {
        logger.error("not feeding the watchdog: \(call.name) has been busy for \(Self.shown(call.duration))")
      } else if turned.contains(false) {
        logger.error(
          "not feeding the watchdog: an event has kept a pipeline busy for longer than \(Self.shown(interval))")
      } else {
        notify?.send("WATCHDOG=1")
      }
      nextFeed = now + interval
    }
    if let at = nextSummary, now >= at { nextSummary = log.summarize() }
    if let at = keepingEnd, now >= at { endKeeping() }
    if let at = observation?.deadline, now >= at { endObservation() }
    if let at = forgetAt, now >= at {
      forgetAt = nil
      // Reading and compiling files has loaded pages that running does not need.
      rx_forget_program_text()
    }
    return nil
  }

  private var feedInterval: TimeSpan? {
    notify?.watchdogMicroseconds.map { TimeSpan(nanoseconds: max(1, $0 / 2) &* 1000) }
  }

  /// Notifies the service manager when all requested changes are done.
  private func reportIfReady() {
    guard !isStopping, slots.allSatisfy(\.isSettled) else { return }
    if !isReady {
      isReady = true
      forgetAt = now + .seconds(1)
      notify?.send("READY=1\nSTATUS=\(status)")
    } else if let reload {
      self.reload = nil
      endKeeping()
      complete(reload)
    }
  }

  /// `3 pipelines running, 1 failed (search)`.
  var status: String {
    func names(_ slots: [PipelineSlot]) -> String {
      slots.prefix(5).map(\.name).joined(separator: ", ") + (slots.count > 5 ? ", ..." : "")
    }
    let running = slots.count { $0.run != nil && !$0.isLeaving }
    let failed = slots.filter { $0.state == .failed || $0.state == .over && $0.hasFailed }
    let waiting = slots.filter { $0.state == .waiting }
    var parts = ["\(running) pipeline\(running == 1 ? "" : "s") running"]
    if !waiting.isEmpty { parts.append("\(waiting.count) restarting (\(names(waiting)))") }
    if !failed.isEmpty { parts.append("\(failed.count) failed (\(names(failed)))") }
    if !broken.isEmpty {
      parts.append(
        Printable.count(broken.count, "broken file")
          + " (\(broken.prefix(5).joined(separator: ", "))\(broken.count > 5 ? ", ..." : ""))")
    }
    return parts.joined(separator: ", ")
  }

  private func reportStatus() {
    if isReady, !isStopping { notify?.send("STATUS=\(status)") }
  }

  // MARK: Life of a pipeline

  private func add(_ result: PipelineLoader.Loaded) {
    if let version = result.version { slots.append(PipelineSlot(path: result.path, version)) }
  }

  /// Starts loops for `count` pipelines, at most one for each core.
  private func balance(_ count: Int) {
    while loops.count < min(count, Processors.available) {
      let loop = Loop()
      do throws(PosixError) {
        _ = try OwnThread("rxd loop \(loops.count)", stackBytes: 8 << 20) { loop.run() }
      } catch {
        if loops.isEmpty {
          logger.critical("\(error.message)")
          _exit(ExitStatus.failure.rawValue)
        }
        return
      }
      loops.append(loop)
    }
  }

  private func launch(_ slot: PipelineSlot) {
    balance(slots.count)
    guard let loop = loops.min(by: { $0.load < $1.load }) else { return }
    var services = services
    services.deadLetter = deadLetters.writer(slot.name)
    services.keepsDeadLetters = deadLetters.areKept
    let delivery: DeliveryOptions?
    do throws(StoreRefusal) {
      delivery = try openStore(slot)
    } catch {
      slot.startedAt = now
      ended(slot, .failed(SignalFailure(.user, error.message)))
      return
    }
    let run = PipelineLaunch(
      slot.plan, loop: loop, services: services, restoring: slot.saved, isMoved: slot.isMoved,
      isRestarted: options.isDaemon, delivery: delivery)
    slot.run = run
    slot.hasLaunched = false
    if slot.saved != nil { slot.loss = nil }
    slot.state = .running
    slot.startedAt = now
    let id = nextRun
    nextRun += 1
    runs[id] = (slot, run)
    let post = poster()
    slot.report = { post(.report(id, $0)) }
    run.start { post(.report(id, $0)) }
  }

  /// Opens the store of a slot unless it is open, and takes over what an earlier process has left.
  /// - Returns: How the run keeps its state; nil: it keeps nothing.
  private func openStore(_ slot: PipelineSlot) throws(StoreRefusal) -> DeliveryOptions? {
    guard let stores, slot.plan.delivery(hasStateDirectory: true) != .bestEffort else { return nil }
    let store: DiskStore
    // Where the last run has left no state in memory, that of its last commit holds.
    if slot.saved == nil { closeStore(slot) }
    if let open = slot.store {
      store = open
    } else {
      store = try stores.open(slot.name)
      slot.store = store
      slot.saved = store.savedState
    }
    for (sink, backlog) in store.backlogs.sorted(by: { $0.key < $1.key })
    where backlog.rows > 0 && !slot.plan.sinks.contains(where: { $0.name == sink && !slot.plan.isBestEffort($0.step) })
    {
      log.write(
        .warning, slot.name,
        """
        \(Printable.count(backlog.events, "event")) wait for the sink '\(sink)', which the file has no more, or whose \
        delivery is best effort; they are kept
        """
      )
    }
    // Rows that wait are delivered in durable mode only: those of an earlier version of the file, or of replayed dead letters.
    let hasRows = store.backlogs.values.contains { $0.rows > 0 }
    return DeliveryOptions(
      store: store, isDurable: hasRows || slot.plan.delivery(hasStateDirectory: true) == .durable)
  }

  /// Closes the store of a pipeline that does not run any more.
  private func closeStore(_ slot: PipelineSlot) {
    guard let store = slot.store else { return }
    slot.store = nil
    let statistics = store.statistics
    if let time = statistics.percentile99 {
      logger.debug(
        "\(Printable.count(Int(statistics.commits), "commit")), 99 % of them within \(Self.shown(time))",
        metadata: ["component_id": "\(slot.name)"])
    }
    if !store.close(within: Self.closingLimit) {
      logger.error("the state could not be written", metadata: ["component_id": "\(slot.name)"])
    }
  }

  /// A store belongs to a name: a pipeline that gets another one goes on from the store of that name, as at a start.
  private func leaveStore(_ slot: PipelineSlot, for name: String) {
    closeStore(slot)
    slot.saved = nil
    slot.loss = "its name was '\(slot.name)', and what that keeps stays under that name"
    logger.warning(
      "\(slot.loss ?? "")", metadata: ["component_id": "\(name)"])
  }

  private func release(
    _ id: Int, _ slot: PipelineSlot, _ run: PipelineLaunch, _ counters: Execution.Counters
  ) {
    runs[id] = nil
    run.retire()
    slot.run = nil
    slot.drainDeadline = nil
    slot.isSuspending = false
    slot.count(counters)
    guard let statistics = run.statistics else { return }
    slot.past.add(statistics, of: run.plan)
    if let form = options.statistics {
      Console.note(StatisticsReport(plan: run.plan, statistics: statistics).text(form))
    }
  }

  private func ended(_ slot: PipelineSlot, _ outcome: Execution.Outcome) {
    if case .failed(let failure) = outcome {
      if goBack(slot, failure) { return }
      let place = failure.location.map { " (\($0))" } ?? ""
      slot.failure = "\(failure.message)\(place)"
      let isFinal = !options.isDaemon || slot.state == .draining
      var message = "failed: \(failure.message)\(place)"
      if !isFinal {
        let delay = slot.fail(at: now, random: services.random())
        message +=
          slot.state == .failed
          ? "; it failed \(PipelineSlot.burst) times within a minute, so the next try is in 5 minutes"
          : "; starting again in \(Self.shown(delay))"
        logger.error("\(message)", metadata: ["component_id": "\(slot.name)"])
        decide(slot, failed: message)
        reportStatus()
        return
      }
      logger.error("\(message)", metadata: ["component_id": "\(slot.name)"])
      if slot.next == nil { decide(slot, failed: message) }
      slot.hasFailed = true
      if !options.isDaemon || isStopping { hasFailed = true }
    }
    proceed(slot)
  }

  /// Called if the version of a reload does not start (a port in use, a missing directory): runs the previous version
  /// again from its state; returns whether there is one.
  private func goBack(_ slot: PipelineSlot, _ failure: SignalFailure) -> Bool {
    guard let previous = slot.previous, !slot.hasLaunched, !isStopping else { return false }
    slot.previous = nil
    let place = failure.location.map { " (\($0))" } ?? ""
    logger.error(
      "not reloaded: \(failure.message)\(place); the pipeline runs on as it was",
      metadata: ["component_id": "\(slot.name)"])
    if slot.next == nil {
      slot.next = previous
      decide(slot, failed: "\(failure.message)\(place); the pipeline runs on as it was")
    }
    proceed(slot)
    return true
  }

  /// The run of a slot has ended: starts its new version, or removes the slot.
  private func proceed(_ slot: PipelineSlot) {
    slot.summarize(log)
    slot.totals = Execution.Counters()
    if let next = slot.next, !isStopping {
      slot.next = nil
      slot.previous = slot.saved == nil ? nil : slot.current
      if slot.store != nil, next.plan.name != slot.name { leaveStore(slot, for: next.plan.name) }
      slot.adopt(next)
      launch(slot)
    } else if slot.isLeaving {
      closeStore(slot)
      slots.removeAll { $0 === slot }
    } else {
      closeStore(slot)
      slot.state = .over
      reportStatus()
    }
  }

  /// Stopped for good while it was being suspended: the events that its operators hold must still be sent.
  private func flush(_ slot: PipelineSlot) {
    slot.next = nil
    launch(slot)
    drain(slot, within: stopDeadline.map { $0 - now } ?? options.drainLimit)
  }

  private func drain(_ slot: PipelineSlot, within limit: TimeSpan) {
    slot.retryAt = nil
    guard let run = slot.run else {
      proceed(slot)
      return
    }
    guard slot.state != .draining else { return }
    slot.state = .draining
    if slot.store != nil {
      slot.isSuspending = true
      slot.drainDeadline = now + min(limit, Self.answerLimit)
      run.suspend(for: slot.plan)
    } else {
      slot.drainDeadline = now + limit
      run.drain()
    }
  }

  /// Suspends the run of a slot so that `version` continues from its state.
  private func move(_ slot: PipelineSlot, to version: PipelineSlot.Version) {
    slot.retryAt = nil
    slot.next = version
    guard let run = slot.run else {
      proceed(slot)
      return
    }
    guard slot.state != .draining else { return }
    slot.state = .draining
    slot.isSuspending = true
    slot.drainDeadline = now + min(options.drainLimit, Self.answerLimit)
    run.suspend(for: version.plan)
  }

  /// How long a reload waits for answers to clients.
  private static let answerLimit = TimeSpan.seconds(10)
  /// How long a reload then waits for sinks to write.
  private static let closingLimit = TimeSpan.seconds(5)

  private func cancel(_ slot: PipelineSlot) {
    if let run = slot.run, let report = slot.report { run.cancel(report) }
  }

  private static func shown(_ span: TimeSpan) -> String {
    "\(TimeSpan.milliseconds(max(1, span.nanoseconds / 1_000_000)))"
  }

  // MARK: Signals

  private func take(signal: Int32) -> Int32? {
    switch signal {
    case SIGHUP:
      if !isStopping { reloadAll() }
    case SIGUSR1:
      logger.notice("\(status)")
    case SIGUSR2: break
    case SIGQUIT: return abort(signal)
    default:
      guard let stoppedAt else {
        stop()
        break
      }
      if now - stoppedAt >= Self.patience { return abort(signal) }
    }
    return nil
  }

  private func stop() {
    endKeeping()
    stoppedAt = now
    stopDeadline = now + options.drainLimit
    let microseconds = options.drainLimit.nanoseconds / 1000 &+ 5_000_000
    notify?.send("STOPPING=1\nSTATUS=draining\nEXTEND_TIMEOUT_USEC=\(microseconds)")
    logger.debug("draining, within \(options.drainLimit)")
    // A pipeline that cannot be cancelled yet gets the time of the whole stop.
    for slot in slots where slot.state != .over { drain(slot, within: options.drainLimit + .seconds(1)) }
  }

  /// Ends the process without waiting.
  private func abort(_ signal: Int32? = nil) -> Int32 {
    if signal == nil {
      let left = slots.filter { $0.run != nil }.map(\.name).joined(separator: ", ")
      logger.error("ended without waiting for \(left)")
    }
    notify?.send("STOPPING=1")
    deadLetters.close(within: .milliseconds(200))
    _ = log.summarize(all: true)
    log.flush(patience: .zero)
    return signal.map { 128 + $0 } ?? ExitStatus.failure.rawValue
  }

  // MARK: Reload

  /// Reloads for a client, which gets the verdict when the new files run or are refused; with `wait=false` when the
  /// files have been checked.
  func reload(for request: ControlRequest) {
    if isStopping { return request.answer(503, .object([("error", .string("the process is stopping"))])) }
    reloadAll(for: request)
  }

  /// Reads all files again and changes to their present versions; if any has errors, everything stays as it is.
  /// Pipelines whose files and inserted values have the same meaning are not touched; others continue from their state,
  /// as far as their steps are the same.
  ///
  /// A reload that is under way goes on as part of this one: who waits for it gets the verdict of both.
  private func reloadAll(for request: ControlRequest? = nil) {
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
      let summary = "not reloaded: the files have errors, so the pipelines run on as they are"
      logger.error("\(summary)")
      let verdict = ReloadVerdict(
        result: .refused, at: SystemClock.shared.wallTime, duration: now - started, diagnostics: diagnostics,
        summary: summary)
      lastReload = verdict
      // With a reload under way the process is ready when that is done.
      if reload == nil { notify?.send("READY=1\nSTATUS=\(status); the last reload found errors") }
      if let request { answer(request, verdict) }
      return
    }
    broken = []
    KeptListeners.begin()
    keepingEnd = started + Self.answerLimit + Self.closingLimit + .seconds(5)
    var reload = reload ?? Reload(started: started)
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
      let isSame = slot.current.means(version)
      slot.isLeaving = false
      if isSame, slot.state == .running {
        slot.next = nil
        note(.unchanged, slot)
        continue
      }
      // It ended successfully and has not changed.
      if isSame, slot.state == .over, !slot.hasFailed {
        note(.unchanged, slot)
        continue
      }
      note(.pending, slot, named: version.plan.name)
      move(slot, to: version)
    }
  }

  /// Notes what the reload does to a pipeline. That a later part of it finds the file unchanged is no news.
  private func note(_ kind: ReloadVerdict.Change.Kind, _ slot: PipelineSlot, named name: String? = nil) {
    if kind == .unchanged, reload?.changes[slot.path] != nil { return }
    reload?.changes[slot.path] = .init(kind: kind, name: name ?? slot.name, file: slot.path)
  }

  /// A pipeline of the reload runs.
  private func decide(_ slot: PipelineSlot, _ run: PipelineLaunch) {
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

  /// A pipeline of the reload does not run from its new file.
  private func decide(_ slot: PipelineSlot, failed reason: String) {
    guard let change = reload?.changes[slot.path], [.pending, .added].contains(change.kind) else { return }
    reload?.changes[slot.path]?.kind = .failed
    reload?.changes[slot.path]?.reason = reason
  }

  /// The changes of the reload are done.
  private func complete(_ reload: Reload) {
    let changes = reload.changes.sorted { $0.key.utf8.lexicographicallyPrecedes($1.key.utf8) }.map(\.value)
    let failed = changes.filter { $0.kind == .failed || $0.kind == .pending }
    let took = now - reload.started
    let summary = "reloaded in \(took.nanoseconds / 1_000_000) ms: \(status)"
    logger.notice("\(summary)")
    let verdict = ReloadVerdict(
      result: failed.isEmpty ? .reloaded : .failed, at: reload.at, duration: took, changes: changes,
      diagnostics: reload.diagnostics,
      summary: failed.isEmpty ? summary : "not reloaded: \(failed.map(\.name).joined(separator: ", ")); \(status)")
    lastReload = verdict
    notify?.send("READY=1\nSTATUS=\(status)")
    for request in reload.requests { answer(request, verdict) }
  }

  private func answer(_ request: ControlRequest, _ verdict: ReloadVerdict) {
    if request.wantsText {
      request.answer(verdict.status, text: verdict.text(colors: request.wantsColors))
    } else {
      request.answer(verdict.status, verdict.json())
    }
  }

  // MARK: Requests

  /// The listening sockets that no pipeline has taken over are closed.
  private func endKeeping() {
    keepingEnd = nil
    KeptListeners.end()
  }

  /// The first client connects: from now on the network thread accepts.
  private func serveControl() {
    guard let control = options.control, !servesControl else { return }
    servesControl = true
    let post = poster()
    do throws(HTTPServerFailure) {
      try ControlSocket.serve(control) { post(.request($0)) }
    } catch {
      logger.error("\(error.message); 'rxd reload' cannot reach this process")
    }
  }

  /// Serves metrics over TCP, if that was asked for; false: it cannot.
  private func startMetrics() -> Bool {
    guard let metrics = options.metrics else { return true }
    let post = poster()
    do throws(HTTPServerFailure) {
      let port = try metrics.start { post(.request($0)) }
      logger.debug("metrics are served on port \(port)")
      return true
    } catch {
      Console.printError("--metrics-listen: \(error.message)")
      return false
    }
  }

  /// The answer to `GET /status`.
  var statusDocument: JSONText {
    .object([
      ("version", .string(Version.number)), ("pid", .int(Int(getpid()))),
      ("started", .string(StoredTime.text(startedAt))),
      ("status", .string(status)), ("daemon", .bool(options.isDaemon)), ("stopping", .bool(isStopping)),
      ("reloading", .bool(reload != nil)),
      ("pipelines", .array(slots.map(\.document))),
      ("broken_files", .array(broken.map(JSONText.string))),
      ("last_reload", lastReload?.json(complete: false) ?? .null),
    ])
  }
}

extension PipelineSlot {
  /// How the pipeline is, in a word of `GET /status`.
  var stateName: String {
    switch state {
    case .running: hasLaunched ? "running" : "starting"
    case .draining: isLeaving ? "leaving" : "stopping"
    case .waiting: "restarting"
    case .failed: "failed"
    case .over: hasFailed ? "failed" : "completed"
    }
  }

  /// How the pipeline is, for `GET /status`.
  fileprivate var document: JSONText {
    var members: [(String, JSONText)] = [
      ("name", .string(name)), ("file", .string(path)), ("state", .string(stateName)),
      ("since", .string(StoredTime.text(since))),
    ]
    if let failure { members.append(("last_failure", .string(failure))) }
    return .object(members)
  }
}

extension PipelineLoader.Loaded {
  /// The version of a slot; nil if the file has errors.
  var version: PipelineSlot.Version? {
    compiled.plan.map { PipelineSlot.Version(plan: $0, meaning: compiled.meaning, values: values) }
  }
}
