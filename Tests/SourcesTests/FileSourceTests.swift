import Foundation
import PipelineCore
import PipelineHost
import Testing

@Suite struct FileSourceTests {
  let scratch = Scratch()

  /// The events of the source, and the input that it rejects.
  private func pipeline(_ parameters: String, map: String = "event") throws -> RealPipeline {
    try RealPipeline(
      """
      sources:
        input:
          file: \(parameters)
      signals:
        seen:
          from: input
          chain: [ { map: "\(map)" } ]
      sinks:
        out: { from: seen, probe: {} }
        bad: { from: input.errors, probe: {} }
      """)
  }

  private func read(_ parameters: String, map: String = "event") throws -> RealPipeline {
    let reading = try pipeline(parameters, map: map)
    reading.runToEnd()
    return reading
  }

  // MARK: Once

  @Test func readsLinesWhateverTheirEnds() throws {
    scratch.append("one\r\ntwo\n\nlast, without end", to: "a.txt")
    let reading = try read(scratch("a.txt"), map: "[event, meta.offset]")
    #expect(reading.outcome == .completed)
    #expect(reading.events == [#"["one",0]"#, #"["two",5]"#, #"["",9]"#, #"["last, without end",10]"#])
    #expect(reading.counters.received == 4)
  }

  @Test(arguments: ["", "\n"])
  func smallestFiles(_ text: String) throws {
    scratch.append(text, to: "a.txt")
    #expect(try read(scratch("a.txt")).events == (text.isEmpty ? [] : [#""""#]))
  }

