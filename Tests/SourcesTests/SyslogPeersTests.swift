import Foundation
import PipelineCore
import PipelineHost
import Testing

/// Syslog to and from other programs: `logger`, and an rsyslogd with its own configuration on loopback ports.
@Suite struct SyslogPeersTests {
  private static func path(_ name: String) -> String? {
    ["/usr/sbin/", "/usr/bin/", "/bin/"].map { $0 + name }.first { access($0, X_OK) == 0 }
  }
  static var hasLogger: Bool { path("logger") != nil }
  static var hasRsyslog: Bool { path("rsyslogd") != nil }

  private func receiving(_ source: String, _ chain: String = "") throws -> RealPipeline {
    try RealPipeline(
      "sources: { in: { syslog: \(source) } }\nsinks: { out: { from: in, \(chain)probe: {} }, bad: { from: in.errors, probe: {} } }"
    )
  }

  private func logger(_ arguments: String...) throws -> Int32 {
    let process = Process()
    process.executableURL = URL(fileURLWithPath: Self.path("logger") ?? "")
    process.arguments = arguments
    try process.run()
    process.waitUntilExit()
    return process.terminationStatus
  }

  private static let parts = "chain: [ { map: '[event.facility, event.severity, event.appname, event.message]' } ], "

  @Test(
    .enabled(if: hasLogger, "needs logger of Debian's bsdutils"),
    arguments: [
      ("udp", ["-d", "--rfc5424"]), ("udp", ["-d", "--rfc3164"]), ("tcp", ["-T", "--rfc5424"]),
      ("tcp", ["-T", "--rfc3164"]),
      ("tcp", ["-T", "--rfc5424", "--octet-count"]),
    ])
  func takesWhatLoggerSends(_ transport: String, _ options: [String]) throws {
    let pipeline = try receiving("{ address: '127.0.0.1:0', transport: \(transport) }", Self.parts)
    let port = try #require(pipeline.port())
    let process = Process()
    process.executableURL = URL(fileURLWithPath: Self.path("logger") ?? "")
    process.arguments =
      ["-n", "127.0.0.1", "-P", "\(port)", "-p", "local3.warning", "-t", "shop"] + options + ["two words"]
    try process.run()
    process.waitUntilExit()
    #expect(process.terminationStatus == 0)
    pipeline.run { pipeline.events.count + pipeline.probe("bad").events.count >= 1 }
    #expect(pipeline.probe("bad").events == [])
    #expect(pipeline.events == [#"["local3","warning","shop","two words"]"#])
  }

  /// As local programs write to /dev/log.
  @Test(.enabled(if: hasLogger, "needs logger of Debian's bsdutils")) func takesWhatLoggerWritesToASocket() throws {
    let folder = Scratch()
    let pipeline = try receiving(folder("log"), "chain: [ { map: '[event.appname, event.message, meta.uid]' } ], ")
    pipeline.run { pipeline.log.contains { $0.contains("listening on") } }
    #expect(try logger("-u", folder("log"), "-t", "shop", "two words") == 0)
    pipeline.run { pipeline.events.count + pipeline.probe("bad").events.count >= 1 }
    #expect(pipeline.probe("bad").events == [])
    #expect(pipeline.events == ["[\"shop\",\"two words\",\(getuid())]"])
  }

  /// An rsyslogd that runs until it is released.
  private final class Rsyslog {
    let folder = Scratch()
    private let process = Process()

    init(_ configuration: String) throws {
      folder.append(
        "global(workDirectory=\"\(folder.path)\")\nmodule(load=\"imtcp\")\n\(configuration)\n", to: "rsyslog.conf")
      process.executableURL = URL(fileURLWithPath: SyslogPeersTests.path("rsyslogd") ?? "")
      process.arguments = ["-n", "-f", folder("rsyslog.conf"), "-i", folder("pid")]
      process.standardOutput = FileHandle.nullDevice
      process.standardError = FileHandle.nullDevice
      try process.run()
    }

    deinit { stop() }

    func stop() {
      guard process.isRunning else { return }
      // A child of a test's thread inherits its signal mask, which blocks SIGTERM.
      kill(process.processIdentifier, SIGKILL)
      process.waitUntilExit()
    }
  }

