import PipelineHost
import PipelineTestSupport
import Testing

@testable import PipelineCore
@testable import Sources_

/// Parts of an input that are assigned and revoked while sinks are blocked; the test is the broker. A source with parts is built on
/// ``PartLedgers``, ``PartRevocations`` and ``SourceSession``, like this one.
@Suite struct RevokedPartTests {
  // MARK: The broker

  /// Assigns each part to one member at a time, and records violations by members.
  final class Broker: @unchecked Sendable {
    struct Part {
      var records: Range<Int64>
      var committed: Int64
      var owner: Member?
      /// When its owner must have given it back.
      var deadline: Instant?
    }
    var parts: [String: Part] = [:]
    /// The parts that were given back, with their positions.
    var givenBack: [String] = []
    var faults: [String] = []

    init(_ records: [String: Range<Int64>]) {
      parts = records.mapValues { Part(records: $0, committed: $0.lowerBound) }
    }

    func assign(_ name: String, to member: Member) {
      guard let part = parts[name] else { return }
      if part.owner != nil { faults.append("\(name) was not given back") }
      parts[name]?.owner = member
      member.assigned(name, at: part.committed)
    }

    func revoke(_ name: String) { parts[name]?.owner?.revoked(name) }

    func commit(_ name: String, _ position: Int64, by member: Member) {
      guard let part = parts[name] else { return }
      guard part.owner === member else { return faults.append("\(name) was committed by another than its owner") }
      if position < part.committed { faults.append("\(name) was committed backwards") }
      parts[name]?.committed = position
    }

    func giveBack(_ name: String, by member: Member) {
      guard parts[name]?.owner === member else { return faults.append("\(name) was given back by another") }
      givenBack.append("\(name)@\(parts[name]?.committed ?? -1)")
      parts[name]?.owner = nil
    }

    /// The connection of a member is lost: its parts are assigned to others immediately.
    func lose(_ member: Member) {
      for name in parts.keys where parts[name]?.owner === member { parts[name]?.owner = nil }
      member.lost()
    }
  }

  /// The connection of one source to the broker.
  final class Member: @unchecked Sendable {
    fileprivate(set) weak var node: PartSource.Node?
    /// The number of connections so far.
    fileprivate(set) var connections = 0

    /// Membership messages do not wait while the input is paused.
    private func post(_ body: @escaping (PartSource.Node) -> Void) {
      nonisolated(unsafe) let body = body
      nonisolated(unsafe) weak let node = node
      self.node?.executor.post { if let node, !node.isClosed { body(node) } }
    }

    func assigned(_ name: String, at position: Int64) { post { $0.assigned(name, at: position) } }
    func revoked(_ name: String) { post { $0.revocations.revoke(name) } }
    func lost() { post { $0.lost() } }
    func commit() { post { $0.commit() } }
  }

  // MARK: The source

  struct PartSource: SourceComponent {
    static let spec = ComponentSpec<PartSource>("parts", summary: "Reads parts.")
    static let limit = TimeSpan.seconds(30)
    let broker: Broker
    let member: Member

    init() { self.init(Broker([:]), Member()) }
    init(_ broker: Broker, _ member: Member) {
      self.broker = broker
      self.member = member
    }

    func makeSource(_ nodeContext: NodeContext, downstream: Downstream) -> RunningSource {
      Node(self, nodeContext, downstream)
    }

    final class Node: RunningSource {
      private let source: PartSource
      private let parts = PartLedgers<Int64>()
      private(set) lazy var revocations: PartRevocations<Int64> = PartRevocations(
        of: self, parts, limit: PartSource.limit
      ) {
        [unowned self] name, position in
        source.broker.commit(name, position, by: source.member)
        source.broker.giveBack(name, by: source.member)
      }
      private lazy var session: SourceSession = SourceSession(of: self, Attempts(.seconds(1), most: .seconds(1))) {
        [unowned self] _ in
        source.member.connections += 1
        session.opened()
      } close: { [unowned self] in
        // Others may own the parts by now.
        revocations.stop()
        for name in parts.names { parts.epoch(of: name).map(parts.lose) }
      }

