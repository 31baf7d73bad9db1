import PipelineCore
import PipelineTestSupport
import Testing

/// `set` on an event that is not an object.
@Suite struct SetTests {
  private func run(_ policy: String) throws -> PipelineRun {
    try PipelineRun(
      """
      name: t
      sources: { a: { values: [{ y: 1 }, 5, [6], { y: 2 }] } }
      signals: { t: { from: a, chain: [ { set: { x: '7' }\(policy) } ] } }
      sinks: { out: { from: t, probe: {} }, errors: { from: t.errors, chain: [ { map: "[event.error, event.event]" } ], probe: {} } }
      """, sources: [:])
  }

  private let objects = [#"{"y":1,"x":7}"#, #"{"y":2,"x":7}"#]

  @Test(arguments: ["", ", onError: route"]) func goesToTheErrorsOutput(_ policy: String) throws {
    let run = try run(policy)
    #expect(run.texts["out"] == objects)
    let errors = try #require(run.texts["errors"])
    #expect(errors.count == 2)
    #expect(errors.first?.hasPrefix("[\"set needs an object to set `x` in, not ") == true)
    #expect(errors.first?.hasSuffix(",5]") == true && errors.last?.hasSuffix(",[6]]") == true, "\(errors)")
    #expect(run.counters.rejected == 2 && run.outcome == .completed)
  }

  @Test func isDropped() throws {
    let run = try run(", onError: drop")
    #expect(run.texts["out"] == objects && run.texts["errors"] == [])
    #expect(run.counters.rejected == 0 && run.counters.undecided == 2 && run.outcome == .completed)
  }

  @Test func isKeptAsItIs() throws {
    let run = try run(", onError: keep")
    #expect(run.texts["out"] == [objects[0], "5", "[6]", objects[1]] && run.texts["errors"] == [])
    #expect(run.counters.rejected == 0 && run.outcome == .completed)
  }

  @Test func endsTheSignal() throws {
    let run = try run(", onError: fail")
    #expect(run.texts["out"] == [objects[0]])
    guard case .failed(let failure) = run.outcome else {
      Issue.record("\(run.outcome as Any)")
      return
    }
    #expect(failure.message.hasPrefix("set needs an object to set `x` in, not "))
  }
}
