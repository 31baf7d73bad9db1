import Synchronization
import Testing

@testable import PipelineCore

/// Facts of an origin are made into `meta` when they are first read.
struct OriginFactsTests {
  private final class Facts: OriginFacts {
    let byteCount: Int
    let made = Atomic(0)
    init(_ byteCount: Int) { self.byteCount = byteCount }
    var fields: OwnedValue {
      made.wrappingAdd(1, ordering: .relaxed)
      let entries = [Entry(key: .literal("peer"), value: .literal("127.0.0.1:9"))]
      return entries.withUnsafeBufferPointer { OwnedValue(Value(kind: .map, pointer: $0.baseAddress, length: 1)) }
    }
  }

  private func origin(_ facts: Facts) -> Origin {
    Origin(source: "s", path: nil, receivedAt: 0, facts: facts, reply: nil, identity: nil)
  }

  @Test func whatNobodyReadsIsNotMade() {
    let facts = Facts(100)
    _ = origin(facts).with(.event("a")).withoutReply
    #expect(facts.made.load(ordering: .relaxed) == 0)
  }

  @Test func severalReadersShareOneMap() async {
    let facts = Facts(100)
    let origin = origin(facts)
    for _ in 0..<3 { #expect(origin.fields.value.entries.first?.key.rawBytes.elementsEqual("peer".utf8) == true) }
    #expect(facts.made.load(ordering: .relaxed) == 1)
    // Threads that read at once see the same map.
    let other = self.origin(Facts(100))
    let maps = await withTaskGroup { group in
      for _ in 0..<8 { group.addTask { UInt(bitPattern: other.fields.value.entries.baseAddress) } }
      return await group.reduce(into: Set<UInt>()) { $0.insert($1) }
    }
    #expect(maps.count == 1)
  }

  @Test func aNamedEventHasTheFacts() {
    let named = origin(Facts(100)).with(.event("a"))
    #expect(named.fields.value.length == 1)
  }

  /// Events may be kept for days, so a head of many kilobytes must not live as long.
  @Test func largeFactsAreMadeAtOnce() {
    let facts = Facts(1 << 20)
    weak var held: Facts?
    let origin = {
      let large = Facts(1 << 20)
      held = large
      return self.origin(large)
    }()
    #expect(held == nil)
    #expect(origin.fields.value.length == 1)
    _ = self.origin(facts)
    #expect(facts.made.load(ordering: .relaxed) == 1)
  }
}
