import Foundation
import PipelineHost
import Testing

/// Joined lines, directories, charsets and wrong decoders, with the program.
@Suite(.timeLimit(.minutes(10))) struct EverydayFilesTests {
  @Test func theExampleOfStackTracesRuns() throws {
    let outcome = try Rxd.run("run", "--once", "pipelines/stack-traces.yaml", in: Rxd.root)
    #expect(outcome.status == 0)
    let lines = outcome.output.split(separator: "\n").map(String.init)
    #expect(
      lines.filter { $0.contains("message") } == [
        #"{"time":"2026-11-24 10:00:01","message":"order 17 failed","trace":161}"#,
        #"{"time":"2026-11-24 10:00:03","message":"order 19 failed","trace":77}"#,
      ])
    #expect(lines.contains { $0.hasPrefix(#"{"file":"app.log","size":"#) })
  }

  /// A file is followed and written to while the process is killed at random instants: no event is lost, repeated or
  /// cut.
  @Test func joinedEventsSurviveKills() throws {
    let folder = try Scratch()
    let (log, out) = (folder.path + "/app.log", folder.path + "/out")
    let file = try folder.write(
      "take.yaml",
      """
      name: take
      delivery: durable
      sources: { log: { file: { path: '\(log)', follow: true, start: beginning, join: { start: '^E', wait: 1h } } } }
      sinks: { out: { from: log, file: { path: '\(out)', encode: json } } }

      """)
    func events() -> [Substring] {
      ((try? String(contentsOfFile: out, encoding: .utf8)) ?? "").split(separator: "\n")
    }
    func event(_ number: Int) -> String {
      "E\(number)\n" + (0..<(number % 4)).map { "\tat \(number) \($0)\n" }.joined()
    }
    let (parts, perPart) = (6, 1000)
    try Data().write(to: URL(fileURLWithPath: log))
    let writer = try #require(FileHandle(forWritingAtPath: log))
    for part in 0..<parts {
      // A part ends in the middle of an event, which the next part completes.
      var text = (0..<perPart).map { event(part * perPart + $0) }.joined()
      if part > 0 { text = "\tend of the part before\n" + text }
      try writer.write(contentsOf: Data(text.utf8))
      let process = try RunningRxd(["run", "--state-dir", folder.path + "/state", file])
      let all = (part + 1) * perPart - 1
      let wanted = part == parts - 1 ? all : part * perPart + (part + 1) * 150
      Polling.until(pause: 2) { events().count >= wanted }
      process.send(part < parts - 1 ? SIGKILL : SIGTERM)
      _ = try? process.wait()
    }
    let expected = (0..<(parts * perPart - 1)).map { number in
      let lines = event(number) + (number % perPart == perPart - 1 ? "\tend of the part before\n" : "")
      return "\""
        + lines.dropLast().replacingOccurrences(of: "\n", with: "\\n").replacingOccurrences(of: "\t", with: "\\t")
        + "\""
    }
    #expect(events().map(String.init) == expected)
  }

  /// Files appear while the process is killed at random instants, and while it is down: each is reported once.
  @Test func directoriesSurviveKills() throws {
    let folder = try Scratch()
    let (inbox, out) = (folder.path + "/inbox", folder.path + "/out")
    try FileManager.default.createDirectory(atPath: inbox, withIntermediateDirectories: false)
    let file = try folder.write(
      "watch.yaml",
      """
      name: watch
      delivery: durable
      sources: { in: { directory: { path: '\(inbox)', existing: true } } }
      sinks: { out: { from: in, chain: [ { map: "event.event + ' ' + event.name" } ], file: { path: '\(out)', encode: text } } }

      """)
    func lines() -> [Substring] {
      ((try? String(contentsOfFile: out, encoding: .utf8)) ?? "").split(separator: "\n")
    }
    func put(_ number: Int) {
      // A file that appears with its content does not change again.
      _ = FileManager.default.createFile(atPath: folder.path + "/new", contents: Data("x".utf8))
      #expect(rename(folder.path + "/new", "\(inbox)/\(number)") == 0)
    }
    let (parts, perPart) = (5, 600)
    for part in 0..<parts {
      for number in 0..<(perPart / 2) { put(part * perPart + number) }
      let process = try RunningRxd(["run", "--state-dir", folder.path + "/state", file])
      for number in (perPart / 2)..<perPart { put(part * perPart + number) }
      let wanted = part == parts - 1 ? parts * perPart : part * perPart + (part + 1) * 100
      Polling.until(pause: 1) { lines().count >= wanted }
      process.send(part < parts - 1 ? SIGKILL : SIGTERM)
      _ = try? process.wait()
    }
    #expect(lines().map(String.init).sorted() == (0..<(parts * perPart)).map { "created \($0)" }.sorted())
  }

  @Test func standardInputIsJoined() throws {
    let folder = try Scratch()
    let file = try folder.write(
      "join.yaml",
      """
      sources: { in: { stdin: { join: { indented: true } } } }
      sinks: { out: { from: in, stdout: { encode: json } } }

      """)
    let outcome = try Rxd.run("run", file, input: "a\n 1\n 2\nb\n 3")
    #expect(outcome.output == "\"a\\n 1\\n 2\"\n\"b\\n 3\"\n")
  }

  @Test func onceADirectoryIsListed() throws {
    let folder = try Scratch()
    _ = try folder.write("a.csv", "1")
    _ = try folder.write("b.txt", "1")
    let file = try folder.write(
      "list.yaml",
      """
      sources: { in: { directory: { path: '\(folder.path)', include: ['*.csv', none] } } }
      sinks: { out: { from: in, chain: [ { map: '[event.event, event.name]' } ], stdout: { encode: json } } }

      """)
    let outcome = try Rxd.run("run", "--once", file)
    #expect(outcome.output == "[\"created\",\"a.csv\"]\n")
    #expect(outcome.status == 0)
    let missing = try folder.write(
      "missing.yaml",
      """
      sources: { in: { directory: '\(folder.path)/none' } }
      sinks: { out: { from: in, stdout: {} } }

      """)
    let failed = try Rxd.run("run", "--once", missing)
    #expect(failed.status == 1)
    #expect(failed.errors.contains("No such file or directory"))
  }

  private func decoding(_ decode: String, _ input: [UInt8], _ more: String = "") throws -> Rxd.Outcome {
    let folder = try Scratch()
    let path = folder.path + "/input"
    try Data(input).write(to: URL(fileURLWithPath: path))
    let file = try folder.write(
      "read.yaml",
      """
      sources: { in: { file: { path: '\(path)', decode: \(decode)\(more) } } }
      sinks: { out: { from: in, stdout: { encode: json } } }

      """)
    return try Rxd.run("run", file)
  }

  /// One warning names the probable format of the input, and the number of rejected lines is reported at the end.
  @Test func theWrongDecoderIsNamed() throws {
    let pretty = Array("{\n  \"a\": 1,\n  \"b\": [2]\n}\n".utf8)
    let wrong = try decoding("ndjson", pretty)
    let advice = wrong.errors.split(separator: "\n").filter { $0.contains("looks like") }
    #expect(advice.count == 1)
    #expect(
      advice.first?.contains(
        "looks like JSON documents over several lines: write 'decode: jsonDocuments'; of its beginning 4 rows were rejected"
      ) == true)
    #expect(wrong.errors.contains("4 rows of the input were rejected in all"))
    let right = try decoding("jsonDocuments", pretty + pretty)
    #expect(right.output == "{\"a\":1,\"b\":[2]}\n{\"a\":1,\"b\":[2]}\n")
    #expect(!right.errors.contains("looks like"))
  }

  @Test func aCharsetIsNamedAndRead() throws {
    let input = "gr\u{00FC}n\r\nblau\r\n".utf16.flatMap { [UInt8($0 & 0xFF), UInt8($0 >> 8)] }
    let wrong = try decoding("text", [0xFF, 0xFE] + input)
    #expect(wrong.errors.contains("is UTF-16: write 'charset: utf-16'"))
    let right = try decoding("text", [0xFF, 0xFE] + input, ", charset: utf-16")
    #expect(right.output == "\"gr\u{00FC}n\"\n\"blau\"\n")
    let latin = try decoding("text", [0x67, 0x72, 0xFC, 0x6E, 0x0A], ", charset: latin1")
    #expect(latin.output == "\"gr\u{00FC}n\"\n")
  }
}
