import Foundation
import PipelineHost
import Testing

/// No text of a file, a name, an event or another process is written unescaped to a terminal, where it could move the cursor, clear the screen,
/// or reverse text: a law over the verbs.
@Suite(.timeLimit(.minutes(10)))
struct TerminalTextTests {
  private let folder: Scratch

  /// Reverses the text after it; clears the screen; is invisible; rings the bell.
  private static let hostile = "a\u{202E}b\u{1B}[2Jc\u{200B}\u{7}"
  /// The same in a double-quoted scalar of YAML and, as far as YAML allows it, in a plain one.
  private static let quoted = #"a\u202Eb\e[2Jc\u200B\a"#
  private static let plain = "a\u{202E}b\u{200B}c"

  init() throws {
    folder = try Scratch()
    try folder.write(
      "p.yaml",
      """
      # \(Self.plain)
      name: p
      description: "\(Self.quoted)"
      sources: { in: { values: ["\(Self.quoted)", { "\(Self.quoted)": 1 }] } }
      signals:
        kept: { from: in, chain: [ { filter: "event != '\(Self.plain)'", name: one } ] }
        bad: { from: kept.errors, chain: [ { map: event.error } ] }
      sinks:
        out: { from: kept, stdout: { encode: text } }
        other: { from: kept, stdout: { encode: json } }
        errors: { from: bad, stdout: {} }
      tests:
        - name: "\(Self.quoted)"
          inputs: { in: { marbles: 'a|', values: { a: "\(Self.quoted)" } } }
          expect: { kept: { marbles: 'b|', values: { b: "\(Self.plain)" } } }

      """)
    try folder.write(
      "broken.yaml",
      """
      name: "\(Self.quoted)"
      sources: { "\(Self.quoted)": { values: [1] }, b: { \(Self.plain): 1 } }
      signals: { s: { from: \(Self.plain), chain: [ { \(Self.plain): 2 }, { filter: "event.\(Self.plain) > '" } ] } }
      sinks: { o: { from: s, stdout: {} } }
      \(Self.plain): 1

      """)
    try folder.write("\(Self.plain).yaml", "name: p\n\(Self.plain): 1\n")
    try folder.write("events", "\"\(Self.plain)\"\n{\"\(Self.plain)\": \"\\u202e\\u001b[2J\"}\n")
  }

  private func check(_ output: String, _ verb: [String], drawsItself: Bool = false) {
    var found = ["\u{202E}", "\u{200B}", "\u{7}"].filter { output.unicodeScalars.contains($0.unicodeScalars.first!) }
    if !drawsItself, output.contains("\u{1B}[2J") { found.append("clear") }
    #expect(found.isEmpty, "\(verb): \(found.map { $0.debugDescription }) in \(output.debugDescription)")
  }

  @Test func verbsWithFilesAndArguments() throws {
    let odd = "\(Self.plain).yaml"
    for verb in [
      ["check", "p.yaml"], ["check", "-v", "p.yaml"], ["check", "--format", "json", "broken.yaml"],
      ["check", "broken.yaml", odd],
      ["graph", "p.yaml"], ["graph", "--format", "dot", "p.yaml"], ["graph", "--format", "json", "p.yaml"],
      ["graph", "broken.yaml"],
      ["test", "p.yaml"], ["test", "--coverage", "p.yaml"], ["test", "broken.yaml"], ["fmt", "p.yaml"], ["fmt", odd],
      ["describe", Self.hostile], ["explain", Self.hostile], ["list", Self.hostile], ["schema", Self.hostile],
      ["run", "p.yaml"], ["run", odd],
      ["run", "--stats", "p.yaml"], ["check", Self.hostile], ["state", "ls", "--state-dir", Self.hostile],
      ["deadletters", "ls", "--state-dir", Self.hostile],
      ["plugin", "check", Self.hostile], ["reload", "--socket", Self.hostile],
      ["eval", "--no-history", "'\(Self.plain)'"],
      ["eval", "--no-history", "--input", "events", "event"],
      ["eval", "--no-history", "--input", "events", "--text", "event"],
      ["eval", "--no-history", "--input", "events", "event.\(Self.plain)"],
    ] {
      let terminal = try Terminal(
        arguments: verb, environment: ["HOME": folder.path, "NO_COLOR": verb.count % 2 == 0 ? "1" : ""], in: folder.path
      )
      let status = try terminal.wait()
      #expect(status >= 0 && !terminal.output.isEmpty, "\(verb): \(status)")
      check(terminal.output, verb)
    }
  }

  @Test func verbsThatAskAnotherProcess() throws {
    let socket = folder.path + "/c.sock"
    let quoted = #"a\u202eb\u001b[2Jc\u200b\u0007"#
    let server = try ScriptedServer(path: socket) { connection in
      guard let (head, _) = connection.message(hasBody: false) else { return }
      let (a, b) = (Self.plain, quoted)
      // The output of a tap arrives in chunks.
      if head.contains("edge=") {
        let events = """
          {"pipeline": "\(a)", "edges": [{"from": "\(a)", "to": "\(b)"}]}
          {"from": "\(a)", "to": "\(b)", "nanoseconds": 100, "time": "\(a)", "event": "\(a)"}
          {"from": "\(a)", "to": "\(b)", "nanoseconds": 900000000, "time": "\(b)", "event": {"\(a)": "\(b)"}}
          {"done": {"seen": 2, "shown": 2, "missed": 0}}

          """
        let size = String(events.utf8.count, radix: 16)
        connection.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\(size)\r\n\(events)\r\n0\r\n\r\n")
        return
      }
      let body =
        head.contains("/tap")
        ? #"{"pipelines": [{"name": "\#(a)", "edges": [{"name": "\#(b)", "from": "\#(a)", "to": "\#(b)", "events": 3}]}]}"#
        : head.contains("/stats")
          ? #"{"monotonic_nanoseconds": 5000000000, "at": "\#(b)", "pipelines": [{"name": "\#(a)", "state": "failed", "current": true, "steps": [{"id": "\#(b)", "kind": "\#(a)", "at": "\#(a):3:5", "in": 12, "out": 11, "holding": 4, "pauses_input": true}, {"id": "\#(a)", "kind": "source"}], "edges": []}]}"#
          : "\(a) \(Self.hostile)\n"
      connection.send(
        "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nConnection: close\r\nContent-Length: \(body.utf8.count)\r\n\r\n\(body)"
      )
    }
    defer { server.stop() }
    for verb in [
      ["top", "--once", "--interval", "100ms"], ["tap", "p", "a"], ["tap", "p", "a", "--marbles"], ["tap", "p"],
      ["why", "p"], ["reload"],
    ] {
      let terminal = try Terminal(arguments: verb + ["--socket", socket])
      #expect(try terminal.wait() == 0, "\(verb)")
      #expect(terminal.output.lowercased().contains("202e"), "\(verb): \(terminal.output.debugDescription)")
      check(terminal.output, verb)
    }
    let screen = try Terminal(arguments: ["top", "--interval", "100ms", "--socket", socket])
    try screen.expect("q ends")
    try screen.type("q", expecting: "")
    #expect(try screen.wait() == 0)
    check(screen.output, ["top"], drawsItself: true)
  }

  /// Output to a pipe is data and stays unchanged.
  @Test func whatGoesToAPipeStays() throws {
    let outcome = try Rxd.run("eval", "--no-history", "--input", "events", "event", in: folder.path)
    #expect(outcome.output.contains(Self.plain), "\(outcome.output)\(outcome.errors)")
  }
}
