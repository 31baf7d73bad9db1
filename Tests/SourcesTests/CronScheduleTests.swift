import Foundation
import PipelineCore
import Testing

@Suite struct CronScheduleTests {
  private func seconds(_ text: String) throws -> Int64 {
    Int64(try #require(ISO8601DateFormatter().date(from: text)).timeIntervalSince1970)
  }

  private func text(_ nanoseconds: Int64?) -> String? {
    nanoseconds.map {
      ISO8601DateFormatter().string(from: Date(timeIntervalSince1970: Double($0 / 1_000_000_000)))
    }
  }

  /// The first `count` times after `start`.
  private func times(_ cron: String, _ zone: String, after start: String, _ count: Int) throws -> [String] {
    let schedule = try CronSchedule(cron)
    var time = try seconds(start) * 1_000_000_000
    var found: [String] = []
    for _ in 0..<count {
      guard let next = schedule.next(after: time, in: zone), let shown = text(next) else { break }
      #expect(next > time)
      time = next
      found.append(shown)
    }
    return found
  }

  @Test(arguments: [
    ("@hourly", "2026-05-05T11:00:00Z"), ("@daily", "2026-05-06T00:00:00Z"),
    ("@midnight", "2026-05-06T00:00:00Z"), ("@WEEKLY", "2026-05-10T00:00:00Z"),
    ("@monthly", "2026-06-01T00:00:00Z"), ("@yearly", "2027-01-01T00:00:00Z"),
    ("@annually", "2027-01-01T00:00:00Z"),
    ("* * * * *", "2026-05-05T10:18:00Z"), ("*/20 * * * *", "2026-05-05T10:20:00Z"),
    ("5,50 10 * * *", "2026-05-05T10:50:00Z"), ("0 9-11 * * *", "2026-05-05T11:00:00Z"),
    ("0 0 * jan *", "2027-01-01T00:00:00Z"), ("0 0 * * FRI", "2026-05-08T00:00:00Z"),
    ("0 0 * * 7", "2026-05-10T00:00:00Z"), ("0 0 * * 0", "2026-05-10T00:00:00Z"),
    ("0 0 * * 5-7", "2026-05-08T00:00:00Z"), ("10-30/10 * * * *", "2026-05-05T10:20:00Z"),
    ("0 4/8 * * *", "2026-05-05T12:00:00Z"), ("0  0   1 1 *", "2027-01-01T00:00:00Z"),
  ])
  func understands(_ cron: String, _ next: String) throws {
    #expect(try times(cron, "UTC", after: "2026-05-05T10:17:30Z", 1) == [next])
  }

  @Test(arguments: [
    "", "* * * *", "* * * * * *", "60 * * * *", "* 24 * * *", "* * 0 * *", "* * 32 * *", "* * * 13 *",
    "* * * * 8", "*/0 * * * *", "*/x * * * *", "5-1 * * * *", "1- * * * *", "-1 * * * *", ", * * * *",
    "1,,2 * * * *", "1/2/3 * * * *", "x * * * *", "@reboot", "@fortnightly", "* * * foo *", "+1 * * * *",
    "1.5 * * * *", "99999999999999999999 * * * *", "0 0 31 4 *", "0 0 30 2 *", "0 0 31 2,4,6,9,11 *",
    "١ * * * *",
  ])
  func refuses(_ cron: String) {
    #expect(throws: CronSchedule.Mistake.self) { try CronSchedule(cron) }
  }

  @Test func eitherDaySufficesWhereBothAreRestricted() throws {
    // The 13th or any Friday.
    #expect(
      try times("0 0 13 * 5", "UTC", after: "2026-05-01T12:00:00Z", 4) == [
        "2026-05-08T00:00:00Z", "2026-05-13T00:00:00Z", "2026-05-15T00:00:00Z", "2026-05-22T00:00:00Z",
      ])
  }

