import Foundation
import PipelineHost
import Testing

/// The bound of `--queue-memory` is one of the process as the system sees it.
@Suite(.timeLimit(.minutes(10)))
struct QueueMemoryTests {
  /// The memory of a process that no file backs, in bytes.
  private func memory(_ process: Int32) -> Int {
    let status = (try? String(contentsOfFile: "/proc/\(process)/status", encoding: .utf8)) ?? ""
    let line = status.split(separator: "\n").first { $0.hasPrefix("RssAnon:") } ?? ""
    return (line.split(separator: " ").dropFirst().first.flatMap { Int($0) } ?? 0) << 10
  }

  /// How many events wait in the stores of a directory.
  private func stored(_ state: String) throws -> Int {
    let listed = try Rxd.run(arguments: ["state", "ls", "--format", "json"], state: state)
    let pipelines = try JSONSerialization.jsonObject(with: Data(listed.output.utf8)) as? [[String: Any]] ?? []
    let sinks = pipelines.flatMap { $0["outbox"] as? [[String: Any]] ?? [] }
    return sinks.reduce(0) { $0 + ($1["events"] as? Int ?? 0) }
  }

  /// Pipelines that store ten times the memory, before a server that never answers.
  @Test func manyDurablePipelinesWithDeadSinksStayWithinTheBound() throws {
    let (count, events, budget) = (40, 12_000, 8 << 20)
    let folder = try Scratch()
    let state = folder.path + "/state"
    let files = try (0..<count).map { number in
      try folder.write("in-\(number)", "")
      return try folder.write(
        "p\(number).yaml",
        """
        delivery: durable
        sources: { in: { file: { path: \(folder.path)/in-\(number), follow: true, decode: json } } }
        sinks: { out: { from: in, http: { url: 'http://127.0.0.1:1/' } } }

        """)
    }
    let process = try RunningRxd(
      ["--daemon", "--queue-memory", "8MiB", "--state-dir", state, "--log-format", "text", "-v"] + files)
    for _ in 0..<count { try process.errorLine(with: "started") }
    let idle = memory(process.pid)
    let line = "{\"text\":\"\(String(repeating: "x", count: 160))\"}\n"
    let text = String(repeating: line, count: events)
    for number in 0..<count { try folder.write("in-\(number)", text) }
    var most = 0
    #expect(
      try Polling.until(pause: 100) {
        most = max(most, memory(process.pid))
        return try stored(state) == count * events
      })
    // Beside what waits, each pipeline that works has its blocks, buffers and a log's index.
    let bound = idle + budget / 4 * 5 + count * 400 << 10
    #expect(most <= bound, "\(most >> 10) KiB; idle \(idle >> 10), at most \(bound >> 10)")
    process.send(SIGTERM)
    process.send(SIGQUIT)
    _ = try process.wait()
  }
}
