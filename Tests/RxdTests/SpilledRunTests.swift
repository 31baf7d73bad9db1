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
  /// So many keys that most have no room in memory, whichever step has them, and that a fast program commits while it reads them: keys are moved
  /// only behind a commit, which memory asks for when it is half as much again as the limit.
  private static let count = 400_000
  private static let padding = String(repeating: "a long key ", count: 9)

  init() throws { folder = try Scratch() }

  private static func line(_ number: Int) -> String { "\"\(number * 7919 % 1_000_003) \(padding)\"\n" }
  /// The bytes of so many lines.
  private static func bytes(_ count: Int) -> Int { (0..<count).reduce(0) { $0 + line($1).utf8.count } }

  /// Each number once, in no order, with a fifth of them again far behind.
  private func writeInput() throws {
    var text = ""
    for number in 0..<Self.count {
      text += Self.line(number)
      if number % 5 == 4 { text += Self.line(number / 2) }
    }
    try folder.write("in.ndjson", text)
  }

  /// Appends lines that are known, and one that is not.
  private func append(_ number: Int) throws {
    let handle = try #require(fopen(folder.path + "/in.ndjson", "a"))
    for number in [0, 1, Self.count - 1, number] { fputs(Self.line(number), handle) }
    fclose(handle)
  }

  /// Waits until so many lines have been written.
  private func waitForLines(_ count: Int) throws {
    let (end, wanted) = (Date(timeIntervalSinceNow: 200), Self.bytes(count))
    while size() < wanted, Date() < end { poll(nil, 0, 20) }
    try #require(try written().count == count)
  }

  private static let steps = [
    "{ distinct: { memory: 10000000 } }", "{ latest: { by: event, maxKeys: 10000000 } }",
    "{ topN: { by: event, count: 1, per: event, maxKeys: 10000000 } }",
    "{ groupBy: { key: event, maxGroups: 10000000, chain: [ { take: 1 } ] } }",
  ]

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
    let whole = Self.bytes(Self.count)
    var generator = SplitMix(UInt64(Date().timeIntervalSince1970))
    var hadKeys = false
    for round in 0..<4 {
      let process = try RunningRxd(["run", "-v", "--state-dir", state, file])
      let end = Date(timeIntervalSinceNow: 60)
      // The first kill comes when keys are on the disk.
      let wanted = size() + whole / (round == 0 ? 2 : 16) + Int(generator.next() % UInt64(whole / 6))
      // A process that has completed would begin anew.
      while size() < min(wanted, whole / 8 * 7), Date() < end { poll(nil, 0, 1) }
      process.send(SIGKILL)
      _ = try process.wait()
      hadKeys = hadKeys || FileManager.default.fileExists(atPath: keys)
    }
    let outcome = try Rxd.run(arguments: ["run", file], state: state, input: "")
    #expect(outcome.status == 0, "\(outcome.errors)")
    let lines = try written()
    #expect(lines.count == Self.count && Set(lines).count == Self.count)
    #expect(hadKeys)
    // The pipeline has completed, so that its state is gone, and the keys with it.
    #expect(!FileManager.default.fileExists(atPath: keys))
  }

  /// A join that keeps more than its memory: every event finds its partner once, though the process is killed.
  @Test func aKilledJoinLosesNoPair() throws {
    let count = 120_000
    for (name, shift) in [("a", 0), ("b", 8_000)] {
      var text = ""
      for number in 0..<count {
        text += "{\"t\":\(number / 100),\"k\":\((number + shift) % count * 7919 % 1_000_003)}\n"
      }
      try folder.write("\(name).ndjson", text)
    }
    try folder.write(
      "once.yaml",
      """
      name: once
      state: { memory: 16MiB }
      sources:
        a: { file: { path: \(folder.path)/a.ndjson, decode: json }, time: timestamp(event.t) }
        b: { file: { path: \(folder.path)/b.ndjson, decode: json }, time: timestamp(event.t) }
      sinks:
        out:
          from: a
          chain: [ { join: { signal: b, within: 1h, limit: 10000000, key: event.k, otherKey: other.k, reduce: event.k } } ]
          file: { path: \(folder.path)/out.ndjson, encode: json }

      """)
    let file = folder.path + "/once.yaml"
    let whole = (0..<count).reduce(0) { $0 + "\($1 * 7919 % 1_000_003)\n".utf8.count }
    var generator = SplitMix(UInt64(Date().timeIntervalSince1970))
    var hadKeys = false
    for _ in 0..<4 {
      let process = try RunningRxd(["run", "-v", "--state-dir", state, file])
      let end = Date(timeIntervalSinceNow: 60)
      let wanted = size() + 1 + Int(generator.next() % UInt64(whole / 3))
      while size() < min(wanted, whole / 8 * 7), Date() < end { poll(nil, 0, 1) }
      process.send(SIGKILL)
      _ = try process.wait()
      hadKeys = hadKeys || FileManager.default.fileExists(atPath: keys)
    }
    let outcome = try Rxd.run(arguments: ["run", file], state: state, input: "")
    #expect(outcome.status == 0, "\(outcome.errors)")
    let lines = try written()
    #expect(lines.count == count && Set(lines).count == count)
    #expect(hadKeys && !FileManager.default.fileExists(atPath: keys))
  }

  /// `rxd state` treats the keys as a part of the pipeline's state.
  @Test func theVerbsKnowTheKeys() throws {
    try writeInput()
    let file = try pipeline(top: ", follow: true")
    let process = try RunningRxd(["run", "-v", "--state-dir", state, file])
    try waitForLines(Self.count)
    process.send(SIGTERM)
    #expect(try process.wait() == 0)
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
    try append(Self.count)
    let next = try RunningRxd(["run", "-v", "--state-dir", state, file])
    try waitForLines(Self.count + 1)
    next.send(SIGTERM)
    #expect(try next.wait() == 0)
    #expect(try written().last.map { $0 + "\n" } == Self.line(Self.count)[...])
    #expect(try written().count == Self.count + 1)
    #expect(try rxd("state", "delete", "again", "--yes").status == 0)
    let left = try FileManager.default.contentsOfDirectory(atPath: state + "/pipelines")
    #expect(left.allSatisfy { !$0.hasPrefix("again") }, "\(left)")
  }

  /// A file without the limit still reads the keys that are there, after a reload and after a restart, and one with the limit goes on with
  /// what that has left.
  @Test(arguments: steps) func theLimitCanGo(step: String) throws {
    try writeInput()
    let file = try pipeline(top: ", follow: true", step: step)
    var process = try RunningRxd(["run", "-v", "--state-dir", state, file])
    try waitForLines(Self.count)
    _ = try pipeline("", top: ", follow: true", step: step)
    process.send(SIGHUP)
    _ = try process.errorLine(with: "reloaded")
    var lines = Self.count
    for memory in ["", "", "16MiB"] {
      if lines > Self.count {
        _ = try pipeline(memory, top: ", follow: true", step: step)
        process = try RunningRxd(["run", "-v", "--state-dir", state, file])
      }
      try append(lines)
      lines += 1
      try waitForLines(lines)
      #expect(try written().last.map { $0 + "\n" } == Self.line(lines - 1)[...])
      process.send(SIGTERM)
      #expect(try process.wait() == 0)
      #expect(try written().count == lines)
      #expect(FileManager.default.fileExists(atPath: keys))
    }
  }
}
