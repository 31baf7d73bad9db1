import Foundation
import PipelineCore
import PipelineHost
import PipelineTestSupport
import Testing

/// Files in which several senders, or the streams of a container, write lines of one event; CSV with lines before its header.
@Suite struct KeyedLinesTests {
  let scratch = Scratch()

  private func yaml(_ source: String, _ event: String = "event") -> String {
    """
    sources: { input: { \(source) } }
    sinks:
      out: { from: input, chain: [ { map: "[\(event), meta.offset]" } ], probe: {} }
      bad: { from: input.errors, chain: [ { map: "[event.error, event.?offset]" } ], probe: {} }
    """
  }

  private func followed(_ more: String, _ event: String = "event") -> String {
    yaml("file: { path: '\(scratch("a.log"))', follow: true, \(more) }", event)
  }

  // MARK: Keys

  private static let join = #"join: { start: '^\w+ \d', by: '^\w+', wait: 2s }"#

  /// Waiting events are sent in the order of their first lines; a complete event waits for those before it.
  @Test func eachKeyWaitsForItsOwnLines() throws {
    scratch.append("w;\na 1\nb 1;\n", to: "a.log")
    let pipeline = try VirtualPipeline(followed(#"join: { end: ';$', by: '^\w+', wait: 2s }"#))
    #expect(pipeline.settle { pipeline.out.count == 1 })
    pipeline.run(until: .milliseconds(1999))
    #expect(pipeline.out == [#"0s ["w;",0]"#])
    pipeline.run(until: .milliseconds(2000))
    #expect(pipeline.out.dropFirst() == [#"2s ["a 1",3]"#, #"2s ["b 1;",7]"#])
    // A further line with this key is then another event.
    scratch.append("a x;\n", to: "a.log")
    #expect(pipeline.settle { pipeline.out.count == 4 })
    #expect(pipeline.out.last == #"2s ["a x;",12]"#)
  }

  private static let mixed = "a 1\nb 1\na  x\nb  y\na 2\nb  z\na  w\nb 2\n"
  private static let mixedEvents = [
    #"["a 1\na  x",0]"#, #"["b 1\nb  y\nb  z",4]"#, #"["a 2\na  w",18]"#, #"["b 2",32]"#,
  ]

  @Test func aFileReadOnce() throws {
    scratch.append(Self.mixed, to: "a.log")
    for block in [1, 3, 7, 4096] {
      let reading = try RealPipeline(
        yaml("file: { path: '\(scratch("a.log"))', \(Self.join.replacing(", wait: 2s", with: "")) }")
      ) { $0.reading.blockBytes = block }
      #expect(reading.runToEnd() == .completed)
      #expect(reading.events == Self.mixedEvents)
    }
  }

  /// Wherever a run ends, the next one sends exactly the unsent events, as a whole.
  @Test(arguments: 1...8) func continuesWithTheEventsAtHand(_ cut: Int) throws {
    let lines = Self.mixed.split(separator: "\n").map { "\($0)\n" }
    let yaml = followed(Self.join.replacing("2s", with: "1h"))
    scratch.append(lines.prefix(cut).joined(), to: "a.log")
    let first = try RealPipeline(yaml)
    let whole = [0, 0, 0, 0, 0, 1, 1, 1, 2][cut]
    first.run { first.events.count >= whole && first.execution.hasBegun }
    let state = try #require(first.suspend())
    scratch.append(lines.dropFirst(cut).joined() + "a 9\nb 9\n", to: "a.log")
    let second = try RealPipeline(yaml, restoring: state)
    second.run { first.events.count + second.events.count >= 4 }
    #expect(first.events + second.events == Self.mixedEvents)
  }

  // MARK: Containers

  private static let pieces = [
    "2026-01-31T00:00:00Z stdout F one\n", "2026-01-31T00:00:00Z stdout P two \n",
    "2026-01-31T00:00:00Z stderr F err\n", "2026-01-31T00:00:00Z stdout P and \n", "2026-01-31T00:00:00Z stderr P e\n",
    "2026-01-31T00:00:00Z stdout F more\n", "2026-01-31T00:00:00Z stderr F rr\n",
    "2026-01-31T00:00:00Z stdout F last\n",
  ]
  private static let logs = ["one", "two and more", "err", "err", "last"]

  /// Partial lines are read again if their line was not sent, and sent lines are not.
  @Test(arguments: 0...8) func aContainersLinesOverARestart(_ cut: Int) throws {
    let yaml = followed("decode: { container: { wait: 1h } }", "event.message")
    scratch.append(Self.pieces.prefix(cut).joined(), to: "a.log")
    let first = try RealPipeline(yaml)
    let whole = [0, 1, 1, 1, 1, 1, 3, 4, 5][cut]
    first.run { first.events.count >= whole && first.execution.hasBegun }
    let state = try #require(first.suspend())
    scratch.append(Self.pieces.dropFirst(cut).joined(), to: "a.log")
    let second = try RealPipeline(yaml, restoring: state)
    second.run { first.events.count + second.events.count >= Self.logs.count }
    #expect((first.events + second.events).map { String($0.dropFirst(2).prefix { $0 != "\"" }) } == Self.logs)
  }

  /// A runtime rotates the file between two parts of a line, while the file is followed or while it is not.
  @Test(arguments: [false, true]) func aContainersLineOverARotation(_ isRestarted: Bool) throws {
    let yaml = followed("rotateWait: 1h, decode: { container: { wait: 1h } }", "event.message")
    scratch.append(
      "2026-01-31T00:00:00Z stdout F one\n2026-01-31T00:00:00Z stdout P two \n", to: "a.log")
    let first = try RealPipeline(yaml)
    first.run { first.events.count >= 1 && first.execution.hasBegun }
    let state = isRestarted ? first.suspend() : nil
    #expect(!isRestarted || state != nil)
    #expect(rename(scratch("a.log"), scratch("a.log.1")) == 0)
    scratch.append(
      "2026-01-31T00:00:00Z stderr F err\n2026-01-31T00:00:00Z stdout F and more\n2026-01-31T00:00:00Z stdout F last\n",
      to: "a.log")
    let second = try isRestarted ? RealPipeline(yaml, restoring: state) : first
    let before = isRestarted ? first.events : []
    second.run { before.count + second.events.count >= 4 }
    let logs = (before + second.events).map { String($0.dropFirst(2).prefix { $0 != "\"" }) }
    #expect(logs == ["one", "two and more", "err", "last"])
    // None of it is repeated.
    let end = try #require(second.suspend())
    scratch.append("2026-01-31T00:00:00Z stdout F end\n", to: "a.log")
    let third = try RealPipeline(yaml, restoring: end)
    third.run { third.events.count >= 1 }
    #expect(third.events.map { String($0.dropFirst(2).prefix { $0 != "\"" }) } == ["end"])
  }

  @Test func piecesWaitNoLongerThanTheySay() throws {
    scratch.append("2026-01-31T00:00:00Z stdout F w\n2026-01-31T00:00:00Z stdout P half\n", to: "a.log")
    let pipeline = try VirtualPipeline(followed("decode: { container: { wait: 3s } }", "event.message"))
    #expect(pipeline.settle { pipeline.out.count == 1 })
    pipeline.run(until: .milliseconds(2999))
    #expect(pipeline.out.count == 1)
    pipeline.run(until: .milliseconds(3000))
    #expect(pipeline.out.last == #"3s ["half",32]"#)
  }

  @Test func aStopSendsThePiecesAtHand() throws {
    scratch.append("2026-01-31T00:00:00Z stdout F one\n2026-01-31T00:00:00Z stdout P half\n", to: "a.log")
    let pipeline = try RealPipeline(followed("decode: container", "event.message"))
    pipeline.run { pipeline.events.count >= 1 }
    pipeline.inTurn { $0.execution.drain() }
    #expect(pipeline.runToEnd() == .completed)
    #expect(pipeline.events == [#"["one",0]"#, #"["half",34]"#])
  }

  @Test func aLineOfTooManyPiecesIsAnError() throws {
    scratch.append(
      "2026-01-31T00:00:00Z stdout P aaaaaaaaaa\n2026-01-31T00:00:00Z stdout P b\n2026-01-31T00:00:00Z stdout F c\n2026-01-31T00:00:00Z stdout F d\n",
      to: "a.log")
    let pipeline = try RealPipeline(
      yaml("file: { path: '\(scratch("a.log"))', decode: { container: { maxBytes: 60B } } }", "event.message"))
    #expect(pipeline.runToEnd() == .completed)
    #expect(pipeline.events == [#"["d",105]"#])
    #expect(pipeline.probe("bad").events.first?.contains("longer than 60 bytes") == true)
  }

  // MARK: CSV

  private static let rows = "Report\n\nid,name\n1,ann\n2,bob\n"

  @Test(arguments: ["skipLines: 2", "headerAt: '^id,'"]) func csvOverARestart(_ option: String) throws {
    let lines = Self.rows.split(separator: "\n", omittingEmptySubsequences: false).dropLast().map { "\($0)\n" }
    for cut in 0...lines.count {
      let name = "\(cut).csv"
      let yaml = yaml("file: { path: '\(scratch(name))', follow: true, decode: { csv: { \(option) } } }", "event.name")
      scratch.append(lines.prefix(cut).joined(), to: name)
      let first = try RealPipeline(yaml)
      first.run { first.events.count >= max(0, cut - 3) && first.execution.hasBegun }
      let state = try #require(first.suspend())
      scratch.append(lines.dropFirst(cut).joined(), to: name)
      let second = try RealPipeline(yaml, restoring: state)
      second.run { first.events.count + second.events.count >= 2 }
      #expect(first.events + second.events == [#"["ann",16]"#, #"["bob",22]"#], "cut at \(cut)")
      #expect(first.probe("bad").events.count + second.probe("bad").events.count == 0)
    }
  }

  /// Each file has its own lines before its header.
  @Test func csvOverARotation() throws {
    scratch.append(Self.rows, to: "a.log")
    let pipeline = try RealPipeline(
      followed("rotateWait: 1ms, decode: { csv: { headerAt: '^id,' } }", "event.name"))
    pipeline.run { pipeline.events.count >= 2 }
    #expect(rename(scratch("a.log"), scratch("a.log.1")) == 0)
    scratch.append("Another\ntitle\nid,name\n3,cid\n", to: "a.log")
    pipeline.run { pipeline.events.count >= 3 }
    #expect(pipeline.events == [#"["ann",16]"#, #"["bob",22]"#, #"["cid",22]"#])
    #expect(pipeline.probe("bad").events.count == 0)
  }

  @Test func aFileWithoutAHeaderIsAnError() throws {
    scratch.append("a,b\n1,2\n", to: "a.log")
    let pipeline = try RealPipeline(
      yaml("file: { path: '\(scratch("a.log"))', decode: { csv: { headerAt: '^id,' } } }"))
    #expect(pipeline.runToEnd() == .completed)
    #expect(pipeline.events == [])
    #expect(pipeline.probe("bad").events.count == 1)
    #expect(pipeline.probe("bad").events.first?.contains("no header in the first 2 lines") == true)
  }

  // MARK: Checks

  @Test(
    arguments: [
      ("file: { path: a.log, join: { start: a, by: '(' } }", "the pattern does not compile: missing ): ("),
      ("file: { path: a.log, join: { start: a, by: '' } }", "the pattern of 'by' is empty"),
      ("file: { path: a.log, join: { by: a } }", "'join' has no rule for lines that belong together"),
      ("file: { path: a.log, join: { start: a, maxKeys: 3 } }", "'maxKeys'"),
      (
        "file: { path: a.log, decode: container, join: { start: a, by: b } }",
        "that of 'decode: container' is the stream"
      ),
      (
        "tcp: { address: 127.0.0.1:0, join: { start: a, by: b } }",
        "'by' of 'join' has no effect here: each connection joins its own lines"
      ),
      ("file: { path: a.csv, decode: { csv: { headerAt: '(' } } }", "the pattern does not compile: missing ): ("),
      (
        "file: { path: a.csv, decode: { csv: { headerAt: a, header: false } } }",
        "'headerAt' finds the header, and 'header' says that the input has none"
      ), ("file: { path: a.csv, decode: { csv: { skipLines: -1 } } }", "skipLines"),
    ])
  func mistakes(_ source: String, _ message: String) {
    let complaints = PipelineText.complaints(yaml(source))
    #expect(complaints.contains { $0.contains(message) }, "\(complaints)")
  }
}
