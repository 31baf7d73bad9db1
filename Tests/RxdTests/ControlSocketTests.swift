import Foundation
import PipelineHost
import PipelineTestSupport
import Testing

private let hasCurl = VerbTests.has("curl", "--version")

/// The control socket of a running process, and `rxd reload`, which uses it.
@Suite(.timeLimit(.minutes(10)))
struct ControlSocketTests {
  private let folder: Scratch
  private var socket: String { folder.path + "/c.sock" }

  init() throws { folder = try Scratch() }

  /// Starts a process that prints `text` once its pipelines run.
  private func start(
    _ arguments: [String], socket: String? = nil, environment: [String: String] = [:]
  ) throws -> RunningRxd {
    let process = try RunningRxd(
      ["--daemon", "--log-format", "text", "--control-socket", socket ?? self.socket] + arguments,
      environment: environment)
    #expect(try process.line() == "one")
    return process
  }

  private func end(_ process: RunningRxd) throws {
    process.send(SIGTERM)
    #expect(try process.wait() == 0)
  }

  private func reload(_ arguments: String...) throws -> Rxd.Outcome {
    try Rxd.run(arguments: ["reload", "--socket", socket] + arguments)
  }

  /// The socket's answer, followed by the status.
  private func curl(_ arguments: String...) throws -> String {
    try Program.run(
      "/usr/bin/env", ["curl", "-sS", "-m", "60", "-w", "%{http_code}", "--unix-socket", socket] + arguments
    ).output
  }

  private func object(_ text: String) throws -> [String: Any] {
    try #require(try JSONSerialization.jsonObject(with: Data(text.utf8)) as? [String: Any])
  }

