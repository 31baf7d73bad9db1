import Foundation
import PipelineHost
import Testing

@Suite(.timeLimit(.minutes(10)))
struct RunTests {
  static let echo = """
    sources: { lines: { stdin: { decode: json } } }
    signals: { kept: { from: lines, chain: [ { filter: event.a > 1 } ] } }
    sinks: { out: { from: kept, stdout: json } }

    """
  /// Never ends on its own; prints `1` when it runs.
  static let endless = """
    sources: { soon: { values: 1 }, later: { values: { list: [2, 3], every: 1h } } }
    signals: { all: { merge: [soon, later] } }
    sinks: { out: { from: all, stdout: json } }

    """

  @Test func runIsTheDefaultVerb() throws {
    let folder = try Scratch()
    let file = try folder.write("a.yaml", CheckTests.sound)
    for arguments in [
      [file], ["run", file], ["-q", file], ["--log-level=warning", "--color", "never", file, "--quiet"],
    ] {
      let process = try RunningRxd(arguments)
      #expect(try process.line() == "1")
      #expect(try process.line() == "2")
      #expect(try process.line() == nil)
      #expect(try process.wait() == 0)
      #expect(try process.line(from: process.errors) == nil)
    }
  }

  /// A line for each step in file order, in addition to the pipeline's output.
  @Test func statsTellWhatEachStepDid() throws {
    let folder = try Scratch()
    let file = try folder.write("echo.yaml", Self.echo)
    let input = "{\"a\":1}\n{\"a\":2}\nnonsense\n{\"a\":3}\n{\"b\":3}\n"
    let run = try Rxd.run("run", "--stats", file, input: input)
    #expect(run.status == 0 && run.output == "{\"a\":2}\n{\"a\":3}\n", "\(run.output)\(run.errors)")
    let lines = run.errors.split(separator: "\n").map(String.init)
    #expect(
      lines.allSatisfy { !$0.contains("echo.yaml:") || $0.count <= 80 || $0.contains("warning") }, "\(run.errors)")
    let rows = lines.map { $0.split(separator: " ").map(String.init) }.filter {
      $0.first?.hasPrefix("echo.yaml:") == true
    }
    func row(_ step: String) -> [String]? { rows.first { $0.count > 5 && $0[1].hasSuffix("/\(step)") } }
    // Location, step, in, out, dropped, rejected.
    #expect(row("stdin")?.prefix(6) == ["echo.yaml:1", "lines/stdin", "5", "4", "0", "1"], "\(run.errors)")
    #expect(row("filter")?[2..<6] == ["4", "2", "2", "0"], "\(run.errors)")
    #expect(row("stdout")?[2..<6] == ["2", "2", "0", "0"], "\(run.errors)")
    #expect(run.errors.contains("\(input.utf8.count) bytes read, up to offset \(input.utf8.count)"), "\(run.errors)")
    #expect(run.errors.contains("16 bytes written"), "\(run.errors)")
    #expect(rows.prefix(3).map { $0[1].split(separator: "/").last } == ["stdin", "filter", "stdout"])

