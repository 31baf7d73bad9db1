import Foundation
import Testing

/// The destination of given-up events that no signal reads.
@Suite(.timeLimit(.minutes(10)))
struct DeadLetterTests {
  private static let pipeline = """
    name: halves
    sources: { n: { stdin: { decode: json } } }
    sinks:
      out: { from: n, chain: [ { map: event / 2 } ], stdout: json }

    """

  /// Runs the pipeline over `2 "x" 4`.
  private func run(
    _ folder: Scratch, _ arguments: [String], environment: [String: String] = [:], _ yaml: String = pipeline
  ) throws -> Rxd.Outcome {
    let file = try folder.write("halves.yaml", yaml)
    let process = try RunningRxd([file, "--log-format", "text"] + arguments, environment: environment)
    process.write("2\n\"x\"\n4\n")
    process.closeInput()
    var output = ""
    while let line = try process.line() { output += line + "\n" }
    var errors = ""
    while let line = try process.line(from: process.errors) { errors += line + "\n" }
    return Rxd.Outcome(status: try process.wait(), output: output, errors: errors)
  }

  /// The pipeline without a store, whose dead letters are written to a file.
  private static let bestEffort = pipeline.replacing("name: halves\n", with: "name: halves\ndelivery: bestEffort\n")

  /// The output of `rxd deadletters show`.
  private func letters(_ state: String) throws -> [[String: Any]] {
    let shown = try Rxd.run("deadletters", "show", "halves", "--state-dir", state)
    return shown.output.split(separator: "\n").compactMap {
      try? JSONSerialization.jsonObject(with: Data($0.utf8)) as? [String: Any]
    }
  }

  private func mode(_ path: String) -> mode_t {
    var status = stat()
    return stat(path, &status) == 0 ? status.st_mode & 0o777 : 0
  }

  private func check(_ letter: [String: Any]) throws {
    #expect(letter["event"] as? String == "x")
    #expect(letter["pipeline"] as? String == "halves")
    #expect(letter["step"] as? String == "out/map")
    #expect(letter["code"] as? String == "RX503")
    let time = try #require(letter["time"] as? String)
    #expect(time.wholeMatch(of: #/\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z/#) != nil)
  }

  @Test func goToTheStoreOfThePipeline() throws {
    let folder = try Scratch()
    let state = folder.path + "/state"
    for round in 1...2 {
      let outcome = try run(folder, ["--state-dir", state])
      #expect(outcome.status == 0)
      #expect(outcome.output == "1\n2\n")
      #expect(
        outcome.errors.contains(
          "1 rejected event is kept: 'rxd deadletters show halves --state-dir \(state)' shows what and why"))
      #expect(!outcome.errors.contains("\"event\""), "\(outcome.errors)")
      #expect(try letters(state).count == round)
    }
    let all = try letters(state)
    try check(try #require(all.first))
    #expect(all.compactMap { $0["id"] as? Int } == [1, 2])
    #expect(mode(state) == 0o700 && mode(state + "/pipelines") == 0o700)
    #expect(mode(state + "/pipelines/halves.db") == 0o600)
    #expect(!FileManager.default.fileExists(atPath: state + "/dead-letters/halves.ndjson"))
  }

  /// The service manager's own state directory is a link.
  @Test func theDirectoryMayBeALink() throws {
    let folder = try Scratch()
    mkdir(folder.path + "/real", 0o700)
    symlink("real", folder.path + "/state")
    let outcome = try run(folder, ["--state-dir", folder.path + "/state"])
    #expect(outcome.status == 0, "\(outcome.errors)")
    #expect(try letters(folder.path + "/state").count == 1)
  }

  @Test func withoutAStoreTheyGoToTheFileOfThePipeline() throws {
    let folder = try Scratch()
    let state = folder.path + "/state"
    for round in 1...2 {
      let outcome = try run(folder, ["--state-dir", state], Self.bestEffort)
      #expect(outcome.status == 0)
      #expect(outcome.output == "1\n2\n")
      #expect(outcome.errors.contains("halves: 1 rejected event is in \(state)/dead-letters/halves.ndjson"))
      #expect(outcome.errors.contains("1 rejected"))
      #expect(!outcome.errors.contains("\"event\""), "\(outcome.errors)")
      #expect(try letters(state).count == round)
    }
    let letter = try #require(try letters(state).first)
    try check(letter)
    #expect(letter["id"] == nil)
    #expect(mode(state) == 0o700 && mode(state + "/dead-letters") == 0o700)
    #expect(mode(state + "/dead-letters/halves.ndjson") == 0o600)
  }

