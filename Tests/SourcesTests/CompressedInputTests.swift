import Foundation
import PipelineCore
import PipelineHost
import Synchronization
import Testing

/// `file` reads files that are compressed with gzip or zstd, once and from the start.
@Suite struct CompressedInputTests {
  let scratch = Scratch()

  static let programs: [[String]] =
    [["gzip", "-n"]] + (access("/usr/bin/zstd", X_OK) == 0 ? [["zstd", "-q", "--rm"]] : [])

  private func yaml(_ file: String) -> String {
    """
    sources:
      input:
        file: \(file)
    sinks: { out: { from: input, chain: [ { map: event } ], probe: {} } }
    """
  }

  private func read(_ file: String, restoring state: [UInt8]? = nil) throws -> RealPipeline {
    let reading = try RealPipeline(yaml(file), restoring: state)
    reading.runToEnd()
    return reading
  }

  /// Compresses a file in place, keeping its name.
  private func compress(_ name: String, _ program: [String]) throws {
    let process = Process()
    process.executableURL = URL(fileURLWithPath: "/usr/bin/env")
    process.arguments = program + [scratch(name)]
    try process.run()
    process.waitUntilExit()
    try #require(process.terminationStatus == 0)
    let made = scratch(name) + (program[0] == "gzip" ? ".gz" : ".zst")
    #expect(rename(made, scratch(name)) == 0)
  }

  private func bytes(_ name: String) -> [UInt8] {
    [UInt8](FileManager.default.contents(atPath: scratch(name)) ?? Data())
  }

  /// Numbered lines that compress poorly.
  private func lines(_ count: Int) -> [String] {
    (0..<count).map { "\($0) \(UInt64($0) &* 0x9E37_79B9_7F4A_7C15 >> 7)" }
  }

  /// Whatever its name, next to plain files.
  @Test(arguments: programs, ["text", "json", "whole"]) func readsWhatIsCompressed(
    _ program: [String], _ decode: String
  ) throws {
    scratch.append("1\n", to: "a.log")
    scratch.append("2\n3", to: "b.log")
    scratch.append("4\n", to: "c.log")
    try compress("b.log", program)
    let reading = try read("{ path: '\(scratch("*.log"))', decode: \(decode) }")
    #expect(reading.outcome == .completed)
    let quote = decode == "json" ? "" : "\""
    let texts = decode == "whole" ? ["1\\n", "2\\n3", "4\\n"] : ["1", "2", "3", "4"]
    #expect(reading.events == texts.map { quote + $0 + quote })
  }

  @Test(arguments: programs) func readsMuchInOrder(_ program: [String]) throws {
    let all = lines(200_000)
    scratch.append(all.joined(separator: "\n") + "\n", to: "a.log")
    try compress("a.log", program)
    let reading = try RealPipeline(
      """
      sources: { input: { file: '\(scratch("a.log"))' } }
      sinks: { out: { from: input, file: { path: '\(scratch("out"))', encode: text } } }
      """)
    #expect(reading.runToEnd() == .completed)
    let isSame = scratch.read("out") == all.joined(separator: "\n") + "\n"
    #expect(isSame)
  }

  /// Concatenated, as `cat a.gz b.gz` does.
  @Test(arguments: programs) func readsAllPartsOfAFile(_ program: [String]) throws {
    scratch.append("1\n2", to: "a.log")
    scratch.append("3\n4\n", to: "b.log")
    try compress("a.log", program)
    try compress("b.log", program)
    scratch.append(bytes("a.log") + bytes("b.log"), to: "c.log")
    let reading = try read(scratch("c.log"))
    #expect(reading.events == ["\"1\"", "\"23\"", "\"4\""])
  }

  /// Offsets refer to the content, and another run continues at such an offset.
  @Test(arguments: programs) func continuesInTheMiddle(_ program: [String]) throws {
    let all = lines(50_000)
    scratch.append(all.joined(separator: "\n") + "\n", to: "a.log")
    try compress("a.log", program)
    let first = try RealPipeline(yaml("'\(scratch("a.log"))'")) {
      $0.reading.blockBytes = 4000
      $0.executor.limits.events = 100
    }
    first.run { first.events.count >= 20_000 }
    let state = try #require(first.suspend())
    let seen = first.events
    #expect(seen.count >= 20_000 && seen.count < all.count)
    let second = try read("'\(scratch("a.log"))'", restoring: state)
    #expect(second.outcome == .completed)
    let isSame = seen + second.events == all.map { "\"\($0)\"" }
    #expect(isSame, "\(seen.count) and \(second.events.count) of \(all.count)")
    #expect(second.log == [])
  }

