import PipelineTestSupport
import Testing

@testable import PipelineCore
@testable import PipelineTesting

/// Pipelines of the maximum size.
@Suite struct LargePipelineTests {
  /// One chain of `count` steps.
  private func chain(_ count: Int, _ step: (Int) -> String) -> String {
    "name: t\nsources: { a: { scripted: {} } }\nsignals:\n  x:\n    from: a\n    chain:\n"
      + (0..<count).map { "      - \(step($0))\n" }.joined() + "sinks: { out: { from: x, probe: {} } }\n"
  }

  private func run(_ yaml: String) throws -> SignalHistory {
    let input = SignalHistory(try Marbles("-1-2|"))
    return try PipelineRun(yaml, sources: ["a": ScriptedSource(input.script, joined: [])]).out
  }

  /// An event passes through all of them by nested plain calls.
  @Test func twoThousandNodesOneBehindTheOther() throws {
    #expect(try run(chain(2000) { _ in "flattenMap: '[event]'" }) == SignalHistory(try Marbles("-1-2|")))
  }

  @Test func twoThousandRowsInOneRun() throws {
    let expected = SignalHistory([
      .init(at: .milliseconds(1), .next(.int(2001))), .init(at: .milliseconds(3), .next(.int(2002))),
      .init(at: .milliseconds(4), .complete),
    ])
    #expect(try run(chain(2000) { _ in "map: event + 1" }) == expected)
  }

  /// Steps with the same keyword have distinct numbers in a saved state.
  @Test func namesOfStepsDiffer() throws {
    let plan = try PipelineRun.compile(chain(2000) { $0 % 2 == 0 ? "skip: 0" : "take: 9" })
    let keys = plan.steps.map(\.key)
    #expect(Set(keys).count == keys.count)
    #expect(keys.filter { $0.hasSuffix("/skip") }.count == 1)
  }

  /// A list of many values takes time proportional to its length: no item is copied with each of the others.
  @Test func aListOfManyItems() throws {
    func time(_ count: Int) throws -> Duration {
      let items = (0..<count).map(String.init).joined(separator: ", ")
      let text =
        "sources: { in: { scripted: {} } }\nforeach: [ { each: n, in: [\(items)], sinks: { s$(n): { from: in, probe: {} } } } ]\n"
      let start = threadTime()
      #expect(try PipelineRun.compile(text).sinks.count == count)
      return threadTime() - start
    }
    _ = try time(10)
    let (few, many) = (try time(1000), try time(8000))
    #expect(many < few * 24, "\(few) for 1,000 and \(many) for 8,000")
  }
}
