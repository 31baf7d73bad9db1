import Foundation
import PipelineHost
import PipelineTestSupport
import Synchronization
import Testing

@testable import PipelineCore

/// Laws of every source of the catalogue, with real input: which events are repeated after a kill, a stop and a reload, and what a full
/// sink holds back. ``SourceWorld`` defines how each source is fed; a source whose events are not repeated must do what it declares
/// instead.
@Suite(.serialized, .timeLimit(.minutes(10))) struct SourceCatalogueLawTests {
  private let world = SourceWorld()

  /// The inputs of a source, and how the events of each are repeated; none if the machine lacks what feeds it.
  private func inputs(_ name: String) throws -> [(input: SourceInput, recovery: SourceRecovery)] {
    let entry = try world.required(name)
    guard entry.lacks == nil else { return [] }
    return try entry.inputs.map { make in
      let input = try make()
      let plan = try PipelineText.compile(input.yaml, plugins: input.plugins)
      return (input, try #require(plan.sources.first).component.recovery)
    }
  }

  private func numbers(_ texts: [String]) -> [Int] { texts.compactMap { Int($0) } }

  /// A state that is committed when everything before it is acknowledged, as in the daemon.
  private final class Checkpoint: @unchecked Sendable {
    /// The number of turns of the sink before it.
    private(set) var turns = 0
    private let committed = Mutex<[UInt8]?>(nil)
    /// Nil: it was not committed.
    var state: [UInt8]? { committed.withLock { $0 } }

    func take(_ pipeline: RealPipeline, _ sink: GatedSink) {
      var isTaken = false
      pipeline.inTurn { [self] pipeline in
        turns = sink.held.turns.count
        _ = pipeline.execution.checkpoint { [self] outcome in
          if case .acknowledged(let state) = outcome { committed.withLock { $0 = state } }
        }
        isTaken = true
      }
      pipeline.run(within: .seconds(60)) { isTaken }
    }
  }

  private func end(_ pipeline: RealPipeline) {
    pipeline.inTurn { $0.execution.cancel() }
    pipeline.run(within: .seconds(60)) { pipeline.execution.hasClosed }
  }

  /// Runs until the sink has so many events, or the source has ended.
  @discardableResult
  private func run(_ pipeline: RealPipeline, _ sink: GatedSink, _ count: Int, _ input: SourceInput) -> Bool {
    let isThere = pipeline.run(within: .seconds(60)) { sink.held.count >= count || pipeline.outcome != nil }
    #expect(isThere && sink.held.count >= count, "\(input.source): \(sink.held.all) \(pipeline.log)")
    return isThere
  }

  // MARK: The table

  @Test(arguments: SourceWorld.names) func everySourceHasAPlaceInTheLaws(_ name: String) throws {
    let entry = try world.required(name)
    #expect(entry.inputs.isEmpty == (entry.hasNoRecords != nil), "how '\(name)' is fed, or why it is not")
    if entry.lacks == nil {
      #expect(
        try entry.floods().isEmpty == (entry.keepsNothing != nil), "what would fill its memory, or why nothing does")
    }
  }

  /// Each source declares how its events come again.
  @Test(arguments: SourceWorld.names) func everySourceSaysHowItsEventsComeAgain(_ name: String) throws {
    let entry = try world.required(name)
    let plan = try PipelineText.compile(
      SourceFlood(entry.plain, plugin: entry.plugin).yaml,
      plugins: entry.plugin == nil ? NoPlugins() : PluginFixtures.plugins)
    #expect(plan.sources.map(\.component.recovery) == [entry.recovery])
  }

  // Each source declares how its events are repeated.

  /// Records that are acknowledged in any order, and kills: a state is committed only if everything before it is acknowledged, and if a source
  /// can repeat events, the next run starts after the last committed state. A source that cannot repeat sends nothing twice.
  @Test(arguments: SourceWorld.names, 0..<3 as Range<UInt64>)
  func aKillRepeatsWhatIsNotCommitted(_ name: String, _ seed: UInt64) throws {
    for (input, recovery) in try inputs(name) {
      var random = SplitMix(seed)
      var state: [UInt8]?
      var seen: [Int] = []
      for _ in 0..<3 {
        let count = 1 + random.below(3)
        let sink = GatedSink(room: count)
        let pipeline = try input.pipeline(into: sink, restoring: state)
        let first = input.count
        try input.add(4, to: pipeline)
        run(pipeline, sink, count, input)
        let checkpoint = Checkpoint()
        checkpoint.take(pipeline, sink)
        // Input that cannot be repeated is read completely.
        let more = recovery.canRepeat ? 1 : 4 - count
        pipeline.inTurn { _ in sink.held.makeRoom(more) }
        run(pipeline, sink, count + more, input)
        let indexes = (0..<random.below(5)).map { _ in random.below(4) }
        var isDone = false
        pipeline.inTurn { _ in
          for index in indexes { sink.held.acknowledge(index) }
          isDone = true
        }
        // A sender sends its four records as one, so a state in the middle of them also waits for the rest.
        let turns = recovery == .sender ? sink.held.turns.count : checkpoint.turns
        // A client gets its answer on another thread, and the state is committed after that.
        func isAcknowledged() -> Bool { sink.held.turns.prefix(turns).allSatisfy(\.isAcknowledged) }
        pipeline.run(within: .seconds(60)) { isDone && (checkpoint.state != nil || !isAcknowledged()) }
        end(pipeline)
        let before = sink.held.turns.prefix(checkpoint.turns)
        #expect(
          (checkpoint.state != nil) == isAcknowledged(), "\(input.source), seed \(seed): \(sink.held.turns)")
        if let committed = checkpoint.state {
          state = committed
          seen += numbers(before.flatMap(\.texts))
        }
        if [.position, .made].contains(recovery) {
          #expect(seen == Array(0..<seen.count), "\(input.source), seed \(seed)")
        }
        if !recovery.canRepeat { #expect(numbers(sink.held.all) == Array(first..<(first + 4)), "\(input.source)") }
      }
      let sink = GatedSink()
      let last = try input.pipeline(into: sink, restoring: state)
      let first = input.count
      try input.add(4, to: last)
      let total = input.made == 0 ? input.count : 12
      switch recovery {
      case .position, .made:
        run(last, sink, total - seen.count, input)
        let all = seen + numbers(sink.held.all)
        #expect(Array(all.prefix(total)) == Array(0..<total), "\(input.source), seed \(seed)")
      case .request:
        let wanted = Set(0..<total)
        last.run(within: .seconds(60)) { wanted.isSubset(of: seen + numbers(sink.held.all)) }
        #expect(Set(seen + numbers(sink.held.all)) == wanted, "\(input.source), seed \(seed)")
      case .never, .sender:
        run(last, sink, 4, input)
        #expect(numbers(sink.held.all) == Array(first..<total), "\(input.source)")
      }
      end(last)
    }
  }

  /// A waiting sender is answered when its own record is acknowledged, whatever happens to others; unacknowledged records are refused.
  @Test(arguments: SourceWorld.names) func aSenderIsNotifiedOfItsOwnRecord(_ name: String) throws {
    for (input, recovery) in try inputs(name) where recovery == .sender {
      let answers = try #require(input.answers, "say how '\(name)' answers its senders")
      let sink = GatedSink()
      let pipeline = try input.pipeline(into: sink)
      for number in 0..<3 {
        try input.add(1, to: pipeline)
        run(pipeline, sink, number + 1, input)
      }
      pipeline.inTurn { _ in sink.held.acknowledge(1) }
      pipeline.run(within: .seconds(60)) { answers.all[1] != nil }
      #expect(answers.all == [1: 200], "\(input.source)")
      end(pipeline)
      pipeline.run(within: .seconds(60)) { answers.all.count == 3 }
      #expect(
        answers.all.count == 3 && answers.all[0] != 200 && answers.all[2] != 200, "\(input.source): \(answers.all)")
    }
  }

  /// Nothing is committed before the first record is read: a state from that time skips none.
  @Test(arguments: SourceWorld.names) func aStateBeforeTheFirstRecordSkipsNone(_ name: String) throws {
    for (input, recovery) in try inputs(name) {
      let first = GatedSink()
      let waiting = try input.pipeline(into: first) { execution in
        let executor = execution.executor
        executor.post { executor.pauseInput(.queue) }
      }
      waiting.run(within: .seconds(60)) { waiting.execution.hasBegun }
      if recovery.canRepeat { try input.add(4, to: waiting) }
      let checkpoint = Checkpoint()
      checkpoint.take(waiting, first)
      end(waiting)
      // Values are sent in the very first turn, and are not acknowledged.
      #expect((checkpoint.state == nil) == !first.held.turns.isEmpty, "\(input.source)")
      #expect(input.made > 0 || first.held.all == [], "\(input.source)")
      let second = GatedSink()
      let pipeline = try input.pipeline(into: second, restoring: checkpoint.state)
      try input.add(4, to: pipeline)
      let total = input.made == 0 ? input.count : 8
      if recovery == .request {
        pipeline.run(within: .seconds(60)) { Set(numbers(second.held.all)).count == total }
        #expect(Set(numbers(second.held.all)) == Set(0..<total), "\(input.source)")
      } else {
        run(pipeline, second, total, input)
        #expect(Array(numbers(second.held.all).prefix(total)) == Array(0..<total), "\(input.source)")
      }
      end(pipeline)
    }
  }

  // MARK: Kills

  /// Killed at any commit of durable delivery, with a sink that accepts nothing: the next run delivers the stored events and those that the source
  /// reads again, each record once. Senders were answered for the stored records.
  @Test(arguments: SourceWorld.names, 0..<2 as Range<UInt64>)
  func aKillAfterACommitLosesNothing(_ name: String, _ seed: UInt64) throws {
    for (input, recovery) in try inputs(name) {
      var random = SplitMix(seed)
      let store = MemoryStore(isImmediate: true)
      func commit(_ execution: Execution, _ store: MemoryStore) {
        var options = DeliveryOptions(store: store, isDurable: true)
        options.interval = .milliseconds(1)
        execution.commit(with: options)
      }
      func stored(_ disk: MemoryStore.Disk) -> Int { disk.rows.values.reduce(0) { $0 + $1.events } }
      let blocked = GatedSink()
      let first = try input.pipeline(into: blocked) { commit($0, store) }
      try input.add(6, to: first)
      let least = recovery.canRepeat ? 1 + random.below(6) : 6
      #expect(first.run(within: .seconds(60)) { stored(store.disk) >= least }, "\(input.source): \(first.log)")
      if let answers = input.answers {
        first.run(within: .seconds(60)) { answers.all.count == 6 }
        #expect(
          answers.all.values.allSatisfy { $0 == 200 } && answers.all.count == 6, "\(input.source): \(answers.all)")
      }
      // Later writes of the process never reach the disk.
      let disk = store.disk
      end(first)
      let again = MemoryStore(disk, isImmediate: true)
      let sink = GatedSink()
      let second = try input.pipeline(into: sink, restoring: disk.state) { commit($0, again) }
      try input.add(6, to: second)
      let total = 12
      if recovery == .request {
        second.run(within: .seconds(60)) { Set(numbers(sink.held.all)).count == total }
        #expect(Set(numbers(sink.held.all)) == Set(0..<total), "\(input.source), seed \(seed)")
      } else {
        run(second, sink, total, input)
        #expect(Array(numbers(sink.held.all).prefix(total)) == Array(0..<total), "\(input.source), seed \(seed)")
      }
      end(second)
    }
  }

  // MARK: Stops and reloads

  /// Suspended in the middle of a batch, as for a reload, a source sends the rest or leaves it to the next run: each record arrives once,
  /// in order.
  @Test(arguments: SourceWorld.names, 0..<3 as Range<UInt64>)
  func aStopInTheMiddleLosesAndRepeatsNothing(_ name: String, _ seed: UInt64) throws {
    for (input, recovery) in try inputs(name) {
      var random = SplitMix(seed)
      var state: [UInt8]?
      var seen: [Int] = []
      for _ in 0..<3 {
        // A server answers its clients before the pipeline is suspended.
        let sink = GatedSink(room: .max, acknowledges: true)
        let pipeline = try input.pipeline(into: sink, restoring: state)
        try input.add(4, to: pipeline)
        run(pipeline, sink, 1 + random.below(2), input)
        state = pipeline.suspend()
        seen += numbers(sink.held.all)
      }
      let sink = GatedSink()
      let last = try input.pipeline(into: sink, restoring: state)
      try input.add(4, to: last)
      let total = input.made == 0 ? input.count : 12
      if recovery == .request {
        last.run(within: .seconds(60)) { Set(seen + numbers(sink.held.all)).count == total }
        #expect(Set(seen + numbers(sink.held.all)) == Set(0..<total), "\(input.source), seed \(seed)")
      } else {
        if seen.count < total { run(last, sink, total - seen.count, input) }
        let all = seen + numbers(sink.held.all)
        #expect(Array(all.prefix(total)) == Array(0..<total), "\(input.source), seed \(seed)")
      }
      end(last)
    }
  }

  // MARK: Full sinks

  /// A full sink receives only the rest of the turn in which it became full; the source continues when there is room, and nothing is lost in
  /// between.
  @Test(arguments: SourceWorld.names) func aFullSinkHoldsTheSource(_ name: String) throws {
    for (input, recovery) in try inputs(name) {
      let sink = GatedSink(room: 1)
      let pipeline = try input.pipeline(into: sink)
      try input.add(6, to: pipeline)
      for count in 1...6 {
        run(pipeline, sink, count, input)
        pipeline.inTurn { _ in
          sink.held.acknowledgeAll()
          sink.held.makeRoom(1)
        }
      }
      #expect(sink.held.overruns == 0, "\(input.source)")
      // A polling source may receive less at first.
      if recovery != .request { #expect(Array(numbers(sink.held.all).prefix(6)) == Array(0..<6), "\(input.source)") }
      end(pipeline)
    }
  }
}
