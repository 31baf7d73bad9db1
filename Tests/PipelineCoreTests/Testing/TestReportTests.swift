import Foundation
import PipelineCore
import PipelineTestSupport
import PipelineTesting
import Testing

/// The output of `rxd test`, kept in Tests/Golden/Test: a pipeline file and the report of its tests.
@Suite struct TestReportTests {
  static let folder = PipelineFilesTests.folder.deletingLastPathComponent()
    .appendingPathComponent("Tests/Golden/Test")

  /// RXD_UPDATE_GOLDEN=1 writes the current output.
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

extension TestReportTests {
  /// Damaged tests are reported, without a crash or a test that never ends.
  @Test(arguments: ["values-differ", "requests", "malformed", "endless"])
  func damageIsHarmless(_ name: String) throws {
    let bytes = Array(try Data(contentsOf: Self.folder.appendingPathComponent(name + ".yaml")))
    let text = try #require(String(bytes: bytes, encoding: .utf8))
    let start = try #require(text.range(of: "tests:"))
    let from = text.utf8.distance(from: text.startIndex, to: start.upperBound)
    var random = GraphGenerator(seed: 7)
    let pieces = [
      "", " ", "-", "9", "0s", "at: ", "{", "}", "[", "#", "|", "\"", "9223372036854775807ns", "null", "(", "-1ms",
      "e9",
    ]
    var ran = 0
    for _ in 0..<150 {
      var damaged = bytes
      for _ in 0...random.below(3) {
        let at = from + random.below(damaged.count - from)
        let end = min(damaged.count, at + random.below(6))
        damaged.replaceSubrange(at..<end, with: Array(random.pick(pieces).utf8))
      }
      var diagnostics = Diagnostics()
      let (plan, tests) = TestSuite.read(SourceText(name: "t.yaml", bytes: damaged), &diagnostics)
      guard let plan, !diagnostics.hasErrors else { continue }
      var runner = TestRunner(plan)
      runner.turnLimit = 1000
      runner.quietLimit = 1000
      for test in tests {
        let result = runner.run(test)
        _ = TestReport().text(.init(result, seconds: 0))
        ran += 1
      }
    }
    #expect(ran > 0 || name == "malformed")
  }
}
