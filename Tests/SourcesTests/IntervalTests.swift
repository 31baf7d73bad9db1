import Foundation
import PipelineCore
import PipelineHost
import Testing

@Suite struct IntervalTests {
  private func pipeline(
    _ parameters: String, map: String = "event.tick", wallTime: Int64 = 1_767_225_600
  ) throws -> VirtualPipeline {
    try VirtualPipeline(
      """
      sources:
        clock:
          interval: \(parameters)
      signals:
        ticks:
          from: clock
          chain:
            - map: "\(map)"
      sinks:
        out: { from: ticks, probe: {} }
      """, wallTime: wallTime)
  }

  @Test func theFirstTickComesAfterOnePeriod() throws {
    let ticking = try pipeline("1s")
    ticking.run(until: .milliseconds(3500))
    #expect(ticking.out == ["1s 1", "2s 2", "3s 3"])
    #expect(ticking.outcome == nil)
  }

  @Test func immediateSendsOneMoreAtOnce() throws {
    let ticking = try pipeline("{ every: 1m, immediate: true }")
    ticking.run(until: .seconds(121))
    #expect(ticking.out == ["0s 1", "1m 2", "2m 3"])
  }

  @Test func reportsTheTimeOfDay() throws {
    let ticking = try pipeline("1s", map: "string(event.time)")
    ticking.run(until: .seconds(1))
    #expect(ticking.out == [#"1s "2026-01-01T00:00:01Z""#])
  }

  @Test func delaysDoNotAddUpAndMissedTicksAreNotMadeUpFor() throws {
    let ticking = try pipeline("10s")
    ticking.run(until: .seconds(10))
    // The machine sleeps: nothing runs for a while, then everything that is due.
    ticking.time.advance(to: Instant(nanoseconds: TimeSpan.seconds(57).nanoseconds))
    ticking.run(until: .seconds(80))
    #expect(ticking.out == ["10s 1", "57s 2", "1m 3", "1m10s 4", "1m20s 5"])
  }

  @Test func leewayMovesTicksToItsMultiples() throws {
    let ticking = try pipeline("{ every: 1s, leeway: 300ms }")
    ticking.run(until: .seconds(4))
    #expect(ticking.out == ["1s200ms 1", "2s100ms 2", "3s 3"])
  }

  @Test func drainingCompletesAndLeavesNoTimer() throws {
    let ticking = try pipeline("1s")
    ticking.run(until: .milliseconds(1500))
    ticking.drain()
    #expect(ticking.out == ["1s 1", "1s500ms |"])
    #expect(ticking.executor.pendingTimers == 0)
    #expect(ticking.outcome == .completed)
  }

  @Test(arguments: [
    ("{}", "needs 'every' or 'cron'"),
    ("{ every: 1s, cron: '@daily' }", "has both 'every' and 'cron'"),
    ("{ cron: '@daily', timezone: Europe/Atlantis }", "there is no time zone 'Europe/Atlantis'"),
    ("{ cron: '@daily', timezone: ../../etc/passwd }", "there is no time zone"),
    ("0s", "every"),
    ("{ cron: '0 0 30 2 *' }", "never fires"),
    ("{ cron: '61 * * * *' }", "'61' is not a valid minute"),
  ])
  func refuses(_ parameters: String, _ reason: String) {
    let complaints = PipelineText.complaints(
      """
      sources:
        clock:
          interval: \(parameters)
      sinks:
        out: { from: clock, discard: {} }
      """)
    #expect(complaints.count == 1)
    #expect(complaints.first?.contains(reason) == true, "\(complaints)")
    #expect(complaints.first?.hasPrefix("3:") == true, "\(complaints)")
  }

