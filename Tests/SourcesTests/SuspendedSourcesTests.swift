import Glibc
import PipelineCore
import PipelineHost
import PipelineTestSupport
import Testing

/// Sources of a suspended pipeline: the next execution sends the unsent events, and none twice.
@Suite struct SuspendedSourcesTests {
  let scratch = Scratch()

  private func yaml(_ file: String, chain: String = "[ { map: event } ]") -> String {
    """
    sources:
      input: { file: \(file) }
    signals:
      seen: { from: input, chain: \(chain) }
    sinks:
      out: { from: seen, probe: {} }
    """
  }

  /// Lines are written while pipelines start and stop, across rotations too.
  @Test(arguments: ["beginning", "end"], [1, 2, 3] as [UInt64])
  func followedFilesContinue(_ start: String, _ seed: UInt64) throws {
    var random = SplitMix(seed)
    scratch.append("old\n", to: "a.log")
    let text = yaml("{ path: '\(scratch("*.log"))', follow: true, start: \(start), rotateWait: 1h }")
    var state: [UInt8]?
    var written = start == "beginning" ? ["old"] : []
    var seen: [String] = []
    for round in 0..<12 {
      let pipeline = try RealPipeline(text, restoring: state)
      pipeline.run { pipeline.execution.hasBegun }
      // Some lines are in the files before the pipeline starts, some arrive while it is being suspended.
      let lines = (0..<(1 + Int(random.next() % 40))).map { "\(round).\($0)" }
      for line in lines {
        if random.next() % 16 == 0 { rotate() }
        scratch.append(line + "\n", to: "a.log")
      }
      written += lines
      let wanted = Int(random.next() % UInt64(lines.count + 1))
      pipeline.run { pipeline.events.count >= wanted }
      state = try #require(pipeline.suspend()) as [UInt8]
      #expect(pipeline.outcome == .completed)
      seen += pipeline.events
    }
    let last = try RealPipeline(text, restoring: state)
    last.run { last.events.count >= written.count - seen.count }
    #expect(last.execution.refusals.isEmpty)
    seen += last.events
    // Files created within one tick of the file system's clock have no defined order.
    #expect(seen.sorted() == written.map { "\"\($0)\"" }.sorted())
  }

