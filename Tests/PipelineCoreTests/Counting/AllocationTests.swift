import Measuring
import Testing

/// In steady state an event costs no allocation. Whole graphs allocate in a debug build; for them this is asserted
/// only in the release build, by `measure --count` (see `ReleaseAllocationTests`).
@Suite struct AllocationTests {
  @Test func theCounterCounts() {
    var kept: [[Int]] = []
    let counts = ExpressionLoop.counts(100) { kept.append(Array(repeating: 1, count: 100)) }
    #expect(counts.allocations >= 100)
  }

  @Test(arguments: [
    Workloads.twoTerms, Workloads.sixTerms, Workloads.fourReads, "event.agent.matches('^curl/[0-9.]+$')",
  ])
  func conditions(_ expression: String) throws {
    let loop = try #require(ExpressionLoop(expression, Workloads.event))
    #expect(ExpressionLoop.counts { _ = loop.condition() }.allocations == 0)
    #expect(
      ExpressionLoop.counts {
        loop.fill()
        _ = loop.condition()
      }.allocations == 0)
  }

  /// A function call allocates nothing, and a converted value only memory of the turn.
  @Test(arguments: Workloads.calls.map(\.call)) func calls(_ expression: String) throws {
    let loop = try #require(ExpressionLoop(expression, Workloads.event, functions: Workloads.functions))
    #expect(
      ExpressionLoop.counts {
        loop.fill()
        loop.value()
      }.allocations == 0)
  }

  @Test func anObjectOfFourFields() throws {
    let loop = try #require(ExpressionLoop(Workloads.fourFields, Workloads.event))
    #expect(
      ExpressionLoop.counts {
        loop.fill()
        loop.value()
      }.allocations == 0)
  }

  @Test(arguments: [Workloads.filterChain, Workloads.mapChain, Workloads.longChain])
  func chains(_ text: String) throws {
    let chain = try #require(ChainRun(text))
    #expect(chain.run([Workloads.event], count: 10, turns: 3).received == 30)
    // Without optimization, iterating over the fields of a mapping allocates.
    #if DEBUG
      if text != Workloads.filterChain { return }
    #endif
    #expect(chain.countsPerBatch([Workloads.event]).allocations == 0)
  }
}
