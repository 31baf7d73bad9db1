import ArgumentParser
import PipelineCore
import PipelineRuntime

/// `rxd explain`: a plan in words, or the meaning of a code.
struct Explain: ParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "explain",
    abstract: "Prints the plan of a pipeline, or the meaning of a code such as RX203.",
    discussion: """
      The plan shows which steps are fused, what each expression reads and returns, and which fields may be missing \
      in an event.
      """)

  @Argument(
    help: ArgumentHelp("A pipeline file, - for standard input, or a code.", valueName: "file-or-code"),
    completion: .file(extensions: ["yaml", "yml"]))
  var subject: String

  @OptionGroup var environment: EnvironmentOptions
  @OptionGroup var color: ColorOptions

  func run() throws {
    let name = subject.uppercased()
    if name.hasPrefix("RX"), name.utf8.count == 5, name.utf8.dropFirst(2).allSatisfy({ 0x30...0x39 ~= $0 }) {
      try Self.explain(name)
    } else {
      Console.print(
        PlanExplanation.text(try PipelineLoader.plan(subject, environment, color)), terminator: "")
    }
  }

  private static func explain(_ name: String) throws {
    guard let code = Diagnostic.Code.named(name) else {
      let near = Suggestion.nearest(to: name, among: Diagnostic.Code.all.map(\.name))
      Console.printError("there is no code \(name)" + (near.map { "; did you mean \($0)?" } ?? ""))
      throw ExitStatus.usage
    }
    Console.print("\(code.name) (\(code.severity.rawValue)): \(code.summary)")
    Console.print(code.phase)
    guard let example = CodeExample.of(code) else { return }
    func show(_ title: String, _ text: String) {
      Console.print("\n\(title)")
      for line in text.split(separator: "\n", omittingEmptySubsequences: false) {
        Console.print("  \(Printable.cut(line.utf8, limit: 300))")
      }
    }
    let context: String
    switch example.context {
    case .situation:
      Console.print("")
      Console.print(Layout.wrap("For example: \(example.wrong)", indent: 0), terminator: "")
      Console.print(Layout.wrap("What to do: \(example.right)", indent: 0), terminator: "")
      return
    case .file: context = ""
    case .source: context = ", under the name of a source"
    case .step: context = ", in a chain"
    }
    show("For example\(context):", example.wrong)
    if !example.events.isEmpty {
      show(example.events.count == 1 ? "With the event:" : "With the events:", example.events.joined(separator: "\n"))
    }
    show("Write:", example.right)
  }
}
