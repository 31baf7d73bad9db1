import Foundation
import PipelineHost
import Testing

/// WebSockets of a running process over reloads and a stop.
@Suite struct WebSocketReloadTests {
  /// Connections of a server stay open over a reload, even in the middle of a message; each message becomes one event.
  @Test func connectionsOfAServerOutliveAReload() throws {
    let folder = try Scratch()
    let port = try FreePort().number
    func text(_ version: Int) -> String {
      """
      sources: { in: { webSocket: { listen: 127.0.0.1:\(port), path: /in, decode: text } } }
      signals: { all: { from: in, chain: [ { map: "'\(version) ' + event" } ] } }
      sinks: { out: { from: all, stdout: text } }

      """
    }
    let file = try folder.write("a.yaml", text(0))
    let process = try RunningRxd(["--daemon", file, "--log-format", "text", "--log-level", "info"])
    try process.errorLine(with: "listening on")
    let raw = try RawWebSocket(port)
    #expect(raw.head.contains("101"))
    raw.send("first")
    #expect(try process.line() == "0 first")
    raw.send(1, Array("begin".utf8), isFinal: false)
    for version in 1...5 {
      try folder.write("a.yaml", text(version))
      process.send(SIGHUP)
      // A ping is answered by the reader of the connection, so this is read during the reload or after it.
      raw.sync()
      try process.errorLine(with: "reloaded in")
    }
    raw.send(0, Array("ning".utf8))
    #expect(try process.line() == "5 beginning")
    // Enough messages to cover the time between and during reloads.
    let count = 2000
    let sending = Thread {
      for number in 0..<count { raw.send("m\(number)") }
    }
    sending.start()
    for version in 6...10 {
      try folder.write("a.yaml", text(version))
      process.send(SIGHUP)
      try process.errorLine(with: "reloaded in")
    }
    for number in 0..<count {
      let line = try process.line()
      guard line?.hasSuffix(" m\(number)") == true else {
        Issue.record("'\(line ?? "")' instead of m\(number)")
        break
      }
    }
    // Other credentials: the connection ends.
    try folder.write("a.yaml", text(11).replacingOccurrences(of: "path: /in", with: "path: /in, auth: { bearer: t }"))
    process.send(SIGHUP)
    try process.errorLine(with: "reloaded in")
    #expect(raw.closeCode == 1001)
    raw.send(8, [0x03, 0xE9])
    process.send(SIGTERM)
    #expect(try process.wait() == 0)
  }

  /// The connection of a client stays open too; at a stop, messages that the server sends before it learns of the
  /// stop are taken.
  @Test(.enabled(if: WebSocketPeer.isThere, "needs the package python3-websockets"))
  func theConnectionOfAClientOutlivesAReload() throws {
    let folder = try Scratch()
    let port = try FreePort().number
    func text(_ version: Int, _ path: String = "feed") -> String {
      """
      sources: { in: { webSocket: { url: 'ws://127.0.0.1:\(port)/\(path)', decode: text, reconnect: 10ms } } }
      signals: { all: { from: in, chain: [ { map: "'\(version) ' + event" } ] } }
      sinks: { out: { from: all, stdout: text } }

      """
    }
    let peer = try WebSocketPeer("serve", "\(port)")
    #expect(peer.line() == "listening")
    let file = try folder.write("a.yaml", text(0))
    let process = try RunningRxd(["--daemon", file, "--log-format", "text", "--log-level", "info"])
    #expect(peer.line()?.hasPrefix("connected /feed") == true)
    peer.say("text one")
    #expect(try process.line() == "0 one")
    for version in 1...5 {
      try folder.write("a.yaml", text(version))
      process.send(SIGHUP)
      peer.say("text while")
      let line = try process.line()
      #expect(["\(version - 1) while", "\(version) while"].contains(line), "\(line ?? "")")
      try process.errorLine(with: "reloaded in")
    }
    peer.say("text behind")
    #expect(try process.line() == "5 behind")
    // Another URL: the old connection ends, and no received message is lost.
    try folder.write("a.yaml", text(6, "other"))
    process.send(SIGHUP)
    try process.errorLine(with: "reloaded in")
    let lines = [peer.line() ?? "", peer.line() ?? ""].sorted()
    #expect(lines[0] == "closed 1001 the pipeline has changed" && lines[1].hasPrefix("connected /other"), "\(lines)")
    // A stop during the handshake would abort it.
    peer.say("text there")
    #expect(try process.line() == "6 there")
    process.send(SIGTERM)
    #expect(peer.line()?.hasPrefix("closed 1001") == true)
    #expect(try process.wait() == 0)
  }
}
