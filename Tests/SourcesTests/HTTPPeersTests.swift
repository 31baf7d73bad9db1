import Foundation
import PipelineCore
import PipelineHost
import Testing
import Transport

/// `http` against Debian's nginx, with its own configuration on a loopback port.
@Suite struct HTTPPeersTests {
  static var hasNginx: Bool { access("/usr/sbin/nginx", X_OK) == 0 }

  /// An nginx that runs until it is released.
  private final class Nginx {
    let folder = Scratch()
    private(set) var port: UInt16 = 0
    private var process = Process()

    /// - Parameter locations: the content of `server`.
    init(_ locations: String) throws {
      mkdir(folder("docs"), 0o755)
      // A free port may be taken in a moment, so another is tried.
      for attempt in 0..<10 {
        port = try Self.freePort()
        let name = "nginx-\(attempt).conf"
        folder.append(
          """
          daemon off; master_process off; pid \(folder("pid")); error_log \(folder("error.log"));
          events {}
          http {
            log_format short '$request_uri $status $http_if_none_match';
            access_log \(folder("access.log")) short;
            client_body_temp_path \(folder("body")); proxy_temp_path \(folder("proxy"));
            fastcgi_temp_path \(folder("fastcgi")); uwsgi_temp_path \(folder("uwsgi")); scgi_temp_path \(folder("scgi"));
            server { listen 127.0.0.1:\(port); root \(folder("docs")); \(locations) }
          }
          """, to: name)
        process = Process()
        process.executableURL = URL(fileURLWithPath: "/usr/sbin/nginx")
        process.arguments = ["-c", folder(name), "-p", folder.path]
        process.standardError = FileHandle.nullDevice
        try process.run()
        let isUp = Polling.first(pause: 1) { () -> Bool? in
          guard process.isRunning else { return false }
          guard let connection = try? Connection(port: Int(port)) else { return nil }
          connection.close()
          return true
        }
        if isUp == true { return }
      }
      throw PosixError("start", "nginx")
    }

    private static func freePort() throws -> UInt16 {
      let server = try ScriptedServer { _ in }
      defer { server.stop() }
      return server.port
    }

    var url: String { "http://127.0.0.1:\(port)" }
    /// The log, once it has so many lines: nginx writes a line after its answer.
    func log(of lines: Int) -> [String] {
      Polling.until(pause: 1) { log.count >= lines }
      return log
    }

    var log: [String] { folder.read("access.log").split(separator: "\n").map(String.init) }

    func put(_ text: String, _ name: String) throws {
      let file = folder("docs") + "/" + name
      try Data(text.utf8).write(to: URL(fileURLWithPath: file + ".new"))
      rename(file + ".new", file)
    }

    deinit {
      guard process.isRunning else { return }
      // A child of a test's thread inherits its signal mask, which blocks SIGTERM.
      kill(process.processIdentifier, SIGKILL)
      process.waitUntilExit()
    }
  }

  @Test(.enabled(if: hasNginx, "needs Debian's nginx-light")) func aFileIsAnEventWhenItHasChanged() throws {
    let nginx = try Nginx("")
    try nginx.put("[1]", "doc.json")
    let pipeline = try RealPipeline(
      """
      sources: { doc: { http: { url: '\(nginx.url)/doc.json', every: 20ms, conditional: true } } }
      sinks: { out: { from: doc, probe: {} }, bad: { from: doc.errors, probe: {} } }
      """, http: CurlClient())
    pipeline.run { nginx.log.contains { $0.hasPrefix("/doc.json 304 ") } }
    #expect(pipeline.events == ["[1]"])
    try nginx.put("[1, 2]", "doc.json")
    pipeline.run { pipeline.events.count > 1 }
    #expect(pipeline.events == ["[1]", "[1, 2]"])
    #expect(pipeline.probe("bad").events == [])
  }

  @Test(.enabled(if: hasNginx, "needs Debian's nginx-light")) func pagesAreFollowedToTheLast() throws {
    let nginx = try Nginx(
      """
      location = /1 { default_type application/json; add_header Link '</2>; rel="next"'; return 200 '[1]'; }
      location = /2 { default_type application/json; add_header Link '</3?a=b>; rel="next", </1>; rel="first"'; return 200 '[2]'; }
      location = /3 { default_type application/json; return 200 '[3]'; }
      """)
    let pipeline = try RealPipeline(
      """
      sources: { list: { http: { url: '\(nginx.url)/1', pages: { next: link } } } }
      signals: { items: { from: list, chain: [ { flattenMap: event } ] } }
      sinks: { out: { from: items, probe: {} } }
      """, http: CurlClient())
    #expect(pipeline.runToEnd() == .completed)
    #expect(pipeline.events == ["1", "2", "3"])
    #expect(
      nginx.log(of: 3).map { $0.split(separator: " ").prefix(2).joined(separator: " ") } == [
        "/1 200", "/2 200", "/3?a=b 200",
      ])
  }
}
