import Foundation
import PipelineCore
import PipelineHost
import PipelineTestSupport
import Synchronization
import Testing
import Transport

@testable import Sources_

/// The source `docker` against a small server that answers as Docker's documentation describes.
@Suite(.serialized) struct DockerTests {
  let scratch = Scratch()

  private func start(_ daemon: DockerDaemon) throws -> ScriptedServer {
    try ScriptedServer(path: scratch("docker.sock"), daemon.serve)
  }

  private func pipeline(_ parameters: String, restoring state: [UInt8]? = nil) throws -> RealPipeline {
    try RealPipeline(
      """
      sources: { docker: { docker: { socket: '\(scratch("docker.sock"))', reconnect: 5ms, maxReconnect: 20ms, \(parameters) } } }
      sinks:
        out: { from: docker, probe: {} }
        lost: { from: docker.errors, chain: [ { map: event.error } ], probe: {} }
      """, http: CurlClient(), restoring: state)
  }

  private static let second: Int64 = 1_000_000_000
  private static let now = Int64(Date().timeIntervalSince1970) * second

  // MARK: Tests

  @Test func readsLogsOfAllContainers() throws {
    let daemon = DockerDaemon()
    let (a, b) = (Self.now - 5 * Self.second + 1, Self.now - 4 * Self.second)
    daemon.change {
      $0.containers["aa"] = .init(name: "web-1", lines: [(a, false, "one\n"), (b, true, "two \"ä\"\n")])
      $0.containers["bb"] = .init(name: "tty-1", hasTerminal: true, lines: [(b, false, "three\n")])
      $0.containers["cc"] = .init(name: "other", lines: [(b, false, "no\n")])
      $0.containers["dd"] = .init(name: "web-2", status: 501)
      $0.containers["ee"] = .init(name: "web-3", isRunning: false, lines: [(b, false, "last words\n")])
    }
    let server = try start(daemon)
    let running = try pipeline("since: 1h, containers: ['web-*', tty-1]")
    running.run { running.events.count >= 4 && running.log.contains { $0.contains("'web-2' cannot be read") } }
    let time = DockerDaemon.time
    func line(_ id: String, _ name: String, _ stream: String, _ message: String, _ at: Int64) -> String {
      let fraction = at % Self.second == 0 ? String(time(at).dropLast(11)) + "Z" : time(at)
      return
        #"{"container":{"id":"\#(id)","name":"\#(name)","image":"shop:1","labels":{"env":"prod"}},"stream":"\#(stream)","message":"\#(message)","time":"\#(fraction)"}"#
    }
    #expect(
      running.events.sorted()
        == [
          line("aa", "web-1", "stderr", #"two \"ä\""#, b), line("aa", "web-1", "stdout", "one", a),
          line("bb", "tty-1", "stdout", "three", b), line("ee", "web-3", "stdout", "last words", b),
        ].sorted())
    // A container that starts later.
    daemon.change {
      $0.containers["ff"] = .init(name: "web-9", lines: [(Self.now, false, "new\n")])
      $0.events.append(
        #"{"Type":"container","Action":"start","Actor":{"ID":"ff","Attributes":{"name":"web-9"}},"time":1,"timeNano":1}"#
      )
    }
    running.run { running.events.count == 5 }
    #expect(running.events.last?.contains(#""message":"new""#) == true)
    running.inTurn { $0.execution.drain() }
    #expect(running.runToEnd() == .completed)
    daemon.change { $0.isOver = true }
    server.stop()
  }

