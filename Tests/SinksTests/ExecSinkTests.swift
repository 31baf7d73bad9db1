import Foundation
import PipelineCore
import PipelineHost
import Testing

/// Real programs that receive events on their standard input.
@Suite struct ExecSinkTests {
  let folder = Scratch()

  private func pipeline(_ parameters: String, values: String = "[1, two, { a: 3 }]") throws -> RealPipeline {
    try RealPipeline(
      """
      sources: { in: { values: \(values) } }
      sinks: { out: { from: in, exec: { \(parameters) } }, bad: { from: out.errors, probe: {} } }
      """)
  }

  @Test(arguments: [
    ("", "1\n\"two\"\n{\"a\":3}\n"), ("encode: text,", "1\ntwo\n{\"a\":3}\n"),
    ("framing: octets,", "1 15 \"two\"7 {\"a\":3}"),
  ]) func givesEvents(_ parameters: String, _ expected: String) throws {
    let pipeline = try pipeline("\(parameters) shell: 'cat > \(folder("out"))'")
    #expect(pipeline.runToEnd() == .completed)
    #expect(folder.read("out") == expected)
    #expect(pipeline.counters.sent == 3)
    #expect(pipeline.log == [])
  }

  /// No shell parses the arguments, and the program gets only the variables in the file.
  @Test func startsProgramsAsTheFileSays() throws {
    let path = folder("out")
    let script = #"cat > /dev/null; printf '%s\n' "$@" > "# + path + "; env | grep -v '^_\\|^PWD\\|^SHLVL' >> \(path)"
    let pipeline = try pipeline(
      "command: [/bin/sh, -c, '\(script.replacingOccurrences(of: "'", with: "''"))', sh, 'a b', '$HOME; x'], environment: { NAME: v }"
    )
    #expect(pipeline.runToEnd() == .completed)
    #expect(folder.read("out") == "a b\n$HOME; x\nNAME=v\n")
  }

  /// Events that a program has not read when it ends go to the next one: each event arrives once, in order.
  @Test func theNextRunGetsWhatWasNotRead() throws {
    let path = folder("out")
    let pipeline = try pipeline(
      "restart: 1ms, shell: 'for i in 1 2 3; do read -r line && echo \"$line\" >> \(path); done; exit 7'",
      values: "[\((0..<10).map { "\($0)" }.joined(separator: ", "))]")
    #expect(pipeline.runToEnd() == .completed)
    #expect(folder.read("out") == (0..<10).map { "\($0)\n" }.joined())
    #expect(pipeline.counters.sent == 10)
    #expect(pipeline.log.contains { $0.contains("'/bin/sh' exited with 7; starting it again") }, "\(pipeline.log)")
    #expect(
      pipeline.log.count { $0.contains("'/bin/sh' runs again, after 1 end in ") } == 3, "\(pipeline.log)")
  }

  /// A message that was read in part is sent again from its start.
  @Test func aMessageIsNeverCutInTwo() throws {
    let (path, flag) = (folder("out"), folder("flag"))
    let pipeline = try pipeline(
      "restart: 1ms, encode: text, shell: 'if [ -e \(flag) ]; then cat > \(path); else touch \(flag); head -c 12 > /dev/null; fi'",
      values: "[abcdefg, hijklmn, opqrstu]")
    #expect(pipeline.runToEnd() == .completed)
    #expect(folder.read("out") == "hijklmn\nopqrstu\n")
    #expect(pipeline.counters.sent == 3)
  }

  @Test func whatItWritesGoesToTheLog() throws {
    let pipeline = try pipeline("shell: 'cat > /dev/null; echo done; echo why >&2; exit 3'")
    #expect(pipeline.runToEnd() == .completed)
    #expect(pipeline.log.contains { $0.hasSuffix("stdout: done") }, "\(pipeline.log)")
    #expect(pipeline.log.contains { $0.hasSuffix("stderr: why") }, "\(pipeline.log)")
    #expect(
      pipeline.log.contains { $0.contains("'/bin/sh' exited with 3, after it had written: why") }, "\(pipeline.log)")
    let fine = try self.pipeline("shell: 'cat > /dev/null; exit 3', success: [0, 3]")
    #expect(fine.runToEnd() == .completed)
    #expect(fine.log == [])
  }

  @Test func isEndedIfItDoesNotEnd() throws {
    let pipeline = try pipeline("shell: 'cat > /dev/null; exec sleep 600', stopTimeout: 50ms")
    #expect(pipeline.runToEnd() == .completed)
    #expect(
      pipeline.log.contains { $0.contains("'/bin/sh' had not ended 50ms after the end of its input") },
      "\(pipeline.log)")
    #expect(pipeline.counters.sent == 3)
  }

  @Test func theEndOfTheProgramCanBeAFailure() throws {
    let pipeline = try RealPipeline(
      """
      sources: { in: { interval: 1ms } }
      sinks: { out: { from: in, exec: { shell: 'read -r line; exit 4', onExit: fail } } }
      """)
    pipeline.runToEnd()
    #expect(pipeline.failure?.message == "'/bin/sh' exited with 4")
  }

  @Test(arguments: [
    ("command: [no-such-program]", "'no-such-program' cannot be started: there is no such program"),
    ("command: [/etc/passwd]", "'/etc/passwd' cannot be started: Permission denied"),
  ]) func reportsWhyItCannotStart(_ parameters: String, _ message: String) throws {
    let pipeline = try pipeline(parameters)
    pipeline.runToEnd()
    #expect(pipeline.failure?.message == message)
  }

  /// A program that does not read pauses the pipeline; its unread events are counted when the pipeline is aborted.
  @Test func aProgramThatDoesNotReadHoldsBack() throws {
    let pipeline = try RealPipeline(
      """
      sources: { in: { interval: 1us } }
      sinks:
        out: { from: in, chain: [ { map: '"\(String(repeating: "x", count: 1000))"' } ], exec: { command: [sleep, '600'], queue: 64KiB } }
      """)
    #expect(pipeline.run { pipeline.execution.executor.isInputPaused })
    pipeline.inTurn { $0.execution.cancel() }
    #expect(pipeline.run { pipeline.log.contains { $0.contains("'sleep' had not read ") } }, "\(pipeline.log)")
    #expect(pipeline.counters.sent == 0)
  }

  @Test(arguments: [
    ("encode: text", "'exec' needs 'command' or 'shell'"),
    ("command: [a], shell: b", "'exec' has both 'command' and 'shell'"),
    ("command: [a], environment: { 'a=b': c }", "'a=b' cannot be the name of an environment variable"),
  ]) func refuses(_ parameters: String, _ message: String) {
    let complaints = PipelineText.complaints(
      "sources: { in: { values: [1] } }\nsinks: { out: { from: in, exec: { \(parameters) } } }")
    #expect(complaints.count == 1 && complaints.first?.contains(message) == true, "\(complaints)")
  }
}
