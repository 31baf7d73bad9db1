import Foundation
import Testing

/// `rxd eval` at a terminal, driven through a pty.
@Suite struct EvalSessionTests {
  @Test func aSession() throws {
    let folder = try Scratch()
    let events = try folder.write(
      "events.ndjson", "{\"status\": 503, \"user\": {\"name\": \"Ann\"}}\n\n{\"status\": 200}\n")
    let state = folder.path + "/state"
    do {
      let terminal = try Terminal("eval", "--input", events, environment: ["XDG_STATE_HOME": state])
      try terminal.expect("2 events")
      try terminal.expect("> ")
      // Completion of fields and functions, and the list of several choices.
      try terminal.type("event.st\t + 1\r", expecting: "504")
      try terminal.type("event.?user.na\t.value()\r", expecting: "\"Ann\"")
      try terminal.type("math.greate\t1, 2) * 21\r", expecting: "42")
      try terminal.type("parseU\t\"http://hö/\").host\r", expecting: "\"hö\"")
      try terminal.type("math.bit\t", expecting: "math.bitShiftLeft(")
      // Control-C discards the line.
      try terminal.type("And( 7\u{3}", expecting: "^C")
      try terminal.expect("> ")
      try terminal.type("4 * 4\r", expecting: "16")
      // The previous line, from the history.
      try terminal.type("\u{1B}[A + 1\r", expecting: "17")
      try terminal.type("event.nothing\r", expecting: "no such key: 'nothing'")
      try terminal.expect("^^^^^^^^^^^^^")
      try terminal.type("1 +\r", expecting: "RX401")
      try terminal.type(":type event.a > 1\r", expecting: "bool")
      try terminal.type(":explain event.a > 1\r", expecting: "compare slot 0 > 1")
      try terminal.type(":next\r", expecting: "{\"status\": 200}")
      try terminal.type(":next\r", expecting: "last event")
      try terminal.type("event = {\"x\": [1, 2]}\r", expecting: "> ")
      try terminal.type("event.x.sum()\r", expecting: "3")
      try terminal.type("event = {'y': event.x[0] + 8}\r", expecting: "> ")
      try terminal.type("event.y * 10\r", expecting: "90")
      try terminal.type(":describe grok\r", expecting: "%{NAME:field}")
      try terminal.type(":hepl\r", expecting: ":help")
      try terminal.type("6 * 7\r", expecting: "42")
      // Control-D is a key only while the line editor reads, which a completion shows; the prompt appears earlier.
      try terminal.type("math.bit\t", expecting: "math.bitShiftLeft(")
      try terminal.type("\u{15}\u{4}", expecting: "")
      #expect(try terminal.wait() == 0)
    }
    let history = try String(contentsOfFile: state + "/rxd/history", encoding: .utf8)
    #expect(history.contains("event.x.sum()") || history.contains("event.x.sum()".replacing("(", with: "\\050")))
    let mode = try FileManager.default.attributesOfItem(atPath: state + "/rxd/history")[.posixPermissions] as? Int
    #expect(mode == 0o600)
    // The history is available in the next session.
    let terminal = try Terminal("eval", environment: ["XDG_STATE_HOME": state])
    try terminal.expect("> ")
    try terminal.type("\u{1B}[A\r", expecting: "42")
    try terminal.type("exit\r", expecting: "")
    #expect(try terminal.wait() == 0)
  }

  /// An expression that uses no event waits for none, and without a history nothing is written.
  @Test func atATerminal() throws {
    let folder = try Scratch()
    let terminal = try Terminal("eval", "6 * 7")
    try terminal.expect("42")
    #expect(try terminal.wait() == 0)
    let session = try Terminal("eval", "--no-history", environment: ["XDG_STATE_HOME": folder.path])
    try session.type("6 * 7\r", expecting: "42")
    try session.type("quit\r", expecting: "")
    #expect(try session.wait() == 0)
    #expect(!FileManager.default.fileExists(atPath: folder.path + "/rxd"))
  }