  /// 100,000 messages go through rsyslogd to rxd over TCP, in either framing, and none is missing.
  @Test(.enabled(if: hasRsyslog, "needs Debian's rsyslog"), arguments: ["octet-counted", "traditional"])
  func rsyslogLosesNothingOnItsWayHere(_ framing: String) throws {
    let count = 100_000
    let pipeline = try receiving(
      "{ address: '127.0.0.1:0', transport: tcp }",
      "chain: [ { map: 'int(event.message.trim())' }, { aggregate: { start: 0, next: running + event } } ], "
    )
    let port = try #require(pipeline.port())
    let folder = Scratch()
    let (rsyslog, input) = try rsyslog(
      """
      input(type="imtcp" address="127.0.0.1" port="0" listenPortFileName="\(folder("port"))")
      action(type="omfwd" target="127.0.0.1" port="\(port)" protocol="tcp" TCP_Framing="\(framing)" template="RSYSLOG_SyslogProtocol23Format")
      """, portIn: folder)
    let client = try #require(SocketClient(port: input))
    nonisolated(unsafe) let sending = client
    Thread {
      sending.send((0..<count).map { "<13>1 2026-01-31T12:00:00Z host app - - - \($0)\n" }.joined())
      sending.end()
    }.start()
    #expect(pipeline.run { pipeline.counters.received >= UInt64(count) }, "\(pipeline.counters.received) have come")
    rsyslog.stop()
    pipeline.inTurn { $0.execution.drain() }
    #expect(pipeline.runToEnd() == .completed)
    // Each of them once: checked by number and sum.
    #expect(pipeline.counters.received == UInt64(count))
    #expect(pipeline.events == ["\(count * (count - 1) / 2)"])
    #expect(pipeline.probe("bad").events == [])
  }

  /// 100,000 events go from rxd to rsyslogd over TCP, and its file has each of them once.
  @Test(.enabled(if: hasRsyslog, "needs Debian's rsyslog"), arguments: ["octets", "lines"])
  func rsyslogGetsEverything(_ framing: String) throws {
    let count = 100_000
    let folder = Scratch()
    let (rsyslog, port) = try rsyslog(
      """
      input(type="imtcp" address="127.0.0.1" port="0" listenPortFileName="\(folder("port"))")
      template(name="all" type="string" string="%syslogfacility-text% %syslogseverity-text% %hostname% %app-name% %structured-data% %msg%\\n")
      action(type="omfile" file="\(folder("out"))" template="all")
      """, portIn: folder)
    folder.append((0..<count).map { "\($0)\n" }.joined(), to: "in")
    let pipeline = try RealPipeline(
      """
      sources: { in: { file: { path: \(folder("in")), decode: lines } } }
      sinks:
        out:
          from: in
          chain: [ { map: { message: event, facility: "'mail'", severity: "'crit'", structuredData: { "x@1": { n: event } } } } ]
          syslog: { address: '127.0.0.1:\(port)', transport: tcp, framing: \(framing), hostname: here, appname: shop }
      """)
    #expect(pipeline.runToEnd() == .completed)
    #expect(pipeline.counters.sent == UInt64(count))
    _ = try FolderWatch(folder.path).first { folder.read("out").split(separator: "\n").count >= count ? true : nil }
    let lines = folder.read("out").split(separator: "\n")
    rsyslog.stop()
    #expect(lines.count == count)
    #expect(Set(lines).count == count)
    #expect(lines.first == #"mail crit here shop [x@1 n="0"] 0"#)
  }

  private func rsyslog(_ configuration: String, portIn folder: Scratch) throws -> (Rsyslog, Int) {
    let rsyslog = try Rsyslog(configuration)
    // The file exists a moment before rsyslogd listens.
    let port = Polling.first {
      Int(folder.read("port").trimmingCharacters(in: .whitespacesAndNewlines)).flatMap { port in
        SocketClient(port: port) == nil ? nil : port
      }
    }
    guard let port else { throw RsyslogFailure() }
    return (rsyslog, port)
  }

  private struct RsyslogFailure: Error {}
}