      init(_ source: PartSource, _ nodeContext: NodeContext, _ downstream: Downstream) {
        self.source = source
        super.init(nodeContext, downstream: downstream)
        source.member.node = self
      }

      override var isEndless: Bool { true }
      override func begin() { session.connect() }
      override func drain() {
        session.end()
        super.drain()
      }
      override func stop() { session.end() }

      func assigned(_ name: String, at position: Int64) { fetch(parts.assign(name, at: position), name, position) }

      func lost() { session.lost("the broker is gone") }

      func commit() {
        for (name, position) in parts.acknowledged where parts.epoch(of: name) != nil {
          source.broker.commit(name, position, by: source.member)
        }
      }

      /// Two records arrive as input, then the next two.
      private func fetch(_ epoch: PartLedgers<Int64>.Epoch, _ name: String, _ position: Int64) {
        guard let records = source.broker.parts[name]?.records, position < records.upperBound else { return }
        let end = min(position + 2, records.upperBound)
        nonisolated(unsafe) weak let node = self
        executor.postBatch { node?.take(position..<end, of: epoch, name) }
      }

      private func take(_ records: Range<Int64>, of epoch: PartLedgers<Int64>.Epoch, _ name: String) {
        guard !isClosed, let ledger = parts.ledger(epoch) else { return }
        beginPiece(of: ledger) { [parts] in parts.taken(epoch) ?? records.lowerBound }
        for record in records {
          parts.take(epoch, to: record + 1)
          produce(arena.string("\(name)\(record)"))
        }
        fetch(epoch, name, records.upperBound)
      }
    }
  }

  /// A member of the group: a pipeline whose source reads parts, and whose sink is blocked after some events.
  private final class Peer {
    let member = Member()
    let held: GatedSink.Held
    let pipeline: VirtualPipeline

    init(_ broker: Broker, room: Int) throws {
      let sink = GatedSink(room: room)
      held = sink.held
      pipeline = try VirtualPipeline("sources: { in: { never: {} } }\nsinks: { out: { from: in, discard: {} } }")
      let source = PartSource(broker, member)
      pipeline.execution.replacements.sources = { $0 == "in" ? source : nil }
      pipeline.execution.replacements.sinks = { _ in sink }
      pipeline.settle()
    }

    /// The names of the received records; `acknowledged`: of the acknowledged ones.
    var events: [String] { held.all.map { String($0.dropFirst().dropLast()) } }
    var acknowledged: [String] {
      held.turns.filter(\.isAcknowledged).flatMap(\.texts).map { String($0.dropFirst().dropLast()) }
    }

    func acknowledge(_ indexes: Int...) {
      pipeline.inTurn { [held] _ in for index in indexes { held.acknowledge(index) } }
      pipeline.settle()
    }
  }

  private func seconds(_ peer: Peer) -> Int64 { peer.pipeline.time.now.nanoseconds / 1_000_000_000 }

  // MARK: The laws

  /// Records are acknowledged late: only then, with everything that was taken, the part is given back.
  @Test func aRevokedPartIsGivenBackWhenItIsSettled() throws {
    let broker = Broker(["a": 0..<10])
    let first = try Peer(broker, room: 4)
    broker.assign("a", to: first.member)
    first.pipeline.run(until: .seconds(1))
    #expect(first.events == ["a0", "a1", "a2", "a3"] && first.pipeline.executor.isInputPaused)
    broker.revoke("a")
    first.pipeline.run(until: .seconds(10))
    #expect(broker.givenBack == [])
    first.acknowledge(1)
    #expect(broker.givenBack == [])
    first.acknowledge(0)
    #expect(broker.givenBack == ["a@4"] && seconds(first) == 10)
    #expect(first.pipeline.executor.isInputPaused, "while the sink is blocked")

    let second = try Peer(broker, room: 100)
    broker.assign("a", to: second.member)
    second.pipeline.settle()
    #expect(second.events == (4..<10).map { "a\($0)" })
    #expect(broker.faults == [])
  }

