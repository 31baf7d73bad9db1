import Glibc
import PipelineCore
import PipelineTesting
import Transport

/// Runs the marble examples of an operator as tests of a pipeline, in a separate process.
struct MarbleTrial {
  private let suite: ContractSuite
  private let spec: PluginComponentSpec
  private let examples: [PluginExample]

  init(_ suite: ContractSuite, _ spec: PluginComponentSpec) {
    self.suite = suite
    self.spec = spec
    examples = spec.examples.filter { $0.marbles != nil }
  }

  /// Returns how many there are.
  func run() throws(ContractBreach) -> Int {
    guard !examples.isEmpty else { return 0 }
    let directory = try ScratchDirectory(copying: suite.files)
    for example in examples {
      guard let marbles = example.marbles else { continue }
      let path = directory.path + "/example.yaml"
      guard write(pipeline(example, marbles), to: path) else {
        throw ContractBreach(
          expected: "a directory for temporary files", came: "\(path): \(PosixError.text(errno))", help: "Set TMPDIR")
      }
      let (status, said) = rxdTest(path, cache: directory.path + "/cache")
      guard status != 0 else { continue }
      throw ContractBreach(
        expected: "example '\(example.title)' as its marbles say: \(marbles.output)",
        came: Printable.cut(said, limit: 2000),
        help: "Correct 'out' of the example, or the operator; 'rxd test' shows the difference")
    }
    return examples.count
  }

  private func pipeline(_ example: PluginExample, _ marbles: PluginExample.Marbles) -> String {
    func quoted(_ text: String) -> String {
      JSON.text { $0.string(text) }
    }
    func history(_ text: String) -> String {
      let values = marbles.values.map { "\(quoted($0.0)): \($0.1)" }.joined(separator: ", ")
      return "{ marbles: \(quoted(text)), values: { \(values) } }"
    }
    let plugin =
      switch suite.file.form {
      case .native: quoted(suite.file.path)
      case .program(let arguments, _):
        "{ run: [" + ([suite.file.path] + arguments).map(quoted).joined(separator: ", ") + "] }"
      }
    let step = example.yaml.split(separator: "\n", omittingEmptySubsequences: false).map { "        \($0)\n" }.joined()
    return """
      plugins: { tried: \(plugin) }
      sources: { a: { never: {} } }
      sinks:
        out:
          from: a
          chain:
            -
      \(step)    discard: {}
      tests:
        - name: \(quoted(example.title))
          inputs: { a: \(history(marbles.input)) }
          expect: { out: \(history(marbles.output)) }

      """
  }

  private func write(_ text: String, to path: String) -> Bool {
    let file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0o600)
    guard file >= 0 else { return false }
    defer { close(file) }
    let bytes = Array(text.utf8)
    return bytes.withUnsafeBytes { Glibc.write(file, $0.baseAddress, $0.count) } == bytes.count
  }

  /// The exit status of `rxd test`, and its output.
  private func rxdTest(_ path: String, cache: String) -> (status: Int32, said: String) {
    // A separate cache, so that nothing remains.
    let environment = PluginProcess.environment(suite.file.settings).merging(["XDG_CACHE_HOME": cache]) {
      $1
    }
    let limit = suite.timeout.nanoseconds &+ 30_000_000_000
    let deadline = monotonicNow() &+ limit
    var said: [UInt8] = []
    do throws(PosixError) {
      var child = try ChildProgram(suite.rxd, ["test", path], environment: environment, directory: nil)
      child.closeInput()
      while true {
        // Everything printed before the end can be read once the end is noticed.
        let status = child.wait(wakenBy: -1, writes: false, until: deadline).contains(.end) ? child.status() : nil
        for stream in [ChildProgram.Stream.output, .errors] {
          while let bytes = child.read(stream) { said += bytes }
        }
        if let status { return (status, String(decoding: said, as: UTF8.self)) }
        guard monotonicNow() < deadline else {
          _ = child.destroy()
          return (-1, "the test has not ended within \(limit / 1_000_000_000) s")
        }
      }
    } catch {
      return (-1, "rxd test cannot be started: \(PosixError.text(error.code))")
    }
  }
}
