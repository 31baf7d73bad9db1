import Foundation
import Testing

/// Stored events whose sink a change of the files has removed.
@Suite(.timeLimit(.minutes(10)))
struct LeftBehindTests {
  private let folder: Scratch
  private let state: String

  init() throws {
    folder = try Scratch()
    state = folder.path + "/state"
  }

  private func rxd(_ arguments: String...) throws -> Rxd.Outcome {
    try Rxd.run(arguments: arguments, state: state)
  }

  @discardableResult
  private func write(_ name: String = "send", sink: String = "web", encode: String = "ndjson", _ mode: String = "")
    throws -> String
  {
    try folder.write(
      "send.yaml",
      """
      name: \(name)
      \(mode)
      sources: { n: { stdin: { decode: json } } }
      sinks: { \(sink): { from: n, http: { url: 'http://127.0.0.1:1/', encode: \(encode) } } }

      """)
  }

  private func start(_ file: String) throws -> RunningRxd {
    try RunningRxd(
      [file, "--daemon", "--state-dir", state, "--log-format", "text", "--graceful-shutdown-limit-secs", "0"])
  }

  /// Stores three events that no server accepts.
  private func fillOutbox(_ file: String) throws -> RunningRxd {
    let process = try start(file)
    process.write("{\"a\":1}\n{\"a\":2}\n{\"a\":3}\n")
    try process.errorLine(with: "trying again")
    return process
  }

  private func end(_ process: RunningRxd) throws {
    process.send(SIGTERM)
    _ = try process.wait()
  }

  /// The same check is possible before a service has started for the first time.
  @Test func aStateDirectoryThatIsNotThereHoldsNothing() throws {
    let outcome = try Rxd.run("check", "--state-dir", state, try write())
    #expect(outcome.status == 0)
    #expect(outcome.errors == "There is no \(state) yet, so no events wait there.\n")
    // A file in its place is an error as before.
    try folder.write("state", "")
    #expect(try Rxd.run("check", "--state-dir", state, try write()).status == 66)
  }

  @Test func aCheckReportsStoredEvents() throws {
    try end(fillOutbox(write()))
    let same = try rxd("check", write())
    #expect(same.status == 0 && !same.output.contains("RX534"), "\(same.output)")
    for (file, reason) in [
      (("other", "web", ""), "no file has a pipeline of this name"),
      (("send", "shop", ""), "its file has no such sink"),
      (("send", "web", "delivery: bestEffort"), "'delivery: bestEffort' delivers nothing from there"),
    ] {
      let checked = try rxd("check", write(file.0, sink: file.1, file.2))
      #expect(checked.status == 0, "a warning")
      #expect(
        checked.output.contains("RX534")
          && checked.output.contains("3 events for the sink 'web' wait in the state of 'send'")
          && checked.output.contains(reason), "\(checked.output)")
      #expect(try rxd("check", "--deny-warnings", write(file.0, sink: file.1, file.2)).status == 78)
    }
  }

  @Test(arguments: ["other", "send"]) func aStartReportsStoredEvents(_ name: String) throws {
    try end(fillOutbox(write()))
    let process = try start(write(name, encode: "ndjson", name == "send" ? "delivery: bestEffort" : ""))
    try process.errorLine(with: "3 events for the sink 'web' wait in the state of 'send'")
    try end(process)
    let listed = try rxd("state", "ls")
    #expect(listed.output.contains("Left behind: 3 events for the sink 'web'"), "\(listed.output)")
    let json = try #require(
      JSONSerialization.jsonObject(with: Data(try rxd("state", "ls", "--format", "json").output.utf8))
        as? [[String: Any]])
    let left = try #require(
      (json.first { $0["pipeline"] as? String == "send" }?["left_behind"] as? [[String: Any]])?.first)
    #expect(
      left["events"] as? Int == 3 && left["reason"] as? String == (name == "send" ? "best_effort" : "no_pipeline"))
  }

  /// The verdict of a reload reports the events of a renamed sink, and no loss where a sink has only changed.
  @Test func aReloadReportsStoredEvents() throws {
    let process = try fillOutbox(write())
    try write(encode: "json")
    let changed = try rxd("reload", "--wait")
    #expect(changed.output.contains("send: reloaded with its state"), "\(changed.output)")
    #expect(!changed.output.contains("lost:") && !changed.output.contains("left:"), "\(changed.output)")
    try write(sink: "shop")
    let renamed = try rxd("reload", "--wait")
    #expect(
      renamed.output.contains("  left: 3 events for the sink 'web' wait in the state of 'send'"), "\(renamed.output)")
    try end(process)
  }
}
