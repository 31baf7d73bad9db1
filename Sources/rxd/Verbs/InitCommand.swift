import ArgumentParser
import Glibc
import PipelineCore
import PipelineRuntime
import PipelineTesting
import Transport

/// `rxd init`: a first pipeline file.
struct Initialize: ParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "init",
    abstract: "Writes a first pipeline file, with a test.",
    discussion: """
      On a terminal, asks for the input, the operator and the output, unless options name them. Elsewhere the rest has \
      its default: lines of JSON from standard input, filtered, to standard output. The file has a test that passes. NAME:VALUE gives a \
      source or sink its file, URL or address.
      """)

  @Argument(help: "The file to write; default is pipeline.yaml.", completion: .file(extensions: ["yaml", "yml"]))
  var file = "pipeline.yaml"

  @Option(
    help: ArgumentHelp(
      "What comes in: \(PipelineSketch.sources.map(\.name).joined(separator: ", ")).", valueName: "source"))
  var from: String?

  @Option(help: ArgumentHelp("The format of a line: json or text.", valueName: "form"))
  var decode: String?

  @Option(
    name: .customLong("do"),
    help: ArgumentHelp(
      "A step to add: \(PipelineSketch.steps.map(\.name).joined(separator: ", ")); may be repeated.", valueName: "step")
  )
  var steps: [String] = []

  @Option(
    help: ArgumentHelp("Where it goes: \(PipelineSketch.sinks.map(\.name).joined(separator: ", ")).", valueName: "sink")
  )
  var to: String?

  @Flag(help: "Replace the file, if there is one.")
  var force = false

  func run() throws {
    if !force, access(file, F_OK) == 0 {
      Console.printError("there is already a file \(Printable.quote(file)): --force replaces it")
      throw ExitStatus.failure
    }
    var sketch = PipelineSketch()
    sketch.source = try chosen(from, among: PipelineSketch.sources, "--from", "What comes in?")
    if PipelineSketch.hasFormat(sketch.source.name) {
      let usual = ["follow", "exec"].contains(sketch.source.name) ? "text" : "json"
      sketch.format = try chosen(decode, among: PipelineSketch.formats, "--decode", "What is a line?", usual: usual)
        .name
    } else if decode != nil {
      throw ValidationError("--decode has no effect on '\(sketch.source.name)', whose events have one form.")
    }
    sketch.steps = try chosenSteps()
    sketch.sink = try chosen(to, among: PipelineSketch.sinks, "--to", "Where does it go?")
    let bytes = try finished(sketch)
    try FixedFile.replace(file, with: bytes)
    let input = sketch.source.name == "stdin" ? " < FILE" : ""
    let next = [
      ("rxd test \(file)", "runs the test"),
      ("rxd run --dry-run \(file)\(input)", "prints what would be sent"),
      ("rxd run \(file)\(input)", "runs it"),
    ]
    let width = next.map(\.0.unicodeScalars.count).max() ?? 0
    Console.print("wrote \(file); its test passes")
    for (command, help) in next {
      Console.print("  \(command)\(String(repeating: " ", count: width + 3 - command.unicodeScalars.count))\(help)")
    }
  }

  // MARK: Choices

  private var isAsking: Bool { isatty(0) == 1 && isatty(2) == 1 }

  private func chosen(
    _ given: String?, among choices: [PipelineSketch.Choice], _ option: String, _ question: String, usual: String? = nil
  ) throws -> PipelineSketch.Chosen {
    if let given {
      let parts = given.split(separator: ":", maxSplits: 1, omittingEmptySubsequences: false).map(String.init)
      guard let choice = choices.first(where: { $0.name == parts[0] }) else {
        throw ValidationError(Self.unknown(parts[0], choices, option))
      }
      guard let value = choice.value else {
        if parts.count > 1 { throw ValidationError("\(option) \(choice.name) takes no value.") }
        return PipelineSketch.Chosen(name: choice.name, value: "")
      }
      return PipelineSketch.Chosen(
        name: choice.name, value: parts.count > 1 && !parts[1].isEmpty ? parts[1] : value.usual)
    }
    let usual = usual ?? choices[0].name
    let choice = try ask(question, choices, usual: usual)
    guard let value = choice.value else { return PipelineSketch.Chosen(name: choice.name, value: "") }
    return PipelineSketch.Chosen(
      name: choice.name, value: try line("\(value.question) [\(value.usual)] ") ?? value.usual)
  }

  private func chosenSteps() throws -> [String] {
    let choices = PipelineSketch.steps
    if !steps.isEmpty {
      for step in steps where !choices.contains(where: { $0.name == step }) {
        throw ValidationError(Self.unknown(step, choices, "--do"))
      }
      return steps
    }
    return [try ask("What is to be done?", choices, usual: "filter").name]
  }

  private static func unknown(_ name: String, _ choices: [PipelineSketch.Choice], _ option: String) -> String {
    let names = choices.map(\.name)
    let near = Suggestion.nearest(to: name, among: names).map { "did you mean '\($0)'?" }
    return "\(option) cannot be '\(Printable.cut(name))': " + (near ?? "it can be \(Suggestion.list(names)).")
  }

  /// Asks until the answer is one of the choices; without a terminal, returns the usual one.
  private func ask(
    _ question: String, _ choices: [PipelineSketch.Choice], usual: String
  ) throws -> PipelineSketch.Choice {
    let known = choices.first { $0.name == usual } ?? choices[0]
    guard isAsking else { return known }
    let width = choices.map(\.name.utf8.count).max() ?? 0
    Console.note(question)
    for choice in choices {
      Console.note("  \(choice.name)\(String(repeating: " ", count: width - choice.name.utf8.count))  \(choice.help)")
    }
    while true {
      guard let answer = try line("[\(usual)] ") else { return known }
      if let choice = choices.first(where: { $0.name == answer }) { return choice }
      let near = Suggestion.nearest(to: answer, among: choices.map(\.name)).map { "; did you mean '\($0)'?" } ?? ""
      Console.note("There is no '\(Printable.cut(answer))'\(near)")
    }
  }

  /// A line of standard input; nil: the line is empty, or there is no terminal.
  private func line(_ prompt: String) throws -> String? {
    guard isAsking else { return nil }
    do throws(PosixError) { try Console.ask(prompt) } catch {
      throw ExitStatus.failure
    }
    guard let line = readLine() else {
      Console.note("")
      throw ExitStatus.failure
    }
    let text = line.split(separator: " ").joined(separator: " ")
    return text.isEmpty ? nil : text
  }

  // MARK: The file

  /// The text of the sketch with the results of its test, formatted.
  private func finished(_ sketch: PipelineSketch) throws -> [UInt8] {
    let front = PipelineLoader()
    let source = SourceText(name: file, text: sketch.text)
    let loaded = front.compile(file, source)
    var diagnostics = Diagnostics()
    diagnostics.report(contentsOf: loaded.diagnostics)
    let tests = front.tests(of: loaded, into: &diagnostics)
    guard let plan = loaded.plan, !diagnostics.hasErrors else { throw refused(diagnostics.all) }
    var update = ExpectationUpdate(source)
    for (test, done) in zip(tests, Test.run(tests, of: plan)) {
      for failure in done.result.failures {
        guard let index = failure.expectation else { continue }
        _ = update.rewrite(test.expectations[index], of: test, to: failure.history)
      }
    }
    let written = SourceText(name: file, bytes: update.text() ?? source.bytes)
    guard let formatted = FormattedFile(written, into: &diagnostics) else { throw refused(diagnostics.all) }
    let again = front.compile(file, SourceText(name: file, bytes: formatted.bytes))
    let passing = front.tests(of: again, into: &diagnostics)
    guard let plan = again.plan, Test.run(passing, of: plan).allSatisfy(\.result.passed) else {
      throw refused(diagnostics.all)
    }
    return formatted.bytes
  }

  /// Reports that a given value cannot be used.
  private func refused(_ diagnostics: [Diagnostic]) -> ExitCode {
    Console.note(String(DiagnosticRenderer().text(diagnostics).dropLast()))
    return ExitStatus.configuration
  }
}
