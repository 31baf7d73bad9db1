import Foundation
import Testing

@Suite(.timeLimit(.minutes(10)))
struct CheckTests {
  static let sound = "sources: { n: { values: [1, 2] } }\nsinks: { out: { from: n, stdout: json } }\n"

  @Test func reportsThatAFileIsFine() throws {
    let folder = try Scratch()
    let file = try folder.write("a.yaml", Self.sound)
    let outcome = try Rxd.run("check", file)
    #expect(outcome.status == 0)
    #expect(outcome.output == "\(file): ok (1 source, 1 sink)\n")
    #expect(outcome.errors == "")
    #expect(try Rxd.run("check", "-q", file).output == "")
    for alias in ["validate", "lint"] { #expect(try Rxd.run(alias, file).status == 0) }
  }

  /// A library, which other files include, is checked alone; no pipeline runs.
  @Test func checksLibraries() throws {
    let folder = try Scratch()
    let sound = """
      description: Units.
      functions:
        celsius: { parameters: { f: double }, value: (f - 32.0) * 5.0 / 9.0, examples: [ celsius(212.0) == 100.0 ] }
      templates: { warm: { chain: [ { filter: celsius(event.f) > 20.0 } ] } }

      """
    let file = try folder.write("lib.yaml", sound)
    let outcome = try Rxd.run("check", file)
    #expect(outcome.status == 0)
    #expect(outcome.output == "\(file): ok (a library of 1 function and 1 template, with nothing to run)\n")
    let tested = try Rxd.run("test", file)
    #expect(tested.status == 0)
    #expect(tested.output == "\(file): 1 example of 1 function and 1 template: ok\n")
    for verb in ["run", "explain"] {
      let refused = try Rxd.run(verb, file)
      #expect(refused.status == 78)
      #expect(
        (refused.output + refused.errors).contains(
          "RX202]: the file is a library of 1 function and 1 template: there is nothing to run"),
        "\(refused.output)\(refused.errors)")
    }
    // The files that it includes are checked with it; a file that includes a pipeline is a pipeline.
    let other = try folder.write("other.yaml", "include: lib.yaml\npatterns: { WORDS: '%{WORD}( %{WORD})*' }\n")
    #expect(
      try Rxd.run("check", other).output
        == "\(other): ok (a library of 1 function and 1 pattern, with nothing to run)\n")
    try folder.write("main.yaml", Self.sound)
    let main = try folder.write("with.yaml", "include: main.yaml\n")
    #expect(try Rxd.run("check", main).output == "\(main): ok (1 source, 1 sink)\n")
    // Errors in an example, a template and a key are found.
    for (from, to, code, place) in [
      ("== 100.0", "== 99.0", "RX368", "3:"), ("event.f) > 20.0", "event.f) > 'x'", "RX413", "4:"),
      ("description: Units.", "sorces: {}", "RX201", "1:"),
    ] {
      let bad = try folder.write("bad.yaml", sound.replacingOccurrences(of: from, with: to))
      for verb in ["check", "test"] {
        let outcome = try Rxd.run(verb, bad)
        #expect(outcome.status == 78)
        #expect(
          outcome.output.contains("[\(code)]") && outcome.output.contains("bad.yaml:\(place)"), "\(outcome.output)")
      }
    }
  }

  /// Whether a certificate exists depends on the machine: a warning, or nothing if the check excludes the environment.
  @Test func warnsOfCertificatesThatAreNotThere() throws {
    let folder = try Scratch()
    let present = try folder.write("present.pem", "certificates")
    func text(_ ca: String) -> String {
      "sources: { a: { http: { url: 'https://example.org/', tls: { ca: '\(ca)' } } } }\nsinks: { out: { from: a, stdout: {} } }\n"
    }
    let good = try Rxd.run("check", try folder.write("good.yaml", text(present)))
    #expect(good.status == 0 && !good.output.contains("RX712"), "\(good.output)")
    for path in ["/nonexistent/ca.pem", folder.path] {
      let file = try folder.write("bad.yaml", text(path))
      let outcome = try Rxd.run("check", file)
      #expect(outcome.status == 0)
      #expect(
        outcome.output.contains("warning[RX712]: the certificates file '\(path)' cannot be read")
          && outcome.output.contains("bad.yaml:1:"), "\(outcome.output)")
    }
  }

  @Test func tenMistakesAreAllReportedAtTheirPlaces() throws {
    let path = "Tests/Golden/ten-mistakes.yaml"
    let text = try String(contentsOfFile: "\(Rxd.root)/\(path)", encoding: .utf8)
    // The first lines of the file list its errors: `# 18:12 RX220  why`.
    let expected = text.split(separator: "\n").compactMap { line -> String? in
      let words = line.split(separator: " ")
      guard words.count > 2, words[0] == "#", words[2].hasPrefix("RX") else { return nil }
      return "\(words[1]) \(words[2])"
    }
    #expect(expected.count == 10)
    let outcome = try Rxd.run("check", "--format", "json", path, in: Rxd.root)
    #expect(outcome.status == 78)
    let report =
      try JSONSerialization.jsonObject(with: Data(outcome.output.utf8)) as? [[String: Any]] ?? []
    let reported = report.map { "\($0["line"] ?? 0):\($0["column"] ?? 0) \($0["code"] ?? "")" }
    #expect(reported == expected)
  }

  @Test func fixesAreMadeInTheFile() throws {
    let folder = try Scratch()
    let text =
      "# typed\r\nsources: { n: { values: [1, 2], }}\nsinks:   # two\n  out: { form: n, stdout: { encod: json } }\n"
    let file = try folder.write("a.yaml", text)
    #expect(chmod(file, 0o640) == 0)
    try FileManager.default.createSymbolicLink(atPath: folder.path + "/link.yaml", withDestinationPath: "a.yaml")
    let link = folder.path + "/link.yaml"
    let outcome = try Rxd.run("check", "--fix", link)
    #expect(outcome.status == 0, "\(outcome.output)\(outcome.errors)")
    #expect(outcome.output.contains("\(link):4\n-   out: { form: n, stdout: { encod: json } }\n+   out: { from: n, "))
    #expect(outcome.output.hasSuffix("\(link): made 2 fixes\n\(link): ok (1 source, 1 sink)\n"))
    // Nothing else has changed: comments, line endings, permissions, the link.
    let fixed = text.replacing("form: n", with: "from: n").replacing("encod: json", with: "encode: json")
    #expect(try String(contentsOfFile: file, encoding: .utf8) == fixed)
    var status = stat()
    #expect(lstat(link, &status) == 0 && status.st_mode & S_IFMT == S_IFLNK)
    #expect(stat(file, &status) == 0 && status.st_mode & 0o7777 == 0o640)
    let again = try Rxd.run("check", "--fix", link)
    #expect(again.status == 0 && again.output == "\(link): ok (1 source, 1 sink)\n")
    #expect(try Rxd.run("check", "--fix", "-", input: text).status == 64)
  }

  @Test func whatCannotBeFixedIsReported() throws {
    let folder = try Scratch()
    let mistakes = try String(contentsOfFile: "\(Rxd.root)/Tests/Golden/ten-mistakes.yaml", encoding: .utf8)
    let file = try folder.write("a.yaml", mistakes)
    let outcome = try Rxd.run("check", "--fix", "--format", "json", file)
    #expect(outcome.status == 78)
    // Standard output must contain only the report.
    let report = try JSONSerialization.jsonObject(with: Data(outcome.output.utf8)) as? [[String: Any]] ?? []
    let fixed = outcome.errors.split(separator: "\n").filter { $0.hasPrefix("+ ") }
    #expect(fixed.contains("+     stdin: { decode: json }") && fixed.contains("+     from: ticks"), "\(outcome.errors)")
    #expect(report.count + fixed.count >= 10 && report.count < 10)
    #expect(!report.contains { $0["code"] as? String == "RX301" })
    #expect(try String(contentsOfFile: file, encoding: .utf8).contains("from: ticks"))
  }

  @Test func theSameReportServesEveryReader() throws {
    let path = "Tests/Golden/ten-mistakes.yaml"
    let text = try Rxd.run("check", path, in: Rxd.root)
    #expect(text.status == 78)
    #expect(text.output.hasSuffix("10 errors in \(path)\n"))
    #expect(!text.output.contains("\u{1B}"))
    #expect(try Rxd.run("check", "--color", "always", path, in: Rxd.root).output.contains("\u{1B}[1;31m"))
    let github = try Rxd.run("check", "--format", "github", path, in: Rxd.root)
    #expect(github.lines.count == 10)
    #expect(github.lines.allSatisfy { $0.hasPrefix("::error ") })
    let sarif = try Rxd.run("check", "--format", "sarif", path, in: Rxd.root)
    let log = try JSONSerialization.jsonObject(with: Data(sarif.output.utf8)) as? [String: Any]
    #expect(log?["version"] as? String == "2.1.0")
  }

  @Test func oneReportCoversAllFiles() throws {
    let folder = try Scratch()
    try folder.write("good.yaml", Self.sound)
    try folder.write("bad.yaml", "sources: { n: { valuez: [1] } }\n")
    try folder.write("notes.txt", "not a pipeline")
    try folder.write("good_test.yaml", "not: a pipeline")
    try FileManager.default.createDirectory(
      atPath: folder.path + "/deep", withIntermediateDirectories: false)
    try folder.write("deep/other.yaml", Self.sound)
    let flat = try Rxd.run("check", ".", in: folder.path)
    #expect(flat.status == 78)
    #expect(flat.output.contains("bad.yaml:1:"))
    #expect(flat.output.contains("good.yaml: ok"))
    #expect(!flat.output.contains("other.yaml"))
    let tree = try Rxd.run("check", "./...", in: folder.path)
    #expect(tree.output.contains("deep/other.yaml: ok"))
    #expect(try Rxd.run("check", "-c", "*ood.yaml", in: folder.path).status == 0)
    #expect(try Rxd.run("check", "-C", "deep", in: folder.path).status == 0)
  }

  @Test func aFileThatIsNotThereMayBeAnother() throws {
    let folder = try Scratch()
    try folder.write("access.yaml", Self.sound)
    mkdir(folder.path + "/deep", 0o700)
    try folder.write("deep/orders.yml", Self.sound)
    let near = try Rxd.run("check", "acess.yaml", in: folder.path)
    #expect(near.status == 66)
    #expect(near.output.contains("there is no file 'acess.yaml'\n  = help: Did you mean 'access.yaml'?\n"))
    let deep = try Rxd.run("check", "./deep/order.yml", in: folder.path).output
    #expect(deep.contains("Did you mean './deep/orders.yml'?"))
    let misspelt = try Rxd.run("chek", "access.yaml", in: folder.path)
    #expect(misspelt.status == 66)
    #expect(misspelt.errors.contains("neither a verb nor a file 'chek'\n  = help: Did you mean the verb 'check'?"))
    let unknown = try Rxd.run("frobnicate", in: folder.path)
    #expect(unknown.status == 66 && unknown.errors.contains("'rxd help' lists the verbs"))
    let late = try Rxd.run("--quiet", "check", "access.yaml", in: folder.path).errors
    #expect(late.contains("A verb comes before its options and files: 'rxd check ...'"))
    let nowhere = try Rxd.run("check", "nowhere/access.yaml", in: folder.path).output
    #expect(nowhere.contains("there is no file 'nowhere/access.yaml'") && !nowhere.contains("help"))
  }

  @Test func exitStatusesAreTheUsualOnes() throws {
    let missing = try Rxd.run("check", "/nonexistent/a.yaml")
    #expect(missing.status == 66)
    #expect(missing.output.contains("there is no file '/nonexistent/a.yaml'"))
    #expect(try Rxd.run("check").status == 64)
    #expect(try Rxd.run("check", "--nonsense").status == 64)
    #expect(try Rxd.run("run", "/nonexistent/a.yaml").status == 66)
  }

  @Test func standardInputIsAFile() throws {
    #expect(try Rxd.run("check", "-", input: Self.sound).status == 0)
    let outcome = try Rxd.run("check", "-", input: "sources: []\n")
    #expect(outcome.status == 78)
    #expect(outcome.output.contains("<stdin>:1:"))
  }

  @Test func warningsCanBeErrors() throws {
    let folder = try Scratch()
    let file = try folder.write("a.yaml", Self.sound + "signals: { idle: { from: n } }\n")
    #expect(try Rxd.run("check", file).status == 0)
    #expect(try Rxd.run("check", "-d", file).status == 78)
    #expect(try Rxd.run("check", file, environment: ["RXD_DENY_WARNINGS": "1"]).status == 78)
  }

  @Test func theEnvironmentFillsValues() throws {
    let folder = try Scratch()
    let file = try folder.write(
      "a.yaml",
      "sources: { n: { values: \"${RX_TEST_LIST}\" } }\nsinks: { out: { from: n, stdout: json } }\n")
    let undefined = try Rxd.run("check", file)
    #expect(undefined.status == 78)
    #expect(undefined.output.contains("RX701"))
    #expect(try Rxd.run("check", "--no-environment", file).status == 0)
    let variables = try folder.write("env", "# comment\nexport RX_TEST_LIST='from file'\n")
    #expect(try Rxd.run("-e", variables, file).output == "\"from file\"\n")
    let both = try Rxd.run("-e", variables, file, environment: ["RX_TEST_LIST": "from process"])
    #expect(both.output == "\"from process\"\n")
  }

  @Test func secretsAreFilesThatNobodyElseReads() throws {
    let folder = try Scratch()
    let file = try folder.write(
      "a.yaml",
      """
      sources: { n: { values: [1] } }
      sinks: { out: { from: n, chain: [ { map: "'${secret:token}'" } ], stdout: json } }

      """)
    let secret = try folder.write("token", "k33p\n")
    chmod(secret, 0o600)
    #expect(try Rxd.run("--secrets-dir", folder.path, file).output == "\"k33p\"\n")
    chmod(secret, 0o644)
    let refused = try Rxd.run("check", "--secrets-dir", folder.path, file)
    #expect(refused.status == 78)
    #expect(refused.output.contains("can be read by every user"))
    #expect(!refused.output.contains("k33p"))
    let credential = try Rxd.run(file, environment: ["CREDENTIALS_DIRECTORY": folder.path])
    #expect(credential.output == "\"k33p\"\n")
  }

  /// Two pipelines cannot share standard input or a name in the log.
  @Test func whatRunsTogetherIsCheckedTogether() throws {
    let folder = try Scratch()
    let text = "name: same\nsources: { lines: { stdin: {} } }\nsinks: { out: { from: lines, stdout: text } }\n"
    let a = try folder.write("a.yaml", text)
    let b = try folder.write("b.yaml", text)
    #expect(try Rxd.run("check", a).output == "\(a): ok (1 source, 1 sink)\n")
    let both = try Rxd.run("check", a, b)
    #expect(both.status == 0)
    #expect(
      both.output == """
        warning[RX338]: another of these pipelines is also called 'same'
         --> \(b):1:7
          |
        1 | name: same
          |       ^^^^
          = note: this one
         --> \(a):1:7
          |
        1 | name: same
          |       ----
          = help: Give one of them another 'name': the log and the dead letters identify pipelines by name

        warning[RX337]: the pipeline 'same' also reads standard input, and only one can
         --> \(b):2:21
          |
        2 | sources: { lines: { stdin: {} } }
          |                     ^^^^^
          = note: it does so here
         --> \(a):2:21
          |
        2 | sources: { lines: { stdin: {} } }
          |                     -----
          = help: Run them as separate processes

        2 warnings in \(b)
        \(a): ok (1 source, 1 sink)
        \(b): ok (1 source, 1 sink)

        """)
    #expect(try Rxd.run("check", "--deny-warnings", a, b).status == 78)
    let run = try Rxd.run(a, b, "--log-format", "text", input: "x\n")
    #expect(run.errors.contains("RX337") && run.errors.contains("RX338"), "\(run.status): \(run.errors)")
    let piped = try Rxd.run("check", "-", input: text)
    #expect(piped.output.contains("the pipeline file itself is read from standard input"))
  }

  @Test func theDirectoryOfASinkIsLookedFor() throws {
    let folder = try Scratch()
    let file = try folder.write(
      "a.yaml", "sources: { n: { values: 1 } }\nsinks: { out: { from: n, file: nowhere/out.json } }\n")
    let check = try Rxd.run("check", "a.yaml", in: folder.path)
    #expect(check.status == 0)
    #expect(check.output.contains("warning[RX336]: 'nowhere/out.json' lies in a directory that does not exist"))
    #expect(check.output.contains("--> a.yaml:2:32"))
    #expect(mkdir(folder.path + "/nowhere", 0o700) == 0)
    #expect(try Rxd.run("check", file, in: folder.path).output == "\(file): ok (1 source, 1 sink)\n")
  }

  /// Also through different spellings of a path and through links.
  @Test func aSinkInTheFilesOfItsSourceIsRefused() throws {
    let folder = try Scratch()
    #expect(mkdir(folder.path + "/logs", 0o700) == 0)
    #expect(symlink("logs", folder.path + "/link") == 0)
    let file = try folder.write(
      "a.yaml",
      """
      sources: { in: { file: { path: 'logs/*.log', follow: true } } }
      sinks: { out: { from: in, file: \(folder.path)/link/out.log } }

      """)
    let check = try Rxd.run("check", file, in: folder.path)
    #expect(check.status == 78)
    #expect(check.output.contains("error[RX303]: the sink 'out' writes a file that its own events are read from"))
    #expect(check.output.contains(":2:33"))
    #expect(check.output.contains(":1:32"))
  }
}
