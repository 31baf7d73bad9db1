import PipelineCore
import Transport

/// Serves the live page over TCP: its files to every client, everything else to clients with a session or with the
/// token.
///
/// A link (`/open?key=...`) opens a session once: the browser gets its cookie, and is redirected to an address without
/// the key. The page then requests the seal of its session (`POST /session`) and sends it as a header with each request
/// (``PageSessions``). Programs send the token, if there is one, as `Authorization: Bearer ...`. Pages of other sites
/// get no answer (``PageAccess``).
final class PageGate: Sendable {
  /// How long a requested link can be used.
  static let lastingOfLinks = TimeSpan.seconds(900)
  private static let openPath = "/open"
  private static let sessionPath = "/session"

  let address: TCPAddress
  /// The token of the token file.
  private let token: Secret?
  /// The names that the server answers to, in addition to this machine's own.
  private let hosts: [String]
  private let sessions = PageSessions()
  private let bearer: ServingRules

  init(address: TCPAddress, token: Secret? = nil, hosts: [String] = []) {
    self.address = address
    self.token = token
    self.hosts = hosts
    var bearer = ServingRules()
    if let token { bearer.auth = .bearer(token) }
    self.bearer = bearer
  }

  /// A new address for a browser, which works once.
  /// - Parameter lasting: How long the address can be used; nil: until it is used.
  func link(port: Int, lasting: TimeSpan?) -> String {
    "http://\(address.authority(port: port))\(Self.openPath)?key=\(sessions.key(lasting: lasting))"
  }

  /// Starts listening; returns the port. `take` gets the requests of sessions and programs that are not for the page's
  /// files, on the network thread, and keeps the use of the session until its answer has ended.
  func start(
    notify: @escaping @Sendable (HTTPServer.Notice) -> Void,
    take: @escaping @Sendable (ServerRequest, PageSessions.Use?) -> Void
  ) throws(HTTPServerFailure) -> Int {
    var options = HTTPServer.Options()
    options.host = address.host
    options.port = address.port
    options.maxHeaderBytes = 16 << 10
    options.rules.maxConnections = 64
    options.rules.maxBodyBytes = RecordedTestRequest.mostBytes
    options.rules.maxBufferedBytes = 4 << 20
    options.rules.replyTimeout = .seconds(60)
    options.rules.access.hosts = hosts
    options.makesRoom = true
    options.authorize = { [self] in refusal(of: $0) }
    return try HTTPServer(options: options).start(notify: notify) { [self] request in
      let isForReading = ["GET", "HEAD"].contains(request.method)
      switch request.path {
      case Self.openPath where isForReading: open(request)
      case Self.sessionPath where request.method == "POST": startSession(request)
      case let path:
        guard isForReading, let file = PageFile.named(path) else {
          return take(request, use(by: request))
        }
        request.reply.reply(status: 200, headers: Self.headers(file.type), body: file.content)
      }
    }
  }

  // MARK: Access

  private func cookie(_ host: String?) -> PageCookie { PageCookie(host, isOnFreePort: address.port == 0) }

  private func hasToken(_ authorization: String?) -> Bool {
    token != nil && bearer.refusal(ofAuthorization: authorization) == nil
  }

  /// The use of a session by an admitted request; nil: the request has the token, or the session has just ended.
  private func use(by request: ServerRequest) -> PageSessions.Use? {
    if hasToken(request.header("authorization")) { return nil }
    return cookie(request.header("host")).value(in: request.header("cookie")).flatMap(sessions.use)
  }

  /// The answer to a client without a session or the token; nil: its request is taken.
  private func refusal(of head: ServerRequestHead) -> ServerAnswer? {
    if hasToken(head.header("authorization")) { return nil }
    let path = head.path
    if ["GET", "HEAD"].contains(head.method), path == Self.openPath || PageFile.named(path) != nil { return nil }
    let cookie = cookie(head.header("host")).value(in: head.header("cookie"))
    if head.method == "POST", path == Self.sessionPath, cookie.map(sessions.has) == true { return nil }
    if let cookie, sessions.admits(cookie: cookie, seal: head.header("x-rxd-seal") ?? "") { return nil }
    return ServerAnswer(
      401, [challenge], error: "there is no session of this browser: open the address that 'rxd ui' prints")
  }

  /// The challenge that HTTP requires with 401: for the token, which the page then asks for; or, if there is no token,
  /// for a session, by a scheme that browsers do not know and leave to the page.
  private var challenge: (name: String, value: String) {
    (name: "WWW-Authenticate", value: "\(token == nil ? "Rxd-Session" : "Bearer") realm=\"rxd\"")
  }

  /// `GET /open`: exchanges the key of a link for a session.
  private func open(_ request: ServerRequest) {
    // Other methods, such as HEAD, open no session.
    guard request.method == "GET" else {
      request.reply.reply(status: 200, headers: Self.headers("text/html; charset=utf-8"), body: [])
      return
    }
    let cookie = cookie(request.header("host"))
    let present = cookie.value(in: request.header("cookie"))
    let key = request.query.first { $0.name == "key" }?.value ?? ""
    switch sessions.exchange(key, replacing: present) {
    case .opened(let value): goOn(request, cookie.header(value))
    // The link is from the browser's history, and its session still exists.
    case .refused where present.map(sessions.has) == true: goOn(request, nil)
    case .refused: refuse(request, 410, Self.spentLink)
    case .tooMany: refuse(request, 429, Self.tooManyLinks)
    }
  }

