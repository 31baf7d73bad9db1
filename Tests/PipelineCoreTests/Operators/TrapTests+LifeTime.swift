import Foundation
import PipelineCore
import PipelineTestSupport
import PipelineTesting
import Testing

/// Traps about the times of subscription, and about order.
extension TrapTests {
  /// What a subscriber of `a`, shared as `share` says, receives once `b` has completed.
  private func late(_ share: String, a: String, b: String, first: String? = nil) throws -> SignalHistory {
    var text = """
      name: t
      sources: { a: { scripted: {} }, b: { scripted: {} } }
      signals:
        s: { from: a\(share.isEmpty ? "" : ", share: \(share)") }
        late: { concat: [b, s] }
      sinks:
        out: { from: late, probe: {} }

      """
    if let first { text += "  first: { from: s, chain: [ \(first) ], probe: {} }\n" }
    var options = PipelineRun.Options()
    options.until = .milliseconds(100)
    let sources = try ["a": a, "b": b].mapValues {
      ScriptedSource(SignalHistory(try Marbles($0)).script) as any SourceComponent
    }
    return try PipelineRun(text, sources: sources, options: options).out
  }

  /// 43: A late subscriber of a completed ReactiveCocoa subject waits forever. Here a shared signal runs again, or
  /// repeats its end, so nothing waits.
  @Test func aLateCallerDoesNotWait() throws {
    #expect(try late("", a: "-1-|", b: "-----|", first: "{ skip: 0 }") == SignalHistory(try Marbles("------1-|")))
    #expect(
      try late("{ again: false }", a: "-1-|", b: "-----|", first: "{ skip: 0 }") == SignalHistory(try Marbles("-----|"))
    )
    #expect(
      try late("{ replay: 1, again: false }", a: "-1-|", b: "-----|", first: "{ skip: 0 }")
        == SignalHistory(try Marbles("-----(1|)")))
  }

  /// 44: `replay` starts immediately, `replayLazily` with the first subscriber, and neither is stopped by subscribers.
  @Test func replayStartsWhenItSaysSo() throws {
    let replay = "{ replay: 9, start: eager, stop: never, again: false }"
    #expect(try late(replay, a: "-1-2-3|", b: "--|") == SignalHistory(try Marbles("--12-3|")))
    let lazily = "{ replay: 9, stop: never, again: false }"
    #expect(try late(lazily, a: "-1-2-3|", b: "--|") == SignalHistory(try Marbles("---1-2-3|")))
  }

  /// 44: autoconnect stops with the last subscriber and never starts again; here it does start again. `stop: never`
  /// continues.
  @Test func sharingStartsAgain() throws {
    #expect(try late("", a: "-1-2-3|", b: "--|", first: "{ take: 1 }") == SignalHistory(try Marbles("---1-2-3|")))
    #expect(
      try late("{ stop: never }", a: "-1-2-3|", b: "--|", first: "{ take: 1 }") == SignalHistory(try Marbles("---2-3|"))
    )
  }

  private func both(_ chain: String, _ marbles: String) throws -> SignalHistory {
    try PipelineRun(
      """
      name: t
      sources: { a: { scripted: {} } }
      sinks: { out: { from: a, chain: [ \(chain) ], probe: {} } }
      """, sources: ["a": ScriptedSource(SignalHistory(try Marbles(marbles)).script)]
    ).out
  }

  /// 48: `deliverOn` keeps the order of all three kinds, `delay` does not.
  @Test func deliverOnKeepsTheOrderOfErrors() throws {
    let wanted = SignalHistory(try Marbles("-(12#)"))
    #expect(try both("{ deliverOn: later }", "-(12#)").firstDifference(from: wanted) == nil)
    let overtaken = SignalHistory(try Marbles("-#"))
    #expect(try both("{ delay: 1ms }", "-(12#)").firstDifference(from: overtaken) == nil)
    #expect(
      try both("{ deliverOn: later }, { delay: 1ms }", "-(12#)").firstDifference(from: overtaken) == nil)
  }

  /// 49: `subscribeOn` moves only the subscription, so events that a shared source sends earlier are lost; later ones
  /// are delivered where the source sends them.
  @Test func subscribeOnMovesTheSubscriptionOnly() throws {
    let run = try PipelineRun(
      """
      name: t
      sources: { a: { values: [1, 2] }, b: { scripted: {} } }
      signals:
        lone: { from: { values: [1, 2] }, chain: [ { subscribeOn: later } ] }
        shared: { from: b, chain: [ { subscribeOn: later } ] }
      sinks:
        now: { from: b, probe: {} }
        first: { from: lone, probe: {} }
        out: { from: shared, probe: {} }
      """, sources: ["b": ScriptedSource(SignalHistory(try Marbles("1-2-3|")).script)])
    #expect(run.sinks["first"] == SignalHistory(try Marbles("(12|)")))
    #expect(run.sinks["now"] == SignalHistory(try Marbles("1-2-3|")))
    #expect(run.out == SignalHistory(try Marbles("--2-3|")))
  }

  /// 51: an unhandled error ends the pipeline, and is reported.
  @Test func unhandledErrorsAreReported() throws {
    let run = try PipelineRun(
      """
      name: t
      sources: { a: { scripted: {} } }
      sinks: { out: { from: a, probe: {} } }
      """, sources: ["a": ScriptedSource(SignalHistory(try Marbles("-1-#")).script)])
    guard case .failed(let failure) = run.outcome else {
      Issue.record("the pipeline did not fail")
      return
    }
    #expect(failure.message == "error")
  }

  /// 53: retry of a replayed error does not spin: a permanent failure fails once more for each attempt.
  @Test func retryAboveReplayEnds() throws {
    let run = try PipelineRun(
      """
      name: t
      sources: { a: { scripted: {} } }
      signals: { s: { from: a, share: { replay: 1, again: false } }, t: { from: s, chain: [ { retry: 3 } ] } }
      sinks: { out: { from: t, probe: {} } }
      """, sources: ["a": ScriptedSource(SignalHistory(try Marbles("-1#")).script)])
    #expect(run.out.firstDifference(from: SignalHistory(try Marbles("-1(111#)"))) == nil)
    #expect(run.isQuiet)
  }

  /// 54: a cold request that is used twice is made twice, a named one once.
  @Test func aColdSignalUsedTwiceRunsTwice() throws {
    let counts = CountedSource.Counts()
    let source = CountedSource(counts, SignalHistory(try Marbles("-1|")).script)
    _ = try PipelineRun(
      """
      name: t
      sources: { a: { counted: {} }, c: { counted: {}, cold: true } }
      sinks: { one: { from: { zip: { x: a, y: a } }, probe: {} }, two: { from: { zip: { x: c, y: c } }, probe: {} } }
      """, sources: ["a": source, "c": source])
    #expect(counts.begun == 3)
  }

  // MARK: All of them

  /// The traps that are not marbles in the list above, with the tests that show them.
  static let shownElsewhere: [Int: String] = [
    37: "intervalTicksAfterOnePeriod", 43: "aLateCallerDoesNotWait", 44: "replayStartsWhenItSaysSo",
    45: "takeEndsAnEndlessSource", 46: "teardownComesFirst", 47: "deliveryIsDepthFirst",
    48: "deliverOnKeepsTheOrderOfErrors", 49: "subscribeOnMovesTheSubscriptionOnly", 50: "oneBadEventEndsNothing",
    51: "unhandledErrorsAreReported", 52: "stateBelongsToTheSubscription", 53: "retryAboveReplayEnds",
    54: "aColdSignalUsedTwiceRunsTwice", 55: "fullQueuesHoldBackTheInput",
  ]

  @Test func everyTrapHasATest() throws {
    let folder = URL(fileURLWithPath: #filePath).deletingLastPathComponent()
    let text = try ["TrapTests.swift", "TrapTests+LifeTime.swift"].map {
      try String(contentsOf: folder.appendingPathComponent($0), encoding: .utf8)
    }.joined()
    let drawn = Set(Self.traps.map(\.number))
    for number in 1...55 {
      guard !drawn.contains(number) else { continue }
      let name = try #require(Self.shownElsewhere[number], "trap \(number) has no test")
      #expect(text.contains("func \(name)("), "\(name)")
    }
  }
}
