import Foundation
import PipelineHost
import Testing

/// A reload waits for no receiver: a stalled reader and a busy plugin pass to the next version, with their unread events.
@Suite(.timeLimit(.minutes(10)))
struct StalledReceiverTests {
  private let folder: Scratch
  private static let count = 4000

  init() throws { folder = try Scratch() }

  private func pipeline(_ number: Int, _ sink: String, _ head: String = "") -> String {
    """
    \(head)
    sources: { in: { file: { path: '\(folder.path)/in', follow: true, decode: ndjson } } }
    sinks: { out: { from: in, chain: [ { set: { v: \(number) } } ], \(sink) } }

    """
  }

  private func writeInput(_ bytes: Int) throws {
    let text = String(repeating: "x", count: bytes)
    try folder.write("in", (0..<Self.count).map { "{\"n\":\($0),\"t\":\"\(text)\"}\n" }.joined())
  }

  private func start(_ text: String, _ delivery: String) throws -> RunningRxd {
    let file = try folder.write("a.yaml", "delivery: \(delivery)\n" + text)
    var arguments = ["--daemon", file, "--log-format", "text", "--log-level", "info"]
    if delivery != "bestEffort" { arguments += ["--state-dir", folder.path + "/state"] }
    return try RunningRxd(arguments)
  }

  /// Reloads; returns the duration of each in milliseconds.
  private func reload(_ process: RunningRxd, _ delivery: String, _ texts: [String]) throws -> [Int] {
    try texts.map { text in
      try folder.write("a.yaml", "delivery: \(delivery)\n" + text)
      process.send(SIGHUP)
      let line = try process.errorLine(with: "reloaded in")
      return try #require(line.split(separator: " ").compactMap { Int($0) }.first)
    }
  }

  private func numbers(_ text: some StringProtocol) -> [Int] {
    text.split(separator: "\n").compactMap { line in
      (try? JSONSerialization.jsonObject(with: Data(line.utf8)) as? [String: Any])?["n"] as? Int
    }
  }

  /// Reads until there are so many lines, or until the end.
  private func read(_ descriptor: Int32, _ lines: Int = .max) -> String {
    var bytes: [UInt8] = []
    var found = 0
    var buffer = [UInt8](repeating: 0, count: 1 << 16)
    while found < lines {
      let count = Foundation.read(descriptor, &buffer, buffer.count)
      if count < 0, errno == EINTR { continue }
      guard count > 0 else { break }
      bytes += buffer[..<count]
      found += buffer[..<count].count { $0 == 0x0A }
    }
    return String(decoding: bytes, as: UTF8.self)
  }

  /// The reader of a pipe or a named pipe reads nothing during the reloads, and then everything: each line arrived once, whole and in
  /// order.
  @Test(arguments: ["stdout: { encode: ndjson }", "file: 'DIR/pipe'"], ["bestEffort", "light", "durable"])
  func aReaderThatHasStalledHoldsUpNoReload(_ sink: String, _ delivery: String) throws {
    try writeInput(2000)
    #expect(mkfifo(folder.path + "/pipe", 0o600) == 0)
    let pipe = open(folder.path + "/pipe", O_RDONLY | O_NONBLOCK | O_CLOEXEC)
    defer { close(pipe) }
    #expect(fcntl(pipe, F_SETFL, 0) == 0)
    let target = sink.replacing("DIR", with: folder.path)
    let process = try start(pipeline(0, target), delivery)
    let reader = sink.hasPrefix("stdout") ? process.output : pipe
    var waiting = pollfd(fd: reader, events: Int16(POLLIN), revents: 0)
    #expect(poll(&waiting, 1, 120_000) == 1)
    let times = try reload(process, delivery, (1...3).map { pipeline($0, target) })
    // A version that waited for the reader would wait for seconds.
    #expect(times.allSatisfy { $0 < 1000 }, "\(times)")
    // Also if the encoding changes.
    let other = target.replacing("encode: ndjson", with: "encode: json")
    #expect(try reload(process, delivery, [pipeline(5, other)]).allSatisfy { $0 < 1000 })
    let received = numbers(read(reader, Self.count))
    #expect(received == Array(0..<Self.count))
    process.send(SIGTERM)
    #expect(try process.wait() == 0)
    #expect(!process.transcript.contains { $0.contains("given up") || $0.contains("not delivered") })
  }

