import PipelineTestSupport
import Testing

@testable import PipelineCore

@Suite struct KeptEventsTests {
  private func text(_ bytes: UnsafeRawBufferPointer) -> String { String(decoding: bytes, as: UTF8.self) }

  /// Texts of any length, origins with no other owner, turns that end at any time: compared with a list of all events.
  @Test(arguments: 0..<30) func everyEventIsWhatItWas(_ seed: UInt64) {
    var dice = SplitMix(seed &* 31 &+ 7)
    let arena = Arena()
    let kept = KeptEvents()
    let key = OwnedValue(Value.literal("k"))
    var model: [(payload: String, source: String, number: Int)] = []
    /// The events removed in this turn.
    var removed: [(event: Event, seen: Value, payload: String)] = []
    var number = 0
    func expectSame(_ event: Event, _ seen: Value, _ payload: String) {
      #expect(text(event.value.rawBytes) == "{\"k\":\"\(payload)\"}")
      #expect(seen.is(.map) && seen.length == 1)
      if seen.is(.map), let first = seen.entries.first { #expect(text(first.value.rawBytes) == payload) }
    }
    for _ in 0..<400 {
      switch dice.below(10) {
      case 0..<5:
        // Some runs fill chunks of the maximum size.
        let size = seed > 24 ? dice.below(200_000) : dice.below(8) == 0 ? dice.below(20_000) : dice.below(300)
        let payload = String(repeating: String(number % 10), count: Int(size))
        let json = Array("{\"k\":\"\(payload)\"}".utf8)
        let source = "s\(number / 7)"
        json.withUnsafeBytes { bytes in
          let value = Value(kind: .jsonMap, pointer: bytes.baseAddress, length: bytes.count)
          let part = UnsafeRawBufferPointer(rebasing: bytes[6..<6 + payload.utf8.count])
          let seen = arena.map([(key: key.value, value: Value.string(part))])
          let origin = Origin(source: source)
          _ = withExtendedLifetime(origin) {
            kept.append(
              Event(value, key: .int(number), origin: origin, position: Int64(number)), seen: seen,
              due: Instant(nanoseconds: Int64(number)), number: number, isMatched: false, arena)
          }
        }
        model.append((payload, source, number))
        number += 1
      case 5..<9:
        guard let first = kept.first else { continue }
        kept.removeFirst(keeping: arena)
        removed.append((first.pointee.event, first.pointee.seen, model.removeFirst().payload))
      default:
        for one in removed { expectSame(one.event, one.seen, one.payload) }
        removed = []
        arena.reset()
      }
      #expect(kept.count == model.count)
    }
    let all = kept.all
    #expect(all.map { Int($0.pointee.number) } == model.map(\.number))
    for (record, expected) in zip(all, model) {
      let event = record.pointee.event
      expectSame(event, record.pointee.seen, expected.payload)
      #expect(event.origin.takeUnretainedValue().source == expected.source)
      #expect(event.position == Int64(expected.number) && event.key.asInt == Int64(expected.number))
    }
    for one in removed { expectSame(one.event, one.seen, one.payload) }
    kept.removeAll(keeping: arena)
    #expect(kept.count == 0 && kept.first == nil)
    arena.reset()
  }

  /// A seen value that is not a part of the event's text could be freed with the turn: then the event itself is used.
  @Test func onlyPartsOfTheTextAreSeen() {
    let arena = Arena()
    let kept = KeptEvents()
    let json = Array("{\"k\":\"abc\"}".utf8)
    let key = OwnedValue(Value.literal("k"))
    json.withUnsafeBytes { bytes in
      let value = Value(kind: .jsonMap, pointer: bytes.baseAddress, length: bytes.count)
      let seen = arena.map([(key: key.value, value: arena.string("abc"))])
      let record = kept.append(
        Event(value), seen: seen, due: .distantFuture, number: 0, isMatched: false, arena)
      #expect(record.pointee.seen.is(.jsonMap))
      #expect(text(record.pointee.seen.rawBytes) == "{\"k\":\"abc\"}")
    }
  }
}
