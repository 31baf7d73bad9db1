import Foundation
import Testing

/// No secret appears in the program's output or in its files, except in events.
@Suite(.timeLimit(.minutes(5)))
struct SecretRunTests {
  private static let secret = "Qz7kPv3xWm"

  private func scratch() throws -> (folder: Scratch, options: [String]) {
    let folder = try Scratch()
    let secrets = folder.path + "/secrets"
    try FileManager.default.createDirectory(atPath: secrets, withIntermediateDirectories: false)
    let file = secrets + "/TOK"
    try Data(Self.secret.utf8).write(to: URL(fileURLWithPath: file))
    try FileManager.default.setAttributes([.posixPermissions: 0o600], ofItemAtPath: file)
    return (folder, ["--secrets-dir", secrets])
  }

  private func files(below path: String) -> String {
    let all = FileManager.default.enumerator(atPath: path)?.allObjects as? [String] ?? []
    return all.filter { !$0.hasPrefix("secrets") && !$0.hasSuffix(".yaml") }
      .compactMap { FileManager.default.contents(atPath: path + "/" + $0) }
      .map { String(decoding: $0, as: UTF8.self) }.joined()
  }

  @Test(arguments: ["text", "json"]) func neitherLogNorDeadLettersShowIt(_ form: String) throws {
    let (folder, options) = try scratch()
    let file = try folder.write(
      "a.yaml",
      """
      sources: { n: { values: [one, two] } }
      signals:
        seen:
          from: n
          chain:
            - log: { message: "with ${secret:TOK} {{ event }}" }
            - filter: int('${secret:TOK}') > 1
        kept:
          from: n
          chain: [ { map: "int('${secret:TOK}')" } ]
      sinks:
        a: { from: seen, stdout: json }
        b: { from: kept, stdout: json }
      """)
    let state = folder.path + "/state"
    let outcome = try Rxd.run("run", options[0], options[1], "--log-format", form, "--state-dir", state, file)
    #expect(outcome.errors.contains("with (secret) one"), "\(outcome.errors)")
    #expect(!(outcome.output + outcome.errors + files(below: folder.path)).contains(Self.secret))
    #expect(files(below: state).contains("RX5"), "there are dead letters")
  }

  /// Events may contain a secret too: the log hides it in events, in their errors and in rejected events. Sinks and dead
  /// letters on disk keep the data unchanged.
  @Test(arguments: ["text", "json"]) func dataShowsItInSinksOnly(_ form: String) throws {
    let (folder, options) = try scratch()
    let file = try folder.write(
      "a.yaml",
      """
      sources: { n: { stdin: { decode: json } } }
      signals:
        seen:
          from: n
          chain:
            - filter: "event.a != '${secret:TOK}'"
            - log: { message: "saw {{ event }} and {{ toJson(event) }}" }
            - log: { level: error, message: "{{ event.a }}" }
            - map: int(event.a)
      sinks:
        all: { from: n, stdout: json }
        out: { from: seen, discard: {} }
      """)
    let event = #"{"a":"x \#(Self.secret)","\#(Self.secret)":"{\"k\":\"\#(Self.secret)\"}"}"# + "\n"
    for state in [[], ["--state-dir", folder.path + "/state"]] {
      let outcome = try Rxd.run(
        arguments: ["run"] + options + ["-v", "--log-format", form] + state + [file], input: event)
      #expect(outcome.output == event)
      #expect(!outcome.errors.contains(Self.secret), "\(outcome.errors)")
      #expect(outcome.errors.contains("saw") && outcome.errors.contains("x (secret)"), "\(outcome.errors)")
      if form == "json" {
        for line in outcome.errors.split(separator: "\n") {
          #expect(throws: Never.self, "\(line)") { try JSONSerialization.jsonObject(with: Data(line.utf8)) }
        }
      }
      if state.isEmpty {
        #expect(outcome.errors.contains("rejected"))
      } else {
        #expect(files(below: folder.path + "/state").contains(Self.secret), "a dead letter has the event")
      }
    }
  }

