import Foundation
import PipelineHost
import Testing

/// `--dry-run`, `--limit`, `--once`, `--set`, `--print`, and files from standard input.
@Suite(.timeLimit(.minutes(10)))
struct TryingOutTests {
  private static let numbers = """
    sources: { numbers: { values: [1, 2, 3, 4, 5] } }
    signals: { doubled: { from: numbers, chain: [ map: event * 2 ] } }
    sinks: { out: { from: doubled, stdout: json } }

    """

  // MARK: --dry-run

  @Test func aDryRunPrintsWhatEverySinkWouldSend() throws {
    let folder = try Scratch()
    let file = try folder.write(
      "a.yaml",
      """
      sources: { orders: { values: [ { id: 1, note: "a b" } ] } }
      sinks:
        web: { from: orders, http: { url: 'http://127.0.0.1:9/', encode: json } }
        log: { from: orders, file: { path: '\(folder.path)/missing/out.csv', encode: csv } }
        journal: { from: orders, chain: [ map: event.note ], syslog: { address: '127.0.0.1:9', appname: shop } }
        wire: { from: orders, tcp: { address: '127.0.0.1:9', encode: logfmt } }
        nothing: { from: orders, discard: {} }
        screen: { from: orders, stdout: { encode: { json: { indent: 2 } } } }

      """)
    let outcome = try Rxd.run("run", "--dry-run", file)
    #expect(outcome.status == 0, "\(outcome.errors)")
    let lines = outcome.output.split(separator: "\n").map(String.init)
    #expect(lines.prefix(3) == [#"web: {"id":1,"note":"a b"}"#, "log: id,note", "log: 1,a b"], "\(lines)")
    #expect(lines.contains { $0.hasPrefix("journal: <14>1 20") && $0.hasSuffix(" shop - - - a b") }, "\(lines)")
    #expect(lines.contains(#"wire: id=1 note="a b""#) && lines.contains(#"nothing: {"id":1,"note":"a b"}"#), "\(lines)")
    #expect(lines.suffix(4) == ["screen: {", #"screen:   "id": 1,"#, #"screen:   "note": "a b""#, "screen: }"])
    #expect(!FileManager.default.fileExists(atPath: folder.path + "/missing"))
  }

  @Test func aDryRunStoresNothingAndNeedsNoGuarantee() throws {
    let folder = try Scratch()
    try folder.write("in.ndjson", "{\"n\":1}\n{\"n\":2}\n")
    let file = try folder.write(
      "a.yaml",
      """
      require: atLeastOnce
      sources: { lines: { file: { path: '\(folder.path)/in.ndjson', decode: json } } }
      sinks: { out: { from: lines, file: { path: '\(folder.path)/out' } } }

      """)
    let state = folder.path + "/state"
    for _ in 0..<2 {
      let outcome = try Rxd.run("run", "--dry-run", "--state-dir", state, file)
      #expect(outcome.status == 0 && outcome.output == "out: {\"n\":1}\nout: {\"n\":2}\n", "\(outcome)")
    }
    #expect(!FileManager.default.fileExists(atPath: state))
    #expect(!FileManager.default.fileExists(atPath: folder.path + "/out"))
    let variable = try Rxd.run(file, environment: ["RXD_DRY_RUN": "1"])
    #expect(variable.output == "out: {\"n\":1}\nout: {\"n\":2}\n")
  }

  /// A client must not believe that its event is delivered, whatever the server would otherwise answer.
  @Test(arguments: ["answer: written", "answer: accepted", "answer: reply"])
  func aDryRunPromisesNothingToClients(_ answer: String) throws {
    let folder = try Scratch()
    let file = try folder.write(
      "a.yaml",
      """
      sources: { in: { httpServer: { address: '127.0.0.1:0', decode: ndjson, \(answer) } } }
      signals: { kept: { from: in, chain: [ filter: event.n > 1 ] } }
      sinks: { out: { from: kept, \(answer.hasSuffix("reply") ? "reply: json" : "http: 'http://127.0.0.1:9/'") } }

      """)
    let process = try RunningRxd(["run", "--dry-run", file])
    let line = try process.errorLine(with: "listening on 127.0.0.1:")
    let port = try #require(line.split(separator: ":").last.flatMap { Int($0.prefix { $0.isNumber }) })
    for text in ["{\"n\":2}\n"] + (answer.hasSuffix("reply") ? [] : ["{\"n\":1}\n"]) {
      let client = try Connection(port: port)
      #expect(client.post(text))
      #expect(client.status() == 503, "\(text)")
    }
    #expect(try process.line() == "out: {\"n\":2}")
    process.send(SIGTERM)
    #expect(try process.wait() == 0)
  }

