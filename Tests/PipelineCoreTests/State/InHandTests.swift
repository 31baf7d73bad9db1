import Testing

@testable import PipelineCore

/// A record of the current event that survives the end of a process; `PoisonTests` use real processes.
@Suite struct InHandTests {
  private final class Memory {
    let bytes = UnsafeMutableRawPointer.allocate(byteCount: InHand.byteCount, alignment: 8)
    init() { bytes.initializeMemory(as: UInt8.self, repeating: 0, count: InHand.byteCount) }
    deinit { bytes.deallocate() }
  }

  private func position(_ offset: Int64) -> InHand.Position {
    InHand.Position(source: InHand.hash("in"), input: InHand.hash("in.log"), offset: offset)
  }

  /// Starts a run for each event at which a run ended; nil: ended without one. Returns the events that a further run
  /// refuses.
  private func refused(after ends: [Int64?], _ memory: Memory = Memory()) -> [Int64] {
    for event in ends {
      let run = InHand(memory.bytes, heldBy: memory)
      guard run.isCareful(Instant(nanoseconds: 0)), let event else { continue }
      _ = run.take(position(event))
    }
    let last = InHand(memory.bytes, heldBy: memory)
    return Set(ends.compactMap(\.self)).filter { !last.take(position($0)) }.sorted()
  }

  @Test func threeCarefulRunsWithOneEventRefuseIt() {
    // The first run after a normal end records nothing.
    #expect(refused(after: [7, 7, 7]) == [])
    #expect(refused(after: [7, 7, 7, 7]) == [7])
  }

  /// Kills from outside occasionally hit the same event twice.
  @Test func whatHitsAnotherEventBetweenRefusesNone() {
    #expect(refused(after: [nil, 7, 7, 8, 7, 7, 8, 8]) == [])
    #expect(refused(after: [nil, 7, 7, nil, 7, 7]) == [])
    #expect(refused(after: [nil, 7, 8, 8, 8]) == [8])
  }

  @Test func refusedEventsStayRefused() {
    let memory = Memory()
    #expect(refused(after: [nil, 7, 7, 7], memory) == [7])
    #expect(refused(after: [8, 8, 8, 7], memory) == [7, 8])
  }

  /// The end of a turn and a normal end remove the record.
  @Test func notesAreTakenBack() {
    let memory = Memory()
    for _ in 0..<5 {
      let run = InHand(memory.bytes, heldBy: memory)
      _ = run.isCareful(Instant(nanoseconds: 0))
      #expect(run.take(position(7)))
      run.turnEnded()
    }
    for _ in 0..<5 {
      let run = InHand(memory.bytes, heldBy: memory)
      _ = run.isCareful(Instant(nanoseconds: 0))
      #expect(run.take(position(7)))
      run.close()
    }
    #expect(InHand(memory.bytes, heldBy: memory).take(position(7)))
  }
}
