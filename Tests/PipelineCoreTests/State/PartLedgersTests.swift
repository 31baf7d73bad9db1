import PipelineTestSupport
import Testing

@testable import PipelineCore

/// Positions of parts that are assigned and revoked: what may be committed, in any order of acknowledgements.
@Suite struct PartLedgersTests {
  typealias Epoch = PartLedgers<Int>.Epoch

  /// Takes the next input of a part, up to `position`; returns its acknowledgement.
  private func take(_ parts: PartLedgers<Int>, _ epoch: Epoch, to position: Int) throws -> Ack {
    let ledger = try #require(parts.ledger(epoch))
    let ack = try #require(ledger.begin())
    parts.take(epoch, to: position)
    ledger.end(at: position)
    return ack
  }

  @Test func onlyAnUnbrokenSequenceIsCommitted() throws {
    let parts = PartLedgers<Int>()
    let epoch = parts.assign("a", at: 10)
    #expect(parts.acknowledged == ["a": 10] && parts.taken == ["a": 10])
    let acks = try [20, 30, 40].map { try take(parts, epoch, to: $0) }
    acks[2].release()
    #expect(parts.acknowledged == ["a": 10] && parts.taken == ["a": 40])
    acks[0].release()
    #expect(parts.acknowledged == ["a": 20])
    acks[1].release()
    #expect(parts.acknowledged == ["a": 40])
  }

  /// Outstanding input of a revoked part still counts until it is settled; no more input is taken.
  @Test func aRevokedPartIsSettled() throws {
    let parts = PartLedgers<Int>()
    let epoch = parts.assign("a", at: 0)
    let ack = try take(parts, epoch, to: 7)
    parts.revoke(epoch)
    #expect(parts.ledger(epoch) == nil && parts.epoch(of: "a") == nil)
    #expect(!parts.settled(epoch) && parts.acknowledged == ["a": 0])
    parts.forgetSettled()
    ack.release()
    #expect(parts.settled(epoch) && parts.acknowledged == ["a": 7])
    parts.forgetSettled()
    #expect(parts.acknowledged == [:])
  }

  @Test func ofALostPartNothingIsCommitted() throws {
    let parts = PartLedgers<Int>()
    let epoch = parts.assign("a", at: 0)
    let ack = try take(parts, epoch, to: 7)
    parts.lose(epoch)
    ack.release()
    #expect(parts.acknowledged == [:] && parts.ledger(epoch) == nil && parts.settled(epoch))
  }

  /// An acknowledgement that arrives after the part was assigned again belongs to the earlier assignment.
  @Test(arguments: ["revoke", "lose", "neither"])
  func aLateAcknowledgementMovesNoNewAssignment(_ end: String) throws {
    let parts = PartLedgers<Int>()
    let first = parts.assign("a", at: 0)
    let late = try take(parts, first, to: 100)
    if end == "revoke" { parts.revoke(first) }
    if end == "lose" { parts.lose(first) }
    let second = parts.assign("a", at: 50)
    late.release()
    #expect(first != second && parts.acknowledged == ["a": 50])
    try take(parts, second, to: 60).release()
    #expect(parts.acknowledged == ["a": 60] && parts.names == ["a"])
  }

  /// Random assignments, ends and acknowledgements compared with a model: the end of the unbroken sequence of acknowledged pieces of the
  /// current assignment may be committed.
  @Test(arguments: 0..<40)
  func followsItsModel(_ seed: UInt64) throws {
    var random = SplitMix(seed)
    struct Piece {
      var end: Int
      var ack: Ack
      var isDone = false
    }
    struct Model {
      var name: String
      var start: Int
      var pieces: [Piece] = []
      var isRevoked = false
      var committed: Int { pieces.prefix(while: \.isDone).last?.end ?? start }
    }
    let parts = PartLedgers<Int>()
    var models: [Epoch: Model] = [:]
    var order: [Epoch] = []
    for _ in 0..<400 {
      let name = ["a", "b", "c"][Int(random.next() % 3)]
      let current = parts.epoch(of: name)
      switch random.next() % 12 {
      case 0:
        let start = Int(random.next() % 1000)
        if let current { models[current] = nil }
        let epoch = parts.assign(name, at: start)
        models[epoch] = Model(name: name, start: start)
        order.append(epoch)
      case 1:
        guard let current else { break }
        parts.revoke(current)
        models[current]?.isRevoked = true
      case 2:
        guard let epoch = order.last(where: { models[$0] != nil }) else { break }
        parts.lose(epoch)
        models[epoch] = nil
      case 3...7:
        guard let current, let model = models[current] else { break }
        let end = (model.pieces.last?.end ?? model.start) + 1
        let ack = try take(parts, current, to: end)
        models[current]?.pieces.append(Piece(end: end, ack: ack))
      default:
        let waiting = order.flatMap { epoch in
          (models[epoch]?.pieces ?? []).enumerated().filter { !$1.isDone }.map { (epoch, $0.offset) }
        }
        guard !waiting.isEmpty else { break }
        let (epoch, index) = waiting[Int(random.next() % UInt64(waiting.count))]
        models[epoch]?.pieces[index].isDone = true
        models[epoch]?.pieces[index].ack.release()
      }
      var wanted: [String: Int] = [:]
      for epoch in order {
        guard let model = models[epoch], !model.isRevoked || parts.epoch(of: model.name) == nil else { continue }
        wanted[model.name] = model.committed
      }
      #expect(parts.acknowledged == wanted)
    }
  }
}