  /// A plugin that is a program: the mechanism knows no sink.
  @Test func aDryRunDoesNotGiveEventsToThePluginOfASink() throws {
    let folder = try Scratch()
    let file = try folder.write(
      "a.yaml",
      """
      plugins: { keep: { run: ['\(Rxd.root)/Plugins/examples/shell/keep.sh', '\(folder.path)/kept'] } }
      sources: { n: { values: [1] } }
      sinks: { out: { from: n, keep: {} } }

      """)
    let outcome = try Rxd.run("run", "--dry-run", file)
    #expect(outcome.status == 0 && outcome.output == "out: 1\n", "\(outcome)")
    #expect(!FileManager.default.fileExists(atPath: folder.path + "/kept"))
    #expect(try Rxd.run("run", file).status == 0)
    #expect(FileManager.default.fileExists(atPath: folder.path + "/kept"))
  }

  @Test func aReaderThatHasEnoughEndsADryRun() throws {
    let folder = try Scratch()
    let file = try folder.write(
      "a.yaml", "sources: { n: { interval: 1ms } }\nsinks: { out: { from: n, http: 'http://127.0.0.1:9/' } }\n")
    let (status, output) = try Program.run("/bin/sh", ["-c", "'\(Rxd.binary)' run --dry-run '\(file)' | head -n 2"])
    #expect(status == 0)
    #expect(output.split(separator: "\n").count == 2, "\(output)")
  }

  // MARK: --limit

  @Test func aLimitEndsTheRun() throws {
    let folder = try Scratch()
    let file = try folder.write("a.yaml", Self.numbers)
    let outcome = try Rxd.run("run", "--limit", "2", file)
    #expect(outcome.status == 0 && outcome.output == "2\n4\n", "\(outcome)")
    // The results of one event stay together where they are delivered, and are cut where they are only printed.
    let lists = try folder.write(
      "lists.yaml",
      """
      sources: { lists: { values: [[1, 2, 3], [4, 5, 6]] } }
      signals: { all: { from: lists, chain: [ flattenMap: event ] } }
      sinks: { out: { from: all, stdout: json } }

      """)
    #expect(try Rxd.run("run", "--limit", "2", lists).output == "1\n2\n3\n")
    #expect(try Rxd.run("run", "--limit", "2", "--dry-run", lists).output == "out: 1\nout: 2\n")
    let ticks = try folder.write(
      "ticks.yaml",
      "sources: { n: { interval: 1ms } }\nsinks: { out: { from: n, chain: [ map: event.tick ], stdout: json } }\n")
    #expect(try Rxd.run("run", "--limit", "3", ticks).output == "1\n2\n3\n")
    #expect(try Rxd.run("run", "--limit", "0", ticks).status == 64)
    #expect(try Rxd.run("run", "--limit", "1", "--daemon", ticks).status == 64)
  }

  /// Input read after the last event is not lost: the next run starts with it.
  @Test func theNextRunContinuesBehindTheLimit() throws {
    let folder = try Scratch()
    try folder.write("in.txt", (1...5_000).map { "\($0)\n" }.joined())
    let file = try folder.write(
      "a.yaml",
      """
      sources: { lines: { file: { path: '\(folder.path)/in.txt' } } }
      signals: { odd: { from: lines, chain: [ filter: int(event) % 2 == 1 ] } }
      sinks: { out: { from: odd, stdout: text } }

      """)
    for expected in ["1\n3\n5\n", "7\n9\n11\n"] {
      let outcome = try Rxd.run("run", "--limit", "3", "--state-dir", folder.path + "/state", file)
      #expect(outcome.status == 0 && outcome.output == expected, "\(outcome)")
    }
    #expect(try Rxd.run("run", "--limit", "3", file).output == "1\n3\n5\n")
  }

  // MARK: --once

