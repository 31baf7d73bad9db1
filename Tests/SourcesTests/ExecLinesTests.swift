import Foundation
import PipelineCore
import PipelineHost
import PipelineTestSupport
import Testing

/// `exec` in a chain, with real programs that answer line by line.
@Suite(.serialized) struct ExecLinesTests {
  let scratch = Scratch()

  private func pipeline(
    _ events: String, _ parameters: String, restoring state: [UInt8]? = nil
  ) throws -> RealPipeline {
    try RealPipeline(
      """
      sources: { in: { values: \(events) } }
      signals: { made: { from: in, chain: [ { exec: \(parameters) } ] } }
      sinks:
        out: { from: made, probe: {} }
        lost: { from: made.errors, chain: [ { map: '[event.code, event.error, event.event]' } ], probe: {} }
      """, restoring: state)
  }

  /// A program that reads one line at a time.
  private func shell(_ body: String, _ more: String = "") -> String {
    "{ shell: 'while read -r line; do \(body); done'\(more.isEmpty ? "" : ", " + more) }"
  }

  @Test(arguments: [1, 3, 1000]) func answersInOrder(_ inFlight: Int) throws {
    let running = try pipeline(
      "[\((0..<200).map(String.init).joined(separator: ","))]", shell("echo $line", "inFlight: \(inFlight)"))
    #expect(running.runToEnd() == .completed)
    #expect(running.events == (0..<200).map(String.init))
    #expect(running.probe("lost").events.isEmpty)
  }

  @Test func makesEventsOfBoth() throws {
    let running = try pipeline(
      "[ { n: 1 }, { n: 2 } ]",
      shell("echo \"$line\"", "to: { n: event.n, back: answer.n + 1 }"))
    #expect(running.runToEnd() == .completed)
    #expect(running.events == [#"{"n":1,"back":2}"#, #"{"n":2,"back":3}"#])
  }

  @Test func readsTexts() throws {
    let running = try pipeline(
      #"[ "a b", "", "two\nlines", "ü" ]"#, shell("echo \"<$line>\"", "encode: text, answer: text"))
    #expect(running.runToEnd() == .completed)
    #expect(running.events == [#""<a b>""#, #""<>""#, #""<ü>""#])
    #expect(
      running.probe("lost").events
        == [##"["RX551","the event has a line break, so it is more than one line","two\nlines"]"##])
  }

  @Test func rejectsWhatIsNoAnswer() throws {
    let running = try pipeline("[1, 2, 3]", shell("[ $line = 2 ] && echo no || echo $line"))
    #expect(running.runToEnd() == .completed)
    #expect(running.events == ["1", "3"])
    #expect(running.probe("lost").events == [#"["RX551","the answer of '/bin/sh' is not JSON: no",2]"#])
  }

  /// Events with the program are rejected, and waiting ones are given to the next program.
  @Test func isStartedAgain() throws {
    let running = try pipeline(
      "[1, 2, 3, 4]", shell("[ $line = 2 ] && { echo why >&2; exit 3; }; echo $line", "delay: 1ms"))
    #expect(running.runToEnd() == .completed)
    #expect(running.events == ["1", "3", "4"])
    #expect(
      running.probe("lost").events
        == [#"["RX551","'/bin/sh' exited with 3, after it had written: why",2]"#])
    #expect(running.log.contains { $0.contains("it is started again after 1ms") })
    #expect(running.log.contains { $0.contains("'/bin/sh' answers again") })
  }

  @Test func allThatItHadIsLost() throws {
    let running = try pipeline(
      "[1, 2, 3, 4, 5]",
      "{ shell: 'read -r a; read -r b; read -r c; [ $a = 1 ] && exit 1; echo $a; echo $b; while read -r l; do echo $l; done', inFlight: 3, delay: 1ms }"
    )
    // The second program answers two of three events, and has the rest when its input ends.
    running.run { running.probe("lost").events.count == 3 }
    #expect(running.probe("lost").events.map { $0.suffix(2) } == ["1]", "2]", "3]"])
  }

  @Test func anAnswerThatDoesNotCome() throws {
    let running = try pipeline(
      "[1, 2, 3]", shell("[ $line = 2 ] && exec sleep 1000; echo $line", "timeout: 200ms, delay: 1ms"))
    #expect(running.runToEnd() == .completed)
    // On a busy machine others may also time out: nothing is lost silently.
    #expect(running.probe("lost").events.contains(#"["RX551","'/bin/sh' has not answered within 200ms",2]"#))
    #expect(running.events.count + running.probe("lost").events.count == 3)
  }

  @Test func aLineThatNobodyAskedForEndsIt() throws {
    let running = try pipeline("[1, 2]", shell("echo $line; echo $line; exec sleep 1000", "delay: 1ms, timeout: 500s"))
    running.run {
      running.log.contains { $0.contains("a line that belongs to no event") } || running.events.count == 2
    }
    #expect(running.events.first == "1")
  }

  @Test func aLongLineEndsIt() throws {
    let running = try pipeline("[1]", shell("head -c 5000 /dev/zero", "maxLine: 1KiB, delay: 1ms"))
    #expect(running.runToEnd() == .completed)
    #expect(running.probe("lost").events == [#"["RX551","'/bin/sh' has written a line of more than 1024 bytes",1]"#])
  }

  @Test func aProgramThatIsNotThere() throws {
    let running = try pipeline("[1]", "{ command: [no-such-program] }")
    running.runToEnd()
    #expect(running.failure?.message == "'no-such-program' cannot be started: there is no such program")
  }

  @Test func getsItsVariables() throws {
    let running = try pipeline(
      "[1]", "{ shell: 'read -r l; echo $NAME $HOME', answer: text, environment: { NAME: x } }")
    running.run { !running.events.isEmpty }
    #expect(running.events == [#""x""#])
  }

  /// Events that wait, or are with the program, when the pipeline is suspended are given to the program of the next execution.
  @Test func keepsWhatWaits() throws {
    let gate = scratch("gate")
    let text = """
      sources: { in: { values: [1, 2, 3] } }
      sinks:
        out:
          from: in
          chain:
            - exec:
                shell: 'while read -r l; do echo $l; until [ $l -gt 1 ] || [ -e \(gate) ]; do sleep 0.01; done; done'
                timeout: 500s
          probe: {}
      """
    let first = try RealPipeline(text)
    first.run { first.events.count == 1 }
    let state = try #require(first.suspend())
    scratch.append("", to: "gate")
    let second = try RealPipeline(text, restoring: state)
    #expect(second.runToEnd() == .completed)
    #expect(first.events == ["1"])
    #expect(second.events == ["2", "3"])
  }
}
