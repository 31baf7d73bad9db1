import PipelineTestSupport
import Testing

@testable import PipelineCore

@Suite struct UnitsTests {
  @Test(
    arguments: [
      ("500ms", 500_000_000), ("1h30m", 5_400_000_000_000), ("2d", 172_800_000_000_000),
      ("1.5s", 1_500_000_000), ("0s", 0), ("1m30s500ms", 90_500_000_000), ("7ns", 7),
      ("3us", 3_000),
      ("0.000000001s", 1), ("36500d", 3_153_600_000_000_000_000),
    ] as [(String, Int64)])
  func durations(_ text: String, _ nanoseconds: Int64) {
    #expect(Units.duration(LocatedText(text)) == .success(TimeSpan(nanoseconds: nanoseconds)))
  }

  @Test(arguments: [
    ("300", "a duration needs a unit", "Write 300ms or 300s"),
    ("0", "a duration needs a unit", "Write 0ms or 0s"),
    ("5sec", "'sec' is not a unit of durations", "Write 's'"),
    ("5min", "'min' is not a unit of durations", "Write 'm'"),
    ("5x", "'x' is not a unit of durations", "The units are d, h, m, s, ms, us, ns"),
    ("-5s", "a duration cannot be negative", "Write for example 300ms, 5s or 1h30m"),
    ("5 s", "the unit follows the number without a space", "Write for example 300ms, 5s or 1h30m"),
    ("", "the duration is empty", "Write for example 300ms, 5s or 1h30m"),
    ("soon", "'soon' is not a duration", "Write for example 300ms, 5s or 1h30m"),
    (
      "1m1h", "the units go from large to small, each once, as in 1h30m",
      "Write for example 300ms, 5s or 1h30m"
    ),
    (
      "1h30", "the number 30 at the end of '1h30' has no unit",
      "Write for example 300ms, 5s or 1h30m"
    ),
    ("36500d1ns", "the duration 36500d1ns is too large: it is at most 36500d", "Write for example 300ms, 5s or 1h30m"),
    ("106752d", "the duration 106752d is too large: it is at most 36500d", "Write for example 300ms, 5s or 1h30m"),
    (
      "99999999999999999999s", "'99999999999999999999s' is not a duration",
      "Write for example 300ms, 5s or 1h30m"
    ),
    ("0.5ns", "0.5ns is not a whole number of nanoseconds", "Write for example 300ms, 5s or 1h30m"),
  ])
  func badDurations(_ text: String, _ message: String, _ help: String) {
    let failure = Units.duration(LocatedText(text)).failure
    #expect(failure?.message == message)
    #expect(failure?.help == help)
  }

  @Test(arguments: [
    ("64KiB", 65_536), ("10MB", 10_000_000), ("1GiB", 1 << 30), ("2TiB", 1 << 41),
    ("1TB", 1_000_000_000_000), ("512B", 512),
    ("1.5MiB", 1_572_864),
    ("3kB", 3_000),
  ])
  func sizes(_ text: String, _ bytes: Int) {
    #expect(Units.size(LocatedText(text)) == .success(bytes))
  }

  @Test(arguments: [
    ("64", "Write 64KiB or 64MiB"), ("64K", "Write 'KiB'"), ("1KB", "Write 'kB'"),
    ("1MiB2B", "Write for example 512B, 64KiB or 10MB"),
    ("9999999999GiB", "Write for example 512B, 64KiB or 10MB"),
  ])
  func badSizes(_ text: String, _ help: String) {
    #expect(Units.size(LocatedText(text)).failure?.help == help)
  }

  @Test func aBadUnitIsPointedAt() {
    let location = Units.duration(LocatedText("1h30mins")).failure?.location
    #expect(location?.column == 5)
    #expect(location?.length == 4)
  }

  /// No text may trap.
  @Test func randomTexts() {
    var random = SplitMix(7)
    let letters = Array("0123456789.hmsdKMGiBn -".utf8)
    for _ in 0..<20_000 {
      let text = (0..<Int.random(in: 0...12, using: &random)).map { _ in
        letters.randomElement(using: &random) ?? 0
      }
      let written = LocatedText(String(decoding: text, as: UTF8.self))
      if case .success(let span) = Units.duration(written) { #expect(span >= .zero) }
      if case .success(let size) = Units.size(written) { #expect(size >= 0) }
    }
  }
}
