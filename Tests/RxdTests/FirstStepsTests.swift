import Foundation
import Testing

/// A new user's first contact: words, quiet options, files from standard input, pages.
@Suite(.timeLimit(.minutes(5)))
struct FirstStepsTests {
  private static let failing = """
    sources: { n: { stdin: { decode: json } } }
    sinks: { out: { from: n, chain: [ { map: event.user.address.city } ], stdout: json } }

    """

  @Test func quietIsQuietAboutRejectedEvents() throws {
    let folder = try Scratch()
    let file = try folder.write("a.yaml", Self.failing)
    for option in ["-q", "-qq"] {
      let outcome = try Rxd.run("run", option, file, input: "{\"usr\":1}\n")
      #expect(outcome.status == 0)
      #expect(outcome.errors == "", "\(option)")
    }
    #expect(try Rxd.run("run", file, input: "{\"usr\":1}\n").errors.contains("rejected"))
  }

  /// The first five of each kind are logged, and the rest are counted.
  @Test(arguments: ["text", "json"]) func aFloodOfRejectedEventsIsBounded(_ form: String) throws {
    let folder = try Scratch()
    let file = try folder.write("a.yaml", Self.failing)
    let input = String(repeating: "{\"usr\":1}\n", count: 3_000) + "no JSON\n"
    let outcome = try Rxd.run("run", "--log-format", form, file, input: input)
    let lines = outcome.errors.split(separator: "\n")
    #expect(lines.count < 15, "\(lines.count) lines")
    #expect(outcome.errors.contains("2995 more like it"), "\(outcome.errors.suffix(1500))")
    #expect(lines.contains { $0.contains("RX501") }, "the other kind is there, too")
    #expect(outcome.errors.contains("3001 rejected"))
  }

  @Test(arguments: [
    ("{\"usr\":1}", "'user'"), ("{\"user\":{}}", "'address'"), ("{\"user\":{\"address\":{}}}", "'city'"),
    ("{\"user\":5}", "'address'"),
  ]) func theFirstFieldThatIsMissingIsNamed(_ event: String, _ field: String) throws {
    let folder = try Scratch()
    let file = try folder.write("a.yaml", Self.failing)
    let errors = try Rxd.run("run", "--log-format", "text", file, input: event + "\n").errors
    #expect(errors.contains("no such key: \(field) (event.user.address.city)"), "\(errors)")
  }

  /// The source checks only the outline of a line; the expression that reads a malformed value reports it.
  @Test func malformedJSONIsRejectedByTheStepThatReadsIt() throws {
    let folder = try Scratch()
    let file = try folder.write("a.yaml", Self.failing)
    let errors = try Rxd.run("run", "--log-format", "text", file, input: "{\"user\": tru}\n").errors
    #expect(errors.contains("the event is not JSON: expected a JSON value at byte 9"), "\(errors)")
    #expect(errors.contains(#""code":"RX502","step":"out/map""#), "\(errors)")
  }

  @Test func aDroppedEventIsReportedByItsStep() throws {
    let folder = try Scratch()
    let file = try folder.write(
      "a.yaml",
      """
      sources: { n: { values: [a] } }
      sinks:
        out: { from: n, chain: [ { map: int(event), onError: drop } ], stdout: json }
        other: { from: n, chain: [ { filter: int(event) > 1 } ], stdout: json }
      """)
    let errors = try Rxd.run("run", "--log-format", "text", file).errors
    #expect(errors.contains("dropped an event, because an expression failed"), "\(errors)")
    #expect(errors.contains("dropped an event, because its condition could not be decided"), "\(errors)")
    #expect(errors.contains("1 event in,"), "\(errors)")
  }

  @Test(arguments: ["-", "/dev/stdin"]) func checkReadsStandardInput(_ name: String) throws {
    let outcome = try Rxd.run("check", name, input: CheckTests.sound)
    #expect(outcome.status == 0, "\(outcome.errors)")
    #expect(outcome.output == "\(name): ok (1 source, 1 sink)\n")
    let broken = try Rxd.run("check", name, input: "sources: { n: { valuez: [1] } }\n")
    #expect(broken.status == 78)
    #expect(broken.output.contains("<stdin>:1:"))
  }

  @Test(arguments: [
    ("csv", "delimiter"), ("json", "validate"), ("regex", "pattern"), ("logfmt", "types"), ("text", "invalidUTF8"),
    ("share", "replay"), ("cold", "separately"), ("executing", "command"), ("enabled", "command"),
    ("chain", "operators"),
  ]) func describeKnowsFormatsAndWords(_ name: String, _ part: String) throws {
    let page = try Rxd.run("describe", name)
    #expect(page.status == 0, "\(page.errors)")
    #expect(page.output.contains(part), "\(page.output)")
  }

