import Foundation
import PipelineHost
import Testing
import Transport

@testable import PipelineCore
@testable import Sinks

/// A pipeline that fails and restarts several times: no sink rejects its own saved state (RX507).
@Suite struct FailedPipelineTests {
  private let world = SinkWorld()

  private func yaml(_ sink: String) -> String {
    """
    name: t
    sources: { in: { never: {} } }
    sinks:
      out: { from: in, \(sink) }
      lost: { from: out.errors, discard: {} }
      broken: { from: in, chain: [ { map: 1 / (event - 99), onError: fail } ], discard: {} }
    """
  }

  @Test(arguments: SinkWorld.names) func everySinkGoesOn(_ name: String) throws {
    for text in try world.required(name).failing {
      var state: [UInt8]?
      for round in 0..<3 {
        let source = TrackedSource()
        let http = ScriptedHTTP()
        http.script = { _, _ in ScriptedHTTP.status(503) }
        let pipeline = try RealPipeline(
          yaml(text), http: http, restoring: state
        ) { execution in
          execution.settings.keepsStateOnFailure = true
          execution.replacements.sources = { $0 == "in" ? source : nil }
          let executor = execution.executor
          http.later = { work in executor.post(work) }
        }
        pipeline.run(within: .seconds(60)) { source.feed.node != nil }
        #expect(pipeline.execution.refusals.map(\.message) == [], "round \(round): \(text)")
        for number in 0..<6 { source.feed.send(number, [Int64(round * 10 + number)]) }
        source.feed.send(6, [99])
        pipeline.runToEnd(within: .seconds(60))
        #expect(pipeline.failure?.kind == .expression, "\(text): \(pipeline.log)")
        state = pipeline.execution.savedState
        #expect(state != nil, "\(text)")
      }
    }
  }

  /// Only a changed step starts without its state, which is reported.
  @Test func aChangedStepBeginsAnew() throws {
    func yaml(_ start: Int) -> String {
      """
      name: t
      sources: { in: { never: {} } }
      signals: { sum: { from: in, chain: [ { scan: { start: \(start), next: running + event } } ] } }
      sinks:
        out: { from: sum, http: { url: 'http://h.example/', batch: 1, retry: { delay: 1h, maxDelay: 1h } } }
        broken: { from: in, chain: [ { map: 1 / (event - 99), onError: fail } ], discard: {} }
      """
    }
    var state: [UInt8]?
    for (start, changed) in [(0, 0), (0, 0), (1, 1)] {
      let source = TrackedSource()
      let pipeline = try RealPipeline(yaml(start), restoring: state) { execution in
        execution.settings.keepsStateOnFailure = true
        execution.replacements.sources = { $0 == "in" ? source : nil }
      }
      pipeline.run(within: .seconds(60)) { source.feed.node != nil }
      let found = pipeline.execution.refusals.map(\.message)
      #expect(found.count == changed && found.allSatisfy { $0.contains("sum/scan") }, "\(found)")
      source.feed.send(0, [1])
      source.feed.send(1, [99])
      pipeline.runToEnd(within: .seconds(60))
      state = pipeline.execution.savedState
    }
  }
}