  /// While a sink stays blocked the part is given back after the time limit. Its next owner starts with the committed position, and later
  /// acknowledgements of the former owner are not committed.
  @Test(arguments: [[], [0], [1], [0, 2]]) func aBlockedSinkHoldsNoPart(_ acknowledged: [Int]) throws {
    let broker = Broker(["a": 0..<10, "b": 0..<2])
    let first = try Peer(broker, room: 7)
    broker.assign("a", to: first.member)
    first.pipeline.settle()
    broker.assign("b", to: first.member)
    first.pipeline.run(until: .seconds(1))
    #expect(first.held.turns.count == 4 && first.pipeline.executor.isInputPaused)
    first.pipeline.inTurn { _ in for index in acknowledged { first.held.acknowledge(index) } }
    first.pipeline.run(until: .seconds(2))
    broker.revoke("a")
    first.pipeline.run(until: .seconds(31))
    #expect(broker.givenBack == [])
    first.pipeline.run(until: .seconds(33))
    let committed: Int64 = acknowledged.contains(0) ? 2 : 0
    #expect(broker.givenBack == ["a@\(committed)"])

    let second = try Peer(broker, room: 100)
    broker.assign("a", to: second.member)
    second.pipeline.settle()
    // The former owner acknowledges the rest, and continues with the other part alone.
    first.acknowledge(0, 1, 2, 3)
    first.pipeline.inTurn { _ in first.held.makeRoom(100) }
    first.pipeline.run(until: .seconds(40))
    first.acknowledge(4)
    first.member.commit()
    first.pipeline.settle()
    #expect(broker.parts["a"]?.committed == committed && broker.parts["a"]?.owner === second.member)
    #expect(broker.parts["b"]?.committed == 2 && first.events.suffix(2) == ["b0", "b1"])
    #expect(second.events == (committed..<10).map { "a\($0)" })
    #expect(broker.givenBack.count == 1 && broker.faults == [])
  }

  /// A part without outstanding records is given back in the turn of its revocation; its waiting input is dropped.
  @Test func aSettledPartIsGivenBackAtOnce() throws {
    let broker = Broker(["a": 0..<10])
    let first = try Peer(broker, room: 2)
    broker.assign("a", to: first.member)
    first.pipeline.settle()
    first.acknowledge(0)
    broker.revoke("a")
    first.pipeline.settle()
    #expect(broker.givenBack == ["a@2"] && seconds(first) == 0)
    first.pipeline.inTurn { _ in first.held.makeRoom(100) }
    first.pipeline.run(until: .seconds(100))
    #expect(first.events == ["a0", "a1"] && broker.faults == [])
  }

  /// A part that is assigned again before it is settled is read from its committed position, and is not given back for the earlier
  /// revocation.
  @Test func aPartThatComesBackIsKept() throws {
    let broker = Broker(["a": 0..<4])
    let first = try Peer(broker, room: 4)
    broker.assign("a", to: first.member)
    first.pipeline.settle()
    broker.revoke("a")
    first.pipeline.run(until: .seconds(5))
    first.member.assigned("a", at: 0)
    first.pipeline.settle()
    first.acknowledge(0, 1)
    first.pipeline.run(until: .seconds(100))
    #expect(broker.givenBack == [] && broker.parts["a"]?.owner === first.member)
    first.pipeline.inTurn { _ in first.held.makeRoom(100) }
    first.pipeline.settle()
    first.member.commit()
    first.pipeline.settle()
    #expect(broker.parts["a"]?.committed == 0, "late acknowledgements belong to the earlier assignment")
    #expect(first.events.count == 8)
    first.acknowledge(2, 3)
    first.member.commit()
    first.pipeline.settle()
    #expect(broker.parts["a"]?.committed == 4 && broker.faults == [])
  }