  /// The complete lines before the end are sent, then the error with its offset.
  @Test(arguments: programs) func aFileThatEndsInTheMiddle(_ program: [String]) throws {
    let all = lines(50_000)
    scratch.append(all.joined(separator: "\n") + "\n", to: "a.log")
    try compress("a.log", program)
    #expect(truncate(scratch("a.log"), off_t(bytes("a.log").count / 2)) == 0)
    let reading = try read(scratch("a.log"))
    let failure = try #require(reading.failure)
    #expect(failure.message.hasPrefix("cannot decompress \(scratch("a.log")): it ends in the middle, after "))
    #expect(failure.location?.line == 3)
    #expect(reading.events.count > 1000 && reading.events.count < all.count)
    let isStart = reading.events[...] == all.map { "\"\($0)\"" }.prefix(reading.events.count)
    #expect(isStart)
  }

  @Test(arguments: programs) func aDamagedFile(_ program: [String]) throws {
    let all = lines(50_000)
    scratch.append(all.joined(separator: "\n") + "\n", to: "a.log")
    try compress("a.log", program)
    var damaged = bytes("a.log")
    for index in damaged.count / 2..<damaged.count / 2 + 400 { damaged[index] = 0xFF }
    unlink(scratch("a.log"))
    scratch.append(damaged, to: "a.log")
    let reading = try read(scratch("a.log"))
    let failure = try #require(reading.failure)
    #expect(failure.message.contains("it is damaged after "))
    // A checksum follows its data, so lines after the damage may be wrong.
    let isStart = reading.events.prefix(20_000) == all.map { "\"\($0)\"" }.prefix(20_000)
    #expect(isStart && reading.events.count >= 20_000)
  }

  /// A bomb is read as a stream: a whole file up to `maxBytes`, lines up to `maxLine`.
  @Test(arguments: programs) func aFileOfZeros(_ program: [String]) throws {
    scratch.append([UInt8](repeating: 0x61, count: 64 << 20), to: "a.log")
    try compress("a.log", program)
    let whole = try read("{ path: '\(scratch("a.log"))', decode: whole, maxBytes: 1MiB }")
    #expect(
      whole.failure?.message.contains("it is longer than 1048576 bytes") == true, "\(whole.failure?.message ?? "")")
    let lines = try read("{ path: '\(scratch("a.log"))', maxLine: 1KiB }")
    #expect(lines.outcome == .completed && lines.events == [] && lines.counters.rejected == 1)
  }

  @Test func theMeaningOfTheFile() throws {
    scratch.append("1\n", to: "a.log")
    #expect(try read("{ path: '\(scratch("a.log"))', compression: auto }").events == ["\"1\""])
    let plain = try read("{ path: '\(scratch("a.log"))', compression: gzip }")
    #expect(
      plain.failure?.message
        == "cannot decompress \(scratch("a.log")): it is damaged, or not in the expected format")
    try compress("a.log", ["gzip", "-n"])
    #expect(try read("{ path: '\(scratch("a.log"))', compression: gzip }").events == ["\"1\""])
    let refused = try read("{ path: '\(scratch("a.log"))', compression: none }")
    #expect(refused.failure?.message.contains("it is compressed with gzip") == true)
    // Bytes are counted as stored in the file.
    let size = bytes("a.log").count
    let raw = try RealPipeline(
      """
      sources: { input: { file: { path: '\(scratch("a.log"))', decode: bytes } } }
      sinks: { out: { from: input, chain: [ { map: size(event) } ], probe: {} } }
      """)
    raw.runToEnd()
    #expect(raw.events == ["\(size)"])
    let content = try RealPipeline(
      """
      sources: { input: { file: { path: '\(scratch("a.log"))', decode: bytes, compression: gzip } } }
      sinks: { out: { from: input, chain: [ { map: size(event) } ], probe: {} } }
      """)
    content.runToEnd()
    #expect(content.events == ["2"])
    #expect(
      PipelineText.complaints(yaml("{ path: a.log, follow: true, compression: gzip }"))
        == ["3:53: 'compression' of 'file' has no effect with 'follow: true'"])
  }
}
