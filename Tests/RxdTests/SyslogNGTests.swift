import Foundation
import PipelineHost
import Testing
import Transport

/// Syslog to and from syslog-ng, which Debian cannot install together with rsyslog: `scripts/install-packages --tests`
/// unpacks it.
@Suite(.timeLimit(.minutes(10)), .enabled(if: SyslogNG.isThere, "needs syslog-ng: scripts/install-packages --tests"))
struct SyslogNGTests {
  let folder: Scratch
  init() throws { folder = try Scratch() }

  private func receiving(_ transport: String, _ chain: String) throws -> RealPipeline {
    try RealPipeline(
      """
      sources: { in: { syslog: { address: '127.0.0.1:0', transport: \(transport) } } }
      sinks: { out: { from: in, chain: [ \(chain) ], probe: {} }, bad: { from: in.errors, probe: {} } }
      """)
  }

  /// RFC 5424 over TCP, each message preceded by its octet count: every message arrives once.
  @Test func messagesComeByTCP() throws {
    let count = 50_000
    let pipeline = try receiving(
      "tcp", "{ map: '[event.facility, event.severity, event.hostname, event.appname, event.procid, event.message]' }")
    let port = try #require(pipeline.port())
    _ = try folder.write(
      "in", (0..<count).map { "<83>1 2026-01-31T12:00:00+01:00 web-1 shop 42 ID7 - wörds of \($0)\n" }.joined())
    let server = try SyslogNG(
      """
      source s { file("\(folder.path)/in" follow-freq(0.1) flags(syslog-protocol)); };
      destination d { syslog("127.0.0.1" port(\(port)) transport("tcp")); };
      log { source(s); destination(d); flags(flow-control); };
      """)
    #expect(pipeline.run { pipeline.counters.received >= UInt64(count) }, "\(pipeline.counters.received) have come")
    withExtendedLifetime(server) {}
    #expect(pipeline.probe("bad").events == [])
    #expect(pipeline.events.count == count)
    #expect(Set(pipeline.events).count == count)
    #expect(pipeline.events.first == #"["authpriv","err","web-1","shop","42","wörds of 0"]"#)
    pipeline.inTurn { $0.execution.drain() }
    #expect(pipeline.runToEnd() == .completed)
  }

  /// RFC 3164 over UDP, as network() sends it.
  @Test func messagesComeByUDP() throws {
    let count = 200
    let pipeline = try receiving(
      "udp", "{ map: '[event.facility, event.severity, event.hostname, event.appname, event.procid, event.message]' }")
    let port = try #require(pipeline.port())
    _ = try folder.write("in", (0..<count).map { "<165>Jan 31 12:00:00 web-1 shop[42]: two words \($0)\n" }.joined())
    let server = try SyslogNG(
      """
      source s { file("\(folder.path)/in" follow-freq(0.1)); };
      destination d { network("127.0.0.1" port(\(port)) transport("udp")); };
      log { source(s); destination(d); };
      """)
    #expect(pipeline.run { pipeline.counters.received >= UInt64(count) }, "\(pipeline.counters.received) have come")
    withExtendedLifetime(server) {}
    #expect(pipeline.probe("bad").events == [])
    #expect(Set(pipeline.events).count == count)
    #expect(
      pipeline.events.contains(#"["local4","notice","web-1","shop","42","two words 7"]"#),
      "\(pipeline.events.first ?? "")")
    pipeline.inTurn { $0.execution.drain() }
    #expect(pipeline.runToEnd() == .completed)
  }

  /// The output of the sink is what syslog-ng writes to a file, with every field in its column.
  @Test(arguments: ["octets", "udp"]) func messagesGoToAFile(_ way: String) throws {
    let count = way == "udp" ? 200 : 50_000
    let out = "\(folder.path)/out"
    let (server, port) = try SyslogNG.listening(isDatagram: way == "udp") { port in
      let source =
        way == "udp"
        ? #"network(ip("127.0.0.1") port(\#(port)) transport("udp"))"#
        : #"syslog(ip("127.0.0.1") port(\#(port)) transport("tcp"))"#
      return """
        source s { \(source); };
        destination d { file("\(out)" template("$FACILITY $LEVEL $HOST $PROGRAM $PID ${.SDATA.x@1.n} $MESSAGE\\n") flush-lines(1)); };
        log { source(s); destination(d); };
        """
    }
    let input = try folder.write("in", (0..<count).map { "\($0)\n" }.joined())
    let sink =
      way == "udp"
      ? "transport: udp, format: rfc3164" : "transport: tcp, framing: octets, reconnect: 50ms"
    let pipeline = try RealPipeline(
      """
      sources: { in: { file: { path: '\(input)', decode: lines } } }
      sinks:
        out:
          from: in
          chain: [ { map: { message: "'wörd ' + event", facility: "'mail'", severity: "'crit'", procid: "'42'", structuredData: { "x@1": { n: event } } } } ]
          syslog: { address: '127.0.0.1:\(port)', \(sink), hostname: here, appname: shop }
      """)
    #expect(pipeline.runToEnd() == .completed)
    #expect(pipeline.counters.sent == UInt64(count))
    func lines() -> [Substring] { ((try? String(contentsOfFile: out, encoding: .utf8)) ?? "").split(separator: "\n") }
    Polling.until(pause: 50) { lines().count >= count }
    let written = lines()
    withExtendedLifetime(server) {}
    #expect(written.count == count)
    #expect(Set(written).count == count)
    #expect(written.first.map(String.init) == "mail crit here shop 42 \(way == "udp" ? "" : "0") wörd 0")
  }
}

