import PipelineCore
import PipelineHost
import PipelineTestSupport
import Testing

/// Pinned placements (`rxd run --placement`) take effect, and change only the timing.
@Suite struct PlacementTests {
  private struct Written: Equatable {
    var files: [String]
    var deadLetters: [String]
    var counters: Execution.Counters
    var steps: [String]
    var outcome: Execution.Outcome?
  }

  private struct Run {
    var written: Written
    var encodedBlocks: Int
    var inlineRuns: Int
  }

  private static let good = [
    #"{"n":1,"s":"a"}"#, #"{"n":2,"s":"b"}"#, #"{ "n" : 3.50, "s" : "ü" }"#, #"{"n":4,"s":"x","l":[1,2]}"#,
  ]

  private func run(_ folder: Scratch, _ source: String, _ sinks: String, _ placement: Placement, threads: Int) throws
    -> Run
  {
    let out = "\(placement.rawValue)-\(threads)"
    let pipeline = try RealPipeline(
      """
      threads: \(threads)
      sources: { input: { file: { path: \(folder("in")), \(source) } } }
      sinks: \(sinks.replacing("OUT", with: folder(out)))
      """, onLoop: true
    ) {
      $0.reading.blockBytes = 2000
      $0.reading.placement = placement
    }
    let outcome = pipeline.runToEnd(within: .seconds(60))
    return Run(
      written: Written(
        files: ["-a", "-b"].map { folder.read(out + $0) }, deadLetters: pipeline.deadLetters.map(place),
        counters: pipeline.counters, steps: pipeline.execution.statistics.counts, outcome: outcome),
      encodedBlocks: pipeline.execution.reading.encodedBlocks, inlineRuns: pipeline.inlineRuns)
  }

  /// Without the time.
  private func place(_ letter: String) -> String {
    letter.range(of: "\"rejected\"").map { String(letter[$0.lowerBound...]) } ?? letter
  }

  @Test(arguments: [
    (
      "two sinks",
      "{ a: { from: input, chain: [filter: event.n > 1], file: OUT-a }, b: { from: input, chain: [map: event.s], file: { path: OUT-b, encode: lines } } }"
    ),
    ("nothing reads the events", "{ a: { from: input, file: OUT-a } }"),
    ("a step with memory", "{ a: { from: input, chain: [scan: { next: index }], file: OUT-a } }"),
    ("a step that fails", "{ a: { from: input, chain: [map: event.n + 1], file: OUT-a } }"),
  ])
  func eachGivesTheSameOutput(name: String, sinks: String) throws {
    let folder = Scratch()
    var lines = (0..<3000).map { Self.good[$0 % Self.good.count] }
    if name == "a step that fails" { lines[1700] = #"{"n":"no number"}"# }
    folder.append(lines.joined(separator: "\n") + "\n", to: "in")
    let hasStage = name != "a step with memory"
    var inlineRuns = 0
    for threads in [1, 2, 3] {
      let first = try run(folder, "decode: ndjson", sinks, .auto, threads: threads)
      #expect(first.written.outcome == .completed)
      #expect(first.written.counters.received == 3000)
      for placement in Placement.allCases where placement != .auto {
        let made = try run(folder, "decode: ndjson", sinks, placement, threads: threads)
        let label: Comment = "\(name), \(placement) with \(threads) threads"
        #expect(made.written == first.written, label)
        if placement == .inline || placement == .threadsInline {
          inlineRuns += made.inlineRuns
        } else {
          #expect(made.inlineRuns == 0, label)
        }
        let passesThrough = name == "nothing reads the events"
        if hasStage, !passesThrough, placement == .threads || placement == .threadsInline {
          #expect(made.encodedBlocks > 20, label)
        } else {
          #expect(made.encodedBlocks == 0, label)
        }
      }
    }
    // A turn runs inline only if the loop happens to be asleep.
    #expect(inlineRuns > 0)
  }

  @Test func followedFilesAreReadInTheSameTurns() throws {
    let folder = Scratch()
    folder.append((0..<2000).map { Self.good[$0 % Self.good.count] + "\n" }.joined(), to: "in")
    let sinks = "{ a: { from: input, chain: [take: 1999], file: OUT-a } }"
    let first = try run(folder, "decode: ndjson, follow: true", sinks, .auto, threads: 2)
    #expect(first.written.outcome == .completed)
    for placement in Placement.allCases where placement != .auto {
      let made = try run(folder, "decode: ndjson, follow: true", sinks, placement, threads: 2)
      #expect(made.written.files == first.written.files, "\(placement)")
      if placement == .loop || placement == .threads { #expect(made.inlineRuns == 0, "\(placement)") }
    }
  }
}