  /// Only the outline of an event is checked before it is read; secrets are hidden even if the event is not JSON.
  @Test func aRejectedEventThatIsNoJSONLeavesTheLineJSON() throws {
    let folder = try Scratch()
    let file = try folder.write(
      "a.yaml",
      "sources: { n: { stdin: { decode: json } } }\nsinks: { a: { from: n, chain: [ { map: event.b } ], discard: {} } }\n"
    )
    let outcome = try Rxd.run("run", "--log-format", "json", file, input: #"{"a":"x \q y"}"# + "\n")
    let lines = outcome.errors.split(separator: "\n").filter { $0.contains("event rejected") }
    #expect(lines.count == 1, "\(outcome.errors)")
    for line in lines {
      #expect(throws: Never.self, "\(line)") { try JSONSerialization.jsonObject(with: Data(line.utf8)) }
    }
  }

  @Test func aRequestThatFailsShowsItsURLWithoutIt() throws {
    let (folder, options) = try scratch()
    let file = try folder.write(
      "a.yaml",
      """
      sources: { n: { http: { url: "http://127.0.0.1:9/bot${secret:TOK}/x?k=${secret:TOK}" } } }
      sinks: { a: { from: n, stdout: json } }
      """)
    let outcome = try Rxd.run("run", options[0], options[1], file)
    #expect(outcome.status == 1)
    #expect(!(outcome.output + outcome.errors).contains(Self.secret), "\(outcome.errors)")
  }

  @Test(arguments: ["check", "explain", "graph", "test"]) func verbsDoNotShowIt(_ verb: String) throws {
    let (folder, options) = try scratch()
    let file = try folder.write(
      "a.yaml",
      """
      sources: { n: { values: [one, two] } }
      sinks: { a: { from: n, chain: [ { filter: "event == '${secret:TOK}'" } ], stdout: json } }
      tests: [ { name: t, expect: { a: [ { next: none } ] } } ]
      """)
    let outcome = try Rxd.run(verb, options[0], options[1], file)
    #expect(outcome.status == (verb == "test" ? 1 : 0), "\(outcome.errors)")
    #expect(!(outcome.output + outcome.errors).contains(Self.secret))
    if verb == "explain" { #expect(outcome.output.contains("event == '(secret)'")) }
  }

  /// Characters that control a terminal or deceive the reader are escaped in every log format.
  @Test(arguments: ["text", "json"]) func theLogHoldsNothingThatIsHidden(_ form: String) throws {
    let folder = try Scratch()
    let file = try folder.write(
      "a.yaml",
      """
      sources: { n: { stdin: { decode: json } } }
      sinks: { a: { from: n, chain: [ { log: { message: "x {{ event.a }}" } }, { filter: event.b > 1 } ], discard: {} } }
      """)
    let hidden: [Unicode.Scalar] = [
      "\u{9B}", "\u{202E}", "\u{2028}", "\u{200B}", "\u{E0041}", "\u{1B}", "\u{AD}", "\u{61C}", "\u{180E}", "\u{200D}",
      "\u{2060}",
      "\u{FE0F}", "\u{FEFF}", "\u{E000}", "\u{E0100}", "\u{3164}",
    ]
    let text = String(String.UnicodeScalarView(hidden))
    let line = #"{"a":"\#(text.replacingOccurrences(of: "\u{1B}", with: "\\u001b"))"}"# + "\n"
    let outcome = try Rxd.run("run", "--log-format", form, file, input: line)
    #expect(outcome.errors.contains("x "), "\(outcome.errors)")
    for scalar in hidden {
      #expect(!outcome.errors.unicodeScalars.contains(scalar), "U+\(String(scalar.value, radix: 16))")
    }
    if form == "json" {
      for line in outcome.errors.split(separator: "\n") {
        #expect(throws: Never.self) { try JSONSerialization.jsonObject(with: Data(line.utf8)) }
      }
      #expect(outcome.errors.contains("\\u202e"))
    }
  }
}
