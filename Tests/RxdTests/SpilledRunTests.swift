import Foundation
import PipelineHost
import PipelineTestSupport
import Testing

/// More keys than there is memory for, with the real program and the real disk.
@Suite(.timeLimit(.minutes(10)))
struct SpilledRunTests {
  private let folder: Scratch
  private var state: String { folder.path + "/state" }
  private var keys: String { state + "/pipelines/once.keys" }
  private static let count = 400_000

  init() throws { folder = try Scratch() }

  /// Each number once, in no order, with a fifth of them again far behind.
  private func writeInput() throws {
    var text = ""
    text.reserveCapacity(12 * Self.count)
    for number in 0..<Self.count {
      text += "\(number * 7919 % 1_000_003)\n"
      if number % 5 == 4 { text += "\(number / 2 * 7919 % 1_000_003)\n" }
    }
    try folder.write("in.ndjson", text)
  }

  private static let steps = ["{ distinct: { memory: 10000000 } }", "{ latest: { by: event, maxKeys: 10000000 } }"]

  private func pipeline(_ memory: String = "16MiB", top: String = "", step: String = Self.steps[0]) throws -> String {
    try folder.write(
      "once.yaml",
      """
      name: once
      \(memory.isEmpty ? "" : "state: { memory: \(memory) }")
      sources: { in: { file: { path: \(folder.path)/in.ndjson, decode: json\(top) } } }
      sinks: { out: { from: in, chain: [ \(step) ], file: { path: \(folder.path)/out.ndjson, encode: json } } }

      """)
  }

  private func written() throws -> [Substring] {
    try String(contentsOfFile: folder.path + "/out.ndjson", encoding: .utf8).split(separator: "\n")
  }

  private func size() -> Int {
    var status = stat()
    return stat(folder.path + "/out.ndjson", &status) == 0 ? Int(status.st_size) : 0
  }

  /// Every number stands once, however often the process is killed while it moves keys to the disk.
  @Test(arguments: steps) func aKilledProcessForgetsNothing(step: String) throws {
    try writeInput()
    let file = try pipeline(step: step)
    let whole = (0..<Self.count).reduce(0) { $0 + "\($1 * 7919 % 1_000_003)\n".utf8.count }
    var generator = SplitMix(UInt64(Date().timeIntervalSince1970))
    var hadKeys = false
    for round in 0..<6 {
      let process = try RunningRxd(["run", "-v", "--state-dir", state, file])
      let end = Date(timeIntervalSinceNow: 60)
      let wanted = size() + 100_000 + Int(generator.next() % 300_000)
      while size() < min(wanted, whole), Date() < end { poll(nil, 0, 1) }
      process.send(SIGKILL)
      _ = try process.wait()
      hadKeys = hadKeys || FileManager.default.fileExists(atPath: keys)
      if try round == 5 || written().count == Self.count { break }
    }
    let outcome = try Rxd.run(arguments: ["run", file], state: state, input: "")
    #expect(outcome.status == 0, "\(outcome.errors)")
    let lines = try written()
    #expect(lines.count == Self.count && Set(lines).count == Self.count)
    #expect(hadKeys)
    // The pipeline has completed, so that its state is gone, and the keys with it.
    #expect(!FileManager.default.fileExists(atPath: keys))
  }

  /// `rxd state` treats the keys as a part of the pipeline's state.
  @Test func theVerbsKnowTheKeys() throws {
    try writeInput()
    let file = try pipeline(top: ", follow: true")
    let process = try RunningRxd(["run", "-v", "--state-dir", state, file])
    let end = Date(timeIntervalSinceNow: 200)
    while try size() < 1000 || written().count < Self.count, Date() < end { poll(nil, 0, 50) }
    process.send(SIGTERM)
    #expect(try process.wait() == 0)
    #expect(try written().count == Self.count)
    func rxd(_ arguments: String...) throws -> Rxd.Outcome {
      try Rxd.run(arguments: arguments, state: state, input: "")
    }
    let shown = try rxd("state", "show", "once")
    #expect(shown.output.contains("keys on the disk: "), "\(shown.output)")
    let document = try rxd("state", "show", "once", "--format", "json")
    #expect(document.output.contains("\"key_bytes\""), "\(document.output) \(document.errors)")
    let exported = try rxd("state", "export", "once")
    #expect(exported.status == 1 && exported.errors.contains("cannot have the keys that 'once' keeps on the disk"))
    // Under another name everything goes on: no number comes again.
    #expect(try rxd("state", "rename", "once", "again").status == 0)
    #expect(!FileManager.default.fileExists(atPath: keys))
    let other = try String(contentsOfFile: file, encoding: .utf8).replacing("name: once", with: "name: again")
    try Data(other.utf8).write(to: URL(fileURLWithPath: file))
    let handle = try #require(fopen(folder.path + "/in.ndjson", "a"))
    fputs("0\n7919\n5000001\n", handle)
    fclose(handle)
    let next = try RunningRxd(["run", "-v", "--state-dir", state, file])
    while try written().count < Self.count + 1, Date() < end { poll(nil, 0, 20) }
    next.send(SIGTERM)
    #expect(try next.wait() == 0)
    #expect(try written().suffix(2).last == "5000001" && written().count == Self.count + 1)
    #expect(try rxd("state", "delete", "again", "--yes").status == 0)
    let left = try FileManager.default.contentsOfDirectory(atPath: state + "/pipelines")
    #expect(left.allSatisfy { !$0.hasPrefix("again") }, "\(left)")
  }

  /// A file without the limit still reads the keys that are there.
  @Test func theLimitCanGo() throws {
    try writeInput()
    let file = try pipeline(top: ", follow: true")
    let process = try RunningRxd(["run", "-v", "--state-dir", state, file])
    let end = Date(timeIntervalSinceNow: 200)
    while try size() < 1000 || written().count < Self.count, Date() < end { poll(nil, 0, 50) }
    _ = try pipeline("", top: ", follow: true")
    process.send(SIGHUP)
    _ = try process.errorLine(with: "reloaded")
    let handle = try #require(fopen(folder.path + "/in.ndjson", "a"))
    fputs("0\n7919\n5000001\n", handle)
    fclose(handle)
    while try written().count < Self.count + 1, Date() < end { poll(nil, 0, 20) }
    process.send(SIGTERM)
    #expect(try process.wait() == 0)
    #expect(try written().suffix(1).last == "5000001" && written().count == Self.count + 1)
    #expect(FileManager.default.fileExists(atPath: keys))
  }
}
