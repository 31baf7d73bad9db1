import ArgumentParser
import Glibc
import PipelineCore
import PipelineRuntime
import PluginHost
import Transport

/// `rxd plugin test FILE`
struct PluginTest: ParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "test", abstract: "Runs the checks of the contract against a plugin.",
    discussion: """
      Plays rxd, strictly: many inputs at once, frames in pieces, odd events and parameters, saved states, kills and stops \
      at many instants. Each component is tried with each example of its spec, in an empty working directory; a shared \
      library runs in a process of its own. A sink under test writes events to the place that the example names. The exit status is 1 \
      if a check fails.
      """)

  @OptionGroup var argument: PluginArgument

  @Option(
    help: ArgumentHelp(
      "Checks to run, separated by commas; --list-checks names them.", valueName: "checks"))
  var only: String?

  @OptionGroup var trial: ContractTrialOptions

  @Option(help: ArgumentHelp("The format: text or json.", valueName: "form"))
  var format = List.Format.text

  func run() throws {
    let file = try argument.plugin()
    var suite = try trial.suite(file)
    if let only {
      let names = only.split(separator: ",").map { String($0) }
      for name in names where !ContractSuite.checks.contains(where: { $0.id == name }) {
        let known = ContractSuite.checks.map(\.id)
        let near = Suggestion.nearest(to: name, among: known).map { "Did you mean '\($0)'? " } ?? ""
        throw ValidationError("There is no check '\(name)'. \(near)They are: \(known.joined(separator: ", ")).")
      }
      suite.only = Set(names)
    }
    var report = ContractReport(file.label, isText: format == .text)
    suite.run { report.take($0) }
    report.end()
    if report.failed > 0 { throw ExitStatus.failure }
    if report.ok == 0 {
      Console.printError("nothing was checked: see --component and --only")
      throw ExitStatus.failure
    }
  }
}

/// How a plugin is tried.
struct ContractTrialOptions: ParsableArguments {
  @Option(
    help: ArgumentHelp("A component to try, 'name' or 'kind:name'; may be repeated.", valueName: "component"))
  var component: [String] = []

  @Option(
    help: ArgumentHelp(
      "A component with parameters to try in addition to the examples, as in a pipeline file: 'shorten: { field: title }'; may be repeated.",
      valueName: "yaml"))
  var parameters: [String] = []

  @Option(
    help: ArgumentHelp("A file with an event on each line, instead of those made from the spec.", valueName: "file"),
    completion: .file())
  var events: String?

  @Option(
    help: ArgumentHelp(
      "A directory whose files are copied into the working directory of each check.", valueName: "dir"),
    completion: .directory)
  var files: String?

  @Option(help: ArgumentHelp("The longest time without an answer; default is 10s.", valueName: "span"))
  var timeout: TapVerb.Span?

  /// The checks of the contract for a plugin, with these options.
  func suite(_ file: PluginFile) throws -> ContractSuite {
    var suite = ContractSuite(
      file.withAbsoluteArguments, host: (Self.program, ["plugin", "host"]), catalogue: .builtIn)
    if let timeout { suite.timeout = timeout.span }
    suite.components = Set(component)
    suite.given = parameters.map { ContractSuite.Given(kind: nil, yaml: $0) }
    suite.files = files.map(PluginDirectories.absolute)
    if let files, access(files, R_OK) != 0 {
      Console.printError("'\(files)' cannot be read: \(PosixError.text(errno))")
      throw ExitStatus.noInput
    }
    if let events { suite.events = try Self.lines(events) }
    return suite
  }

  /// The path of this program.
  private static var program: String {
    var buffer = [CChar](repeating: 0, count: Int(PATH_MAX) + 1)
    let count = readlink("/proc/self/exe", &buffer, Int(PATH_MAX))
    guard count > 0 else { return "rxd" }
    return String(decoding: buffer[..<count].map { UInt8(bitPattern: $0) }, as: UTF8.self)
  }

  private static func lines(_ path: String) throws -> [String] {
    do throws(PackageFault) {
      return try Packages.content(path).split(separator: 0x0A).map { String(decoding: $0, as: UTF8.self) }
    } catch {
      Console.printError(error.message)
      throw ExitStatus.noInput
    }
  }
}

