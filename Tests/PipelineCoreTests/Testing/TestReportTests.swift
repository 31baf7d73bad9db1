import Foundation
import PipelineCore
import PipelineTestSupport
import Testing

/// What `rxd test` prints, kept in Tests/Golden/Test: a pipeline file and the report of its tests.
@Suite struct TestReportTests {
  static let folder = PipelineFilesTests.folder.deletingLastPathComponent()
    .appendingPathComponent("Tests/Golden/Test")

  /// RXD_UPDATE_GOLDEN=1 writes what is printed now.
  @Test(arguments: ["values-differ", "requests", "malformed", "endless"])
  func reportIsAsKept(_ name: String) throws {
    let bytes = try Data(contentsOf: Self.folder.appendingPathComponent(name + ".yaml"))
    var diagnostics = Diagnostics()
    let (plan, tests) = TestSuite.read(
      SourceText(name: name + ".yaml", bytes: Array(bytes)), &diagnostics)
    var text = ""
    if let plan, !diagnostics.hasErrors {
      var report = TestReport()
      let runner = TestRunner(plan)
      let cases = tests.map { TestReport.Case(runner.run($0), seconds: 0.0015) }
      report.files = [TestReport.File(name + ".yaml", cases)]
      for test in cases { text += report.text(test) }
      text += report.summary + "\n\n" + report.junit
    } else {
      text = DiagnosticRenderer().text(diagnostics.all)
    }
    let file = Self.folder.appendingPathComponent(name + ".txt")
    if ProcessInfo.processInfo.environment["RXD_UPDATE_GOLDEN"] == "1" {
      try Data(text.utf8).write(to: file)
    }
    #expect(text == (try? String(contentsOf: file, encoding: .utf8)))
  }
}
