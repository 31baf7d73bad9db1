import Foundation
import PipelineHost
import Testing

/// Pipelines that could not start, and that are checked until they can.
@Suite(.timeLimit(.minutes(10)))
struct StartCheckTests {
  /// The processor time of the threads of this name, in ticks of 10 ms; nil: there is none.
  private func ticks(_ process: Int32, _ name: String) -> Int? {
    let tasks = "/proc/\(process)/task"
    var sum: Int?
    for task in (try? FileManager.default.contentsOfDirectory(atPath: tasks)) ?? [] {
      guard let text = try? String(contentsOfFile: "\(tasks)/\(task)/stat", encoding: .utf8),
        let end = text.lastIndex(of: ")"), text[..<end].hasSuffix("(\(name)")
      else { continue }
      let fields = text[end...].split(separator: " ")
      guard fields.count > 13, let user = Int(fields[12]), let system = Int(fields[13]) else { continue }
      sum = (sum ?? 0) + user + system
    }
    return sum
  }

  /// The thread that answers the control socket and feeds the watchdog does nothing of it, and a pipeline starts as soon as it can.
  @Test func checksAreMadeBesideTheThreadThatAnswers() throws {
    let folder = try Scratch()
    let target = folder.path + "/missing/out"
    var text = "sources: { n: { values: 7 } }\nsinks:\n"
    for number in 0..<1500 { text += "  s\(number): { from: n, discard: {} }\n" }
    text += "  out: { from: n, file: { path: \(target) } }\n"
    let process = try RunningRxd([
      "--daemon", try folder.write("a.yaml", text), "--state-dir", folder.path + "/state", "--log-format", "text",
    ])
    try process.errorLine(with: "or as soon as nothing is in its way")
    let id = process.pid
    // The first attempts to start come one after the other; then there are checks only.
    #expect(Polling.until { (ticks(id, "rxd aside") ?? 0) > 15 })
    let before = (try #require(ticks(id, "rxd")), try #require(ticks(id, "rxd aside")))
    #expect(Polling.until { (ticks(id, "rxd aside") ?? 0) > before.1 + 15 })
    let main = try #require(ticks(id, "rxd")) - before.0
    let aside = try #require(ticks(id, "rxd aside")) - before.1
    #expect(main < aside, "\(main) ticks of the main thread beside \(aside) of checks")
    try FileManager.default.createDirectory(atPath: folder.path + "/missing", withIntermediateDirectories: false)
    #expect(Polling.until { (try? String(contentsOfFile: target, encoding: .utf8)) == "7\n" })
    #expect(try process.wait() == 0)
  }
}