  /// After a restart and after a lost connection, each line arrives once.
  @Test func continuesBehindTheLastLine() throws {
    let daemon = DockerDaemon()
    daemon.change {
      $0.containers["aa"] = .init(name: "a", lines: [(Self.now, false, "1\n"), (Self.now + 1, false, "2\n")])
    }
    let server = try start(daemon)
    let first = try pipeline("since: 1h")
    first.run { first.events.count == 2 }
    let state = try #require(first.suspend())
    daemon.change { $0.containers["aa"]?.lines.append((Self.now + 2, false, "3\n")) }
    let second = try pipeline("since: 1h", restoring: state)
    second.run { second.events.count == 1 }
    // The daemon restarts; the container writes meanwhile, and ends.
    daemon.change { $0.isOver = true }
    second.run { second.log.contains { $0.contains("connecting again") } }
    daemon.change {
      $0.containers["aa"]?.lines.append((Self.now + 3, false, "4\n"))
      $0.containers["aa"]?.isRunning = false
      $0.isOver = false
    }
    second.run { second.events.count == 2 }
    #expect(second.events.map { $0.contains(#""message":"3""#) } == [true, false])
    #expect(second.events.last?.contains(#""message":"4""#) == true)
    #expect(
      daemon.requests.contains { $0.contains("/containers/aa/logs?follow=1&stdout=1&stderr=1&timestamps=1&since=") })
    _ = second.suspend()
    daemon.change { $0.isOver = true }
    server.stop()
  }

  @Test func sendsDockersEvents() throws {
    let daemon = DockerDaemon()
    func event(_ number: Int64, _ action: String) -> String {
      #"{"Type":"container","Action":"\#(action)","Actor":{"ID":"aa","Attributes":{"name":"web","exitCode":"1"}},"scope":"local","time":\#(Self.now / Self.second),"timeNano":\#(Self.now + number)}"#
    }
    daemon.change { $0.events = [event(0, "start"), event(1, "die")] }
    let server = try start(daemon)
    let first = try pipeline("emit: events, since: 1h, labels: ['env=prod']")
    first.run { first.events.count == 2 }
    #expect(
      first.events.first?.hasPrefix(
        #"{"type":"container","action":"start","id":"aa","attributes":{"name":"web","exitCode":"1"},"time":""#) == true)
    let state = try #require(first.suspend())
    #expect(daemon.requests.first?.contains("filters=%7B%22label%22%3A%5B%22env%3Dprod%22%5D%7D") == true)
    daemon.change { $0.events.append(event(2, "destroy")) }
    let second = try pipeline("emit: events, since: 1h, labels: ['env=prod']", restoring: state)
    second.run { !second.events.isEmpty }
    #expect(second.events.count == 1 && second.events[0].contains(#""action":"destroy""#))
    _ = second.suspend()
    daemon.change { $0.isOver = true }
    server.stop()
  }

  @Test func waitsForTheSocket() throws {
    let running = try pipeline("since: 1h")
    running.run { running.log.contains { $0.contains("connecting again") } }
    let daemon = DockerDaemon()
    daemon.change { $0.containers["aa"] = .init(name: "a", lines: [(Self.now, false, "1\n")]) }
    let server = try start(daemon)
    running.run { running.events.count == 1 }
    #expect(running.log.contains { $0.contains("connected again") })
    _ = running.suspend()
    daemon.change { $0.isOver = true }
    server.stop()
  }

  // MARK: Lines

  private func lines(_ parts: [[UInt8]], terminal: Bool = false, limit: Int = 100) -> [DockerLines.Line]? {
    var parser = DockerLines(hasTerminal: terminal, limit: limit)
    var found: [DockerLines.Line] = []
    for part in parts where !parser.take(part, { found.append($0) }) { return nil }
    parser.finish { found.append($0) }
    return found
  }

  @Test func linesMayBeCutAnywhere() {
    let stamp = "2026-01-02T03:04:05.000000006Z "
    let time: Int64 = 1_767_323_045_000_000_006
    // Docker has split the first line in two.
    let bytes =
      DockerDaemon.frame(false, stamp + "aa") + DockerDaemon.frame(true, stamp + "x\n")
      + DockerDaemon.frame(false, stamp + "bb\n")
      + DockerDaemon.frame(false, stamp + String(repeating: "y", count: 120) + "\n")
      + DockerDaemon.frame(false, stamp + "open")
    let wanted: [DockerLines.Line] = [
      .init(isError: true, time: time, text: Array("x".utf8)),
      .init(isError: false, time: time, text: Array("aabb".utf8)),
      .init(isError: false, time: time, text: [UInt8](repeating: 0x79, count: 100), cut: 120),
      .init(isError: false, time: time, text: Array("open".utf8)),
    ]
    for cut in 0...bytes.count { #expect(lines([Array(bytes[..<cut]), Array(bytes[cut...])]) == wanted) }
    #expect(lines(bytes.map { [$0] }) == wanted)
    let terminal = Array("\(stamp)one\r\n\(stamp)two\r\nno time\n".utf8)
    for cut in 0...terminal.count {
      #expect(
        lines([Array(terminal[..<cut]), Array(terminal[cut...])], terminal: true) == [
          .init(isError: false, time: time, text: Array("one".utf8)),
          .init(isError: false, time: time, text: Array("two".utf8)),
          .init(isError: false, text: Array("no time".utf8)),
        ])
    }
    #expect(lines([Array("HTTP/1.1 200".utf8)]) == nil)
    #expect(lines([[1, 0, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF]]) == nil)
  }

  @Test(
    arguments: [
      ("1970-01-01T00:00:00Z", 0), ("2026-01-02T03:04:05Z", 1_767_323_045_000_000_000),
      ("2024-02-29T23:59:59.5Z", 1_709_251_199_500_000_000), ("2026-01-02T03:04:05.1234567890Z", nil),
      ("2026-13-02T03:04:05Z", nil), ("2026-01-02T03:04:05+02:00", nil), ("", nil), ("2026-01-02T03:04:05.Z", nil),
    ] as [(String, Int64?)])
  func readsTimes(_ text: String, _ time: Int64?) { #expect(DockerLines.time(Array(text.utf8)[...]) == time) }
}
