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

  /// A reload of a pipeline that cannot start, to a version that cannot start either: it ends, and the new version is tried again.
  @Test func aFailedPipelineKeepsTheNewestVersion() throws {
    let folder = try Scratch()
    let (place, socket) = (folder.path + "/place", folder.path + "/c.sock")
    let output = place + "/out"
    func text(_ number: Int) -> String {
      """
      delivery: light
      sources: { lines: { file: { path: \(folder.path)/in, follow: true } } }
      sinks: { out: { from: lines, chain: [ { map: "'\(number) ' + event" } ], file: { path: \(output), encode: text } } }

      """
    }
    let file = try folder.write("a.yaml", text(1))
    try folder.write("in", "a\n")
    try FileManager.default.createDirectory(atPath: place, withIntermediateDirectories: false)
    let arguments = [
      "--daemon", file, "--state-dir", folder.path + "/state", "--control-socket", socket, "--log-format", "text",
    ]
    // Leaves a state.
    let first = try RunningRxd(arguments)
    #expect(Polling.until { (try? String(contentsOfFile: output, encoding: .utf8)) == "1 a\n" })
    first.send(SIGTERM)
    #expect(try first.wait() == 0)
    try FileManager.default.removeItem(atPath: place)
    let process = try RunningRxd(arguments)
    try process.errorLine(with: "failed: cannot open")
    try folder.write("a.yaml", text(2))
    let reload = try Rxd.run(arguments: ["reload", "--wait", "--socket", socket])
    #expect(reload.status == 1, "\(reload)")
    try FileManager.default.createDirectory(atPath: place, withIntermediateDirectories: false)
    folder.append("b\n", to: "in")
    #expect(Polling.until { (try? String(contentsOfFile: output, encoding: .utf8)) == "2 b\n" })
    process.send(SIGTERM)
    #expect(try process.wait() == 0)
  }
}
