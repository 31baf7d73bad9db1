import Foundation
import Testing

/// The effects of a busy pipeline, a hanging device and an unread log on everything else.
@Suite(.timeLimit(.minutes(10)))
struct SharingTests {
  /// Busy forever: windows of a hundred numbers.
  private static let busy = """
    sources: { round: { values: [\((1...500).map(String.init).joined(separator: ", "))] } }
    signals:
      windows:
        from: round
        chain:
          - repeat
          - scan: { start: [], next: "size(running) < 100 ? running + [event] : [event]" }
    sinks: { out: { from: windows, discard: {} } }

    """

  private static let products = Bundle.main.bundleURL.deletingLastPathComponent().path
  private static let hang: String? = [products, Bundle.main.bundleURL.path, Rxd.root + "/.build/debug"]
    .map { $0 + "/libCHang.so" }.first { FileManager.default.fileExists(atPath: $0) }

  @Test func busyPipelinesFeedTheWatchdogAndLetOthersRun() throws {
    let folder = try Scratch()
    for name in ["a", "b", "c", "d"] { try folder.write("\(name).yaml", Self.busy) }
    try folder.write(
      "clock.yaml",
      """
      sources: { clock: { interval: 10ms } }
      sinks: { out: { from: clock, chain: [ { map: event.tick } ], stdout: json } }

      """)
    let manager = try NotifySocket(folder.path + "/notify")
    let process = try RunningRxd(
      [folder.path], environment: ["NOTIFY_SOCKET": manager.path, "WATCHDOG_USEC": "1000000"])
    _ = try manager.next(with: "READY")
    for tick in 1...50 { #expect(try process.line() == "\(tick)") }
    for _ in 0..<3 { _ = try manager.next(with: "WATCHDOG") }
    process.send(SIGTERM)
    #expect(try process.wait() == 0)
  }

  @Test func aHungSyncStopsTheFeeding() throws {
    let hang = try #require(Self.hang, "libCHang.so is built with the tests")
    let folder = try Scratch()
    let file = try folder.write(
      "a.yaml",
      """
      sources: { clock: { interval: 5ms } }
      sinks: { out: { from: clock, file: { path: '\(folder.path)/out.ndjson', sync: batch } } }

      """)
    let manager = try NotifySocket(folder.path + "/notify")
    let trigger = folder.path + "/hang"
    let process = try RunningRxd(
      [file, "--log-format", "text"],
      environment: [
        "NOTIFY_SOCKET": manager.path, "WATCHDOG_USEC": "200000", "LD_PRELOAD": hang, "HANG_WHILE": trigger,
      ])
    _ = try manager.next(with: "READY")
    for _ in 0..<3 { _ = try manager.next(with: "WATCHDOG") }
    try folder.write("hang", "")
    let reported = try process.errorLine(with: "not feeding the watchdog")
    #expect(reported.contains("out.ndjson has been busy for"))
    while Deadline.isReadable(manager.descriptor) { _ = try manager.next() }
    try process.errorLine(with: "not feeding the watchdog")
    #expect(!Deadline.isReadable(manager.descriptor))
    // The device works again, and so does the watchdog.
    try FileManager.default.removeItem(atPath: trigger)
    _ = try manager.next(with: "WATCHDOG")
    process.send(SIGTERM)
    #expect(try process.wait() == 0)
  }

  /// Closing an unused store and writing the record of the pipelines do not block the thread that answers.
  @Test func aHungStateDirectoryHoldsUpNoAnswer() throws {
    let hang = try #require(Self.hang, "libCHang.so is built with the tests")
    let folder = try Scratch()
    let (socket, pipelines, trigger) = (folder.path + "/c.sock", folder.path + "/pipelines", folder.path + "/hang")
    try FileManager.default.createDirectory(atPath: pipelines, withIntermediateDirectories: false)
    try folder.write("in", "x\n")
    let gone = try folder.write(
      "pipelines/gone.yaml",
      """
      delivery: light
      sources: { lines: { file: { path: '\(folder.path)/in', follow: true } } }
      sinks: { out: { from: lines, stdout: json } }

      """)
    try folder.write("pipelines/stays.yaml", "sources: { s: { never: {} } }\nsinks: { o: { from: s, discard: {} } }\n")
    let process = try RunningRxd(
      [
        "run", "--daemon", pipelines, "--state-dir", folder.path + "/state", "--control-socket", socket, "--log-format",
        "text",
      ],
      environment: ["LD_PRELOAD": hang, "HANG_WHILE": trigger])
    #expect(try process.line() == "\"x\"")
    try folder.write("hang", "")
    try FileManager.default.removeItem(atPath: gone)
    for _ in 0..<2 {
      let reload = try Rxd.run("reload", "--wait", "--socket", socket)
      #expect(reload.status == 0, "\(reload)")
    }
    try FileManager.default.removeItem(atPath: trigger)
    process.send(SIGTERM)
    #expect(try process.wait() == 0)
  }

  // MARK: A log that nobody reads

  /// Each event is a line of the log, and three thousand are far more than a pipe and the buffer hold.
  private static let talkative = """
    sources: { clock: { interval: 200us } }
    signals:
      said:
        from: clock
        chain: [ { log: { message: "{{ event.tick }} \(String(repeating: "x", count: 1000))" } }, { map: event.tick } ]
    sinks: { out: { from: said, chain: [ { filter: event % 1000 == 0 } ], stdout: json } }

    """

  @Test func aLogThatNobodyReadsStopsNeitherThePipelineNorItsEnd() throws {
    let folder = try Scratch()
    let file = try folder.write("a.yaml", Self.talkative)
    let process = try RunningRxd([file, "--log-format", "text"])
    // Far more than a pipe and the buffer hold.
    while let line = try process.line(), line != "3000" {}
    process.send(SIGTERM)
    #expect(try process.wait() == 0)
    // The written part is the start of the log.
    for number in 1...40 {
      #expect(try process.line(from: process.errors)?.contains(": \(number) xxx") == true)
    }
  }

  @Test func linesThatAreDroppedAreCounted() throws {
    let folder = try Scratch()
    let file = try folder.write("a.yaml", Self.talkative)
    let process = try RunningRxd([file, "--log-format", "text"])
    while let line = try process.line(), line != "3000" {}
    let reported = try process.errorLine(with: "of the log were dropped, because standard error was not read")
    let count = reported.split(separator: " ").compactMap { Int($0) }.first ?? 0
    #expect(count > 100, "\(reported)")
    process.send(SIGTERM)
    while try process.line(from: process.errors) != nil {}
    #expect(try process.wait() == 0)
  }

  /// If the log is read, however slowly, it is complete.
  @Test func everythingIsInTheLogThatIsRead() throws {
    let folder = try Scratch()
    let file = try folder.write(
      "a.yaml",
      """
      sources: { numbers: { values: [\((1...500).map(String.init).joined(separator: ", "))] } }
      sinks:
        out: { from: numbers, chain: [ { log: { message: "n{{ event }}. \(String(repeating: "x", count: 1000))" } } ], discard: {} }

      """)
    let process = try RunningRxd([file, "--log-format", "json"])
    var seen = 0
    while let line = try process.line(from: process.errors) {
      if line.contains("n\(seen + 1). xxx") { seen += 1 }
    }
    #expect(seen == 500)
    #expect(try process.wait() == 0)
  }

  /// If the system refuses memory, a message says so.
  @Test func tooLittleMemoryIsAMessage() throws {
    let folder = try Scratch()
    let file = try folder.write(
      "a.yaml",
      """
      sources: { text: { values: ['\(String(repeating: "x", count: 60_000))'] } }
      signals: { all: { from: text, chain: [ repeat, { collect: 10000000 } ] } }
      sinks: { out: { from: all, discard: {} } }

      """)
    let process = try RunningRxd([file], limitingMemoryTo: 800_000)
    let line = try process.errorLine(with: "out of memory")
    #expect(line.contains("ulimit -v"))
    #expect(try process.wait() == 71)
  }

  // MARK: Signals

  /// While the file is still being read nothing has started: a signal for a reload or a status waits, a signal for the end takes
  /// effect.
  @Test(arguments: [(SIGTERM, 0), (SIGINT, 0), (SIGQUIT, 128 + SIGQUIT)] as [(Int32, Int32)])
  func signalsDuringTheStart(_ last: Int32, _ status: Int32) throws {
    let process = try RunningRxd(["run", "-"])
    // From then on the signals are blocked.
    let held = "/proc/\(process.pid)/status"
    var isHeld = false
    for _ in 0..<100_000 where !isHeld {
      let text = (try? String(contentsOfFile: held, encoding: .utf8)) ?? ""
      let mask = text.split(separator: "\n").first { $0.hasPrefix("SigBlk:") }?.split(separator: "\t").last ?? "0"
      let caught = text.split(separator: "\n").first { $0.hasPrefix("SigCgt:") }?.split(separator: "\t").last ?? "0"
      isHeld =
        (UInt64(mask, radix: 16) ?? 0) >> UInt64(SIGUSR1 - 1) & 1 == 1
        && (UInt64(caught, radix: 16) ?? 0) >> UInt64(SIGTERM - 1) & 1 == 1
      if !isHeld { sched_yield() }
    }
    #expect(isHeld)
    for signal in [SIGUSR1, SIGUSR2, SIGHUP] { process.send(signal) }
    process.send(last)
    #expect(try process.wait() == status)
  }

  @Test func theSignalsOfUsersEndNothing() throws {
    let folder = try Scratch()
    let file = try folder.write("a.yaml", DaemonTests.saying("one"))
    let process = try RunningRxd([file, "--log-format", "text"])
    #expect(try process.line() == "one")
    process.send(SIGUSR2)
    process.send(SIGUSR1)
    try process.errorLine(with: "1 pipeline running")
    process.send(SIGTERM)
    #expect(try process.wait() == 0)
  }

  /// timeout(1) sends the signal to the process and then to its group, which is the same process.
  @Test func aSignalThatIsSentTwiceIsOne() throws {
    let folder = try Scratch()
    let file = try folder.write(
      "a.yaml",
      """
      sources: { first: { values: [1, 2, 3] }, rest: { never: {} } }
      signals: { all: { merge: [first, rest] } }
      sinks:
        seen: { from: all, stderr: json }
        held: { from: all, chain: [ { bufferWithTime: 1h } ], stdout: json }

      """)
    let process = try RunningRxd([file])
    for number in 1...3 { #expect(try process.line(from: process.errors) == "\(number)") }
    for _ in 0..<20 {
      process.send(SIGTERM)
      process.send(SIGINT)
    }
    #expect(try process.line() == "[1,2,3]")
    #expect(try process.wait() == 0)
  }
}

extension Deadline {
  /// Whether data can be read now.
  static func isReadable(_ descriptor: Int32) -> Bool {
    var entry = pollfd(fd: descriptor, events: Int16(POLLIN), revents: 0)
    return poll(&entry, 1, 0) > 0
  }
}