/// A syslog-ng with its own configuration, which ends with the value.
final class SyslogNG {
  private let process: pid_t
  private let folder: Scratch

  private static let unpacked = "\(Rxd.root)/.build/servers/syslog-ng"
  /// The program, and the libraries that it needs where it is unpacked.
  private static let place: (program: String, libraries: String, modules: String)? = {
    for (root, isSystem) in [(unpacked, false), ("", true)] {
      let program = root + "/usr/sbin/syslog-ng"
      guard access(program, X_OK) == 0 else { continue }
      if isSystem { return (program, "", "") }
      let manager = FileManager.default
      func folders(_ path: String) -> [String] {
        ((try? manager.contentsOfDirectory(atPath: path)) ?? []).map { "\(path)/\($0)" }
      }
      let own = "\(root)/usr/lib/syslog-ng"
      let modules = folders(own).first { access("\($0)/libaffile.so", R_OK) == 0 }
      let libraries =
        [own] + folders("\(root)/usr/lib").filter { $0.hasSuffix("-gnu") }
        + folders("\(root)/lib").filter { $0.hasSuffix("-gnu") }
      if let modules { return (program, libraries.joined(separator: ":"), modules) }
    }
    return nil
  }()

  static var isThere: Bool { place != nil }

  private static let version: String = {
    guard let place else { return "3.38" }
    let text =
      (try? Program.run(place.program, ["--version"], environment: ["LD_LIBRARY_PATH": place.libraries]).output) ?? ""
    // `syslog-ng 3 (3.38.1)`
    let parts = text.prefix { $0 != "\n" }.split(separator: "(").last?.split(separator: ".") ?? []
    return parts.count >= 2 ? "\(parts[0]).\(parts[1])" : "3.38"
  }()

  init(_ configuration: String) throws {
    folder = try Scratch()
    guard let place = Self.place else { throw TimedOut(description: "there is no syslog-ng") }
    let file = try folder.write(
      "syslog-ng.conf",
      """
      @version: \(Self.version)
      options { keep-hostname(yes); keep-timestamp(yes); stats-freq(0); time-reap(1); };
      \(configuration)

      """)
    let path = folder.path
    var actions = posix_spawn_file_actions_t()
    posix_spawn_file_actions_init(&actions)
    defer { posix_spawn_file_actions_destroy(&actions) }
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0)
    posix_spawn_file_actions_addopen(&actions, 1, "\(path)/said", O_WRONLY | O_CREAT | O_APPEND, 0o600)
    posix_spawn_file_actions_adddup2(&actions, 1, 2)
    process = try spawn(
      place.program,
      [
        "syslog-ng", "-F", "-f", file, "--no-caps", "-R", "\(path)/persist", "-c", "\(path)/control", "-p",
        "\(path)/pid",
      ] + (place.modules.isEmpty ? [] : ["--module-path=\(place.modules)"]),
      place.libraries.isEmpty ? [:] : ["LD_LIBRARY_PATH": place.libraries], &actions)
  }

  /// A syslog-ng that listens on an exclusive port, and the port. If it ends immediately, another port is tried.
  static func listening(isDatagram: Bool, _ configuration: (Int) -> String) throws -> (SyslogNG, port: Int) {
    var said = ""
    for _ in 0..<5 {
      let free = try FreePort()
      let server = try SyslogNG(configuration(free.number))
      if try server.isBound(to: free.number, isDatagram: isDatagram) { return (server, free.number) }
      said = server.said
    }
    throw TimedOut(description: "syslog-ng ends at once: \(said)")
  }

  private var said: String { (try? String(contentsOfFile: "\(folder.path)/said", encoding: .utf8)) ?? "" }

  /// Waits until the system reports a socket bound to the port (true), or the program has ended (false).
  private func isBound(to port: Int, isDatagram: Bool) throws -> Bool {
    let place = ":" + String(format: "%04X", port) + " "
    let isBound = Polling.first(pause: 20) { () -> Bool? in
      // Reads the whole table: with many connections it is larger than a page.
      let table = SystemFile.read("/proc/net/\(isDatagram ? "udp" : "tcp")", limit: 16 << 20) ?? []
      let sockets = String(decoding: table, as: UTF8.self)
      if sockets.contains(place) { return true }
      var ended = siginfo_t()
      let hasEnded = waitid(P_PID, id_t(process), &ended, WEXITED | WNOHANG | WNOWAIT) == 0 && ended.si_signo == SIGCHLD
      return hasEnded ? false : nil
    }
    guard let isBound else { throw TimedOut(description: "syslog-ng does not start: \(said)") }
    return isBound
  }

  deinit {
    kill(process, SIGTERM)
    waitpid(process, nil, 0)
  }
}
