import PipelineCore
import PipelineRuntime
import PipelineTestSupport
import Testing

/// When a failed pipeline is restarted.
@Suite struct RestartPausesTests {
  /// Tries from a first failure at 0 until the first try at or after `end`; returns all of them.
  private func tries(until end: TimeSpan, _ random: inout SplitMix) -> [Instant] {
    var pauses = RestartPauses()
    var tries = [Instant(nanoseconds: 0)]
    while let last = tries.last, last.nanoseconds < end.nanoseconds, tries.count < 100_000 {
      tries.append(last + pauses.fail(startedAt: last, at: last, random: random.next()))
    }
    return tries
  }

  /// Whenever the cause disappears, the next try is soon, compared with how long the cause lasted.
  @Test(arguments: [50, 400, 4000, 60_000, 3_600_000, 86_400_000]) func aTryComesSoonAfterTheCause(_ lasted: Int64)
    throws
  {
    for seed in 0..<20 {
      var random = SplitMix(UInt64(seed))
      let end = TimeSpan.milliseconds(lasted)
      let late = try #require(tries(until: end, &random).last).nanoseconds - end.nanoseconds
      #expect(late <= max(RestartPauses.shortest.nanoseconds, end.nanoseconds / RestartPauses.share))
      #expect(late <= RestartPauses.longest.nanoseconds)
    }
  }

  /// An hour of failures causes few starts, most of them at its beginning.
  @Test func aLongTroubleCostsFewStarts() {
    var random = SplitMix(7)
    let tries = tries(until: .seconds(3600), &random)
    #expect(tries.count < 250)
    #expect(tries.count { $0.nanoseconds > 600_000_000_000 } < 210)
  }

  @Test func aRunOfAMinuteEndsATrouble() {
    var pauses = RestartPauses()
    var now = Instant(nanoseconds: 0)
    for _ in 0..<80 { now = now + pauses.fail(startedAt: now, at: now, random: 0) }
    #expect(pauses.attempt == 80 && pauses.isLasting)
    let start = now
    now = now + RestartPauses.calm
    #expect(pauses.fail(startedAt: start, at: now, random: .max) <= RestartPauses.shortest)
    #expect(pauses.attempt == 1 && !pauses.isLasting)
  }
}
