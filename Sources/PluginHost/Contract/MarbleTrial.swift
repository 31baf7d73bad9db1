import CLinux
import Glibc
import PipelineCore
import PipelineTesting
import Transport

/// Runs the examples of an operator that have marbles, as tests of a pipeline, in a process of its own.
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
      let (status, said) = rxdTest(path, directory.path + "/output")
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

  /// The exit status of `rxd test`, and what it has printed.
  private func rxdTest(_ path: String, _ output: String) -> (status: Int32, said: String) {
    var actions = posix_spawn_file_actions_t()
    posix_spawn_file_actions_init(&actions)
    defer { posix_spawn_file_actions_destroy(&actions) }
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0)
    posix_spawn_file_actions_addopen(&actions, 1, output, O_WRONLY | O_CREAT | O_TRUNC, 0o600)
    posix_spawn_file_actions_adddup2(&actions, 1, 2)
    // Its own cache: nothing is left behind.
    let environment = PluginProcess.environment(suite.file.settings).merging(["XDG_CACHE_HOME": output + ".cache"]) {
      $1
    }
    var process = pid_t()
    let code = PluginProcess.strings([suite.rxd, "test", path]) { arguments in
      PluginProcess.strings(environment.map { "\($0.key)=\($0.value)" }) { environment in
        posix_spawn(&process, suite.rxd, &actions, nil, arguments, environment)
      }
    }
    guard code == 0 else { return (-1, "rxd test cannot be started: \(PosixError.text(code))") }
    let ending = rx_end_watch(process)
    defer { if ending >= 0 { close(ending) } }
    let limit = suite.timeout.nanoseconds &+ 30_000_000_000
    let deadline = monotonicNow() &+ limit
    var status: Int32 = 0
    while rx_has_ended(process, &status) == 0 {
      let left = deadline &- monotonicNow()
      guard left > 0 else {
        kill(process, SIGKILL)
        waitpid(process, &status, 0)
        return (-1, "the test has not ended within \(limit / 1_000_000_000) s")
      }
      // Systems without pidfd_open cannot wait for the end with a limit, so its status is polled.
      _ = rx_wait_readable(ending, ending < 0 ? min(left, 10_000_000) : left)
    }
    return (status, PluginFile.contents(output).map { String(decoding: $0, as: UTF8.self) } ?? "")
  }
}
