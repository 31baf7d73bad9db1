import Foundation
import PipelineHost
import Testing

/// `movedFrom` of a source or a sink: the state that an earlier version saved under the former name is used under the new
/// one.
@Suite(.timeLimit(.minutes(10)))
struct RenamedPartTests {
  private let folder: Scratch
  private let state: String

  init() throws {
    folder = try Scratch()
    state = folder.path + "/state"
  }

  private func start(_ file: String) throws -> RunningRxd {
    try RunningRxd([
      file, "--daemon", "--state-dir", state, "--log-format", "text", "--log-level", "info",
      "--graceful-shutdown-limit-secs", "0",
    ])
  }

  private func end(_ process: RunningRxd) throws {
    process.send(SIGTERM)
    _ = try process.wait()
  }

  private func check(_ file: String) throws -> Rxd.Outcome {
    try Rxd.run(arguments: ["check", file], state: state)
  }

  /// Waits for the lines of a file.
  private func lines(_ count: Int) throws -> [String] {
    let end = Date(timeIntervalSinceNow: 60)
    var lines: [String] = []
    while lines.count < count, Date() < end {
      lines = ((try? String(contentsOfFile: folder.path + "/out", encoding: .utf8)) ?? "").split(separator: "\n")
        .map(String.init)
      poll(nil, 0, 5)
    }
    return lines
  }

  @discardableResult
  private func send(_ sink: String) throws -> String {
    try folder.write(
      "send.yaml", "name: send\nsources: { n: { stdin: { decode: json } } }\nsinks: { \(sink) }\n")
  }

  private static let dead = "http: { url: 'http://127.0.0.1:1/' }"

  /// Events wait in the outbox of a sink that is renamed by a restart or a reload: they are delivered, whatever the kind of the sink is now.
  @Test(arguments: [true, false]) func whatWaitsIsDelivered(_ isReload: Bool) throws {
    var process = try start(send("web: { from: n, \(Self.dead) }"))
    process.write("{\"a\":1}\n{\"a\":2}\n{\"a\":3}\n")
    try process.errorLine(with: "trying again")
    for (former, sink) in [("web", "shop"), ("shop", "web")] {
      let file = try send("\(sink): { from: n, movedFrom: \(former), \(Self.dead) }")
      if isReload {
        let verdict = try Rxd.run(arguments: ["reload", "--wait"], state: state)
        #expect(verdict.status == 0 && !verdict.output.contains("left:"), "\(verdict.output)")
        #expect(!verdict.output.contains("lost:"), "\(verdict.output)")
      } else {
        try end(process)
        let checked = try check(file)
        #expect(checked.status == 0 && !checked.output.contains("RX5"), "\(checked.output)")
        process = try start(file)
      }
      try process.errorLine(with: "the sink '\(sink)' delivers the 3 events that wait for '\(former)'")
      let listed = try Rxd.run(arguments: ["state", "ls"], state: state)
      #expect(!listed.output.contains("Left behind"), "\(listed.output)")
    }
    try end(process)
    let last = try start(send("kept: { from: n, movedFrom: web, file: '\(folder.path)/out' }"))
    #expect(try lines(3) == ["{\"a\":1}", "{\"a\":2}", "{\"a\":3}"])
    try end(last)
    // The rows are stored under the new name now, so the former one is no longer needed.
    let again = try start(send("kept: { from: n, file: '\(folder.path)/out' }"))
    again.write("{\"a\":4}\n")
    #expect(try lines(4).count == 4)
    try end(again)
  }

  /// Events wait in memory for a sink that a reload renames.
  @Test func whatWaitsInMemoryGoesOn() throws {
    let port = try FreePort().number
    let file = try send("web: { from: n, http: { url: 'http://127.0.0.1:\(port)/' } }")
    let socket = folder.path + "/control"
    let process = try RunningRxd([
      file, "--daemon", "--control-socket", socket, "--log-format", "text", "--log-level", "info",
    ])
    process.write("{\"a\":1}\n{\"a\":2}\n{\"a\":3}\n")
    try process.errorLine(with: "trying again")
    try send("shop: { from: n, movedFrom: web, http: { url: 'http://127.0.0.1:\(port)/' } }")
    let verdict = try Rxd.run(arguments: ["reload", "--wait", "--socket", socket])
    #expect(verdict.status == 0 && !verdict.output.contains("lost:"), "\(verdict.output)")
    let server = try RunningRxd([
      try folder.write(
        "server.yaml",
        """
        sources: { posts: { httpServer: { address: "127.0.0.1:\(port)", decode: ndjson } } }
        sinks: { out: { from: posts, file: '\(folder.path)/out' } }

        """), "--daemon", "--log-format", "text", "--log-level", "info",
    ])
    #expect(try lines(3) == ["{\"a\":1}", "{\"a\":2}", "{\"a\":3}"])
    try end(process)
    try end(server)
  }

  /// A source, the signal that it feeds and the sink are renamed: reading, counting and writing continue.
  @Test(arguments: [true, false]) func positionsGoOn(_ isReload: Bool) throws {
    let input = try folder.write("in", (1...100).map { "{\"n\":\($0)}\n" }.joined())
    func text(_ source: String, _ signal: String, _ sink: String) throws -> String {
      func part(_ names: String) -> (name: String, former: String) {
        let parts = names.split(separator: " ").map(String.init)
        return (parts[0], parts.count > 1 ? ", movedFrom: \(parts[1])" : "")
      }
      let (first, second, third) = (part(source), part(signal), part(sink))
      return try folder.write(
        "p.yaml",
        """
        name: p
        sources: { \(first.name): { file: { path: '\(input)', follow: true, decode: json }\(first.former) } }
        signals:
          \(second.name): { from: \(first.name), chain: [ { scan: { start: 0, next: running + 1 } } ]\(second.former) }
        sinks: { \(third.name): { from: \(second.name), file: '\(folder.path)/out'\(third.former) } }

        """)
    }
    var process = try start(text("s", "a", "o"))
    #expect(try lines(100).last == "100")
    let file = try text("t s", "b a", "q o")
    if isReload {
      let verdict = try Rxd.run(arguments: ["reload", "--wait"], state: state)
      #expect(verdict.status == 0 && !verdict.output.contains("lost:"), "\(verdict.output)")
    } else {
      try end(process)
      #expect(try !check(file).output.contains("RX5"))
      process = try start(file)
    }
    for part in ["the source 't' continues from the state of 's'", "signal 'b' continues", "sink 'q' continues"] {
      try process.errorLine(with: part)
    }
    let handle = try #require(FileHandle(forWritingAtPath: input))
    try handle.seekToEnd()
    try handle.write(contentsOf: Data("{\"n\":101}\n".utf8))
    try handle.close()
    #expect(try lines(101) == (1...101).map(String.init))
    try end(process)
    // A former name that no state has.
    let wrong = try text("u r", "b", "q")
    let checked = try check(wrong)
    #expect(
      checked.status == 0 && checked.output.contains("RX507")
        && checked.output.contains("the saved state has no source 'r', so 'u' starts empty")
        && checked.output.contains("p.yaml:2:"), "\(checked.output)")
    let last = try start(wrong)
    try last.errorLine(with: "the saved state has no source 'r', so 'u' starts empty")
    try end(last)
  }
}