  /// A stop with a stalled reader, after a reload, loses nothing that the reader reads in time.
  @Test func aStopBehindAReloadWritesTheRest() throws {
    try writeInput(100)
    let process = try start(pipeline(0, "stdout: { encode: ndjson }"), "light")
    var waiting = pollfd(fd: process.output, events: Int16(POLLIN), revents: 0)
    #expect(poll(&waiting, 1, 120_000) == 1)
    _ = try reload(process, "light", [pipeline(1, "stdout: { encode: ndjson }")])
    #expect(numbers(read(process.output, Self.count / 2)).count >= Self.count / 2)
    process.send(SIGTERM)
    _ = read(process.output)
    #expect(try process.wait() == 0)
    #expect(!process.transcript.contains { $0.contains("not delivered") })
  }

  /// A plugin that has received events and does not answer passes to the next version, which does not restart it.
  @Test(arguments: ["bestEffort", "light", "durable"])
  func aBusyPluginHoldsUpNoReload(_ delivery: String) throws {
    try writeInput(10)
    let program = try folder.write(
      "busy.py",
      """
      #!/usr/bin/python3 -S
      import fcntl, json, sys
      folder = '\(folder.path)'
      def say(frame): print(json.dumps(frame), flush=True)
      def note(name, text): open(folder + '/' + name, 'a').write(text + '\\n')
      for line in sys.stdin:
          f = json.loads(line)
          if 'hello' in f: say({"spec": {"plugin": "busy", "version": "1", "summary": "Waits.", "components": [{"kind": "sink", "name": "take", "summary": "Waits.", "confirmation": "disk", "parameters": [{"name": "mark", "type": "text", "help": "A mark."}]}]}})
          elif 'open' in f:
              note('opened', f['parameters'].get('mark') or '')
              say({"opened": f['open']})
          elif 'event' in f:
              note('busy', '')
              with open(folder + '/go') as go: fcntl.flock(go, fcntl.LOCK_SH)
              note('received', json.dumps({"n": f['event']['n']}))
              say({"id": f['id']})
          elif 'complete' in f: say({"id": f['id']})
          elif 'ping' in f: say({"pong": f['ping']})

      """)
    chmod(program, 0o755)
    // The plugin waits until this lock is released.
    let go = open(folder.path + "/go", O_CREAT | O_RDWR | O_CLOEXEC, 0o600)
    try #require(go >= 0 && flock(go, LOCK_EX) == 0)
    let head = "plugins: { p: { run: ['\(program)'], timeout: 5m } }"
    let process = try start(pipeline(0, "take: {}", head), delivery)
    #expect(Polling.until(within: 120) { access(folder.path + "/busy", F_OK) == 0 })
    let times = try reload(process, delivery, (1...4).map { pipeline($0, "take: {}", head) })
    // A version that waited for the plugin would wait for seconds.
    #expect(times.allSatisfy { $0 < 1000 }, "\(times)")
    // With another parameter the old instance finishes its events in parallel, and the new version waits for it.
    #expect(try reload(process, delivery, [pipeline(5, "take: { mark: other }", head)]).allSatisfy { $0 < 1000 })
    close(go)
    func received() -> [Int] {
      numbers((try? String(contentsOfFile: folder.path + "/received", encoding: .utf8)) ?? "")
    }
    #expect(Polling.until(within: 120) { received().last == Self.count - 1 })
    process.send(SIGTERM)
    #expect(try process.wait() == 0)
    #expect(received() == Array(0..<Self.count))
    #expect(try String(contentsOfFile: folder.path + "/opened", encoding: .utf8) == "\nother\n")
  }
}
