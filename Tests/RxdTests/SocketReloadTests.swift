import Foundation
import PipelineHost
import Testing

/// Sockets of a running process: over a reload, and when a service manager has opened them.
@Suite struct SocketReloadTests {
  /// Connections stay open over a reload, even in the middle of a message, and lose nothing; the datagram socket stays open.
  @Test func connectionsOutliveAReload() throws {
    let folder = try Scratch()
    let free = try FreePort()
    let port = free.number
    func text(_ version: Int) -> String {
      """
      sources:
        stream: { tcp: 127.0.0.1:\(port) }
        datagrams: { udp: 127.0.0.1:\(port) }
        local: { unix: '\(folder.path)/s' }
      signals:
        all: { merge: [stream, datagrams, local], chain: [ { map: "'\(version) ' + event" } ] }
      sinks: { out: { from: all, stdout: text } }

      """
    }
    let file = try folder.write("a.yaml", text(0))
    let process = try RunningRxd(["--daemon", file, "--log-format", "text", "--log-level", "info"])
    for _ in 0..<3 { try process.errorLine(with: "listening on") }
    let stream = try #require(SocketClient(port: port), "\(process.transcript)")
    let local = try #require(SocketClient(path: folder.path + "/s"))
    let datagrams = try #require(SocketClient(port: port, isDatagram: true))
    stream.send("first\nbegin")
    #expect(try process.line() == "0 first")
    local.send("local\nbe")
    #expect(try process.line() == "0 local")
    for version in 1...5 {
      try folder.write("a.yaml", text(version))
      process.send(SIGHUP)
      datagrams.send("while it changes")
      let line = try process.line()
      #expect(["\(version - 1)", "\(version)"].contains { line == "\($0) while it changes" }, "\(line)")
      try process.errorLine(with: "reloaded in")
      datagrams.send("behind it")
      #expect(try process.line() == "\(version) behind it")
    }
    stream.send("ning\n")
    #expect(try process.line() == "5 beginning")
    local.send("hind\n")
    #expect(try process.line() == "5 behind")
    process.send(SIGTERM)
    #expect(try process.wait() == 0)
    #expect(stream.receive()?.isEmpty == true)
  }

  /// Passed as systemd does: from descriptor 3 on, with their names in the environment.
  @Test(
    .enabled(
      if: access("/usr/bin/systemd-socket-activate", X_OK) == 0 || access("/bin/systemd-socket-activate", X_OK) == 0,
      "needs Debian's systemd"))
  func takesSocketsOfTheServiceManager() throws {
    let folder = try Scratch()
    let free = try FreePort()
    let port = free.number
    let file = try folder.write(
      "a.yaml",
      """
      sources: { in: { tcp: systemd:logs } }
      sinks: { out: { from: in, file: { path: '\(folder.path)/out', encode: text } } }

      """)
    let process = Process()
    process.executableURL = URL(
      fileURLWithPath: ["/usr/bin/", "/bin/"].map { $0 + "systemd-socket-activate" }.first { access($0, X_OK) == 0 }
        ?? "")
    process.arguments = ["-l", "127.0.0.1:\(port)", "--fdname=logs", Rxd.binary, "--daemon", file]
    process.standardError = FileHandle.nullDevice
    process.standardOutput = FileHandle.nullDevice
    try process.run()
    defer {
      // A child of a test's thread inherits its signal mask, which blocks SIGTERM.
      kill(process.processIdentifier, SIGKILL)
      process.waitUntilExit()
    }
    // systemd-socket-activate starts the program when a client connects; before it listens, connections fail.
    let end = Date(timeIntervalSinceNow: 60)
    var client: SocketClient?
    while client == nil, Date() < end { client = SocketClient(port: port) }
    try #require(client).send("by systemd\n")
    let found = try FolderWatch(folder.path).first {
      (try? String(contentsOfFile: folder.path + "/out", encoding: .utf8)).flatMap { $0.isEmpty ? nil : $0 }
    }
    #expect(found == "by systemd\n")
  }
}
