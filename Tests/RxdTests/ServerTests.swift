import Foundation
import PipelineHost
import Testing

/// `httpServer` in its own process, with malicious and with numerous clients.
@Suite(.timeLimit(.minutes(4)))
struct ServerTests {
  private func port(_ process: RunningRxd) throws -> Int {
    let line = try process.errorLine(with: "listening on 127.0.0.1:")
    return try #require(line.split(separator: ":").last.flatMap { Int($0.prefix { $0.isNumber }) })
  }

  /// The peak memory of the process in MiB.
  private func peak(_ process: RunningRxd) throws -> Int {
    let status = try String(contentsOfFile: "/proc/\(process.pid)/status", encoding: .utf8)
    let line = try #require(status.split(separator: "\n").first { $0.hasPrefix("VmHWM:") })
    return try #require(line.split(separator: " ").dropFirst().first.flatMap { Int($0.filter(\.isNumber)) }) >> 10
  }

  /// Clients that post to a pipeline whose sink accepts nothing cost at most `maxBuffered`, whether they wait or not.
  @Test func aSinkThatTakesNothingDoesNotFillTheMemory() throws {
    let folder = try Scratch()
    // No server listens on port 9.
    let file = try folder.write(
      "blocked.yaml",
      """
      sources:
        events:
          httpServer: { address: '127.0.0.1:0', decode: ndjson, maxBuffered: 8MiB, replyTimeout: 100ms }
      sinks: { out: { from: events, http: { url: 'http://127.0.0.1:9/', queue: 1 } } }

      """)
    let process = try RunningRxd(["-v", file])
    let port = try port(process)
    let body = Array(String(repeating: "{\"n\":1}\n", count: 1 << 17).utf8)
    // The first body is read and held by the sink.
    let first = try Connection(port: port)
    #expect(first.post(body))
    #expect(first.status() == 504)
    let before = try peak(process)
    var refused = 0
    for round in 0..<200 {
      let client = try Connection(port: port)
      guard client.post(body) else {
        refused += 1
        continue
      }
      if round % 4 == 0 {
        let status = client.status()
        #expect(status == 503 || status == 504)
        if status == 503 { refused += 1 }
      }
      client.close()
    }
    #expect(refused > 0)
    let after = try peak(process)
    // 200 MiB have arrived. In addition to the budget, memory is used for network reads and retained by the heap.
    #expect(after - before < 64, "\(before) MiB, then \(after) MiB")
    process.send(SIGKILL)
  }

  @Test func waitsForDescriptorsWithoutSpinning() throws {
    let folder = try Scratch()
    let file = try folder.write(
      "take.yaml",
      """
      sources: { events: { httpServer: { address: '127.0.0.1:0', decode: ndjson } } }
      sinks: { out: { from: events, discard: {} } }

      """)
    let process = try RunningRxd(["-v", file])
    let port = try port(process)
    // The first connection includes one-time allocations.
    let first = try Connection(port: port)
    first.post("{}\n")
    #expect(first.status() == 200)
    let open = try FileManager.default.contentsOfDirectory(atPath: "/proc/\(process.pid)/fd").count
    let limiting = try Process.run(
      URL(fileURLWithPath: "/usr/bin/prlimit"), arguments: ["--pid", "\(process.pid)", "--nofile=\(open + 4)"])
    limiting.waitUntilExit()
    #expect(limiting.terminationStatus == 0)
    var clients: [Connection] = []
    for _ in 0..<20 { clients.append(try Connection(port: port)) }
    let warning = try process.errorLine(with: "connections cannot be accepted")
    #expect(warning.contains("the limit of open files"))
    // Nothing happens for a second, so hardly any CPU time is used: a loop that repeatedly calls accept would use all of it.
    let start = try spent(process)
    poll(nil, 0, 1000)
    #expect(try spent(process) - start < 0.3)
    // Connected clients are served meanwhile.
    for _ in 0..<200 {
      first.post("{}\n")
      #expect(first.status() == 200)
    }
    for client in clients.prefix(10) { client.close() }
    // Descriptors are free again: waiting clients get through.
    clients[10].post("{}\n")
    #expect(clients[10].status() == 200)
    let next = try process.errorLine(with: "connections ")
    #expect(next.contains("connections are accepted again"), "one warning for all attempts")
    process.send(SIGKILL)
  }

  /// CPU time so far, in seconds.
  private func spent(_ process: RunningRxd) throws -> Double {
    let text = try String(contentsOfFile: "/proc/\(process.pid)/stat", encoding: .utf8)
    let fields = text.split(separator: ")").last.map { $0.split(separator: " ") } ?? []
    return Double(fields.dropFirst(11).prefix(2).compactMap { Int($0) }.reduce(0, +))
      / Double(sysconf(Int32(_SC_CLK_TCK)))
  }

  /// Nor does it delay the end of the process: it gets 503 when the pipeline has ended, and 408 where the pipeline ends after its clients, as
  /// with a state.
  @Test(arguments: [false, true]) func aStalledBodyDoesNotHoldUpTheEnd(_ hasState: Bool) throws {
    let folder = try Scratch()
    let file = try folder.write(
      "take.yaml",
      """
      sources: { events: { httpServer: { address: '127.0.0.1:0', decode: ndjson } } }
      sinks: { out: { from: events, discard: {} } }

      """)
    let state = hasState ? ["--state-dir", folder.path + "/state"] : []
    let process = try RunningRxd(["-v", "--graceful-shutdown-limit-secs", "3600", file] + state)
    let port = try port(process)
    let stalled = try Connection(port: port)
    stalled.send("POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\nExpect: 100-continue\r\n\r\n")
    #expect(stalled.line()?.hasPrefix("HTTP/1.1 100") == true)
    #expect(stalled.line() == "")
    stalled.send("{}")
    process.send(SIGTERM)
    let answer = stalled.readAll()
    #expect(answer.hasPrefix(hasState ? "HTTP/1.1 408" : "HTTP/1.1 503"), "\(answer)")
    #expect(try process.wait() == 0)
  }

  // MARK: One address twice

  private static let one = """
    sources: { events: { httpServer: 127.0.0.1:18123 } }
    sinks: { out: { from: events, reply: {} } }

    """

  @Test func twoFilesCannotListenOnOneAddress() throws {
    let folder = try Scratch()
    try folder.write("a.yaml", Self.one)
    try folder.write("b.yaml", Self.one.replacingOccurrences(of: "127.0.0.1:18123", with: "localhost:18123"))
    try folder.write("c.yaml", Self.one.replacingOccurrences(of: "18123", with: "18124"))
    let alone = try Rxd.run("check", "a.yaml", in: folder.path)
    #expect(alone.status == 0, "\(alone.output)")
    let both = try Rxd.run("check", "a.yaml", "c.yaml", "b.yaml", in: folder.path)
    #expect(both.status == 78)
    #expect(both.output.contains("b.yaml:1:34"), "\(both.output)")
    #expect(both.output.contains("RX326"))
    #expect(both.output.contains("a.yaml:1:34"))
    // Each file is a separate pipeline: an invalid one does not stop the others, and no address is used twice.
    let running = try RunningRxd(["-v", "a.yaml", "b.yaml"], in: folder.path)
    try running.errorLine(with: "RX326")
    running.send(SIGKILL)
  }
}
