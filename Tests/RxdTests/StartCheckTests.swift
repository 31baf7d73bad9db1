import Foundation
import PipelineHost
import Testing

/// Pipelines that could not start, and that are checked until they can.
@Suite(.timeLimit(.minutes(10)))
struct StartCheckTests {
  /// Checks do not run on the thread that answers the control socket and feeds the watchdog, and a pipeline starts once no obstacle is left.
  @Test func checksAreMadeOffTheThreadThatAnswers() throws {
    let folder = try Scratch()
    let (directory, target) = (folder.path + "/missing", folder.path + "/missing/out")
    let file = try folder.write(
      "a.yaml", "sources: { n: { values: 7 } }\nsinks: { out: { from: n, file: { path: \(target) } } }\n")
    let process = try RunningRxd(
      ["--daemon", file, "--state-dir", folder.path + "/state", "--log-format", "text"],
      environment: ["LD_PRELOAD": Preload.checks.get(), "CHECKED": "/missing"])
    // Checks begin when the pauses between start attempts exceed a second: after some eight seconds.
    try process.errorLine(with: "or as soon as nothing blocks it")
    for _ in 0..<3 { #expect(try process.errorLine(with: "checked by") == "checked by thread 'rxd aside'") }
    try FileManager.default.createDirectory(atPath: directory, withIntermediateDirectories: false)
    #expect(Polling.until { (try? String(contentsOfFile: target, encoding: .utf8)) == "7\n" })
    #expect(try process.wait() == 0)
  }

  /// The verdict of a reload names the obstacle of a pipeline, and does not wait for it; the new version starts when the disk answers
  /// again.
  @Test func aCheckThatHangsDoesNotHoldUpAReload() throws {
    let folder = try Scratch()
    let (directory, target, socket) = (folder.path + "/missing", folder.path + "/missing/out", folder.path + "/c.sock")
    func text(_ number: Int) -> String {
      "sources: { n: { values: \(number) } }\nsinks: { out: { from: n, file: { path: \(target) } } }\n"
    }
    let file = try folder.write("a.yaml", text(7))
    let process = try RunningRxd(
      [
        "--daemon", file, "--state-dir", folder.path + "/state", "--control-socket", socket, "--log-format", "text",
      ],
      environment: [
        "LD_PRELOAD": Preload.checks.get(), "CHECKED": "/missing", "HANG_WHILE": folder.path + "/hang",
      ])
    try process.errorLine(with: "or as soon as nothing blocks it")
    try folder.write("hang", "")
    try process.errorLine(with: "held up")
    try folder.write("a.yaml", text(8))
    let reload = try Rxd.run("reload", "--wait", "--socket", socket)
    #expect(reload.status == 1 && (reload.output + reload.errors).contains("have not answered for"), "\(reload)")
    try FileManager.default.createDirectory(atPath: directory, withIntermediateDirectories: false)
    try FileManager.default.removeItem(atPath: folder.path + "/hang")
    #expect(Polling.until { (try? String(contentsOfFile: target, encoding: .utf8)) == "8\n" })
    #expect(try process.wait() == 0)
  }

  /// A reload from a pipeline that cannot start to a version that cannot start either: it ends, and the new version is retried.
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
    // Leaves a state behind.
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
    try folder.append("b\n", to: "in")
    #expect(Polling.until { (try? String(contentsOfFile: output, encoding: .utf8)) == "2 b\n" })
    process.send(SIGTERM)
    #expect(try process.wait() == 0)
  }
}