  @Test func withoutAStateDirectoryTheyAreReported() throws {
    let folder = try Scratch()
    let outcome = try run(folder, [], environment: ["RXD_STATE_DIR": "", "STATE_DIRECTORY": ""])
    #expect(outcome.errors.contains("rejected: {"))
  }

  @Test func whatIsReadIsNoDeadLetter() throws {
    let folder = try Scratch()
    let state = folder.path + "/state"
    let outcome = try run(
      folder, ["--state-dir=" + state], Self.pipeline + "  lost: { from: out.errors, stdout: json }\n")
    #expect(outcome.output.contains("\"event\":\"x\""))
    #expect(try letters(state).isEmpty)
    #expect(!outcome.errors.contains("deadletters"))
  }

  @Test func theEnvironmentNamesTheDirectoryToo() throws {
    let folder = try Scratch()
    let (own, managed) = (folder.path + "/own", folder.path + "/managed")
    _ = try run(folder, [], environment: ["STATE_DIRECTORY": managed + ":/nonexistent"])
    #expect(try letters(managed).count == 1)
    _ = try run(folder, [], environment: ["STATE_DIRECTORY": managed, "RXD_STATE_DIR": own])
    #expect(try letters(managed).count == 1 && letters(own).count == 1)
    _ = try run(folder, ["--state-dir", folder.path + "/named"], environment: ["RXD_STATE_DIR": own])
    #expect(try letters(own).count == 1 && letters(folder.path + "/named").count == 1)
  }

  @Test func oneProcessHasIt() throws {
    let folder = try Scratch()
    let state = folder.path + "/state"
    let file = try folder.write("a.yaml", DaemonTests.saying("one"))
    let first = try RunningRxd([file, "--state-dir", state])
    #expect(try first.line() == "one")
    let second = try run(folder, ["--state-dir", state])
    #expect(second.status == 75)
    #expect(second.output.isEmpty)
    #expect(second.errors.contains("the state directory \(state) is in use by process \(first.pid)"))
    // The directory is free again, however the process ended.
    first.send(SIGKILL)
    _ = try first.wait()
    #expect(try run(folder, ["--state-dir", state]).status == 0)
  }

  @Test func whatCannotBeTrustedIsRefused() throws {
    let folder = try Scratch()
    let open = folder.path + "/open"
    mkdir(open, 0o777)
    chmod(open, 0o777)
    let file = try folder.write("file", "")
    for (path, reason) in [
      (open, "others may write '"), (file, "Not a directory"), (folder.path + "/no/where", "No such file"),
    ] {
      let outcome = try run(folder, ["--state-dir", path])
      #expect(outcome.status == 74)
      #expect(outcome.output.isEmpty, "nothing was begun")
      #expect(outcome.errors.contains(reason) && outcome.errors.contains(path), "\(outcome.errors)")
    }
  }

  /// Events that a server has not acknowledged within the limit for stopping, without a store to keep them.
  @Test func whatIsLeftIsKept() throws {
    let folder = try Scratch()
    let state = folder.path + "/state"
    // No server listens at this address.
    let file = try folder.write(
      "halves.yaml",
      """
      delivery: bestEffort
      sources: { n: { values: [1, 2, 3] } }
      sinks: { out: { from: n, http: 'http://127.0.0.1:1/' } }

      """)
    let process = try RunningRxd(
      [file, "--state-dir", state, "--log-format", "text", "--graceful-shutdown-limit-secs", "0"])
    try process.errorLine(with: "trying again")
    process.send(SIGTERM)
    #expect(try process.wait() == 1)
    let left = try letters(state)
    #expect(left.compactMap { $0["event"] as? Int } == [1, 2, 3])
    #expect(
      left.allSatisfy {
        ($0["error"] as? String)?.hasPrefix("the server had not acknowledged the event when the pipeline ended") == true
      })
  }

  @Test func unwritableEventsAreReported() throws {
    let folder = try Scratch()
    let state = folder.path + "/state"
    try FileManager.default.createDirectory(
      atPath: state + "/dead-letters", withIntermediateDirectories: true, attributes: [.posixPermissions: 0o700])
    chmod(state, 0o700)
    let precious = try folder.write("precious", "")
    symlink(precious, state + "/dead-letters/halves.ndjson")
    let outcome = try run(folder, ["--state-dir", state], Self.bestEffort)
    #expect(outcome.status == 0)
    let why = "it is a symbolic link, and links are not followed here; rejected events are logged here instead"
    #expect(outcome.errors.contains(why))
    #expect(outcome.errors.contains("\"event\":\"x\""))
    #expect(try String(contentsOfFile: precious, encoding: .utf8) == "")
  }
}
