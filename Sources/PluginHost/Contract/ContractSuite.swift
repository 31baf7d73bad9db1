import Glibc
import PipelineCore
import Transport

/// The contract as checks that run against any plugin: `rxd plugin test`.
package struct ContractSuite {
  /// The result of a check.
  package struct Finding: Sendable {
    package enum Verdict: Sendable {
      /// With a remark, or an empty text.
      case ok(String)
      case failed(ContractBreach)
      /// Why it does not apply.
      case notApplicable(String)
    }
    package var check: String
    package var title: String
    /// The component and the parameters: "operator upper, example 'a name'"; empty: the plugin as a whole.
    package var subject: String
    package var verdict: Verdict
  }

  /// A component with parameters as a pipeline file writes it, in addition to the examples of the spec.
  package struct Given: Sendable {
    package var kind: ComponentKind?
    package var yaml: String
    package init(kind: ComponentKind?, yaml: String) {
      self.kind = kind
      self.yaml = yaml
    }
  }

  package var file: PluginFile
  /// The program under test: the plugin itself or, for a shared library, a program that speaks the protocol for it.
  private let program: (path: String, arguments: [String])
  /// rxd itself.
  let rxd: String
  /// The longest time without an answer.
  package var timeout = TimeSpan.seconds(10)
  /// The checks that run; empty: all.
  package var only: Set<String> = []
  /// The components to test, `name` or `kind:name`; empty: all.
  package var components: Set<String> = []
  package var given: [Given] = []
  /// JSON texts of events that are sent first; nil: generated from the spec.
  package var events: [String]?
  /// A directory whose files are copied into the working directory of each check.
  package var files: String?
  /// The components that examples may name besides the plugin's.
  package var catalogue: Catalogue

  /// - Parameter host: the program and the arguments that speak the protocol for a shared library, whose path follows.
  package init(_ file: PluginFile, host: (path: String, arguments: [String]), catalogue: Catalogue) {
    self.file = file
    self.catalogue = catalogue
    rxd = host.path
    switch file.form {
    case .native: program = (host.path, host.arguments + [file.path])
    case .program(let arguments, _): program = (file.path, arguments)
    }
  }

  var isNative: Bool { file.form == .native }

  /// The identifiers of all checks, in order, with their subjects.
  package static let checks: [(id: String, title: String)] =
    ContractSuite.ofPlugin.map { ($0.id, $0.title) } + Check.all.map { ($0.id, $0.title) }

  /// Runs the checks one after the other and reports their results.
  package func run(_ report: (Finding) -> Void) {
    func say(_ index: Int, _ verdict: Finding.Verdict) {
      let check = Self.ofPlugin[index]
      report(Finding(check: check.id, title: check.title, subject: "", verdict: verdict))
    }
    if let refusal = file.refusal() {
      return say(
        0,
        .failed(
          ContractBreach(
            expected: "a file that rxd accepts: not writable by others, and executable", came: refusal,
            help:
              "chmod go-w FILE and its directories; chmod +x FILE, or name its interpreter: rxd plugin test python3 FILE"
          )))
    }
    if wants("file") { say(0, .ok("")) }
    let spec: PluginSpec
    do throws(ContractBreach) { spec = try readSpec() } catch { return say(1, .failed(error)) }
    if wants("spec") {
      say(1, .ok("\(spec.name) \(spec.version), \(Printable.count(spec.components.count, "component"))"))
    }
    if wants("versions") { say(2, Self.verdict { () throws(ContractBreach) in try versions() }) }
    for component in spec.components {
      let name = "\(component.kind.rawValue):\(component.name)"
      guard components.isEmpty || components.contains(name) || components.contains(component.name) else { continue }
      let (cases, problems) = cases(component, beside: spec.components)
      if wants("examples") {
        let check = Self.ofPlugin[3]
        report(
          Finding(
            check: check.id, title: check.title, subject: "\(component.kind.rawValue) \(component.name)",
            verdict: examples(component, cases, problems)))
      }
      for (index, one) in cases.enumerated() { run(one, isFirst: index == 0, report) }
    }
  }

  func wants(_ check: String) -> Bool { only.isEmpty || only.contains(check) }

  static func verdict(_ body: () throws(ContractBreach) -> Finding.Verdict) -> Finding.Verdict {
    do throws(ContractBreach) { return try body() } catch { return .failed(error) }
  }

  /// Runs the checks of a component with parameters.
  private func run(_ one: ContractCase, isFirst: Bool, _ report: (Finding) -> Void) {
    let trial = ContractTrial(self, one)
    let subject = "\(one.spec.kind.rawValue) \(one.spec.name), \(one.label)"
    if let why = trial.whyNotOpen {
      let open = Check.all[0]
      let verdict = Self.verdict { () throws(ContractBreach) in
        trial.directory = try ScratchDirectory(copying: files)
        defer { trial.directory = nil }
        return try Check.refused(trial, why)
      }
      return report(Finding(check: open.id, title: open.title, subject: subject, verdict: verdict))
    }
    // Functions and formats are called as pure operators are.
    let kind = one.spec.kind.isCalled ? ComponentKind.operator : one.spec.kind
    for check in Check.all where check.kinds.contains(kind) && wants(check.id) {
      if check.isOfComponent, !isFirst { continue }
      let verdict = Self.verdict { () throws(ContractBreach) in
        trial.directory = try ScratchDirectory(copying: files)
        defer { trial.directory = nil }
        return try check.run(trial)
      }
      report(Finding(check: check.id, title: check.title, subject: subject, verdict: verdict))
    }
  }

  // MARK: The plugin as a whole

  private static let ofPlugin: [(id: String, title: String)] = [
    ("file", "rxd accepts the file: only root and the user may change it, and a program is executable."),
    ("spec", "The spec is well formed and the same twice; who only asks for it sees an orderly end."),
    ("versions", "Offered another contract, it hands over a spec of one that it knows, or ends by itself."),
    ("examples", "Each example of the spec is a valid pipeline, and marbles come out as it says."),
  ]

  func command(_ directory: String, _ options: [String] = []) -> TestedCommand {
    var arguments = program.arguments
    var settings = file.settings
    if isNative, let file = arguments.popLast() {
      arguments += options + [file]
      // The trace of a crash may take longer than an answer may, which would then be reported in place of the crash.
      settings.environment["SWIFT_BACKTRACE"] = settings.environment["SWIFT_BACKTRACE"] ?? "enable=no"
    }
    return TestedCommand(
      path: program.path, arguments: arguments, settings: settings, directory: directory, timeout: timeout)
  }

  private func readSpec() throws(ContractBreach) -> PluginSpec {
    let directory = try ScratchDirectory(copying: files)
    let first = try TestedProgram(command(directory.path))
    let second = try TestedProgram(command(directory.path))
    defer {
      first.kill()
      second.kill()
    }
    guard let document = first.document, document == second.document else {
      throw ContractBreach(
        expected: "the same spec each time, byte by byte",
        came: "two that differ", help: "A spec must not depend on time, on the order of a hash table or on the machine")
    }
    var diagnostics = Diagnostics()
    let source = SourceText(name: "\(file.ownFile) (spec)", bytes: document)
    guard let spec = PluginSpecReader.read(source, into: &diagnostics), !diagnostics.hasErrors else {
      let found = diagnostics.all.filter { $0.severity == .error }
      throw ContractBreach(
        expected: "a spec as docs/plugin-contract.md has it",
        came: found.prefix(3).map { diagnostic in
          (diagnostic.location.map { "line \($0.line), column \($0.column): " } ?? "") + diagnostic.message
        }.joined(separator: "; "),
        help: found.first?.help ?? "See docs/plugin-contract.md, 'The spec'")
    }
    for component in spec.components {
      if catalogue.component(component.kind, component.name) != nil || component.isBuiltInFormat {
        throw ContractBreach(
          expected: "names of its own", came: "the \(component.kind.rawValue) '\(component.name)', which is built in",
          help: "Give it another name")
      }
      guard !isNative, component.form == .row else { continue }
      throw ContractBreach(
        expected: "\"form\": \"row\" of shared libraries alone",
        came: "the program's \(component.kind.rawValue) '\(component.name)' has it",
        help: component.kind.isCalled
          ? "Offer an operator instead: a call cannot wait for a program" : "Leave 'form' out")
    }
    try first.end()
    return spec
  }

  private func versions() throws(ContractBreach) -> Finding.Verdict {
    let directory = try ScratchDirectory(copying: files)
    for contract in [PluginSpec.contract + 1, 9999, 0] {
      let program: TestedProgram
      do throws(ContractBreach) {
        program = try TestedProgram(command(directory.path, ["--contract", "\(contract)"]), contract: contract)
      } catch  where error.isEnd && !error.isCrash {
        // A refusal is a valid answer.
        continue
      } catch {
        throw ContractBreach(
          expected: "a spec, or an end, when contract \(contract) is offered", came: error.came,
          help: "Answer with the spec whatever the number is; rxd compares. A library returns RXD_FAILED with a reason")
      }
      defer { program.kill() }
      var diagnostics = Diagnostics()
      let source = SourceText(name: "spec", bytes: program.document ?? [])
      guard PluginSpecReader.read(source, into: &diagnostics) == nil else { continue }
      throw ContractBreach(
        expected: "a spec of contract \(PluginSpec.contract), or an end, when contract \(contract) is offered",
        came: diagnostics.all.first?.message ?? "another spec",
        help: "The spec says what the plugin was written for, not those of rxd")
    }
    return .ok("")
  }

  // MARK: Cases

  private func cases(
    _ spec: PluginComponentSpec, beside others: [PluginComponentSpec]
  ) -> (cases: [ContractCase], problems: [(String, ContractCase.Fault)]) {
    var found: [ContractCase] = []
    var problems: [(String, ContractCase.Fault)] = []
    if spec.kind.isCalled {
      let shown = spec.kind == .function ? [nil] : spec.examples.isEmpty ? [nil] : spec.examples.map(Optional.some)
      for example in shown {
        if example == nil, spec.kind != .function, spec.parameters.contains(where: \.isRequired) { continue }
        let label = example.map { "example '\($0.title)'" } ?? "with many arguments"
        switch ContractCase.called(spec, label, example) {
        case .success(let one): found.append(one)
        case .failure(let fault): problems.append((label, fault))
        }
      }
      return (found, problems)
    }
    func add(_ label: String, _ yaml: String) {
      let texts = (events ?? TestEvents.fitting(spec, yaml)) + TestEvents.odd
      let values = texts.compactMap { JSON.owned(Array($0.utf8)) }
      switch ContractCase.make(spec, label, yaml, events: values, catalogue: catalogue, beside: others) {
      case .success(let one): found.append(one)
      case .failure(let fault): problems.append((label, fault))
      }
    }
    for one in given where one.kind == nil || one.kind == spec.kind {
      if one.yaml.trimmed.hasPrefix("\(spec.name):") || one.yaml.trimmed == spec.name { add("as given", one.yaml) }
    }
    for example in spec.examples { add("example '\(example.title)'", example.yaml) }
    if found.isEmpty, problems.isEmpty, !spec.parameters.contains(where: \.isRequired) {
      add("with its defaults", "\(spec.name): {}")
    }
    return (found, problems)
  }

  private func examples(
    _ spec: PluginComponentSpec, _ cases: [ContractCase], _ problems: [(String, ContractCase.Fault)]
  ) -> Finding.Verdict {
    if let (label, fault) = problems.first {
      let first = fault.diagnostics.first
      return .failed(
        ContractBreach(
          expected: "\(label) as a valid pipeline", came: first?.message ?? "it cannot be compiled",
          help: first?.help ?? "See 'rxd describe \(spec.name)'"))
    }
    if spec.examples.isEmpty {
      return .notApplicable(
        spec.parameters.contains(where: \.isRequired)
          ? "it has none, and required parameters: write an example into the spec, or give --parameters"
          : "it has none; it is tested with its defaults")
    }
    return Self.verdict { () throws(ContractBreach) in
      if spec.kind.isCalled, let first = cases.first {
        let trial = ContractTrial(self, first)
        trial.directory = try ScratchDirectory(copying: files)
        defer { trial.directory = nil }
        return .ok("\(Printable.count(try trial.runExamples(), "example")), all with their results")
      }
      let run = try MarbleTrial(self, spec).run()
      return .ok(Printable.count(spec.examples.count, "example") + (run > 0 ? ", \(run) of them with marbles" : ""))
    }
  }
}

