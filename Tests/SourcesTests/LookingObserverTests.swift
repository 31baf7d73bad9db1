import Foundation
import PipelineCore
import PipelineHost
import PipelineTestSupport
import Testing

/// An observer that looks for some events lets blocks without such an event pass unchanged.
@Suite struct LookingObserverTests {
  /// Looks for one number, and records the events that it receives.
  private final class Looking: EdgeObserver {
    private let wanted: Set<String>
    private(set) var seen: [String] = []
    private(set) var unseen = 0
    private(set) var verdicts: [Verdict] = []

    init(_ wanted: Set<Int>) { self.wanted = Set(wanted.map { "{\"n\":\($0)}" }) }

    override func wants(_ event: Event) -> Bool { wanted.contains(OwnedValue(event.value).json) }
    override func receive(_ event: Event) { seen.append(OwnedValue(event.value).json) }
    override func decided(_ verdict: Verdict) { verdicts.append(verdict) }
    override func missed(_ events: Int) { unseen += events }
  }

  private struct Run {
    var output: String
    var encodedBlocks: Int
    var observer: Looking
  }

  private func run(
    _ chain: String, wanting wanted: Set<Int>, at place: (Plan) -> EdgeID, encode: String = "ndjson"
  ) throws -> Run {
    let folder = Scratch()
    folder.append((0..<3000).map { "{\"n\":\($0)}\n" }.joined(), to: "in")
    let observer = Looking(wanted)
    let pipeline = try RealPipeline(
      """
      threads: 3
      sources: { input: { file: { path: \(folder("in")), decode: ndjson } } }
      sinks: { out: { from: input, chain: [ \(chain) ], file: { path: \(folder("out")), encode: \(encode) } } }
      """, onLoop: true
    ) {
      $0.reading.blockBytes = 500
      $0.reading.startsAllThreads = true
      nonisolated(unsafe) let (running, looking) = ($0, observer)
      let edge = place($0.plan)
      $0.executor.post { running.attach(looking, to: edge) }
    }
    #expect(pipeline.runToEnd(within: .seconds(60)) == .completed)
    return Run(output: folder.read("out"), encodedBlocks: pipeline.execution.reading.encodedBlocks, observer: observer)
  }

  /// The edge into a step, by its keyword.
  private func edge(into keyword: String) -> (Plan) -> EdgeID {
    { plan in
      EdgeID(
        plan.edges.indices.first { index in
          if case .step(let step) = plan.edges[index].to { plan.steps[step.number].keyword == keyword } else { false }
        } ?? 0)
    }
  }

  private static let filtered = (0..<3000).filter { $0 % 3 == 0 }.map { "{\"n\":\($0)}\n" }.joined()

  @Test func whatNobodyWantsStaysWithTheThreads() throws {
    for keyword in ["filter", "file"] {
      let run = try run("{ filter: event.n % 3 == 0 }", wanting: [-1], at: edge(into: keyword))
      #expect(run.output == Self.filtered)
      #expect(run.encodedBlocks > 40, "\(keyword)")
      #expect(run.observer.seen == [])
      #expect(run.observer.unseen == (keyword == "filter" ? 3000 : 1000))
    }
  }

  /// The whole block with a wanted event is shown, with verdicts, and no other block.
  @Test func wantedEventsAreShown() throws {
    let run = try run("{ filter: event.n % 3 == 0 }", wanting: [1500, 1501], at: edge(into: "filter"))
    #expect(run.output == Self.filtered)
    #expect(run.encodedBlocks > 40)
    #expect(run.observer.seen.contains("{\"n\":1500}") && run.observer.seen.contains("{\"n\":1501}"))
    #expect(run.observer.seen.count < 300 && run.observer.seen.count == run.observer.verdicts.count)
    #expect(run.observer.seen.count + run.observer.unseen == 3000)
    let verdicts = Dictionary(zip(run.observer.seen, run.observer.verdicts)) { first, _ in first }
    #expect(verdicts["{\"n\":1500}"] == .passed && verdicts["{\"n\":1501}"] == .dropped)
  }

  /// After a step that changes events, the source's index says nothing about them.
  @Test func changedEventsAreShownOneByOne() throws {
    let run = try run("{ map: { n: event.n + 1 } }, { filter: event.n > 0 }", wanting: [3000], at: edge(into: "filter"))
    #expect(run.observer.seen.contains("{\"n\":3000}"))
    #expect(run.observer.seen.count == 3000 && run.encodedBlocks == 0)
  }

  /// Unchanged lines are also passed on as blocks.
  @Test func unchangedLines() throws {
    let run = try run("", wanting: [-1], at: edge(into: "file"))
    #expect(run.output.utf8.count == (0..<3000).reduce(0) { $0 + "{\"n\":\($1)}\n".utf8.count })
    #expect(run.observer.seen == [] && run.observer.unseen == 3000)
  }
}
