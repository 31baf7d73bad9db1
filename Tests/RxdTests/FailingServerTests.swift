import Foundation
import PipelineHost
import Testing

/// A pipeline with an `httpServer` that ends on its own: its clients are answered immediately, and a daemon listens again immediately. An answer
/// may take an hour in these files, and the tests end long before.
@Suite(.timeLimit(.minutes(4)))
struct FailingServerTests {
  private static func text(_ port: Int, _ chain: String, _ sinks: String, _ more: String = "") -> String {
    """
    \(more)
    sources: { posts: { httpServer: { address: 127.0.0.1:\(port), decode: ndjson, replyTimeout: 1h } } }
    signals: { all: { from: posts, chain: [ \(chain) ] } }
    sinks: { \(sinks) }

    """
  }

  /// Posts until the port is open, and returns the status.
  private func post(_ body: String, to port: Int) -> Int? {
    Polling.first(within: 120) {
      guard let client = try? Connection(port: port) else { return nil }
      client.post(body)
      return client.status()
    }
  }

  @Test(arguments: ["durable", "light", "bestEffort"], ["discard: {}", "http: 'http://127.0.0.1:1/'"])
  func aFailedPipelineListensAgainAtOnce(_ delivery: String, _ sink: String) throws {
    let folder = try Scratch()
    let port = try FreePort().number
    let file = try folder.write(
      "a.yaml",
      Self.text(
        port, "{ map: 'int(event.p)', onError: fail }", "out: { from: all, \(sink) }", "delivery: \(delivery)"))
    let process = try RunningRxd(["--daemon", file, "--log-format", "text", "--state-dir", folder.path + "/state"])
    try process.errorLine(with: "listening on")
    // The request waits for a receiver that does not exist, unless its event is in the outbox or needs no receiver.
    let waiting = try Connection(port: port)
    waiting.post("{\"p\":\"1\"}\n")
    let failing = try Connection(port: port)
    failing.post("{\"p\":\"x\"}\n")
    #expect(failing.status() == 503)
    let first = waiting.status()
    #expect(sink == "discard: {}" || delivery == "durable" ? first == 200 : first == 503, "\(first ?? 0)")
    try process.errorLine(with: "starting again in")
    if sink == "discard: {}" {
      #expect(post("{\"p\":\"5\"}\n", to: port) == 200)
    } else {
      #expect(Polling.until { (try? Connection(port: port)) != nil })
    }
    process.send(SIGQUIT)
    _ = try process.wait()
  }

  /// An event that a step holds has its own answer, which never comes.
  @Test(arguments: [false, true]) func whatAFailedPipelineKeepsIsAnswered(_ hasState: Bool) throws {
    let folder = try Scratch()
    let port = try FreePort().number
    let file = try folder.write(
      "a.yaml",
      """
      sources: { asked: { httpServer: { address: 127.0.0.1:\(port), replyTimeout: 1h } } }
      signals:
        late: { from: asked, chain: [ { filter: event.path == '/late' }, { delay: 1h }, { map: 1 } ] }
        wrong: { from: asked, chain: [ { filter: event.path == '/wrong' }, { map: int(event.body), onError: fail } ] }
      sinks: { a: { from: late, reply: {} }, b: { from: wrong, reply: {} } }

      """)
    let state = hasState ? ["--state-dir", folder.path + "/state"] : []
    let process = try RunningRxd(["--daemon", file, "--log-format", "text"] + state)
    try process.errorLine(with: "listening on")
    let late = try Connection(port: port)
    late.send("POST /late HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\n\r\n1")
    let wrong = try Connection(port: port)
    wrong.send("POST /wrong HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\n\r\nx")
    #expect(wrong.status() == 503)
    #expect(late.status() == 503)
    try process.errorLine(with: "starting again in")
    process.send(SIGQUIT)
    _ = try process.wait()
  }

  /// A durable pipeline that has taken enough events answers the last client when its last commit is on disk, and ends.
  @Test func aCompletedPipelineAnswersItsLastClient() throws {
    let folder = try Scratch()
    let port = try FreePort().number
    let file = try folder.write(
      "a.yaml", Self.text(port, "{ take: 1 }", "out: { from: all, file: '\(folder.path)/out' }"))
    let process = try RunningRxd([
      file, "--log-format", "text", "--log-level", "info", "--state-dir", folder.path + "/state",
    ])
    try process.errorLine(with: "listening on")
    let client = try Connection(port: port)
    client.post("{\"p\":1}\n")
    #expect(client.status() == 200)
    #expect(try process.wait() == 0)
    #expect(try String(contentsOfFile: folder.path + "/out", encoding: .utf8) == "{\"p\":1}\n")
  }
}
