import Glibc
import PipelineCore
import PipelineRuntime
import Transport

/// The interface to a running process: HTTP/1.1 over a Unix socket.
enum ControlSocket {
  static let variable = "RXD_CONTROL_SOCKET"
  static let name = "control.sock"
  /// The path of the service's socket.
  static let usual = "/run/rxd/control.sock"

  /// Who has chosen the path of a socket.
  enum Choice {
    /// The command line or the environment: it must work.
    case asked
    /// The directory of the service manager, or of the state.
    case given
    /// rxd: it is there for convenience.
    case usual
  }

  /// The path of a process's own socket; nil: it has none.
  ///
  /// - Parameters:
  ///   - given: The path of the command line, `none` for no socket.
  ///   - state: The state directory.
  static func path(_ given: String?, state: String?) -> (path: String, choice: Choice)? {
    if let asked = named(given) { return asked == "none" ? nil : (asked, .asked) }
    if let directory = [runtimeDirectory, state].compactMap({ $0 }).first { return (file(in: directory), .given) }
    return UserSockets.own().map { ($0, .usual) }
  }

  /// The places at which another process may have its socket.
  struct Places {
    /// Paths that are known; the first that exists counts.
    var named: [String]
    /// Whether processes may also be found at ``ControlSocket/usual``, and where users have theirs.
    var hasUsual: Bool
  }

  static func places(_ given: String?, state: String?) -> Places {
    if let asked = named(given) { return Places(named: [asked], hasUsual: false) }
    return Places(named: [runtimeDirectory.map(file), state.map(file)].compactMap { $0 }, hasUsual: true)
  }

  private static func named(_ given: String?) -> String? {
    [given, ProcessEnvironment[variable]].compactMap { $0 }.first { !$0.isEmpty }
  }

  /// The directory given by the service manager, which may name several; the first is the unit's.
  private static var runtimeDirectory: String? {
    ProcessEnvironment["RUNTIME_DIRECTORY"]?.split(separator: ":").first.map(String.init)
  }

  private static func file(in directory: String) -> String {
    directory.hasSuffix("/") ? directory + name : "\(directory)/\(name)"
  }

  /// Serves the requests that come to `socket`. The network thread starts here, so this is called when the first client
  /// connects.
  static func serve(
    _ socket: LocalSocket, notify: @escaping @Sendable (HTTPServer.Notice) -> Void,
    _ take: @escaping @Sendable (ControlRequest) -> Void
  ) throws(HTTPServerFailure) {
    var options = HTTPServer.Options()
    options.maxHeaderBytes = 16 << 10
    options.rules.maxConnections = 32
    options.rules.maxBodyBytes = RecordedTestRequest.mostBytes
    options.rules.maxBufferedBytes = 4 << 20
    // A reload waits for sinks.
    options.rules.replyTimeout = .seconds(600)
    options.halfClosedTimeout = .seconds(600)
    options.makesRoom = true
    try HTTPServer(options: options).start(on: socket.descriptor, notify: notify) { take(ControlRequest($0)) }
  }
}

/// One request to the control socket.
struct ControlRequest: Sendable {
  private let request: ServerRequest
  let query: [String: String]
  /// The interface that the request came by.
  let entrance: Entrance
  /// That of a session of the live page, kept until the answer has ended.
  private let use: PageSessions.Use?

  /// Where requests come in: over TCP only some things are served.
  enum Entrance: Sendable { case socket, metrics, page }

  init(_ request: ServerRequest, from entrance: Entrance = .socket, use: PageSessions.Use? = nil) {
    self.request = request
    self.entrance = entrance
    self.use = use
    query = Dictionary(request.query) { $1 }
  }

  var method: String { request.method }
  var path: String { request.path }
  var body: [UInt8] { Array(request.body.bytes) }
  var bodyBytes: Int { request.body.bytes.count }
  var accept: String? { request.header("accept") }
  /// The answer is for a person to read.
  var wantsText: Bool { query["format"] == "text" }
  /// The text may have colours.
  var wantsColors: Bool { query["colors"] == "true" }

