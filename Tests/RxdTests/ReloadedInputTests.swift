import CLinux
import Foundation
import PipelineHost
import Testing

/// Inputs that cannot be read again, over a reload: the current event continues, nothing is lost, and nothing is repeated.
@Suite struct ReloadedInputTests {
  /// A pipeline that prints its version before each event.
  private func text(_ version: Int, _ source: String, event: String = "string(event)") -> String {
    """
    sources: { in: { \(source) } }
    sinks: { out: { from: in, chain: [ { map: "'\(version) ' + \(event)" } ], stdout: json } }

    """
  }

  private func start(_ file: String, environment: [String: String] = [:]) throws -> RunningRxd {
    try RunningRxd(["--daemon", file, "--log-format", "text", "--log-level", "info"], environment: environment)
  }

  private func reload(_ process: RunningRxd) throws {
    process.send(SIGHUP)
    try process.errorLine(with: "reloaded in")
  }

  private func awaitEmpty(_ pipe: Int32) throws {
    try #require(Polling.until { rx_unread(pipe) == 0 })
  }

  struct Case: Sendable, CustomTestStringConvertible {
    var name: String
    var before: String
    var after: String
    /// The input before the reload, and the events of the old version.
    var first: String
    var old: [String]
    /// The input after the reload until the end, and the events of the new version.
    var rest: String
    var new: [String]
    var event = "string(event)"
    var testDescription: String { name }
  }

