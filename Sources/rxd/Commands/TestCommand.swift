import ArgumentParser
import PipelineCore
import Transport

/// `rxd test`: the tests of pipeline files, on virtual time.
struct Test: ParsableCommand {
  static let configuration = CommandConfiguration(
    abstract: "Runs the tests of pipeline files.",
    discussion: """
      Everything runs on virtual time: no clock is waited for, no file, socket or process is touched, \
      and requests are answered by the test's stubs. The exit status is 1 if a test failed, 78 if a file \
      or a test is malformed, 66 if a file is missing.
      """)

  @OptionGroup var input: InputOptions

  @Option(
    name: .shortAndLong,
    help: ArgumentHelp(
      "Run only tests whose name contains this text, or fits it as a pattern with *.", valueName: "text"))
  var filter: String?

  @Option(
    help: ArgumentHelp("Write a report for build servers, JUnit XML.", valueName: "file"),
    completion: .file(extensions: ["xml"]))
  var junitReport: String?

  @Flag(name: .shortAndLong, help: "Say nothing about tests that pass.")
  var quiet = false

  @Flag(name: .shortAndLong, help: "Warnings count as errors. (RXD_DENY_WARNINGS)")
  var denyWarnings = false

  @OptionGroup var color: ColorOptions

  func run() throws {
    let selection = try input.selection()
    let front = FrontEnd(try input.environment.inputs())
    let colors = Console.colors(try color.mode(), on: 1)
    let renderer = DiagnosticRenderer(colors: colors, toolVersion: Version.number)
    let missing = selection.missing.map { Diagnostic(.unreadableFile, $0, at: nil) }
    if !missing.isEmpty { Console.print(renderer.text(missing), terminator: "") }
    let deny = try flag(denyWarnings, "RXD_DENY_WARNINGS")

    var report = TestReport(colors: colors)
    var isMalformed = false
    var isMissing = !missing.isEmpty
    var skipped = 0
    for path in selection.paths {
      let loaded = front.load(path)
      var diagnostics = Diagnostics()
      diagnostics.report(contentsOf: loaded.diagnostics)
      var tests: [PipelineTest] = []
      if let plan = loaded.plan, let file = loaded.file {
        tests = PipelineTestReader.read(file.tests, of: plan, into: &diagnostics)
      }
      if !diagnostics.all.isEmpty { Console.print(renderer.text(diagnostics.all), terminator: "") }
      if loaded.isUnreadable { isMissing = true }
      let hasWarnings = diagnostics.all.contains { $0.severity == .warning }
      if loaded.isUnreadable || diagnostics.hasErrors || deny && hasWarnings {
        isMalformed = isMalformed || !loaded.isUnreadable
        continue
      }
      guard let plan = loaded.plan else { continue }
      let wanted = tests.filter { test in
        filter.map { TestReport.matches($0, test.name.value) } ?? true
      }
      skipped += tests.count - wanted.count
      if wanted.isEmpty { continue }
      report.files.append(run(wanted, of: plan, path, report))
    }
    try write(report)
    let rest = skipped == 0 ? "" : " (\(skipped) left out by --filter)"
    if !report.files.isEmpty || !isMalformed && !isMissing { Console.print(report.summary + rest) }
    if isMalformed { throw ExitStatus.configuration }
    if isMissing { throw ExitStatus.noInput }
    if report.failed > 0 { throw ExitStatus.failure }
  }

  private func run(
    _ tests: [PipelineTest], of plan: Plan, _ path: String, _ report: TestReport
  ) -> TestReport.File {
    let runner = TestRunner(plan)
    var file = TestReport.File(path, [])
    var hasTitle = false
    for test in tests {
      let start = SystemClock.shared.now
      let result = runner.run(test)
      let seconds = Double((SystemClock.shared.now - start).nanoseconds) / 1e9
      let done = TestReport.Case(result, seconds: seconds)
      file.cases.append(done)
      if quiet, result.passed { continue }
      if !hasTitle { Console.print(Printable.cut(path, limit: 300)) }
      hasTitle = true
      Console.print(report.text(done), terminator: "")
    }
    return file
  }

  private func write(_ report: TestReport) throws {
    guard let junitReport else { return }
    let text = OutputBuffer()
    text.append(report.junit)
    do throws(PosixError) {
      try replaceFile(junitReport, with: text.bytes, permissions: 0o644)
    } catch {
      Console.complain(error.message)
      throw ExitStatus.inputOutput
    }
  }
}
