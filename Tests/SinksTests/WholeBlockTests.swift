import Foundation
import PipelineCore
import PipelineHost
import PipelineTestSupport
import Testing

/// Blocks of lines are copied from file to file unchanged if no step reads them. The output is the same as if every
/// event were read, whatever the lines contain.
@Suite struct WholeBlockTests {
  private static let lines: [[UInt8]] = [
    Array(#"{"a":1}"#.utf8), Array(#"{"b":[1,2,{"c":"x"}]}"#.utf8), Array(#"  {"a":2} "#.utf8), Array("".utf8),
    Array("   ".utf8),
    Array("7".utf8), Array(#""text""#.utf8), Array("{\"a\":\r1}".utf8), Array("[1,\t2]".utf8), Array("{\"a\":1".utf8),
    [0x22, 0xFF, 0x22], Array(#"{"ü":"文"}"#.utf8), Array("plain text".utf8), Array("with\rreturn".utf8),
    Array("end\r".utf8),
    Array(("{\"long\":\"" + String(repeating: "x", count: 3000) + "\"}").utf8),
  ]

  /// The output, and the rejected input.
  private func run(
    _ folder: Scratch, _ decode: String, _ encode: String, chain: String, threads: Int = 1, blockBytes: Int? = nil
  ) throws -> (written: [String], inlineRuns: Int) {
    let out = "out-\(chain.count)-\(threads)-\(blockBytes ?? 0)"
    let pipeline = try RealPipeline(
      """
      name: blocks
      threads: \(threads)
      sources: { input: { file: { path: \(folder("in")), decode: \(decode) } } }
      sinks: { out: { from: input, chain: [\(chain)], file: { path: \(folder(out)), encode: \(encode) } } }
      """, onLoop: threads > 1
    ) {
      $0.reading.blockBytes = blockBytes
      $0.reading.startsAllThreads = true
    }
    #expect(pipeline.runToEnd() == .completed)
    let written =
      [folder.read(out), "\(pipeline.counters.received) \(pipeline.counters.sent)"]
      + pipeline.deadLetters.map(place)
    return (written, pipeline.inlineRuns)
  }

  /// Without the time.
  private func place(_ letter: String) -> String {
    letter.range(of: "\"rejected\"").map { String(letter[$0.lowerBound...]) } ?? letter
  }

  @Test(arguments: [
    ("lines", "lines"), ("lines", "text"), ("ndjson", "ndjson"), ("ndjson", "text"), ("lines", "ndjson"),
  ])
  func areWrittenAsEventsAre(decode: String, encode: String) throws {
    var random = SplitMix(UInt64(decode.count * 31 + encode.count))
    for round in 0..<12 {
      let folder = Scratch()
      // Some inputs contain only lines that can pass unchanged; long runs of lines make blocks that are not copied.
      let choice =
        round % 3 == 0
        ? Array(Self.lines[0...1]) : round % 3 == 1 ? [Self.lines[0], Self.lines[11], Self.lines[15]] : Self.lines
      var bytes: [UInt8] = round % 4 == 3 ? [0xEF, 0xBB, 0xBF] : []
      for _ in 0..<[5, 300, 3000][round % 3] {
        bytes += choice[Int(random.next() % UInt64(choice.count))]
        bytes.append(0x0A)
      }
      if round % 2 == 1 { bytes.removeLast() }
      folder.append(bytes, to: "in")
      let whole = try run(folder, decode, encode, chain: "").written
      let single = try run(folder, decode, encode, chain: "filter: true").written
      #expect(whole == single, "round \(round)")
      #expect(whole[0] != "")
    }
  }

  /// Decoder threads predict from earlier blocks that no step reads the next one, and write it themselves; now and
  /// then a block differs.
  @Test(arguments: [2, 3]) func areWrittenByWhoReadsThem(threads: Int) throws {
    var random = SplitMix(UInt64(threads))
    var inlineRuns = 0
    for round in 0..<8 {
      let folder = Scratch()
      var bytes: [UInt8] = []
      for _ in 0..<4000 {
        let line = random.below(500) == 0 ? random.below(Self.lines.count) : [0, 1, 11][random.below(3)]
        bytes += Self.lines[line] + [0x0A]
      }
      folder.append(bytes, to: "in")
      let single = try run(folder, "ndjson", "ndjson", chain: "filter: true", blockBytes: 4096).written
      for blockBytes in [200, 5000, 40_000] {
        let whole = try run(folder, "ndjson", "ndjson", chain: "", threads: threads, blockBytes: blockBytes)
        inlineRuns += whole.inlineRuns
        #expect(whole.written == single, "round \(round), blocks of \(blockBytes) bytes")
      }
      #expect(single[0].utf8.count > 40_000)
    }
    #expect(inlineRuns > 0)
  }
}