  @Test(arguments: [
    ("replay", "'share"), ("RAC", "docs/reactivecocoa.md"), ("doError", "'do'"), ("pulsar", "stdin"),
    ("kafka", "make -C Plugins/kafka install"),
    ("lua", "expressions"),
  ]) func describeLeadsFromOtherNames(_ name: String, _ part: String) throws {
    let outcome = try Rxd.run("describe", name)
    #expect(outcome.status == 64)
    #expect(outcome.errors.contains(part), "\(outcome.errors)")
  }

  /// Where a source and a sink have one name, the kind in front of it chooses.
  @Test func describeTakesAKind() throws {
    let both = try Rxd.run("describe", "http")
    #expect(both.output.contains("http (source)") && both.output.contains("http (sink)"))
    let one = try Rxd.run("describe", "sink", "http")
    #expect(one.output.hasPrefix("http (sink)") && !one.output.contains("http (source)"), "\(one.output)")
    #expect(try Rxd.run("describe", "operator", "htp").errors.contains("there is no operator called 'htp'"))
    #expect(try Rxd.run("describe", "thing", "http").errors.contains("'preset' or a kind (source, operator"))
  }

  @Test func explainShowsAnExampleAndItsFix() throws {
    let outcome = try Rxd.run("explain", "RX203")
    #expect(outcome.output.contains("take: \"2\""), "\(outcome.output)")
    #expect(outcome.output.contains("Write:\n  take: 2\n"), "\(outcome.output)")
    #expect(try Rxd.run("explain", "RX504").status == 0)
  }

  @Test func aDaemonTellsOfFilesThatItLeavesOut() throws {
    let folder = try Scratch()
    try folder.write("good.yaml", "sources: { n: { interval: 1h } }\nsinks: { out: { from: n, discard: {} } }\n")
    try folder.write("bad.yaml", "sources: { n: { valuez: [1] } }\n")
    let manager = try NotifySocket(folder.path + "/notify")
    let process = try RunningRxd(
      ["--config-dir", folder.path], environment: ["NOTIFY_SOCKET": manager.path])
    let ready = try manager.next(with: "READY")
    #expect(
      ready["STATUS"]?.contains("1 pipeline running, 1 broken file (\(folder.path)/bad.yaml)") == true, "\(ready)")
    process.send(SIGTERM)
    _ = try process.wait()
  }

  @Test(.enabled(if: VerbTests.hasBash, "needs bash"), arguments: [["rxd", "pi"], ["rxd", "check", "pi"]])
  func completionOffersFiles(_ words: [String]) throws {
    let folder = try Scratch()
    try folder.write("pipe.yaml", CheckTests.sound)
    try folder.write("picture.png", "")
    let script = try folder.write("rxd.bash", try Rxd.run("completion", "bash").output)
    let line = words.map { "'\($0)'" }.joined(separator: " ")
    let process = Process()
    process.executableURL = URL(fileURLWithPath: "/bin/bash")
    process.arguments = [
      "-c",
      """
      source '\(script)'; cd '\(folder.path)'
      COMP_WORDS=(\(line)); COMP_CWORD=\(words.count - 1); COMP_LINE='\(words.joined(separator: " "))'; COMP_POINT=${#COMP_LINE}
      _rxd rxd '\(words[words.count - 1])' '\(words[words.count - 2])'
      printf '%s\n' "${COMPREPLY[@]}"
      """,
    ]
    let output = Pipe()
    process.standardOutput = output
    try process.run()
    let offered = String(decoding: try output.fileHandleForReading.readToEnd() ?? Data(), as: UTF8.self)
    process.waitUntilExit()
    #expect(offered == "pipe.yaml\n")
  }

  /// A word of the language cannot be a name; the message says where it is used.
  @Test(arguments: ["event", "env", "meta", "outer", "index", "now", "running"]) func wordsAreNoNames(_ word: String)
    throws
  {
    let outcome = try Rxd.run(
      "check", "-",
      input: "sources:\n  \(word): { values: [1] }\nsinks: { out: { from: \(word), stdout: json } }\n")
    #expect(outcome.status == 78)
    #expect(outcome.output.contains("error[RX206]"), "\(outcome.output)")
    #expect(outcome.output.contains("<stdin>:2:3"), "\(outcome.output)")
    #expect(outcome.output.contains("1 error"), "\(outcome.output)")
  }
}
