import Foundation
import PipelineCore
import PipelineHost
import PipelineTestSupport
import PipelineTesting
import Testing

/// Real programs: their environment, the handling of their output, and their ends.
@Suite(.serialized) struct ExecSourceTests {
  private func pipeline(_ parameters: String, chain: String = "[]") throws -> RealPipeline {
    try RealPipeline(
      """
      sources: { program: { exec: \(parameters) } }
      sinks:
        out: { from: program, chain: \(chain), probe: {} }
        lost: { from: program.errors, chain: [ { map: '[event.code, event.error, event.event]' } ], probe: {} }
      """)
  }

  private func complaints(_ parameters: String) -> [String] {
    PipelineText.complaints(
      """
      sources: { program: { exec: \(parameters) } }
      sinks: { out: { from: program, discard: {} } }
      """)
  }

  @Test func sendsLinesAndCompletes() throws {
    let running = try pipeline(#"{ command: [printf, '%s\n', "a b", "$HOME", "*"] }"#)
    #expect(running.runToEnd() == .completed)
    #expect(running.events == [#""a b""#, #""$HOME""#, #""*""#])
  }

  @Test func getsItsInputAndNoOtherVariable() throws {
    let running = try pipeline("{ command: [cat], input: 'one{{ 1 + 1 }}' }")
    #expect(running.runToEnd() == .completed)
    #expect(running.events == [#""one2""#])
    let variables = try pipeline("{ command: [env], environment: { NAME: 'v {{ 6 * 7 }}' } }")
    #expect(variables.runToEnd() == .completed)
    #expect(variables.events == [#""NAME=v 42""#])
  }

  @Test func hasNoOtherDescriptor() throws {
    let running = try pipeline("{ shell: 'ls /proc/self/fd', directory: / }")
    #expect(running.runToEnd() == .completed)
    // Standard streams, and the directory that `ls` reads.
    #expect(running.events == [#""0""#, #""1""#, #""2""#, #""3""#])
  }

  /// A failed periodic run is an error with the program's output, not an event.
  @Test func aRunThatFailsIsAnError() throws {
    let running = try pipeline("{ shell: 'echo out; exit 3', every: 1h, immediate: true }")
    #expect(running.run { running.probe("lost").events.count == 1 })
    let lost = try #require(running.probe("lost").events.first)
    #expect(lost.hasPrefix(#"["RX527","#) && lost.contains("3") && lost.contains("out"), "\(lost)")
    #expect(running.events == [])
  }

  @Test func takesLongInput() throws {
    let long = String(repeating: "x", count: 60_000)
    let running = try pipeline("{ command: [wc, -c], input: '\(long)' }")
    #expect(running.runToEnd() == .completed)
    #expect(running.events == [#""60000""#])
    // The program need not read its input.
    let deaf = try pipeline("{ command: ['true'], input: '\(long)' }")
    #expect(deaf.runToEnd() == .completed)
  }

  @Test(arguments: [
    ("{ shell: 'echo early; echo why >&2; exit 3' }", "'/bin/sh' exited with 3, after it had written: why"),
    ("{ shell: 'kill -9 $$$$' }", "'/bin/sh' was ended by signal 9"),
    ("{ command: [no-such-program] }", "'no-such-program' cannot be started: there is no such program"),
    ("{ command: [/etc/passwd] }", "'/etc/passwd' cannot be started: Permission denied"),
    ("{ command: [cat], directory: /no/such }", "'cat' cannot be started: No such file or directory"),
    ("{ command: [sleep, '60'], timeout: 50ms }", "'sleep' had not ended after 50ms"),
    ("{ command: [cat, /dev/zero], maxOutput: 1MiB }", "'cat' has written more than 1048576 bytes"),
  ])
  func failsWith(_ parameters: String, _ message: String) throws {
    let running = try pipeline(parameters)
    running.runToEnd()
    #expect(running.failure?.message == message)
    #expect(running.events.isEmpty)
  }

  @Test func otherStatusesCanBeFine() throws {
    let running = try pipeline("{ command: [grep, x, /dev/null], success: [0, 1] }")
    #expect(running.runToEnd() == .completed)
    #expect(running.events.isEmpty)
  }

  @Test func theExitCanBeTheEvent() throws {
    let running = try pipeline("{ shell: 'echo out; echo err >&2; exit 4', emit: exit }")
    #expect(running.runToEnd() == .completed)
    #expect(running.events == [#"{"exit":4,"signal":0,"output":"out\n","errors":"err\n"}"#])
  }

  @Test func itsLeftoverProcessesAreKilled() throws {
    let running = try pipeline("{ shell: 'sleep 60 & echo $!' }")
    #expect(running.runToEnd(within: .seconds(20)) == .completed)
    let process = try #require(running.events.first.flatMap { Int32($0.trimmingCharacters(in: ["\""])) })
    // The process may become a zombie until it is waited for, which takes a moment.
    func state() -> String? { try? String(contentsOfFile: "/proc/\(process)/stat", encoding: .utf8) }
    let limit = ContinuousClock.now + .seconds(10)
    while let state = state(), !state.contains(") Z "), ContinuousClock.now < limit { sched_yield() }
    #expect(state() == nil || state()?.contains(") Z ") == true, "\(state() ?? "")")
  }

  @Test func aProgramForEachEvent() throws {
    let running = try RealPipeline(
      """
      sources: { names: { values: [a, b, -c, d] } }
      signals:
        made:
          from: names
          chain: [ { flattenMap: { policy: concat, signal: { exec: { command: [printf, '%s!', '{{ event }}'], decode: whole } } } } ]
      sinks:
        out: { from: made, probe: {} }
        lost: { from: made.errors, chain: [ { map: '[event.code, event.event]' } ], probe: {} }
      """)
    #expect(running.runToEnd() == .completed)
    #expect(running.events == [#""a!""#, #""b!""#, #""d!""#])
    #expect(running.probe("lost").events == [#"["RX526","-c"]"#])
  }

  @Test func behindTwoDashesAnythingIsNoOption() throws {
    let running = try RealPipeline(
      """
      sources: { names: { values: [-c] } }
      sinks:
        out:
          from: names
          chain: [ { flattenMap: { policy: concat, signal: { exec: { command: [printf, --, '%s', '{{ event }}'], decode: whole } } } } ]
          probe: {}
      """)
    #expect(running.runToEnd() == .completed)
    #expect(running.events == [#""-c""#])
  }

  // MARK: Streaming

  @Test func sendsLinesWhileItRuns() throws {
    let running = try pipeline("{ shell: 'echo 1; echo 2; exec cat', streaming: true, decode: ndjson }")
    #expect(running.run { running.events.count == 2 })
    #expect(running.outcome == nil)
    running.inTurn { $0.execution.drain() }
    #expect(running.runToEnd() == .completed)
    #expect(running.events == ["1", "2"])
  }

  @Test func streamingStopsAProgramThatIgnoresSIGTERM() throws {
    let running = try pipeline(
      #"{ shell: 'trap "" TERM; echo up; while :; do sleep 1; done', streaming: true, stopTimeout: 50ms }"#)
    #expect(running.run { running.events.count == 1 })
    running.inTurn { $0.execution.drain() }
    #expect(running.runToEnd(within: .seconds(20)) == .completed)
  }

  @Test func streamingFailsWithTheProgram() throws {
    let running = try pipeline("{ shell: 'echo a; echo broken >&2; exit 2', streaming: true }")
    running.runToEnd()
    #expect(running.failure?.message == "'/bin/sh' exited with 2, after it had written: broken")
    #expect(running.events == [#""a""#])
    #expect(running.log.contains { $0.hasSuffix("stderr: broken") }, "\(running.log)")
  }

  @Test func retryStartsItAgain() throws {
    let running = try RealPipeline(
      """
      signals:
        made:
          from: { exec: { shell: 'echo a; exit 1', streaming: true } }
          chain: [ { retry: { count: 2 } }, { catch: { value: "'given up'" } } ]
      sinks: { out: { from: made, probe: {} } }
      """)
    #expect(running.runToEnd() == .completed)
    #expect(running.events == [#""a""#, #""a""#, #""a""#, #""given up""#])
  }

  @Test func aCancelledRunIsEnded() throws {
    let scratch = Scratch()
    let file = "\(scratch.path)/pid"
    let running = try pipeline("{ shell: 'echo $$$$ > \(file); exec sleep 60' }")
    var process: Int32 = 0
    running.run(within: .seconds(20)) {
      process =
        (try? String(contentsOfFile: file, encoding: .utf8)).flatMap { Int32($0.trimmingCharacters(in: .newlines)) }
        ?? 0
      if process == 0 { running.ring() }
      return process > 0
    }
    #expect(process > 0)
    running.inTurn { $0.execution.cancel() }
    running.run(within: .seconds(20)) {
      if kill(process, 0) == 0 { running.ring() }
      return kill(process, 0) != 0
    }
    #expect(kill(process, 0) != 0)
  }

  // MARK: What check says

  @Test(arguments: [
    ("{}", "needs 'command' or 'shell'"),
    ("{ command: [a], shell: b }", "has both 'command' and 'shell'"),
    ("{ command: ['{{ event.x }}'] }", "the program must be written out"),
    ("{ command: ['uptime -p'] }", "there is no program 'uptime -p'"),
    ("{ command: [''] }", "the program has no name"),
    ("{ command: [a], streaming: true, every: 1s }", "'every' of 'exec' has no effect with 'streaming: true'"),
    ("{ command: [a], environment: { 'A=B': c } }", "'A=B' cannot be the name of an environment variable"),
    ("{ command: [a], success: [256] }", "success"),
  ])
  func checkRefuses(_ parameters: String, _ part: String) {
    let found = complaints(parameters)
    #expect(found.contains { $0.contains(part) }, "\(found)")
  }
}

/// The same on virtual time, with stubs of programs.
@Suite struct ExecStubTests {
  @Test func aStubAnswersAtItsTime() throws {
    let text = """
      sources: { names: { values: [a, b] } }
      sinks:
        out:
          from: names
          chain:
            - flattenMap: { signal: { exec: { command: [lookup, --, '{{ event }}'], decode: whole, timeout: 1s } } }
            - catch: { value: "'failed'" }
          discard: {}
      tests:
        - name: answers
          stubs:
            exec:
              - { command: lookup -- a, reply: { text: A }, after: 30ms }
              - { command: lookup -- b, reply: { text: B }, after: 10ms }
          expect: { out: [ { at: 10ms, next: B }, { at: 30ms, next: A }, { complete: true } ] }
        - name: an exit status
          stubs: { exec: [ { command: '*', reply: { exit: 2, errors: no }, after: 5ms } ] }
          expect: { out: [ { at: 5ms, next: failed }, { complete: true } ] }
        - name: too late
          stubs: { exec: [ { command: '*', hang: true } ] }
          expect: { out: [ { at: 1s, next: failed }, { complete: true } ] }
        - name: fails twice, then answers
          stubs:
            exec:
              - { command: '*', sequence: [ { reply: { text: first } }, { fail: cannot be started } ] }
          expect: { out: [ { next: first }, { next: failed }, { complete: true } ] }
      """
    let compiled = FrontEnd(PipelineText.catalogue).compile(SourceText(name: "test.yaml", text: text))
    let plan = try #require(compiled.plan, "\(DiagnosticRenderer().text(compiled.diagnostics))")
    var diagnostics = Diagnostics()
    let tests = compiled.tests(into: &diagnostics) { _ in nil }
    try #require(!diagnostics.hasErrors, "\(DiagnosticRenderer().text(diagnostics.all))")
    #expect(tests.count == 4)
    for isRestored in [false, true] {
      var runner = TestRunner(plan)
      runner.restoresAfterEachTurn = isRestored
      for test in tests {
        let failures = runner.run(test).failures
        #expect(failures.isEmpty, "\(test.name.value): \(failures)")
      }
    }
  }
}
