import Foundation
import PipelineCore
import PipelineRuntime
import PipelineTestSupport
import PipelineTesting
import Testing

/// The pipelines shipped with rxd: their own tests pass.
@Suite struct PipelineFilesTests {
  static let folder = URL(fileURLWithPath: #filePath).deletingLastPathComponent()
    .deletingLastPathComponent().deletingLastPathComponent().deletingLastPathComponent()
    .appendingPathComponent("pipelines")
  static let files = ((try? FileManager.default.subpathsOfDirectory(atPath: folder.path)) ?? [])
    .filter { $0.hasSuffix(".yaml") }.sorted()

  @Test(arguments: files) func ownTestsPass(_ name: String) throws {
    let bytes = try Data(contentsOf: Self.folder.appendingPathComponent(name))
    let suite = try TestSuite(SourceText(name: name, bytes: Array(bytes)))
    for result in suite.run() where !result.passed {
      Issue.record("\(TestReport().text(.init(result, seconds: 0)))")
    }
  }

  /// Every file of the cookbook has tests, and a row on its page.
  @Test func theCookbookIsOnItsPage() throws {
    let page = try String(contentsOf: packageRoot.appending(path: "docs/cookbook.md"), encoding: .utf8)
    let recipes = Self.files.filter { $0.hasPrefix("cookbook/") }
    #expect(recipes.count >= 19)
    for name in recipes {
      #expect(page.contains("](../pipelines/\(name))"), "\(name)")
      let bytes = try Data(contentsOf: Self.folder.appendingPathComponent(name))
      #expect(try !TestSuite(SourceText(name: name, bytes: Array(bytes))).tests.isEmpty, "\(name)")
    }
  }

  /// The same tests, with the state saved, everything dropped and the state restored after each turn.
  @Test(arguments: files) func ownTestsPassOverRestarts(_ name: String) throws {
    let bytes = try Data(contentsOf: Self.folder.appendingPathComponent(name))
    let suite = try TestSuite(SourceText(name: name, bytes: Array(bytes)))
    var runner = TestRunner(suite.plan)
    runner.restoresAfterEachTurn = true
    for test in suite.tests {
      let result = runner.run(test)
      if !result.passed { Issue.record("\(TestReport().text(.init(result, seconds: 0)))") }
    }
  }

  /// Measuring coverage changes nothing.
  @Test(arguments: files) func ownTestsPassWhileTheyAreCounted(_ name: String) throws {
    let bytes = try Data(contentsOf: Self.folder.appendingPathComponent(name))
    let suite = try TestSuite(SourceText(name: name, bytes: Array(bytes)))
    let coverage = TestCoverage(suite.plan)
    let runner = TestRunner(suite.plan)
    for test in suite.tests {
      let result = runner.run(test, coverage: coverage)
      if !result.passed { Issue.record("\(TestReport().text(.init(result, seconds: 0)))") }
    }
    #expect(TestCoverage.Share(coverage.points).reached > 0)
  }
}

/// The tests of one pipeline text.
struct TestSuite {
  var plan: Plan
  var tests: [PipelineTest]

  init(_ source: SourceText) throws {
    var diagnostics = Diagnostics()
    let (plan, tests) = Self.read(source, &diagnostics)
    guard let plan, !diagnostics.hasErrors else {
      throw PipelineRun.CompileFailure(description: DiagnosticRenderer().text(diagnostics.all))
    }
    self.plan = plan
    self.tests = tests
  }

  static func read(_ source: SourceText, _ diagnostics: inout Diagnostics) -> (Plan?, [PipelineTest]) {
    func compile(_ variables: [String: String]) -> FrontEnd.Result {
      let values = variables.isEmpty ? Interpolation.noEnvironment : Interpolation(variables: variables)
      return FrontEnd(.builtIn, values: values, environment: variables).compile(source)
    }
    let result = compile([:])
    diagnostics.report(contentsOf: result.diagnostics)
    return (result.plan, result.tests(into: &diagnostics) { compile($0) })
  }

  /// - Parameter turnLimit: The number of turns after which a test that does not settle is given up; nil: as `rxd test`
  ///   does.
  func run(turnLimit: Int? = nil) -> [TestResult] {
    var runner = TestRunner(plan)
    if let turnLimit { runner.turnLimit = turnLimit }
    return tests.map { runner.run($0) }
  }
}
