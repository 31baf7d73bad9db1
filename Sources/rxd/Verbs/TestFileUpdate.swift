import ArgumentParser
import PipelineCore
import PipelineRuntime
import PipelineTesting

/// `rxd test --update` for one file: rewrites failed expectations, shows the changes, and runs the tests again before
/// it writes the file.
struct TestFileUpdate {
  let front: PipelineLoader
  let loaded: PipelineLoader.Loaded
  let renderer: DiagnosticRenderer

  /// Updates the file and returns the new results. A file that cannot be rewritten faithfully stays unchanged.
  func apply(_ tests: [PipelineTest], _ cases: [TestReport.Case]) throws -> [TestReport.Case] {
    guard let source = loaded.source, loaded.path != "-" else {
      refuse([Diagnostic(.expectationNotRewritten, "standard input cannot be rewritten", at: nil)])
      return cases
    }
    var update = ExpectationUpdate(source)
    var refusals: [Diagnostic] = []
    for (test, done) in zip(tests, cases) {
      let failures = done.result.failures
      // The history of a test that never becomes quiet depends on the limit that ended the test.
      let isEndless = failures.contains { $0.diagnostic.code == .testNeverQuiet }
      for failure in failures where !isEndless {
        guard let index = failure.expectation else { continue }
        if let refusal = update.rewrite(test.expectations[index], of: test, to: failure.history) {
          refusals.append(refusal)
        }
      }
    }
    refuse(refusals)
    guard !update.isEmpty else { return cases }
    guard let bytes = update.text(), let after = rerun(bytes, tests), Self.holds(cases, after) else {
      refuse([
        Diagnostic(
          .expectationNotRewritten, "the update would change more than the expectations, so nothing is written",
          at: SourceLocation(source, offset: 0), help: "Rewrite them by hand")
      ])
      return cases
    }
    try FixedFile.replace(loaded.path, with: bytes)
    Console.print(update.difference, terminator: "")
    return after
  }

  private func refuse(_ refusals: [Diagnostic]) {
    if !refusals.isEmpty { Console.print(renderer.text(refusals), terminator: "") }
  }

  /// Runs the tests of the new text; nil if it has errors.
  private func rerun(_ bytes: [UInt8], _ tests: [PipelineTest]) -> [TestReport.Case]? {
    let fresh = front.compile(loaded.path, SourceText(name: loaded.path, bytes: bytes))
    var diagnostics = Diagnostics()
    diagnostics.report(contentsOf: fresh.diagnostics)
    let names = Set(tests.map(\.name.value))
    let own = front.tests(of: fresh, into: &diagnostics).filter { names.contains($0.name.value) }
    guard let plan = fresh.plan, !diagnostics.hasErrors, own.count == tests.count else { return nil }
    return Test.run(own, of: plan)
  }

  /// Whether no new test fails, and some failed test passes now.
  private static func holds(_ before: [TestReport.Case], _ after: [TestReport.Case]) -> Bool {
    let pairs = zip(before, after)
    return pairs.allSatisfy { $1.result.failures.count <= $0.result.failures.count }
      && pairs.contains { $1.result.failures.count < $0.result.failures.count }
  }
}
