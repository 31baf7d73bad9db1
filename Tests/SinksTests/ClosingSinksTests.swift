import Foundation
import PipelineCore
import PipelineHost
import PipelineTestSupport
import Synchronization
import Testing

/// A cancelled sink waits for its writer off the pipeline thread, which other pipelines use too.
@Suite struct ClosingSinksTests {
  private let scratch = Scratch()
  private let worker = HeldWorker()

  /// Keeps its jobs until the test runs them.
  private final class HeldWorker: Worker {
    private let jobs = Mutex<[@Sendable () -> Void]>([])

    var count: Int { jobs.withLock { $0.count } }

    func enqueue(_ work: @escaping @Sendable () -> Void) { jobs.withLock { $0.append(work) } }

    func run() {
      let all = jobs.withLock { jobs in
        defer { jobs = [] }
        return jobs
      }
      for job in all { job() }
    }
  }

  private func pipeline(_ sink: String, before: (Execution) -> Void = { _ in }) throws -> RealPipeline {
    let worker = worker
    return try RealPipeline(
      """
      sources: { in: { interval: 10ms } }
      sinks: { out: { from: in, \(sink) } }
      """, before: before, worker: { _ in worker })
  }

  @Test(arguments: ["tcp", "exec", "file", "files"])
  func holdNoThreadOfTurns(_ name: String) throws {
    let port = try FreePort()
    let sink =
      switch name {
      case "tcp": "tcp: '127.0.0.1:\(port.number)'"
      case "exec": "exec: { command: [sleep, '1000'], stopTimeout: 0s }"
      case "file": "file: /dev/full"
      default: "file: \"\(scratch.path)/{{ event.tick % 3 }}\""
      }
    let pipeline = try pipeline(sink)
    #expect(pipeline.run { pipeline.counters.received > 0 })
    pipeline.inTurn { $0.execution.cancel() }
    #expect(pipeline.run { pipeline.execution.outcome != nil })
    // The turn has ended, and the sink has not.
    #expect(worker.count == 1)
    #expect(!pipeline.execution.hasClosed)
    worker.run()
    #expect(pipeline.run { pipeline.execution.hasClosed })
    #expect(pipeline.counters.sent + pipeline.counters.undelivered == pipeline.counters.received)
  }

  /// The end of a failed pipeline is reported once the file has everything that its sink had accepted.
  @Test func theEndComesBehindThem() throws {
    let worker = worker
    let pipeline = try RealPipeline(
      """
      sources: { in: { values: [2, 0] } }
      sinks: { out: { from: in, chain: [ { map: 6 / event, onError: fail } ], file: '\(scratch("out"))' } }
      """, worker: { _ in worker })
    #expect(pipeline.run { worker.count == 1 })
    #expect(pipeline.outcome == nil)
    worker.run()
    pipeline.runToEnd()
    #expect(pipeline.failure != nil)
    #expect(scratch.read("out") == "3\n")
  }

  /// A suspended pipeline does not wait for an unavailable destination if its outbox has the events.
  @Test func anOutboxWaitsForNoDeadDestination() throws {
    let port = try FreePort()
    let store = MemoryStore(isImmediate: true)
    let pipeline = try pipeline("tcp: '127.0.0.1:\(port.number)'") {
      $0.commit(with: DeliveryOptions(store: store, isDurable: true))
    }
    #expect(pipeline.run { pipeline.execution.troubles.all["out"] != nil })
    var closing = 0
    let worker = worker
    pipeline.inTurn {
      $0.execution.suspend()
      closing = worker.count
    }
    #expect(pipeline.run { pipeline.execution.outcome != nil })
    #expect(closing == 1, "it was given up in the turn of the suspension")
    worker.run()
    #expect(pipeline.runToEnd() == .completed)
    #expect(!store.disk.rows.isEmpty)
  }
}