extension ContractBreach {
  /// Whether its process was ended by a signal.
  var isCrash: Bool { isEnd && came.contains("was ended by signal") }
}

extension String {
  fileprivate var trimmed: Substring {
    drop { $0 == " " || $0 == "\n" }.dropLast(while: { $0 == " " || $0 == "\n" })
  }
}

extension Substring {
  fileprivate func dropLast(while condition: (Character) -> Bool) -> Substring {
    var end = endIndex
    while end > startIndex, condition(self[index(before: end)]) { end = index(before: end) }
    return self[..<end]
  }
}

/// A temporary working directory, removed with its contents.
final class ScratchDirectory {
  let path: String

  /// - Parameter source: a directory whose files are copied into it.
  init(copying source: String?) throws(ContractBreach) {
    let base = getenv("TMPDIR").map { String(cString: $0) } ?? "/tmp"
    var template = Array("\(base)/rxd-plugin-test.XXXXXX".utf8CString)
    guard let made = mkdtemp(&template) else {
      throw ContractBreach(
        expected: "a directory for temporary files", came: "\(base): \(PosixError.text(errno))", help: "Set TMPDIR")
    }
    path = String(cString: made)
    guard let source else { return }
    for name in Self.names(source) {
      guard let bytes = PluginFile.contents("\(source)/\(name)") else { continue }
      let descriptor = open("\(path)/\(name)", O_WRONLY | O_CREAT | O_CLOEXEC, 0o644)
      guard descriptor >= 0 else { continue }
      _ = bytes.withUnsafeBytes { write(descriptor, $0.baseAddress, $0.count) }
      Glibc.close(descriptor)
    }
  }

  deinit { Self.remove(path) }

  private static func names(_ path: String) -> [String] {
    guard let stream = opendir(path) else { return [] }
    defer { closedir(stream) }
    var names: [String] = []
    while let entry = readdir(stream) {
      let name = withUnsafeBytes(of: entry.pointee.d_name) { String(decoding: $0.prefix { $0 != 0 }, as: UTF8.self) }
      if name != ".", name != ".." { names.append(name) }
    }
    return names
  }

  private static func remove(_ path: String) {
    for name in names(path) {
      var status = stat()
      let inner = "\(path)/\(name)"
      guard lstat(inner, &status) == 0 else { continue }
      if status.st_mode & S_IFMT == S_IFDIR { remove(inner) } else { unlink(inner) }
    }
    rmdir(path)
  }
}
