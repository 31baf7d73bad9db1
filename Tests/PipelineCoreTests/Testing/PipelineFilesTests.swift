import Foundation
import PipelineCore
import PipelineTestSupport
import Testing

/// The pipelines that come with rxd: their own tests pass.
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
    guard let root = YAMLReader.read(source, into: &diagnostics) else { return (nil, []) }
    let node = Interpolation.noEnvironment.apply(to: root, into: &diagnostics)
    let file = PipelineFileParser.parse(node, into: &diagnostics)
    guard let plan = PipelineCompiler(.builtIn).compile(file, into: &diagnostics) else {
      return (nil, [])
    }
    return (plan, PipelineTestReader.read(file.tests, of: plan, into: &diagnostics))
  }

  func run() -> [TestResult] {
    let runner = TestRunner(plan)
    return tests.map { runner.run($0) }
  }
}
