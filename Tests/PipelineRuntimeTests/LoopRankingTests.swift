import Testing

@testable import PipelineCore
@testable import PipelineRuntime

/// The members of a loop ordered by key, after changes in any order.
@Suite struct LoopRankingTests {
  @Test func theLeastComesFirst() throws {
    var random = Seeded(state: 7)
    var ranking = LoopRanking(0)
    var other = LoopRanking(1)
    let members = (0..<200).map { _ in LoopMember(Executor(clock: SystemClock.shared), owner: Owner()) }
    // The expected members, in the order of insertion.
    var held: [(key: Int64, member: LoopMember)] = []
    for _ in 0..<5_000 {
      let member = members[Int(random.next() % 200)]
      if let place = held.firstIndex(where: { $0.member === member }) {
        #expect(ranking.has(member) && !other.has(member))
        ranking.remove(member)
        held.remove(at: place)
      } else {
        // Few keys, so that many are equal.
        let key = Int64(random.next() % 20)
        ranking.insert(member, by: key)
        held.append((key, member))
      }
      let least = held.min { $0.key < $1.key }
      #expect(ranking.first?.key == least?.key)
      #expect(ranking.first?.member === least?.member)
    }
    while let first = ranking.first?.member {
      ranking.remove(first)
      other.insert(first, by: 0)
      #expect(!ranking.has(first) && other.has(first))
      held.removeAll { $0.member === first }
    }
    #expect(held.isEmpty)
    withExtendedLifetime(members) {}
  }

  private final class Owner {}

  private struct Seeded {
    var state: UInt64
    mutating func next() -> UInt64 {
      state = state &* 6_364_136_223_846_793_005 &+ 1_442_695_040_888_963_407
      return state >> 33
    }
  }
}