    let machine = try Rxd.run(
      "run", file, input: input.replacingOccurrences(of: "nonsense\n", with: ""),
      environment: ["RXD_STATS": "1", "RXD_STATS_FORMAT": "json", "RXD_LOG_LEVEL": "error"])
    let begin = try #require(machine.errors.range(of: "{"))
    let json = try #require(
      try JSONSerialization.jsonObject(with: Data(machine.errors[begin.lowerBound...].utf8)) as? [String: Any])
    let steps = try #require(json["steps"] as? [[String: Any]])
    let filter = try #require(steps.first { ($0["step"] as? String)?.hasSuffix("filter") == true })
    #expect(filter["in"] as? Int == 4 && filter["dropped"] as? Int == 1 && filter["undecided"] as? Int == 1)
    #expect((json["edges"] as? [[String: Any]])?.contains { $0["events"] as? Int == 2 } == true)
    #expect(try Rxd.run("run", "--stats-format", "xml", file).status == 64)
  }

  /// `threads` changes which threads decode, and nothing in the output.
  @Test(arguments: ["threads: 1", "threads: 2", "threads: 5", ""])
  func standardInputComesInOrder(_ threads: String) throws {
    let folder = try Scratch()
    let file = try folder.write(
      "copy.yaml",
      """
      \(threads)
      sources: { lines: { stdin: { decode: { regex: { pattern: '^(?P<n>[0-9]+) (?P<word>[a-z]+)$' } } } } }
      sinks: { out: { from: lines, chain: [ { map: "event.n + ' ' + event.word" } ], stdout: text } }

      """)
    let text = (0..<30_000).map { "\($0) \(["some", "words", "of", "several"][$0 % 4])\n" }.joined()
    let outcome = try Rxd.run(file, input: text)
    #expect(outcome.status == 0)
    #expect(outcome.output == text)
    #expect(outcome.errors == "")
  }

  @Test func nothingStartsWhenAFileIsWrong() throws {
    let folder = try Scratch()
    try folder.write("good.yaml", CheckTests.sound)
    try folder.write("bad.yaml", "sources: { n: { valuez: [1] } }\n")
    let outcome = try Rxd.run(folder.path)
    #expect(outcome.status == 78)
    #expect(outcome.output == "")
    #expect(outcome.errors.contains("RX220"))
  }

  @Test func eventsThatCannotBeUsedAreReported() throws {
    let folder = try Scratch()
    let file = try folder.write("echo.yaml", Self.echo)
    let input = "{\"a\":1}\n{\"a\":2}\nnonsense\n{\"b\":1}\n"
    let outcome = try Rxd.run(file, input: input)
    #expect(outcome.status == 0)
    #expect(outcome.output == "{\"a\":2}\n")
    let records = try outcome.errors.split(separator: "\n").map {
      try #require(try JSONSerialization.jsonObject(with: Data($0.utf8)) as? [String: Any])
    }
    #expect(records.allSatisfy { $0["timestamp"] is String && $0["level"] as? String == "warning" })
    let letter = try #require(records.compactMap { $0["rejected"] as? [String: Any] }.first)
    #expect(letter["code"] as? String == "RX501")
    #expect(letter["event"] as? String == "nonsense")
    let summary = try #require(records.last)
    #expect(summary["message"] as? String == "4 events in, 1 out, 1 rejected, 1 undecided")
    #expect(summary["rejected"] as? Int == 1)

    let text = try Rxd.run(file, "--log-format", "text", input: input)
    #expect(text.errors.contains("warning echo: rejected: {"))
    #expect(try Rxd.run("-qq", file, input: "{\"b\":1}\n").errors == "")
    #expect(try Rxd.run("-v", file, input: "").errors.contains("0 events in, 0 out"))
  }

  /// Turns run on the thread that reads and writes; timers that they set still fire.
  @Test func aFollowedFileIsCopiedThroughRotations() throws {
    let folder = try Scratch()
    let log = folder.path + "/app.log"
    let file = try folder.write(
      "follow.yaml",
      """
      sources: { log: { file: { path: \(log), follow: true, start: beginning, decode: ndjson } } }
      sinks:
        copy: { from: log, file: { path: \(folder.path)/copy.ndjson, encode: ndjson } }
        newest: { from: log, chain: [ { throttle: 20ms } ], stdout: ndjson }

      """)
    func append(_ text: String) {
      let file = open(log, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0o600)
      defer { close(file) }
      let bytes = Array(text.utf8)
      #expect(write(file, bytes, bytes.count) == bytes.count)
    }
    func line(_ number: Int) -> String { "{\"n\":\(number)}" }
    let process = try RunningRxd([file])
    append(line(0) + "\n")
    #expect(try process.line() == line(0))
    let count = 3000
    for number in 1..<count {
      append(line(number) + "\n")
      if number % 1000 == 0 { rename(log, log + ".\(number)") }
    }
    while let newest = try process.line(), newest != line(count - 1) {}
    process.send(SIGTERM)
    #expect(try process.wait() == 0)
    let copy = try String(contentsOfFile: folder.path + "/copy.ndjson", encoding: .utf8)
    #expect(copy == (0..<count).map { line($0) + "\n" }.joined())
  }

  /// More existing files than one turn can start are followed.
  @Test func manyFilesThatAreThereAreFollowed() throws {
    let folder = try Scratch()
    for number in 10..<40 { try folder.write("\(number).log", "\(number)\n") }
    let file = try folder.write(
      "follow.yaml",
      """
      sources: { logs: { file: { path: '\(folder.path)/*.log', follow: true, decode: text } } }
      sinks: { out: { from: logs, stdout: text } }

      """)
    let process = try RunningRxd([file])
    let lines = try (10..<40).map { _ in try process.line() }
    #expect(lines.compactMap { $0 }.sorted() == (10..<40).map { "\($0)" })
    process.send(SIGTERM)
    #expect(try process.wait() == 0)
  }

  /// A signal that only feeds itself does not delay other signals, in its own pipeline or another one, nor a stop.
  @Test(arguments: [
    "sources: { n: { values: [] } }\nsignals: { r: { from: n, chain: [ repeat ] } }",
    "sources: { n: { values: [1] } }\nsignals: { r: { from: n, chain: [ repeat, { filter: event == 0 } ] } }",
    "sources: { n: { values: [1] } }\nsignals: { r: { from: n, chain: [ { try: event == 0 }, retry ] } }",
  ])
  func circlesStopNothing(_ signals: String) throws {
    let folder = try Scratch()
    let spinning = try folder.write(
      "spinning.yaml",
      "\(signals)\nsinks: { out: { from: r, discard: {} }, beside: { from: { interval: 1ms }, chain: [ { take: 3 } ], stdout: { encode: json } } }\n"
    )
    let other = try folder.write(
      "other.yaml",
      "sources: { t: { interval: 1ms } }\nsinks: { out: { from: t, chain: [ { map: \"'other'\" } ], stdout: text } }\n")
    let process = try RunningRxd([spinning, other])
    var own = 0
    var others = 0
    while own < 3 || others < 3, let line = try process.line() {
      if line == "other" { others += 1 } else { own += 1 }
    }
    #expect(own == 3 && others >= 3)
    process.send(SIGTERM)
    #expect(try process.wait() == 0)
  }

  /// Without a free descriptor nothing can be listed or opened; open files are still read, and the rest follows when one
  /// is free.
  @Test func followedFilesOutliveALackOfDescriptors() throws {
    let folder = try Scratch()
    try folder.write("a.log", "one\n")
    let file = try folder.write(
      "follow.yaml",
      """
      sources:
        logs: { file: { path: '\(folder.path)/*.log', follow: true, start: beginning, rotateWait: 50ms } }
      sinks: { out: { from: logs, stdout: text } }

      """)
    let process = try RunningRxd([file])
    #expect(try process.line() == "one")
    try process.limit("--nofile=4:")
    try folder.write("b.log", "new\n")
    let reported = try process.errorLine(with: "Too many open files")
    #expect(reported.contains("cannot list ") && reported.contains("\(folder.path.split(separator: "/").last ?? ""): "))
    let log = try #require(FileHandle(forWritingAtPath: folder.path + "/a.log"))
    log.seekToEndOfFile()
    log.write(Data("two\n".utf8))
    #expect(try process.line() == "two")
    try process.limit("--nofile=1024:")
    #expect(try process.line() == "new")
    process.send(SIGTERM)
    #expect(try process.wait() == 0)
  }

  /// A rotated file cannot be reopened without a descriptor: the output waits for one.
  @Test func aRotatedFileWaitsForADescriptor() throws {
    let folder = try Scratch()
    let out = folder.path + "/out.ndjson"
    let file = try folder.write(
      "copy.yaml",
      """
      sources: { lines: { stdin: { decode: ndjson } } }
      sinks: { out: { from: lines, file: { path: \(out), encode: ndjson } } }

      """)
    let watch = try FolderWatch(URL(fileURLWithPath: out).deletingLastPathComponent().path)
    func awaitContent() -> String? {
      watch.first { (try? String(contentsOfFile: out, encoding: .utf8)).flatMap { $0.isEmpty ? nil : $0 } }
    }
    let process = try RunningRxd([file, "--log-format", "text"])
    process.write("{\"n\":0}\n")
    #expect(awaitContent() == "{\"n\":0}\n")
    try FileManager.default.moveItem(atPath: out, toPath: out + ".1")
    try process.limit("--nofile=4:")
    process.write("{\"n\":1}\n")
    let reported = try process.errorLine(with: "Too many open files")
    #expect(reported.contains("cannot open \(out): ") && reported.contains("; waiting until it can be written"))
    try process.limit("--nofile=1024:")
    #expect(awaitContent() == "{\"n\":1}\n")
    process.send(SIGTERM)
    #expect(try process.wait() == 0)
    #expect(try String(contentsOfFile: out + ".1", encoding: .utf8) == "{\"n\":0}\n")
  }

  /// A full file that cannot be compressed does not delay rows.
  @Test func whatCannotBeCompressedHoldsUpNothing() throws {
    let folder = try Scratch()
    let out = folder.path + "/out.ndjson"
    let file = try folder.write(
      "rotating.yaml",
      """
      sources: { lines: { stdin: { decode: ndjson } } }
      sinks: { out: { from: lines, file: { path: \(out), encode: ndjson, rotate: { size: 20000B, compress: gzip } } } }

      """)
    let watch = try FolderWatch(URL(fileURLWithPath: out).deletingLastPathComponent().path)
    func content(where isIt: (String) -> Bool) -> String? {
      watch.first {
        guard let text = try? String(contentsOfFile: out, encoding: .utf8), isIt(text) else { return nil }
        return text
      }
    }
    let process = try RunningRxd([file, "--log-format", "text"])
    // Compression halves it.
    let random = (0..<15_000).map { _ in String(format: "%02x", UInt8.random(in: 0 ... .max)) }.joined()
    process.write("\"\(random)\"\n")
    let first = content(where: { $0.utf8.count > 30_000 })
    #expect(first != nil)
    try process.limit("--fsize=10000:")
    process.write("{\"n\":1}\n")
    let next = content(where: { $0.utf8.count < 30_000 && !$0.isEmpty })
    #expect(next == "{\"n\":1}\n")
    let reported = try process.errorLine(with: "File too large")
    #expect(!reported.contains("waiting"))
    process.send(SIGTERM)
    #expect(try process.wait() == 0)
  }

  /// Of contents that wait for disk space only the newest is written: there may never be space for an older one.
  @Test func newerContentReplacesWhatWaitsForRoom() throws {
    let folder = try Scratch()
    let out = folder.path + "/out.ndjson"
    let file = try folder.write(
      "latest.yaml",
      """
      sources: { values: { stdin: { decode: ndjson } } }
      sinks: { out: { from: values, file: { path: \(out), mode: replace, encode: ndjson } } }

      """)
    let process = try RunningRxd([file, "--log-format", "text"])
    try process.limit("--fsize=10000:")
    process.write("\"\(String(repeating: "x", count: 20_000))\"\n")
    try process.errorLine(with: "waiting until it can be written")
    process.write("{\"n\":1}\n")
    // A writer that retries changes the folder all the time, so this polls.
    #expect(Polling.until { (try? String(contentsOfFile: out, encoding: .utf8)) == "{\"n\":1}\n" })
    process.send(SIGTERM)
    #expect(try process.wait() == 0)
  }

  /// A file size limit simulates a full disk.
  @Test func whatAFullDiskDidNotTakeIsNotOut() throws {
    let folder = try Scratch()
    let out = folder.path + "/out.ndjson"
    let file = try folder.write(
      "copy.yaml",
      """
      sources: { lines: { stdin: { decode: ndjson } } }
      sinks: { out: { from: lines, file: { path: \(out), encode: ndjson } } }

      """)
    let process = try RunningRxd([file, "--graceful-shutdown-limit-secs", "1", "--log-format", "text"])
    process.write("{\"n\":0}\n")
    let first = try FolderWatch(URL(fileURLWithPath: out).deletingLastPathComponent().path).first {
      (try? String(contentsOfFile: out, encoding: .utf8)).flatMap { $0.isEmpty ? nil : true }
    }
    try #require(first != nil, "the first event has not been written")
    try process.limit("--fsize=10000:")
    process.write((1..<20_000).map { "{\"n\":\($0)}\n" }.joined())
    try process.errorLine(with: "waiting until it can be written")
    process.send(SIGTERM)
    let lost = try process.errorLine(with: "were taken but not delivered: cannot write to \(out): File too large")
    #expect(lost.contains("copy.yaml:2:"))
    let summary = try process.errorLine(with: " events in, ")
    let counts = (summary.components(separatedBy: "copy: ").last ?? "").split { !$0.isNumber }.compactMap { Int($0) }
    #expect(try process.wait() == 1)
    let written = try String(contentsOfFile: out, encoding: .utf8)
    let lines = written.utf8.count { $0 == 0x0A }
    #expect(written.utf8.count == 10_000)
    // Reading may have stopped in the middle of a line, which is then rejected.
    let isCut = summary.contains(" rejected, ")
    #expect(counts.count == (isCut ? 4 : 3) && counts[1] == lines && (!isCut || counts[2] == 1), "\(summary)")
    #expect(counts.first == counts.dropFirst().reduce(0, +), "\(summary)")
  }

  @Test func aClosedPipeIsNoMistake() throws {
    let folder = try Scratch()
    let process = try RunningRxd([try folder.write("echo.yaml", Self.echo)])
    process.write("{\"a\":2}\n")
    #expect(try process.line() == "{\"a\":2}")
    // This end of the pipe is replaced, so its last reader is gone.
    dup2(process.errors, process.output)
    process.write("{\"a\":3}\n{\"a\":4}\n")
    process.closeInput()
    #expect(try process.wait() == 0)
    #expect(try process.line(from: process.errors) == nil)
  }

  @Test func oneFailureDoesNotStopTheOthers() throws {
    let folder = try Scratch()
    try folder.write("good.yaml", CheckTests.sound)
    try folder.write(
      "fails.yaml",
      "sources: { n: { values: 1 } }\nsinks: { out: { from: n, file: { path: /nonexistent/x } } }\n")
    let outcome = try Rxd.run(folder.path)
    #expect(outcome.status == 1)
    #expect(outcome.output == "1\n2\n")
    #expect(outcome.errors.contains("/nonexistent/x"))
  }

  @Test func terminationDrains() throws {
    let folder = try Scratch()
    let file = try folder.write(
      "a.yaml",
      """
      sources: { soon: { values: 1 }, later: { values: { list: [2, 3], every: 1h } } }
      signals:
        all: { merge: [soon, later] }
        held: { from: all, chain: [ collect ] }
        shown: { merge: [all, held] }
      sinks: { out: { from: shown, stdout: json } }
      """)
    for signal in [SIGTERM, SIGINT] {
      let process = try RunningRxd([file])
      #expect(try process.line() == "1")
      #expect(try process.line() == "2")
      process.send(signal)
      // Held events are flushed by the drain.
      #expect(try process.line() == "[1,2]")
      #expect(try process.wait() == 0)
    }
  }

  /// The input has ended, the server does not exist: retries continue until the process is told to stop, and then until the limit.
  @Test func aDeadServerIsGivenUpWhenTheLimitForStoppingHasPassed() throws {
    let folder = try Scratch()
    let file = try folder.write(
      "a.yaml",
      """
      sources: { soon: { values: [1, 2, 3] } }
      sinks: { out: { from: soon, http: { url: 'http://127.0.0.1:1/', maxConcurrent: 2 } } }
      """)
    let process = try RunningRxd([file, "--graceful-shutdown-limit-secs", "1"])
    try process.errorLine(with: "trying again")
    process.send(SIGTERM)
    try process.errorLine(with: "the server had not acknowledged 3 events when the pipeline ended")
    try process.errorLine(with: "did not finish within the limit")
    #expect(try process.wait() == 1)
  }

  /// A program that the system cannot start for one event is an error of that event, however the event is passed to it.
  @Test(arguments: [
    "command: [basename, --, '{{ event.p }}']", "command: [basename, --, '{{ event.p }}'], streaming: true",
    "command: [sh, -c, 'echo $P'], environment: { P: '{{ event.p }}' }",
  ]) func argumentsThatNoProgramGetsAreRejected(_ exec: String) throws {
    let folder = try Scratch()
    let file = try folder.write(
      "a.yaml",
      """
      sources: { in: { stdin: { decode: ndjson } } }
      signals: { said: { from: in, chain: [ { flattenMap: { policy: concat, signal: { from: { exec: { \(exec) } } } } } ] } }
      sinks: { out: { from: said, stdout: text }, wrong: { from: said.errors, file: '\(folder.path)/wrong' } }

      """)
    let long = String(repeating: "x", count: 140_000)
    let outcome = try Rxd.run(
      file, input: "{\"p\":\"one\"}\n{\"p\":\"\(long)\"}\n{\"p\":\"a\\u0000b\"}\n{\"p\":\"two\"}\n")
    #expect(outcome.status == 0, "\(outcome.errors)")
    #expect(outcome.lines == ["one", "two"])
    let wrong = try String(contentsOfFile: folder.path + "/wrong", encoding: .utf8).split(separator: "\n")
    #expect(wrong.count == 2 && wrong.allSatisfy { $0.contains("RX526") })
    #expect(wrong.first?.contains("more than the system accepts") == true, "\(wrong.first?.suffix(400) ?? "")")
    #expect(wrong.last?.contains("NUL") == true)
  }

  /// If rxd's parent ignores SIGCHLD, the system discards exit statuses unless rxd asks for them.
  @Test func programsFailWhereTheParentIgnoresTheirEnds() throws {
    let folder = try Scratch()
    let file = try folder.write(
      "a.yaml",
      """
      sources: { in: { values: [1] } }
      signals: { said: { from: in, chain: [ { flattenMap: { policy: concat, signal: { from: { exec: { command: [sh, -c, 'exit 7'] } } } } } ] } }
      sinks: { out: { from: said, discard: {} } }

      """)
    let process = try RunningRxd(
      ["-c", "trap '' CHLD; exec \"$0\" \"$@\"", Rxd.binary, file], running: "/bin/sh")
    try process.errorLine(with: "'sh' exited with 7")
    #expect(try process.wait() == 1)
  }

  /// After SIGINT the log says what the process waits for, and what a second signal does.
  @Test func aStopSaysWhatItWaitsFor() throws {
    let folder = try Scratch()
    let file = try folder.write(
      "a.yaml",
      """
      sources: { soon: { values: [1, 2, 3] } }
      sinks: { out: { from: soon, http: 'http://127.0.0.1:1/' }, done: { from: soon, discard: {} } }
      """)
    let process = try RunningRxd([file])
    try process.errorLine(with: "trying again")
    process.send(SIGINT)
    let line = try process.errorLine(with: "stopping: waits at most")
    #expect(line.contains("for 'out' (3 events; ") && line.contains("connect"), "\(line)")
    #expect(line.contains("a second SIGINT or SIGTERM ends at once, and what is not delivered then is lost"), "\(line)")
    #expect(!line.contains("done"))
    #expect(try process.wait(sending: SIGINT) == 128 + SIGINT)
  }

  @Test func aSecondSignalEndsAtOnce() throws {
    let folder = try Scratch()
    // A delay that outlasts any drain.
    let file = try folder.write(
      "a.yaml",
      """
      sources: { soon: { values: 1 }, later: { values: { list: [2, 3], every: 1h } } }
      signals: { slow: { from: later, chain: [ { delay: 1h } ] }, all: { merge: [soon, slow] } }
      sinks: { out: { from: all, stdout: json } }
      """)
    let process = try RunningRxd([file, "-v"])
    #expect(try process.line() == "1")
    process.send(SIGTERM)
    try process.errorLine(with: "draining")
    // A signal within a second of the first counts as the same.
    #expect(try process.wait(sending: SIGTERM) == 128 + SIGTERM)

    let other = try RunningRxd([file])
    #expect(try other.line() == "1")
    other.send(SIGQUIT)
    #expect(try other.wait() == 128 + SIGQUIT)

    let limited = try RunningRxd([file, "--graceful-shutdown-limit-secs", "0"])
    #expect(try limited.line() == "1")
    limited.send(SIGTERM)
    #expect(try limited.wait() == 1)
    try limited.errorLine(with: "did not finish within the limit")
  }

  @Test func settingsComeFromVariablesToo() throws {
    let folder = try Scratch()
    let file = try folder.write("echo.yaml", Self.echo)
    let text = try Rxd.run(file, input: "x\n", environment: ["RXD_LOG_FORMAT": "text"])
    #expect(text.errors.contains("warning echo: rejected: {"))
    let wrong = try Rxd.run(file, environment: ["RXD_LOG_FORMAT": "xml"])
    #expect(wrong.status == 64)
    #expect(wrong.errors.contains("RXD_LOG_FORMAT"))
    let config = try Rxd.run(environment: ["RXD_CONFIG": file])
    #expect(config.status == 0)
  }

  /// A service runs in `/`, so the place where a relative path begins is part of the message.
  @Test func aFileThatIsNotThereYetIsNamedWithItsDirectory() throws {
    let folder = try Scratch()
    let file = try folder.write(
      "a.yaml", "sources: { s: { file: { path: later.log, follow: true } } }\nsinks: { o: { from: s, discard: {} } }\n")
    let process = try RunningRxd(["--log-format", "text", file], in: folder.path)
    let line = try process.errorLine(with: "no file matches")
    let real = URL(fileURLWithPath: folder.path).resolvingSymlinksInPath().path
    #expect(line.contains("no file matches 'later.log' in the directory \(real) yet; waiting for one"), "\(line)")
    #expect(try process.wait(sending: SIGTERM) == 0)
  }
}
