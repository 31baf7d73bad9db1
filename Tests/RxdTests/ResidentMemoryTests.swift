import Foundation
import PipelineHost
import Testing

/// `--queue-memory` limits the memory of the process, whatever its pipelines read and however much arrives at once.
@Suite(.serialized, .timeLimit(.minutes(10)))
struct ResidentMemoryTests {
  private static let isSanitized = ProcessInfo.processInfo.environment["ASAN_OPTIONS"] != nil
  private static let pipelines = 20
  private static let budget = 8 << 20
  private static let line = "{\"text\":\"" + String(repeating: "x", count: 90) + "\"}\n"
  /// The data that arrives at once for each pipeline: 2 MB.
  private static let flood = String(repeating: line, count: 20_000)
  private static let body = String(repeating: line, count: 1000)

  enum Shape: CaseIterable, Sendable {
    case followed, file, tcp, httpServer

    /// The memory of a pipeline in addition to the budget, also in a debug build: its blocks, the memory of a turn and of requests to the sink,
    /// and 16 KiB of messages that an HTTP server accepts even if the budget is used up.
    var allowance: Int {
      switch self {
      case .followed, .file: 256 << 10
      case .tcp: 384 << 10
      case .httpServer: 1 << 20
      }
    }

    /// The log message of each pipeline that has started.
    var marker: String {
      switch self {
      case .followed, .file: "waiting for one"
      case .tcp, .httpServer: "listening on"
      }
    }
  }

  @Test(.enabled(if: !isSanitized), arguments: Shape.allCases)
  func aFloodStaysWithinTheBudget(_ shape: Shape) throws {
    let folder = try Scratch()
    // Accepts requests and answers none.
    let server = try ScriptedServer { _ = $0.readAll() }
    defer { server.stop() }
    let ports = try (0..<Self.pipelines).map { _ in try FreePort().number }
    // Files that are read once must exist at the start, so an idle process is one that waits for such files.
    var process = try start(shape == .file ? .followed : shape, folder, ports, server.url)
    for _ in 0..<Self.pipelines { try process.errorLine(with: shape.marker) }
    let before = try anonymous(process)
    if shape == .file {
      process.send(SIGKILL)
      _ = try process.wait()
    }
    for number in 0..<Self.pipelines { try send(shape, "\(folder.path)/\(number).log", ports[number]) }
    if shape == .file { process = try start(shape, folder, ports, server.url) }
    var most = 0
    var looks = 0
    let isFull = try Polling.until(within: 120, pause: 100) {
      let now = try anonymous(process)
      looks = now > most ? 0 : looks + 1
      most = max(most, now)
      // Every sink has begun to send, and no more input is accepted.
      return server.connections >= Self.pipelines && looks >= 20
    }
    #expect(isFull, "\(shape): \(server.connections) connections")
    let limit = before + Self.budget + Self.budget / 4 + Self.pipelines * shape.allowance
    #expect(most <= limit, "\(shape): \(most >> 10) KiB, idle \(before >> 10) KiB")
  }

  private func start(_ shape: Shape, _ folder: Scratch, _ ports: [Int], _ url: String) throws -> RunningRxd {
    mkdir(folder.path + "/p", 0o700)
    for number in 0..<Self.pipelines {
      let path = "\(folder.path)/\(number).log"
      let source =
        switch shape {
        case .followed: "file: { path: '\(path)', follow: true }"
        case .file: "file: '\(path)'"
        case .tcp: "tcp: { address: '127.0.0.1:\(ports[number])', decode: ndjson }"
        case .httpServer: "httpServer: { address: '127.0.0.1:\(ports[number])', decode: ndjson }"
        }
      try folder.write(
        "p/p\(number).yaml",
        """
        sources: { in: { \(source) } }
        sinks: { out: { from: in, http: '\(url)/' } }

        """)
    }
    return try RunningRxd("run", folder.path + "/p", "--queue-memory", "8MiB")
  }

  /// Sends the flood of one pipeline. Senders wait while the process accepts nothing, and end with it.
  private func send(_ shape: Shape, _ path: String, _ port: Int) throws {
    switch shape {
    case .followed, .file: try Self.flood.write(toFile: path, atomically: false, encoding: .utf8)
    case .tcp:
      Thread {
        guard let client = SocketClient(port: port) else { return }
        client.send(Self.flood)
        _ = client.receiveAll(within: 60_000)
      }.start()
    case .httpServer:
      for _ in 0..<4 {
        Thread {
          guard let client = try? Connection(port: port) else { return }
          for _ in 0..<20 {
            guard client.post(Self.body) else { return }
          }
          _ = client.readAll()
        }.start()
      }
    }
  }

  /// The resident anonymous memory of a process, in bytes.
  private func anonymous(_ process: RunningRxd) throws -> Int {
    let text = try String(contentsOfFile: "/proc/\(process.pid)/smaps_rollup", encoding: .utf8)
    let line = text.split(separator: "\n").first { $0.hasPrefix("Anonymous:") }
    let number = line?.split(separator: " ").dropFirst().first.flatMap { Int($0) }
    let kilobytes = try #require(number)
    return kilobytes << 10
  }
}