/// `rxd plugin host FILE`
struct PluginHostVerb: ParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "host", abstract: "Runs a shared library as a program of the line protocol.",
    discussion: """
      Reads frames from standard input and writes those of the plugin to standard output, as docs/plugin-contract.md has them, so \
      that tests and debuggers have the library in a process of its own. States and positions are texts in base64.
      """)

  @Argument(help: ArgumentHelp("A shared library.", valueName: "file"), completion: .file())
  var file: String

  @Option(help: ArgumentHelp("The contract that it is offered, instead of that of 'hello'.", valueName: "number"))
  var contract: Int?

  @Option(help: ArgumentHelp("The number of threads that call pure functions at once.", valueName: "count"))
  var threads = 1

  @Flag(
    help:
      "Write times, durations and bytes as {\"$timestamp\": N}, {\"$duration\": N}, {\"$bytes\": \"...\"}, and read them."
  )
  var typed = false

  func run() throws {
    var options = NativeBridge.Options()
    options.contract = contract
    options.threads = max(1, min(64, threads))
    options.isTyped = typed
    let plugin = PluginFile(path: PluginDirectories.absolute(file), form: .native, directory: "")
    throw ExitCode(NativeBridge(plugin, options).run())
  }
}

/// Prints the results of the checks.
struct ContractReport {
  private let label: String
  private let isText: Bool
  private var findings: [ContractSuite.Finding] = []
  private var subject: String?
  private(set) var ok = 0
  private(set) var failed = 0
  private var notApplicable = 0

  init(_ label: String, isText: Bool) {
    self.label = label
    self.isText = isText
  }

  mutating func take(_ finding: ContractSuite.Finding) {
    findings.append(finding)
    switch finding.verdict {
    case .ok: ok += 1
    case .failed: failed += 1
    case .notApplicable: notApplicable += 1
    }
    guard isText else { return }
    if subject != finding.subject {
      subject = finding.subject
      Console.print("\(findings.count > 1 ? "\n" : "")\(finding.subject.isEmpty ? label : finding.subject)")
    }
    func line(_ verdict: String, _ text: String) -> String {
      let padded = verdict + String(repeating: " ", count: max(0, 8 - verdict.count))
      return "  \(padded)\(finding.check)\(String(repeating: " ", count: max(1, 12 - finding.check.count)))\(text)"
    }
    switch finding.verdict {
    case .ok(let note): Console.print(line("ok", finding.title + (note.isEmpty ? "" : " (\(note))")))
    case .notApplicable(let why): Console.print(line("-", "not applicable: \(why)"))
    case .failed(let breach):
      Console.print(line("FAILED", finding.title))
      let margin = String(repeating: " ", count: 10)
      Console.print("\(margin)expected: \(breach.expected)")
      Console.print("\(margin)came:     \(breach.came)")
      Console.print("\(margin)do:       \(breach.help)")
    }
  }

  func end() {
    guard !isText else {
      return Console.print("\n\(ok) ok, \(failed) failed, \(notApplicable) not applicable")
    }
    Console.print(
      JSONText.object([
        ("plugin", .string(label)), ("ok", .int(ok)), ("failed", .int(failed)), ("notApplicable", .int(notApplicable)),
        ("checks", .array(findings.map(Self.json))),
      ]).text)
  }

  private static func json(_ finding: ContractSuite.Finding) -> JSONText {
    var members: [(String, JSONText)] = [("check", .string(finding.check)), ("subject", .string(finding.subject))]
    switch finding.verdict {
    case .ok(let note):
      members.append(("verdict", .string("ok")))
      if !note.isEmpty { members.append(("note", .string(note))) }
    case .notApplicable(let why): members += [("verdict", .string("notApplicable")), ("note", .string(why))]
    case .failed(let breach):
      members += [
        ("verdict", .string("failed")), ("expected", .string(breach.expected)), ("came", .string(breach.came)),
        ("help", .string(breach.help)),
      ]
    }
    return .object(members)
  }
}

extension PluginFile {
  /// The plugin for any working directory: arguments that name files have absolute paths.
  fileprivate var withAbsoluteArguments: PluginFile {
    guard case .program(let arguments, let isInterpreter) = form else { return self }
    var found = self
    found.form = .program(
      arguments: arguments.map { !$0.hasPrefix("-") && access($0, F_OK) == 0 ? PluginDirectories.absolute($0) : $0 },
      isInterpreter: isInterpreter)
    return found
  }
}