  /// A removed source without a state is not reported; one with a position is.
  @Test func onlyLostStatesAreReported() throws {
    scratch.append("one\n", to: "a.log")
    func text(_ file: Bool, _ socket: Bool) -> String {
      """
      sources:
        ticks: { interval: 1h }
      \(file ? "  file: { file: { path: '\(scratch("a.log"))', follow: true } }" : "")
      \(socket ? "  socket: { unix: '\(scratch("socket"))' }" : "")
      sinks:
        out: { from: ticks, probe: {} }
      \(file ? "  files: { from: file, probe: {} }" : "")
      \(socket ? "  sockets: { from: socket, probe: {} }" : "")
      """
    }
    let first = try RealPipeline(text(true, true))
    first.run { first.counters.received >= 1 }
    let state = try #require(first.suspend())
    let second = try RealPipeline(text(true, false), restoring: state)
    second.run { second.execution.hasBegun }
    #expect(second.execution.refusals == [])
    let third = try RealPipeline(text(false, true), restoring: state)
    third.run { third.execution.hasBegun }
    #expect(
      third.execution.refusals.map(\.message)
        == ["the pipeline has no step 'file/file' any more, so its state is dropped"])
    // If it was only renamed, the help says how to continue.
    #expect(third.execution.refusals.first?.help?.contains("give it 'movedFrom: file'") == true)
  }

  /// As logrotate does: the newest of the old files is number 1.
  private func rotate() {
    var last = 0
    while access(scratch("a.log.\(last + 1)"), F_OK) == 0 { last += 1 }
    for number in stride(from: last, to: 0, by: -1) { move("a.log.\(number)", to: "a.log.\(number + 1)") }
    move("a.log", to: "a.log.1")
  }

  private func move(_ name: String, to other: String) { #expect(rename(scratch(name), scratch(other)) == 0) }

  /// The header row and a row with open quotes belong to the position.
  @Test func followedTablesContinue() throws {
    let text = yaml("{ path: '\(scratch("a.csv"))', follow: true, decode: csv }")
    scratch.append("name,text\nann,\"one\ntwo\"\nbob,\"three\n", to: "a.csv")
    let first = try RealPipeline(text)
    first.run { first.events.count == 1 }
    let state = try #require(first.suspend())
    scratch.append("four\"\ncarl,five\n", to: "a.csv")
    let second = try RealPipeline(text, restoring: state)
    second.run { second.events.count == 2 }
    #expect(first.events == [#"{"name":"ann","text":"one\ntwo"}"#])
    #expect(second.events == [#"{"name":"bob","text":"three\nfour"}"#, #"{"name":"carl","text":"five"}"#])
  }

  /// Files that are read once, in small blocks, by several threads.
  @Test(arguments: ["text", "json", "csv"])
  func filesContinue(_ decode: String) throws {
    var wanted: [String] = []
    for name in ["a", "b", "c"] {
      if decode == "csv" { scratch.append("n\n", to: name) }
      for number in 0..<200 {
        scratch.append("\(number)\n", to: name)
        wanted.append(decode == "json" ? "\(number)" : decode == "csv" ? #"{"n":"\#(number)"}"# : #""\#(number)""#)
      }
    }
    let text = yaml("{ path: '\(scratch("?"))', decode: \(decode) }")
    var state: [UInt8]?
    var seen: [String] = []
    for step in [0, 1, 50, 100, 201, 1] {
      let pipeline = try RealPipeline(text, restoring: state) {
        $0.reading.blockBytes = 64
        $0.reading.startsAllThreads = true
      }
      pipeline.run { pipeline.events.count >= step || pipeline.outcome != nil }
      #expect(pipeline.outcome == nil)
      state = try #require(pipeline.suspend()) as [UInt8]
      seen += pipeline.events
    }
    let last = try RealPipeline(text, restoring: state)
    last.runToEnd()
    #expect(seen + last.events == wanted)
  }

  /// A position stays valid for other parameters if it still makes sense.
  @Test func positionsFitOtherParameters() throws {
    scratch.append("1\n2\n", to: "a.log")
    let first = try RealPipeline(yaml("{ path: '\(scratch("a.log"))', follow: true }"))
    first.run { first.events.count == 2 }
    let state = try #require(first.suspend())
    scratch.append("3\n", to: "a.log")
    scratch.append("4\n", to: "b.log")
    let second = try RealPipeline(
      yaml("{ path: '\(scratch("*.log"))', follow: true, start: end, decode: json }"), restoring: state)
    second.run { second.events.count == 2 }
    #expect(Set(second.events) == ["3", "4"])
  }

  /// Columns that were named by a row of another format cannot be guessed.
  @Test func aTableThatIsReadOtherwiseBeginsAgain() throws {
    scratch.append("a;b\n1;2\n", to: "a.csv")
    let first = try RealPipeline(yaml("{ path: '\(scratch("a.csv"))', follow: true, decode: csv }"))
    first.run { first.events.count == 1 }
    let state = try #require(first.suspend())
    let second = try RealPipeline(
      yaml("{ path: '\(scratch("a.csv"))', follow: true, decode: { csv: { delimiter: ';' } } }"), restoring: state)
    second.run { second.events.count == 1 }
    #expect(second.events == [#"{"a":"1","b":"2"}"#])
    #expect(second.log.contains { $0.contains("is read again from its start") })
  }

  /// After a failure, reading continues after the event that failed; nothing is read twice.
  @Test func filesContinueBehindAFailure() throws {
    for name in ["followed", "once"] { scratch.append("1\n2\nx\n3\n4\n", to: name) }
    for file in ["{ path: '\(scratch("followed"))', follow: true }", "'\(scratch("once"))'"] {
      let text = yaml(
        file, chain: "[ { map: int(event), onError: fail }, { scan: { start: 0, next: running + event } } ]")
      let first = try RealPipeline(text) { $0.settings.keepsStateOnFailure = true }
      first.runToEnd()
      #expect(first.events == ["1", "3"])
      #expect(first.failure != nil)
      let state = try #require(first.execution.savedState)
      let second = try RealPipeline(text, restoring: state)
      second.run { second.events.count == 2 || second.outcome != nil }
      // The failed source starts from its beginning.
      #expect(second.events == ["3", "7"])
    }
  }
}
