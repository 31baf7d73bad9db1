import ArgumentParser
import Glibc
import PipelineCore
import PipelineRuntime
import Transport

/// `rxd graph`: a pipeline as a drawing.
struct Graph: ParsableCommand {
  static let configuration = CommandConfiguration(
    abstract: "Draws a pipeline: mermaid, dot, svg or json.",
    discussion: "For svg the program 'dot' of graphviz must be installed.")

  enum Format: String, CaseIterable, ExpressibleByArgument { case mermaid, dot, svg, json }

  @Argument(
    help: ArgumentHelp("A pipeline file, or - for standard input.", valueName: "file"),
    completion: .file(extensions: ["yaml", "yml"]))
  var file: String

  @Option(help: ArgumentHelp("The format: mermaid, dot, svg or json.", valueName: "form"))
  var format = Format.mermaid

  @OptionGroup var environment: EnvironmentOptions
  @OptionGroup var color: ColorOptions

  func run() throws {
    let drawing = PlanDrawing(try PipelineLoader.plan(file, environment, color))
    switch format {
    case .mermaid: Console.print(drawing.mermaid, terminator: "")
    case .dot: Console.print(drawing.dot, terminator: "")
    case .json: Console.print(drawing.json.text)
    case .svg: Console.write(try Self.render(drawing.dot))
    }
  }

  /// Renders the drawing with Graphviz.
  private static func render(_ dot: String) throws -> [UInt8] {
    do throws(PosixError) {
      let outcome = try Subprocess.run("dot", ["-Tsvg"], input: Array(dot.utf8))
      if outcome.status == 0 { return outcome.output }
      Console.printError("'dot' of graphviz failed with status \(outcome.status)")
      throw PosixError("run", "dot", code: EINVAL)
    } catch {
      if error.code == ENOENT {
        Console.printError(
          "an svg needs the program 'dot': install graphviz, or use --format dot or mermaid")
        throw ExitStatus.unavailable
      }
      throw ExitStatus.failure
    }
  }
}

extension PipelineLoader {
  /// The plan of one file; on errors prints the report and exits.
  static func plan(
    _ path: String, _ environment: EnvironmentOptions, _ color: ColorOptions
  ) throws -> Plan {
    let result = PipelineLoader(try environment.inputs()).load(path)
    guard let plan = result.plan else {
      var renderer = DiagnosticRenderer()
      renderer.colors = Console.colors(try color.mode(), on: 2)
      Console.note(String(renderer.text(result.diagnostics).dropLast()))
      throw result.isUnreadable ? ExitStatus.noInput : ExitStatus.configuration
    }
    return plan
  }
}

/// Runs a program with its whole input, and reads its whole output.
enum Subprocess {
  struct Outcome {
    var status: Int32
    var output: [UInt8]
  }

  /// Finds `program` on the path and runs it. Throws ENOENT if there is none.
  static func run(
    _ program: String, _ arguments: [String], input: [UInt8]
  ) throws(PosixError) -> Outcome {
    var toChild: [Int32] = [0, 0]
    var fromChild: [Int32] = [0, 0]
    guard pipe(&toChild) == 0, pipe(&fromChild) == 0 else { throw PosixError("create", "a pipe") }
    var actions = posix_spawn_file_actions_t()
    posix_spawn_file_actions_init(&actions)
    defer { posix_spawn_file_actions_destroy(&actions) }
    posix_spawn_file_actions_adddup2(&actions, toChild[0], 0)
    posix_spawn_file_actions_adddup2(&actions, fromChild[1], 1)
    for descriptor in toChild + fromChild { posix_spawn_file_actions_addclose(&actions, descriptor) }
    var words: [UnsafeMutablePointer<CChar>?] = ([program] + arguments).map { strdup($0) } + [nil]
    defer { for word in words { free(word) } }
    var child = pid_t()
    let code = posix_spawnp(&child, program, &actions, nil, &words, environmentPointer())
    close(toChild[0])
    close(fromChild[1])
    guard code == 0 else {
      close(toChild[1])
      close(fromChild[0])
      throw PosixError("run", program, code: code)
    }
    // The child reads all of its input before it writes, as Graphviz does; no other program is run this way.
    let sink = FileDescriptor(toChild[1], name: program, owned: false)
    try? sink.write(input)
    close(toChild[1])
    var output: [UInt8] = []
    var chunk = [UInt8](repeating: 0, count: 64 << 10)
    while true {
      let count = read(fromChild[0], &chunk, chunk.count)
      if count > 0 { output += chunk[..<count] } else if count == 0 || errno != EINTR { break }
    }
    close(fromChild[0])
    var status: Int32 = 0
    while waitpid(child, &status, 0) < 0, errno == EINTR {}
    return Outcome(status: status & 0x7F == 0 ? status >> 8 & 0xFF : 128 + status & 0x7F, output: output)
  }
}
