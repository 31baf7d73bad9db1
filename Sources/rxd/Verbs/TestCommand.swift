import ArgumentParser
import PipelineCore
import PipelineRuntime
import PipelineTesting
import Transport

/// `rxd test`: runs the tests of pipeline files in virtual time.
struct Test: ParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "test",
    abstract: "Runs the tests of pipeline files.",
    discussion: """
      Tests run in virtual time: they wait for no clock, touch no file, socket or process, and stubs answer \
      requests. The exit status is 1 if a test failed or the coverage is below --coverage-min, 78 if a file or a \
      test is malformed, 66 if a file is missing.
      """)

  @OptionGroup var input: InputOptions

  @Option(
    name: .shortAndLong,
    help: ArgumentHelp(
      "Run only tests whose name contains this text or matches this pattern with *.", valueName: "text"))
  var filter: String?

  @Flag(
    name: .shortAndLong,
    help: "Rewrite failed expectations to the actual results; nothing else in a file changes.")
  var update = false

  @Flag(help: "List the steps, branches, errors outputs and sinks that no test reaches.")
  var coverage = false

  @Option(
    help: ArgumentHelp("Like --coverage, and fail if the coverage is below this.", valueName: "percent"))
  var coverageMin: Double?

  @Option(
    help: ArgumentHelp("Write a report for build servers, JUnit XML.", valueName: "file"),
    completion: .file(extensions: ["xml"]))
  var junitReport: String?

  @Flag(name: .shortAndLong, help: "Print nothing for tests that pass.")
  var quiet = false

  @Flag(name: .shortAndLong, help: "Warnings count as errors. (RXD_DENY_WARNINGS)")
  var denyWarnings = false

  @OptionGroup var color: ColorOptions

  func validate() throws {
    if let coverageMin, !(0...100).contains(coverageMin) {
      throw ValidationError("--coverage-min is a percentage, from 0 to 100.")
    }
    if update, !input.environment.set.isEmpty {
      throw ValidationError("--update rewrites files, and --set replaces values in them: leave one of them out.")
    }
  }

  func run() throws {
    let selection = try input.selection()
    let front = PipelineLoader(try input.environment.inputs(startsPlugins: true), acceptsLibraries: true)
    let colors = Console.colors(try color.mode(), on: 1)
    let renderer = DiagnosticRenderer(colors: colors, toolVersion: Version.number)
    let missing = selection.missing
    if !missing.isEmpty { Console.print(renderer.text(missing), terminator: "") }
    let deny = try flag(denyWarnings, "RXD_DENY_WARNINGS")

    var report = TestReport(colors: colors)
    var isMalformed = false
    var lacksSecret = false
    var hasLibrary = false
    var isMissing = !missing.isEmpty
    var skipped = 0
    var covered: [(name: String, points: [TestCoverage.Point])] = []
    for path in selection.paths {
      let (loaded, areAssumed) = front.loadToTest(path)
      var diagnostics = Diagnostics()
      diagnostics.report(contentsOf: loaded.diagnostics)
      let tests = front.tests(of: loaded, valuesAreAssumed: areAssumed, into: &diagnostics)
      if !diagnostics.all.isEmpty { Console.print(renderer.text(diagnostics.all), terminator: "") }
      lacksSecret = lacksSecret || diagnostics.all.contains { $0.code == .undefinedSecret }
      if loaded.isUnreadable { isMissing = true }
      let hasWarnings = diagnostics.all.contains { $0.severity == .warning }
      if loaded.isUnreadable || diagnostics.hasErrors || deny && hasWarnings {
        isMalformed = isMalformed || !loaded.isUnreadable
        continue
      }
      if let library = loaded.library {
        hasLibrary = true
        // The check has evaluated the examples; a failing example is an error.
        let examples = "\(library.examples) example\(library.examples == 1 ? "" : "s")"
        if !quiet { Console.print("\(path): \(examples) of \(library.contents): ok") }
      }
      guard let plan = loaded.plan else { continue }
      let wanted = tests.filter { test in
        filter.map { TestReport.matches($0, test.name.value) } ?? true
      }
      skipped += tests.count - wanted.count
      let counts = coverage || coverageMin != nil ? TestCoverage(plan) : nil
      if !wanted.isEmpty {
        var cases = Self.run(wanted, of: plan, counts)
        if update, cases.contains(where: { !$0.result.passed }) {
          let updating = TestFileUpdate(front: front, loaded: loaded, renderer: renderer)
          cases = try updating.apply(wanted, cases)
        }
        let file = TestReport.File(path, cases)
        show(file, report)
        report.files.append(file)
      }
      if let counts { covered.append((path, counts.points)) }
    }
    try write(report)
    let rest = skipped == 0 ? "" : " (\(skipped) left out by --filter)"
    if !report.files.isEmpty || !isMalformed && !isMissing && !hasLibrary { Console.print(report.summary + rest) }
    let table = CoverageTable(covered)
    if coverage || coverageMin != nil { Console.print(table.text, terminator: "") }
    if lacksSecret {
      Console.note(
        "'rxd test --no-environment' runs the tests without the values of secrets; '--secrets-dir DIR' has values for them."
      )
    }
    if isMalformed { throw ExitStatus.configuration }
    if isMissing { throw ExitStatus.noInput }
    if report.failed > 0 { throw ExitStatus.failure }
    if let coverageMin, table.total.percent < coverageMin {
      Console.printError("the coverage, \(CoverageTable.shown(table.total)), is below \(coverageMin) %")
      throw ExitStatus.failure
    }
  }

  static func run(
    _ tests: [PipelineTest], of plan: Plan, _ coverage: TestCoverage? = nil
  ) -> [TestReport.Case] {
    let runner = TestRunner(plan)
    return tests.map { test in
      let start = SystemClock.shared.now
      let result = runner.run(test, coverage: coverage)
      return TestReport.Case(result, seconds: Double((SystemClock.shared.now - start).nanoseconds) / 1e9)
    }
  }

  private func show(_ file: TestReport.File, _ report: TestReport) {
    let shown = file.cases.filter { !quiet || !$0.result.passed }
    guard !shown.isEmpty else { return }
    Console.print(Printable.cut(file.name, limit: 300))
    for test in shown { Console.print(report.text(test), terminator: "") }
  }

  private func write(_ report: TestReport) throws {
    guard let junitReport else { return }
    let text = OutputBuffer()
    text.append(report.junit)
    do throws(PosixError) {
      try replaceFile(junitReport, with: text.bytes, permissions: 0o644)
    } catch {
      Console.printError(error.message)
      throw ExitStatus.inputOutput
    }
  }
}

extension PipelineLoader {
  /// Loads a file whose tests are to be run. Required variables that the environment lacks get values from the file's
  /// tests, so that each test can be compiled with its own; `valuesAreAssumed`: whether there are any.
  func loadToTest(_ path: String) -> (Loaded, valuesAreAssumed: Bool) {
    let loaded = load(path)
    let given = loaded.compiled.variablesOfTests
    guard !given.isEmpty,
      loaded.diagnostics.contains(where: { [.undefinedVariable, .requiredVariable].contains($0.code) }),
      let again = compile(loaded, overriding: given)
    else { return (loaded, false) }
    return (again, true)
  }

  /// The tests of a file; their errors go to `diagnostics`.
  func tests(
    of loaded: Loaded, valuesAreAssumed: Bool = false, into diagnostics: inout Diagnostics
  ) -> [PipelineTest] {
    loaded.compiled.tests(into: &diagnostics, valuesAreAssumed: valuesAreAssumed) {
      compile(loaded, overriding: $0)?.compiled
    }
  }
}