  /// Sends the browser to the page, at an address without the key.
  private func goOn(_ request: ServerRequest, _ cookie: (name: String, value: String)?) {
    var headers = Self.headers("text/html; charset=utf-8")
    headers.append((name: "Location", value: "./"))
    if let cookie { headers.append(cookie) }
    request.reply.reply(status: 303, headers: headers, body: [])
  }

  private func refuse(_ request: ServerRequest, _ status: Int, _ sentence: String) {
    let page = """
      <!doctype html>
      <html lang="en"><head><meta charset="utf-8"><title>rxd</title></head>
      <body><h1>This link does not work</h1><p>\(sentence)</p></body></html>

      """
    var headers = Self.headers("text/html; charset=utf-8")
    if status == 429 { headers.append((name: "Retry-After", value: "1")) }
    request.reply.reply(status: status, headers: headers, body: Array(page.utf8))
  }

  private static let spentLink = """
    A link to the live page works once and, if <code>rxd ui</code> has printed it, for \(lastingOfLinks.nanoseconds / 60_000_000_000) minutes. This one \
    has been used, is too old, or is of an earlier start of rxd. Run <code>rxd ui</code> on the machine that rxd runs on, \
    and open the address that it prints.
    """

  private static let tooManyLinks =
    "Too many wrong links were opened just now. This one has not been used: open it again in a second."

  /// `POST /session`: the seal of a session for its page, or a session for a client with the token.
  private func startSession(_ request: ServerRequest) {
    let cookie = cookie(request.header("host"))
    var headers = Self.headers("application/json")
    let seal: String
    if hasToken(request.header("authorization")) {
      let session = sessions.open()
      headers.append(cookie.header(session.cookie))
      seal = session.seal
    } else if let new = cookie.value(in: request.header("cookie")).flatMap(sessions.seal) {
      seal = new
    } else {
      headers.append(challenge)
      return answer(409, headers, "error", "another page has the seal of this session")
    }
    answer(200, headers + cookie.removals(in: request.header("cookie")), "seal", seal)

    func answer(_ status: Int, _ headers: [(name: String, value: String)], _ name: String, _ text: String) {
      request.reply.reply(
        status: status, headers: headers, body: Array(JSONText.object([(name, .string(text))]).line.utf8))
    }
  }

  /// The page loads nothing from other sites, sends nothing to them, and cannot be put into a frame.
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

/// The cookie of a session. Browsers keep one set of cookies for all ports of a machine, so its name contains the port
/// of the page.
struct PageCookie {
  /// The maximum number of cookies of free ports. Each start gets another free port, and browsers keep the cookies.
  static let mostOfFreePorts = 16
  private static let freePort = "rxd-free-"
  let name: String

  /// - Parameter isOnFreePort: Whether the system has chosen the port on which the page is served.
  init(_ host: String?, isOnFreePort: Bool) {
    let port = (host ?? "").utf8.reversed().prefix { (0x30...0x39).contains($0) }.reversed()
    let isPort = (1...5).contains(port.count) && (host ?? "").utf8.dropLast(port.count).last == UInt8(ascii: ":")
    name = isPort ? (isOnFreePort ? Self.freePort : "rxd-") + String(decoding: port, as: UTF8.self) : "rxd"
  }

  /// Headers that remove the oldest cookies of free ports above ``mostOfFreePorts`` from a browser that sends these
  /// cookies. Browsers send the oldest ones first.
  func removals(in header: String?) -> [(name: String, value: String)] {
    var others: [String] = []
    for part in (header ?? "").utf8.split(separator: UInt8(ascii: ";")) {
      let other = String(decoding: part.drop { $0 == 0x20 }.prefix { $0 != UInt8(ascii: "=") }, as: UTF8.self)
      let port = other.utf8.dropFirst(Self.freePort.utf8.count)
      guard other.hasPrefix(Self.freePort), (1...5).contains(port.count),
        port.allSatisfy({ (0x30...0x39).contains($0) }), other != name
      else { continue }
      others.append(other)
    }
    return others.dropLast(Self.mostOfFreePorts - 1).map { other in
      (name: "Set-Cookie", value: "\(other)=; Max-Age=0; HttpOnly; SameSite=Strict")
    }
  }

  /// The cookie's value in a `Cookie` header.
  func value(in header: String?) -> String? {
    for part in (header ?? "").utf8.split(separator: UInt8(ascii: ";")) {
      let pair = part.drop { $0 == 0x20 }
      guard let equals = pair.firstIndex(of: UInt8(ascii: "=")), pair[..<equals].elementsEqual(name.utf8) else {
        continue
      }
      return String(decoding: pair[pair.index(after: equals)...], as: UTF8.self)
    }
    return nil
  }

  /// The header that sets the cookie until the browser exits. Scripts cannot read the cookie, and requests caused by
  /// other sites do not send it. Without a `Path` browsers use the directory of the request, so behind a proxy that
  /// serves several processes at paths of one name, each process has its own cookie.
  func header(_ value: String) -> (name: String, value: String) {
    ("Set-Cookie", "\(name)=\(value); HttpOnly; SameSite=Strict")
  }
}

/// A file of the page, which is part of the program.
struct PageFile {
  var path: String
  var type: String
  var text: String
  var content: [UInt8] { Array(text.utf8) }

  /// The file of that path; nil: there is none. The colours of the picture come from the code that draws it.
  static func named(_ path: String) -> PageFile? {
    if path == "/graph.css" {
      return PageFile(path: path, type: "text/css; charset=utf-8", text: GraphPicture.styleSheet)
    }
    return all.first { $0.path == path }
  }
}