  @Test func onceReadsWhatIsThere() throws {
    let folder = try Scratch()
    try folder.write("in.txt", "a\nb\nc\n")
    let file = try folder.write(
      "a.yaml",
      """
      sources:
        lines: { file: { path: '\(folder.path)/*.txt', follow: true, start: end } }
        ticks: { interval: 1h }
        nights: { interval: { cron: '0 3 * * *' } }
        runs: { exec: { command: [echo, run], every: 1h, immediate: false } }
        silence: { never: {} }
      signals:
        all: { merge: [lines, ticks, nights, runs, silence], chain: [ map: "type(event) == string ? event : 'tick'" ] }
      sinks: { out: { from: all, stdout: text } }

      """)
    let outcome = try Rxd.run("run", "--once", file)
    #expect(outcome.status == 0, "\(outcome.errors)")
    #expect(outcome.lines.sorted() == ["a", "b", "c", "run", "tick", "tick"])
    #expect(try Rxd.run("run", "--once", "--state-dir", folder.path + "/state", file).status == 64)
  }

  @Test func onceAsksAServerOnce() throws {
    let folder = try Scratch()
    let server = try RunningRxd([
      try folder.write(
        "server.yaml",
        """
        sources: { in: { httpServer: { address: '127.0.0.1:0' } } }
        sinks: { out: { from: in, chain: [ map: { path: event.path } ], reply: json } }

        """)
    ])
    let line = try server.errorLine(with: "listening on 127.0.0.1:")
    let port = try #require(line.split(separator: ":").last.flatMap { Int($0.prefix { $0.isNumber }) })
    let file = try folder.write(
      "client.yaml",
      """
      sources: { status: { http: { url: 'http://127.0.0.1:\(port)/status', every: 1h, immediate: false } } }
      sinks: { out: { from: status, stdout: json } }

      """)
    let outcome = try Rxd.run("run", "--once", file)
    #expect(outcome.status == 0 && outcome.output == "{\"path\":\"/status\"}\n", "\(outcome)")
    server.send(SIGTERM)
    _ = try server.wait()
  }

  @Test(.enabled(if: JournalFiles.canBeMade, "needs systemd-journal-remote of Debian"))
  func onceReadsTheJournalToItsEnd() throws {
    let folder = try Scratch()
    let journal = JournalFiles()
    try journal.write(messages: ["one", "two", "three"])
    journal.close()
    for since in ["beginning", "end"] {
      let file = try folder.write(
        "a.yaml",
        """
        sources: { log: { journald: { directory: '\(journal.path)', since: \(since) } } }
        sinks: { out: { from: log, chain: [ { map: event.MESSAGE } ], stdout: text } }

        """)
      let outcome = try Rxd.run("run", "--once", file)
      #expect(outcome.status == 0, "\(outcome.errors)")
      #expect(outcome.lines == ["one", "two", "three"])
    }
  }

  @Test func onceMeasuresTheHostOnce() throws {
    let folder = try Scratch()
    let file = try folder.write(
      "a.yaml",
      """
      sources: { load: { host: { every: 1h, immediate: false, collect: [load], emit: snapshot } } }
      sinks: { out: { from: load, stdout: json } }

      """)
    let outcome = try Rxd.run("run", "--once", file)
    #expect(outcome.status == 0, "\(outcome.errors)")
    #expect(outcome.lines.count == 1)
    #expect(outcome.output.contains("\"node_load1\":"))
  }

