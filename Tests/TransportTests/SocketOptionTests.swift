import Foundation
import Glibc
import PipelineHost
import Testing

@testable import Transport

/// Options of sockets: the intended ones are set, and one that the system refuses ends no connection.
@Suite struct SocketOptionTests {
  private func value(_ descriptor: Int32, _ level: Int32, _ number: Int32) -> Int32? {
    var value: Int32 = -1
    var length = socklen_t(MemoryLayout<Int32>.size)
    return getsockopt(descriptor, level, number, &value, &length) == 0 ? value : nil
  }

  @Test func optionsAreThoseThatTheyAreNamedAfter() throws {
    let descriptor = socket(AF_INET, Int32(SOCK_STREAM.rawValue), 0)
    try #require(descriptor >= 0)
    defer { close(descriptor) }
    var faults: [String] = []
    SocketOption.set([.noDelay, .reuseAddress] + SocketOption.keepAlive, descriptor) { faults.append($0) }
    #expect(faults == [])
    let tcp = Int32(IPPROTO_TCP)
    #expect(value(descriptor, tcp, TCP_NODELAY) == 1)
    // The option has the number of TCP_NODELAY, and only root may set it.
    #expect(value(descriptor, SOL_SOCKET, SO_DEBUG) == 0)
    #expect(value(descriptor, SOL_SOCKET, SO_REUSEADDR) == 1)
    #expect(value(descriptor, SOL_SOCKET, SO_KEEPALIVE) == 1)
    #expect(value(descriptor, tcp, TCP_KEEPIDLE) == 60 && value(descriptor, tcp, TCP_KEEPINTVL) == 15)
    #expect(value(descriptor, tcp, TCP_KEEPCNT) == 4)
    // A Unix socket has no TCP options.
    let local = socket(AF_UNIX, Int32(SOCK_STREAM.rawValue), 0)
    try #require(local >= 0)
    defer { close(local) }
    #expect(SocketOption.noDelay.set(local)?.hasPrefix("the socket option TCP_NODELAY cannot be set: ") == true)
  }

  /// A system may refuse an option, for example by a system call filter: clients are still served, and a notice names the
  /// option.
  @Test func aRefusedOptionEndsNoConnection() throws {
    var options = HTTPServer.Options()
    options.socketOptions = [SocketOption(name: "TCP_UNKNOWN", level: Int32(IPPROTO_TCP), number: 12_345)]
    let server = HTTPServer(options: options)
    let told = Guarded<[HTTPServer.Notice]>([])
    let port = try server.start { notice in
      told.withLock { $0.append(notice) }
    } handler: { request in
      request.reply.reply(status: 200, headers: [], body: [])
    }
    defer { server.stop(within: .zero) }
    let connection = try Connection(port: port)
    connection.send("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
    #expect(connection.message()?.head.hasPrefix("HTTP/1.1 200") == true)
    let notices = told.withLock { $0 }
    #expect(notices.count == 1)
    guard case .fault(let reason)? = notices.first else {
      Issue.record("\(notices)")
      return
    }
    #expect(reason.hasPrefix("the socket option TCP_UNKNOWN cannot be set: "), "\(reason)")
  }

  /// NIO sets socket options at the level SOL_SOCKET, and closes a connection if one is refused: options are set in one file only.
  @Test func noOtherPlaceSetsOptions() throws {
    let sources = URL(fileURLWithPath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
      .deletingLastPathComponent().appendingPathComponent("Sources")
    var seen = 0
    for path in try FileManager.default.subpathsOfDirectory(atPath: sources.path).sorted()
    where path.hasSuffix(".swift") {
      let text = try String(contentsOf: sources.appendingPathComponent(path), encoding: .utf8)
      seen += 1
      for word in [".socketOption(", ".tcpOption(", "setsockopt(", "rx_set_option("]
      where text.contains(word) && path != "Transport/Sockets/SocketOption.swift" {
        Issue.record("\(path) has \(word)")
      }
    }
    #expect(seen > 100)
  }
}
