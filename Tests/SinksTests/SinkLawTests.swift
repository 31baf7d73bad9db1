import Foundation
import PipelineHost
import PipelineTestSupport
import Testing

@testable import PipelineCore
@testable import Sinks
@testable import Transport

/// Laws of every sink of the catalogue, with real destinations that accept everything or nothing. The laws of queues, batches, repetitions and
/// reloads are tested for all sinks of the kit at once, on virtual time (`DeliveryLawTests`, `DeliveryRestartLawTests`, `DeliveryPropertyTests`).
@Suite(.timeLimit(.minutes(10))) struct SinkLawTests {
  private let world = SinkWorld()

  private func pipeline(
    _ sink: String, _ source: TrackedSource? = nil, from input: String = "never: {}", isWorking: Bool,
    more: String = "", http: ScriptedHTTP = ScriptedHTTP(), restoring state: [UInt8]? = nil,
    store: MemoryStore? = nil, memory: MemoryBudget = MemoryBudget()
  ) throws -> RealPipeline {
    http.script = { _, _ in ScriptedHTTP.status(isWorking ? 200 : 503) }
    let pipeline = try RealPipeline(
      "name: t\nsources: { in: { \(input) } }\nsinks:\n  out: { from: in, \(sink) }\n\(more)",
      http: http, restoring: state, memory: memory
    ) { execution in
      if let store { execution.commit(with: DeliveryOptions(store: store, isDurable: true)) }
      if let source { execution.replacements.sources = { $0 == "in" ? source : nil } }
      let executor = execution.executor
      http.later = { work in executor.post(work) }
    }
    if let source {
      source.feed.ring = pipeline.ring
      pipeline.run(within: .seconds(60)) { source.feed.node != nil }
    }
    return pipeline
  }

  private func end(_ pipeline: RealPipeline) {
    pipeline.inTurn { $0.execution.cancel() }
    pipeline.run(within: .seconds(60)) { pipeline.execution.hasClosed }
  }

  // MARK: The table

  @Test(arguments: SinkWorld.names) func everySinkHasAPlaceInTheLaws(_ name: String) throws {
    let entry = try world.required(name)
    #expect(!entry.working.isEmpty && !entry.failing.isEmpty)
    #expect(entry.dead.isEmpty == (entry.neverWaits != nil), "before a dead destination, or why there is none")
    #expect(entry.picky.isEmpty == (entry.takesAnything != nil), "an event that it refuses, or why there is none")
  }

  /// Sinks that do not use the kit, and why. A new sink that waits for its destination must use it.
  private static let apart: Set<String> = [
    // Files are written in blocks, up to an end to which a state can truncate them.
    "file", "stdout", "stderr",
    // They send to connected clients only.
    "sse", "prometheusExporter",
    // No event waits in them.
    "discard", "reply",
  ]

  @Test(arguments: SinkWorld.names) func aSinkThatWaitsStandsOnTheKit(_ name: String) throws {
    let entry = try world.required(name)
    let pipeline = try pipeline(try #require(entry.dead.first ?? entry.working.first), isWorking: false)
    pipeline.launch()
    let node = try #require(pipeline.execution.sinks.first?.node)
    #expect(
      (node is DeliverySink) != Self.apart.contains(name),
      node is DeliverySink
        ? "strike '\(name)' from the list" : "'\(name)' has a queue of its own: write a DeliveryConnector")
    end(pipeline)
  }

  // MARK: Events that cannot be delivered

  /// An event that cannot be encoded, or that is too large, is refused alone; its neighbours are delivered, and its sender is acknowledged.
  @Test(arguments: SinkWorld.names) func whatCannotBeEncodedIsRefusedAlone(_ name: String) throws {
    for sink in try world.required(name).picky {
      let source = TrackedSource()
      let pipeline = try pipeline(
        sink, source, isWorking: true,
        more: "  lost: { from: out.errors, chain: [ { map: event.event } ], probe: {} }")
      for number in 1...3 { source.feed.send(number, [Int64(number)]) }
      pipeline.run(within: .seconds(60)) { source.feed.outcomes.count == 3 }
      #expect(source.feed.outcomes == [1: .acknowledged, 2: .acknowledged, 3: .acknowledged], "\(sink.prefix(400))")
      #expect(
        pipeline.counters.rejected == 1 && pipeline.probe("lost").events.count == 1,
        "\(sink.prefix(400)) \(pipeline.log)")
      #expect(pipeline.counters.sent == (name.hasPrefix("std") ? 0 : 2), "\(sink.prefix(400))")
      end(pipeline)
    }
  }

  // MARK: A dead destination

  /// Aborted with a dead destination, a sink counts every event that it accepted and has not delivered.
  @Test(arguments: SinkWorld.names) func whatIsLeftIsCounted(_ name: String) throws {
    for sink in try world.required(name).dead {
      let events = (0..<50).map(String.init).joined(separator: ", ")
      let pipeline = try pipeline(sink, from: "values: { list: [\(events)], every: 1ms }", isWorking: false)
      pipeline.run(within: .seconds(60)) { pipeline.counters.received >= 40 }
      end(pipeline)
      let counters = pipeline.counters
      #expect(counters.received >= 40, "\(sink)")
      #expect(counters.sent + counters.rejected + counters.undelivered == counters.received, "\(sink): \(counters)")
      #expect(counters.undelivered > 0 || name == "exec", "\(sink): \(counters)")
    }
  }

  /// With a queue on disk, a dead destination delays neither the senders nor another sink; a stop ends soon; and the next start delivers
  /// everything, even with other settings of the sink and at another position in the file.
  @Test(arguments: SinkWorld.names) func aDiskQueueOutlivesAStop(_ name: String) throws {
    let entry = try world.required(name)
    guard let dead = entry.dead.first, var working = entry.working.first else { return }
    // Made from the same events.
    if let chain = dead.range(of: "chain: ["), let end = dead.range(of: " ], ", range: chain.upperBound..<dead.endIndex)
    {
      working = dead[..<end.upperBound] + working
    }
    let store = MemoryStore(isImmediate: true)
    let source = TrackedSource()
    let first = try pipeline(
      dead, source, isWorking: false, more: "  beside: { from: in, probe: {} }", store: store)
    for number in 0..<100 { source.feed.send(number, [Int64(number)]) }
    first.run(within: .seconds(60)) { source.feed.outcomes.count == 100 && first.probe("beside").events.count == 100 }
    #expect(source.feed.outcomes.values.count { $0 == .acknowledged } == 100, "\(dead)")
    #expect(first.probe("beside").events.count == 100, "\(dead)")
    #expect(!first.executor.isInputPaused)
    first.inTurn { $0.execution.suspend() }
    #expect(first.runToEnd(within: .seconds(60)) == .completed, "\(dead): \(first.log)")
    #expect(store.disk.rows.values.contains { $0.sink == "out" }, "\(dead)")
    // The other sink may have some events to deliver, too.
    let left = store.disk.rows.values.reduce(0) { $0 + $1.events }

    let second = try RealPipelineAgain(working, store).pipeline
    second.run(within: .seconds(60)) { store.disk.rows.isEmpty }
    #expect(store.disk.rows.isEmpty, "\(working): \(second.log)")
    #expect(Int(second.counters.sent + second.counters.rejected) == left, "\(working): \(second.counters)")
    #expect(second.counters.undelivered == 0)
    end(second)
  }

  // MARK: Opened and closed

  /// The open descriptors of this process for files in the folder.
  private func open(in folder: String) -> [String] {
    ((try? FileManager.default.contentsOfDirectory(atPath: "/proc/self/fd")) ?? [])
      .compactMap { try? FileManager.default.destinationOfSymbolicLink(atPath: "/proc/self/fd/\($0)") }
      .filter { $0.hasPrefix(folder) }
  }

  /// Opened and closed many times, whatever ends it, a sink leaves no budgeted memory and no open file.
  @Test(arguments: SinkWorld.names) func openedAndClosedManyTimes(_ name: String) throws {
    let sink = try #require(try world.required(name).working.first)
    for round in 0..<20 {
      let memory = MemoryBudget()
      let source = TrackedSource()
      // Sinks that print do so only in the first round.
      let one = name.hasPrefix("std") ? sink.replacing("event < 3", with: "event < 0") : sink
      let pipeline = try pipeline(one, source, isWorking: true, memory: memory)
      for number in 0..<10 { source.feed.send(number, [Int64(number)]) }
      pipeline.run(within: .seconds(60)) {
        round % 2 == 0 ? source.feed.outcomes.count == 10 : pipeline.counters.received == 10
      }
      pipeline.inTurn { if round % 3 == 0 { $0.execution.cancel() } else { $0.execution.drain() } }
      pipeline.run(within: .seconds(60)) { pipeline.execution.hasClosed && source.feed.outcomes.count == 10 }
      #expect(source.feed.outcomes.count == 10, "\(sink)")
      pipeline.run(within: .seconds(60)) { memory.held == 0 && open(in: world.scratch.path).isEmpty }
      #expect(memory.held == 0, "\(sink)")
      #expect(open(in: world.scratch.path).isEmpty, "\(sink)")
    }
  }

  // MARK: Trials

  /// A trial, as before a reload, delivers nothing and leaves no trace: no file, no request, and no change to the running sink.
  @Test(arguments: SinkWorld.names) func aTrialLeavesNoTrace(_ name: String) throws {
    let entry = try world.required(name)
    for sink in Set(entry.working + entry.dead).sorted() {
      let source = TrackedSource()
      let http = ScriptedHTTP()
      let memory = MemoryBudget()
      let pipeline = try pipeline(sink, source, isWorking: true, http: http, memory: memory)
      if entry.working.contains(sink) {
        source.feed.send(0, [4])
        pipeline.run(within: .seconds(60)) { source.feed.outcomes.count == 1 }
      } else {
        pipeline.launch()
      }
      let files = try FileManager.default.subpathsOfDirectory(atPath: world.scratch.path).sorted()
      let (requests, held) = (http.exchanges.count, memory.held)
      let execution = pipeline.execution
      let trial = Execution.dryRun(
        execution.plan, services: execution.services, clock: VirtualTime(origin: 0), restoring: nil)
      #expect(trial.failure == nil || !entry.working.contains(sink), "\(sink): \(String(describing: trial.failure))")
      #expect(try FileManager.default.subpathsOfDirectory(atPath: world.scratch.path).sorted() == files, "\(sink)")
      #expect(http.exchanges.count == requests && memory.held == held, "\(sink)")
      guard entry.working.contains(sink) else {
        end(pipeline)
        continue
      }
      source.feed.send(1, [5])
      #expect(pipeline.run(within: .seconds(60)) { source.feed.outcomes[1] == .acknowledged }, "\(sink)")
      end(pipeline)
    }
  }
}

/// A pipeline that continues from a store, with its sink after another one.
private struct RealPipelineAgain {
  let pipeline: RealPipeline

  init(_ sink: String, _ store: MemoryStore) throws {
    let http = ScriptedHTTP()
    http.script = { _, _ in ScriptedHTTP.status(200) }
    pipeline = try RealPipeline(
      "name: t\nsources: { in: { never: {} } }\nsinks:\n  new: { from: in, discard: {} }\n  beside: { from: in, probe: {} }\n  out: { from: in, \(sink) }\n",
      http: http, restoring: store.disk.state
    ) { execution in
      execution.commit(with: DeliveryOptions(store: store, isDurable: true))
      let executor = execution.executor
      http.later = { work in executor.post(work) }
    }
  }
}