  @Test func aStarWithAStepDoesNotRestrict() throws {
    // As in Vixie's cron: every odd day that is a Monday.
    #expect(
      try times("0 0 */2 * 1", "UTC", after: "2026-05-01T12:00:00Z", 3) == [
        "2026-05-11T00:00:00Z", "2026-05-25T00:00:00Z", "2026-06-01T00:00:00Z",
      ])
  }

  @Test func theLeapDay() throws {
    #expect(
      try times("0 0 29 2 *", "UTC", after: "2026-01-01T00:00:00Z", 3) == [
        "2028-02-29T00:00:00Z", "2032-02-29T00:00:00Z", "2036-02-29T00:00:00Z",
      ])
    // 2100 is not a leap year.
    #expect(try times("0 0 29 2 *", "UTC", after: "2096-03-01T00:00:00Z", 1) == ["2104-02-29T00:00:00Z"])
  }

  @Test(arguments: [
    ("Europe/Berlin", "2026-03-28T12:00:00Z", ["2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z"]),
    ("Europe/Berlin", "2026-10-24T12:00:00Z", ["2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"]),
    ("America/New_York", "2026-03-07T12:00:00Z", ["2026-03-08T07:00:00Z", "2026-03-09T06:30:00Z"]),
    ("America/New_York", "2026-10-31T12:00:00Z", ["2026-11-01T07:30:00Z", "2026-11-02T07:30:00Z"]),
  ])
  func halfPastTwoComesOnce(_ zone: String, _ start: String, _ expected: [String]) throws {
    #expect(try times("30 2 * * *", zone, after: start, 2) == expected)
  }

  @Test func aRepeatedTimeRunsTheFirstTime() throws {
    #expect(
      try times("30 1 * * *", "America/New_York", after: "2026-10-31T12:00:00Z", 2) == [
        "2026-11-01T05:30:00Z", "2026-11-02T06:30:00Z",
      ])
  }

  @Test func severalSkippedTimesRunOnce() throws {
    #expect(
      try times("0,15,30,45 2 * * *", "Europe/Berlin", after: "2026-03-28T12:00:00Z", 2) == [
        "2026-03-29T01:00:00Z", "2026-03-30T00:00:00Z",
      ])
  }

  @Test(arguments: [
    ("Europe/Berlin", "2026-03-28T22:00:00Z"), ("Europe/Berlin", "2026-10-24T22:00:00Z"),
    ("America/New_York", "2026-03-08T03:00:00Z"), ("America/New_York", "2026-11-01T02:00:00Z"),
  ])
  func everyFiveMinutesContinuesThroughTheChange(_ zone: String, _ start: String) throws {
    let begin = try seconds(start)
    let expected = (1...96).map { text((begin + Int64($0) * 300) * 1_000_000_000) ?? "" }
    #expect(try times("*/5 * * * *", zone, after: start, 96) == expected)
  }

  /// The rule of cron: a schedule with fixed hours runs a repeated hour once, one with `*` follows the clock.
  @Test func aRepeatedHourIsRunOnceWhereHoursAreNamed() throws {
    let named = "0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23"
    for hours in [named, "0-23", "0/1"] {
      #expect(
        try times("30 \(hours) * * *", "Europe/Berlin", after: "2026-10-24T23:45:00Z", 3) == [
          "2026-10-25T00:30:00Z", "2026-10-25T02:30:00Z", "2026-10-25T03:30:00Z",
        ], "\(hours)")
    }
    #expect(
      try times("30 * * * *", "Europe/Berlin", after: "2026-10-24T23:45:00Z", 3) == [
        "2026-10-25T00:30:00Z", "2026-10-25T01:30:00Z", "2026-10-25T02:30:00Z",
      ])
    #expect(
      try times("*/30 2 * * *", "Europe/Berlin", after: "2026-10-24T23:45:00Z", 5) == [
        "2026-10-25T00:00:00Z", "2026-10-25T00:30:00Z", "2026-10-25T01:00:00Z", "2026-10-25T01:30:00Z",
        "2026-10-26T01:00:00Z",
      ])
  }

  @Test func aZoneThatSkipsMidnight() throws {
    // In Santiago, clocks go forward at midnight of 2026-09-06.
    #expect(
      try times("@daily", "America/Santiago", after: "2026-09-05T12:00:00Z", 2) == [
        "2026-09-06T04:00:00Z", "2026-09-07T03:00:00Z",
      ])
  }

  @Test func halfHoursAreFollowed() throws {
    #expect(try times("0 9 * * *", "+05:30", after: "2026-01-01T00:00:00Z", 1) == ["2026-01-01T03:30:00Z"])
    // Lord Howe changes by half an hour: from 02:00 to 02:30 on 2026-10-04.
    #expect(
      try times("15 2 * * *", "Australia/Lord_Howe", after: "2026-10-03T12:00:00Z", 2) == [
        "2026-10-03T15:30:00Z", "2026-10-04T15:15:00Z",
      ])
  }

  @Test func timesBefore1970() throws {
    #expect(
      try times("@daily", "UTC", after: "1969-06-15T12:00:00Z", 2) == [
        "1969-06-16T00:00:00Z", "1969-06-17T00:00:00Z",
      ])
  }
}
