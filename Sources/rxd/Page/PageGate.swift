import PipelineCore
import Transport

/// Serves the live page over TCP: its files to every client, everything else with the token.
///
/// The token stands in the fragment of the page's address, which browsers send nowhere; the page sends it as
/// `Authorization: Bearer ...`. No page of another site gets an answer (``PageAccess``).
struct PageGate: Sendable {
  let address: TCPAddress
  let token: Secret
  /// The names that it answers to besides this machine's own.
  var hosts: [String] = []

  /// An unpredictable token.
  static func randomToken() -> Secret {
    var generator = SystemRandomNumberGenerator()
    return Secret(
      (0..<4).map { _ in Printable.hex(UInt32.random(in: 0 ... .max, using: &generator), digits: 8) }.joined())
  }

  /// The address for a browser: with the token, so not for logs.
  func url(port: Int) -> String {
    let safe = token.revealed.utf8.map { byte in
      isUnreserved(byte) ? String(UnicodeScalar(byte)) : "%" + Printable.hex(UInt32(byte), digits: 2)
    }
    return "http://\(address.authority(port: port))/#\(safe.joined())"
  }

  private func isUnreserved(_ byte: UInt8) -> Bool {
    (0x30...0x39).contains(byte) || (0x61...0x7A).contains(byte | 0x20) || [0x2D, 0x2E, 0x5F, 0x7E].contains(byte)
  }

  /// Starts listening; returns the port. `take` gets the requests with the right token that are for none of the page's files, on the network
  /// thread.
  func start(
    notify: @escaping @Sendable (HTTPServer.Notice) -> Void, take: @escaping @Sendable (ServerRequest) -> Void
  ) throws(HTTPServerFailure) -> Int {
    var options = HTTPServer.Options()
    options.host = address.host
    options.port = address.port
    options.maxHeaderBytes = 16 << 10
    options.rules.maxConnections = 64
    options.rules.maxBodyBytes = RecordedTestRequest.mostBytes
    options.rules.maxBufferedBytes = 4 << 20
    options.rules.replyTimeout = .seconds(60)
    options.rules.auth = .bearer(token)
    options.rules.access.hosts = hosts
    options.makesRoom = true
    options.isOpen = { PageFile.named($0) != nil }
    return try HTTPServer(options: options).start(notify: notify) { request in
      if ["GET", "HEAD"].contains(request.method), let file = PageFile.named(request.path) {
        request.reply.reply(status: 200, headers: Self.headers(file.type), body: file.content)
        return
      }
      take(request)
    }
  }

  /// Nothing comes from elsewhere, nothing goes elsewhere, and no other page can put this one into a frame.
  private static func headers(_ type: String) -> [(name: String, value: String)] {
    [
      ("Content-Type", type), ("Cache-Control", "no-store"), ("X-Content-Type-Options", "nosniff"),
      ("Referrer-Policy", "no-referrer"), ("Cross-Origin-Opener-Policy", "same-origin"),
      ("Cross-Origin-Resource-Policy", "same-origin"),
      (
        "Content-Security-Policy",
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
      ),
    ]
  }
}

/// A file of the page, which is part of the program.
struct PageFile {
  var path: String
  var type: String
  var text: String
  var content: [UInt8] { Array(text.utf8) }

  /// The file of that path; nil: there is none. The colours of the picture come from where it is drawn.
  static func named(_ path: String) -> PageFile? {
    if path == "/graph.css" {
      return PageFile(path: path, type: "text/css; charset=utf-8", text: GraphPicture.styleSheet)
    }
    return all.first { $0.path == path }
  }
}