  @Test func readsFilesInTheOrderOfTheirNames() throws {
    for name in ["b.log", "a.log", "c.txt", ".hidden.log"] { scratch.append("\(name)\nx\n", to: name) }
    let reading = try read(
      "{ path: ['\(scratch("*.log"))', '\(scratch("c.txt"))', '\(scratch("a.log"))'] }",
      map: "[event, meta.path, meta.offset, meta.source]")
    #expect(
      reading.events
        == ["a.log", "b.log", "c.txt"].flatMap { name in
          [
            #"["\#(name)","\#(scratch(name))",0,"input"]"#,
            #"["x","\#(scratch(name))",\#(name.utf8.count + 1),"input"]"#,
          ]
        })
  }

  @Test func aPatternWithoutFilesIsAWarning() throws {
    scratch.append("x\n", to: "a.txt")
    let reading = try read("['\(scratch("*.none"))', '\(scratch("*.txt"))']")
    #expect(reading.events == [#""x""#])
    #expect(reading.outcome == .completed)
    #expect(
      reading.log == [
        "warning input/file: test.yaml:3:12: no file matches '\(scratch("*.none"))', so there is nothing to read"
      ])
  }

  @Test func aPatternInADirectoryThatDoesNotExistIsAFailure() throws {
    let reading = try read("'\(scratch("nowhere/*.log"))'")
    let failure = try #require(reading.failure)
    #expect(failure.message == "cannot list \(scratch("nowhere")): No such file or directory")
    #expect(failure.location?.line == 3)
  }

  @Test(
    arguments: [
      ("gzip", [0x1F, 0x8B, 0x08, 0, 0, 0, 0, 0]), ("zstd", [0x28, 0xB5, 0x2F, 0xFD, 4, 0]),
      ("xz", [0xFD, 0x37, 0x7A, 0x58, 0x5A, 0, 0]),
      ("bzip2", Array("BZh9".utf8) + [0x31, 0x41, 0x59, 0x26, 0x53, 0x59]),
    ] as [(String, [UInt8])])
  func compressedInputIsOneFailure(_ form: String, _ start: [UInt8]) throws {
    scratch.append("x\n", to: "a.log")
    scratch.append(start + Array("\n\n\n".utf8), to: "b.log")
    for decode in ["text", "json", "csv", "whole"] {
      let reading = try read("{ path: '\(scratch("*.log"))', decode: \(decode), compression: none }")
      let failure = try #require(reading.failure)
      #expect(failure.message.hasPrefix("cannot read \(scratch("b.log")): it is compressed with \(form), "))
      #expect(failure.message.contains("\(form) -dc FILE | rxd"))
      #expect(failure.location?.line == 3)
      #expect(reading.counters.received <= 1)
    }
    #expect(try read("{ path: '\(scratch("b.log"))', decode: bytes }", map: "size(event)").outcome == .completed)
  }

  @Test func textsThatBeginLikeCompressedOnesAreRead() throws {
    scratch.append("BZh9 is a name\n(\n", to: "a.log")
    #expect(try read(scratch("a.log")).events == [#""BZh9 is a name""#, #""(""#])
  }

  /// Many small files are read by the threads that read the first one, and come in order whoever decodes them.
  @Test(arguments: [1, 2, 5]) func manySmallFilesComeInOrder(_ threads: Int) throws {
    var expected: [String] = []
    for number in 100..<400 {
      let lines = (0..<(number % 7)).map { "\(number) \($0)" }
      scratch.append(
        lines.joined(separator: "\n") + (number % 2 == 0 && !lines.isEmpty ? "\n" : ""), to: "\(number).log")
      expected += lines.enumerated().map { "[\"\($1)\",\"\(scratch("\(number).log"))\",\($0 * 6)]" }
    }
    let reading = try RealPipeline(
      """
      threads: \(threads)
      sources: { input: { file: '\(scratch("*.log"))' } }
      sinks: { out: { from: input, chain: [ { map: "[event, meta.path, meta.offset]" } ], probe: {} } }
      """
    ) { $0.reading.startsAllThreads = true }
    #expect(reading.runToEnd() == .completed)
    #expect(reading.events == expected)
    // Not a turn for each file, and no thread.
    #expect(reading.executor.turns < 150)
  }

  @Test func aMissingFileIsAFailureThatNamesIt() throws {
    scratch.append("x\n", to: "a.txt")
    let reading = try read("['\(scratch("a.txt"))', '\(scratch("nowhere.txt"))']")
    #expect(reading.events == [#""x""#])
    let failure = try #require(reading.failure)
    #expect(failure.kind == .source)
    #expect(failure.message.contains(scratch("nowhere.txt")))
    #expect(failure.message.contains("No such file"))
    #expect(failure.location?.line == 3)
  }

  @Test func aDirectoryIsNoFile() throws {
    let reading = try read("'\(scratch.path)'")
    #expect(reading.failure?.message.contains(scratch.path) == true)
  }

  @Test func anUnreadableFileIsAFailure() throws {
    guard geteuid() != 0 else { return }
    scratch.append("x\n", to: "a.txt")
    chmod(scratch("a.txt"), 0)
    #expect(try read(scratch("a.txt")).failure?.message.contains("ermission denied") == true)
  }

  @Test func aWholeFileIsOneEvent() throws {
    scratch.append("a\nb\n", to: "a.txt")
    scratch.append("c", to: "b.txt")
    scratch.append("", to: "c.txt")
    let reading = try read("{ path: '\(scratch("*.txt"))', decode: whole }")
    #expect(reading.events == [#""a\nb\n""#, #""c""#, #""""#])
  }

  @Test func aWholeFileHasALimit() throws {
    scratch.append(String(repeating: "x", count: 1025), to: "a.txt")
    let reading = try read("{ path: '\(scratch("a.txt"))', decode: whole, maxBytes: 1KiB }")
    #expect(reading.failure?.message.contains("longer than 1024 bytes") == true)
    #expect(reading.failure?.message.contains(scratch("a.txt")) == true)
  }

  @Test func bytesComeAsTheyAre() throws {
    scratch.append([0, 255, 10, 13], to: "a.bin")
    scratch.append([], to: "b.bin")
    let reading = try read("{ path: '\(scratch("*.bin"))', decode: bytes }", map: "size(event)")
    #expect(reading.events == ["4"])
  }

  @Test func eachCSVFileHasItsOwnHeader() throws {
    scratch.append("a,b\n1,\"x\r\ny\"\n2,z", to: "1.csv")
    scratch.append("b;c\n", to: "2.csv")
    scratch.append("c\n3\n", to: "3.csv")
    let reading = try read("{ path: '\(scratch("*.csv"))', decode: csv }", map: "[event, meta.offset]")
    #expect(
      reading.events == [
        #"[{"a":"1","b":"x\r\ny"},4]"#, #"[{"a":"2","b":"z"},13]"#, #"[{"c":"3"},2]"#,
      ])
  }

  @Test func anUnclosedQuoteAtTheEndIsRefused() throws {
    scratch.append("a,b\n1,2\n3,\"x\n", to: "a.csv")
    let reading = try read("{ path: '\(scratch("a.csv"))', decode: csv }")
    #expect(reading.events == [#"{"a":"1","b":"2"}"#])
    #expect(reading.counters.rejected == 1)
    #expect(reading.outcome == .completed)
  }

  @Test func regularExpressionsTakeLinesApart() throws {
    scratch.append("k=1\nnothing\nk=22\n", to: "a.log")
    let reading = try read(
      "{ path: '\(scratch("a.log"))', decode: { regex: { pattern: '^k=(?P<k>[0-9]+)$', types: { k: int } } } }")
    #expect(reading.events == [#"{"k":1}"#, #"{"k":22}"#])
    #expect(reading.counters.rejected == 1)
  }

  @Test(arguments: ["cut", "drop", "reject"])
  func linesThatAreTooLong(_ policy: String) throws {
    let long = String(repeating: "x", count: 3 << 20)
    scratch.append("first\n\(long)\nlast\n\(long)", to: "a.log")
    let reading = try read(
      "{ path: '\(scratch("a.log"))', maxLine: 1MiB, whenTooLong: \(policy) }",
      map: "[size(event), meta.offset]")
    let behind = 6 + (3 << 20) + 1
    let second = behind + 5
    switch policy {
    case "cut":
      #expect(
        reading.events == ["[5,0]", "[1048576,6]", "[4,\(behind)]", "[1048576,\(second)]"])
      #expect(reading.counters.rejected == 0)
    case "drop":
      #expect(reading.events == ["[5,0]", "[4,\(behind)]"])
      #expect(reading.counters.rejected == 0)
    default:
      #expect(reading.events == ["[5,0]", "[4,\(behind)]"])
      #expect(reading.counters.rejected == 2)
      let bad = reading.probe("bad").events
      #expect(bad.count == 2)
      for (letter, offset) in zip(bad, [6, second]) {
        #expect(letter.contains(#""offset":\#(offset),"#))
        #expect(letter.contains("the line has 3145728 bytes, more than the 1048576 that 'maxLine' allows"))
        #expect(letter.utf8.count < 8192)
      }
    }
    #expect(reading.outcome == .completed)
  }

  @Test func tenThousandLines() throws {
    scratch.append((0..<10_000).map { "\($0)\n" }.joined(), to: "a.log")
    let reading = try read(scratch("a.log"), map: "int(event)")
    #expect(reading.events == (0..<10_000).map(String.init))
  }

  @Test func onlyMalformedEventsAreSetAside() throws {
    var text: [UInt8] = []
    var expected: [String] = []
    var offsets: [Int] = []
    for number in 0..<3000 {
      if number % 100 == 7 {
        offsets.append(text.count)
        switch number % 3 {
        case 0: text += Array("{\"n\":\(number)".utf8)
        case 1: text += Array("{\"n\":\"".utf8) + [0xFF, 0xFE] + Array("\"}".utf8)
        default: text += Array("not json".utf8)
        }
      } else {
        text += Array("{\"n\":\(number)}".utf8)
        expected.append("\(number)")
      }
      text.append(10)
    }
    scratch.append(text, to: "a.ndjson")
    let reading = try read("{ path: '\(scratch("a.ndjson"))', decode: ndjson }", map: "event.n")
    #expect(reading.events == expected)
    let bad = reading.probe("bad").events
    #expect(bad.count == 30)
    for (letter, offset) in zip(bad, offsets) {
      #expect(letter.contains(#""offset":\#(offset),"#), "\(letter)")
      #expect(letter.contains(#""path":"\#(scratch("a.ndjson"))""#))
      #expect(letter.contains(#""source":"input""#))
      #expect(letter.hasPrefix(#"{"error":""#) && !letter.hasPrefix(#"{"error":"","#))
    }
    #expect(reading.counters.received == 3000)
    #expect(reading.counters.rejected == 30)
    #expect(reading.counters.sent == 2970)
    #expect(reading.deadLetters.isEmpty)
    #expect(reading.outcome == .completed)
  }

  @Test func theSampleLogIsReadWhole() throws {
    let log = URL(fileURLWithPath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
      .deletingLastPathComponent().appendingPathComponent("pipelines/data/apache-combined.log").path
    let lines = try String(contentsOfFile: log, encoding: .utf8).split(separator: "\n").count
    let reading = try read("{ path: '\(log)', decode: { regex: combined } }", map: "event.status")
    #expect(reading.events.count + Int(reading.counters.rejected) == lines)
    #expect(reading.events.count > lines * 9 / 10)
  }

  @Test(arguments: [
    ("''", "'path' of 'file' is empty"), ("[]", "'path' of 'file' is empty"),
    ("{ path: a, follow: true, decode: whole }", "has no end"),
    ("{ path: a, follow: true, decode: bytes }", "has no end"),
    ("{ path: a, whenTooLong: explode }", "explode"),
    ("{ path: a, decode: { regex: '(' } }", "the pattern does not compile"),
    ("{ decode: text }", "path"),
  ])
  func refusesAtCheckTime(_ parameters: String, _ reason: String) {
    let complaints = PipelineText.complaints(
      """
      sources:
        input:
          file: \(parameters)
      sinks:
        out: { from: input, discard: {} }
      """)
    #expect(complaints.count == 1, "\(complaints)")
    #expect(complaints.first?.contains(reason) == true, "\(complaints)")
    #expect(complaints.first?.hasPrefix("3:") == true, "\(complaints)")
  }

  // MARK: Followed

  private func following(_ pattern: String, _ more: String = "", map: String = "event") throws
    -> RealPipeline
  {
    let following = try pipeline("{ path: '\(scratch(pattern))', follow: true\(more) }", map: map)
    following.run { following.log.contains { $0.contains("following") } || following.outcome != nil }
    return following
  }

  @Test func followsWhatIsAdded() throws {
    scratch.append("one\ntw", to: "a.log")
    let running = try following("a.log")
    #expect(running.run { running.events.count == 1 })
    scratch.append("o\nthree\n", to: "a.log")
    #expect(running.run { running.events.count == 3 })
    #expect(running.events == [#""one""#, #""two""#, #""three""#])
    #expect(running.outcome == nil)
    running.inTurn { $0.execution.drain() }
    #expect(running.runToEnd() == .completed)
  }

  @Test func canBeginAtTheEnd() throws {
    scratch.append("old\n", to: "a.log")
    let running = try following("a.log", ", start: end")
    scratch.append("new\n", to: "a.log")
    #expect(running.run { running.events.count == 1 })
    #expect(running.events == [#""new""#])
  }

  @Test func readsThroughARotation() throws {
    scratch.append("1\n", to: "a.log")
    let running = try following("a.log", map: "[event, meta.path]")
    #expect(running.run { running.events.count == 1 })
    rename(scratch("a.log"), scratch("a.log.1"))
    scratch.append("2\n", to: "a.log.1")
    scratch.append("3\n", to: "a.log")
    #expect(running.run { running.events.count == 3 })
    scratch.append("4\n", to: "a.log")
    #expect(running.run { running.events.count == 4 })
    #expect(running.events.map { $0.prefix(4) } == [#"["1""#, #"["2""#, #"["3""#, #"["4""#])
  }

  @Test func aRotatedFileDoesNotTakeItsSuccessorsHeaderAlong() throws {
    scratch.append("a,b\n1,2\n", to: "a.csv")
    let running = try following("a.csv", ", decode: csv, rotateWait: 100ms")
    #expect(running.run { running.events.count == 1 })
    rename(scratch("a.csv"), scratch("a.csv.1"))
    scratch.append("b,c\n3,4\n", to: "a.csv")
    #expect(running.run { running.events.count == 2 })
    #expect(running.run { running.log.contains { $0.contains("to its end") } }, "\(running.log)")
    scratch.append("5,6\n", to: "a.csv")
    #expect(running.run { running.events.count == 3 })
    #expect(running.events == [#"{"a":"1","b":"2"}"#, #"{"b":"3","c":"4"}"#, #"{"b":"5","c":"6"}"#])
  }

  @Test func startsAnewWhenAFileWasTruncated() throws {
    scratch.append("h\nlong line\n", to: "a.csv")
    let running = try following("a.csv", ", decode: csv")
    #expect(running.run { running.events.count == 1 })
    truncate(scratch("a.csv"), 0)
    #expect(running.run { running.log.contains { $0.contains("truncated") } }, "\(running.log)")
    scratch.append("k\n1\n", to: "a.csv")
    #expect(running.run { running.events.count == 2 })
    #expect(running.events == [#"{"h":"long line"}"#, #"{"k":"1"}"#])
    #expect(running.log.contains { $0.hasPrefix("warning input") && $0.contains("may be lost") })
  }

  @Test func findsNewFiles() throws {
    let running = try pipeline("{ path: '\(scratch("*.log"))', follow: true, start: end }", map: "[event, meta.path]")
    running.launch()
    scratch.append("1\n", to: "new.log")
    #expect(running.run { running.events.count == 1 })
    #expect(running.events == [#"["1","\#(scratch("new.log"))"]"#])
    scratch.append("x\n", to: "new.txt")
    scratch.append("2\n", to: "newer.log")
    #expect(running.run { running.events.count == 2 })
  }

  @Test func aLongLineIsRefusedOnce() throws {
    scratch.append("", to: "a.log")
    let running = try following("*.log", ", maxLine: 10B")
    scratch.append("short\n" + String(repeating: "x", count: 100), to: "a.log")
    scratch.append(String(repeating: "x", count: 100) + "\nend\n", to: "a.log")
    #expect(running.run { running.events.count == 2 })
    #expect(running.events == [#""short""#, #""end""#])
    #expect(running.probe("bad").events.count == 1)
    #expect(running.probe("bad").events.first?.contains("the line has 200 bytes") == true)
  }
}