  @Test func onceRefusesServers() throws {
    let folder = try Scratch()
    let file = try folder.write(
      "a.yaml",
      """
      sources:
        web: { httpServer: { address: '127.0.0.1:0', decode: json } }
        wire: { tcp: '127.0.0.1:0' }
        counts: { statsd: '127.0.0.1:0' }
      sinks: { out: { merge: [web, wire, counts], stdout: json } }

      """.replacingOccurrences(of: "merge: [web, wire, counts]", with: "from: { merge: [web, wire, counts] }"))
    let outcome = try Rxd.run("run", "--once", file)
    #expect(outcome.status == 78)
    #expect(outcome.errors.contains("a.yaml:2:10\n"), "\(outcome.errors)")
    #expect(
      outcome.errors.contains("error[RX217]: 'tcp' waits") && outcome.errors.contains("a.yaml:3:11\n"),
      "\(outcome.errors)")
    #expect(outcome.errors.contains("'statsd' waits for others to send"), "\(outcome.errors)")
    #expect(outcome.errors.contains("'httpServer' waits for others to send"), "\(outcome.errors)")
  }

  // MARK: --set

  private static let typed = """
    sources:
      typed: { stdin: text }
    signals:
      query:
        from: typed
        chain:
          - filter: size(event) >= 3
          - throttle: 1h
          - distinctUntilChanged
    sinks:
      out: { from: query, stdout: json }
    tests:
      - name: waits for a second
        inputs: { typed: { marbles: "a 1s -|", values: { a: dune } } }
        expect: { out: [ { at: 1s, next: dune }, { complete: true } ] }

    """

  @Test func valuesOfTheFileAreSet() throws {
    let folder = try Scratch()
    let file = try folder.write("a.yaml", Self.typed)
    let outcome = try Rxd.run(
      "run", "--set", "sources.typed.stdin.decode=json", "--set", "signals.query.chain.1.throttle=1ms", "--set",
      "sinks.out.stdout={encode: text}", file, input: "\"abc\"\n")
    #expect(outcome.status == 0 && outcome.output == "abc\n", "\(outcome)")
    // The other verbs see the same file.
    let tested = try Rxd.run("test", "--set", "signals.query.chain.1.throttle=1s", file)
    #expect(tested.status == 0, "\(tested.output)")
    #expect(try Rxd.run("test", file).status == 1)
    #expect(try Rxd.run("check", "--set", "signals.query.chain.0.filter=true", file).status == 0)
    let drawn = try Rxd.run("graph", "--set", "signals.query.chain.2={take: 2}", "--format", "mermaid", file)
    #expect(drawn.output.contains("take"), "\(drawn.output)")
    let explained = try Rxd.run("explain", file, "--set", "signals.query.chain.0.filter=size(event) >= 7")
    #expect(explained.output.contains("size(event) >= 7"), "\(explained.output)")
    // The long form of a bare word and of a short form; existing parameters stay.
    let shaped = try Rxd.run(
      "check", "--set", "signals.query.chain.2.distinctUntilChanged.by=event", "--set",
      "sources.typed.stdin.maxLine=1KiB",
      "--set", "description=tried out", file)
    #expect(shaped.status == 0, "\(shaped.output)")
  }

  @Test(arguments: [
    (
      "sources.typd.stdin.decode=json", "error[RX216]: 'sources' has no 'typd'\n --> --set:1:9", "Did you mean 'typed'?"
    ),
    (
      "signals.query.chain.5.throttle=1s",
      "error[RX216]: 'signals.query.chain' is a list, and has no item '5'\n --> --set:1:21",
      "its items are 0 to 2"
    ),
    ("sources.typed.stdin.decode=jason", "there is no decoder 'jason'\n --> --set:1:28", "json"),
    ("sources.typed.stdin.decod=json", "has no parameter 'decod'\n --> --set:1:21", "decode"),
    ("signals.query.chain.1.throttle=1", "needs a unit\n --> --set:1:32", "1ms"),
    ("signals.query.from.typed=1", "'signals.query.from' is a text", "End the path before it"),
    ("nonsense", "--set:1:9\n", "PATH=VALUE"),
    ("sources..stdin=1", "a part of the path is empty", "PATH=VALUE"),
    ("sources.typed={ stdin: [", " --> --set:1:24", "error[RX139]"),
  ]) func whatIsSetWronglyIsExplained(_ setting: String, _ message: String, _ help: String) throws {
    let folder = try Scratch()
    let file = try folder.write("a.yaml", Self.typed)
    for verb in ["check", "run"] {
      let outcome = try Rxd.run(verb, "--set", setting, file)
      let report = outcome.output + outcome.errors
      #expect(outcome.status == 78 && report.contains(message) && report.contains(help), "\(report)")
    }
  }

  @Test func whatIsSetIsNotWrittenIntoFiles() throws {
    let folder = try Scratch()
    let file = try folder.write("a.yaml", Self.typed)
    #expect(try Rxd.run("check", "--fix", "--set", "name=b", file).status == 64)
    #expect(try Rxd.run("test", "--update", "--set", "name=b", file).status == 64)
    #expect(try String(contentsOfFile: file, encoding: .utf8) == Self.typed)
  }

  // MARK: --print

  @Test func signalsArePrinted() throws {
    let folder = try Scratch()
    let file = try folder.write("a.yaml", Self.numbers.replacingOccurrences(of: "stdout: json", with: "discard: {}"))
    #expect(try Rxd.run("run", "--print", "doubled", file).output == "2\n4\n6\n8\n10\n")
    let both = try Rxd.run("run", "--print", "numbers", "--print", "doubled", "--limit", "3", file)
    #expect(both.lines.allSatisfy { $0.hasPrefix("{\"numbers\":") || $0.hasPrefix("{\"doubled\":") }, "\(both.output)")
    let text = try Rxd.run("run", "--print", "numbers", "--print", "doubled", "--format", "text", file)
    #expect(text.lines.filter { $0.hasPrefix("numbers: ") }.count == 5, "\(text.output)")
    #expect(try Rxd.run("run", "--format", "text", file).status == 64)
  }

  @Test func aFileWithoutSinksIsPrinted() throws {
    let folder = try Scratch()
    let file = try folder.write(
      "a.yaml",
      """
      require: atLeastOnce
      sources: { lines: { stdin: { decode: json } } }
      signals: { kept: { from: lines, chain: [ map: event.a ] } }

      """)
    #expect(try Rxd.run("check", file).output.contains("RX307"))
    let outcome = try Rxd.run(
      "run", "--print", "kept", "--state-dir", folder.path + "/state", file, input: "{\"a\":{\"b\":1}}\n{\"b\":1}\n")
    #expect(outcome.status == 0 && outcome.output == "{\"b\":1}\n", "\(outcome)")
    let errors = try Rxd.run(
      "run", "--print", "kept", "--print", "kept.errors", "--dry-run", file, input: "{\"a\":1}\n{\"b\":1}\n")
    #expect(
      errors.status == 0 && errors.output.contains("no such key") && errors.output.contains("kept: 1\n"), "\(errors)")
    // A sink that reads only errors does not make their signal run; a user who prints them expects that.
    let alone = try Rxd.run("run", "--print", "kept.errors", "--dry-run", file, input: "{\"a\":1}\n{\"b\":1}\n")
    #expect(alone.status == 0 && alone.output.contains("no such key"), "\(alone)")
    let wrong = try Rxd.run("run", "--print", "keept", file)
    #expect(
      wrong.status == 78 && wrong.errors.contains("error[RX301]") && wrong.errors.contains(" --> --print:1:1\n"),
      "\(wrong.errors)")
    #expect(wrong.errors.contains("Did you mean 'kept'?"), "\(wrong.errors)")
  }

  // MARK: Files from standard input

  @Test(arguments: [["run", "-"], ["-"], ["-q", "-"], ["run", "/dev/stdin"]])
  func aPipelineComesFromStandardInput(_ arguments: [String]) throws {
    let outcome = try Rxd.run(arguments: arguments, input: Self.numbers)
    #expect(outcome.status == 0 && outcome.output == "2\n4\n6\n8\n10\n", "\(outcome)")
  }

  @Test func aSourceCannotReadThePipelineFile() throws {
    let outcome = try Rxd.run("run", "-", input: RunTests.echo)
    #expect(outcome.status == 78 && outcome.output == "")
    #expect(outcome.errors.contains("error[RX337]") && outcome.errors.contains("<stdin>:1:21\n"), "\(outcome.errors)")
    // If nothing runs, the file may be meant for another machine.
    #expect(try Rxd.run("check", "-", input: RunTests.echo).status == 0)
    for verb in ["explain", "graph", "test"] {
      #expect(try Rxd.run(verb, "-", input: RunTests.echo).status == 0, "\(verb)")
    }
  }

  /// Standard input has ended by then.
  @Test func aReloadKeepsAPipelineFromStandardInput() throws {
    let folder = try Scratch()
    let process = try RunningRxd(["run", "--control-socket", folder.path + "/control", "-"])
    process.write(RunTests.endless)
    process.closeInput()
    #expect(try process.line() == "1")
    try process.waits(forSocket: folder.path + "/control")
    let reload = try Rxd.run("reload", "--socket", folder.path + "/control")
    #expect(reload.status == 0, "\(reload)")
    process.send(SIGTERM)
    #expect(try process.wait() == 0)
  }
}
