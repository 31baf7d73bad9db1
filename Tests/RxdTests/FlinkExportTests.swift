import Foundation
import Testing

/// `rxd export flink`: the scripts for the pipelines that `make test-flink` runs in Flink, and what is refused.
@Suite(.timeLimit(.minutes(10)))
struct FlinkExportTests {
  private static let golden = URL(fileURLWithPath: Rxd.root + "/Tests/Golden/Flink")
  private static let data = ["DATA": "data", "OUT": "out"]

  private static func files(_ folder: String) -> [String] {
    let names = (try? FileManager.default.contentsOfDirectory(atPath: Rxd.root + "/" + folder)) ?? []
    return names.filter { $0.hasSuffix(".yaml") }.sorted().map { "\(folder)/\($0)" }
  }
  static let exported = files("Tests/Flink/pipelines") + files("Tests/Flink/nexmark")
  static let refused = files("Tests/Golden/Flink/refused")

  /// Compares with a file; RXD_UPDATE_GOLDEN=1 writes it.
  private func compare(_ text: String, _ file: URL) throws {
    if ProcessInfo.processInfo.environment["RXD_UPDATE_GOLDEN"] == "1" { try Data(text.utf8).write(to: file) }
    let wanted = try String(contentsOf: file, encoding: .utf8)
    #expect(text == wanted, "\(file.lastPathComponent)")
  }

  @Test(arguments: exported) func theScriptIsTheOneThatFlinkRan(_ path: String) throws {
    let result = try Rxd.run("export", "flink", path, environment: Self.data, in: Rxd.root)
    #expect(result.status == 0, "\(result.errors)")
    #expect(result.errors.isEmpty)
    let name = URL(fileURLWithPath: path).deletingPathExtension().lastPathComponent
    try compare(result.output, Self.golden.appendingPathComponent("\(name).sql"))
  }

  @Test(arguments: refused) func whatHasNoEqualIsNamedWithItsLocation(_ path: String) throws {
    #expect(try Rxd.run("check", "--no-environment", path, in: Rxd.root).status == 0)
    let result = try Rxd.run("export", "flink", path, in: Rxd.root)
    #expect(result.status == 78)
    #expect(result.output.isEmpty)
    let text = URL(fileURLWithPath: Rxd.root + "/" + path).deletingPathExtension().appendingPathExtension("txt")
    try compare(result.errors, text)
  }

  @Test func filesAreThere() {
    #expect(Self.exported.count >= 25)
    #expect(Self.refused.count >= 5)
  }

  /// Every operator of the catalogue is exported, or refused with something to put in its place.
  @Test func noOperatorIsPassedOver() throws {
    let entries = try #require(
      try JSONSerialization.jsonObject(
        with: Data(try Rxd.run("list", "operators", "--format", "json").output.utf8)) as? [[String: String]])
    let known: Set = [
      "filter", "map", "set", "unset", "eventTime", "window", "aggregate", "groupBy", "join", "distinct", "topN",
      "latest",
    ]
    let advice = try String(contentsOfFile: Rxd.root + "/Sources/FlinkExport/Advice.swift", encoding: .utf8)
    let operators = entries.filter { $0["kind"] == "operator" }.compactMap { $0["name"] }
    #expect(operators.count > 50)
    for name in operators where !known.contains(name) {
      #expect(
        advice.contains("\"\(name)\"") || Self.leftToRxd.contains(name), "\(name) has no advice in Sources/FlinkExport")
    }
  }
  /// Operators for which nothing better can be said than to leave them to rxd.
  private static let leftToRxd: Set = ["ignoreValues", "skipUntil", "takeUntil", "takeUntilReplacement"]

  @Test func linesOfTheCommandHaveTheirCodes() throws {
    let file = "Tests/Flink/pipelines/csv.yaml"
    #expect(try Rxd.run("export", "flink", in: Rxd.root).status == 64)
    #expect(try Rxd.run("export", "spark", file, in: Rxd.root).status == 64)
    #expect(try Rxd.run("export", "flink", "--compiled-plan", in: Rxd.root).status == 64)
    #expect(try Rxd.run("export", "flink", file, file, in: Rxd.root).status == 64)
    #expect(try Rxd.run("export", "flink", "/nonexistent.yaml", in: Rxd.root).status == 66)
    #expect(try Rxd.run("export", "flink", "Tests/Golden/ten-mistakes.yaml", in: Rxd.root).status == 78)
    let help = try Rxd.run("export", "flink", "--help", in: Rxd.root)
    #expect(help.status == 0)
    #expect(help.output.contains("--compiled-plan"))
    let text =
      "sources: { s: { stdin: { decode: json }, schema: { n: int } } }\nsinks: { out: { from: s, stdout: {} } }\n"
    let piped = try Rxd.run("export", "flink", "-", input: text, in: Rxd.root)
    #expect(piped.status == 0)
    #expect(piped.output.contains("'path' = 'stdin.ndjson'"))
  }

  @Test func theCompiledPlanIsWrittenOnDemand() throws {
    let plan = try Rxd.run(
      "export", "flink", "--compiled-plan", "/tmp/it's a plan.json", "Tests/Flink/pipelines/firsts.yaml",
      environment: Self.data, in: Rxd.root)
    #expect(plan.status == 0)
    #expect(plan.output.contains("\nCOMPILE PLAN '/tmp/it''s a plan.json' FOR STATEMENT SET BEGIN\nINSERT INTO "))
    #expect(!plan.output.contains("EXECUTE "))
    let batch = try Rxd.run(
      "export", "flink", "--compiled-plan", "plan.json", "Tests/Flink/pipelines/gathering.yaml",
      environment: Self.data, in: Rxd.root)
    #expect(batch.status == 78)
    #expect(batch.errors.contains("Flink compiles plans of streams only"))
  }

  /// No text of a file leaves its quotes.
  @Test func namesAndTextsAreQuoted() throws {
    let text = """
      sources:
        s: { file: { path: "it's.ndjson", decode: json }, schema: { "a`b; DROP TABLE x": string, n: string } }
      sinks:
        out: { from: s, chain: [ { map: { "c`d": "event.n + \\"';--\\"" } } ], stdout: {} }
      """
    let result = try Rxd.run("export", "flink", "-", input: text + "\n")
    #expect(result.status == 0, "\(result.errors)")
    for quoted in ["`a``b; DROP TABLE x`", "`c``d`", "'path' = 'it''s.ndjson'", "''';--'"] {
      #expect(result.output.contains(quoted), "\(result.output)")
    }
  }

  @Test func secretsAreNotPrinted() throws {
    let text = """
      sources: { s: { stdin: { decode: json }, schema: { n: string } } }
      sinks: { out: { from: s, chain: [ { filter: "event.n == '${secret:word}'" } ], stdout: {} } }
      """
    let result = try Rxd.run(
      "export", "flink", "-", input: text + "\n", environment: ["RXD_SECRET_word": "xyzzy", "RXD_SECRET_WORD": "xyzzy"])
    #expect(result.status == 78)
    #expect(!(result.output + result.errors).contains("xyzzy"))
  }
}
