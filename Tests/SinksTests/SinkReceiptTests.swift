import Foundation
import PipelineHost
import PipelineTestSupport
import Synchronization
import Testing
import Transport

@testable import PipelineCore
@testable import PipelineTesting
@testable import Sinks

/// Every sink acknowledges every accepted event once: immediately, or on a receipt.
@Suite struct SinkReceiptTests {
  private let world = SinkWorld()

  /// A pipeline's report on a sink.
  private struct Report {
    var faults: [String] = []
    var outcomes: [Int: Ack.Outcome] = [:]
    var counters = Execution.Counters()
    var outcome: Execution.Outcome?
    var events = 0
  }

  /// Runs a sink after a source that tracks the outcome of each of its batches: some with one event, some with many,
  /// some with none, several at once. Then the source ends, unless `isCancelled`.
  ///
  /// - Parameters:
  ///   - component: Replaces the component in the text.
  ///   - limit: How long to wait for outcomes; afterwards it is clear that a sink never acknowledges.
  private func run(
    _ sink: String, _ component: (any SinkComponent)? = nil, isCancelled: Bool = false,
    within limit: TimeSpan = .seconds(60)
  ) throws -> Report {
    var report = Report()
    let source = TrackedSource()
    let http = ScriptedHTTP()
    // One in four requests fails at first, one in five is refused.
    http.script = { number, _ in ScriptedHTTP.status(number % 4 == 0 ? 503 : number % 5 == 0 ? 422 : 200) }
    let faults = Mutex<[String]>([])
    let pipeline = try RealPipeline(
      "sources: { in: { never: {} } }\nsinks: { out: { from: in, \(sink) } }", http: http
    ) { execution in
      execution.settings.auditsSinks = true
      execution.settings.reportSink = { fault in faults.withLock { $0.append(fault) } }
      execution.replacements.sources = { $0 == "in" ? source : nil }
      if let component { execution.replacements.sinks = { _ in component } }
      let executor = execution.executor
      http.later = { work in executor.post(work) }
    }
    source.feed.ring = pipeline.ring
    pipeline.run { source.feed.node != nil }
    var random = SplitMix(7)
    let batches = 40
    for number in 0..<batches {
      let values = (0..<random.pick([0, 1, 3, 500])).map { Int64(report.events + $0) }
      report.events += values.count
      source.feed.send(number, values)
      if random.below(3) == 0 { pipeline.run { pipeline.counters.received >= UInt64(report.events) } }
    }
    if isCancelled {
      pipeline.inTurn { $0.execution.cancel() }
      pipeline.run(within: limit) { pipeline.execution.hasClosed && source.feed.outcomes.count == batches }
    } else {
      pipeline.run(within: limit) { source.feed.outcomes.count == batches || !faults.withLock { $0 }.isEmpty }
      pipeline.inTurn { $0.execution.drain() }
      pipeline.runToEnd(within: limit)
    }
    report.faults = faults.withLock { $0 }
    report.outcomes = source.feed.outcomes
    report.counters = pipeline.counters
    report.outcome = pipeline.outcome
    return report
  }

  @Test(arguments: SinkWorld.names) func everySinkAcknowledgesWhatItTakes(_ name: String) throws {
    for text in try world.required(name).working {
      let report = try run(text)
      #expect(report.faults == [], "\(text)")
      #expect(report.outcome == .completed, "\(text)")
      #expect(report.outcomes.count == 40 && report.outcomes.values.allSatisfy { $0 == .acknowledged }, "\(text)")
      if !text.contains("chain") {
        #expect(Int(report.counters.sent + report.counters.rejected) == report.events, "\(text)")
      }
    }
  }

  /// Aborted in the middle, it acknowledges nothing twice, and every batch gets an outcome.
  @Test(arguments: SinkWorld.names) func everySinkAcknowledgesOnceWhenItIsBrokenOff(_ name: String) throws {
    for text in try world.required(name).working {
      let report = try run(text, isCancelled: true)
      #expect(report.faults == [], "\(text)")
      #expect(report.outcomes.count == 40, "\(text): \(report.outcomes.count)")
    }
  }

  /// A plugin's sink that follows the rules.
  @Test func aSinkThatHoldsAcknowledges() throws {
    let sink = LateSink(ProbeSink.Recording())
    let report = try run("discard: {}", sink)
    #expect(report.faults == [])
    #expect(report.outcome == .completed && report.outcomes.values.allSatisfy { $0 == .acknowledged })
    #expect(Int(report.counters.sent) == report.events)
  }

  // MARK: Sinks that break the rules

  private struct Forgetful: SinkComponent {
    enum Way: CaseIterable { case noReceipt, neverAcknowledges, settlesTooMuch, countsLater }
    static let spec = ComponentSpec<Forgetful>("forgetful", summary: "Forgets.")
    var way = Way.noReceipt

    func makeSink(_ nodeContext: NodeContext) -> RunningSink { Node(way, nodeContext) }

    final class Node: RunningSink {
      let way: Way
      var receipts: [Receipt] = []
      var kept = 0
      init(_ way: Way, _ nodeContext: NodeContext) {
        self.way = way
        super.init(nodeContext)
      }
      override func receive(_ event: Event) {
        switch way {
        case .noReceipt: break
        case .neverAcknowledges: receipts.append(take(1, bytes: 0))
        case .settlesTooMuch: delivered(2)
        case .countsLater: kept += 1
        }
      }
      override func finish() {
        if way == .countsLater { delivered(kept) }
        drained()
      }
    }
  }

  @Test func forgetfulSinksAreFound() throws {
    let found: [Forgetful.Way: String] = [
      .noReceipt: "neither acknowledged them nor has a receipt for them",
      .neverAcknowledges: "holds receipts of events",
      .settlesTooMuch: "events that it did not receive",
      .countsLater: "neither acknowledged them nor has a receipt for them",
    ]
    for way in Forgetful.Way.allCases {
      let report = try run("discard: {}", Forgetful(way: way), within: .seconds(way == .neverAcknowledges ? 1 : 60))
      let wanted = try #require(found[way])
      #expect(report.faults.first?.contains(wanted) == true, "\(way): \(report.faults)")
      #expect(report.faults.first?.hasPrefix("out/discard ") == true)
    }
  }

  @Test func acknowledgingAReceiptTwiceIsTrapped() async {
    await #expect(processExitsWith: .failure) {
      let receipt = ReceiptBook().take(2, bytes: 0, Ack { _ in }, joining: nil)
      receipt.acknowledge(2)
      receipt.acknowledge(1)
    }
    await #expect(processExitsWith: .failure) {
      let ack = Ack { _ in }
      ack.release()
      ack.release()
    }
  }

  /// A receipt that is released before all of its events are acknowledged has failed.
  @Test func aReceiptThatIsLostHasFailed() {
    let outcomes = Mutex<[Ack.Outcome]>([])
    let book = ReceiptBook()
    do {
      let ack = Ack { outcome in outcomes.withLock { $0.append(outcome) } }
      let receipt = book.take(3, bytes: 0, ack, joining: nil)
      #expect(book.take(2, bytes: 0, ack, joining: receipt) === receipt)
      ack.release()
      receipt.acknowledge(4)
      #expect(outcomes.withLock { $0 }.isEmpty)
    }
    #expect(outcomes.withLock { $0 } == [.failed("it was given up")])
    #expect(!book.isClosed)
  }
}
