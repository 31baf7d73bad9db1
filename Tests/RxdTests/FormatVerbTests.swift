import Foundation
import Testing

/// `rxd fmt` and `rxd init`.
@Suite(.timeLimit(.minutes(5)))
struct FormatVerbTests {
  private static let untidy = "sinks: {out: {from: n,stdout: json}}\nsources:\n    n: {values: [ 1,2 ]}   # numbers\n"
  private static let tidy = """
    sources:
      n: { values: [1, 2] }   # numbers

    sinks: { out: { from: n, stdout: json } }

    """

  @Test func filesAreFormatted() throws {
    let folder = try Scratch()
    let file = try folder.write("a.yaml", Self.untidy)
    try folder.write("b.yaml", Self.tidy)
    #expect(try Rxd.run("fmt", file).output == Self.tidy)
    #expect(try Rxd.run("fmt", "-", input: Self.untidy).output == Self.tidy)
    let checked = try Rxd.run("fmt", "--check", folder.path)
    #expect(checked.status == 1 && checked.output == "\(file)\n")
    #expect(try String(contentsOfFile: file, encoding: .utf8) == Self.untidy)
    try FileManager.default.setAttributes([.posixPermissions: 0o600], ofItemAtPath: file)
    let written = try Rxd.run("fmt", "--write", folder.path)
    #expect(written.status == 0 && written.output == "\(file)\n")
    #expect(try String(contentsOfFile: file, encoding: .utf8) == Self.tidy)
    #expect(try FileManager.default.attributesOfItem(atPath: file)[.posixPermissions] as? Int == 0o600)
    let again = try Rxd.run("fmt", "--check", folder.path)
    #expect(again.status == 0 && again.output == "")
  }

  private static let former = """
    sources:
      n: { values: [1, 2] }   # numbers

    sinks:
      out:
        from: n
        chain:
          - log: { on: [next] }   # each of them
          - join: { signal: n, within: 1s, key: event, otherKey: other, unmatched: send }
        stdout: json

    """

  @Test func formerNamesAreReplacedOnDemand() throws {
    let folder = try Scratch()
    let file = try folder.write("a.yaml", Self.former)
    // The names alone are no matter of layout.
    #expect(try Rxd.run("fmt", file).output == Self.former)
    #expect(try Rxd.run("fmt", "--check", file).status == 0)
    let checked = try Rxd.run("check", file)
    #expect(checked.output.components(separatedBy: "warning[RX226]").count == 3, "\(checked.output)")
    #expect(try Rxd.run("fmt", "--upgrade", "--check", file).status == 1)
    let written = try Rxd.run("fmt", "--upgrade", "--write", file)
    #expect(written.status == 0 && written.output == "\(file)\n")
    let present = Self.former.replacing("{ on: [next] }", with: "{ when: [next] }").replacing(
      "unmatched: send", with: "unmatched: left")
    #expect(try String(contentsOfFile: file, encoding: .utf8) == present)
    #expect(try !Rxd.run("check", file).output.contains("RX226"))
    #expect(try Rxd.run("fmt", "--upgrade", "--check", file).status == 0)
  }

  /// Fixes of other mistakes are those of `check --fix`; a file with them is upgraded nevertheless.
  @Test func onlyFormerNamesAreReplaced() throws {
    let wrong = Self.former.replacing("signal: n,", with: "signal: nn,")
    let outcome = try Rxd.run("fmt", "--upgrade", "-", input: wrong)
    #expect(outcome.status == 0)
    #expect(outcome.output.contains("signal: nn,") && outcome.output.contains("{ when: [next] }"), "\(outcome.output)")
  }

