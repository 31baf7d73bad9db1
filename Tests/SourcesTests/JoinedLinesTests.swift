import Foundation
import PipelineCore
import PipelineHost
import PipelineTestSupport
import Testing

/// `join`: several lines that form one event, from files, programs and standard input.
@Suite struct JoinedLinesTests {
  let scratch = Scratch()

  private func yaml(_ source: String) -> String {
    """
    sources: { input: { \(source) } }
    sinks:
      out: { from: input, chain: [ { map: "[event, meta.offset]" } ], probe: {} }
      bad: { from: input.errors, probe: {} }
    """
  }

  private func followed(_ join: String, _ more: String = "") -> String {
    yaml("file: { path: '\(scratch("a.log"))', follow: true, join: { \(join) }\(more) }")
  }

  // MARK: Once

  static let lines = "a\n 1\n 2\nb\nc\n 3\n"
  static let events = [#"["a\n 1\n 2",0]"#, #"["b",8]"#, #"["c\n 3",10]"#]

  @Test(arguments: [1, 4]) func aFileReadOnce(_ threads: Int) throws {
    scratch.append(Self.lines, to: "a.log")
    scratch.append("d\n 4", to: "b.log")
    for block in [1, 3, 7, 4096] {
      let reading = try RealPipeline(
        "threads: \(threads)\n" + yaml("file: { path: '\(scratch("*.log"))', join: { indented: true } }")
      ) { $0.reading.blockBytes = block }
      #expect(reading.runToEnd() == .completed)
      #expect(reading.events == Self.events + [#"["d\n 4",0]"#])
    }
  }

  @Test func aCompressedFile() throws {
    scratch.append(Self.lines, to: "a.log")
    let gzip = Process()
    gzip.executableURL = URL(fileURLWithPath: "/usr/bin/gzip")
    gzip.arguments = [scratch("a.log")]
    try gzip.run()
    gzip.waitUntilExit()
    let reading = try RealPipeline(yaml("file: { path: '\(scratch("a.log.gz"))', join: { indented: true } }"))
    #expect(reading.runToEnd() == .completed)
    #expect(reading.events == Self.events)
  }

  /// An overlong line is not part of an event.
  @Test func aLongLineEndsTheEvent() throws {
    scratch.append("a\n 1\n \(String(repeating: "x", count: 40))\n 2\nb\n", to: "a.log")
    for (policy, expected) in [
      ("reject", [#"["a\n 1",0]"#, #"[" 2",47]"#, #"["b",50]"#]),
      ("cut", [#"["a\n 1\n xxxxxxxxx",0]"#, #"[" 2",47]"#, #"["b",50]"#]),
    ] {
      let reading = try RealPipeline(
        yaml("file: { path: '\(scratch("a.log"))', maxLine: 10B, whenTooLong: \(policy), join: { indented: true } }"))
      #expect(reading.runToEnd() == .completed)
      #expect(reading.events == expected)
      #expect(reading.probe("bad").events.count == (policy == "reject" ? 1 : 0))
      // The last event ends after the wait, which is longer than the test.
      let following = try RealPipeline(
        followed("indented: true, wait: 1h", ", maxLine: 10B, whenTooLong: \(policy)"))
      following.run { following.events.count >= expected.count - 1 }
      #expect(following.events == expected.dropLast())
    }
  }

  // MARK: Followed

  @Test func theLastEventWaits() throws {
    scratch.append("x\na\n 1\n", to: "a.log")
    let pipeline = try VirtualPipeline(followed("indented: true, wait: 2s"))
    #expect(pipeline.settle { pipeline.out.count == 1 })
    pipeline.run(until: .milliseconds(1999))
    #expect(pipeline.out.count == 1)
    // Another line restarts the time limit.
    scratch.append(" 2\ny\nb\n", to: "a.log")
    #expect(pipeline.settle { pipeline.out.count == 3 })
    pipeline.run(until: .milliseconds(3998))
    #expect(pipeline.out.count == 3)
    pipeline.run(until: .milliseconds(3999))
    #expect(
      pipeline.out == [
        #"0s ["x",0]"#, #"1s999ms ["a\n 1\n 2",2]"#, #"1s999ms ["y",10]"#, #"3s999ms ["b",12]"#,
      ])
    // The lines that follow then are another event.
    scratch.append(" 3\nend\n", to: "a.log")
    #expect(pipeline.settle { pipeline.out.count == 5 })
    #expect(pipeline.out.last == #"3s999ms [" 3",14]"#)
  }

  /// Wherever a run ends, the next one sends the unsent events as a whole.
  @Test(arguments: 1...6) func continuesInFrontOfTheEventAtHand(_ cut: Int) throws {
    let lines = Self.lines.split(separator: "\n").map { "\($0)\n" }
    let yaml = followed("indented: true, wait: 1h")
    scratch.append(lines.prefix(cut).joined(), to: "a.log")
    let first = try RealPipeline(yaml)
    let whole = [0, 0, 0, 0, 1, 2, 2][cut]
    first.run { first.events.count >= whole }
    let state = try #require(first.suspend())
    scratch.append(lines.dropFirst(cut).joined() + "end\n", to: "a.log")
    let second = try RealPipeline(yaml, restoring: state)
    second.run { first.events.count + second.events.count >= 3 }
    #expect(first.events + second.events == Self.events)
  }

  @Test func aRotatedFileEndsItsEvent() throws {
    scratch.append("a\n 1\n", to: "a.log")
    let pipeline = try RealPipeline(followed("indented: true, wait: 1h", ", rotateWait: 1ms"))
    pipeline.run { pipeline.log.contains { $0.contains("following") } }
    #expect(rename(scratch("a.log"), scratch("a.log.1")) == 0)
    scratch.append(" 2\nb\n", to: "a.log")
    pipeline.run { pipeline.events.count >= 2 }
    #expect(pipeline.events == [#"["a\n 1",0]"#, #"[" 2",0]"#])
  }

  /// The last event of a file comes before the first of its successor, however long it could wait, and wherever the run ends.
  @Test(arguments: 0...4) func rotatedFilesKeepTheirOrder(_ cut: Int) throws {
    let yaml = followed("start: '^[a-z]', wait: 1h", ", rotateWait: 1h, start: beginning")
    var pipeline: RealPipeline? = try RealPipeline(yaml)
    var seen: [String] = []
    func restart(_ step: Int) throws {
      guard step == cut, let old = pipeline else { return }
      let state = try #require(old.suspend())
      seen += old.events
      pipeline = try RealPipeline(yaml, restoring: state)
    }
    func wait(_ count: Int) { pipeline?.run { seen.count + (pipeline?.events.count ?? 0) >= count } }
    scratch.append("x\na\n", to: "a.log")
    wait(1)
    try restart(0)
    #expect(rename(scratch("a.log"), scratch("a.log.1")) == 0)
    try restart(1)
    // The writer still has the old file open for a while.
    scratch.append(" 1\n", to: "a.log.1")
    try restart(2)
    scratch.append("b\n 2\n", to: "a.log")
    wait(2)
    try restart(3)
    #expect(rename(scratch("a.log.1"), scratch("a.log.2")) == 0)
    #expect(rename(scratch("a.log"), scratch("a.log.1")) == 0)
    try restart(4)
    scratch.append("c\nd\n", to: "a.log")
    wait(4)
    seen += pipeline?.events ?? []
    #expect(seen == [#"["x",0]"#, #"["a\n 1",2]"#, #"["b\n 2",0]"#, #"["c",0]"#])
  }

  /// Files that are not rotations of each other wait separately.
  @Test func otherFilesDoNotEndEvents() throws {
    scratch.append("a\n", to: "a.log")
    let pipeline = try RealPipeline(
      yaml("file: { path: '\(scratch("*.log"))', follow: true, start: beginning, join: { indented: true, wait: 1h } }"))
    pipeline.run { pipeline.execution.hasBegun }
    scratch.append("b\nc\n", to: "b.log")
    pipeline.run { pipeline.events.count >= 1 }
    scratch.append(" 1\nd\n", to: "a.log")
    pipeline.run { pipeline.events.count >= 2 }
    #expect(pipeline.events == [#"["b",0]"#, #"["a\n 1",0]"#])
  }

  @Test func aTruncatedFileEndsItsEvent() throws {
    scratch.append("x\na\n 1\n", to: "a.log")
    let pipeline = try RealPipeline(followed("indented: true, wait: 1h"))
    pipeline.run { pipeline.events.count >= 1 }
    #expect(truncate(scratch("a.log"), 0) == 0)
    pipeline.run { pipeline.events.count >= 2 }
    scratch.append(" 2\nb\n", to: "a.log")
    pipeline.run { pipeline.events.count >= 3 }
    #expect(pipeline.events == [#"["x",0]"#, #"["a\n 1",2]"#, #"[" 2",0]"#])
  }

  @Test func aStopSendsTheEventAtHand() throws {
    scratch.append("x\na\n 1\n", to: "a.log")
    let pipeline = try RealPipeline(followed("indented: true, wait: 1h"))
    pipeline.run { pipeline.events.count >= 1 }
    pipeline.inTurn { $0.execution.drain() }
    #expect(pipeline.runToEnd() == .completed)
    #expect(pipeline.events == [#"["x",0]"#, #"["a\n 1",2]"#])
  }

  // MARK: Programs

  /// The program keeps running, so only the time limit ends the last event.
  @Test func whatAProgramWrites() throws {
    #expect(mkfifo(scratch("gate"), 0o600) == 0)
    let pipeline = try RealPipeline(
      yaml(
        "exec: { shell: 'printf \"a\\n 1\\nb\\n\"; read x < \(scratch("gate"))', streaming: true, join: { indented: true, wait: 1ms } }"
      ))
    pipeline.run { pipeline.events.count >= 2 }
    #expect(pipeline.events == [#"["a\n 1",0]"#, #"["b",5]"#])
  }

  @Test func whatAProgramHasWrittenAtItsEnd() throws {
    for streaming in [true, false] {
      let pipeline = try RealPipeline(
        yaml("exec: { shell: 'printf \"a\\n 1\\nb\\n\"', streaming: \(streaming), join: { indented: true, wait: 1h } }")
      )
      #expect(pipeline.runToEnd() == .completed)
      #expect(pipeline.events == [#"["a\n 1",0]"#, #"["b",5]"#])
    }
  }

  // MARK: Sockets

  @Test func whatConnectionsSend() throws {
    let pipeline = try RealPipeline(yaml("unix: { path: '\(scratch("s"))', join: { indented: true, wait: 20ms } }"))
    pipeline.run { pipeline.log.contains { $0.contains("listening") } }
    let (one, two) = (try #require(SocketClient(path: scratch("s"))), try #require(SocketClient(path: scratch("s"))))
    one.send("a\n 1\n")
    two.send("b\n 2\nc\n")
    pipeline.run { pipeline.events.count >= 3 }
    #expect(pipeline.events.sorted() == [#"["a\n 1",0]"#, #"["b\n 2",0]"#, #"["c",5]"#])
    // Later lines are another event; the end of the connection ends it.
    one.send(" 3\n")
    one.end()
    pipeline.run { pipeline.events.count >= 4 }
    #expect(pipeline.events.last == #"[" 3",5]"#)
    two.end()
  }

  // MARK: Checks

  @Test(
    arguments: [
      ("join: {}", "'join' has no rule for lines that belong together"),
      ("join: { start: a, end: b }", "'join' has 'start' and 'end', and one rule decides"),
      ("join: { start: '(' }", "the pattern does not compile: missing ): ("),
      ("join: { end: '' }", "the pattern of 'end' is empty, so every line matches"),
      ("join: { indented: true }, decode: csv", "'join' joins lines, and 'decode: csv' does not read joined ones"),
      (
        "join: { indented: true }, decode: { regex: combined }",
        "'join' joins lines, and 'decode: regex: combined' does not read joined ones"
      ),
    ])
  func mistakes(_ parameters: String, _ message: String) throws {
    do {
      _ = try PipelineText.compile(yaml("file: { path: a.log, \(parameters) }"))
      Issue.record("it is accepted")
    } catch {
      #expect("\(error)".contains(message), "\(error)")
    }
  }
}
