import PipelineCore

/// `interval`: periodic events.
package struct Interval: SourceComponent {
  package var every: TimeSpan?
  package var immediate = false
  package var leeway = TimeSpan.zero
  package var cron: CronParameter?
  package var timezone = "UTC"
  /// Whether to send one tick immediately, then complete.
  private var isSingle = false

  package init() {}

  package static let spec = ComponentSpec<Interval>(
    "interval",
    summary: "Sends an event at a fixed interval, or by a cron schedule.",
    details: """
      The event is `{ tick, time, missed }`: its number, from 1, the time of day, and how many times of the schedule \
      have passed without an event since the last one, as while a laptop slept or, with a state directory, rxd was \
      down. `missed` is 0 in the usual case. After such a time one event comes at once, unless `whenLate` says \
      otherwise, and then the next in the schedule. Intervals are measured on the monotonic clock from the start, so \
      delays do not add up and setting the clock has no effect. A schedule follows the clock of its time zone, with the rules of cron. \
      If it names minutes and hours, each time of day runs once: a time skipped by a change of the clock of up to \
      three hours (the start of summer time, or a clock that is set) runs at the moment of the change, and a \
      repeated time does not run again. A schedule whose minute or hour starts with `*` follows the clock: it skips \
      what the clock skips, and runs in both of two equal hours. After a larger change, the schedule continues from \
      the new time, and what lies between is not missed. `missed` counts at most 100,000 times of a schedule. The \
      source never completes.
      """,
    parameters: [
      .init("every", \.every, primary: true, range: 1_000...Int64.max, "The period."),
      .init("immediate", \.immediate, applies: .with("every"), "Send the first tick at once, not after one interval."),
      .init(
        "leeway", \.leeway, range: 0...Int64.max,
        applies: .with("every"), "How late a tick may be, so that timers can be combined."),
      .init("cron", \.cron, "A schedule: minute, hour, day of month, month, day of week."),
      .init("timezone", \.timezone, applies: .with("cron"), "The time zone of the schedule, an IANA name."),
    ],
    examples: [
      .snippet("each second", "interval: 1s"),
      .snippet("at once and then each minute", "interval: { every: 1m, immediate: true }"),
      .snippet(
        "on weekdays at half past six",
        "interval: { cron: '30 6 * * 1-5', timezone: Europe/Berlin }"),
    ],
    edges: EdgeCases(empty: "", error: "", completion: "Never.", disposal: "Frees its timer."),
    persistence: .state(version: 2),
    lateness: .leavesOut("Ticks that were due are left out; the next one has their number in `missed`.") {
      interval, value in
      value == .resume && interval.cron != nil ? "a schedule follows the clock on the wall" : nil
    }, knownAs: ["RxJS interval", "Benthos generate", "Tremor metronome, crononome"],
    useCases: [
      .init(.reading, "do something every ten seconds", "interval: 10s"),
      .init(.reading, "do something at a time of day", "interval: { cron: '0 6 * * *', timezone: Europe/Berlin }"),
    ],
    seeAlso: ["http", "values"])

  package func validate(_ context: inout DecodingContext) {
    if (every == nil) == (cron == nil) {
      context.badValue(
        at: context.location,
        every == nil ? "'interval' needs 'every' or 'cron'" : "'interval' has both 'every' and 'cron'",
        .conflictingParameters, help: "Write 'interval: 1s' or 'interval: { cron: \"*/5 * * * *\" }'")
    }
    if cron != nil, !CronSchedule.isTimeZone(timezone) {
      context.badValue(
        at: context.location, "there is no time zone '\(timezone)'",
        help: "Use a name such as Europe/Berlin or UTC")
    }
  }

  package var outputType: EventType {
    EventType(
      .object(fields: [.init("tick", .int), .init("time", .timestamp), .init("missed", .int)], open: false))
  }

  package var runsOnVirtualTime: Bool { true }

  package var once: (any SourceComponent)? {
    var once = self
    once.isSingle = true
    return once
  }

  package var recovery: SourceRecovery { .made }

  package var pace: EventPace? { every.map { .every($0) } }

  package func makeSource(_ nodeContext: NodeContext, downstream: Downstream) -> RunningSource {
    Node(self, nodeContext, downstream)
  }

  final class Node: RunningSource {
    private let parameters: Interval
    private var start = Instant(nanoseconds: 0)
    private var tick: Int64 = 0
    /// The number of ticks so far. A past tick never occurs again, so a saved state always has the position of the
    /// ticks that have been sent.
    private let ticks = PositionLedger<Int64>(0)
    private var timer = Wake.none
    /// Without a schedule: the number of periods since `start`, with or without an event.
    private var passed: Int64 = 0
    /// The number of due times without an event since the last event.
    private var missed: Int64 = 0
    /// With a schedule: the wall-clock second that the timer waits for.
    private var scheduled: Int64 = 0
    /// With a schedule: the readings of both clocks at the last check.
    private var seen = (instant: Instant(nanoseconds: 0), wallTime: Int64(0))

    init(_ parameters: Interval, _ nodeContext: NodeContext, _ downstream: Downstream) {
      self.parameters = parameters
      super.init(nodeContext, downstream: downstream)
    }

    override var isEndless: Bool { !parameters.isSingle }

    override func begin() {
      start = now
      if parameters.isSingle {
        send()
        return finish()
      }
      if let cron = parameters.cron {
        watchClock()
        follow(cron.schedule, after: executor.wallTime)
        return
      }
      schedule()
      if parameters.immediate { send() }
    }

    private func schedule() {
      guard let every = parameters.every else { return }
      let periods = (now - start).nanoseconds / every.nanoseconds
      let due = start + TimeSpan(nanoseconds: every.nanoseconds &* (periods &+ 1))
      timer = wake(at: late(due))
    }

    /// With leeway, a deadline is moved to the next multiple of the leeway, so that timers coincide.
    private func late(_ due: Instant) -> Instant {
      let leeway = parameters.leeway.nanoseconds
      guard leeway > 0 else { return due }
      let rest = due.nanoseconds % leeway
      return rest == 0 ? due : due + TimeSpan(nanoseconds: leeway - rest)
    }

    /// Waits for the schedule's next time after `wallTime`.
    private func follow(_ schedule: CronSchedule, after wallTime: Int64) {
      guard let next = schedule.next(after: wallTime, in: parameters.timezone) else {
        finish()
        return
      }
      scheduled = next
      wait()
    }

    /// Waits for at most a minute: the clock may be set without notice (``clockWasSet()``).
    private func wait() {
      seen = (now, executor.wallTime)
      let span = max(0, scheduled &- executor.wallTime)
      timer = wake(after: TimeSpan(nanoseconds: min(span, 60_000_000_000)))
    }

    override func woke(_ token: Int) {
      timer = .none
      guard let cron = parameters.cron else {
        // The last of the periods is the one that this event is for.
        missed &+= max(0, periods(until: now) - 1)
        schedule()
        send()
        return
      }
      runDue(cron.schedule)
    }

    /// The number of periods since the last call.
    private func periods(until instant: Instant) -> Int64 {
      guard let every = parameters.every else { return 0 }
      let before = passed
      passed = max(before, (instant - start).nanoseconds / every.nanoseconds)
      return passed - before
    }

    override func skipped(_ token: Int, _ late: Lateness) {
      timer = .none
      guard let cron = parameters.cron else {
        missed &+= periods(until: late.restored)
        schedule()
        return
      }
      runDue(cron.schedule, isSkipped: true)
    }

    override func clockWasSet() {
      guard let cron = parameters.cron, timer.isSet else { return }
      cancelWake(&timer)
      runDue(cron.schedule)
    }

    /// A larger change of the clock is treated as a correction; a smaller one may be the start or end of summer time.
    private static let correction: Int64 = 3 * 3600 * 1_000_000_000
    private static let minute: Int64 = 60_000_000_000

    /// The maximum number of times that `missed` counts: counting must not delay the start.
    private static let countLimit: Int64 = 100_000

    /// The number of times of the schedule after `scheduled`, up to and including `wallTime`.
    private func times(of schedule: CronSchedule, until wallTime: Int64) -> Int64 {
      var count: Int64 = 0
      var time = scheduled
      while count < Self.countLimit, let next = schedule.next(after: time, in: parameters.timezone), next <= wallTime {
        count += 1
        time = next
      }
      return count
    }

    /// Sends the events that are due on the current clock, which may have been set since the last check. With
    /// `isSkipped`, nothing is sent.
    private func runDue(_ schedule: CronSchedule, isSkipped: Bool = false) {
      let wallTime = executor.wallTime
      let step = wallTime &- seen.wallTime &- (now - seen.instant).nanoseconds
      if step.magnitude > Self.correction.magnitude {
        follow(schedule, after: wallTime)
      } else if schedule.followsClock, step <= -Self.minute {
        // If the clock is set back, times occur again; a change of less than a minute is ignored.
        follow(schedule, after: wallTime)
      } else if wallTime < scheduled {
        wait()
      } else if schedule.followsClock, step >= Self.minute, wallTime &- scheduled >= 5 &* Self.minute {
        // The clock jumped over the time by more than a delay could explain.
        follow(schedule, after: wallTime)
      } else {
        missed &+= times(of: schedule, until: wallTime) &+ (isSkipped ? 1 : 0)
        follow(schedule, after: max(scheduled, wallTime))
        if !isSkipped { send() }
      }
    }

    private func send() {
      beginPiece(of: ticks) { self.tick }
      tick &+= 1
      let missed = missed
      self.missed = 0
      produce(
        arena.map([
          "tick": .int(tick), "time": .timestamp(wallTime: executor.wallTime), "missed": .int(missed),
        ]), position: tick)
    }

    override func save(_ state: inout StateWriter) {
      state.write(start)
      state.write(tick)
      state.write(scheduled)
      state.write(timer)
      state.write(passed)
      state.write(missed)
    }

    override func restore(_ state: inout StateReader) throws(StateFault) {
      start = try state.read()
      tick = try state.read()
      ticks.reset(to: tick)
      scheduled = try state.read()
      timer = try state.read()
      if state.version > 1 {
        passed = try state.read()
        missed = try state.read()
        guard passed >= 0, missed >= 0 else { throw StateFault("a number of ticks is negative") }
      } else {
        _ = periods(until: state.now)
      }
      if parameters.cron != nil {
        watchClock()
        // If the clock was set back in the meantime, the first check notices it.
        seen = (now, max(executor.wallTime, state.savedAt))
      }
    }

    override func stop() { cancelWake(&timer) }
  }
}

extension Interval {
  package static func savedPositions(_ state: inout StateReader) throws(StateFault) -> [SavedPosition] {
    _ = try state.read(Instant.self)
    return [SavedPosition(offset: try state.read(Int64.self), unit: "ticks")]
  }
}
