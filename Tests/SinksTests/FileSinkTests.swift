import Foundation
import PipelineCore
import PipelineHost
import Testing

@Suite struct FileSinkTests {
  let scratch = Scratch()

  private func run(_ parameters: String, events: String = "[1, 2]", chain: String = "[]") throws
    -> RealPipeline
  {
    let writing = try RealPipeline(
      """
      sources:
        events: { values: \(events) }
      signals:
        made:
          from: events
          chain: \(chain)
      sinks:
        store:
          from: made
          file: \(parameters)
      """)
    writing.runToEnd()
    return writing
  }

  @Test func appends() throws {
    scratch.append("0\n", to: "a.log")
    let writing = try run(scratch("a.log"))
    #expect(writing.outcome == .completed)
    #expect(scratch.read("a.log") == "0\n1\n2\n")
    #expect(writing.counters.sent == 2)
  }

  @Test func closesATornLineFirst() throws {
    scratch.append("{\"torn\":", to: "a.log")
    _ = try run(scratch("a.log"))
    #expect(scratch.read("a.log") == "{\"torn\":\n1\n2\n")
  }

  @Test func makesTheFile() throws {
    _ = try run(scratch("new.log"))
    #expect(scratch.read("new.log") == "1\n2\n")
    var status = stat()
    #expect(stat(scratch("new.log"), &status) == 0)
    #expect(status.st_mode & 0o007 == 0)
  }

  @Test(arguments: ["never", "batch", "interval, syncInterval: 1ms"])
  func synchronizes(_ mode: String) throws {
    let writing = try run("{ path: '\(scratch("a.log"))', sync: \(mode) }")
    #expect(writing.outcome == .completed)
    #expect(scratch.read("a.log") == "1\n2\n")
  }

  @Test(arguments: [
    ("json", "{\"a\":1,\"b\":\"x\\ny\"}\n"), ("csv", "a,b\n1,\"x\ny\"\n"),
    ("{ csv: { columns: [b], header: false } }", "\"x\ny\"\n"), ("logfmt", "a=1 b=\"x\\ny\"\n"),
    ("{ json: { indent: 2 } }", "{\n  \"a\": 1,\n  \"b\": \"x\\ny\"\n}\n"),
  ])
  func encodes(_ encode: String, _ text: String) throws {
    _ = try run("{ path: '\(scratch("a"))', encode: \(encode) }", events: #"[ { a: 1, b: "x\ny" } ]"#)
    #expect(scratch.read("a") == text)
  }

  @Test func replacesInOneStep() throws {
    scratch.append("old", to: "a.json")
    let reader = try #require(FileHandle(forReadingAtPath: scratch("a.json")))
    let writing = try run(
      "{ path: '\(scratch("a.json"))', mode: replace, sync: batch }", events: "[1, 2, { three: 3 }]")
    #expect(writing.outcome == .completed)
    #expect(scratch.read("a.json") == "{\"three\":3}\n")
    // A reader that had opened the old content still reads all of it.
    #expect(String(decoding: reader.readDataToEndOfFile(), as: UTF8.self) == "old")
    #expect(try FileManager.default.contentsOfDirectory(atPath: scratch.path) == ["a.json"])
  }

  @Test func anEventThatCannotBeWrittenReplacesNothing() throws {
    let writing = try run(
      "{ path: '\(scratch("a.csv"))', mode: replace, encode: csv }", events: "[ { a: 1 }, 'no row' ]")
    #expect(scratch.read("a.csv") == "a\n1\n")
    #expect(writing.counters.sent == 1)
    #expect(writing.counters.rejected == 1)
    #expect(writing.deadLetters.count == 1)
    #expect(writing.deadLetters.first?.contains("the event cannot be written") == true)
  }

  @Test func anEventThatCannotBeWrittenSpoilsNoOther() throws {
    let writing = try run("{ path: '\(scratch("a.csv"))', encode: csv }", events: "[ { a: 1 }, no row, { a: 2 } ]")
    #expect(scratch.read("a.csv") == "a\n1\n2\n")
    #expect(writing.counters.rejected == 1)
    #expect(writing.outcome == .completed)
  }

  @Test(arguments: ["append", "replace"])
  func aMissingDirectoryIsAFailureThatNamesTheFile(_ mode: String) throws {
    let path = scratch("missing/a.log")
    let writing = try run("{ path: '\(path)', mode: \(mode) }")
    let failure = try #require(writing.failure)
    #expect(failure.kind == .sink)
    #expect(failure.message.contains(path))
    #expect(failure.message.contains("No such file or directory"))
    #expect(failure.location?.line == 8)
  }

  @Test func aDirectoryIsNoFile() throws {
    #expect(try run("'\(scratch.path)'").failure?.message.contains(scratch.path) == true)
  }

  @Test func opensAnewWhatRotationRenamed() throws {
    let writing = try RealPipeline(
      """
      sources:
        clock: { interval: { every: 5ms } }
      signals:
        ticks: { from: clock, chain: [ { map: event.tick } ] }
      sinks:
        store: { from: ticks, file: '\(scratch("a.log"))' }
      """)
    #expect(writing.run { scratch.read("a.log").contains("\n") })
    rename(scratch("a.log"), scratch("a.log.1"))
    #expect(writing.run { !scratch.read("a.log").isEmpty })
    writing.inTurn { $0.execution.drain() }
    #expect(writing.runToEnd() == .completed)
    let all = (scratch.read("a.log.1") + scratch.read("a.log")).split(separator: "\n").compactMap { Int($0) }
    #expect(all == Array(1...max(all.count, 1)))
    #expect(all.count == Int(writing.counters.sent))
  }

  @Test func writesMuch() throws {
    let line = String(repeating: "x", count: 1000)
    scratch.append(String(repeating: line + "\n", count: 20_000), to: "in.log")
    let writing = try RealPipeline(
      """
      sources:
        input: { file: '\(scratch("in.log"))' }
      sinks:
        store: { from: input, file: { path: '\(scratch("out.log"))', encode: text } }
      """)
    writing.runToEnd()
    #expect(writing.outcome == .completed)
    #expect(scratch.read("out.log") == scratch.read("in.log"))
    #expect(!writing.executor.isInputPaused)
  }

  @Test(arguments: [
    ("''", "'path' of 'file' is empty"), ("{ encode: json }", "path"),
    ("\"a\\0b\"", "'path' of 'file' holds a NUL character"), ("\"a\\nb\"", "'path' of 'file' holds a line feed"),
    ("{ path: a, mode: prepend }", "prepend"), ("{ path: a, syncInterval: 0s }", "syncInterval"),
    ("{ path: a, encode: xml }", "there is no encoder 'xml'"),
  ])
  func refusesAtCheckTime(_ parameters: String, _ reason: String) {
    let complaints = PipelineText.complaints(
      """
      sources:
        events: { values: [1] }
      sinks:
        store:
          from: events
          file: \(parameters)
      """)
    #expect(complaints.count == 1, "\(complaints)")
    #expect(complaints.first?.contains(reason) == true, "\(complaints)")
    #expect(complaints.first?.hasPrefix("6:") == true, "\(complaints)")
  }
}