  /// All values of a name of the query, in their order.
  func all(_ name: String) -> [String] { request.query.filter { $0.name == name }.map(\.value) }

  /// Answers with a stream of lines. Nil: the client has left.
  func stream(
    _ type: String, room: Int = ResponseStream.room, closed: @escaping @Sendable () -> Void
  ) -> ResponseStream? {
    request.stream(status: 200, headers: [("Content-Type", type)], room: room) { [use] in
      withExtendedLifetime(use) { closed() }
    }
  }

  func answer(_ status: Int, _ body: JSONText, headers: [(name: String, value: String)] = []) {
    request.reply.reply(
      status: status, headers: [("Content-Type", "application/json")] + headers, body: Array((body.text + "\n").utf8))
  }

  func answer(_ status: Int, text: String, type: String = "text/plain; charset=utf-8") {
    request.reply.reply(status: status, headers: [("Content-Type", type)], body: Array(text.utf8))
  }
}

/// The requests that the control socket answers, one entry for each path.
struct ControlRoom {
  var method: String
  var path: String
  /// The further interfaces on which it is served.
  var isServed: Set<ControlRequest.Entrance> = []
  /// A longer body is refused.
  var mostBytes = 64 << 10
  /// Called on the main thread.
  var answer: (Supervisor, ControlRequest) -> Void

  static var all: [ControlRoom] {
    [
      ControlRoom(method: "POST", path: "/reload") { $0.reload(for: $1) },
      ControlRoom(method: "GET", path: "/status") { $1.answer(200, $0.statusDocument) },
      ControlRoom(method: "GET", path: "/stats") { $0.answerStatistics($1) },
      ControlRoom(method: "GET", path: "/tap", isServed: [.page]) { $0.answerTap($1) },
      ControlRoom(method: "GET", path: "/why", isServed: [.page]) { $0.answerWhy($1) },
      ControlRoom(method: "POST", path: "/ui/link") { $0.answerPageLink($1) },
      ControlRoom(method: "GET", path: "/ui/feed", isServed: [.page]) { $0.answerFeed($1) },
      ControlRoom(method: "GET", path: "/ui/graph", isServed: [.page]) { $0.answerPicture($1) },
      ControlRoom(
        method: "POST", path: "/ui/test", isServed: [.page], mostBytes: RecordedTestRequest.mostBytes
      ) { $0.answerRecordedTest($1) },
      ControlRoom(method: "GET", path: "/metrics", isServed: [.metrics]) { $0.answerMetrics($1) },
      ControlRoom(method: "GET", path: "/health", isServed: [.metrics]) { $0.answerHealth($1) },
      ControlRoom(method: "GET", path: "/ready", isServed: [.metrics]) { $0.answerReadiness($1) },
    ]
  }

  /// Finds the entry that answers a request.
  static func answer(_ request: ControlRequest, _ supervisor: Supervisor) {
    let served = all.filter { request.entrance == .socket || $0.isServed.contains(request.entrance) }
    let rooms = served.filter { $0.path == request.path }
    if let room = rooms.first(where: { $0.method == request.method }) {
      guard request.bodyBytes <= room.mostBytes else {
        let message = "\(room.path) takes at most \(room.mostBytes) bytes"
        return request.answer(413, .object([("error", .string(message))]))
      }
      return room.answer(supervisor, request)
    }
    let known = JSONText.array(served.map { .string("\($0.method) \($0.path)") })
    if rooms.isEmpty {
      request.answer(404, .object([("error", .string("there is no \(request.path)")), ("known", known)]))
    } else {
      let allowed = rooms.map(\.method).joined(separator: ", ")
      request.answer(
        405, .object([("error", .string("\(request.path) takes \(allowed)")), ("known", known)]),
        headers: [("Allow", allowed)])
    }
  }
}
