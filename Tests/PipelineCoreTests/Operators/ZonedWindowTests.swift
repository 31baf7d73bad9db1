import PipelineTestSupport
import Testing

@testable import PipelineCore
@testable import PipelineTesting

/// Windows of one day in a time zone.
@Suite struct ZonedWindowTests {
  private static func instant(_ text: String) throws -> Int64 { try #require(TimeText.nanoseconds(rfc3339: text)) }

  private func spans(_ zone: String, _ from: String, _ count: Int, days: Int64 = 1) throws -> [String] {
    let grid = ZonedDays(count: days, in: zone)
    var time = try Self.instant(from)
    return (0..<count).map { _ in
      let span = grid.span(of: time)
      time = span.end
      return "\(TimeText.rfc3339(seconds: span.start / 1_000_000_000)) \((span.end - span.start) / 3_600_000_000_000)"
    }
  }

  @Test func daysHaveTheHoursOfTheirZone() throws {
    #expect(
      try spans("Europe/Berlin", "2026-03-28T12:00:00Z", 3) == [
        "2026-03-27T23:00:00Z 24", "2026-03-28T23:00:00Z 23", "2026-03-29T22:00:00Z 24",
      ])
    #expect(
      try spans("Europe/Berlin", "2026-10-24T21:59:59Z", 3) == [
        "2026-10-23T22:00:00Z 24", "2026-10-24T22:00:00Z 25", "2026-10-25T23:00:00Z 24",
      ])
    // Clocks changed at midnight: one day began at one o'clock, and the last hour of another occurred twice.
    #expect(
      try spans("America/Sao_Paulo", "2018-11-03T12:00:00Z", 2) == [
        "2018-11-03T03:00:00Z 24", "2018-11-04T03:00:00Z 23",
      ])
    #expect(
      try spans("America/Sao_Paulo", "2018-02-17T12:00:00Z", 2) == [
        "2018-02-17T02:00:00Z 25", "2018-02-18T03:00:00Z 24",
      ])
    // There was no 30 December.
    #expect(
      try spans("Pacific/Apia", "2011-12-29T12:00:00Z", 2) == [
        "2011-12-29T10:00:00Z 24", "2011-12-30T10:00:00Z 24",
      ])
    #expect(try spans("UTC", "1969-12-31T23:00:00Z", 2, days: 7).first == "1969-12-25T00:00:00Z 168")
    #expect(try spans("+05:30", "2026-01-01T00:00:00Z", 1) == ["2025-12-31T18:30:00Z 24"])
  }

  /// Days follow each other without a gap, whatever the order of times, and all times of a day have one date, except for a repeated
  /// hour.
  @Test(
    arguments: ["Europe/Berlin", "America/Sao_Paulo", "Pacific/Apia", "Asia/Kathmandu", "Africa/Casablanca", "UTC"],
    [1, 7] as [Int64])
  func everyTimeIsInOneSpan(_ zone: String, _ days: Int64) throws {
    var random = SplitMix(7)
    let grid = ZonedDays(count: days, in: zone)
    let (from, to) = (try Self.instant("1990-01-01T00:00:00Z"), try Self.instant("2040-01-01T00:00:00Z"))
    for _ in 0..<2000 {
      let time = from + Int64(random.below(Int(to - from)))
      let span = grid.span(of: time)
      #expect(span.start <= time && time < span.end)
      for edge in [span.start, span.end - 1] { #expect(ZonedDays(count: days, in: zone).span(of: edge) == span) }
      #expect(ZonedDays(count: days, in: zone).span(of: span.end).start == span.end)
      // Samoa skipped a day.
      let change: Int64 = zone == "Pacific/Apia" ? 86_400_000_000_000 : 3_600_000_000_000
      #expect(abs(span.end - span.start - days * 86_400_000_000_000) <= change, "\(time)")
      func date(_ time: Int64) -> Int64 {
        let seconds = Calendar.floor(time, 1_000_000_000).quotient
        let date = Calendar.floor(seconds + (TimeZones.offset(of: zone, at: seconds) ?? 0), 86_400).quotient
        return Calendar.floor(date, days).quotient
      }
      #expect(
        date(time) == date(span.start)
          || date(time) == date(span.start) - 1 && date(time - 3_600_000_000_000) == date(time))
    }
  }

  private static let times = [
    "2026-03-28T22:59:59Z", "2026-03-28T23:00:00Z", "2026-03-29T21:30:00Z", "2026-03-29T22:00:00Z",
    "2026-03-30T21:59:59Z",
    "2026-10-24T22:00:00Z", "2026-10-25T22:59:59Z", "2026-10-25T23:00:00Z",
  ]

  @Test(
    arguments: [
      "aggregate: { day: start, n: count() }", "to: '{\"day\": start, \"n\": size(events)}'",
      "aggregate: { day: start, n: count() }, allowedLateness: 1h",
    ], [false, true])
  func countsPerDay(_ result: String, _ isCut: Bool) throws {
    var options = PipelineRun.Options()
    options.cutAfter = { _ in isCut }
    let run = try PipelineRun(
      """
      name: t
      sources: { a: { scripted: {} } }
      sinks:
        out:
          from: a
          chain: [ { window: { every: 1d, timezone: Europe/Berlin, time: timestamp(event), lateness: 2h, \(result) } } ]
          probe: {}
      """,
      sources: [
        "a": ScriptedSource(
          SignalHistory(
            [1, 0, 3, 2, 4, 6, 5, 7].enumerated().map {
              SignalHistory.Entry(at: .milliseconds(Int64($0.offset)), .next(.text(Self.times[$0.element])))
            } + [SignalHistory.Entry(at: .milliseconds(20), .complete)]
          ).script)
      ], options: options)
    #expect(run.deadLetters == [])
    #expect(
      run.texts["out"] == [
        #"{"day":"2026-03-27T23:00:00Z","n":1}"#, #"{"day":"2026-03-28T23:00:00Z","n":2}"#,
        #"{"day":"2026-03-29T22:00:00Z","n":2}"#, #"{"day":"2026-10-24T22:00:00Z","n":2}"#,
        #"{"day":"2026-10-25T23:00:00Z","n":1}"#,
      ])
    #expect(run.refusals.isEmpty)
  }

  @Test(arguments: [
    ("every: 1d, timezone: Mars/Olympus, time: timestamp(event)", "there is no time zone 'Mars/Olympus'"),
    (
      "every: 1h, timezone: Europe/Berlin, time: timestamp(event)", "'timezone' of 'window' needs 'every' in whole days"
    ),
    (
      "every: 1d, length: 2d, timezone: Europe/Berlin, time: timestamp(event)",
      "'timezone' of 'window' cannot go with 'length'"
    ),
    ("every: 1d, timezone: Europe/Berlin", "'timezone' of 'window' needs event time"),
    ("count: 3, timezone: Europe/Berlin", "'timezone'"),
  ])
  func mistakesAreFound(_ parameters: String, _ message: String) throws {
    do {
      _ = try PipelineRun.compile(
        "sources: { a: { scripted: {} } }\nsinks: { out: { from: a, chain: [ { window: { \(parameters) } } ], probe: {} } }"
      )
      Issue.record("it compiles")
    } catch {
      #expect("\(error)".contains(message), "\(error)")
    }
  }
}
