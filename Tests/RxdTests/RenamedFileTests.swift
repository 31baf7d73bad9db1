import Foundation
import PipelineHost
import Synchronization
import Testing

/// Files that are renamed, and names and addresses that move between files, in a reload: a pipeline's stored data belongs to one run at a time.
@Suite struct RenamedFileTests {
  private struct Daemon {
    let folder: Scratch
    let process: RunningRxd

    init(_ files: [String: String], keepsState: Bool = true) throws {
      folder = try Scratch()
      try FileManager.default.createDirectory(atPath: folder.path + "/files", withIntermediateDirectories: false)
      for (name, text) in files { try folder.write("files/" + name, text) }
      process = try RunningRxd(
        ["--daemon", folder.path + "/files", "--log-format", "text", "--log-level", "info"]
          + (keepsState ? ["--state-dir", folder.path + "/state"] : []))
    }

    func rename(_ old: String, to new: String) throws {
      try FileManager.default.moveItem(atPath: "\(folder.path)/files/\(old)", toPath: "\(folder.path)/files/\(new)")
    }

    /// Returns the log lines until the reload has ended.
    func reload() throws -> [String] {
      process.send(SIGHUP)
      var lines: [String] = []
      while true {
        let line = try #require(try process.line(from: process.errors))
        lines.append(line)
        if line.contains("reloaded in") { return lines }
      }
    }
  }

  private func counter(_ name: String, from start: Int = 0) -> String {
    """
    name: \(name)
    sources: { tick: { interval: 5ms } }
    sinks:
      out:
        from: tick
        chain: [ { scan: { start: \(start), next: running + 1 } }, { map: "'\(name) ' + string(event)" } ]
        stdout: text

    """
  }

  /// The pipeline continues, whatever its file is called: each number appears once.
  @Test func aRenamedFileIsTheSamePipeline() throws {
    let daemon = try Daemon(["a.yaml": counter("counter")])
    var next = 1
    func expectMore() throws {
      for _ in 0..<5 {
        #expect(try daemon.process.line() == "counter \(next)", "\(daemon.process.transcript)")
        next += 1
      }
    }
    try expectMore()
    var old = "a.yaml"
    for round in 1...5 {
      try daemon.rename(old, to: "b\(round).yaml")
      old = "b\(round).yaml"
      let log = try daemon.reload()
      #expect(log.count == 1, "\(log)")
      #expect(log.last?.contains("1 pipeline running") == true, "\(log)")
      try expectMore()
    }
    daemon.process.send(SIGTERM)
    #expect(try daemon.process.wait() == 0)
  }

  /// Two files swap their names: each store has one run at a time, and the new run continues from the last state of the old one.
  @Test func aNameGoesToAnotherFile() throws {
    let daemon = try Daemon(["a.yaml": counter("x")])
    for number in 1...5 { #expect(try daemon.process.line() == "x \(number)") }
    try daemon.folder.write("files/a.yaml", counter("y", from: 1000))
    try daemon.folder.write("files/b.yaml", counter("x"))
    let log = try daemon.reload()
    #expect(!log.contains { $0.contains("killed or has crashed") || $0.contains("error") }, "\(log)")
    var last = 5
    var hasY = false
    for _ in 0..<40 {
      let line = try #require(try daemon.process.line())
      if line.hasPrefix("y ") {
        hasY = true
        continue
      }
      last += 1
      #expect(line == "x \(last)", "\(daemon.process.transcript)")
    }
    #expect(hasY)
    daemon.process.send(SIGTERM)
    #expect(try daemon.process.wait() == 0)
  }

  @Test func twoPipelinesOfOneNameDoNotShareAState() throws {
    let daemon = try Daemon(["a.yaml": counter("x"), "b.yaml": counter("x")])
    let line = try daemon.process.errorLine(with: "failed")
    #expect(
      line.contains(
        "the pipeline of \(daemon.folder.path)/files/a.yaml has this name, too, and its state is kept under it: give one of them another 'name'"
      ), "\(line)")
    for number in 1...5 { #expect(try daemon.process.line() == "x \(number)") }
    daemon.process.send(SIGTERM)
    _ = try daemon.process.wait()
  }

  /// A pipeline without a name is named after its file, so a renamed file is another pipeline: it gets the address as soon as the old one has left
  /// it.
  @Test func anAddressGoesToAnotherFile() throws {
    let free = try FreePort()
    let text = """
      sources: { in: { tcp: 127.0.0.1:\(free.number) } }
      sinks: { out: { from: in, stdout: text } }

      """
    let daemon = try Daemon(["a0.yaml": text], keepsState: false)
    try daemon.process.errorLine(with: "listening on")
    for round in 0..<5 {
      try rename(round, free, daemon) { log throws in
        #expect(!log.contains { $0.contains("warning") }, "\(log)")
        #expect(try daemon.process.line() == "cut \(round)", "\(daemon.process.transcript)")
      }
    }
    daemon.process.send(SIGTERM)
    #expect(try daemon.process.wait() == 0)
  }

  /// Undelivered events of its sinks wait until a pipeline of this name exists again.
  @Test func whatASinkHoldsWaitsForItsName() throws {
    let free = try FreePort()
    let nobody = try FreePort()
    func text(_ receiver: String) -> String {
      """
      sources: { in: { tcp: 127.0.0.1:\(free.number) } }
      sinks:
        out: { from: in, chain: [ { filter: "event.startsWith('whole')" } ], stdout: text }
        held: { from: in, chain: [ { filter: "event.startsWith('cut')" } ], http: '\(receiver)' }

      """
    }
    let daemon = try Daemon(["a0.yaml": text("http://127.0.0.1:\(nobody.number)/")])
    try daemon.process.errorLine(with: "listening on")
    for round in 0..<3 {
      try rename(round, free, daemon) { log throws in
        let warning = "1 event is kept for the sinks of this pipeline, whose file is gone"
        if !log.contains(where: { $0.contains(warning) }) { try daemon.process.errorLine(with: warning) }
      }
    }
    let bodies = Mutex<[String]>([])
    let arrived = DispatchSemaphore(value: 0)
    let server = try ScriptedServer { connection in
      while let message = connection.message() {
        bodies.withLock { $0.append(String(decoding: message.body, as: UTF8.self)) }
        arrived.signal()
        connection.send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
      }
    }
    defer { server.stop() }
    try FileManager.default.removeItem(atPath: daemon.folder.path + "/files/a3.yaml")
    try daemon.folder.write("files/a1.yaml", text(server.url))
    _ = try daemon.reload()
    #expect(arrived.wait(timeout: .now() + 60) == .success, "\(daemon.process.transcript)")
    daemon.process.send(SIGTERM)
    #expect(try daemon.process.wait() == 0)
    #expect(bodies.withLock { $0 }.map { $0.contains("cut 1") } == [true], "\(bodies.withLock { $0 })")
  }

  /// Sends a line and the start of another, renames the file of the pipeline, and checks what follows with the log of the
  /// reload.
  private func rename(_ round: Int, _ port: FreePort, _ daemon: Daemon, _ check: ([String]) throws -> Void) throws {
    let client = try #require(SocketClient(port: port.number))
    client.send("whole \(round)\ncut \(round)")
    #expect(try daemon.process.line() == "whole \(round)")
    try daemon.rename("a\(round).yaml", to: "a\(round + 1).yaml")
    let log = try daemon.reload()
    #expect(!log.contains { $0.contains("error") }, "\(log)")
    #expect(log.contains { $0.contains("listening on") }, "\(log)")
    #expect(client.receive()?.isEmpty == true)
    try check(log)
  }
}