  @Test func whatCannotBeFormattedIsLeft() throws {
    let folder = try Scratch()
    let broken = try folder.write("a.yaml", "sources: [\n")
    let odd = try folder.write("b.yaml", "name: a\ndescription: |2\n    x\n")
    let tidy = try folder.write("c.yaml", Self.untidy)
    let outcome = try Rxd.run("fmt", "--write", broken, odd, tidy)
    #expect(outcome.status == 78 && outcome.output == "\(tidy)\n")
    #expect(outcome.errors.contains("a.yaml:1:10") && outcome.errors.contains("error[RX218]"), "\(outcome.errors)")
    #expect(try String(contentsOfFile: odd, encoding: .utf8).contains("|2"))
    #expect(try Rxd.run("fmt", folder.path + "/none.yaml").status == 66)
    #expect(try Rxd.run("fmt", "--write", "-").status == 64)
    #expect(try Rxd.run("fmt", "--write", "--check", tidy).status == 64)
  }

  /// Every choice makes a file without a warning, whose test passes.
  @Test(arguments: ["stdin", "file", "follow", "http", "httpServer", "exec", "syslog", "interval"])
  func aFirstFileWorks(_ source: String) throws {
    let folder = try Scratch()
    for (number, steps) in [
      ["pass"], ["filter", "map"], ["distinct", "throttle"], ["map", "filter"], ["count", "filter"],
    ]
    .enumerated() {
      let sink = ["stdout", "file", "http", "syslog", "tcp"][number]
      for format in ["syslog", "interval"].contains(source) ? [""] : ["json", "text"] {
        let file = "\(folder.path)/\(source)-\(number)\(format).yaml"
        let choices =
          ["--from", source, "--to", sink] + steps.flatMap { ["--do", $0] }
          + (format.isEmpty ? [] : ["--decode", format])
        let made = try Rxd.run(arguments: ["init", file] + choices)
        #expect(made.status == 0 && made.output.contains("rxd test \(file)"), "\(made)")
        let checked = try Rxd.run("check", "--deny-warnings", file)
        #expect(checked.status == 0, "\(choices)\n\(checked.output)")
        let tested = try Rxd.run("test", file)
        #expect(tested.status == 0 && tested.output.contains("1 test passed"), "\(tested.output)")
        #expect(try Rxd.run("fmt", "--check", file).status == 0)
      }
    }
  }

  @Test func aFirstFileReplacesNone() throws {
    let folder = try Scratch()
    let file = try folder.write("a.yaml", "mine")
    let refused = try Rxd.run("init", file)
    #expect(refused.status == 1 && refused.errors.contains("--force"), "\(refused)")
    #expect(try String(contentsOfFile: file, encoding: .utf8) == "mine")
    #expect(try Rxd.run("init", "--force", file, "--from", "file:in $x \"1\".ndjson", "--decode", "text").status == 0)
    #expect(try String(contentsOfFile: file, encoding: .utf8).contains("in $x"))
    for wrong in [
      ["--from", "kafka"], ["--to", "stdot"], ["--do", "filtr"], ["--from", "stdin:x"],
      ["--from", "interval", "--decode", "json"],
    ] {
      #expect(try Rxd.run(arguments: ["init", folder.path + "/b.yaml"] + wrong).status == 64, "\(wrong)")
    }
    #expect(try Rxd.run("init", folder.path + "/b.yaml", "--from", "interval:10").status == 78)
    #expect(!FileManager.default.fileExists(atPath: folder.path + "/b.yaml"))
  }

  /// At a terminal it asks; an unknown answer is asked for again.
  @Test func questionsAreAsked() throws {
    let folder = try Scratch()
    let terminal = try Terminal("init", folder.path + "/a.yaml")
    try terminal.expect("[stdin]")
    try terminal.type("fil\n", expecting: "")
    try terminal.expect("did you mean 'file'?")
    try terminal.type("file\n", expecting: "")
    try terminal.expect("Which file?")
    try terminal.type("orders.ndjson\n", expecting: "")
    try terminal.expect("[json]")
    try terminal.type("\n", expecting: "")
    try terminal.expect("[filter]")
    try terminal.type("throttle\n", expecting: "")
    try terminal.expect("[stdout]")
    try terminal.type("\n", expecting: "")
    #expect(try terminal.wait() == 0)
    let text = try String(contentsOfFile: folder.path + "/a.yaml", encoding: .utf8)
    #expect(
      text.contains("file: { path: \"orders.ndjson\", decode: json }") && text.contains("throttle: 300ms"), "\(text)")
  }
}
