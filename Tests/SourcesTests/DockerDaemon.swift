import Foundation
import PipelineHost
import Synchronization
import Transport

/// A small server that answers as Docker's documentation describes: containers and their logs, in their current state.
final class DockerDaemon: Sendable {
  struct Container: Sendable {
    var name: String
    var isRunning = true
    var hasTerminal = false
    /// With times in nanoseconds.
    var lines: [(time: Int64, isError: Bool, text: String)] = []
    /// Replaces 200.
    var status = 200
  }

  struct State: Sendable {
    var containers: [String: Container] = [:]
    var events: [String] = []
    var requests: [String] = []
    var isOver = false
  }

  private let state = Guarded(State())

  func change(_ body: (inout State) -> Void) {
    state.withLock(body)
    state.notify()
  }

  var requests: [String] { state.withLock(\.requests) }

  static func frame(_ isError: Bool, _ text: String) -> [UInt8] {
    let length = UInt32(text.utf8.count)
    return [isError ? 2 : 1, 0, 0, 0] + withUnsafeBytes(of: length.bigEndian) { Array($0) } + Array(text.utf8)
  }

  static func time(_ nanoseconds: Int64) -> String {
    let formatter = ISO8601DateFormatter()
    let whole = formatter.string(from: Date(timeIntervalSince1970: TimeInterval(nanoseconds / 1_000_000_000)))
    let rest = String(nanoseconds % 1_000_000_000)
    return whole.dropLast() + "." + String(repeating: "0", count: 9 - rest.count) + rest + "Z"
  }

  private static func nanoseconds(_ path: String) -> Int64 {
    guard let range = path.range(of: "since=") else { return 0 }
    let parts = path[range.upperBound...].prefix { $0 != "&" }.split(separator: ".")
    return (Int64(parts[0]) ?? 0) * 1_000_000_000 + (parts.count > 1 ? Int64(parts[1]) ?? 0 : 0)
  }

  private static func chunk(_ bytes: [UInt8]) -> [UInt8] {
    Array((String(bytes.count, radix: 16) + "\r\n").utf8) + bytes + Array("\r\n".utf8)
  }

  private static let streamed = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"

  @Sendable func serve(_ connection: Connection) {
    while let (head, _) = connection.message(hasBody: false) {
      let path = String(head.split(separator: " ")[1])
      change { $0.requests.append(path) }
      let parts = path.split(separator: "?")[0].split(separator: "/").map(String.init)
      if parts == ["events"] { return stream(connection) { self.state.withLock(\.events) } }
      if parts == ["containers", "json"] {
        let all = state.withLock(\.containers).map { id, container in
          #"{"Id":"\#(id)","Names":["/\#(container.name)"],"State":"\#(container.isRunning ? "running" : "exited")"}"#
        }
        answer(connection, 200, "[\(all.joined(separator: ","))]")
        continue
      }
      guard parts.count == 3, parts[0] == "containers", let container = state.withLock({ $0.containers[parts[1]] })
      else {
        answer(connection, 404, #"{"message":"No such container"}"#)
        continue
      }
      if parts[2] == "json" {
        answer(
          connection, 200,
          #"{"Id":"\#(parts[1])","Name":"/\#(container.name)","Config":{"Image":"shop:1","Tty":\#(container.hasTerminal),"Labels":{"env":"prod"}}}"#
        )
      } else if container.status != 200 {
        answer(connection, container.status, "{}")
      } else {
        return logs(connection, parts[1], since: Self.nanoseconds(path), container.hasTerminal)
      }
    }
  }

  private func answer(_ connection: Connection, _ status: Int, _ body: String) {
    connection.send("HTTP/1.1 \(status) OK\r\nContent-Length: \(body.utf8.count)\r\n\r\n\(body)")
  }

  private func stream(_ connection: Connection, _ lines: () -> [String]) {
    connection.send(Self.streamed)
    var sent = 0
    while true {
      let wanted: (inout State) -> [String]? = { state in
        state.isOver || state.events.count > sent ? Array(state.events[min(sent, state.events.count)...]) : nil
      }
      guard let more = state.wait(until: nil, wanted), !more.isEmpty else { return }
      sent += more.count
      guard connection.send(Self.chunk(Array((more.joined(separator: "\n") + "\n").utf8))) else { return }
    }
  }

  private func logs(_ connection: Connection, _ id: String, since: Int64, _ hasTerminal: Bool) {
    connection.send(Self.streamed)
    var sent = 0
    while true {
      let wanted: (inout State) -> (lines: [(time: Int64, isError: Bool, text: String)], isEnd: Bool)? = { state in
        guard let container = state.containers[id] else { return ([], true) }
        let rest = Array(container.lines.dropFirst(sent))
        return rest.isEmpty && container.isRunning && !state.isOver ? nil : (rest, rest.isEmpty)
      }
      guard let (lines, isEnd) = state.wait(until: nil, wanted) else { return }
      sent += lines.count
      for line in lines where line.time >= since {
        let text = "\(Self.time(line.time)) \(line.text)"
        let bytes = hasTerminal ? Array((text.dropLast() + "\r\n").utf8) : Self.frame(line.isError, text)
        guard connection.send(Self.chunk(bytes)) else { return }
      }
      if isEnd {
        connection.send("0\r\n\r\n")
        return
      }
    }
  }

  /// Ends the answers of a daemon, and its server.
  final class Ending {
    private let daemon: DockerDaemon
    private let server: ScriptedServer
    init(_ daemon: DockerDaemon, _ server: ScriptedServer) {
      self.daemon = daemon
      self.server = server
    }
    deinit {
      daemon.change { $0.isOver = true }
      server.stop()
    }
  }
}