  @Test func withoutATerminalAnExpressionIsNeeded() throws {
    let outcome = try Rxd.run("eval", input: "{}")
    #expect(outcome.status == 64)
    #expect(outcome.errors.contains("Name an expression"))
  }

  @Test func explainSaysWhichFieldMustBeThere() throws {
    let text = try Rxd.run("eval", "--explain", "event.a.?b.orValue(1)").output
    #expect(text.contains("event.a.b  fails where event.a is missing\n"), "\(text)")
    let twice = try Rxd.run("eval", "--explain", "event.?a.hasValue() || event.a == 1").output
    #expect(twice.contains("event.a  fails where it is missing\n"), "\(twice)")
    let folder = try Scratch()
    let file = try folder.write(
      "a.yaml",
      """
      sources: { s: { stdin: { decode: json } } }
      sinks: { out: { from: s, chain: [ { map: event.a.?b.orValue(1) } ], stdout: json } }

      """)
    let plan = try Rxd.run("explain", file).output
    #expect(plan.contains("fails where event.a is missing\n"), "\(plan)")
    #expect(!plan.contains("event.a.b is missing"), "\(plan)")
  }

  @Test func explainAndInput() throws {
    let folder = try Scratch()
    let events = try folder.write("events.ndjson", "{\"a\": 1}\n{\"a\": 2}\n")
    #expect(try Rxd.run("eval", "--input", events, "event.a * 2").output == "2\n4\n")
    #expect(try Rxd.run("eval", "--input", folder.path + "/none", "event").status == 66)
    let text = try Rxd.run("eval", "--explain", "event.a > 3 && has(event.b)").output
    #expect(
      text == """
        type: bool
        may fail: yes
        reads:
          event.a  fails where it is missing
          event.b  may be missing
        slots, filled in one pass over the event:
          0  event.a
          1  event.b  only whether it is there
        program:
          2  compare slot 0 > 3  event.a > 3
          3  slot 1 is there     has(event.b)
          4  and 2 3             event.a > 3 && has(event.b)

        """)
  }

  /// The commands in docs/expressions.md, run unchanged.
  @Test func theGuideShowsWhatComes() throws {
    let guide = try String(contentsOfFile: Rxd.root + "/docs/expressions.md", encoding: .utf8)
    var commands: [(command: String, output: [Substring])] = []
    var isInside = false
    for line in guide.split(separator: "\n", omittingEmptySubsequences: false) {
      if line.hasPrefix("```") {
        isInside = line == "```console"
      } else if isInside, line.hasPrefix("$ ") {
        commands.append((String(line.dropFirst(2)), []))
      } else if isInside, !commands.isEmpty {
        commands[commands.count - 1].output.append(line)
      }
    }
    #expect(commands.count >= 4)
    for (command, output) in commands {
      let shell = Process()
      shell.executableURL = URL(fileURLWithPath: "/bin/sh")
      shell.arguments = ["-c", "{ \(command) ; } 2>&1"]
      let folder = URL(fileURLWithPath: Rxd.binary).deletingLastPathComponent().path
      shell.environment = ["PATH": "\(folder):/usr/bin:/bin", "LANG": "C.UTF-8"]
      let pipe = Pipe()
      shell.standardOutput = pipe
      shell.standardInput = FileHandle.nullDevice
      try shell.run()
      let got = String(decoding: try pipe.fileHandleForReading.readToEnd() ?? Data(), as: UTF8.self)
      shell.waitUntilExit()
      let lines = got.split(separator: "\n", omittingEmptySubsequences: false)
      func trimmed(_ lines: [Substring]) -> String {
        lines.joined(separator: "\n").trimmingCharacters(in: .newlines)
      }
      #expect(trimmed(lines) == trimmed(output), "\(command)")
    }
  }
}