  @Test(.enabled(if: hasCurl, "needs curl")) func reportsTheStatus() throws {
    let file = try folder.write("a.yaml", DaemonTests.saying("one"))
    let process = try start([file])
    var status = stat()
    #expect(lstat(socket, &status) == 0 && status.st_mode & 0o777 == 0o600)
    let answer = try curl("http://rxd/status")
    #expect(answer.hasSuffix("200"))
    let document = try object(String(answer.dropLast(3)))
    #expect(document["pid"] as? Int == Int(process.pid))
    #expect(document["version"] as? String == "0.1.0" && document["reload"] is NSNull)
    let pipelines = try #require(document["pipelines"] as? [[String: Any]])
    #expect(pipelines.count == 1 && pipelines[0]["name"] as? String == "a")
    #expect(try pipelines.item(0)["state"] as? String == "running" && pipelines.item(0)["file"] as? String == file)
    #expect(
      try (pipelines.item(0)["since"] as? String)?.wholeMatch(of: /\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z/) != nil)
    #expect(try curl("http://rxd/nothing").hasSuffix("404"))
    #expect(try curl("http://rxd/reload").hasSuffix("405"))
    #expect(
      try curl("-X", "POST", "--data", String(repeating: "x", count: 70_000), "http://rxd/reload").hasSuffix("413"))
    #expect(try curl("-X", "POST", "http://rxd/reload").contains(#""result": "reloaded""#))
    let last = try object(String(curl("http://rxd/status").dropLast(3)))["reload"] as? [String: Any]
    #expect(last?["result"] as? String == "reloaded")
    try end(process)
    #expect(lstat(socket, &status) != 0)
  }

  /// The errors that a user looks for: why a pipeline does not run and when it is retried, why the files were refused, and why a sink
  /// delivers nothing.
  @Test(.enabled(if: hasCurl, "needs curl")) func theStatusSaysWhy() throws {
    let port = try FreePort()
    try port.listen()
    try folder.write("a.yaml", DaemonTests.saying("one"))
    try folder.write(
      "taken.yaml",
      "sources: { s: { httpServer: { address: \(port.number), decode: ndjson } } }\nsinks: { out: { from: s, discard: {} } }\n"
    )
    try folder.write(
      "dead.yaml",
      """
      sources: { soon: { values: [1, 2] } }
      sinks: { out: { from: soon, http: 'http://127.0.0.1:1/' }, other: { from: soon, discard: {} } }
      """)
    let process = try start(["-C", folder.path])
    try process.errorLine(with: "trying again")
    var document: [String: Any] = [:]
    func pipeline(_ name: String) -> [String: Any] {
      (document["pipelines"] as? [[String: Any]])?.first { $0["name"] as? String == name } ?? [:]
    }
    // Between two attempts the pipeline is starting.
    let found = try Polling.until(within: 60) {
      document = try object(String(try curl("http://rxd/status").dropLast(3)))
      return (pipeline("taken")["failure"] as? [String: Any])?["next_try"] != nil && pipeline("dead")["sinks"] != nil
    }
    #expect(found)
    let failure = try #require(pipeline("taken")["failure"] as? [String: Any])
    #expect((failure["reason"] as? String)?.contains("another program listens there") == true)
    #expect((failure["attempt"] as? Int ?? 0) > 0)
    let time = /\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z/
    for name in ["at", "next_try"] { #expect((failure[name] as? String)?.wholeMatch(of: time) != nil) }
    #expect(pipeline("a")["failure"] == nil && pipeline("a")["sinks"] == nil)
    let sinks = try #require(pipeline("dead")["sinks"] as? [[String: Any]])
    #expect(sinks.map { $0["name"] as? String } == ["out"])
    let trouble = try #require(sinks.first?["trouble"] as? [String: Any])
    #expect((trouble["reason"] as? String)?.contains("connect") == true)
    #expect((trouble["since"] as? String)?.wholeMatch(of: time) != nil)

    try folder.write("a.yaml", "nonsense: true\n")
    #expect(try reload().status == 78)
    document = try object(String(try curl("http://rxd/status").dropLast(3)))
    let refused = try #require(document["reload"] as? [String: Any])
    #expect(refused["result"] as? String == "refused")
    #expect((refused["reason"] as? String)?.contains("a.yaml:1:1: error[RX201]") == true)
    #expect((refused["at"] as? String)?.wholeMatch(of: time) != nil)
    process.send(SIGQUIT)
    _ = try process.wait()
  }

  /// The thread exists only once the socket is used.
  @Test func theFirstRequestStartsTheThread() throws {
    let process = try start([try folder.write("a.yaml", DaemonTests.saying("one"))])
    func threads() throws -> Int {
      let tasks = "/proc/\(process.pid)/task"
      return try FileManager.default.contentsOfDirectory(atPath: tasks).count {
        ((try? String(contentsOfFile: "\(tasks)/\($0)/comm", encoding: .utf8)) ?? "").hasPrefix("NIO")
      }
    }
    #expect(try threads() == 0)
    #expect(try reload().status == 0)
    #expect(try threads() == 1)
    #expect(try reload().status == 0)
    #expect(try threads() == 1)
    try end(process)
  }

  // MARK: The verdict

  private func totals(_ log: String, start: Int = 0, map: String = "event") -> String {
    """
    sources: { lines: { file: { path: '\(log)', follow: true } } }
    signals: { total: { from: lines, chain: [ { scan: { start: \(start), next: running + int(event) } }, { map: \(map) } ] } }
    sinks: { out: { from: total, discard: {} } }

    """
  }

  @Test func theVerdictNamesEachPipelineAndStep() throws {
    let log = try folder.write("in.log", "1\n")
    let pipelines = folder.path + "/p"
    try FileManager.default.createDirectory(atPath: pipelines, withIntermediateDirectories: false)
    try folder.write("p/same.yaml", DaemonTests.saying("one"))
    try folder.write("p/total.yaml", totals(log))
    try folder.write("p/begun.yaml", totals(log))
    try folder.write("p/old.yaml", totals(log))
    let process = try start(["-C", pipelines])
    try folder.write("p/total.yaml", totals(log, map: "event + 1"))
    try folder.write("p/begun.yaml", totals(log, start: 100))
    try folder.write("p/new.yaml", totals(log))
    try FileManager.default.removeItem(atPath: pipelines + "/old.yaml")
    let outcome = try reload("--wait")
    #expect(outcome.status == 0, "\(outcome.errors)")
    let lines = outcome.lines
    #expect(!outcome.output.contains("same") && lines.contains("1 other pipeline is unchanged"), "\(outcome.output)")
    #expect(lines.contains("new: added") && lines.contains("old: removed"), "\(outcome.output)")
    let total = try #require(lines.firstIndex(of: "total: reloaded with its state"))
    #expect(lines[total + 1].contains("lines/file") && lines[total + 1].contains("total/scan"), "\(outcome.output)")
    let begun = try #require(lines.firstIndex(of: "begun: reloaded with its state"))
    #expect(lines[begun + 1].contains("lines/file") && !lines[begun + 1].contains("total/scan"), "\(outcome.output)")
    #expect(lines[begun + 2].hasPrefix("  lost: ") && lines[begun + 2].contains("the step has changed since"))
    #expect(lines.last?.hasPrefix("reloaded in ") == true && lines.last?.contains("4 pipelines running") == true)

    #expect(try reload("--wait").lines.first == "all 4 pipelines are unchanged")
    let again = try object(try reload("--wait", "--format", "json").output)
    #expect(again["result"] as? String == "reloaded")
    let results = try #require(again["pipelines"] as? [[String: Any]]).map { $0["result"] as? String }
    #expect(results == ["unchanged", "unchanged", "unchanged", "unchanged"])
    try end(process)
  }

  @Test func filesWithErrorsAreRefusedAsCheckPrintsThem() throws {
    let file = try folder.write("a.yaml", DaemonTests.saying("one"))
    let process = try start([file])
    try folder.write("a.yaml", DaemonTests.saying("two").replacingOccurrences(of: "from: all", with: "from: al"))
    let check = try Rxd.run("check", file)
    #expect(check.status == 78 && check.output.contains("RX3"))
    for arguments in [["--wait"], []] {
      let outcome = try Rxd.run(arguments: ["reload", "--socket", socket] + arguments)
      #expect(outcome.status == 78)
      #expect(
        outcome.output
          == check.output + "not reloaded: the files have errors, so the pipelines continue unchanged\n")
    }
    try process.errorLine(with: "not reloaded")
    try folder.write("a.yaml", DaemonTests.saying("two"))
    let accepted = try reload()
    #expect(accepted.status == 0 && accepted.output == "the files have no errors; the change is under way\n")
    #expect(try process.line() == "two")
    try end(process)
  }

  @Test func aVersionThatDoesNotStartIsAFailure() throws {
    let taken = try FreePort()
    let file = try folder.write("a.yaml", DaemonTests.saying("one"))
    let process = try start([file])
    let text = DaemonTests.saying("one")
      .replacingOccurrences(
        of: "sources: {",
        with: "sources: { posts: { httpServer: { address: 127.0.0.1:\(taken.number), decode: ndjson } },"
      )
      .replacingOccurrences(of: "sinks: {", with: "sinks: { posted: { from: posts, discard: {} },")
    try folder.write("a.yaml", text)
    try taken.listen()
    let outcome = try reload("--wait")
    #expect(outcome.status == 1)
    #expect(
      outcome.output.contains(
        #/a: not reloaded: cannot listen on 127\.0\.0\.1:\d+: .*; the pipeline continues unchanged\n/#),
      "\(outcome.output)")
    try end(process)
  }

  // MARK: Where it is

  @Test func oldSocketsAreReplacedAndLiveOnesAreNot() throws {
    let file = try folder.write("a.yaml", DaemonTests.saying("one"))
    let first = try start([file])
    let second = try Rxd.run("run", file, "--control-socket", socket)
    #expect(second.status == 75)
    #expect(second.errors.contains("another process listens on the control socket \(socket)"), "\(second.errors)")
    #expect(try reload("--wait").status == 0)
    first.send(SIGKILL)
    _ = try first.wait()
    let nobody = try reload()
    #expect(nobody.status == 69 && nobody.errors.contains("no rxd answers at \(socket)"), "\(nobody.errors)")
    let third = try start([file])
    #expect(try reload("--wait").status == 0)
    try end(third)
    let nothing = try reload()
    #expect(nothing.status == 69 && nothing.errors.contains("there is no control socket \(socket)"))

    try folder.write("c.sock", "precious")
    let refused = try Rxd.run("run", file, "--control-socket", socket)
    #expect(refused.status == 74 && refused.errors.contains("not a socket"), "\(refused.errors)")
    #expect(try String(contentsOfFile: socket, encoding: .utf8) == "precious")
  }

  /// The default paths of the socket, for the process and for its clients.
  @Test func theSocketIsInTheRuntimeOrStateDirectory() throws {
    let file = try folder.write("a.yaml", DaemonTests.saying("one"))
    // A new socket for each process, so that no earlier message is read.
    let (first, second, third) = (folder.path + "/1", folder.path + "/2", folder.path + "/3")
    let runtime = folder.path + "/run"
    try FileManager.default.createDirectory(atPath: runtime, withIntermediateDirectories: false)
    func start(_ arguments: [String], _ environment: [String: String]) throws -> RunningRxd {
      let process = try RunningRxd(["--daemon", file] + arguments, environment: environment)
      #expect(try process.line() == "one")
      return process
    }
    func exists(_ path: String) -> Bool { access(path, F_OK) == 0 }
    var process = try start(["--state-dir", first], [:])
    #expect(exists(first + "/control.sock"))
    #expect(try Rxd.run("reload", "--wait", "--state-dir", first).status == 0)
    #expect(try Rxd.run("reload", environment: ["STATE_DIRECTORY": first]).status == 0)
    try end(process)
    process = try start(["--state-dir", second], ["RUNTIME_DIRECTORY": runtime + ":/elsewhere"])
    #expect(exists(runtime + "/control.sock") && !exists(second + "/control.sock"))
    #expect(try Rxd.run("reload", "--wait", environment: ["RUNTIME_DIRECTORY": runtime]).status == 0)
    try end(process)
    process = try start(["--state-dir", third, "--control-socket", "none"], ["RUNTIME_DIRECTORY": runtime])
    #expect(!exists(runtime + "/control.sock") && !exists(third + "/control.sock"))
    try end(process)
    process = try start([], ["RXD_CONTROL_SOCKET": socket])
    #expect(try Rxd.run("reload", "--wait", environment: ["RXD_CONTROL_SOCKET": socket]).status == 0)
    try end(process)
  }

  // MARK: Without a socket of its own

  /// A process of a user without a service manager and a state directory is found, and two processes are distinguished.
  @Test func theProcessesOfAUserAreFound() throws {
    let runtime = folder.path + "/runtime"
    #expect(mkdir(runtime, 0o700) == 0)
    let environment = ["XDG_RUNTIME_DIR": runtime]
    func sockets() -> [String] {
      ((try? FileManager.default.contentsOfDirectory(atPath: runtime + "/rxd")) ?? []).sorted()
    }
    let nobody = try Rxd.run("top", "--once", environment: environment)
    #expect(nobody.status == 69 && nobody.errors.contains("no rxd answers"), "\(nobody.errors)")
    let first = try RunningRxd(
      ["--daemon", try folder.write("a.yaml", DaemonTests.saying("one"))], environment: environment)
    #expect(try first.line() == "one")
    #expect(sockets() == ["\(first.pid).sock"])
    var status = stat()
    #expect(lstat(runtime + "/rxd", &status) == 0 && status.st_mode & 0o777 == 0o700)
    #expect(try Rxd.run("top", "--once", "--interval", "100ms", environment: environment).status == 0)
    let second = try RunningRxd(
      ["--daemon", try folder.write("b.yaml", DaemonTests.saying("one"))], environment: environment)
    #expect(try second.line() == "one")
    let several = try Rxd.run("top", "--once", environment: environment)
    #expect(several.status == 64, "\(several.errors)")
    for (process, name) in [(first, "a"), (second, "b")] {
      #expect(several.errors.contains("--socket \(runtime)/rxd/\(process.pid).sock  \(name)\n"), "\(several.errors)")
    }
    let chosen = try Rxd.run(
      "top", "--once", "--interval", "100ms", "--socket", "\(runtime)/rxd/\(second.pid).sock", environment: environment)
    #expect(chosen.status == 0, "\(chosen.errors)")
    // A killed process leaves a stale socket, which is not found as a process; the next process removes it.
    first.send(SIGKILL)
    _ = try first.wait()
    #expect(try Rxd.run("top", "--once", "--interval", "100ms", environment: environment).status == 0)
    try end(second)
    let third = try RunningRxd(
      ["--daemon", try folder.write("c.yaml", DaemonTests.saying("one"))], environment: environment)
    #expect(try third.line() == "one")
    #expect(sockets() == ["\(third.pid).sock"])
    try end(third)
    #expect(sockets() == [])
    // No socket is created in a directory that other users may read or write.
    for mode in [0o755, 0o777, 0o770] as [mode_t] {
      #expect(chmod(runtime + "/rxd", mode) == 0)
      let fourth = try RunningRxd(
        ["--daemon", try folder.write("d.yaml", DaemonTests.saying("one"))], environment: environment)
      #expect(try fourth.line() == "one")
      #expect(sockets() == [])
      try end(fourth)
    }
  }

  /// In a directory where other users could create a socket, none is created and none is trusted: a verb would send
  /// its user's input to a process of another user.
  /// A process that nothing finds says so, and so does who looks for it.
  @Test(.enabled(if: geteuid() != 0, "root has a directory of its own")) func withoutADirectoryThereIsNoSocket() throws
  {
    let environment = ["XDG_RUNTIME_DIR": "", "RXD_STATE_DIR": "", "STATE_DIRECTORY": "", "RUNTIME_DIRECTORY": ""]
    let process = try RunningRxd(
      ["--daemon", try folder.write("a.yaml", DaemonTests.saying("one"))], environment: environment)
    let line = try #require(try process.line(from: process.errors))
    #expect(line.contains("there is no control socket") && line.contains("XDG_RUNTIME_DIR is not set"), "\(line)")
    #expect(try process.line() == "one")
    let search = try Rxd.run("top", "--once", environment: environment)
    #expect(search.status == 69 && search.errors.contains("(XDG_RUNTIME_DIR is not set)"), "\(search.errors)")
    try end(process)
  }

  @Test func directoriesOfOthersAreNotBelieved() throws {
    let runtime = folder.path + "/runtime"
    let environment = ["XDG_RUNTIME_DIR": runtime]
    #expect(mkdir(runtime, 0o700) == 0)
    func sockets(_ path: String) -> [String] { (try? FileManager.default.contentsOfDirectory(atPath: path)) ?? [] }
    func found() throws -> Int32 {
      try Rxd.run("top", "--once", "--interval", "100ms", environment: environment).status
    }
    let process = try RunningRxd(
      ["--daemon", try folder.write("a.yaml", DaemonTests.saying("one"))], environment: environment)
    #expect(try process.line() == "one")
    #expect(try found() == 0)
    for mode in [0o755, 0o777, 0o770] as [mode_t] {
      #expect(chmod(runtime + "/rxd", mode) == 0)
      #expect(try found() == 69, "\(String(mode, radix: 8))")
    }
    #expect(chmod(runtime + "/rxd", 0o700) == 0)
    // A symbolic link could be changed to another directory later.
    #expect(rename(runtime + "/rxd", runtime + "/elsewhere") == 0 && symlink("elsewhere", runtime + "/rxd") == 0)
    #expect(try found() == 69)
    try end(process)
    func makesNone(_ what: String) throws {
      let other = try RunningRxd(
        ["--daemon", try folder.write("b.yaml", DaemonTests.saying("one"))], environment: environment)
      #expect(try other.line() == "one")
      #expect(sockets(runtime + "/rxd") == [] && sockets(runtime + "/elsewhere") == [], "\(what)")
      try end(other)
    }
    try makesNone("a link")
    #expect(unlink(runtime + "/rxd") == 0)
    // Other users could replace the directory itself.
    for mode in [0o777, 0o1777] as [mode_t] {
      #expect(chmod(runtime, mode) == 0)
      try makesNone(String(mode, radix: 8))
    }
  }
}