  static let cases: [Case] = [
    Case(
      name: "joined lines", before: "join: { indented: true, wait: 1h }", after: "join: { indented: true, wait: 1h }",
      first: "x\na\n b\n c", old: ["x"], rest: "c\n d\ny\n", new: ["a\\n b\\n cc\\n d", "y"]),
    Case(
      name: "another rule of joining", before: "join: { indented: true, wait: 1h }",
      after: "join: { start: '^[a-z]', wait: 1h }",
      first: "x\na\n b\n c", old: ["x"], rest: "c\n d\ny\n", new: ["a\\n b\\n cc\\n d", "y"]),
    Case(
      name: "joined no more", before: "join: { indented: true, wait: 1h }", after: "",
      first: "x\na\n b\n c", old: ["x"], rest: "c\ny\n", new: ["a", " b", " cc", "y"]),
    Case(
      name: "half a document", before: "decode: jsonDocuments", after: "decode: jsonDocuments",
      first: #"{"n":1} {"n":"#, old: ["1"], rest: #"23} {"n":4}"#, new: ["23", "4"], event: "string(event.n)"),
    Case(
      name: "half a document, then lines", before: "decode: jsonDocuments", after: "decode: json",
      first: #"{"n":1} {"n":"#, old: ["1"], rest: "23}\n{\"n\":4}\n", new: ["23", "4"], event: "string(event.n)"),
    Case(
      name: "a row with line breaks", before: "decode: csv", after: "decode: csv",
      first: "n,t\n1,x\n2,\"a\nb", old: ["1 x"], rest: "c\"\n3,y\n", new: ["2 a\\nbc", "3 y"],
      event: "event.n + ' ' + event.t"),
    Case(
      name: "a row with a larger limit", before: "decode: { csv: { header: [n, t] } }",
      after: "decode: { csv: { header: [n, t], types: infer } }",
      first: "1,x\n2,\"a\nb", old: ["1 x"], rest: "c\"\n3,y\n", new: ["2 a\\nbc", "3 y"],
      event: "string(event.n) + ' ' + event.t"),
    Case(
      name: "UTF-16", before: "charset: utf-16le",
      after: "charset: utf-16le, decode: lines", first: "x\0\n\0a\0b\0c", old: ["x"], rest: "\0d\0\n\0", new: ["abcd"]),
    Case(
      name: "latin1 with joined lines", before: "charset: latin1, join: { indented: true, wait: 1h }",
      after: "charset: windows-1252, join: { indented: true, wait: 1h }",
      first: "x\na\n b\n", old: ["x"], rest: " c\ny\n", new: ["a\\n b\\n c", "y"]),
    Case(
      name: "a line that is too long", before: "maxLine: 8B, whenTooLong: drop",
      after: "maxLine: 8B, whenTooLong: drop",
      first: "x\n0123456789", old: ["x"], rest: "01\ny\n", new: ["y"]),
    Case(
      name: "a line that is too long, with another limit", before: "maxLine: 8B, whenTooLong: drop",
      after: "maxLine: 9B, whenTooLong: drop", first: "x\n0123456789", old: ["x"], rest: "01\ny\n", new: ["y"]),
  ]

  @Test(arguments: cases) func standardInput(_ one: Case) throws {
    let folder = try Scratch()
    let file = try folder.write("a.yaml", text(0, "stdin: { \(one.before) }", event: one.event))
    let process = try start(file)
    process.write(one.first)
    for event in one.old { #expect(try process.line() == "\"0 \(event)\"") }
    try folder.write("a.yaml", text(1, "stdin: { \(one.after) }", event: one.event))
    try reload(process)
    process.write(one.rest)
    process.closeInput()
    for event in one.new { #expect(try process.line() == "\"1 \(event)\"", "\(process.transcript)") }
    #expect(try process.line() == nil)
    #expect(try process.wait() == 0)
  }

  /// Input that is one event continues to be read.
  @Test func standardInputAsAWhole() throws {
    let folder = try Scratch()
    let file = try folder.write("a.yaml", text(0, "stdin: { decode: whole }"))
    let manager = try NotifySocket(folder.path + "/notify")
    let process = try start(file, environment: ["NOTIFY_SOCKET": manager.path])
    _ = try manager.next(with: "READY")
    process.write("ab")
    for version in 1...2 {
      try folder.write("a.yaml", text(version, "stdin: { decode: whole }"))
      try reload(process)
      process.write("\(version)")
    }
    process.closeInput()
    #expect(try process.line() == "\"2 ab12\"", "\(process.transcript)")
    #expect(try process.line() == nil)
    #expect(try process.wait() == 0)
  }

  /// The program keeps running, and its joined event continues; also if only decoding has changed.
  @Test(arguments: [
    ("join: { indented: true, wait: 1h }", ["a\\n b\\n cc\\n d"]), ("maxLine: 1000B", ["a", " b", " cc", " d"]),
  ])
  func programsRunOn(_ after: String, _ events: [String]) throws {
    let folder = try Scratch()
    let pipe = folder.path + "/pipe"
    try #require(mkfifo(pipe, 0o600) == 0)
    let writer = open(pipe, O_RDWR)
    defer { close(writer) }
    func say(_ text: String) { #expect(Glibc.write(writer, text, text.utf8.count) == text.utf8.count) }
    func source(_ rest: String) -> String {
      "exec: { shell: 'echo started; exec cat \(pipe)', streaming: true, \(rest) }"
    }
    let file = try folder.write("a.yaml", text(0, source("join: { indented: true, wait: 1h }")))
    let process = try start(file)
    say("x\na\n b\n c")
    #expect(try process.line() == "\"0 started\"")
    #expect(try process.line() == "\"0 x\"")
    try folder.write("a.yaml", text(1, source(after)))
    try reload(process)
    say("c\n d\ny\nz\n")
    for event in events + ["y"] { #expect(try process.line() == "\"1 \(event)\"", "\(process.transcript)") }
    // The source keeps no state that could be lost.
    #expect(!process.transcript.contains { $0.contains("RX507") }, "\(process.transcript)")
    process.send(SIGTERM)
    #expect(try process.line() == "\"1 z\"")
    #expect(try process.line() == nil)
    #expect(try process.wait() == 0)
  }

  /// A program with other arguments is ended first: its remaining output is sent, then the new program starts.
  @Test func anotherProgramFollowsTheEndOfTheOld() throws {
    let folder = try Scratch()
    func source(_ name: String) -> String {
      """
      exec: { shell: 'trap "echo last of \(name); exit 0" TERM; echo first of \(name); while :; do sleep 0.05; done', streaming: true }
      """
    }
    let file = try folder.write("a.yaml", text(0, source("old")))
    let process = try start(file)
    #expect(try process.line() == "\"0 first of old\"")
    try folder.write("a.yaml", text(1, source("new")))
    try reload(process)
    #expect(try process.line()?.hasSuffix(" last of old\"") == true, "\(process.transcript)")
    #expect(try process.line() == "\"1 first of new\"", "\(process.transcript)")
    #expect(!process.transcript.contains { $0.contains("RX507") }, "\(process.transcript)")
    // Without the source its program ends.
    try folder.write("a.yaml", text(2, "values: [1]"))
    try reload(process)
    #expect(try process.line() == "\"1 last of new\"", "\(process.transcript)")
    #expect(try process.line() == "\"2 1\"", "\(process.transcript)")
    #expect(try process.wait() == 0)
  }

  struct Connection: Sendable {
    var before: String
    var after: String
    var first: String
    var old: [String]
    var rest: String
    var new: [String]
  }

  /// A connection whose decoding has changed stays open, with the part of an event that it has received.
  @Test(arguments: [
    Connection(
      before: "join: { indented: true, wait: 1h }", after: "decode: lines", first: "x\na\n b\n c", old: ["x"],
      rest: "c\ny\n", new: ["a", " b", " cc", "y"]),
    Connection(
      before: "join: { indented: true, wait: 1h }", after: "maxMessage: 100B, join: { indented: true, wait: 1h }",
      first: "x\na\n b\n c", old: ["x"], rest: "c\ny\nz\n", new: ["a\\n b\\n cc", "y"]),
    Connection(
      before: "decode: jsonDocuments", after: "decode: lines", first: "\"x\" [\n 1", old: ["x"], rest: "2]\ny\n",
      new: ["[", " 12]", "y"]),
    Connection(
      before: "decode: lines", after: "framing: nul", first: "x\na", old: ["x"], rest: "b\0y\0", new: ["ab", "y"]),
    Connection(
      before: "framing: nul", after: "decode: lines", first: "x\0a", old: ["x"], rest: "b\ny\n", new: ["ab", "y"]),
    Connection(
      before: "maxMessage: 4B", after: "maxMessage: 5B", first: "x\n0123456789", old: ["x"], rest: "01\ny\n", new: ["y"]
    ),
  ])
  func connectionsContinue(_ one: Connection) throws {
    let folder = try Scratch()
    func source(_ rest: String) -> String { "unix: { path: '\(folder.path)/s', \(rest) }" }
    let file = try folder.write("a.yaml", text(0, source(one.before)))
    let process = try start(file)
    try process.errorLine(with: "listening on")
    let client = try #require(SocketClient(path: folder.path + "/s"))
    client.send(one.first)
    for event in one.old { #expect(try process.line() == "\"0 \(event)\"") }
    try folder.write("a.yaml", text(1, source(one.after)))
    try reload(process)
    client.send(one.rest)
    for event in one.new { #expect(try process.line() == "\"1 \(event)\"", "\(process.transcript)") }
    #expect(!process.transcript.contains { $0.contains("RX507") }, "\(process.transcript)")
    process.send(SIGTERM)
    #expect(try process.wait() == 0)
    #expect(client.receive()?.isEmpty == true)
  }

  /// Without the source in the new version, or without the pipeline, the received part of an event becomes the connection's
  /// last event.
  @Test(arguments: ["unix: { path: '$', join: { indented: true, wait: 1h } }", "unix: { path: '$', framing: nul }"])
  func connectionsOfARemovedSourceAreSentToTheirEnd(_ source: String) throws {
    let folder = try Scratch()
    let source = source.replacing("$", with: folder.path + "/s")
    let isLines = !source.contains("nul")
    try FileManager.default.createDirectory(atPath: folder.path + "/files", withIntermediateDirectories: false)
    for isDurable in [false, true] {
      for removesFile in [false, true] {
        let name = removesFile ? "files/b.yaml" : "files/a.yaml"
        try folder.write("files/a.yaml", text(0, "never: {}"))
        try folder.write(name, text(0, source))
        let process = try RunningRxd(
          ["--daemon", folder.path + "/files", "--log-format", "text", "--log-level", "info"]
            + (isDurable ? ["--state-dir", folder.path + "/state"] : []))
        try process.errorLine(with: "listening on")
        let client = try #require(SocketClient(path: folder.path + "/s"))
        client.send(isLines ? "x\na\n b\n c" : "x\0a")
        #expect(try process.line() == "\"0 x\"")
        if removesFile {
          try FileManager.default.removeItem(atPath: folder.path + "/" + name)
        } else {
          try folder.write(name, text(1, "never: {}"))
        }
        try reload(process)
        if isDurable, removesFile {
          try folder.write(name, text(0, source))
          try reload(process)
        }
        #expect(try process.line() == (isLines ? #""0 a\n b\n c""# : #""0 a""#), "\(process.transcript)")
        #expect(client.receive()?.isEmpty == true)
        process.send(SIGTERM)
        #expect(try process.line() == nil)
        #expect(try process.wait() == 0)
        try? FileManager.default.removeItem(atPath: folder.path + "/files/b.yaml")
      }
    }
  }

  /// A stop and a removal of the source send the part of the last line that was read; if a stop saves the state, the next start
  /// delivers it.
  @Test(arguments: [
    ("stdin", "x\nhalf", ["x"], "half"),
    ("stdin: { join: { indented: true, wait: 1h } }", "x\na\n b", ["x"], "a\\n b"),
    ("stdin: { decode: whole }", "half", [], "half"),
    ("stdin: { maxLine: 2B, whenTooLong: cut }", "x\nhalf", ["x"], "ha"),
  ])
  func standardInputIsSentToItsEnd(_ source: String, _ input: String, _ before: [String], _ last: String) throws {
    for (isDurable, isRemoved) in [(false, false), (false, true), (true, false), (true, true)] {
      let folder = try Scratch()
      let file = try folder.write("a.yaml", text(0, source))
      let arguments =
        ["--daemon", file, "--log-format", "text", "--log-level", "info"]
        + (isDurable ? ["--state-dir", folder.path + "/state"] : [])
      let manager = try NotifySocket(folder.path + "/notify")
      let process = try RunningRxd(arguments, environment: ["NOTIFY_SOCKET": manager.path])
      _ = try manager.next(with: "READY")
      process.write(input)
      // Data that has been read is no longer in the pipe.
      if before.isEmpty { try awaitEmpty(process.input) }
      for event in before { #expect(try process.line() == "\"0 \(event)\"") }
      if isRemoved {
        try folder.write("a.yaml", text(1, "never: {}"))
        try reload(process)
      }
      if !isRemoved { process.send(SIGTERM) }
      let isKept = isDurable && !isRemoved
      if !isKept { #expect(try process.line() == "\"0 \(last)\"", "\(process.transcript)") }
      if isRemoved { process.send(SIGTERM) }
      #expect(try process.line() == nil, "\(process.transcript)")
      #expect(try process.wait() == 0)
      guard isKept else { continue }
      let next = try RunningRxd(arguments)
      #expect(try next.line() == "\"0 \(last)\"", "\(next.transcript)")
      next.send(SIGTERM)
      #expect(try next.line() == nil)
      #expect(try next.wait() == 0)
    }
  }

  /// A new version that fails to start leaves the inputs to the old one: standard input, a connection and a program, in the middle of a line.
  @Test func aVersionThatDoesNotStartTakesNoInput() throws {
    let folder = try Scratch()
    let pipe = folder.path + "/pipe"
    try #require(mkfifo(pipe, 0o600) == 0)
    let writer = open(pipe, O_RDWR)
    defer { close(writer) }
    // The error cannot be found before the program is run.
    let program = try folder.write("missing", "#!\(folder.path)/no-interpreter\n")
    chmod(program, 0o700)
    func text(_ version: Int, _ more: String = "") -> String {
      """
      sources:
        typed: { stdin: { decode: lines } }
        sent: { unix: '\(folder.path)/s' }
        run: { exec: { command: [cat, '\(pipe)'], streaming: true } }
      \(more)
      signals: { all: { merge: [typed, sent, run\(more.isEmpty ? "" : ", last")] } }
      sinks: { out: { from: all, chain: [ { map: "'\(version) ' + event" } ], stdout: text } }

      """
    }
    let file = try folder.write("a.yaml", text(0))
    let process = try start(file)
    try process.errorLine(with: "listening on")
    let client = try #require(SocketClient(path: folder.path + "/s"))
    func send(_ text: String) {
      process.write(text)
      client.send(text)
      #expect(Glibc.write(writer, text, text.utf8.count) == text.utf8.count)
    }
    func expect(_ line: String) throws {
      for _ in 0..<3 { #expect(try process.line() == line, "\(process.transcript)") }
    }
    send("first\n0")
    try expect("0 first")
    for round in 1...5 {
      try folder.write("a.yaml", text(round, "  last: { exec: { command: ['\(program)'], streaming: true } }"))
      process.send(SIGHUP)
      send(".\(round)")
      try process.errorLine(with: "the pipeline continues unchanged")
      try process.errorLine(with: "listening on")
      send("\n\(round)")
      try expect("0 \(round - 1).\(round)")
    }
    process.send(SIGTERM)
    try expect("0 5")
    #expect(try process.line() == nil)
    #expect(try process.wait() == 0)
    #expect(client.receive()?.isEmpty == true)
  }
}
