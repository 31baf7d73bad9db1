import Foundation
import PipelineHost
import Testing

/// Tables from real files and programs.
@Suite(.timeLimit(.minutes(5)))
struct TableRunTests {
  /// A replaced file is read again as a whole; if the file is gone, the rows stay.
  @Test func aTableFollowsItsFile() throws {
    let folder = try Scratch()
    try folder.write("users.csv", "id,name\n1,Ada\n")
    let file = try folder.write(
      "named.yaml",
      """
      sources: { in: { stdin: {} } }
      tables: { users: { file: { path: users.csv, decode: csv }, key: event.id, row: event.name, every: 20ms } }
      sinks: { out: { from: in, chain: [ { map: "users[event].orValue('nobody')" } ], stdout: { encode: text } } }

      """)
    let process = try RunningRxd(["run", file], in: folder.path)
    /// The rows change some time after the file, so this polls.
    func ask(_ key: String, until name: String) throws {
      while true {
        process.write(key + "\n")
        let answer = try process.line()
        if answer == name { return }
        try #require(answer == "Ada" || answer == "nobody" || answer == "Grace")
      }
    }
    process.write("1\n")
    #expect(try process.line() == "Ada")
    try folder.write("users.new", "id,name\n2,Grace\n")
    rename(folder.path + "/users.new", folder.path + "/users.csv")
    try ask("1", until: "nobody")
    try ask("2", until: "Grace")
    unlink(folder.path + "/users.csv")
    _ = try process.errorLine(with: "the table keeps its rows")
    try ask("2", until: "Grace")
    process.closeInput()
    #expect(try process.wait() == 0)
  }

  /// A key of another type can never be found: the log says so, once.
  @Test func aKeyOfAnotherTypeIsNamed() throws {
    let folder = try Scratch()
    try folder.write("users.csv", "id,name\n1,Ada\n")
    let file = try folder.write(
      "named.yaml",
      """
      sources: { in: { stdin: { decode: json } } }
      tables: { users: { file: { path: users.csv, decode: csv }, key: event.id } }
      sinks: { out: { from: in, chain: [ { map: "event in users" } ], stdout: {} } }

      """)
    let outcome = try Rxd.run("run", file, "--log-format", "text", input: "1\n2\n\"1\"\n", in: folder.path)
    #expect(outcome.lines == ["false", "false", "true"])
    let warning =
      "a row was looked up by a key of type int, and all keys of the table have the type string, so there is none"
    #expect(outcome.errors.components(separatedBy: warning).count == 2, "\(outcome.errors)")
  }

  /// A pipeline whose rows cannot be read at the start fails before it accepts any event.
  @Test func aTableThatCannotBeReadTakesNoEvents() throws {
    let folder = try Scratch()
    let file = try folder.write(
      "named.yaml",
      """
      sources: { in: { file: in.log } }
      tables: { users: { file: { path: users.csv, decode: csv }, key: event.id } }
      sinks: { out: { from: in, chain: [ { map: "event in users" } ], file: out.log } }

      """)
    try folder.write("in.log", "1\n2\n")
    let outcome = try Rxd.run("run", file, "--state-dir", folder.path + "/state", in: folder.path)
    #expect(outcome.status == 1)
    #expect(outcome.errors.contains("users.csv"))
    try folder.write("users.csv", "id,name\n1,Ada\n")
    #expect(try Rxd.run("run", file, "--state-dir", folder.path + "/state", in: folder.path).status == 0)
    #expect(try String(contentsOfFile: folder.path + "/out.log", encoding: .utf8) == "true\nfalse\n")
  }

  /// A stop does not wait for a program that has not yet delivered the rows.
  @Test(arguments: [[], ["--state-dir", "state"]]) func aStopWaitsForNoTable(_ options: [String]) throws {
    let folder = try Scratch()
    mkfifo(folder.path + "/rows", 0o600)
    let file = try folder.write(
      "waiting.yaml",
      """
      sources: { in: { stdin: {} } }
      tables: { t: { exec: { command: [cat, rows] }, key: event } }
      sinks: { out: { from: in, chain: [ { map: event in t } ], stdout: {} } }

      """)
    let process = try RunningRxd(["run"] + options + [file], in: folder.path)
    let writer = try #require(Polling.first { open(folder.path + "/rows", O_WRONLY | O_NONBLOCK).nonNegative })
    process.write("x\n")
    process.send(SIGTERM)
    while let line = try process.line(from: process.errors) { #expect(!line.contains("did not finish"), "\(line)") }
    #expect(try process.wait() == 0)
    close(writer)
  }

  /// A process that is killed while it loads a table has changed nothing: earlier counts continue, and each event counts once.
  @Test(arguments: ["light", "durable"]) func aKillWhileTablesAreLoaded(_ delivery: String) throws {
    let folder = try Scratch()
    let (input, out) = (folder.path + "/in.log", folder.path + "/out.log")
    let file = try folder.write(
      "counted.yaml",
      """
      delivery: \(delivery)
      sources: { in: { file: { path: \(input), follow: true } } }
      tables: { t: { exec: { command: [cat, "${ROWS}"] }, key: event } }
      sinks:
        out:
          from: in
          chain: [ { scan: { start: 0, next: "running + ((event in t) ? 1 : 1000)" } }, { map: string(event) } ]
          file: { path: \(out), encode: text }

      """)
    var count = 0
    func write() throws {
      count += 1
      let handle = try #require(fopen(input, "a"))
      fputs("x\n", handle)
      fclose(handle)
    }
    func lines() -> [String] {
      ((try? String(contentsOfFile: out, encoding: .utf8)) ?? "").split(separator: "\n").map(String.init)
    }
    /// A process that loads its table; its rows are written to the descriptor.
    func start(_ name: String) throws -> (RunningRxd, Int32) {
      let rows = "\(folder.path)/\(name)"
      mkfifo(rows, 0o600)
      let process = try RunningRxd(["run", "--state-dir", folder.path + "/state", file], environment: ["ROWS": rows])
      return (process, try #require(Polling.first { open(rows, O_WRONLY | O_NONBLOCK).nonNegative }))
    }
    for round in 0..<4 {
      let (waiting, first) = try start("first\(round)")
      try write()
      waiting.send(SIGKILL)
      _ = try waiting.wait()
      close(first)
      let (process, second) = try start("second\(round)")
      try write()
      _ = Glibc.write(second, "x\n", 2)
      close(second)
      #expect(Polling.until { lines().count >= count })
      process.send(count % 4 == 0 ? SIGKILL : SIGTERM)
      _ = try process.wait()
    }
    // At least once; and each event is in the state once.
    #expect(lines().reduce(into: [String]()) { if !$0.contains($1) { $0.append($1) } } == (1...count).map(String.init))
  }
}

extension Int32 {
  fileprivate var nonNegative: Int32? { self < 0 ? nil : self }
}