  @Test func followsASchedule() throws {
    // 2026-01-01 is a Thursday.
    let ticking = try pipeline("{ cron: '30 6 * * 1-5' }", map: "string(event.time)")
    ticking.run(until: .seconds(5 * 86_400))
    #expect(
      ticking.probe().events == [
        #""2026-01-01T06:30:00Z""#, #""2026-01-02T06:30:00Z""#, #""2026-01-05T06:30:00Z""#,
      ])
  }

  @Test(arguments: [
    ("Europe/Berlin", "2026-03-28T12:00:00Z", "2026-03-29T01:00:00Z"),
    ("Europe/Berlin", "2026-10-24T12:00:00Z", "2026-10-25T00:30:00Z"),
    ("America/New_York", "2026-03-07T20:00:00Z", "2026-03-08T07:00:00Z"),
    ("America/New_York", "2026-10-31T20:00:00Z", "2026-11-01T07:30:00Z"),
  ])
  func runsOnceInTheNightOfAChange(_ zone: String, _ from: String, _ expected: String) throws {
    let start = try #require(ISO8601DateFormatter().date(from: from))
    let ticking = try pipeline(
      "{ cron: '30 2 * * *', timezone: \(zone) }", map: "string(event.time)",
      wallTime: Int64(start.timeIntervalSince1970))
    ticking.run(until: .seconds(24 * 3600))
    #expect(ticking.probe().events == ["\"\(expected)\""])
  }

  /// Changes the clock at `at` by `step`, with or without a notification.
  private func times(
    _ cron: String, zone: String = "UTC", from: String, at: TimeSpan, step: TimeSpan, until: TimeSpan,
    isReported: Bool = true
  ) throws -> [String] {
    let start = try #require(ISO8601DateFormatter().date(from: from))
    let ticking = try pipeline(
      "{ cron: '\(cron)', timezone: \(zone) }", map: "string(event.time)",
      wallTime: Int64(start.timeIntervalSince1970))
    ticking.run(until: at)
    ticking.time.setClock(by: step)
    if isReported { ticking.inTurn { $0.executor.clockWasSet() } }
    ticking.run(until: until)
    return ticking.probe().timeline.map { String($0.filter { $0 != "\"" }) }
  }

  /// A schedule with `*` follows the changed clock immediately.
  @Test func aClockSetBackDoesNotSilenceTheSchedule() throws {
    let every = try times(
      "*/10 * * * *", from: "2026-01-01T12:00:00Z", at: .seconds(15 * 60), step: .seconds(-3600),
      until: .seconds(35 * 60))
    #expect(
      every == [
        "10m 2026-01-01T12:10:00Z", "20m 2026-01-01T11:20:00Z", "30m 2026-01-01T11:30:00Z",
      ])
    // A change of less than a minute does not matter.
    let little = try times(
      "*/10 * * * *", from: "2026-01-01T12:00:00Z", at: .seconds(600), step: .seconds(-2), until: .seconds(25 * 60))
    #expect(little == ["10m 2026-01-01T12:10:00Z", "20m2s 2026-01-01T12:20:00Z"])
  }

  /// Times of day run once, and a larger change corrects the schedule.
  @Test func aClockSetBackRunsNoTimeOfDayTwice() throws {
    let once = try times(
      "0 12 * * *", from: "2026-01-01T11:00:00Z", at: .seconds(2 * 3600), step: .seconds(-2 * 3600),
      until: .seconds(27 * 3600))
    #expect(once == ["1h 2026-01-01T12:00:00Z", "27h 2026-01-02T12:00:00Z"])
    let corrected = try times(
      "0 12 * * *", from: "2026-01-01T11:00:00Z", at: .seconds(2 * 3600), step: .seconds(-4 * 3600),
      until: .seconds(10 * 3600))
    #expect(corrected == ["1h 2026-01-01T12:00:00Z", "5h 2026-01-01T12:00:00Z"])
  }

  @Test func aClockSetForwardIsNoticedAtOnce() throws {
    // A skipped time runs at the moment of the change.
    let skipped = try times(
      "30 12 * * *", from: "2026-01-01T12:00:00Z", at: .seconds(7), step: .seconds(3600), until: .seconds(60))
    #expect(skipped == ["7s 2026-01-01T13:00:07Z"])
    // A change of more than three hours corrects the schedule.
    let corrected = try times(
      "30 12 * * *", from: "2026-01-01T12:00:00Z", at: .seconds(7), step: .seconds(4 * 3600), until: .seconds(21 * 3600)
    )
    #expect(corrected == ["20h30m 2026-01-02T12:30:00Z"])
    // The time is near: its timer is set again.
    let soon = try times(
      "30 * * * *", from: "2026-01-01T12:00:00Z", at: .seconds(7), step: .seconds(29 * 60), until: .seconds(80))
    #expect(soon == ["1m 2026-01-01T12:30:00Z"])
    let skippedHour = try times(
      "30 * * * *", from: "2026-01-01T12:00:00Z", at: .seconds(7), step: .seconds(3600), until: .seconds(1800))
    #expect(skippedHour == ["30m 2026-01-01T13:30:00Z"])
  }

  /// If the clock change is not reported, it is noticed within a minute.
  @Test func aClockSetWithoutAWordIsNoticedWithinAMinute() throws {
    let silent = try times(
      "*/10 * * * *", from: "2026-01-01T12:00:00Z", at: .seconds(15 * 60), step: .seconds(-3600),
      until: .seconds(25 * 60),
      isReported: false)
    #expect(silent == ["10m 2026-01-01T12:10:00Z", "20m 2026-01-01T11:20:00Z"])
  }

  /// A suspended process is late, but the clock was not changed.
  @Test func whatWasMissedStandingStillIsRunOnce() throws {
    let start = try #require(ISO8601DateFormatter().date(from: "2026-01-01T11:00:00Z"))
    let ticking = try pipeline("{ cron: '0 12-15 * * *' }", wallTime: Int64(start.timeIntervalSince1970))
    ticking.run(until: .seconds(60))
    ticking.time.advance(to: Instant(nanoseconds: TimeSpan.seconds(7 * 3600).nanoseconds))
    ticking.run(until: .seconds(8 * 3600))
    #expect(ticking.out == ["7h 1"])
  }

  @Test func behindATimeThatWasRunTheNextIsADayLater() throws {
    let schedule = try CronSchedule("0 12 * * *")
    let noon: Int64 = 1_767_268_800_000_000_000
    #expect(schedule.next(after: noon, in: "UTC") == noon + 86_400_000_000_000)
    #expect(schedule.next(after: noon - 1, in: "UTC") == noon)
  }
}
