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
    /// Whether failed pipelines restart and the process runs forever.
    var isDaemon = false
    /// How long stopping may take before the rest is cancelled.
    var drainLimit = TimeSpan.seconds(60)
    /// The memory of all queues, in bytes.
    var queueMemory = MemoryBudget.standard
    /// The memory for events that did not pass; 0: no event is kept.
    var whyMemory = StoppedEvents.limitOfAll
    /// Where blocks are processed; `auto`: measurements decide.
    var placement = Placement.auto
    /// The form in which the statistics of a run are printed when it ends; nil: they are not printed.
    var statistics: StatisticsReport.Form?
    /// Reads and compiles all files again.
    var load: () -> [PipelineLoader.Loaded] = { [] }
    /// Notices changes of the files.
    var watch: ConfigWatch?
    /// The control socket.
    var control: LocalSocket?
    /// The TCP listener for metrics.
    var metrics: MetricsListener?
    /// The TCP address of the live page, and whether it is printed.
    var page: PageGate?
    var showsPage = false
    /// The options of trying out: `--dry-run`, `--print`, `--limit`, `--once`.
    var trial = Trial()
  }

  enum Message: Sendable {
    case report(Int, PipelineLaunch.Report)
    /// A copy of the state of a run, which continues; nil: the run has ended or is about to.
    case snapshot(Int, [UInt8]?)
    case heldBack
    case request(ControlRequest)
    /// All pipelines of a snapshot have answered.
    case observed(Int)
    /// The sizes of a snapshot's files.
    case sized(Int, [Int64?])
    /// The reader of a tap has left.
    case tapClosed(ObjectIdentifier)
    /// The undelivered events of a run that is being stopped.
    case left(Int, [Execution.Left])
    /// A live page was closed.
    case pageClosed(Int)
    /// A pipeline that could not start has been checked.
    case checked(Int, CheckedStart)
    /// The events in stores that no pipeline delivers.
    case leftBehind(Int, [LeftBehind])
    /// The store of this number is closed.
    case closed(Int)
  }

  let options: Options
  let log: LogWriter
  var logger: Logger { log.logger }
  let services: Services
  let deadLetters: DeadLetters
  let stores: Stores?
  /// Stores that are being closed; until they are, no pipeline of their names starts.
  var closingStores: [ClosingStore] = []
  /// The number of closings so far.
  var closings = 0
  let notify: Notify?
  let signals: Signals
  let mailbox: Mailbox
  var loops: [Loop] = []
  var slots: [PipelineSlot] = []
  /// The number of pipelines that share the memory for events that did not pass.
  var whySharers = 0
  var runs: [Int: (slot: PipelineSlot, run: PipelineLaunch)] = [:]
  var nextRun = 0
  var isReady = false
  var reload: Reload?
  var reloads = Reloads()
  /// A snapshot of all pipelines that is being taken.
  var observation: Observation?
  var views = Views()
  /// The open taps.
  var taps: [TapSession] = []
  /// The readers of the live page.
  let page = PageFeed()
  let startedAt = SystemClock.shared.wallTime
  /// Whether the network thread accepts connections to the control socket.
  var servesControl = false
  var stopping = Stopping()
  /// The minimum time between two stop signals: an earlier one is a duplicate, as timeout(1) sends, not a person's
  /// second attempt.
  private static let patience = TimeSpan.seconds(1)
  var upkeep = Upkeep()
  var hasFailed = false
  var aside = Aside()
  var check: StartCheck?

  init(
    _ options: Options, log: LogWriter, deadLetters: DeadLetters, stores: Stores?, signals: Signals, notify: Notify?
  ) throws(PosixError) {
    self.stores = stores
    self.options = options
    self.log = log
    self.deadLetters = deadLetters
    services = .real(log, memory: options.queueMemory)
    self.signals = signals
    self.notify = notify
    mailbox = try Mailbox()
    let post = poster()
    log.whenHeldBack { post(.heldBack) }
  }

  /// Files with errors, which a daemon skips.
  var broken: [String] = []

  var now: Instant { SystemClock.shared.now }
  var isStopping: Bool { stopping.deadline != nil }

  func poster() -> @Sendable (Message) -> Void {
    { [mailbox] in mailbox.post($0) }
  }

  // MARK: The main loop

  /// Runs the plans in `loaded`; returns the exit status.
  func run(_ loaded: [PipelineLoader.Loaded]) -> Int32 {
    defer { options.control?.remove() }
    // If a request to end came during the start, nothing has been started; other signals wait until something has.
    var early: [Int32] = []
    while let signal = signals.next() { early.append(signal) }
    if early.contains(SIGQUIT) { return 128 + SIGQUIT }
    if early.contains(SIGTERM) || early.contains(SIGINT) { return ExitStatus.success.rawValue }
    guard startMetrics(), startPage() else { return ExitStatus.inputOutput.rawValue }
    for result in loaded { add(result) }
    broken = loaded.filter(\.hasErrors).map { Printable.cut($0.path, limit: 200) }
    stores?.note(takers)
    balance(slots.count)
    openStoresAhead()
    for slot in slots { launch(slot) }
    stores?.closeAhead()
    let opened = slots.filter { $0.plan.delivery(hasStateDirectory: true) != .bestEffort }
    stores?.reportLeftBehind(takers, except: Set(opened.map(\.name)))
    upkeep.watchdog = notify.flatMap { Watchdog($0, at: now) }
    reportIfReady()
    options.watch?.didLoad(at: now)
    for signal in early { _ = take(signal: signal) }
    while !isOver {
      wait()
      for message in mailbox.take() { take(message) }
      while let signal = signals.next() {
        if let status = take(signal: signal) { return status }
      }
      if let status = passTime() { return status }
      reportIfReady()
    }
    for slot in slots { dropState(slot) }
    notify?.send("STOPPING=1")
    awaitStores()
    endTaps()
    deadLetters.close(within: .seconds(5))
    _ = log.summarize(all: true)
    log.flush(patience: .seconds(1))
    return hasFailed ? ExitStatus.failure.rawValue : ExitStatus.success.rawValue
  }

  var isOver: Bool {
    if slots.isEmpty { return isStopping || !options.isDaemon }
    return slots.allSatisfy { $0.state == .over }
  }

  func wait() {
    let deadlines =
      slots.flatMap { [$0.restarts.at, $0.restarts.checkAt, $0.drainDeadline] }
      + [
        stopping.deadline, upkeep.watchdog?.next, upkeep.nextSummary, upkeep.forgetAt, reloads.keepingEnd,
        options.watch?.checkAt, observation?.deadline,
        page.pollAt, stopping.saysLeftAt, reloads.readingEnd, closingEnd, checkEnd,
      ]
    let deadline = deadlines.compactMap { $0 }.min()
    var entries = [
      pollfd(fd: signals.descriptor, events: Int16(POLLIN), revents: 0),
      pollfd(fd: mailbox.wake.descriptor, events: Int16(POLLIN), revents: 0),
      pollfd(fd: upkeep.clockWatch, events: Int16(POLLIN), revents: 0),
      pollfd(fd: options.watch?.descriptor ?? -1, events: Int16(POLLIN), revents: 0),
      pollfd(fd: servesControl ? -1 : options.control?.descriptor ?? -1, events: Int16(POLLIN), revents: 0),
    ]
    var timeout: Int32 = -1
    if let deadline {
      let left = max(0, (deadline - now).nanoseconds)
      timeout = Int32(clamping: (left + 999_999) / 1_000_000)
    }
    _ = poll(&entries, nfds_t(entries.count), timeout)
    mailbox.wake.clear()
    if entries[2].revents != 0, rx_clock_was_set(upkeep.clockWatch) {
      for slot in slots { slot.run?.clockWasSet() }
    }
    if entries[3].revents != 0 { options.watch?.noteEvent(at: now) }
    if entries[4].revents != 0 { serveControl() }
  }

  func take(_ message: Message) {
    switch message {
    case .heldBack: upkeep.nextSummary = log.summarize()
    case .request(let request): ControlRoom.answer(request, self)
    case .observed(let number): observed(number)
    case .sized(let number, let lags): sized(number, lags)
    case .snapshot(let id, let state): if let (slot, run) = runs[id] { tryOut(slot, run, state) }
    case .left(let id, let left): if let (slot, _) = runs[id] { report(left, of: slot) }
    case .tapClosed(let tap): endTap(tap)
    case .pageClosed(let reader): page.remove(reader)
    case .checked(let number, let found): checked(number, found)
    case .leftBehind(let number, let left): take(left, number)
    case .closed(let number): closingStores.removeAll { $0.number == number }
    case .report(let id, let report):
      guard let (slot, run) = runs[id] else { return }
      switch report {
      case .launched:
        decide(slot, run)
        slot.hasLaunched = true
        slot.restarts.mayCheck = true
        slot.saved = nil
        slot.isMoved = false
        slot.previous = nil
        if options.isDaemon { logger.debug("started", metadata: ["pipeline": "\(slot.name)"]) }
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
        slot.saved = state.isInStore ? nil : state
        slot.isMoved = true
        // If this store lacks the state, another run stores it and then ends at once.
        if isStopping || slot.isLeaving, slot.store == nil || state.unsaved > 0 {
          flush(slot)
        } else {
          proceed(slot)
        }
      case .cancelled(let counters, let state):
        release(id, slot, run, counters)
        if let state {
          slot.saved = state.isInStore ? nil : state
        } else {
          slot.loss = "its sinks did not finish within the limit"
        }
        if slot.state == .draining {
          logger.warning(
            "cancelled: it did not finish within the limit", metadata: ["pipeline": "\(slot.name)"])
        }
        proceed(slot)
      }
    }
  }

  /// Handles everything that is due; returns an exit status if the process must end at once.
  func passTime() -> Int32? {
    let now = now
    if let deadline = stopping.deadline, now >= deadline {
      if stopping.isCancelling { return abort() }
      // Sinks get another second to write.
      stopping.isCancelling = true
      hasFailed = true
      stopping.deadline = now + .seconds(1)
      for slot in slots { cancel(slot) }
    }
    if let watch = options.watch, let at = watch.checkAt, now >= at, watch.check(at: now), !isStopping {
      logger.debug("files have changed")
      reloadAll()
    }
    for slot in slots {
      if let at = slot.restarts.at, now >= at {
        slot.restarts.at = nil
        launch(slot)
      }
      if let at = slot.restarts.checkAt, now >= at { checkAgain(slot) }
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
    if let at = closingEnd, now >= at { endClosing(at: now) }
    if let at = checkEnd, now >= at { endWaitForCheck() }
    for slot in slots where slot.awaitsStore && slot.run == nil && slot.state != .over && !mustWait(slot) {
      launch(slot)
    }
    upkeep.watchdog?.feed(at: now, loops, logger)
    if let at = upkeep.nextSummary, now >= at { upkeep.nextSummary = log.summarize() }
    if let at = reloads.keepingEnd, now >= at { endKeeping() }
    if let at = observation?.deadline, now >= at { endObservation() }
    if let at = reloads.readingEnd, now >= at { endReading() }
    if let at = page.pollAt, now >= at { pollForPage() }
    if let at = stopping.saysLeftAt, now >= at { askForLeft() }
    if let at = upkeep.forgetAt, now >= at {
      upkeep.forgetAt = nil
      // Reading and compiling files has loaded pages of the program that are not needed any more.
      rx_forget_program_text()
    }
    return nil
  }

  // MARK: Life of a pipeline

  func add(_ result: PipelineLoader.Loaded) {
    if let version = result.version { slots.append(PipelineSlot(path: result.path, version)) }
    if slots.count > 1 { log.hasSeveral.store(true, ordering: .relaxed) }
  }

  /// Starts loops for `count` pipelines, at most one for each core.
  func balance(_ count: Int) {
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

  func launch(_ slot: PipelineSlot) {
    balance(slots.count)
    shareWhyMemory()
    slot.restarts.checkAt = nil
    slot.hasLaunched = false
    slot.isHeldUp = false
    guard let loop = loops.min(by: { $0.load < $1.load }) else { return }
    // If no state is in memory, the last commit has it.
    if slot.saved == nil, slot.plan.delivery(hasStateDirectory: true) != .bestEffort { closeStore(slot) }
    slot.awaitsStore = mustWait(slot)
    if slot.awaitsStore {
      slot.state = .running
      return
    }
    var services = services
    services.writeLog(of: slot.index, to: log)
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
      slot.plan, loop: loop, services: services, restoring: slot.saved, values: slot.current.values,
      isMoved: slot.isMoved, isRestarted: options.isDaemon, delivery: delivery, placement: options.placement)
    slot.run = run
    slot.mayHaveAddress = false
    if slot.saved != nil { slot.loss = nil }
    slot.state = .running
    slot.startedAt = now
    let id = nextRun
    nextRun += 1
    runs[id] = (slot, run)
    let post = poster()
    slot.report = { post(.report(id, $0)) }
    let (attachTaps, stopped) = (tapAttachment, options.whyMemory > 0 ? slot.stopped : nil)
    let trial = options.trial
    run.prepare = { execution in
      trial.prepare(execution)
      if let stopped { execution.keep(in: stopped) }
      attachTaps(execution)
    }
    run.start { post(.report(id, $0)) }
  }

  func release(
    _ id: Int, _ slot: PipelineSlot, _ run: PipelineLaunch, _ counters: Execution.Counters
  ) {
    runs[id] = nil
    run.retire()
    slot.run = nil
    leaveAddresses(of: run)
    slot.drainDeadline = nil
    slot.isSuspending = false
    slot.isTrying = false
    slot.count(counters)
    guard let statistics = run.statistics else { return }
    slot.past.add(statistics, of: run.plan)
    if let form = options.statistics {
      Console.note(StatisticsReport(plan: run.plan, statistics: statistics).text(form))
    }
  }

  func ended(_ slot: PipelineSlot, _ outcome: Execution.Outcome) {
    if case .failed(let failure) = outcome {
      if triesAgain(slot) || goBack(slot, failure) { return }
      let suffix = failure.location.map { " (\($0))" } ?? ""
      slot.failure = PipelineSlot.Failure(reason: "\(failure.message)\(suffix)")
      if options.isDaemon, slot.state != .draining { return startAgain(slot) }
      let message = "failed: \(failure.message)\(suffix)"
      logger.error("\(message)", metadata: ["pipeline": "\(slot.name)"])
      if slot.next == nil { decide(slot, failed: message) }
      slot.hasFailed = true
      if !options.isDaemon || isStopping { hasFailed = true }
    }
    proceed(slot)
  }

  /// Continues after the run of a slot has ended: starts the new version, or removes the slot.
  func proceed(_ slot: PipelineSlot) {
    slot.summarize(log)
    slot.totals = Execution.Counters()
    if let next = slot.next, !isStopping {
      slot.next = nil
      // Only a version that has run is a fallback: two that cannot start would alternate forever.
      if slot.hasLaunched { slot.previous = slot.saved == nil ? nil : slot.current }
      if slot.store != nil, next.plan.name != slot.name { leaveStore(slot, for: next.plan.name) }
      slot.adopt(next)
      launch(slot)
    } else if slot.isLeaving {
      reportWaitingEvents(slot)
      closeStore(slot)
      dropState(slot)
      slots.removeAll { $0 === slot }
    } else {
      closeStore(slot)
      slot.state = .over
      reportStatus()
    }
  }

  /// Runs a suspended pipeline once more at the final stop, so that the events that its operators hold are sent.
  func flush(_ slot: PipelineSlot) {
    slot.next = nil
    launch(slot)
    drain(slot, within: stopping.deadline.map { $0 - now } ?? options.drainLimit)
  }

  func drain(_ slot: PipelineSlot, within limit: TimeSpan) {
    slot.restarts.at = nil
    slot.restarts.checkAt = nil
    guard let run = slot.run else {
      proceed(slot)
      return
    }
    guard slot.state != .draining else { return }
    slot.state = .draining
    if slot.store != nil {
      slot.isSuspending = true
      slot.drainDeadline = now + min(limit, Self.answerLimit)
      run.suspend(for: slot.plan, isReload: false)
    } else {
      slot.drainDeadline = now + limit
      run.drain()
    }
  }

  /// How long a reload waits for answers to clients.
  static let answerLimit = TimeSpan.seconds(10)
  /// How long a reload then waits for sinks to write.
  static let closingLimit = TimeSpan.seconds(5)

  func cancel(_ slot: PipelineSlot) {
    if let run = slot.run, let report = slot.report { run.cancel(report) }
  }

  static func shown(_ span: TimeSpan) -> String {
    "\(TimeSpan.milliseconds(max(1, span.nanoseconds / 1_000_000)))"
  }

  // MARK: Signals

  func take(signal: Int32) -> Int32? {
    switch signal {
    case SIGHUP:
      if !isStopping { reloadAll() }
    case SIGUSR1:
      logger.notice("\(status)")
    case SIGUSR2: break
    case SIGQUIT: return abort(signal)
    default:
      guard let since = stopping.since else {
        stop()
        break
      }
      if now - since >= Self.patience { return abort(signal) }
    }
    return nil
  }

  func stop() {
    endKeeping()
    stopping.since = now
    stopping.saysLeftAt = now + Self.stopSilence
    stopping.deadline = now + options.drainLimit
    let microseconds = options.drainLimit.nanoseconds / 1000 &+ 5_000_000
    notify?.send("STOPPING=1\nSTATUS=draining\nEXTEND_TIMEOUT_USEC=\(microseconds)")
    logger.debug("draining, within \(options.drainLimit)")
    // A pipeline that cannot be cancelled yet gets the time of the whole stop.
    for slot in slots where slot.state != .over { drain(slot, within: options.drainLimit + .seconds(1)) }
  }

  /// Ends the process without waiting.
  func abort(_ signal: Int32? = nil) -> Int32 {
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

  // MARK: Requests

  /// Closes the listening sockets that no pipeline has taken over.
  func endKeeping() {
    reloads.keepingEnd = nil
    KeptListeners.end()
  }

  /// Starts the network thread, which accepts connections from now on, because the first client connects.
  func serveControl() {
    guard let control = options.control, !servesControl else { return }
    servesControl = true
    let post = poster()
    do throws(HTTPServerFailure) {
      try ControlSocket.serve(control, mostBytes: ControlRoom.mostBytes, notify: noticeLogger("control")) {
        post(.request($0))
      }
    } catch {
      logger.error("\(error.message); 'rxd reload' cannot reach this process")
    }
  }

  /// A closure that logs the notices of a server of the process under the name `component`.
  func noticeLogger(_ component: String) -> @Sendable (HTTPServer.Notice) -> Void {
    let log = log
    return { notice in
      let line = notice.line
      log.write(line.level.logLevel, "", line.text, component: component)
    }
  }

  /// Starts to serve metrics over TCP, if that was requested; false: they cannot be served.
  private func startMetrics() -> Bool {
    guard let metrics = options.metrics else { return true }
    let post = poster()
    do throws(HTTPServerFailure) {
      let port = try metrics.start(notify: noticeLogger("--metrics-listen")) { post(.request($0)) }
      logger.debug("metrics are served on port \(port)")
      return true
    } catch {
      Console.printError("--metrics-listen: \(error.message)")
      return false
    }
  }
}

extension PipelineLoader.Loaded {
  /// The version of a slot; nil if the file has errors.
  var version: PipelineSlot.Version? {
    compiled.plan.map { PipelineSlot.Version(plan: $0, meaning: compiled.meaning, values: values) }
  }
}
