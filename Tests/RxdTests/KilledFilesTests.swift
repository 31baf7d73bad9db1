import Foundation
import PipelineHost
import Testing

/// Files named by events contain each row once, in order, however often the process is killed.
@Suite(.timeLimit(.minutes(4)))
struct KilledFilesTests {
  @Test(arguments: ["light", "durable"])
  func everyRowStandsOnce(_ delivery: String) throws {
    let folder = try Scratch()
    let (input, out) = (folder.path + "/in.log", folder.path + "/out")
    mkdir(out, 0o700)
    let file = try folder.write(
      "split.yaml",
      """
      delivery: \(delivery)
      sources: { in: { file: { path: \(input), follow: true, decode: json } } }
      sinks: { out: { from: in, file: { path: "\(out)/{{ event.f }}/x.log", maxOpenFiles: 4, encode: ndjson } } }

      """)
    var wanted: [String: String] = [:]
    var number = 0
    func write(_ count: Int) throws {
      var text = ""
      for _ in 0..<count {
        // The files of one round, and one that all rounds share.
        let name = number % 5 == 0 ? "all" : "f\(number / 400)-\(number % 7)"
        let line = "{\"n\":\(number),\"f\":\"\(name)\"}\n"
        wanted[name, default: ""] += line
        text += line
        number += 1
      }
      let handle = try #require(fopen(input, "a"))
      fputs(text, handle)
      fclose(handle)
    }
    func written() -> Int {
      wanted.keys.reduce(0) { sum, name in
        var status = stat()
        return sum + (stat("\(out)/\(name)/x.log", &status) == 0 ? Int(status.st_size) : 0)
      }
    }
    func total() -> Int { wanted.values.reduce(0) { $0 + $1.utf8.count } }
    /// Waits until the files have so many bytes.
    func wait(for bytes: Int) {
      let end = Date(timeIntervalSinceNow: 100)
      while written() < bytes, Date() < end { poll(nil, 0, 1) }
    }
    func run() throws -> RunningRxd {
      let process = try RunningRxd(["run", "-v", "--state-dir", folder.path + "/state", file])
      _ = try process.errorLine(with: "following")
      return process
    }
    try write(10)
    for round in 0..<8 {
      let process = try run()
      let before = written()
      for _ in 0...round % 3 { try write(100) }
      // In the middle of the most recently written data.
      wait(for: min(before + 800 + 500 * round, total()))
      process.send(SIGKILL)
      _ = try process.wait()
    }
    let process = try run()
    wait(for: total())
    process.send(SIGTERM)
    #expect(try process.wait() == 0)
    for (name, text) in wanted {
      let found = try String(contentsOfFile: "\(out)/\(name)/x.log", encoding: .utf8)
      let isOnce = found == text
      #expect(isOnce, "\(delivery), \(name): \(found.utf8.count) bytes for \(text.utf8.count)")
    }
  }
}