  /// The parts are lost with the connection, revoked ones too: none of them is committed or given back, and the timers are gone.
  @Test func aLostConnectionGivesNothingBack() throws {
    let broker = Broker(["a": 0..<10, "b": 0..<10])
    let first = try Peer(broker, room: 4)
    for name in ["a", "b"] { broker.assign(name, to: first.member) }
    first.pipeline.settle()
    broker.revoke("a")
    first.pipeline.settle()
    broker.lose(first.member)
    first.pipeline.settle()
    first.acknowledge(0, 1)
    first.member.commit()
    first.pipeline.inTurn { _ in first.held.makeRoom(100) }
    first.pipeline.run(until: .seconds(100))
    #expect(broker.givenBack == [] && broker.parts.values.allSatisfy { $0.committed == 0 })
    #expect(first.member.connections == 2 && broker.faults == [])
  }

  /// Two members with blocked sinks, parts that move between them, acknowledgements in any order: each record is delivered and acknowledged by
  /// a member, no commit goes back or skips a record, and no part is held longer than the limit.
  @Test(arguments: 0..<40 as Range<UInt64>) func everyRecordIsReadWhateverMoves(_ seed: UInt64) throws {
    var random = SplitMix(seed)
    let names = ["a", "b", "c"]
    let broker = Broker(Dictionary(uniqueKeysWithValues: names.map { ($0, 0..<40) }))
    let peers = try (0..<2).map { _ in try Peer(broker, room: 1 + random.below(5)) }
    var now = TimeSpan.zero
    var revoked: [String: TimeSpan] = [:]
    func advance(_ span: TimeSpan) {
      now = now + span
      for peer in peers { peer.pipeline.run(until: now) }
      for name in names where broker.parts[name]?.owner == nil { revoked[name] = nil }
      for (name, since) in revoked {
        #expect((now - since).nanoseconds <= PartSource.limit.nanoseconds, "\(name) of seed \(seed)")
      }
      // Every committed record was acknowledged by a member.
      let acknowledged = Set(peers.flatMap(\.acknowledged))
      for (name, part) in broker.parts {
        #expect((0..<part.committed).allSatisfy { acknowledged.contains("\(name)\($0)") }, "\(name) of seed \(seed)")
      }
    }
    for _ in 0..<120 {
      let name = random.pick(names)
      let peer = random.pick(peers)
      switch random.below(8) {
      case 0, 1:
        if broker.parts[name]?.owner == nil { broker.assign(name, to: peer.member) }
      case 2:
        if broker.parts[name]?.owner != nil, revoked[name] == nil {
          broker.revoke(name)
          revoked[name] = now
        }
      case 3: peer.pipeline.inTurn { _ in peer.held.makeRoom(3) }
      case 4: peer.member.commit()
      default:
        let index = random.below(peer.held.turns.count + 1)
        peer.pipeline.inTurn { _ in peer.held.acknowledge(index) }
      }
      advance(random.below(3) == 0 ? .seconds(Int64(random.below(9))) : .zero)
    }
    // Every member acknowledges everything from now on.
    advance(.seconds(31))
    for name in names where broker.parts[name]?.owner == nil { broker.assign(name, to: peers[0].member) }
    for _ in 0..<100 where broker.parts.values.contains(where: { $0.committed < 40 }) {
      for peer in peers {
        peer.pipeline.inTurn { _ in
          for index in peer.held.turns.indices { peer.held.acknowledge(index) }
          peer.held.makeRoom(10)
        }
        peer.member.commit()
      }
      advance(.seconds(1))
    }
    #expect(broker.parts.values.allSatisfy { $0.committed == 40 }, "seed \(seed)")
    #expect(broker.faults == [], "seed \(seed)")
  }
}
