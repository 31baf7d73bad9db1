import Testing

@testable import PipelineCore

/// When decoder threads take over the steps that turns apply to a block.
@Suite struct StagePlacementTests {
  /// Nanoseconds of decoding and of the turn, for each of `blocks`.
  private func isWorthIt(_ making: Int64, _ using: Int64, threads: Int, blocks: Int = 100) -> Bool {
    let place = StagePlacement(ParallelStage(branches: []), threads: threads)
    return (0..<2).map { _ in tell(place, making, using, blocks) } == [false, true]
  }

  /// Reports one measured span.
  private func tell(_ place: StagePlacement, _ making: Int64, _ using: Int64, _ blocks: Int) -> Bool {
    for _ in 0..<blocks {
      place.made(in: making)
      place.used(in: using)
    }
    place.decide()
    return place.isBeside
  }

  @Test func whereTurnsOrDecodingTakeMostOfTheTime() {
    #expect(isWorthIt(60_000, 600_000, threads: 2))
    #expect(isWorthIt(600_000, 60_000, threads: 2))
    #expect(!isWorthIt(100_000, 100_000, threads: 2))
    #expect(!isWorthIt(100_000, 150_000, threads: 2))
    #expect(isWorthIt(100_000, 180_000, threads: 2))
    #expect(isWorthIt(100_000, 100_000, threads: 4))
  }

  @Test func neverWithOneThread() { #expect(!isWorthIt(10_000, 900_000, threads: 1)) }

  @Test func notBeforeEnoughIsKnown() {
    #expect(!isWorthIt(0, 900_000, threads: 2, blocks: 7))
    #expect(!isWorthIt(0, 10_000, threads: 2, blocks: 50))
  }

  @Test func twoSpansMustAgree() {
    let place = StagePlacement(ParallelStage(branches: []), threads: 2)
    #expect(!tell(place, 100_000, 900_000, 10))
    #expect(!tell(place, 500_000, 500_000, 10))
    #expect(!tell(place, 100_000, 900_000, 10))
    #expect(tell(place, 100_000, 900_000, 10))
    // The placement does not change.
    #expect(tell(place, 500_000, 500_000, 10))
  }
}
