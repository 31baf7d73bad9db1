import Foundation
import Testing

@Suite(.timeLimit(.minutes(10)))
struct VerbTests {
  private func json(_ text: String) throws -> Any {
    try JSONSerialization.jsonObject(with: Data(text.utf8), options: .fragmentsAllowed)
  }

  static func has(_ program: String, _ arguments: String...) -> Bool {
    let process = Process()
    process.executableURL = URL(fileURLWithPath: "/usr/bin/env")
    process.arguments = [program] + arguments
    process.standardOutput = FileHandle.nullDevice
    process.standardError = FileHandle.nullDevice
    guard (try? process.run()) != nil else { return false }
    process.waitUntilExit()
    return process.terminationStatus == 0
  }
  private static let hasSchemaValidator = has("python3", "-c", "import jsonschema, yaml")
  static let hasBash = has("bash", "-c", "true")

  @Test func versionIsOneLine() throws {
    for arguments in [["version"], ["--version"]] {
      let process = try RunningRxd(arguments)
      #expect(try process.line()?.contains("0.") == true)
      #expect(try process.line() == nil)
      #expect(try process.wait() == 0)
    }
  }

  @Test func listNamesEverything() throws {
    let all = try Rxd.run("list").output
    for name in ["stdin", "throttle", "merge", "stdout", "ndjson", "size"] {
      #expect(all.contains("  \(name) "), "\(name)")
    }
    let entries = try #require(
      try json(try Rxd.run("list", "operators", "--format", "json").output) as? [[String: String]])
    #expect(entries.contains { $0["name"] == "filter" && $0["kind"] == "operator" })
    #expect(try Rxd.run("list", "nonsense").status == 64)
  }

  @Test func describeLeadsFromOthersNames() throws {
    let page = try Rxd.run("describe", "throttle")
    #expect(page.output.contains("required"))
    #expect(page.output.contains("RxJS debounceTime"))
    let foreign = try Rxd.run("describe", "debounce")
    #expect(foreign.status == 64)
    #expect(foreign.errors.contains("'throttle'"))
    #expect(try Rxd.run("describe", "throtle").errors.contains("'throttle'"))
    // A name of two kinds has two pages.
    let file = try Rxd.run("describe", "file").output
    #expect(file.contains("file (source)") && file.contains("file (sink)"))
    #expect(try Rxd.run("describe", "size").output.contains("size (function)"))
    // Formats that are parameters of a decoder refer to it.
    let log = try Rxd.run("describe", "nginx").output
    #expect(log.contains("decode: { regex: combined }"), "\(log)")
    let decoder = try Rxd.run("check", "-", input: "sources: { a: { stdin: { decode: nginx } } }\n")
    #expect(decoder.output.contains("fix: replace with { regex: combined }"), "\(decoder.output)")
  }

  @Test func explainTellsPlansAndCodes() throws {
    let plan = try Rxd.run("explain", "pipelines/access-log.yaml", in: Rxd.root)
    #expect(plan.status == 0)
    #expect(plan.output.contains("in one pass"))
    #expect(plan.output.contains("event.status: int or null"))
    #expect(try Rxd.run("explain", "RX203").output.hasPrefix("RX203 (error): "))
    #expect(try Rxd.run("explain", "rx220").status == 0)
    #expect(try Rxd.run("explain", "RX999").status == 64)
    #expect(try Rxd.run("explain", "/nonexistent.yaml").status == 66)
  }

  @Test func graphsHaveEveryStep() throws {
    let path = "pipelines/access-log.yaml"
    let mermaid = try Rxd.run("graph", path, in: Rxd.root).output
    #expect(mermaid.hasPrefix("flowchart LR\n"))
    #expect(mermaid.contains("groupBy"))
    let dot = try Rxd.run("graph", "--format", "dot", path, in: Rxd.root).output
    #expect(dot.hasPrefix("digraph \"access-log\" {"))
    let graph = try #require(
      try json(try Rxd.run("graph", "--format", "json", path, in: Rxd.root).output) as? [String: Any])
    let nodes = try #require(graph["nodes"] as? [[String: Any]])
    let edges = try #require(graph["edges"] as? [[String: Any]])
    #expect(nodes.contains { $0["type"] as? String == "groupBy" && $0["line"] is Int })
    let ids = Set(nodes.compactMap { $0["id"] as? String })
    #expect(edges.allSatisfy { ids.contains($0["from"] as? String ?? "") && ids.contains($0["to"] as? String ?? "") })
    #expect(try Rxd.run("graph", "Tests/Golden/ten-mistakes.yaml", in: Rxd.root).status == 78)
  }

  @Test func svgNeedsNoOtherProgram() throws {
    let path = "pipelines/access-log.yaml"
    let outcome = try Rxd.run("graph", "--format", "svg", path, environment: ["PATH": "/nonexistent"], in: Rxd.root)
    #expect(outcome.status == 0)
    #expect(outcome.output.hasPrefix("<svg xmlns=") && outcome.output.hasSuffix("</svg>\n"))
    #expect(outcome.output.contains("data-step=\"missing/groupBy\""))
    #expect(try Rxd.run("graph", "--unfolded", "--format", "svg", path, in: Rxd.root).output == outcome.output)
    let misplaced = try Rxd.run("graph", "--unfolded", path, in: Rxd.root)
    #expect(misplaced.status == 64 && misplaced.errors.contains("--format svg"))
  }

  @Test func evalGivesAResultForEachEvent() throws {
    let input = "{\"a\":1}\n{\"b\":2}\n\n{\"a\":\"t\"}\nnonsense\n{\"a\":5}"
    let outcome = try Rxd.run("eval", "event.a + 1", input: input)
    #expect(outcome.output == "2\n6\n")
    #expect(outcome.status == 1)
    #expect(outcome.errors.contains("line 2: no such key: 'a' (event.a)"))
    #expect(outcome.errors.contains("^^^^^^^"))
    #expect(outcome.errors.contains("line 5 is not JSON"))
    #expect(try Rxd.run("eval", "-n", "size([1, 2]) * 3").output == "6\n")
    #expect(try Rxd.run("eval", "--text", "event + '!'", input: "a\nb\n").output == "\"a!\"\n\"b!\"\n")
    #expect(try Rxd.run("eval", "--text", "-r", "event", input: "a\"b\n").output == "a\"b\n")
    #expect(try Rxd.run("eval", "--type", "event.a > 3").output == "bool\n")
    #expect(try Rxd.run("eval", "-n", "env.RX_TEST", environment: ["RX_TEST": "x"]).output == "\"x\"\n")
    let wrong = try Rxd.run("eval", "1 +")
    #expect(wrong.status == 78)
    #expect(wrong.errors.contains("<expression>:1:"))
  }

  @Test(.enabled(if: hasSchemaValidator, "needs the packages python3-jsonschema and python3-yaml"))
  func theSchemaFitsTheLanguage() throws {
    let folder = try Scratch()
    let schema = try folder.write("schema.json", try Rxd.run("schema").output)
    // YAML 1.2 has no yes, no, on and off.
    let script = try folder.write(
      "validate.py",
      """
      import glob, json, re, sys, yaml, jsonschema
      class Loader(yaml.SafeLoader): pass
      Loader.yaml_implicit_resolvers = {
          first: [(tag, pattern) for tag, pattern in rules if tag != "tag:yaml.org,2002:bool"]
          for first, rules in yaml.SafeLoader.yaml_implicit_resolvers.items()}
      Loader.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile("^(true|false)$"), list("tf"))
      schema = json.load(open(sys.argv[1]))
      jsonschema.Draft202012Validator.check_schema(schema)
      validator = jsonschema.Draft202012Validator(schema)
      for path in sorted(glob.glob(sys.argv[2] + "/pipelines/**/*.yaml", recursive=True)):
          for error in validator.iter_errors(yaml.load(open(path), Loader)):
              print(path, list(error.path), error.message[:200])
      for text in [
          "source: {}",
          "sources: { a: { stdinn: {} } }",
          "sources: { a: { stdin: { decod: json } } }",
          "sources: { a: { stdin: {}, interval: 1s } }",
          "signals: { b: { form: a } }",
          "signals: { b: { from: a, chain: [ { fitler: x } ] } }",
          "signals: { b: { from: a, chain: [ { throttle: 300 } ] } }",
          "signals: { b: { from: a, chain: [ { take: -1 } ] } }",
          "sinks: { a: { from: x, stdout: { encod: j } } }",
          "sinks: { a: { from: x, stdout: { encode: jsonn } } }",
          "sinks: { a: { stdout: {} } }",
          "signals: { b: { from: a, chain: [ { map: event, message: no } ] } }",
          "signals: { b: { from: a, chain: [ { message: no } ] } }",
          "signals: { b: { switch: { by: a, on: a, cases: { x: a } } } }",
      ]:
          if validator.is_valid(yaml.load(text, Loader)): print("accepted:", text)
      # What stands beside an operator, and former names.
      for text in [
          "signals: { b: { from: a, chain: [ { tryMap: event, message: no, onError: route } ] } }",
          "signals: { b: { from: a, chain: [ { log: { on: [next] } }, { do: { on: [next], signal: a } } ] } }",
          "signals: { b: { switch: { on: a, cases: { x: a } } } }",
      ]:
          if not validator.is_valid(yaml.load(text, Loader)): print("refused:", text)
      operators = schema["$defs"]
      if not operators["operator.log"]["anyOf"][0]["properties"]["on"]["deprecated"]: print("'on' is not deprecated")
      """)
    let process = Process()
    process.executableURL = URL(fileURLWithPath: "/usr/bin/env")
    process.arguments = ["python3", script, schema, Rxd.root]
    let output = Pipe()
    process.standardOutput = output
    process.standardError = output
    try process.run()
    let reported = String(decoding: output.fileHandleForReading.readDataToEndOfFile(), as: UTF8.self)
    process.waitUntilExit()
    #expect(reported == "")
    #expect(process.terminationStatus == 0)
  }

  /// The inputs of the examples come from the project's own generator.
  @Test func samplesAreGenerated() throws {
    let check = Process()
    check.executableURL = URL(fileURLWithPath: Rxd.root + "/scripts/generate-samples")
    check.arguments = ["--check"]
    let complaints = Pipe()
    check.standardError = complaints
    try check.run()
    let text = String(decoding: try complaints.fileHandleForReading.readToEnd() ?? Data(), as: UTF8.self)
    check.waitUntilExit()
    #expect(check.terminationStatus == 0, "\(text)")
    // Only handwritten files are there otherwise.
    let names = try FileManager.default.contentsOfDirectory(atPath: Rxd.root + "/pipelines/data").sorted()
    #expect(names == ["README.md", "apache-combined.log", "app.log", "keystrokes.txt", "nginx-plus-status.ndjson"])
  }

  @Test(.enabled(if: hasBash, "needs bash")) func completionScriptsAreScripts() throws {
    let folder = try Scratch()
    let bash = try Rxd.run("completion", "bash").output
    #expect(bash.contains("describe"))
    #expect(Self.has("bash", "-n", try folder.write("rxd.bash", bash)))
    #expect(try Rxd.run("completion", "zsh").output.hasPrefix("#compdef rxd"))
    #expect(try Rxd.run("completion", "fish").output.contains("complete -c 'rxd'"))
    #expect(try Rxd.run("completion", "tcsh").status == 64)
  }

  @Test func theReferenceHasAPageForEach() throws {
    let folder = URL(filePath: #filePath).deletingLastPathComponent().appending(path: "../../docs/reference").path
    let index = try String(contentsOfFile: folder + "/README.md", encoding: .utf8)
    for line in index.split(separator: "\n") where line.hasPrefix("| [") {
      let link = try #require(line.split(separator: "(").dropFirst().first?.split(separator: ")").first)
      #expect(FileManager.default.fileExists(atPath: "\(folder)/\(link)"))
    }
    let page = try String(contentsOfFile: folder + "/operators/throttle.md", encoding: .utf8)
    #expect(page.contains("| `quiet` | duration | required |"))
  }

  @Test func helpNamesEveryVerb() throws {
    let help = try Rxd.run("--help")
    #expect(help.status == 0)
    let verbs = [
      "run", "reload", "check", "list", "describe", "explain", "graph", "eval", "state", "deadletters", "schema",
      "completion",
    ]
    for verb in verbs {
      #expect(help.output.contains("\n  \(verb)"), "\(verb)")
    }
  }
}
